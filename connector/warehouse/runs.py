"""The contract of a destination, and the rules that the lines of `_connector_runs` decide. Pure.

The connector writes a table that is new or empty, or that has the line of a finished run. Each run inserts its line at
its beginning, with the next number of its table. Exports to one table lock the first line of the table.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from connector.errors import ConfigurationError, RunAborted
from connector.paging.certificate import Certificate, TotalCount

if TYPE_CHECKING:
    import pyarrow as pa

RUN_ID, EXPORTED_AT, INVALID = "_run_id", "_exported_at", "_invalid"

OF_RUN = (RUN_ID, EXPORTED_AT)
"""The columns that have one value in all rows of an export."""

ID = "id"
DELETED_AT = "deleted_at"
VALID_FROM, VALID_TO, IS_CURRENT = "valid_from", "valid_to", "is_current"
RUNS = "_connector_runs"


@dataclass(frozen=True, slots=True)
class ExportStart:
    """An export that is about to read the list by `filters`; `started_at` is aware."""

    run_id: str
    job: str
    filters: Mapping[str, object]
    started_at: datetime


@dataclass(frozen=True, slots=True)
class ExportRun:
    """The export whose rows are to be published: `rows` of them, each with `exported_at` (aware) as `_exported_at`."""

    run_id: str
    job: str
    certificate: Certificate
    rows: int
    exported_at: datetime
    finished_at: datetime

    @property
    def asked(self) -> Mapping[str, Any]:
        """The filters of the list."""
        filters: Mapping[str, Any] = self.certificate.filters.get("asked", {})
        return filters

    @property
    def is_whole(self) -> bool:
        """Whether a subscriber that is not among the rows has gone from the list: the list is certified, and its
        TotalCount was checked."""
        return self.certificate.is_complete and self.certificate.total_count is TotalCount.CHECKED


@dataclass(frozen=True, slots=True)
class RowChanges:
    """What a publishing did to the target's rows. `closed`: replaced, marked as deleted, or versions that ended."""

    inserted: int = 0
    updated: int = 0
    closed: int = 0


class CommitUnknown(RunAborted):
    """The commit got no answer: the target is as before or as after."""


class Writer(Protocol):
    """Writes one export. Readers of the target see nothing before `publish`, and then all rows at once.

    The methods may block. One thread at a time calls them; only `interrupt` may come from another thread.
    """

    def prepare(self, beginning: ExportStart) -> None:
        """Check that the target can be written, and begin to stage. Raises ConfigurationError, or RunAborted for a
        failure that may be over by the next run."""

    @property
    def has_target(self) -> bool:
        """Whether the target had rows when the export began."""

    def start(self) -> None:
        """Forget the staged rows, and begin to stage again."""

    def add(self, table: "pa.Table") -> None:
        """Stage rows."""

    def count_last(self, filters: Mapping[str, object]) -> int | None:
        """Return the rows of the last certified export with these filters, or None if the target does not tell."""

    def publish(self, run: ExportRun) -> RowChanges:
        """Write the staged rows to the target atomically. Raises RunAborted, which says what the target is like."""

    @property
    def is_committing(self) -> bool:
        """Whether `publish` has reached its commit, which cannot be interrupted."""

    def interrupt(self) -> None:
        """End the running method soon, by an error and without a change of the target."""

    def discard(self) -> None:
        """Forget the staged rows, and remove temporary files. Harmless after `publish` and when repeated."""


