"""Hands the rows of a reading to whoever takes them: each sweep announced before its rows, and none not asked for."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol

import numpy as np
from typing_extensions import TypeVar

from connector.api.rows import Form
from connector.pages import IdArray, Mask, Match
from connector.protocol import Listed, Rows, WireRows

NOBODY: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a reading has come: the sweep (1 = first), its rows so far, and the latest TotalCount."""

    sweep: int
    rows: int
    total: int | None


RowsTaken = TypeVar("RowsTaken", contravariant=True, default=WireRows)


class PageSink(Protocol[RowsTaken]):
    """Takes the rows of a reading. Only the rows of the last sweep count: another sweep begins anew."""

    def start_sweep(self, number: int) -> None:
        """Forget what was taken: sweep `number` (1 = first) begins."""

    def take(self, rows: RowsTaken, /) -> None:
        """Keep these subscribers, in the form that the reading was asked for; each comes once in a sweep."""


@dataclass(slots=True)
class Handing(Generic[Rows]):
    """To `sink`, in `form`, the rows that `match`; `missing` are the `expected` Ids that no row of this sweep had."""

    sink: PageSink[Rows]
    form: Form[Rows]
    match: Match | None
    on_progress: Callable[[Progress], None] | None
    expected: frozenset[int]
    missing: frozenset[int] = NOBODY
    sweep: int = 0
    rows: int = 0
    dropped: int = 0

    def __post_init__(self) -> None:
        self.missing = self.expected

    def hand_over(self, sweep: int, listed: Listed[Rows], ids: IdArray, kept: Mask) -> None:
        if sweep != self.sweep:
            self.sweep, self.rows, self.dropped, self.missing = sweep, 0, 0, self.expected
            self.sink.start_sweep(sweep)
        if self.missing:
            self.missing = self.missing.difference(ids.tolist())
        if self.match is not None:
            matching = kept & self.match(partial(self.form.read_values, listed.subscribers))
            self.dropped += int(np.count_nonzero(kept) - np.count_nonzero(matching))
            kept = matching
        if kept.any():
            self.sink.take(listed.subscribers if kept.all() else self.form.keep(listed.subscribers, kept))
        self.rows += int(np.count_nonzero(kept))
        if self.on_progress is not None:
            self.on_progress(Progress(sweep, self.rows, listed.total_count))
