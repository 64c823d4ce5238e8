"""Whether a job can run: its configuration, source, service, ledger and destination, each tried without a write."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex

from connector.clock import system_clock
from connector.errors import ConfigurationError, ConnectorError, SourceError
from connector.ledger.beside import check_ledger_rights, count_open_entries, read_lag
from connector.listing.pages import fetch_page
from connector.plurals import count
from connector.service.client import open_client
from connector.service.retry import Retrier
from connector.service.wire import ListQuery
from connector.settings import Settings, build_service
from connector.warehouse.opening import open_writer
from connector.warehouse.runs import ExportStart
from pipelines.flows.exports import plan_export_job
from pipelines.flows.list_traits import describe_list
from pipelines.flows.load_plan import FileReading, plan_validation_by_job
from pipelines.flows.mail_plan import plan_mail
from pipelines.flows.validate import run_validation
from pipelines.jobs.models import Job
from pipelines.jobs.reader import load_job
from pipelines.jobs.settings import read_settings

_ROWS = 100  # of the source: enough to show a wrong mapping
_ATTEMPTS, _LONGEST_S = 2, 5.0  # a person waits for the answer


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What was tried, and what was found, or what is wrong and the next step; `exit_code` is 0 if it went well, 2 if
    something must be mended, 3 if it may go well later."""

    what: str
    message: str
    exit_code: int = 0

    def as_json(self) -> dict[str, object]:
        """Return it as plain JSON values."""
        return {"check": self.what, "ok": not self.exit_code, "message": self.message}


async def check(job_path: Path | None, environ: Mapping[str, str]) -> AsyncIterator[CheckResult]:
    """Yield one result for each part of the job, or of the settings alone; after a configuration that cannot be read
    there is no other. Nothing is created, sent or published."""
    try:
        job = load_job(job_path, environ) if job_path is not None else None
        settings = read_settings(environ, job)
    except ConnectorError as error:
        yield _describe_failure("configuration", error)
        return
    yield CheckResult("configuration", f"account {settings.account}, state folder {settings.state_dir}")
    if job is not None and job.source is not None:
        yield await _try("source", lambda: _read_source(job, settings))
    async for result in _ask_service(settings):
        yield result
    yield await _try("ledger", lambda: _read_ledger(job, settings))
    if job is not None and job.is_export:
        yield await _try("destination", lambda: _prepare_destination(job, settings))


async def _try(what: str, work: Callable[[], str]) -> CheckResult:
    """Do the work, which returns what it found, in a thread: drivers block, and a signal is heard meanwhile."""
    try:
        return CheckResult(what, await asyncio.to_thread(work))
    except ConnectorError as error:
        return _describe_failure(what, error)


def _describe_failure(what: str, error: ConnectorError) -> CheckResult:
    return CheckResult(what, str(error), 2 if isinstance(error, ConfigurationError | SourceError) else 3)


def _read_source(job: Job, settings: Settings) -> str:
    if job.mail is not None:
        with plan_mail(job, settings, limit=_ROWS).source as source:
            rows = next((len(chunk.frame) for chunk in source.chunks()), 0)
        return f"{source.name}: {count(len(source.columns), 'column')}, {count(rows, 'row')} or more"
    verdict = run_validation(plan_validation_by_job(None, job, FileReading(limit=_ROWS)), None, system_clock())
    report = verdict.report
    if report.status == "aborted":
        raise SourceError(report.messages[0])
    counts = report.rows
    found = f"{count(counts['read'], 'first row')} read, {counts['valid']:,} valid, {counts['invalid']:,} invalid"
    if not counts["valid"] and counts["invalid"]:
        raise SourceError(f"{found}; see why by: connector validate JOB")
    return found


async def _ask_service(settings: Settings) -> AsyncIterator[CheckResult]:
    """Yield whether the service accepts the token, and what a few requests show of its list."""
    try:
        async with open_client(build_service(settings, 1)) as client:
            retrier = Retrier(_ATTEMPTS, _LONGEST_S)
            page = await fetch_page(client, retrier, ListQuery(limit=1))
            yield CheckResult(
                "service", f"{settings.service.base_url} takes the token; TotalCount is {page.total_count}"
            )
            async for trait, message in describe_list(client, retrier):
                yield CheckResult(trait, message)
    except ConnectorError as error:
        yield _describe_failure("service", error)


def _read_ledger(job: Job | None, settings: Settings) -> str:
    check_ledger_rights(settings.ledger_url)
    may_be_new = settings.may_make_ledger or job is None or job.subscriber is None
    number = sum(each.number for each in count_open_entries(settings.ledger_url, may_be_new=may_be_new))
    found = "nothing is unresolved"
    if number:
        found = f"{count(number, 'entry', 'entries')} unresolved, held or rejected (see: connector status)"
    lag_s = read_lag(settings.ledger_url, settings.account)
    lag = f"the largest lag of the list on record is {lag_s:.1f} s" if lag_s else "no lag of the list is on record"
    return f"{found}; {lag}"


def _prepare_destination(job: Job, settings: Settings) -> str:
    plan = plan_export_job(job, settings)
    writer = open_writer(plan.destination)
    try:
        writer.prepare(ExportStart(f"check-{token_hex(3)}", job.name, {}, datetime.now(UTC)))
    finally:
        writer.discard()
    return f"{plan.destination} can be written"
