"""One page of the list, its ids, and how the page joins the page before it (architecture 7).

The rows that two neighbouring pages share must have the same order in both pages. If the list changes between two
requests, a gap between the pages may lose subscribers, so `decide_overlap` never guesses which rows a gap has.
"""

from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

IdArray = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

NO_IDS: IdArray = np.empty(0, dtype=np.int64)

_OVERLAP_SHARE = 20
"""A page repeats 1/20 of the page before. That makes 5.3 % more pages. A step back is needed only if more than 50 rows
of a full page vanish between two requests."""


class IdSet:
    """A set of ids. A Python set of a million ids takes 64 MB and more, an IdSet 8 MB."""

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: list[IdArray] = []

    def __len__(self) -> int:
        return sum(len(run) for run in self._runs)

    def holds(self, ids: IdArray) -> Mask:
        """Return a mask of the `ids` that are in the set."""
        held_mask = np.zeros(len(ids), dtype=np.bool_)
        if not len(ids):
            return held_mask
        low, high = ids.min(), ids.max()
        for run in self._runs:
            if run[0] <= high and run[-1] >= low:  # in id order, a page overlaps one run or none
                held_mask |= contained(run, ids)
        return held_mask

    def count_between(self, low: int, high: int) -> int:
        """Return the number of ids in the set from `low` to `high`, both included."""
        return sum(int(np.searchsorted(run, high, "right") - np.searchsorted(run, low)) for run in self._runs)

    def add(self, ids: IdArray) -> None:
        """Add ids that differ from each other and from the ids in the set."""
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
        # numpy's stable sort of int64 merges sorted runs: two runs cost one pass.
        merged = np.concatenate(self._runs[-2:])
        merged.sort(kind="stable")
        self._runs[-2:] = [merged]


def contained(ascending: IdArray, ids: IdArray) -> Mask:
    """Return a mask of the `ids` that are in the sorted array `ascending`."""
    if not len(ascending):
        return np.zeros(len(ids), dtype=np.bool_)
    indexes = np.minimum(np.searchsorted(ascending, ids), len(ascending) - 1)
    contained_mask: Mask = ascending[indexes] == ids
    return contained_mask


