"""The flow of an export: read the list, check whether the list is complete, write the list, and report the run."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from math import inf
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from connector.arrow import INVALID_COLUMN
from connector.clock import Clock
from connector.control import Stop, ignore_cancellation
from connector.errors import ConfigurationError, ConnectorError, LockedError
from connector.fields import BaseRef
from connector.listing.columns import open_columns
from connector.listing.dispatching import ListProgress
from connector.listing.findings import MAX_COMPARED_ENTRIES
from connector.listing.reader import LIST_CONNECTION_COUNT, list_filters, read_list
from connector.pace.pace import Pace
from connector.paging.certificate import Certificate, CertificateReason, EvidenceResult, describe_hidden_groups
from connector.progress import Progress, ProgressMeter
from connector.runs.report import (
    Report,
    RunScope,
    Status,
    describe_filters,
    describe_rate,
    describe_requested_base,
    drop_empty_values,
    end_report,
    end_run,
    record_report,
    start_report,
)
from connector.service.client import Client, open_client
from connector.service.retry import Retrier
from connector.service.wire import ListQuery
from connector.settings import Settings, build_service
from connector.texts import choose_form, count
from connector.warehouse.columns import add_run_columns, narrow_table, select_columns
from connector.warehouse.destination import DEFAULT_MAX_SHRINK, Destination
from connector.warehouse.opening import open_writer
from connector.warehouse.runs import CommitUnknown, ExportRun, ExportStart, WriteMode, Writer

if TYPE_CHECKING:
    from connector.ledger.entries import ConfirmedEntry, Ledger
    from connector.paging.overlap import IdArray


logger = logging.getLogger(__name__)

T = TypeVar("T")

_ROUNDING_ERROR = 1e-9  # in floating point, 29 % of 100 is a little less than 29

_QUIET_PERIOD_S = 30.0  # the default of `load.quiet_period`; an export job has no such key

_INTERRUPT_TIMEOUT_S, _COMMIT_TIMEOUT_S = 3.0, 10.0
"""Seconds that an export waits for its writer to stop after an interruption, and for a commit to end. Then the export
ends, even if the thread of the writer is still busy."""


async def _run_blocking(function: Callable[[], T], writer: Writer, *, is_commit: bool = False) -> T:
    """Run a blocking method of the writer in a thread. If the task is cancelled, interrupt the method, and wait a few
    seconds for its end. If a commit succeeds despite the cancellation, return the result of the commit."""
    work_future = asyncio.ensure_future(_run_in_thread(function))
    try:
        return await asyncio.shield(work_future)
    except asyncio.CancelledError:
        # Read the error, because asyncio warns about an error that nobody has read.
        work_future.add_done_callback(lambda future: future.cancelled() or future.exception())
        interruption_future = asyncio.ensure_future(_run_in_thread(writer.interrupt))
        await asyncio.wait((work_future,), timeout=_INTERRUPT_TIMEOUT_S)
        if not work_future.done() and writer.is_committing:
            await asyncio.wait((work_future,), timeout=_COMMIT_TIMEOUT_S)
            if not work_future.done():
                raise CommitUnknown(
                    "The run was stopped while its rows were being committed, and no answer came. The target has "
                    "either all new rows or none of them. A table has the new rows if the run's line in "
                    "_connector_runs has a finished_at. A file or an object has the new rows if its rows have this "
                    "run's _run_id."
                ) from None
        interruption_future.cancel()
        if not work_future.done() or not is_commit:
            raise
        error = work_future.exception()
        if error is None or isinstance(error, CommitUnknown):
            ignore_cancellation()
            return work_future.result()
        raise


async def _run_in_thread(function: Callable[[], T]) -> T:
    """Run blocking work in a daemon thread, which does not keep the process alive."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def complete_future(set_outcome: Callable[[], None]) -> None:
        if not future.done():
            set_outcome()

    def run_function() -> None:
        set_outcome: Callable[[], None]
        try:
            set_outcome = partial(future.set_result, function())
        except BaseException as error:  # noqa: BLE001 - the future raises it
            set_outcome = partial(future.set_exception, error)
        with suppress(RuntimeError):  # the event loop may be closed already
            loop.call_soon_threadsafe(complete_future, set_outcome)

    Thread(target=run_function, name="connector writes a target", daemon=True).start()
    return await future


