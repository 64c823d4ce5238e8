"""The flow of an export: list, certify, normalise, write, report."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from connector.clock import Clock, system_clock
from connector.control import Stop, until_stopped
from connector.errors import ConfigurationError, ConnectorError, LockedError
from connector.fields import BaseRef
from connector.progress import Progression
from connector.report import OpenReport, Report, RunScope, end_report, end_run, record_report, start_report
from connector.scope import describe_asked_base, describe_filters, describe_rate, drop_empty
from connector.service import ListQuery
from connector.settings import Settings, build_service
from connector.warehouse import MAX_SHRINK, Destination, parse_destination

if TYPE_CHECKING:
    from connector.listing import ListProgress
    from connector.paging import IdArray
    from connector.progress import Progress
    from connector.service import Client
    from pipelines.jobs import Job


_LOG = logging.getLogger(__name__)
_KNOWN_COMPARED = 20_000  # confirmed entries of a base that are laid beside a list: one in a thousand missing shows
_QUIET_PERIOD_S = 30.0  # the default of `load.quiet_period`: an export has none of its own


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What an export puts up with: a list that is not certified, one against which TotalCount alone stands, one that is
    so much smaller (a share) than the last, and one that may be cut off."""

    is_incomplete_allowed: bool = False
    is_total_count_ignored: bool = False
    max_shrink: float = MAX_SHRINK
    is_cut_off_accepted: bool = False


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """Everything that an export needs to know."""

    job: str
    query: ListQuery
    destination: Destination
    settings: Settings
    tolerance: Tolerance = Tolerance()
    max_rate: float = inf  # list requests/s


@dataclass(frozen=True, slots=True)
class TableOptions:
    """How a destination is written to, as the command line has it; None where an option was not given."""

    table: str | None = None
    schema: str | None = None
    mode: str = "replace"
    guard_formulas: bool = False
    columns: tuple[str, ...] | None = None
    group_readable: bool = False
    file_format: str | None = None
    partition_by: str | None = None

    @property
    def is_given(self) -> bool:
        """Whether any option was."""
        return self != TableOptions()


def plan_export(
    to: str,
    query: ListQuery,
    settings: Settings,
    options: TableOptions,
    tolerance: Tolerance,
    *,
    is_adopting: bool = False,
) -> ExportPlan:
    """Return the export to a destination given on the command line. Raises ConfigurationError."""
    destination = parse_destination(
        to,
        table=options.table or "subscribers",
        schema=options.schema,
        mode=options.mode,
        guard_formulas=options.guard_formulas,
        columns=options.columns,
        overwrite=is_adopting,
        group_readable=options.group_readable,
        file_format=options.file_format,
        partition_by=options.partition_by,
    )
    if (options.table or options.schema) and not destination.is_database:
        raise ConfigurationError(f"{destination} is a file: --table and --schema are for databases")
    return ExportPlan(destination.path.name, query, destination, settings, tolerance)


def plan_export_job(
    job: Job,
    settings: Settings,
    *,
    is_incomplete_allowed: bool = False,
    is_total_count_ignored: bool = False,
    max_shrink: float | None = None,
    is_cut_off_accepted: bool = False,
    is_adopting: bool = False,
) -> ExportPlan:
    """Return the export of a job; what is given here has priority. Raises ConfigurationError."""
    from pipelines.jobs import build_query  # who has no job need not wait for pydantic

    export = job.export
    if export is None:
        raise ConfigurationError(f"the job {job.name} loads: run it by `connector sync`")
    destination = parse_destination(
        export.to,
        table=export.table,
        schema=export.schema_,
        mode=export.mode,
        guard_formulas=export.guard_formulas,
        columns=export.columns,
        overwrite=export.overwrite or is_adopting,
        group_readable=export.group_readable,
        file_format=export.format,
        partition_by=export.partition_by,
    )
    tolerance = Tolerance(
        is_incomplete_allowed or export.allow_incomplete,
        is_total_count_ignored or export.ignore_total_count,
        export.max_shrink if max_shrink is None else max_shrink,
        is_cut_off_accepted or export.accept_cut_off_possible,
    )
    return ExportPlan(job.name, build_query(export.filters), destination, settings, tolerance, export.max_rate or inf)


async def run_export(plan: ExportPlan, stop: Stop, progress: Progress, clock: Clock | None = None) -> Report:
    """Copy the list to the plan's destination, and tell how complete it is."""
    from connector.ledger import open_pace
    from connector.listing import LIST_CONNECTIONS
    from connector.service import open_client

    clock = clock or system_clock()
    report = start_report("export", plan.job, clock.now(), _describe_scope(plan))
    report.rows = {"read": 0, "written": 0}
    service = build_service(plan.settings, LIST_CONNECTIONS)
    with record_report(report, plan.settings.state_dir, plan.settings.retention_s):
        async with (
            open_pace(plan.settings, plan.max_rate, clock, stop) as pace,
            open_client(service, rate=pace.rate) as client,
        ):
            # Nothing is half written: a writer swaps at its very end or not at all.
            ending = await until_stopped(_copy(plan, report, client, progress, clock), stop)
            report.note_requests(client, clock.monotonic())
        return _end(report, ending, stop, clock).close()


