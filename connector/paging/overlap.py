"""One page of the list, its ids, and its overlap with the previous page (architecture 7).

The rows that two neighbouring pages share must have the same order in both pages. If the list changes between two
requests, there may be unread subscribers between the pages, so `decide_overlap` reports a gap and never guesses.
"""

from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

IdArray = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

NO_IDS: IdArray = np.empty(0, dtype=np.int64)

_OVERLAP_DIVISOR = 20
"""A page repeats 1/20 of the previous page. This makes 5.3 % more pages. A step back is needed only if more than 50
rows of a full page vanish between two requests."""


class IdSet:
    """A set of ids. A Python set of a million ids takes 64 MB and more, an IdSet 8 MB."""

    __slots__ = ("_sorted_arrays",)

    def __init__(self) -> None:
        # Arrays of ids in ascending order, each at least twice as long as the next array. No id is in two arrays.
        self._sorted_arrays: list[IdArray] = []

    def __len__(self) -> int:
        return sum(len(sorted_array) for sorted_array in self._sorted_arrays)

    def mark_contained_ids(self, ids: IdArray) -> Mask:
        """Return a mask of those `ids` that are in the set."""
        contained_mask = np.zeros(len(ids), dtype=np.bool_)
        if not len(ids):
            return contained_mask
        smallest_id, largest_id = ids.min(), ids.max()
        for sorted_array in self._sorted_arrays:
            # In id order, a page overlaps at most one of these arrays.
            if sorted_array[0] <= largest_id and sorted_array[-1] >= smallest_id:
                contained_mask |= mark_contained_ids(sorted_array, ids)
        return contained_mask

    def count_between(self, smallest_id: int, largest_id: int) -> int:
        """Return the number of ids in the set from `smallest_id` to `largest_id`, both included."""
        return sum(
            int(np.searchsorted(sorted_array, largest_id, "right") - np.searchsorted(sorted_array, smallest_id))
            for sorted_array in self._sorted_arrays
        )

    def add(self, ids: IdArray) -> None:
        """Add ids. They must differ from each other and from the ids in the set."""
        if len(ids):
            self._sorted_arrays.append(np.sort(ids))
        while len(self._sorted_arrays) > 1 and len(self._sorted_arrays[-2]) < 2 * len(self._sorted_arrays[-1]):
            self._merge_last_two()

    def to_array(self) -> IdArray:
        """Return all ids, ascending."""
        while len(self._sorted_arrays) > 1:
            self._merge_last_two()
        return self._sorted_arrays[0] if self._sorted_arrays else NO_IDS

    def _merge_last_two(self) -> None:
        # numpy's stable sort of int64 merges sorted sequences, so that two sorted arrays need only one pass.
        merged_ids = np.concatenate(self._sorted_arrays[-2:])
        merged_ids.sort(kind="stable")
        self._sorted_arrays[-2:] = [merged_ids]


def mark_contained_ids(sorted_ids: IdArray, ids: IdArray) -> Mask:
    """Return a mask of those `ids` that are in `sorted_ids`, an ascending array."""
    if not len(sorted_ids):
        return np.zeros(len(ids), dtype=np.bool_)
    indexes = np.minimum(np.searchsorted(sorted_ids, ids), len(sorted_ids) - 1)
    contained_mask: Mask = sorted_ids[indexes] == ids
    return contained_mask