def _explain_incomplete_list(
    certificate: Certificate, destination: Destination, *, is_incomplete_allowed: bool, has_target: bool
) -> str:
    """Return the reason why the list may not be written, or "" if the list may be written."""
    if certificate.is_complete:
        return ""
    if is_incomplete_allowed:
        if not has_target or destination.mode is not WriteMode.REPLACE:
            return ""
        return (
            f"The list is incomplete ({certificate.reason}), and an incomplete export replaces nothing: {destination} "
            "was left as it was. Export to another destination, or remove this destination first."
        )
    ledger_finding = certificate.evidence.get("ledger", "")
    if certificate.reason is CertificateReason.CUT_OFF_POSSIBLE and ledger_finding.startswith(EvidenceResult.UNCLEAR):
        return (
            f"The list may hide subscribers ({ledger_finding.removeprefix(f'{EvidenceResult.UNCLEAR}: ')}). "
            f"{destination} was left as it was. If these subscribers were deleted in the service, run again with "
            "--allow-truncated."
        )
    if certificate.reason is CertificateReason.CUT_OFF_POSSIBLE:
        return (
            f"The list may be cut off: {certificate.distinct:,} subscribers is a typical limit, and nothing proves "
            f"that the list ends there. {destination} was left as it was. If the number is right, run again with "
            "--allow-truncated."
        )
    if certificate.reason is CertificateReason.TOTAL_COUNT and certificate.total_last is None:
        return (
            f"The list has no TotalCount: {destination} was left as it was. If the list is complete, run again with "
            "--ignore-total-count."
        )
    if certificate.reason is CertificateReason.UNSTABLE_ORDER:
        return (
            f"The service lists subscribers in a different order at each request, so nothing proves that the list is "
            f"complete: {destination} was left as it was. Export by a filter whose answer fits one page (--base-id), "
            "or accept the incomplete list with --allow-incomplete."
        )
    return (
        f"The list is incomplete ({certificate.reason}): {destination} was left as it was. Run again, or accept "
        "the incomplete list with --allow-incomplete."
    )


def _explain_shrunk_export(
    destination: Destination, row_count: int, last_row_count: int | None, max_shrink: float
) -> str:
    """Return the message that refuses a list that has shrunk by more than `max_shrink` since the last export, or "" for
    any other list."""
    if not last_row_count or last_row_count - row_count <= max_shrink * last_row_count * (1 + _ROUNDING_ERROR):
        return ""
    lost_share = 1 - row_count / last_row_count
    return (
        f"The list has {row_count:,} rows, {lost_share:.0%} fewer than the {last_row_count:,} rows of the last export: "
        f"{destination} was left as it was. If this loss is right, run again with --max-shrink "
        f"{min(100, math.ceil(100 * lost_share))}%."
    )


@dataclass(slots=True)
class _StagedSweep:
    """Sends the pages of the current sweep (one reading of the whole list) to the writer, as typed tables."""

    writer: Writer
    schema: pa.Schema
    run_id: str
    exported_at: datetime
    row_count: int = 0
    invalid_row_count: int = 0
    invalid_fields: tuple[str, ...] = ()  # the fields with an invalid value in the first row that has invalid values

    def start_sweep(self, sweep_number: int) -> None:
        self.writer.start()
        self.row_count = self.invalid_row_count = 0
        self.invalid_fields = ()

    def receive_rows(self, rows: pa.RecordBatch) -> None:
        table = add_run_columns(rows, run_id=self.run_id, exported_at=self.exported_at)
        table = narrow_table(table, self.schema)
        self.writer.add(table)
        self.row_count += len(table)
        invalid_texts = table[INVALID_COLUMN]
        if len(table) > invalid_texts.null_count:
            self.invalid_row_count += len(table) - invalid_texts.null_count
            self.invalid_fields = self.invalid_fields or tuple(json.loads(invalid_texts.drop_null()[0].as_py()))


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """The list query, the destination and the settings of an export. The plan also says which faults of the list the
    export accepts."""

    job: str
    query: ListQuery
    destination: Destination
    settings: Settings
    allow_incomplete: bool = False  # accept a list that is not proved to be complete
    ignore_total_count: bool = False  # accept a list if the only fault is a missing or wrong TotalCount
    allow_truncated: bool = False  # accept a list that may be cut off
    max_shrink: float = DEFAULT_MAX_SHRINK  # share (0 to 1) of the last export by which the list may shrink
    max_rate: float = inf  # list requests per second
    job_path: Path | None = None  # the job file, or None without a job file


