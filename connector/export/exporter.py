"""Copies the list to a destination: read, certify, and only then put it in the place of what was there."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from connector.api.client import Client
from connector.api.handing import Progress
from connector.api.listing import read_list
from connector.api.retries import Retrier
from connector.export.columns import narrow_table, select_columns, stamp_columns
from connector.export.destination import Destination, Format
from connector.export.form import open_columns
from connector.export.writers import Mode, Run, Writer
from connector.pages import Certificate, Reason
from connector.protocol import ListQuery
from connector.warehouse.files import CsvFormat, FileFormat, FileWriter, JsonLinesFormat, ParquetFormat

MAX_SHRINK = 0.5
"""A list that is smaller by half than the last one is more often a token's or a filter's fault than the people's."""

_HAIR = 1e-9  # 70 % of 10 is a little less than 7 in binary

_FILES: dict[Format, type[FileFormat]] = {
    Format.PARQUET: ParquetFormat,
    Format.CSV: CsvFormat,
    Format.JSON_LINES: JsonLinesFormat,
}


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
    on_progress: Callable[[Progress], None] | None = None,
) -> Exported:
    """Bring everyone whom `query` lists (api.md 4.3) to the destination, if the certificate is complete.

    An incomplete result is written only where `allow_incomplete` says so; in the mode `replace` only if nothing is
    there yet. With `ignore_total_count` a list against which TotalCount alone stands is complete, and with
    `accept_cut_off_possible` one that may be cut off (design, section 7, rule 7). One that is smaller
    than the last certified one by more than the share `max_shrink` is refused. Then the destination stays as it was,
    and `written` is 0. Raises ListFailed, ConfigurationError for a destination that
    cannot be written, and RunAborted for one that fails; after these, and when cancelled, it is as it was, with no
    other file.
    """
    writer = open_writer(destination)
    staging = _Staging(writer, select_columns(destination.columns), run_id, now())
    try:
        staging.start_sweep(0)  # finds out before the first request whether the destination can be had
        had_target = writer.has_target
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
            )
        note = _decide_note(certificate, destination, is_allowed=allow_incomplete, has_target=had_target)
        if certificate.filters and had_target and not staging.rows:
            note = (
                note or f"The filter matched nobody: {destination} was left as it was."
            )  # or is spelt otherwise there
        if not note and max_shrink < 1:
            note = _decide_shrunk(staging.rows, writer.count_last(_list_asked(certificate)), max_shrink, destination)
            if note:
                return Exported(certificate, 0, note, is_refused=True)
        if not note:  # publishing is not for a thread: a cancellation must come before it or after it, never within
            writer.publish(Run(run_id, job, certificate, staging.rows, staging.exported_at, now()))
        return Exported(certificate, 0 if note else staging.rows, note)
    finally:
        writer.discard()


def open_writer(destination: Destination) -> Writer:
    """The writer of a destination; it touches nothing yet. Raises ConfigurationError for a driver that is missing."""
    if not destination.is_database:
        return FileWriter(
            destination.path,
            _FILES[destination.format],
            select_columns(destination.columns),
            is_adopting=destination.is_adopting,
            is_group_readable=destination.is_group_readable,
            is_guarded=destination.guard_formulas,
        )
    from connector.export.tables import open_table_writer  # whoever writes a file need not wait for SQLAlchemy

    return open_table_writer(destination)


def _list_asked(certificate: Certificate) -> dict[str, object]:
    return dict(certificate.filters.get("asked", {}))


def _decide_shrunk(rows: int, before: int | None, max_shrink: float, destination: Destination) -> str:
    """Why a result that shrank may not be written; "" if it may."""
    if not before or before - rows <= max_shrink * before * (1 + _HAIR):
        return ""
    return (
        f"The list has {rows:,} rows, {1 - rows / before:.0%} fewer than the {before:,} of the last export to "
        f"{destination}, which was left as it was. If that many have gone, run again with --max-shrink "
        f"{min(100, math.ceil(100 * (1 - rows / before)))}%."
    )


def _decide_note(certificate: Certificate, destination: Destination, *, is_allowed: bool, has_target: bool) -> str:
    """Why nothing may be written; "" if it may."""
    if certificate.is_complete:
        return ""
    if not is_allowed and certificate.reason is Reason.CUT_OFF_POSSIBLE:
        return (
            f"The list may be cut off: it ends after {certificate.distinct:,} subscribers, a size that result windows "
            f"have, and the service shows nothing that would tell. {destination} was left as it was. If that is how "
            "many there are, run again with --accept-cut-off-possible."
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
