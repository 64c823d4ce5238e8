"""The checks of a job: its configuration, source, service, ledger and destination. The checks write nothing."""

import asyncio
import os
import shlex
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import Annotated, Literal, TypedDict

from connector.clock import system_clock
from connector.errors import ConfigurationError, ConnectorError, SourceError
from connector.jobs.export_planner import plan_export_job
from connector.jobs.load_planner import plan_validation
from connector.jobs.mail_planner import plan_mail
from connector.jobs.models import Job
from connector.jobs.reader import load_job, read_settings
from connector.ledger.opening import check_ledger_rights, count_open_entries, read_lag
from connector.listing.hidden import count_groups
from connector.listing.pages import NO_WHOLE_ID_MESSAGE, ListFailed, fetch_page, try_fetch_page
from connector.listing.trials import RequestPage, TrialResult, try_made_up_value, try_sample
from connector.paging.certificate import EvidenceResult, is_window_size
from connector.service.client import Client, open_client
from connector.service.retry import Retrier
from connector.service.wire import ListPage, ListQuery, read_field
from connector.settings import Settings, build_service
from connector.texts import count
from connector.warehouse.destination import Format
from connector.warehouse.opening import open_writer
from connector.warehouse.runs import ExportStart
from pipelines.flows.validate import run_validation

_MAX_ROWS = 100  # rows of the source that are checked; these are enough to show a wrong mapping
_ATTEMPT_COUNT, _MAX_RETRY_S = 2, 5.0  # few attempts and short waits, because a person waits for the result
_TRIED_FILTERS = ("email", "client_user_id")
_GROUP_NAMES_BY_FIELD = {"is_active": "active and inactive", "gender": "male, female and other"}
_MIN_VALUE_LENGTH = 5  # characters; a filter is also tried with all but the first and last character of a value


class CheckItem(TypedDict):
    """The result of one check in the report of `check`."""

    check: Annotated[
        str,
        "Name of the check: `configuration`, `source`, `service`, `page size`, `order`, `filters`, `cut off`, `ledger` "
        "or `destination`.",
    ]
    ok: Annotated[bool, "Whether the check passed."]
    message: Annotated[str, "The finding of the check, or the fault and the next step."]