async def run_export(plan: ExportPlan, stop: Stop, progress: Progress) -> Report:
    """Copy the list to the plan's destination, and report whether the list is complete."""
    clock = stop.clock
    report = start_report("export", plan.job, clock.now(), _describe_scope(plan))
    report.rows = {"read": 0, "written": 0}
    service = build_service(plan.settings, LIST_CONNECTION_COUNT)
    with record_report(report, plan.settings.state_dir, plan.settings.retention_s, clock.now):
        pace = Pace(plan.max_rate)
        if not plan.settings.is_ledger_missing:
            # Imported here, so that an export without a ledger does not wait for the import of SQLAlchemy.
            from connector.ledger.opening import start_pace

            pace = await start_pace(plan.settings, plan.max_rate, clock, stop)
        async with open_client(service, rate=pace.rate) as client:
            try:
                # A cancellation leaves no half-written target: a writer publishes all rows at once, or none.
                export_task = _export_list(plan, report, client, progress, clock)
                status = await stop.wait_until_stopped(export_task, cancels_only_once=True)
                end_report(report, status, clock.now())
            except LockedError as error:
                end_report(report, "locked", clock.now(), str(error))
            except ConfigurationError:
                raise
            except ConnectorError as error:
                end_run(report, stop, "aborted", clock.now(), str(error))
            finally:
                stop.ignores_second_signal = True
                report.copy_request_counts(client)
        return report


def _describe_scope(plan: ExportPlan) -> RunScope:
    destination = plan.destination
    settings = {
        "job_file": "" if plan.job_path is None else str(plan.job_path),
        "mode": str(destination.mode) if destination.is_database else "",
        "filters": describe_filters(plan.query),
        "max_rate": describe_rate(plan.max_rate),
        "allow_incomplete": "yes" if plan.allow_incomplete else "",
        "ignore_total_count": "yes" if plan.ignore_total_count else "",
        "allow_truncated": "yes" if plan.allow_truncated else "",
    }
    base = describe_requested_base(BaseRef(plan.query.base_id)) or "all"
    return RunScope(
        plan.settings.service.base_url, str(destination), base, plan.settings.account, drop_empty_values(settings)
    )


async def _export_list(plan: ExportPlan, report: Report, client: Client, progress: Progress, clock: Clock) -> Status:
    """Read all subscribers that the plan's query lists (service-api.md 4.3). Write the subscribers to the destination
    if the list is proved to be complete, or if the plan accepts the list. Put the certificate and the rows into
    the report, and return the status of the run.

    Raises ListFailed, ConfigurationError for a destination that cannot be written, and RunAborted for a destination
    that fails. After an error, the destination is unchanged. If the task is cancelled during the commit, wait for the
    result of the commit. Raises CommitUnknown if no result comes.
    """
    started_at, progress_meter = clock.now().timestamp(), ProgressMeter(clock.monotonic)

    def show_progress(list_progress: ListProgress) -> None:
        row_count, total_count = list_progress.row_count, list_progress.total_count
        sweep_text = f"pass {list_progress.sweep_number} over the list: {row_count:,} read"
        progress.set_describe_function(
            lambda: f"{sweep_text}; {progress_meter.describe(row_count, total_count)}".rstrip("; ")
        )

    known_base_ids = await asyncio.to_thread(_list_bases, plan)
    destination, filters = plan.destination, list_filters(plan.query)
    writer = open_writer(destination)
    schema = select_columns(destination.columns, has_run_columns=destination.has_run_columns)
    staged_sweep = _StagedSweep(writer, schema, report.run_id, clock.now())
    try:
        export_start = ExportStart(report.run_id, plan.job, filters, staged_sweep.exported_at)
        await _run_blocking(partial(writer.prepare, export_start), writer)
        has_target = writer.has_target
        with open_columns() as columns:
            certificate = await read_list(
                client,
                Retrier(clock=clock),
                plan.query,
                staged_sweep,
                row_form=columns,
                now=clock.now,
                on_progress=show_progress,
                ignore_total_count=plan.ignore_total_count,
                allow_truncated=plan.allow_truncated,
                find_unlisted_entries=partial(_find_unlisted_entries, plan, started_at),
                unlisted_base_ids=known_base_ids,
            )
        logger.info(
            "certificate: %(verdict)s (%(reason)s)", {"verdict": certificate.verdict, "reason": certificate.reason}
        )
        refusal_message = _explain_incomplete_list(
            certificate, destination, is_incomplete_allowed=plan.allow_incomplete, has_target=has_target
        )
        if filters and has_target and not staged_sweep.row_count:  # a misspelt filter must not empty the target
            refusal_message = (
                refusal_message
                or f"The filter matched no subscriber: {destination} was left as it was. Check the filter."
            )
        shrink_message = ""
        if not refusal_message and plan.max_shrink < 1:
            last_row_count = await _run_blocking(partial(writer.find_last_row_count, filters), writer)
            refusal_message = shrink_message = _explain_shrunk_export(
                destination, staged_sweep.row_count, last_row_count, plan.max_shrink
            )
        if not refusal_message:
            export_run = ExportRun(
                report.run_id, plan.job, certificate, staged_sweep.row_count, staged_sweep.exported_at, clock.now()
            )
            await _run_blocking(partial(writer.publish, export_run), writer, is_commit=True)
            logger.info("commit: %(rows)d rows are published", {"rows": staged_sweep.row_count})
    finally:
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(_run_in_thread(writer.discard), _COMMIT_TIMEOUT_S)
    report.certificate = certificate.as_report()
    report.rows = {"read": certificate.distinct, "written": 0 if refusal_message else staged_sweep.row_count}
    if certificate.hidden:
        report.messages.append(describe_hidden_groups(certificate))
    if refusal_message:
        report.messages.append(refusal_message)
    elif invalid_count := staged_sweep.invalid_row_count:
        report.messages.append(
            f"{count(invalid_count, 'row has a value', 'rows have values')} of a type that does not fit the column, "
            f"for example in {', '.join(staged_sweep.invalid_fields)}. The column is empty in "
            f"{choose_form(invalid_count, 'this row', 'these rows')}, and the column {INVALID_COLUMN} has the "
            f"{choose_form(invalid_count, 'value', 'values')} as JSON."
        )
    if shrink_message:
        return "aborted"
    return "ok" if certificate.is_complete and not refusal_message else "partial"


