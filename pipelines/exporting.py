"""The flow of an export: list, certify, normalise, write, report."""

from dataclasses import dataclass

from connector.api.client import open_client
from connector.api.listing import Progress as ListProgress
from connector.api.retries import Retrier
from connector.errors import ConfigurationError, RunAborted
from connector.export import Destination, export_subscribers, parse_destination
from connector.load import Clock, system_clock
from connector.protocol.requests import ListQuery
from pipelines.jobs import Job
from pipelines.jobs.conversion import build_query
from pipelines.progress import Progress
from pipelines.report import Report, count_requests, end_report, start_report
from pipelines.settings import Settings, build_service
from pipelines.stopping import Stop

_CONNECTIONS = 4  # a list is read page after page


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """Everything that an export needs to know."""

    job: str
    query: ListQuery
    destination: Destination
    settings: Settings
    is_incomplete_allowed: bool = False


def plan_export_job(job: Job, settings: Settings, *, is_incomplete_allowed: bool = False) -> ExportPlan:
    """The export of a job. Raises ConfigurationError."""
    if job.export is None:
        raise ConfigurationError(f"the job {job.name} loads: run it by `connector sync`")
    destination = parse_destination(job.export.to, table=job.export.table, schema=job.export.schema_)
    return ExportPlan(job.name, build_query(job.export.filters), destination, settings, is_incomplete_allowed)


async def run_export(plan: ExportPlan, stop: Stop, progress: Progress, clock: Clock | None = None) -> Report:
    """Copy the list to the plan's destination, and tell how complete it is."""
    clock = clock or system_clock()
    report = start_report("export", plan.job, clock.now())
    report.rows = {"read": 0, "written": 0}

    def follow(reading: ListProgress) -> None:
        total = f" of {reading.total:,}" if reading.total is not None else ""
        progress.follow(lambda: f"sweep {reading.sweep}: {reading.rows:,}{total} read")

    reason: str | None = None
    async with open_client(build_service(plan.settings, _CONNECTIONS)) as client:
        try:
            exported = await export_subscribers(
                client,
                Retrier(),
                plan.query,
                plan.destination,
                run_id=report.run_id,
                now=clock.now,
                allow_incomplete=plan.is_incomplete_allowed,
                on_progress=follow,
            )
            report.certificate = exported.certificate.as_report()
            report.rows = {"read": exported.certificate.distinct, "written": exported.written}
        except RunAborted as error:
            reason = str(error)
        report.requests = count_requests(client.counts)
    ...
    return report
