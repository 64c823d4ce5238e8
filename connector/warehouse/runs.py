"""The interface of a destination, and the rules for the rows of `_connector_runs`. The functions have no side effects.

Without `overwrite`, the connector writes a table only if the table is new or empty, or has a finished run in
`_connector_runs`. When a run begins, it inserts its row with the next run number of the table. Exports to one table
lock the table's first row in `_connector_runs`, so that only one export at a time publishes.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from connector.errors import ConfigurationError, RunAborted
from connector.paging.certificate import Certificate, TotalCountCheck

if TYPE_CHECKING:
    import pyarrow as pa

RUN_ID, EXPORTED_AT = "_run_id", "_exported_at"

COLUMNS_OF_RUN = (RUN_ID, EXPORTED_AT)
"""The columns that have the same value in all rows that an export writes."""

ID = "id"
DELETED_AT = "deleted_at"
VALID_FROM, VALID_TO, IS_CURRENT = "valid_from", "valid_to", "is_current"
RUNS_TABLE = "_connector_runs"


@dataclass(frozen=True, slots=True)
class ExportStart:
    """An export that will read the list with `filters`. `started_at` has a time zone."""

    run_id: str
    job: str
    filters: Mapping[str, object]
    started_at: datetime


@dataclass(frozen=True, slots=True)
class ExportRun:
    """An export that will publish its rows. `exported_at` is the time (with a time zone) that each row gets as
    `_exported_at`."""

    run_id: str
    job: str
    certificate: Certificate
    row_count: int
    exported_at: datetime
    finished_at: datetime

    @property
    def filters(self) -> Mapping[str, Any]:
        """The filters with which the list was read."""
        filters: Mapping[str, Any] = self.certificate.filters.get("asked", {})
        return filters

    @property
    def proves_absence(self) -> bool:
        """Whether each subscriber that this export did not find has certainly left the list. The proof is a complete
        certificate with a checked TotalCount."""
        return self.certificate.is_complete and self.certificate.total_count is TotalCountCheck.CHECKED


@dataclass(frozen=True, slots=True)
class RowChanges:
    """The numbers of rows that `publish` has inserted, updated and closed in the target. A closed row was replaced, was
    marked as deleted, or is a version that has ended."""

    inserted_row_count: int = 0
    updated_row_count: int = 0
    closed_row_count: int = 0


class CommitUnknown(RunAborted):
    """The error of a commit without an answer. The target has either all changes or none."""


class Writer(Protocol):
    """A writer of one export. Readers of the target see no new row before `publish`, and all new rows after `publish`.

    The methods may block. Only one thread at a time may call the methods. But another thread may call `interrupt` at
    any time.
    """

    def prepare(self, export_start: ExportStart) -> None:
        """Check that the target can be written, and begin to stage rows. Raises ConfigurationError, or RunAborted for a
        failure whose cause may be gone in the next run."""

    @property
    def has_target(self) -> bool:
        """Whether the target had rows when the export began."""

    def start(self) -> None:
        """Delete the staged rows, and begin to stage again."""

    def add(self, table: "pa.Table") -> None:
        """Stage rows."""

    def find_last_row_count(self, filters: Mapping[str, object]) -> int | None:
        """Return the number of rows of the last certified export with these filters, or None if the target does not
        have the number."""

    def publish(self, run: ExportRun) -> RowChanges:
        """Write the staged rows to the target atomically. Raises RunAborted. Its message says whether the target has
        changed."""

    @property
    def is_committing(self) -> bool:
        """Whether `publish` has reached its commit, which cannot be interrupted."""

    def interrupt(self) -> None:
        """Interrupt the running method: the method soon raises an error and does not change the target. A writer that
        cannot be interrupted does nothing."""

    def discard(self) -> None:
        """Delete the staged rows and temporary files. May be called after `publish`, and more than once."""


class WriteMode(StrEnum):
    """How an export writes a table. The mode decides which rows the table has.

    - `replace`: only the rows of the last list.
    - `upsert`: one row for each subscriber, with `deleted_at` if the subscriber has left the list.
    - `append`: a dated snapshot of each list.
    - `history`: one row for each version of a subscriber, with `valid_from` and `valid_to`."""

    REPLACE = "replace"
    UPSERT = "upsert"
    APPEND = "append"
    HISTORY = "history"

    @property
    def merges_by_id(self) -> bool:
        """Whether the rows of the list are merged into the table by their id."""
        return self in (WriteMode.UPSERT, WriteMode.HISTORY)


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A row of `_connector_runs` that has a `finished_at`."""

    number: int
    run_id: str
    mode: str
    verdict: str
    filters: str
    row_count: int


FINISHED_RUN_COLUMNS = ("number", "run_id", "mode", "verdict", "filters", "rows_written")


@dataclass(frozen=True, slots=True)
class TargetState:
    """The state of a table. `stored_name` is the name that the database has for the table (None: the table does not
    exist). `needs_value_by_column` is true for a column in which each new row must have a value. `runs` are the
    finished runs, the latest first. `referrers` are the tables with a foreign key to this table. They are read only
    if the export deletes rows of this table."""

    stored_name: str | None = None
    needs_value_by_column: Mapping[str, bool] = field(default_factory=dict)
    has_rows: bool = False
    runs: Sequence[FinishedRun] = ()
    referrers: Sequence[str] = ()