def _list_bases(plan: ExportPlan) -> list[int]:
    """Return the Ids of the account's bases in the ledger, or an empty list if the ledger cannot be read."""
    if plan.settings.is_ledger_missing:
        return []
    from connector.ledger.opening import read_ledger
    from connector.ledger.records import list_bases

    def read_base_ids(ledger: Ledger) -> list[int]:
        bases = list_bases(ledger.connection, plan.settings.account)
        return [base.service_id for base in bases if base.service_id is not None]

    try:
        return read_ledger(plan.settings.ledger_url, read_base_ids) or []
    except ConnectorError as error:  # an export needs no ledger
        logger.warning("the ledger cannot be read, so it does not show whether the list hides a base: %s", error)
        return []


async def _find_unlisted_entries(plan: ExportPlan, started_at: float, listed_ids: IdArray) -> Sequence[int]:
    """Return the ids of confirmed entries that are not in `listed_ids`, although the list should have shown their
    subscribers (architecture 7, rule 7). Return an empty list if a run may be creating subscribers now, or if the
    ledger cannot be read."""
    if plan.settings.is_ledger_missing:
        return []
    import numpy as np

    from connector.ledger.opening import read_ledger
    from connector.ledger.records import find_open_run, list_bases, read_largest_lag
    from connector.subscribers.identity import IDENTITY_BYTES

    account, base_id = plan.settings.account, plan.query.base_id

    def read_confirmed_entries(ledger: Ledger) -> list[ConfirmedEntry]:
        connection = ledger.connection
        if find_open_run(connection) is not None:
            return []
        max_confirmed_at = started_at - max(_QUIET_PERIOD_S, read_largest_lag(connection, account))
        bases = [base for base in list_bases(connection, account) if base_id in (None, base.service_id)]
        random_identity = os.urandom(IDENTITY_BYTES)
        entries = [
            entry
            for base in bases
            for entry in ledger.find_confirmed_entries(base, random_identity, MAX_COMPARED_ENTRIES)
        ]
        return [entry for entry in entries if (entry.known_since or 0.0) <= max_confirmed_at]

    try:
        entries = await asyncio.to_thread(read_ledger, plan.settings.ledger_url, read_confirmed_entries) or []
    except ConnectorError as error:  # an export needs no ledger
        logger.warning("the ledger cannot be read, so it does not show whether the list is cut off: %s", error)
        return []
    confirmed_ids = np.array([entry.subscriber_id for entry in entries], dtype=np.int64)
    unlisted_entry_ids: list[int] = confirmed_ids[~np.isin(confirmed_ids, listed_ids)].tolist()
    return unlisted_entry_ids
