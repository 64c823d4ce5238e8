"""Copies the list to a destination: read, certify, and only then put it in the place of what was there."""

import asyncio
import logging
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from threading import Thread
from typing import TypeVar

import pyarrow as pa

from connector.control import stay_alive
from connector.listing.columns import open_columns
from connector.listing.evidence import FindLacking
from connector.listing.reader import ListProgress, list_filters, read_list
from connector.paging.certificate import Certificate, Reason
from connector.service.client import Client
from connector.service.retry import Retrier
from connector.service.wire import ListQuery
from connector.warehouse.columns import narrow_table, select_columns, stamp_columns
from connector.warehouse.destination import MAX_SHRINK, Destination
from connector.warehouse.opening import open_writer
from connector.warehouse.runs import CommitUnknown, ExportRun, ExportStart, Mode, Writer

logger = logging.getLogger(__name__)

T = TypeVar("T")

_HAIR = 1e-9  # 70 % of 10 is a little less than 7 in binary

_STOP_S, _COMMIT_S = 3.0, 10.0
"""How long an interrupted method is waited for: it is given up then, and its thread ends with the process."""


@dataclass(frozen=True, slots=True)
class Exported:
    """What became of an export: how complete the list is known to be, the rows written, and, where nothing was
    written, why (`note`, for a person); `is_refused` if a guard forbade it."""

    certificate: Certificate
    written: int
    note: str = ""
    is_refused: bool = False


async def export_subscribers(
    client: Client,
    retrier: Retrier,
    query: ListQuery,
    destination: Destination,
    *,
    run_id: str,
    now: Callable[[], datetime],
    job: str = "",
    allow_incomplete: bool = False,
    max_shrink: float = MAX_SHRINK,
    ignore_total_count: bool = False,
    accept_cut_off_possible: bool = False,
    find_lacking: FindLacking | None = None,
    on_progress: Callable[[ListProgress], None] | None = None,
) -> Exported:
    """Bring all subscribers that `query` lists (service-api.md 4.3) to the destination, if the certificate is complete.

    An incomplete result is written only where `allow_incomplete` says so; in the mode `replace` only if nothing is
    there yet. With `ignore_total_count` a list against which TotalCount alone stands is complete, and with
    `accept_cut_off_possible` one that may be cut off (architecture 7, rule 7), of which `find_lacking` may give
    evidence. One that is smaller than the last certified one by more than the share `max_shrink` is refused. Then the
    destination stays as it was, and `written` is 0. Raises ListFailed, ConfigurationError for a destination that cannot
    be written, and RunAborted for one that fails; after these, and when cancelled, it is as it was, with no other file.
    A cancellation that comes during a commit waits for its verdict: what was written is reported as written, and
    CommitUnknown is raised where no verdict comes.
    """
    writer = open_writer(destination)
    filters = list_filters(query)
    staging = _Staging(writer, select_columns(destination.columns), run_id, now())
    try:
        await _block(partial(writer.prepare, ExportStart(run_id, job, filters, staging.exported_at)), writer)
        staging.start_sweep(0)
        has_target = writer.has_target
        with open_columns() as columns:
            certificate = await read_list(
                client,
                retrier,
                query,
                staging,
                form=columns,
                now=now,
                on_progress=on_progress,
                ignore_total_count=ignore_total_count,
                accept_cut_off_possible=accept_cut_off_possible,
                find_lacking=find_lacking,
            )
        logger.info(
            "certificate: %(verdict)s (%(reason)s)", {"verdict": certificate.verdict, "reason": certificate.reason}
        )
        note = _decide_note(certificate, destination, is_allowed=allow_incomplete, has_target=has_target)
        if filters and has_target and not staging.rows:  # or the value is spelt otherwise there
            note = note or f"The filter matched no subscriber: {destination} was left as it was."
        if not note and max_shrink < 1:
            last = await _block(partial(writer.count_last, filters), writer)
            note = _decide_shrunk(staging.rows, last, max_shrink, destination)
            if note:
                return Exported(certificate, 0, note, is_refused=True)
        if not note:
            run = ExportRun(run_id, job, certificate, staging.rows, staging.exported_at, now())
            await _block(partial(writer.publish, run), writer, is_kept=True)
            logger.info("commit: %(rows)d rows are published", {"rows": staging.rows})
        return Exported(certificate, 0 if note else staging.rows, note)
    finally:
        with suppress(asyncio.TimeoutError):  # an empty table or file may stay behind a server that is silent
            await asyncio.wait_for(_in_thread(writer.discard), _COMMIT_S)


