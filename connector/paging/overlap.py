"""One page of the list, its ids, and how it joins the page before it (architecture 7).

The rows that two neighbouring pages share must stand in both in the same order. Where a list changes between two
requests, a gap loses subscribers: `decide_overlap` never guesses what lies in one.
"""

from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

IdArray = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

NO_IDS: IdArray = np.empty(0, dtype=np.int64)

_OVERLAP_SHARE = 20
"""A page repeats 1/20 of the one before: 5.3 % more pages, and 50 rows of a full page may vanish between two requests
before a step back is needed."""


class IdSet:
    """Ids seen so far. A Python set of a million ids takes 64 MB and more, this one 8."""

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: list[IdArray] = []

    def __len__(self) -> int:
        return sum(len(run) for run in self._runs)

    def holds(self, ids: IdArray) -> Mask:
        """Return for each id whether it is in the set."""
        held = np.zeros(len(ids), dtype=np.bool_)
        if not len(ids):
            return held
        low, high = ids.min(), ids.max()
        for run in self._runs:
            if run[0] <= high and run[-1] >= low:  # in id order a page meets one run, or none
                held |= contained(run, ids)
        return held

    def count_between(self, low: int, high: int) -> int:
        """Return how many of the set are from `low` to `high`, both included."""
        return sum(int(np.searchsorted(run, high, "right") - np.searchsorted(run, low)) for run in self._runs)

    def add(self, ids: IdArray) -> None:
        """Take in ids that differ from each other and from those in the set."""
        if len(ids):
            self._runs.append(np.sort(ids))
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            self._merge_last_two()

    def to_array(self) -> IdArray:
        """Return all ids, ascending."""
        while len(self._runs) > 1:
            self._merge_last_two()
        return self._runs[0] if self._runs else NO_IDS

    def _merge_last_two(self) -> None:
        # A stable sort of int64 is a merge of the runs that it finds: two of them cost one pass.
        merged = np.concatenate(self._runs[-2:])
        merged.sort(kind="stable")
        self._runs[-2:] = [merged]


def contained(ascending: IdArray, ids: IdArray) -> Mask:
    """Return for each of `ids` whether `ascending` (sorted) has it."""
    if not len(ascending):
        return np.zeros(len(ids), dtype=np.bool_)
    places = np.minimum(np.searchsorted(ascending, ids), len(ascending) - 1)
    held: Mask = ascending[places] == ids
    return held


