"""What every destination can do: stage rows, then put them in place of the old ones at once, or forget them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import pyarrow as pa

from connector.errors import RunAborted
from connector.paging import Certificate, TotalCount
from connector.warehouse.columns import EXPORTED_AT, RUN_ID


@dataclass(frozen=True, slots=True)
class Beginning:
    """An export that is about to read the list by `filters`; `started_at` is aware."""

    run_id: str
    job: str
    filters: Mapping[str, object]
    started_at: datetime


@dataclass(frozen=True, slots=True)
class Run:
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
class Changes:
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

    def prepare(self, beginning: Beginning) -> None:
        """See whether the target can be written, before the list is read. Raises ConfigurationError, or RunAborted if
        it can be again by itself."""

    @property
    def has_target(self) -> bool:
        """Whether the target had rows when the export began."""

    def start(self) -> None:
        """Begin to stage, forgetting what was staged before."""

    def add(self, table: pa.Table) -> None:
        """Stage rows."""

    def count_last(self, filters: Mapping[str, object]) -> int | None:
        """The rows of the last certified export that this one is to be measured by, as far as the target tells."""

    def publish(self, run: Run) -> Changes:
        """Bring the staged rows into the target, atomically; raises RunAborted, which says what the target is like."""

    @property
    def is_committing(self) -> bool:
        """Whether a publishing is at its commit, which cannot be interrupted."""

    def interrupt(self) -> None:
        """Have the method that runs end soon, by an error, and without a change of the target."""

    def discard(self) -> None:
        """Forget everything staged and leave no file behind; harmless after `publish` and when repeated."""