async def _block(work: Callable[[], T], writer: Writer, *, is_kept: bool = False) -> T:
    """Do blocking work of the writer in a thread; a cancellation interrupts it, and waits for its end.

    What `is_kept` is done although the cancellation came, if it was past taking back.
    """
    working = asyncio.ensure_future(_in_thread(work))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        working.add_done_callback(lambda future: future.cancelled() or future.exception())  # it is looked at
        interrupting = asyncio.ensure_future(_in_thread(writer.interrupt))
        await asyncio.wait((working,), timeout=_STOP_S)
        if not working.done() and writer.is_committing:
            await asyncio.wait((working,), timeout=_COMMIT_S)
            if not working.done():
                raise CommitUnknown(
                    "The run was stopped while its rows were being committed, and no answer came. The target has "
                    "either all of the new rows or none. A table has the new rows if the run's line in "
                    "_connector_runs has a finished_at; a file or an object, if its rows have this run's _run_id."
                ) from None
        interrupting.cancel()
        if not working.done() or not is_kept:
            raise
        error = working.exception()
        if error is None or isinstance(error, CommitUnknown):
            stay_alive()
            return working.result()
        raise


async def _in_thread(work: Callable[[], T]) -> T:
    """Do blocking work in a thread that the end of the process does not wait for."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type] # the work's own

    def run() -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = work()
        except BaseException as raised:  # noqa: BLE001 - raised where it is waited for
            error = raised
        with suppress(RuntimeError):  # the loop is closed: nothing waits for this any more
            loop.call_soon_threadsafe(settle, result, error)

    Thread(target=run, name="connector writes a target", daemon=True).start()
    return await future


def _decide_shrunk(rows: int, before: int | None, max_shrink: float, destination: Destination) -> str:
    """Return why a result that shrank may not be written; "" if it may."""
    if not before or before - rows <= max_shrink * before * (1 + _HAIR):
        return ""
    return (
        f"The list has {rows:,} rows, {1 - rows / before:.0%} fewer than the {before:,} of the last export to "
        f"{destination}, which was left as it was. If that many have gone, run again with --max-shrink "
        f"{min(100, math.ceil(100 * (1 - rows / before)))}%."
    )


def _decide_note(certificate: Certificate, destination: Destination, *, is_allowed: bool, has_target: bool) -> str:
    """Return why nothing may be written; "" if it may."""
    if certificate.is_complete:
        return ""
    if not is_allowed and certificate.reason is Reason.CUT_OFF_POSSIBLE:
        return (
            f"The list may be cut off: it ends after {certificate.distinct:,} subscribers, a size that result windows "
            f"have, and the service shows nothing that would tell. {destination} was left as it was. If that is how "
            "many there are, run again with --accept-cut-off-possible."
        )
    if not is_allowed and certificate.reason is Reason.UNSTABLE_ORDER:
        return (
            f"The service lists subscribers in another order at each request, so nothing proves that the list is "
            f"complete: {destination} was left as it was. Export by a filter whose answer fits one page (--base-id), "
            "or take what there is with --allow-incomplete."
        )
    if not is_allowed:
        return (
            f"The list is incomplete ({certificate.reason}): {destination} was left as it was. Run again, or take what "
            "there is with --allow-incomplete."
        )
    if has_target and destination.mode is Mode.REPLACE:
        return (
            f"The list is incomplete ({certificate.reason}), and an incomplete export replaces nothing: {destination} "
            "was left as it was. Export to another place, or remove it first."
        )
    return ""


@dataclass(slots=True)
class _Staging:
    """Takes the list's pages as typed tables to the writer, which keeps those of the current sweep."""

    writer: Writer
    schema: pa.Schema
    run_id: str
    exported_at: datetime
    rows: int = 0

    def start_sweep(self, number: int) -> None:
        if number != 1:  # the first finds the stage that was begun before the first request
            self.writer.start()
        self.rows = 0

    def take(self, rows: pa.RecordBatch) -> None:
        table = stamp_columns(rows, run_id=self.run_id, exported_at=self.exported_at)
        self.writer.add(narrow_table(table, self.schema))
        self.rows += len(rows)