def first_occurrences(ids: IdArray) -> Mask:
    """Return for each id whether it stands in the array for the first time."""
    first = np.zeros(len(ids), dtype=np.bool_)
    first[np.unique(ids, return_index=True)[1]] = True
    return first


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A page to ask for: `sweep` counts from 1, and a page of a new number begins at the list's head.

    `ends_at` is set just past rows that agree with that TotalCount: a refusal there says no more than an empty page.
    """

    sweep: int
    offset: int
    limit: int
    ends_at: int | None = None


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """One page as it came: where it was asked for, its ids, and the three echoes."""

    asked: int
    ids: IdArray
    total: int | None
    offset: int | None
    limit: int | None


@dataclass(frozen=True, slots=True)
class TakenPage:
    """A page that joined, at the offset asked for; `is_short`: so few rows that none can follow."""

    offset: int
    ids: IdArray
    total: int | None
    is_short: bool

    @property
    def end(self) -> int:
        """The offset behind its last row."""
        return self.offset + len(self.ids)

    def is_repeated_by(self, answer: PageAnswer) -> bool:
        """Return whether another place has the very same rows, though the list claims not to have changed (rule 5)."""
        is_elsewhere = answer.asked != self.offset and answer.total == self.total
        return is_elsewhere and np.array_equal(answer.ids, self.ids)

    @property
    def step(self) -> int:
        """The rows by which a page like this one moves on."""
        return max(1, len(self.ids) - count_overlap(len(self.ids)))


def count_overlap(rows: int) -> int:
    """Return the rows of a page of so many that the next one repeats."""
    return max(1, rows // _OVERLAP_SHARE)


class OverlapKind(Enum):
    """How a page hangs together with the one before it."""

    MATCHED = "matched"  # they share rows, in the same order, and few came or went among them
    BEHIND = "behind"  # it lies wholly in what was read before: much was inserted since
    GAP = "gap"  # they share nothing: rows may stand between them
    MOVED = "moved"  # they share rows, in another order or far apart: the order is not stable


@dataclass(frozen=True, slots=True)
class PageOverlap:
    """How a page joins, and the changes that it shows: net `shift` of ranks before the first shared row, of which
    `appeared_before` are new in the page; rows that `appeared` or `vanished` among the shared ones."""

    kind: OverlapKind
    shift: int = 0
    appeared_before: int = 0
    appeared: int = 0
    vanished: int = 0


def decide_overlap(before: IdArray, before_offset: int, ids: IdArray, offset: int, fresh: Mask) -> PageOverlap:
    """Compare a page with the one before it; `fresh` marks the ids not seen earlier in the sweep."""
    places = _find_indexes(before, ids)
    shared = np.flatnonzero(places >= 0)
    if not len(shared):
        return PageOverlap(OverlapKind.BEHIND if 2 * np.count_nonzero(fresh) < len(ids) else OverlapKind.GAP)
    first, last = int(shared[0]), int(shared[-1])
    there = places[shared]
    appeared = int(np.count_nonzero(fresh[first : last + 1]))
    # A page that ends within the one before it says nothing of the rows behind its own last.
    reach = int(there[-1]) + 1 if last == len(ids) - 1 else len(before)
    vanished = reach - int(there[0]) - len(shared)
    overlap = PageOverlap(
        OverlapKind.MATCHED,
        shift=(offset + first) - (before_offset + int(there[0])),
        appeared_before=int(np.count_nonzero(fresh[:first])),
        appeared=appeared,
        vanished=vanished,
    )
    # Where as many came or went as stayed, the shared rows prove nothing: so look pages that were sorted one by one.
    is_same_order = bool((np.diff(there) > 0).all())
    changes = overlap.appeared_before + appeared + vanished
    return overlap if is_same_order and len(shared) > changes else PageOverlap(OverlapKind.MOVED)


def _find_indexes(before: IdArray, ids: IdArray) -> IdArray:
    """For each id its index in `before`, or -1."""
    sorter = np.argsort(before, kind="stable")
    slots = np.minimum(np.searchsorted(before, ids, sorter=sorter), len(before) - 1)
    places = sorter[slots]
    found: IdArray = np.where(before[places] == ids, places, -1)
    return found


def decide_direction(ids: IdArray) -> int:
    """1 if the ids strictly rise, -1 if they strictly fall, 0 if neither; fewer than two rise."""
    rises = ids[1:] > ids[:-1]
    if rises.all():
        return 1
    return -1 if (ids[1:] < ids[:-1]).all() else 0


@dataclass(slots=True)
class Totals:
    """Every TotalCount of one sweep; `is_missing` once an answer had none."""

    first: int | None = None
    last: int | None = None
    smallest: int | None = None
    largest: int | None = None
    is_missing: bool = False

    def note(self, total: int | None) -> None:
        """Take in the TotalCount of one more answer."""
        if total is None:
            self.is_missing = True
            return
        self.first = total if self.first is None else self.first
        self.last = total
        self.smallest = total if self.smallest is None else min(self.smallest, total)
        self.largest = total if self.largest is None else max(self.largest, total)

    def are_all(self, count: int) -> bool:
        """Return whether every answer had a TotalCount, and this one."""
        return not self.is_missing and self.smallest == self.largest == count

    @property
    def are_constant(self) -> bool:
        """Whether no answer contradicted another; of none at all, that is so too."""
        return self.smallest == self.largest


@dataclass(slots=True)
class ListChanges:
    """How many subscribers came and went during one sweep, by ranks: a lower bound, as a change may leave no trace.

    A change before the overlap shifts the ranks of the rows that two pages share; what else TotalCount changed by
    happened after it. So the rows of a stable order come to `first TotalCount - vanished + appeared`, precisely.
    """

    appeared: int = 0
    vanished: int = 0
    is_exact: bool = True

    def record_overlap(self, overlap: PageOverlap, total_before: int | None, total: int | None) -> None:
        """Take in a matched overlap, between answers with these TotalCounts."""
        self._note(overlap.shift - overlap.appeared_before)
        self.appeared += overlap.appeared_before + overlap.appeared
        self.vanished += overlap.vanished
        if total is None or total_before is None:
            self.is_exact = False
        else:
            self._note((total - total_before - overlap.shift) - overlap.appeared + overlap.vanished)

    def record_end(self, total_before: int | None, total: int | None) -> None:
        """Take in the empty page past the end, where no row tells the place of a change."""
        if total is not None and total_before is not None:
            self._note(total - total_before)

    def _note(self, net: int) -> None:
        self.appeared += max(net, 0)
        self.vanished += max(-net, 0)

    def allow(self, distinct: int, totals: Totals) -> bool:
        """Return whether so many different ids fit the TotalCounts: within [smallest - vanished, largest +
        appeared]."""
        if totals.smallest is None or totals.largest is None:
            return False
        return not self.is_exact or totals.smallest - self.vanished <= distinct <= totals.largest + self.appeared