def _describe_scope(plan: ExportPlan) -> RunScope:
    tolerance, destination = plan.tolerance, plan.destination
    settings = {
        "mode": str(destination.mode) if destination.is_database else "",
        "filters": describe_filters(plan.query),
        "max_rate": describe_rate(plan.max_rate),
        "allow_incomplete": "yes" if tolerance.is_incomplete_allowed else "",
        "ignore_total_count": "yes" if tolerance.is_total_count_ignored else "",
        "accept_cut_off_possible": "yes" if tolerance.is_cut_off_accepted else "",
    }
    base = describe_asked_base(BaseRef(plan.query.base_id)) or "all"
    return RunScope(plan.settings.base_url, str(destination), base, plan.settings.account, drop_empty(settings))


async def _copy(plan: ExportPlan, report: OpenReport, client: Client, progress: Progress, clock: Clock) -> bool:
    """Return whether a guard refused it."""
    from connector.export import export_subscribers
    from connector.service import Retrier

    started_at, progression = clock.now().timestamp(), Progression(clock.monotonic)

    async def find_lacking(ids: IdArray) -> Sequence[int]:
        try:
            return await asyncio.to_thread(_find_lacking, plan, started_at, ids)
        except ConnectorError as error:  # an export needs no ledger
            _LOG.warning("the ledger gives no evidence of whether the list is cut off: %s", error)
            return []

    def follow(reading: ListProgress) -> None:
        advance = f"sweep {reading.sweep}: {reading.rows:,} read"
        progress.follow(lambda: f"{advance}; {progression.describe(reading.rows, reading.total)}".rstrip("; "))

    exported = await export_subscribers(
        client,
        Retrier(),
        plan.query,
        plan.destination,
        run_id=report.run_id,
        now=clock.now,
        job=plan.job,
        allow_incomplete=plan.tolerance.is_incomplete_allowed,
        max_shrink=plan.tolerance.max_shrink,
        ignore_total_count=plan.tolerance.is_total_count_ignored,
        accept_cut_off_possible=plan.tolerance.is_cut_off_accepted,
        find_lacking=find_lacking,
        on_progress=follow,
    )
    report.certificate = exported.certificate.as_report()
    report.rows = {"read": exported.certificate.distinct, "written": exported.written}
    report.messages += [exported.note] if exported.note else []
    return exported.is_refused


def _find_lacking(plan: ExportPlan, started_at: float, ids: IdArray) -> Sequence[int]:
    """Subscribers that the ledger has confirmed, that should have shown when the export began, and that are not among
    these ids (architecture 7, rule 7); none while a run may be creating some. Raises ConnectorError."""
    if plan.settings.has_no_ledger:
        return []
    import numpy as np

    from connector.ledger import list_bases, list_runs, open_private_copy, read_largest_lag
    from connector.subscribers import IDENTITY_BYTES

    account, base_id = plan.settings.account, plan.query.base_id
    with open_private_copy(plan.settings.ledger_url, account) as ledger, ledger.transaction() as connection:
        if any(run.status is None for run in list_runs(connection, 1)):
            return []
        shown_since = started_at - max(_QUIET_PERIOD_S, read_largest_lag(connection, account))
        bases = [base for base in list_bases(connection, account) if base_id in (None, base.service_id)]
        start = os.urandom(IDENTITY_BYTES)
        known = [each for base in bases for each in ledger.find_confirmed(base, start, _KNOWN_COMPARED)]
    asked = np.array([each.subscriber_id for each in known if (each.known_since or 0.0) <= shown_since], dtype=np.int64)
    lacking: list[int] = asked[~np.isin(asked, ids)].tolist()
    return lacking


def _end(report: OpenReport, ending: BaseException | bool, stop: Stop, clock: Clock) -> OpenReport:
    """The report's status, by how the copying ended: whether a guard refused it, an error, or a signal."""
    if isinstance(ending, asyncio.CancelledError):
        return end_run(report, stop, "stopped", clock.now())
    if isinstance(ending, LockedError):
        return end_report(report, "locked", clock.now(), str(ending))
    if isinstance(ending, ConnectorError) and not isinstance(ending, ConfigurationError):
        return end_report(report, "aborted", clock.now(), str(ending))
    if isinstance(ending, BaseException):
        raise ending
    if ending:
        return end_report(report, "aborted", clock.now())
    is_complete = report.certificate is not None and report.certificate["verdict"] == "complete"
    is_kept = bool(report.messages)  # the target was left as it was, and the message says why
    return end_report(report, "ok" if is_complete and not is_kept else "partial", clock.now())