class Mode(StrEnum):
    """`replace`: only the rows of the list. `upsert`: one row for each subscriber, with `deleted_at` where the
    subscriber has gone. `append`: a dated snapshot beside the earlier ones. `history`: one row for each version of a
    subscriber, from `valid_from` to `valid_to`."""

    REPLACE = "replace"
    UPSERT = "upsert"
    APPEND = "append"
    HISTORY = "history"

    @property
    def is_by_id(self) -> bool:
        """Whether the rows of the list are merged into the table by their id."""
        return self in (Mode.UPSERT, Mode.HISTORY)


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A line of `_connector_runs` with `finished_at`."""

    number: int
    run_id: str
    mode: str
    verdict: str
    filters: str
    rows: int


FINISHED_COLUMNS = ("number", "run_id", "mode", "verdict", "filters", "rows_written")


@dataclass(frozen=True, slots=True)
class TargetState:
    """The state of a table: the name that the database has for it (None: no such table), its columns (each with whether
    every row needs a value for it), whether it has rows, its finished runs (the latest first), and the tables whose
    foreign keys refer to it."""

    stored_as: str | None
    columns: Mapping[str, bool]
    has_rows: bool
    runs: Sequence[FinishedRun]
    referrers: Sequence[str]


def check_target(
    found: TargetState, table: str, columns: Sequence[str], mode: Mode, shown: str, *, overwrite: bool
) -> None:
    """Raise ConfigurationError for a table that the connector did not make, that has another name or another mode, that
    lacks one of the export's `columns`, or that has referrers. `shown` is the name of the table for messages."""
    if found.stored_as is None:
        return
    if found.stored_as != table and not found.runs:
        raise ConfigurationError(
            f"{shown} exists as {found.stored_as}, which is the same name to the database. Use --table "
            f"{found.stored_as}, or another name."
        )
    if found.has_rows and not found.runs and not overwrite:
        raise ConfigurationError(
            f"{shown} has rows that the connector did not write. Export to another table, or take this one over with "
            "--overwrite (in a job overwrite: true)."
        )
    if found.runs and found.runs[0].mode != mode:
        raise ConfigurationError(
            f"{shown} is kept in the mode {found.runs[0].mode}, not {mode}. Export to another table, or drop this one."
        )
    existing = {name.lower() for name in found.columns}
    missing = [name for name in columns if name.lower() not in existing]
    if missing:
        raise ConfigurationError(
            f"{shown} lacks {', '.join(missing)}, which this export has. Leave that out by --columns (in a job "
            "columns:), export to another table, or drop this one."
        )
    written = {name.lower() for name in columns}
    needed = [name for name, is_needed in found.columns.items() if is_needed and name.lower() not in written]
    if needed:
        raise ConfigurationError(
            f"{shown} needs a value in {', '.join(needed)} for each row, and this export has none. Allow NULL there, "
            "give the column a default, or export to another table."
        )
    if found.referrers:
        raise ConfigurationError(
            f"Foreign keys of {', '.join(found.referrers[:3])} refer to {shown}, and {mode} deletes rows of it. Drop "
            "the foreign keys, or export to another table."
        )


def check_filters(filters: Mapping[str, object], mode: Mode, columns: Sequence[str]) -> None:
    """Raise ConfigurationError if a merge lacks a column of the filters: gone subscribers are found by that column."""
    missing = [name for name in filters if name not in columns]
    if missing and mode.is_by_id:
        raise ConfigurationError(
            f"The export is filtered by {', '.join(missing)}, which its columns lack. The mode {mode} needs it to find "
            "who has gone. Add it to --columns."
        )


def refuse_now(found: TargetState, number: int, run: ExportRun, mode: Mode, shown: str) -> None:
    """Raise RunAborted if the target has changed since the run began so that the run may not publish any more."""
    if mode is Mode.REPLACE and not run.certificate.is_complete and found.has_rows:
        raise RunAborted(
            f"{shown} was filled meanwhile, and an incomplete export replaces nothing: it was left as it is."
        )
    if mode is Mode.APPEND:
        return
    newer = [
        other.number for other in found.runs if other.number > number and _may_overlap(mode, other.filters, run.asked)
    ]
    if newer:
        raise RunAborted(
            f"An export to {shown} that began later (number {newer[0]}, this one is {number}) has been written "
            "meanwhile; this one would put older rows in its place, and was not written. Run it again."
        )


def _may_overlap(mode: Mode, filters: str, asked: Mapping[str, object]) -> bool:
    """Return whether one subscriber can be in both exports. The base and the id of a subscriber never change."""
    if mode is Mode.REPLACE:
        return True
    other = json.loads(filters)
    return not any(name in other and name in asked and other[name] != asked[name] for name in (ID, "base_id"))


def find_last_rows(runs: Sequence[FinishedRun], filters: Mapping[str, object]) -> int | None:
    """Return the rows of the last certified run with these filters."""
    asked = write_filters(filters)
    return next((run.rows for run in runs if run.verdict == "complete" and run.filters == asked), None)


def write_filters(asked: Mapping[str, Any]) -> str:
    """Return the filters as JSON; equal filters give equal texts."""
    return json.dumps(dict(asked), sort_keys=True, ensure_ascii=False)


def describe_beginning(table: str, number: int, beginning: ExportStart, mode: Mode) -> dict[str, object]:
    """Return the values of a line when its run begins; times are aware."""
    return {
        "table_name": table,
        "number": number,
        "run_id": beginning.run_id,
        "job": beginning.job,
        "mode": str(mode),
        "filters": write_filters(beginning.filters),
        "started_at": beginning.started_at,
    }


def describe_end(run: ExportRun, changes: RowChanges) -> dict[str, object]:
    """Return the values that a line gets when its run publishes; times are aware."""
    certificate = run.certificate
    return {
        "finished_at": run.finished_at,
        "verdict": str(certificate.verdict),
        "reason": str(certificate.reason),
        "list_order": str(certificate.order),
        "sweeps": certificate.sweeps,
        "pages": certificate.pages,
        "distinct_ids": certificate.distinct,
        "total_first": certificate.total_first,
        "total_last": certificate.total_last,
        "appeared": certificate.appeared,
        "vanished": certificate.vanished,
        "filters": write_filters(run.asked),
        "rows_read": certificate.distinct,
        "rows_written": run.rows,
        "rows_inserted": changes.inserted,
        "rows_updated": changes.updated,
        "rows_closed": changes.closed,
    }
