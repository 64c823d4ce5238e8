"""What a destination does for an export, what an export adds to a table, and what lines of `_connector_runs` decide.

The connector writes a table that it made, which a line of a finished run says, or one that is new or empty. Each run
has a line from its beginning, numbered within its table; the first line of a table is what exports to it lock. Pure.
"""

import json
from collections.abc import Collection, Mapping, Sequence
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
"""Those that have one value in all rows of an export."""

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
    def columns(self) -> Mapping[str, str | datetime]:
        """The values that all its rows share, by column."""
        return {RUN_ID: self.run_id, EXPORTED_AT: self.exported_at}

    @property
    def is_whole(self) -> bool:
        """Whether a subscriber that the filters would list and that is not among the rows has gone from the list:
        it is certified, its TotalCount too."""
        return self.certificate.is_complete and self.certificate.total_count is TotalCount.CHECKED


@dataclass(frozen=True, slots=True)
class RowChanges:
    """What a publishing did to the target's rows. `closed`: replaced, marked as deleted, or versions that ended."""

    inserted: int = 0
    updated: int = 0
    closed: int = 0


class CommitUnknown(RunAborted):
    """The target is as before or as after, and which of the two could not be learnt."""


class Writer(Protocol):
    """Nothing that it does shows in the target before `publish`; a target was never between before and after.

    Its methods may block, and are called by one thread at a time; `interrupt` is for any other one.
    """

    def prepare(self, beginning: ExportStart) -> None:
        """See whether the target can be written, before the list is read. Raises ConfigurationError, or RunAborted if
        it can be again by itself."""

    @property
    def has_target(self) -> bool:
        """Whether the target had rows when the export began."""

    def start(self) -> None:
        """Begin to stage, forgetting what was staged before."""

    def add(self, table: "pa.Table") -> None:
        """Stage rows."""

    def count_last(self, filters: Mapping[str, object]) -> int | None:
        """Return the rows of the last certified export that this one is to be measured by, as far as the target
        tells."""

    def publish(self, run: ExportRun) -> RowChanges:
        """Bring the staged rows into the target, atomically; raises RunAborted, which says what the target is like."""

    @property
    def is_committing(self) -> bool:
        """Whether a publishing is at its commit, which cannot be interrupted."""

    def interrupt(self) -> None:
        """End the method that runs soon, by an error, and without a change of the target."""

    def discard(self) -> None:
        """Forget everything staged and leave no file behind; harmless after `publish` and when repeated."""


class Mode(StrEnum):
    """`replace`: the list in place of what was there. `upsert`: one row a subscriber, those that have gone marked by
    `deleted_at`. `append`: a dated snapshot beside the earlier ones. `history`: one row for each version of a
    subscriber, from `valid_from` to `valid_to`."""

    REPLACE = "replace"
    UPSERT = "upsert"
    APPEND = "append"
    HISTORY = "history"

    @property
    def is_by_id(self) -> bool:
        """Whether rows of the list are laid beside those of the table by their id."""
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
    """A target as it is: the name that the database has for it (None: it is not there), its columns, whether it has
    rows, and its finished runs, the last first."""

    stored_as: str | None
    columns: Collection[str]
    has_rows: bool
    runs: Sequence[FinishedRun]

    @property
    def exists(self) -> bool:
        """Whether the target is there."""
        return self.stored_as is not None


def check_target(
    found: TargetState, table: str, columns: Sequence[str], mode: Mode, shown: str, *, overwrite: bool
) -> None:
    """Raise ConfigurationError for a table that the connector did not make, that it keeps under another name or in
    another mode, or that lacks one of the export's `columns`."""
    if found.stored_as is not None and found.stored_as != table and not found.runs:
        raise ConfigurationError(
            f"{shown} is there as {found.stored_as}, which is the same name to the database: give --table "
            f"{found.stored_as}, or another name."
        )
    if found.has_rows and not found.runs and not overwrite:
        raise ConfigurationError(
            f"{shown} has rows that the connector did not write. Export to another table, or take this one over with "
            "--overwrite (in a job overwrite: true)."
        )
    if found.exists and found.runs and found.runs[0].mode != mode:
        raise ConfigurationError(
            f"{shown} is kept in the mode {found.runs[0].mode}, not {mode}. Export to another table, or drop this one."
        )
    there = {name.lower() for name in found.columns}
    missing = [name for name in columns if name.lower() not in there] if found.exists else ()
    if missing:
        raise ConfigurationError(
            f"{shown} lacks {', '.join(missing)}, which this export has. Leave that out by --columns (in a job "
            "columns:), export to another table, or drop this one."
        )