def check_target(
    target_state: TargetState, table: str, columns: Sequence[str], mode: WriteMode, target_name: str, *, overwrite: bool
) -> None:
    """Raise ConfigurationError if an export must not write to the table. `target_name` is the name of the table for
    messages. The reasons:
    - No export has written the table, and the database has the table under another spelling than `table`.
    - No export has written the table, and the table has rows. With `overwrite`, this is allowed.
    - The table has another mode.
    - The table lacks one of the export's `columns`, or needs a value in a column that the export does not have.
    - The export deletes rows of the table, and a foreign key of another table refers to the table.
    """
    if target_state.stored_name is None:
        return
    if target_state.stored_name != table and not target_state.runs:
        raise ConfigurationError(
            f"{target_name} exists as {target_state.stored_name}, which is the same name to the database. Use --table "
            f"{target_state.stored_name}, or another name."
        )
    if target_state.has_rows and not target_state.runs and not overwrite:
        raise ConfigurationError(
            f"{target_name} has rows that the connector did not write. Export to another table, or overwrite this "
            "table with --overwrite (in a job: `overwrite: true`)."
        )
    if target_state.runs and target_state.runs[0].mode != mode:
        raise ConfigurationError(
            f"{target_name} has the mode {target_state.runs[0].mode}, not {mode}. Export to another table, or "
            "drop this table."
        )
    existing_column_names = {name.lower() for name in target_state.needs_value_by_column}
    missing_column_names = [name for name in columns if name.lower() not in existing_column_names]
    if missing_column_names:
        raise ConfigurationError(
            f"{target_name} lacks columns of this export: {', '.join(missing_column_names)}. Add the columns to this "
            "table, list only columns of this table with --columns (in a job: `columns`), or export to another table."
        )
    written_column_names = {name.lower() for name in columns}
    required_column_names = [
        name
        for name, is_required in target_state.needs_value_by_column.items()
        if is_required and name.lower() not in written_column_names
    ]
    if required_column_names:
        raise ConfigurationError(
            f"{target_name} needs a value in {', '.join(required_column_names)} for each row, and this export has no "
            "values for these columns. Allow NULL in the columns, set a default for the columns, or export to another "
            "table."
        )
    if target_state.referrers:
        raise ConfigurationError(
            f"Foreign keys of {', '.join(target_state.referrers[:3])} refer to {target_name}, and the mode `{mode}` "
            "deletes rows of this table. Drop the foreign keys, or export to another table."
        )


def check_filters(filters: Mapping[str, object], mode: WriteMode, columns: Sequence[str]) -> None:
    """Raise ConfigurationError if the export lacks a column of its filters and the mode needs the column to find
    subscribers who have left the list."""
    missing_column_names = [name for name in filters if name not in columns]
    if missing_column_names and mode.merges_by_id:
        raise ConfigurationError(
            f"The export is filtered by {', '.join(missing_column_names)}, which its columns lack. The mode `{mode}` "
            "needs these columns to find subscribers who have left the list. Add the columns to --columns."
        )


def refuse_if_superseded(
    target_state: TargetState, own_run_number: int, run: ExportRun, mode: WriteMode, target_name: str
) -> None:
    """Raise RunAborted if this run must not overwrite rows that another export has written since this run began. The
    mode `append` overwrites no rows."""
    if mode is WriteMode.REPLACE and not run.certificate.is_complete and target_state.has_rows:
        raise RunAborted(
            f"Another program has written rows to {target_name} while this export read the list. An incomplete export "
            "replaces no rows, so this export has changed nothing."
        )
    if mode is WriteMode.APPEND:
        return
    newer_run_numbers = [
        finished_run.number
        for finished_run in target_state.runs
        if finished_run.number > own_run_number and _may_share_subscribers(mode, finished_run.filters, run.filters)
    ]
    if newer_run_numbers:
        raise RunAborted(
            f"Another export to {target_name} began later (number {newer_run_numbers[0]}; this export has the number "
            f"{own_run_number}) and was written earlier. This export has older rows, so it was not written. Run again."
        )


def _may_share_subscribers(mode: WriteMode, filters_json: str, own_filters: Mapping[str, object]) -> bool:
    """Return whether a subscriber can be in this export and in an export with the filters `filters_json`.

    If the filters of the two exports have different bases or ids, no subscriber is in both, because the base and the id
    of a subscriber never change."""
    if mode is WriteMode.REPLACE:
        return True
    other_filters = json.loads(filters_json)
    return not any(
        name in other_filters and name in own_filters and other_filters[name] != own_filters[name]
        for name in (ID, "base_id")
    )


def find_last_row_count(runs: Sequence[FinishedRun], filters: Mapping[str, object]) -> int | None:
    """Return the number of rows of the last certified run with these filters, or None."""
    filters_json = format_filters(filters)
    return next((run.row_count for run in runs if run.verdict == "complete" and run.filters == filters_json), None)


def format_filters(filters: Mapping[str, Any]) -> str:
    """Return the filters as JSON. Equal filters give equal texts."""
    return json.dumps(dict(filters), sort_keys=True, ensure_ascii=False)


def build_start_values(
    table_name: str, run_number: int, export_start: ExportStart, mode: WriteMode
) -> dict[str, object]:
    """Return the values of a row of `_connector_runs` when its run begins. The times have a time zone."""
    return {
        "table_name": table_name,
        "number": run_number,
        "run_id": export_start.run_id,
        "job": export_start.job,
        "mode": str(mode),
        "filters": format_filters(export_start.filters),
        "started_at": export_start.started_at,
    }


def build_run_row_values(run: ExportRun, changes: RowChanges) -> dict[str, object]:
    """Return the values that a row of `_connector_runs` gets when its run publishes. The times have a time zone."""
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
        "filters": format_filters(run.filters),
        "rows_read": certificate.distinct,
        "rows_written": run.row_count,
        "rows_inserted": changes.inserted_row_count,
        "rows_updated": changes.updated_row_count,
        "rows_closed": changes.closed_row_count,
    }