def first_occurrences(ids: IdArray) -> Mask:
    """Return a mask of the first occurrence of each id in the array."""
    first_mask = np.zeros(len(ids), dtype=np.bool_)
    first_mask[np.unique(ids, return_index=True)[1]] = True
    return first_mask


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A page to ask for. `sweep` is the number of the sweep, from 1; each sweep begins at the head of the list.

    `ends_at` is the TotalCount if the page begins just past rows that agree with that TotalCount. A refusal of such a
    page means the end of the list, as an empty page does.
    """

    sweep: int
    offset: int
    limit: int
    ends_at: int | None = None


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """One page as received: the requested offset, its ids, and the echoes TotalCount, Offset and Limit."""

    requested_offset: int
    ids: IdArray
    total: int | None
    offset: int | None
    limit: int | None


@dataclass(frozen=True, slots=True)
class JoinedPage:
    """A page that joins the page before it, at the requested offset. `is_short`: the page is not full, so it may be the
    last."""

    offset: int
    ids: IdArray
    total: int | None
    is_short: bool

    @property
    def end(self) -> int:
        """The offset of the row after the last row of the page."""
        return self.offset + len(self.ids)

    def is_repeated_by(self, answer: PageAnswer) -> bool:
        """Return whether the answer has the same rows at another offset, with the same TotalCount (rule 5)."""
        is_elsewhere = answer.requested_offset != self.offset and answer.total == self.total
        return is_elsewhere and np.array_equal(answer.ids, self.ids)

    @property
    def step(self) -> int:
        """The number of rows from the beginning of this page to the beginning of the next page."""
        return max(1, len(self.ids) - count_overlap(len(self.ids)))


def count_overlap(rows: int) -> int:
    """Return the number of rows of a page with this many `rows` that the next page repeats."""
    return max(1, rows // _OVERLAP_SHARE)


class OverlapKind(Enum):
    """The relation of a page to the page before it."""

    MATCHED = "matched"  # the pages share rows in the same order, and few rows appeared or vanished between them
    BEHIND = "behind"  # most rows were read earlier in the sweep: many rows were inserted since
    GAP = "gap"  # the pages share no rows: unread rows may lie between them
    MOVED = "moved"  # the pages share rows in another order or far apart: the order is not stable


@dataclass(frozen=True, slots=True)
class PageOverlap:
    """How a page joins the page before, and the changes that the two pages show.

    `shift` is the net change of rank of the first shared row. `appeared_before` counts new rows before the first shared
    row. `appeared` and `vanished` count rows between the first and the last shared row.
    """

    kind: OverlapKind
    shift: int = 0
    appeared_before: int = 0
    appeared: int = 0
    vanished: int = 0


def decide_overlap(before: IdArray, before_offset: int, ids: IdArray, offset: int, fresh_mask: Mask) -> PageOverlap:
    """Compare a page with the page before it. `fresh_mask` marks the ids that were not seen earlier in the sweep."""
    indexes_before = _find_indexes(before, ids)
    shared = np.flatnonzero(indexes_before >= 0)
    if not len(shared):
        return PageOverlap(OverlapKind.BEHIND if 2 * np.count_nonzero(fresh_mask) < len(ids) else OverlapKind.GAP)
    first, last = int(shared[0]), int(shared[-1])
    shared_before = indexes_before[shared]
    appeared = int(np.count_nonzero(fresh_mask[first : last + 1]))
    # If a page ends within the page before, rows after the end of this page have not vanished.
    compared_end = int(shared_before[-1]) + 1 if last == len(ids) - 1 else len(before)
    vanished = compared_end - int(shared_before[0]) - len(shared)
    overlap = PageOverlap(
        OverlapKind.MATCHED,
        shift=(offset + first) - (before_offset + int(shared_before[0])),
        appeared_before=int(np.count_nonzero(fresh_mask[:first])),
        appeared=appeared,
        vanished=vanished,
    )
    # If as many rows changed as stayed, the shared rows prove nothing: the service may sort each page by itself.
    is_same_order = bool((np.diff(shared_before) > 0).all())
    changes = overlap.appeared_before + appeared + vanished
    return overlap if is_same_order and len(shared) > changes else PageOverlap(OverlapKind.MOVED)


def _find_indexes(before: IdArray, ids: IdArray) -> IdArray:
    """Return the index of each id in `before`, or -1."""
    sorter = np.argsort(before, kind="stable")
    slots = np.minimum(np.searchsorted(before, ids, sorter=sorter), len(before) - 1)
    candidates = sorter[slots]
    indexes: IdArray = np.where(before[candidates] == ids, candidates, -1)
    return indexes


def decide_direction(ids: IdArray) -> int:
    """Return 1 if the ids strictly rise, -1 if they strictly fall, and 0 otherwise. Return 1 for fewer than two ids."""
    rises = ids[1:] > ids[:-1]
    if rises.all():
        return 1
    return -1 if (ids[1:] < ids[:-1]).all() else 0


@dataclass(slots=True)
class Totals:
    """A summary of the TotalCounts of one sweep. `is_missing`: at least one answer had no TotalCount."""

    first: int | None = None
    last: int | None = None
    smallest: int | None = None
    largest: int | None = None
    is_missing: bool = False

    def record(self, total: int | None) -> None:
        """Record the TotalCount of one more answer."""
        if total is None:
            self.is_missing = True
            return
        self.first = total if self.first is None else self.first
        self.last = total
        self.smallest = total if self.smallest is None else min(self.smallest, total)
        self.largest = total if self.largest is None else max(self.largest, total)

    def are_all(self, count: int) -> bool:
        """Return whether every answer had the TotalCount `count`."""
        return not self.is_missing and self.smallest == self.largest == count

    @property
    def are_constant(self) -> bool:
        """Whether all TotalCounts are equal; true if there are none."""
        return self.smallest == self.largest


@dataclass(slots=True)
class ListChanges:
    """Lower bounds of the subscribers that appeared and vanished during one sweep: a change may leave no trace.

    A change before an overlap shifts the ranks of the rows that two pages share. Any other change of TotalCount
    happened after the overlap. So a list in a stable order has `first TotalCount - vanished + appeared` rows.
    """

    appeared: int = 0
    vanished: int = 0
    is_exact: bool = True

    def record_overlap(self, overlap: PageOverlap, total_before: int | None, total: int | None) -> None:
        """Record a matched overlap between two answers with these TotalCounts."""
        self._add_net(overlap.shift - overlap.appeared_before)
        self.appeared += overlap.appeared_before + overlap.appeared
        self.vanished += overlap.vanished
        if total is None or total_before is None:
            self.is_exact = False
        else:
            self._add_net((total - total_before - overlap.shift) - overlap.appeared + overlap.vanished)

    def record_end(self, total_before: int | None, total: int | None) -> None:
        """Record the empty page past the end: a change of TotalCount is the only sign of a change there."""
        if total is not None and total_before is not None:
            self._add_net(total - total_before)

    def _add_net(self, net_change: int) -> None:
        self.appeared += max(net_change, 0)
        self.vanished += max(-net_change, 0)

    def allow(self, distinct: int, totals: Totals) -> bool:
        """Return whether a number of `distinct` ids fits the TotalCounts: it is within [smallest - vanished, largest +
        appeared]."""
        if totals.smallest is None or totals.largest is None:
            return False
        return not self.is_exact or totals.smallest - self.vanished <= distinct <= totals.largest + self.appeared