def check_filters(filters: Mapping[str, object], mode: Mode, columns: Sequence[str]) -> None:
    """Raise ConfigurationError if what has gone could not be found, since a column that is filtered by is left out."""
    missing = [name for name in filters if name not in columns]
    if missing and mode.is_by_id:
        raise ConfigurationError(
            f"The columns lack {', '.join(missing)}, which the export is filtered by: {mode} finds by it what has gone."
        )


def check_referrers(referrers: Sequence[str], mode: Mode, shown: str) -> None:
    """Raise ConfigurationError if other tables refer to one whose rows are deleted: theirs would break, or go too."""
    if not referrers:
        return
    names = ", ".join(sorted(referrers)[:3]) + (" and others" if len(referrers) > 3 else "")
    raise ConfigurationError(
        f"Foreign keys of {names} refer to {shown}, and {mode} deletes rows of it: drop the foreign keys, or export to "
        "another table."
    )


def refuse_now(found: TargetState, number: int, run: ExportRun, mode: Mode, shown: str) -> None:
    """Raise RunAborted if a publishing may not follow what the target has become since the run began."""
    if mode is Mode.REPLACE and not run.certificate.is_complete and found.has_rows:
        raise RunAborted(
            f"{shown} was filled meanwhile, and an incomplete export replaces nothing: it was left as it is."
        )
    asked = run.certificate.filters.get("asked", {})
    newer = [each.number for each in found.runs if each.number > number and _may_overlap(mode, each.filters, asked)]
    if newer and mode is not Mode.APPEND:
        raise RunAborted(
            f"An export to {shown} that began later (number {newer[0]}, this one is {number}) has been written "
            "meanwhile; this one would put older rows in its place, and was not written. Run it again."
        )


def _may_overlap(mode: Mode, filters: str, asked: Mapping[str, object]) -> bool:
    """Return whether a subscriber can be in both exports; of base and id it is certain that they do not change."""
    if mode is Mode.REPLACE:
        return True
    other = json.loads(filters)
    return not any(name in other and name in asked and other[name] != asked[name] for name in (ID, "base_id"))


def find_last_rows(runs: Sequence[FinishedRun], filters: Mapping[str, object]) -> int | None:
    """Return the rows of the last certified run with these filters."""
    asked = _write_filters(filters)
    return next((run.rows for run in runs if run.verdict == "complete" and run.filters == asked), None)


def _write_filters(asked: Mapping[str, Any]) -> str:
    """Return the filters of an export as JSON that is the same for the same ones; `{}` for none."""
    return json.dumps(dict(asked), sort_keys=True, ensure_ascii=False)


def describe_beginning(table: str, number: int, beginning: ExportStart, mode: Mode) -> dict[str, object]:
    """Return the values of a line of a run that begins; times are aware."""
    return {
        "table_name": table,
        "number": number,
        "run_id": beginning.run_id,
        "job": beginning.job,
        "mode": str(mode),
        "filters": _write_filters(beginning.filters),
        "started_at": beginning.started_at,
    }


def describe_end(run: ExportRun, changes: RowChanges) -> dict[str, object]:
    """Return the values that a run's line has from its publishing on; times are aware."""
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
        "filters": _write_filters(certificate.filters.get("asked", {})),
        "rows_read": certificate.distinct,
        "rows_written": run.rows,
        "rows_inserted": changes.inserted,
        "rows_updated": changes.updated,
        "rows_closed": changes.closed,
    }
