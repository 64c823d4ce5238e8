"""Copies the list to a destination: read, certify, and only then put it in the place of what was there."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from connector.api.client import Client
from connector.api.listing import Progress, read_list
from connector.api.retries import Retrier
from connector.export.columns import SCHEMA, stamp_columns
from connector.export.destination import Destination, Format
from connector.export.form import open_columns
from connector.export.writers import (
    DUCKDB,
    SQLITE,
    FileWriter,
    OpenRows,
    TableName,
    TableWriter,
    Writer,
    open_csv_rows,
    open_json_rows,
    open_parquet_rows,
)
from connector.pages import Certificate
from connector.protocol import ListQuery

_ROWS: dict[Format, OpenRows] = {
    Format.PARQUET: open_parquet_rows,
    Format.CSV: open_csv_rows,
    Format.JSON_LINES: open_json_rows,
}
_DATABASES = {Format.DUCKDB: DUCKDB, Format.SQLITE: SQLITE}


@dataclass(frozen=True, slots=True)
class Exported:
    """What became of an export: how complete the list is known to be, the rows written, and, where nothing was
    written, why (`note`, for a person)."""

    certificate: Certificate
    written: int
    note: str = ""


async def export_subscribers(
    client: Client,
    retrier: Retrier,
    query: ListQuery,
    destination: Destination,
    *,
    run_id: str,
    now: Callable[[], datetime],
    allow_incomplete: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
) -> Exported:
    """Replace the destination by everyone whom `query` lists (api.md 4.3), if the certificate is complete.

    An incomplete result is written only where `allow_incomplete` says so and nothing is there yet; otherwise the
    destination stays as it was and `written` is 0. Raises ListFailed, ConfigurationError for a destination that cannot
    be written, and RunAborted for one that fails; after these, and when cancelled, it is as it was, with no other file.
    """
    writer = open_writer(destination)
    staging = _Staging(writer, run_id, now())
    try:
        staging.start_sweep(0)  # finds out before the first request whether the destination can be had
        had_target = writer.has_target
        with open_columns() as columns:
            certificate = await read_list(
                client, retrier, query, staging, form=columns, now=now, on_progress=on_progress
            )
        note = _decide_note(certificate, destination, is_allowed=allow_incomplete, has_target=had_target)
        if certificate.filters and had_target and not staging.rows:
            note = (
                note or f"The filter matched nobody: {destination} was left as it was."
            )  # or is spelt otherwise there
        if not note:
            writer.publish()  # not in a thread: a cancellation must come before it or after it, never within
        return Exported(certificate, 0 if note else staging.rows, note)
    finally:
        writer.discard()


def open_writer(destination: Destination) -> Writer:
    """The writer of a destination; it touches nothing yet."""
    if destination.format in _DATABASES:
        name = TableName(destination.path, destination.table, destination.schema)
        return TableWriter(name, _DATABASES[destination.format], SCHEMA)
    return FileWriter(destination.path, _ROWS[destination.format], SCHEMA)


def _decide_note(certificate: Certificate, destination: Destination, *, is_allowed: bool, has_target: bool) -> str:
    """Why nothing may be written; "" if it may."""
    if certificate.is_complete:
        return ""
    if not is_allowed:
        return (
            f"The list is incomplete ({certificate.reason}): {destination} was left as it was. Run again, or take what "
            "there is with --allow-incomplete."
        )
    if has_target:
        return (
            f"The list is incomplete ({certificate.reason}), and an incomplete export replaces nothing: {destination} "
            "was left as it was. Export to another place, or remove it first."
        )
    return ""


@dataclass(slots=True)
class _Staging:
    """Takes the list's pages as typed tables to the writer, which keeps those of the current sweep."""

    writer: Writer
    run_id: str
    exported_at: datetime
    rows: int = 0

    def start_sweep(self, number: int) -> None:
        if number != 1:  # the first finds the stage that was begun before the first request
            self.writer.start()
        self.rows = 0

    def take(self, rows: pa.RecordBatch) -> None:
        self.writer.add(stamp_columns(rows, run_id=self.run_id, exported_at=self.exported_at))
        self.rows += len(rows)