def mark_first_occurrences(ids: IdArray) -> Mask:
    """Return a mask of the first occurrence of each id in the array."""
    first_occurrence_mask = np.zeros(len(ids), dtype=np.bool_)
    first_occurrence_mask[np.unique(ids, return_index=True)[1]] = True
    return first_occurrence_mask


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A page to ask for. `sweep_number` is the number of the sweep (1 = first). Each sweep begins at the first row
    of the list.

    `expected_end` is TotalCount if the page begins at the offset TotalCount, and the sweep has read TotalCount rows.
    Then a refusal of the page means the end of the list, like an empty page.
    """

    sweep_number: int
    offset: int
    limit: int
    expected_end: int | None = None


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """One page as received: the requested offset, the ids of the rows, and the answer's TotalCount, Offset and
    Limit."""

    requested_offset: int
    ids: IdArray
    total_count: int | None
    offset: int | None
    limit: int | None


@dataclass(frozen=True, slots=True)
class JoinedPage:
    """A page that overlaps the previous page. A page that is not full (`is_partly_filled`) may be the last page."""

    offset: int
    ids: IdArray
    total_count: int | None
    is_partly_filled: bool

    @property
    def end_offset(self) -> int:
        """The offset of the row after the last row of the page."""
        return self.offset + len(self.ids)

    def is_repeated_by(self, answer: PageAnswer) -> bool:
        """Return whether the answer repeats the rows and the TotalCount of this page at another offset (rule 5)."""
        return (
            answer.requested_offset != self.offset
            and answer.total_count == self.total_count
            and np.array_equal(answer.ids, self.ids)
        )

    @property
    def row_count_before_overlap(self) -> int:
        """The number of rows before the usual overlap with the next page, at least 1."""
        return max(1, len(self.ids) - compute_overlap_rows(len(self.ids)))


def compute_overlap_rows(page_size: int) -> int:
    """Return the number of rows that the next page repeats from a page of `page_size` rows."""
    return max(1, page_size // _OVERLAP_DIVISOR)


class OverlapKind(Enum):
    """The relation of a page to the previous page."""

    MATCHED = "matched"  # the pages share rows in the same order, and few rows appeared or vanished between them
    # The sweep has read most rows of the page already, because many new rows have moved them to larger offsets.
    MOSTLY_KNOWN = "mostly known"
    GAP = "gap"  # the pages share no rows: unread rows may lie between them
    MOVED = "moved"  # the pages share rows in another order or far apart: the order is not stable


@dataclass(frozen=True, slots=True)
class PageOverlap:
    """The overlap of a page with the previous page, and the changes that the two pages show."""

    kind: OverlapKind
    offset_shift: int = 0  # new offset of the first shared row in the list, minus its earlier offset
    appeared_count_before_overlap: int = 0  # number of new rows before the first shared row
    appeared_count: int = 0  # number of new rows between the first and the last shared row
    vanished_count: int = 0  # number of vanished rows between the first and the last shared row


def decide_overlap(
    previous_ids: IdArray, previous_offset: int, ids: IdArray, offset: int, new_row_mask: Mask
) -> PageOverlap:
    """Compare a page with the previous page. `new_row_mask` marks the ids that the sweep has not seen before."""
    previous_page_indexes = _find_indexes(previous_ids, ids)  # for each id its index in the previous page, or -1
    shared_indexes = np.flatnonzero(previous_page_indexes >= 0)
    if not len(shared_indexes):
        return PageOverlap(
            OverlapKind.MOSTLY_KNOWN if 2 * np.count_nonzero(new_row_mask) < len(ids) else OverlapKind.GAP
        )
    first_index, last_index = int(shared_indexes[0]), int(shared_indexes[-1])
    previous_indexes = previous_page_indexes[shared_indexes]
    appeared_count = int(np.count_nonzero(new_row_mask[first_index : last_index + 1]))
    # If the previous page also has the last row of this page, the later rows of the previous page lie beyond the end of
    # this page. So these rows do not count as vanished.
    end_index_of_compared_ids = int(previous_indexes[-1]) + 1 if last_index == len(ids) - 1 else len(previous_ids)
    vanished_count = end_index_of_compared_ids - int(previous_indexes[0]) - len(shared_indexes)
    overlap = PageOverlap(
        OverlapKind.MATCHED,
        offset_shift=(offset + first_index) - (previous_offset + int(previous_indexes[0])),
        appeared_count_before_overlap=int(np.count_nonzero(new_row_mask[:first_index])),
        appeared_count=appeared_count,
        vanished_count=vanished_count,
    )
    # The service may sort each page separately. So the pages match only if more rows are shared than changed.
    is_same_order = bool((np.diff(previous_indexes) > 0).all())
    change_count = overlap.appeared_count_before_overlap + appeared_count + vanished_count
    return overlap if is_same_order and len(shared_indexes) > change_count else PageOverlap(OverlapKind.MOVED)


def _find_indexes(previous_ids: IdArray, ids: IdArray) -> IdArray:
    """Return for each id its index in `previous_ids`, or -1."""
    sorting_indexes = np.argsort(previous_ids, kind="stable")
    positions_in_sorted_ids = np.minimum(
        np.searchsorted(previous_ids, ids, sorter=sorting_indexes), len(previous_ids) - 1
    )
    candidate_indexes = sorting_indexes[positions_in_sorted_ids]
    indexes: IdArray = np.where(previous_ids[candidate_indexes] == ids, candidate_indexes, -1)
    return indexes


def decide_direction(ids: IdArray) -> int:
    """Return 1 if the ids strictly rise, -1 if they strictly fall, and 0 otherwise. Return 1 for fewer than two ids."""
    if (ids[1:] > ids[:-1]).all():
        return 1
    return -1 if (ids[1:] < ids[:-1]).all() else 0


@dataclass(slots=True)
class Totals:
    """The first, last, smallest and largest TotalCount of one sweep. With `is_total_missing`, an answer had no
    TotalCount."""

    first_total: int | None = None
    last_total: int | None = None
    smallest_total: int | None = None
    largest_total: int | None = None
    is_total_missing: bool = False

    def record(self, total_count: int | None) -> None:
        """Record the TotalCount of another answer."""
        if total_count is None:
            self.is_total_missing = True
            return
        self.first_total = total_count if self.first_total is None else self.first_total
        self.last_total = total_count
        self.smallest_total = total_count if self.smallest_total is None else min(self.smallest_total, total_count)
        self.largest_total = total_count if self.largest_total is None else max(self.largest_total, total_count)

    def has_only_total(self, count: int) -> bool:
        """Return whether every answer had a TotalCount, and each TotalCount is `count`."""
        return not self.is_total_missing and self.smallest_total == self.largest_total == count

    @property
    def has_constant_total(self) -> bool:
        """Whether all TotalCounts are equal. True if no answer had a TotalCount."""
        return self.smallest_total == self.largest_total


@dataclass(slots=True)
class ListChanges:
    """The changes of the list that the overlaps of one sweep show. The counts are lower bounds.

    Example: one subscriber appears between two pages. If the first row that both pages show has moved by one offset,
    the new subscriber is before this row. Otherwise the new subscriber is after this row.
    """

    appeared_count: int = 0
    vanished_count: int = 0
    is_exact: bool = True  # False after a change of unknown size, or after an answer without TotalCount

    def record_overlap(self, overlap: PageOverlap, previous_total: int | None, total_count: int | None) -> None:
        """Record a matched overlap between two answers with these TotalCounts."""
        self._add_net_change(overlap.offset_shift - overlap.appeared_count_before_overlap)
        self.appeared_count += overlap.appeared_count_before_overlap + overlap.appeared_count
        self.vanished_count += overlap.vanished_count
        if total_count is None or previous_total is None:
            self.is_exact = False
        else:
            change_after_overlap = total_count - previous_total - overlap.offset_shift
            self._add_net_change(change_after_overlap - overlap.appeared_count + overlap.vanished_count)

    def record_end(self, previous_total: int | None, total_count: int | None) -> None:
        """Record the TotalCounts of the last page and of the empty page past the end. If subscribers appear or
        vanish behind the last row that was read, only TotalCount shows the change."""
        if total_count is not None and previous_total is not None:
            self._add_net_change(total_count - previous_total)

    def _add_net_change(self, net_change: int) -> None:
        self.appeared_count += max(net_change, 0)
        self.vanished_count += max(-net_change, 0)

    def is_count_possible(self, id_count: int, totals: Totals) -> bool:
        """Return whether the number of different ids fits the TotalCounts. The number is at least the smallest
        TotalCount minus the vanished subscribers, and at most the largest TotalCount plus the new subscribers."""
        if totals.smallest_total is None or totals.largest_total is None:
            return False
        smallest_count = totals.smallest_total - self.vanished_count
        largest_count = totals.largest_total + self.appeared_count
        return not self.is_exact or smallest_count <= id_count <= largest_count
