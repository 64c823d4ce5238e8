"""Copies the list to a destination: read the list, certify it, and only then publish the rows."""

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
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

_ROUNDING = 1e-9  # 70 % of 10 is a little less than 7 in binary

_STOP_S, _COMMIT_S = 3.0, 10.0
"""Seconds that an export waits for an interrupted method, and for a commit. After that, the thread is abandoned."""


@dataclass(frozen=True, slots=True)
class Exported:
    """The result of an export: the certificate of the list and the number of rows written. If nothing was written,
    `note` has the reason for a person, and `is_refused` is set if the list shrank too much."""

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
    allow_truncated: bool = False,
    find_lacking: FindLacking | None = None,
    known_bases: Sequence[int] = (),
    on_progress: Callable[[ListProgress], None] | None = None,
) -> Exported:
    """Export all subscribers that `query` lists (service-api.md 4.3) to the destination if the certificate is complete.

    An incomplete list is written only with `allow_incomplete`, and in the mode `replace` only to an empty destination.
    With `ignore_total_count` a wrong TotalCount does not make the list incomplete, and with `allow_truncated` a
    list that may be cut off is complete (architecture 7, rule 7); `find_lacking` and `known_bases` (Ids
    of bases that the ledger has) give evidence of a cut. A list that is smaller than the last certified one by more
    than the share `max_shrink` is refused.

    Raises ListFailed, ConfigurationError for a destination that cannot be written, and RunAborted for one that fails.
    Then, and if nothing is written, the destination is unchanged. A cancellation during the commit waits for the result
    of the commit; CommitUnknown is raised if no result comes.
    """
    writer = open_writer(destination)
    filters = list_filters(query)
    schema = select_columns(destination.columns, has_run=destination.has_run_columns)
    staging = _Staging(writer, schema, run_id, now())
    try:
        await _block(partial(writer.prepare, ExportStart(run_id, job, filters, staging.exported_at)), writer)
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
                allow_truncated=allow_truncated,
                find_lacking=find_lacking,
                unlisted_bases=known_bases,
            )
        logger.info(
            "certificate: %(verdict)s (%(reason)s)", {"verdict": certificate.verdict, "reason": certificate.reason}
        )
        note = _explain_incomplete(certificate, destination, is_allowed=allow_incomplete, has_target=has_target)
        if filters and has_target and not staging.rows:  # the filter's value may be misspelt
            note = note or f"The filter matched no subscriber: {destination} was left as it was."
        if not note and max_shrink < 1:
            last = await _block(partial(writer.count_last, filters), writer)
            if last and last - staging.rows > max_shrink * last * (1 + _ROUNDING):
                share = 1 - staging.rows / last
                note = (
                    f"The list has {staging.rows:,} rows, {share:.0%} fewer than the {last:,} of the last export to "
                    f"{destination}, which was left as it was. If that many have gone, run again with --max-shrink "
                    f"{min(100, math.ceil(100 * share))}%."
                )
                return Exported(certificate, 0, note, is_refused=True)
        if not note:
            run = ExportRun(run_id, job, certificate, staging.rows, staging.exported_at, now())
            await _block(partial(writer.publish, run), writer, is_commit=True)
            logger.info("commit: %(rows)d rows are published", {"rows": staging.rows})
        return Exported(certificate, 0 if note else staging.rows, note)
    finally:
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(_in_thread(writer.discard), _COMMIT_S)


async def _block(work: Callable[[], T], writer: Writer, *, is_commit: bool = False) -> T:
    """Run a blocking method of the writer in a thread. A cancellation interrupts the method and waits for its end. If a
    commit succeeds despite the cancellation, return its result."""
    working = asyncio.ensure_future(_in_thread(work))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        working.add_done_callback(lambda future: future.cancelled() or future.exception())  # asyncio would warn
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
        if not working.done() or not is_commit:
            raise
        error = working.exception()
        if error is None or isinstance(error, CommitUnknown):
            stay_alive()
            return working.result()
        raise


async def _in_thread(work: Callable[[], T]) -> T:
    """Run blocking work in a daemon thread, which does not keep the process alive."""
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
        except BaseException as raised:  # noqa: BLE001 - the future raises it
            error = raised
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, result, error)

    Thread(target=run, name="connector writes a target", daemon=True).start()
    return await future


def _explain_incomplete(
    certificate: Certificate, destination: Destination, *, is_allowed: bool, has_target: bool
) -> str:
    """Return why an incomplete list may not be written, or "" if it may."""
    if certificate.is_complete:
        return ""
    if not is_allowed and certificate.reason is Reason.CUT_OFF_POSSIBLE:
        return (
            f"The list may be cut off: {certificate.distinct:,} subscribers is a typical limit, and nothing proves "
            f"that the list ends there. {destination} was left as it was. If the number is right, run again with "
            "--allow-truncated."
        )
    if not is_allowed and certificate.reason is Reason.TOTAL_COUNT and certificate.total_last is None:
        return (
            f"The list has no TotalCount: {destination} was left as it was. If the list is whole, run again with "
            "--ignore-total-count."
        )
    if not is_allowed and certificate.reason is Reason.UNSTABLE_ORDER:
        return (
            f"The service lists subscribers in another order at each request, so nothing proves that the list is "
            f"complete: {destination} was left as it was. Export by a filter whose answer fits one page (--base-id), "
            "or accept the incomplete list with --allow-incomplete."
        )
    if not is_allowed:
        return (
            f"The list is incomplete ({certificate.reason}): {destination} was left as it was. Run again, or accept "
            "the incomplete list with --allow-incomplete."
        )
    if has_target and destination.mode is Mode.REPLACE:
        return (
            f"The list is incomplete ({certificate.reason}), and an incomplete export replaces nothing: {destination} "
            "was left as it was. Export to another destination, or remove this one first."
        )
    return ""


@dataclass(slots=True)
class _Staging:
    """Sends the pages of the current sweep to the writer as typed tables."""

    writer: Writer
    schema: pa.Schema
    run_id: str
    exported_at: datetime
    rows: int = 0

    def start_sweep(self, number: int) -> None:
        self.writer.start()
        self.rows = 0

    def take(self, rows: pa.RecordBatch) -> None:
        table = stamp_columns(rows, run_id=self.run_id, exported_at=self.exported_at)
        self.writer.add(narrow_table(table, self.schema))
        self.rows += len(rows)