class CheckReport(TypedDict):
    """The report of `check`."""

    status: Annotated[
        Literal["ok", "usage", "aborted"], "`usage`: correct the failed checks; `aborted`: try again later."
    ]
    checks: Annotated[
        list[CheckItem],
        "Results of the checks, in the order in which they ran. If the configuration is wrong, the list has only the "
        "result of the check `configuration`.",
    ]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check. `message`: the finding of the check, or the fault and the next step. `exit_code`: 0 if
    the check passed, 2 if a person must correct something, 3 if the check may pass later. `job_command`: the command
    that runs the job. Only the result of the configuration has a `job_command`."""

    name: str
    message: str
    exit_code: int = 0
    job_command: Literal["sync", "export", "mail"] | None = None

    def as_json(self) -> CheckItem:
        """Return the result as plain JSON values."""
        return {"check": self.name, "ok": not self.exit_code, "message": self.message}


async def check_job(job_path: Path | None, environ: Mapping[str, str]) -> AsyncGenerator[CheckResult]:
    """Yield the result of each check. Without `job_path`, check only the settings, the service and the ledger. If the
    configuration cannot be read, yield only the result of the check `configuration`. Create, send and publish
    nothing."""
    try:
        job = load_job(job_path, environ) if job_path is not None else None
        settings = read_settings(environ, job)
    except ConnectorError as error:
        yield _describe_failure("configuration", error)
        return
    message = f"account {settings.account}, state folder {settings.state_dir}"
    yield CheckResult("configuration", message, job_command=None if job is None else job.command)
    if job is not None and job.source is not None:
        yield await _run_check("source", lambda: _read_source(job, settings, job_path))
    async with aclosing(_check_service(settings)) as results:
        async for result in results:
            yield result
    yield await _run_check("ledger", lambda: _read_ledger(job, settings))
    if job is not None and job.export is not None:
        yield await _run_check("destination", lambda: _prepare_destination(job, settings))


def advise_on_check(job_path: Path | None, results: Sequence[CheckResult]) -> str:
    """Return the next step after the checks. The first result is the check of the configuration."""
    exit_code = max(result.exit_code for result in results)
    argument = "" if job_path is None else f" {shlex.quote(str(job_path))}"
    if exit_code:
        beginning = "Correct the failed checks. Then run" if exit_code == 2 else "Try again later"
        return f"{beginning}: connector check{argument}"
    match results[0].job_command:
        case None:
            return "To see what an import of a file would do, run: connector plan FILE --base-name NAME"
        case "export":
            return f"To run the job, run: connector export{argument}"
        case "mail":
            return f"To see the emails, run: connector mail{argument} --preview 3"
        case "sync":
            return f"To see what the job would do, run: connector plan{argument}"


async def _run_check(name: str, check: Callable[[], str]) -> CheckResult:
    """Run a check in a thread, and return its result. In the main thread, a database driver would delay the handling of
    signals. `check` returns the message of the result."""
    try:
        return CheckResult(name, await asyncio.to_thread(check))
    except ConnectorError as error:
        return _describe_failure(name, error)


def _describe_failure(name: str, error: ConnectorError) -> CheckResult:
    return CheckResult(name, str(error), 2 if isinstance(error, ConfigurationError | SourceError) else 3)


def _read_source(job: Job, settings: Settings, job_path: Path | None) -> str:
    if job.mail is not None:
        with plan_mail(job, settings, row_limit=_MAX_ROWS).source as source:
            row_count = next((len(chunk.frame) for chunk in source.read_chunks()), 0)
        return f"{source.name}: {count(len(source.columns), 'column')}, {count(row_count, 'row')} or more"
    report = run_validation(plan_validation(job, _MAX_ROWS), None, system_clock()).report
    if report.status == "aborted":
        raise SourceError(report.messages[0])
    counts = report.rows
    read_count_text = f"{count(counts['read'], 'row')} read from the beginning"
    message = f"{read_count_text}, {counts['valid']:,} valid, {counts['invalid']:,} invalid"
    if not counts["valid"] and counts["invalid"]:
        raise SourceError(f"{message}. To see why, run: connector validate {shlex.quote(str(job_path))}")
    return message


async def _check_service(settings: Settings) -> AsyncGenerator[CheckResult]:
    """Yield whether the service accepts the token, and the properties of the list that a few requests show."""
    try:
        async with open_client(build_service(settings, 1)) as client:
            retrier = Retrier(_ATTEMPT_COUNT, _MAX_RETRY_S)
            page = await fetch_page(client, retrier, ListQuery(limit=1))
            message = f"{settings.service.base_url} accepts the token; TotalCount is {page.total_count}"
            yield CheckResult("service", message)
            async for list_property, message in _describe_list(client, retrier):
                yield CheckResult(list_property, message)
    except ConnectorError as error:
        yield _describe_failure("service", error)


def _read_ledger(job: Job | None, settings: Settings) -> str:
    check_ledger_rights(settings.ledger_url)
    may_be_new = settings.may_create_ledger or job is None or job.subscriber is None
    open_entries = count_open_entries(settings.ledger_url, may_be_new=may_be_new)
    entry_count = sum(open_entry.entry_count for open_entry in open_entries)
    entries_text = "no entry is unresolved"
    if entry_count:
        entries_text = f"{count(entry_count, 'entry', 'entries')} unresolved, held or rejected (see: connector status)"
    lag_s = read_lag(settings.ledger_url, settings.account)
    lag_text = f"the largest recorded lag of the list is {lag_s:.1f} s" if lag_s else "no lag of the list is recorded"
    return f"{entries_text}; {lag_text}"


def _prepare_destination(job: Job, settings: Settings) -> str:
    destination = plan_export_job(job, settings).destination
    with ExitStack() as stack:
        trial_destination = destination
        is_database_file = (
            destination.is_database and destination.url is None and destination.format is not Format.DELTA
        )
        if is_database_file and not destination.path.exists():
            folder = TemporaryDirectory(dir=destination.path.resolve().parent, prefix=".connector-check-")
            trial_destination = replace(destination, path=Path(stack.enter_context(folder)) / destination.path.name)
        writer = open_writer(trial_destination)
        stack.callback(writer.discard)
        writer.prepare(ExportStart(f"check-{token_hex(3)}", job.name, {}, datetime.now(UTC)))
    return f"{destination} can be written"


# Properties of the list that a few requests show. Loads and exports do not rely on these results.


async def _describe_list(client: Client, retrier: Retrier) -> AsyncGenerator[tuple[str, str]]:
    """Yield each property of the list with its description. Sends about fifteen list requests. Raises ListFailed if the
    first request fails."""
    page = await fetch_page(client, retrier, ListQuery())
    if len(_read_ids(page)) < len(page.subscribers):
        raise ListFailed(NO_WHOLE_ID_MESSAGE)
    total_text = f" of {page.total_count:,}" if page.total_count is not None else ""
    limit_text = f"; the limit of a page is {page.limit:,}" if page.limit is not None else ""
    yield "page size", f"a page has {len(page.subscribers):,}{total_text} subscribers{limit_text}"
    request_page = partial(try_fetch_page, client, retrier)
    ids, second_page = _read_ids(page), await request_page(ListQuery())
    second_ids = [] if second_page is None else _read_ids(second_page)
    # The client varies the limit of a repeated request, so one page may be longer.
    shared_length = min(len(ids), len(second_ids))
    order_text = "not by id. Two requests for the same page returned the same order"
    if len(ids) < 3:
        order_text = "not known: the list has fewer than three subscribers"
    elif not shared_length or second_ids[:shared_length] != ids[:shared_length]:
        order_text = "two requests for the same page returned different orders, or the list changed meanwhile"
    elif ids == sorted(ids):
        order_text = "by id, ascending"
    elif ids == sorted(ids, reverse=True):
        order_text = "by id, descending"
    yield "order", order_text
    descriptions = [f"{name}: {await _try_filter(request_page, name, page)}" for name in _TRIED_FILTERS]
    yield "filters", "; ".join(descriptions)
    yield "cut off", await _describe_cut_off(request_page, page.total_count)


async def _try_filter(request_page: RequestPage, name: str, page: ListPage) -> str:
    """Try the filter with a made-up value, then with the value of a listed subscriber, then with a part of this value.
    Return a description of the filter."""
    for row in page.subscribers:
        subscriber_id, value = row.get("Id"), read_field(row, name)
        if not isinstance(value, str) or len(value) < _MIN_VALUE_LENGTH:
            continue
        if type(subscriber_id) is int and value.isascii() and value.islower():
            break
    else:
        return "not tried: no listed subscriber has a suitable value"
    made_up_value_result = await try_made_up_value(request_page, name, os.urandom)
    if made_up_value_result is TrialResult.INCONCLUSIVE:
        return "refused by the service"
    if made_up_value_result is TrialResult.IGNORED:
        return "ignored: the service returned subscribers for a made-up value"
    filter_trial = await try_sample(request_page, name, (subscriber_id, value))
    if filter_trial.result not in (TrialResult.EXACT, TrialResult.PARTIAL):
        return "broken: the filter did not find a subscriber by its listed value"
    if filter_trial.result is TrialResult.PARTIAL:
        return "partial: a value found other subscribers, too"
    partial_value_trial = await try_sample(request_page, name, (subscriber_id, value[1:-1]))
    if partial_value_trial.result is TrialResult.PARTIAL:
        return "partial: a part of a value found the subscriber"
    return "exact"


async def _describe_cut_off(request_page: RequestPage, total_count: int | None) -> str:
    """Compare the list's TotalCount with the counts of groups of subscribers, and describe whether the list may be cut
    off.

    A result window limits each count separately, so the counts of the groups together can exceed TotalCount.
    """
    if total_count is None:
        return (
            "not known: the list has no TotalCount. Loads and exports need --ignore-total-count, or "
            "ignore_total_count in the job"
        )
    counts = await count_groups(request_page, 1)
    evidence_by_field = {name: counts.compare_with_total(name) for name in _GROUP_NAMES_BY_FIELD}
    for name, group_names in _GROUP_NAMES_BY_FIELD.items():
        if evidence_by_field[name] is EvidenceResult.CONTRADICTS:
            return (
                f"the list may be cut off or hide subscribers: its TotalCount is {total_count:,}, and the counts of "
                f"{group_names} subscribers add up to {sum(counts.part_totals[name].values()):,}"
            )
    for name, group_names in _GROUP_NAMES_BY_FIELD.items():
        if evidence_by_field[name] is EvidenceResult.AGREES:
            return f"not cut off: the counts of {group_names} subscribers add up to the TotalCount, {total_count:,}"
    if is_window_size(total_count):
        return f"the list may be cut off: {total_count:,} is a typical limit, and nothing shows that the list goes on"
    return f"nothing suggests that the list is cut off: TotalCount is {total_count:,}"


def _read_ids(page: ListPage) -> list[int]:
    return [row["Id"] for row in page.subscribers if type(row.get("Id")) is int]
