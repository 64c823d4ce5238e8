"""A list in the order of its ids, read by several readers at once, each a range of ids (architecture 7, rule 8).

`divide_list` takes boundaries from a few pages of the list. A reader of a range walks pages that overlap and match from
one that begins at or before its `low` to one that reaches its `high`, or the empty page past the end.

Theory. Ids never change. In a list that is sorted by them, a page is all that the list has, at one instant, between
the page's first id and its last. Two pages that share a row leave no id between them, so the pages of one range leave
none out of it; the ranges leave none between them. So a subscriber who was there throughout stands in exactly one
range and on a page of it, whatever came or went, and in whatever order of time the pages were read.

That the list is sorted by ids is what the pages themselves have to show. Each has so many rows that they rise by
chance once in 16! times, and they join. An order that only looks so, until rows move, gives itself away afterwards: a
row that moved out of a range before it was read stands at the end or the head by then (as by last change), or leaves a
count too few. So the end and the head are looked at once more, after all ranges: what came must lie beyond all known
ids, and what is known must be in its place. At last the rows must be no fewer than the last TotalCount, and no more
than the first one and the subscribers that came (rule 4).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import numpy.typing as npt

from connector.paging.certificate import Certificate, Order, Reason, Verdict
from connector.paging.overlap import IdArray, Mask, PageAnswer, PageRequest, contained, decide_direction
from connector.paging.sweep import CONVINCING, IdRange, Sweep, SweepEnd

SURVEYED = 2 * CONVINCING
"""Rows of a page that shows where a list may be divided."""

_LOOKED_AT = 64
"""Known rows at each end of the list that are looked at again, so that half of them may vanish meanwhile."""


@dataclass(frozen=True, slots=True)
class ListDivision:
    """The ranges of a list, and what was known when they were made: of all ids the `first` and the `last`, as the list
    goes, and the TotalCount beside each."""

    ranges: tuple[IdRange, ...]
    first: int
    total_at_first: int
    last: int
    total_at_last: int
    pages: int


def choose_survey(total: int, parts: int) -> list[int]:
    """Return the offsets of the pages that show where a list of `total` rows may be divided into `parts`: its head,
    the boundaries, and its end."""
    return [*(number * total // parts for number in range(parts)), max(0, total - SURVEYED)]


def divide_list(survey: Sequence[PageAnswer]) -> ListDivision | None:
    """Return the ranges by the pages of `choose_survey`, of which the last must reach the list's end.

    None where they do not show a list in the order of its ids, or no TotalCount agrees with the end.
    """
    *heads, end = survey
    is_long = all(len(page.ids) >= CONVINCING and page.offset in (None, page.asked) for page in survey)
    total_at_first = survey[0].total
    if not is_long or end.total is None or total_at_first is None or end.total != end.asked + len(end.ids):
        return None
    direction = decide_direction(np.concatenate([page.ids for page in survey]))
    if not direction:
        return None
    lows = [int(page.ids[0]) for page in heads]
    ranges = tuple(
        IdRange(direction, low if number else None, high, page.asked)
        for number, (page, low, high) in enumerate(zip(heads, lows, [*lows[1:], None], strict=True))
    )
    return ListDivision(ranges, lows[0], total_at_first, int(end.ids[-1]), end.total, len(survey))


@dataclass(frozen=True, slots=True)
class PackedIds:
    """Ascending ids as their distances, for the way between processes: a byte or two for each."""

    first: int
    distances: npt.NDArray[np.unsignedinteger]

    @staticmethod
    def pack(ids: IdArray) -> "PackedIds":
        """Return ascending ids, packed."""
        distances = np.diff(ids.view(np.uint64))
        smallest = np.min_scalar_type(distances.max()) if len(distances) else np.uint8
        return PackedIds(int(ids[0]) if len(ids) else 0, distances.astype(smallest))

    def unpack(self, count: int) -> IdArray:
        """Return these `count` ids."""
        ids = np.full(count, self.first, dtype=np.int64)
        ids[1:] += np.cumsum(self.distances, dtype=np.uint64).view(np.int64)
        return ids


@dataclass(frozen=True, slots=True)
class RangeReading:
    """What one reader found in its range; only ids and counts, so that it can go to another process.

    `is_in_id_order`: it was read from one side to the other in pages that are strictly monotone and join. `smallest`
    and `largest` are those of its TotalCounts (0 where one was missing), `total` the one beside its last row;
    `is_end_right`: that is the place of this row in the list. `appeared` counts subscribers that came meanwhile, at
    least; `came_before` those of them that came in where it had been already.
    """

    number: int
    is_in_id_order: bool
    is_end_right: bool
    rows: int
    ids: PackedIds
    pages: int
    smallest: int
    largest: int
    total: int
    appeared: int
    came_before: int


class RangeReader:
    """Says which page of a range to ask for (`decide_next`), and takes the ids that came (`take`), as a Pager does."""

    wants_bases = False

    def __init__(self, limit: int, within: IdRange) -> None:
        self._limit, self._within = limit, within
        self._sweep = Sweep(limit, within=within)

    @property
    def total(self) -> int | None:
        """The latest TotalCount."""
        return self._sweep.totals.last

    @property
    def is_calm(self) -> bool:
        """Whether an answer still counts that was asked for before the last one came."""
        return self._sweep.is_calm

    @property
    def _has_failed(self) -> bool:
        """Whether the range proves nothing any more, so that no further page is worth its request."""
        sweep = self._sweep
        is_other_order = sweep.direction not in (None, self._within.direction) or not sweep.is_convincing
        return bool(is_other_order or sweep.overlaps_broken or sweep.has_repeats or sweep.totals.is_missing)

    def decide_next(self) -> PageRequest | None:
        """Return the page to ask for now, or None at the end of the range."""
        sweep = self._sweep
        if sweep.ending is not None or self._has_failed:
            return None
        return PageRequest(1, sweep.next_offset, self._limit, ends_at=sweep.ends_at)

    def decide_ahead(self, most: int) -> list[PageRequest]:
        """Up to `most` pages after the next one that may be asked for at once."""
        return [PageRequest(1, offset, self._limit) for offset in self._sweep.expect(most)]

    def take(self, ids: IdArray, *, total: int | None, offset: int | None, limit: int | None, **_: object) -> Mask:
        """Take in the page asked for, with its echoes; says of each id whether its row is to be kept."""
        return self._sweep.take(PageAnswer(self._sweep.next_offset, ids, total, offset, limit))

    def describe(self, number: int, *, has_neighbours: bool = False) -> RangeReading:
        """Return what was found, as the range of this number; with `has_neighbours` the ids of its pages that are
        beside the range are among them."""
        sweep, totals = self._sweep, self._sweep.totals
        ids = sweep.seen.to_array()
        ids = ids if has_neighbours else ids[self._within.find_members(ids)]
        return RangeReading(
            number,
            is_in_id_order=sweep.is_in_id_order and not self._has_failed,
            is_end_right=sweep.ending is SweepEnd.AT_END and sweep.is_end_right,
            rows=len(ids),
            ids=PackedIds.pack(ids),
            pages=sweep.pages,
            smallest=totals.smallest or 0,
            largest=totals.largest or 0,
            total=sweep.total_at_end or 0,
            appeared=sweep.changes.appeared,
            came_before=sweep.came_before,
        )


def join_ids(readings: Sequence[RangeReading]) -> IdArray:
    """Return the ids of all ranges, ascending; in 8 bytes for each, while they are joined, too."""
    ascending = sorted((each for each in readings if each.rows), key=lambda each: each.ids.first)
    ids, end = np.empty(sum(each.rows for each in ascending), dtype=np.int64), 0
    for each in ascending:
        ids[end : end + each.rows] = each.ids.unpack(each.rows)
        end += each.rows
    return ids


def choose_looks(division: ListDivision, ids: IdArray, total: int) -> tuple[IdRange, IdRange] | None:
    """Return the ranges to look at again after all others, the list's end and then its head; None where too few ids are
    known. `ids` are those of all ranges, `total` is the latest TotalCount."""
    if len(ids) < 2 * _LOOKED_AT:
        return None
    direction = division.ranges[0].direction
    known = ids[::direction]
    last, first = int(known[-_LOOKED_AT]), int(known[_LOOKED_AT - 1])
    return (
        IdRange(direction, last, None, max(0, total - _LOOKED_AT)),
        IdRange(direction, None, first, 0),
    )


def certify_ranges(
    division: ListDivision,
    readings: Sequence[RangeReading],
    looks: tuple[RangeReading, RangeReading],
    ids: IdArray,
    started_at: datetime,
    finished_at: datetime,
) -> Certificate | None:
    """Return the certificate over all ranges (`ids` are theirs), after both looks; None where they prove nothing
    together, so that the list is to be read by one reader."""
    end, head = looks
    if not all(each.is_in_id_order and each.rows for each in (*readings, *looks)) or not end.is_end_right:
        return None
    direction = division.ranges[0].direction
    lowest, highest = (each.ids.unpack(each.rows) for each in (head, end)[::direction])
    below, above = lowest[~contained(ids, lowest)], highest[~contained(ids, highest)]
    if (below > ids[0]).any() or (above < ids[-1]).any():
        return None
    known_low, known_high = ids[: np.searchsorted(ids, lowest[-1], "right")], ids[np.searchsorted(ids, highest[0]) :]
    if not (_are_mostly(known_low, lowest) and _are_mostly(known_high, highest)):
        return None
    first, last_id = sorted((division.first, division.last))
    came = [
        int(np.searchsorted(ids, first)) + int(np.count_nonzero(below < first)),
        len(ids) - int(np.searchsorted(ids, last_id, "right")) + int(np.count_nonzero(above > last_id)),
    ]
    appeared, shown = sum(came), len(ids) + len(below) + len(above)
    if any(each.came_before > came[::direction][0] for each in readings):  # at the head only may some come unread
        return None
    # A row may have come and gone between two pages of its range: others noticed it by their TotalCounts.
    unseen = sum(each.appeared for each in readings)
    last = min(end.total, head.total)
    totals = [*(each.smallest for each in (*readings, *looks)), *(each.largest for each in (*readings, *looks))]
    if not last <= shown <= division.total_at_last + appeared:
        return None
    if min(totals) < last - appeared - unseen or max(totals) > division.total_at_last + appeared + unseen:
        return None
    # At least, at whichever side subscribers came: some were counted there before they were seen, or the other way.
    vanished = max(0, appeared + min(division.total_at_first - head.total, division.total_at_last - end.total))
    return Certificate(
        verdict=Verdict.COMPLETE,
        reason=Reason.ID_ORDER,
        order=Order.ID if direction == 1 else Order.ID_DESC,
        sweeps=1,
        pages=division.pages + sum(each.pages for each in (*readings, *looks)),
        distinct=len(ids),
        total_first=division.total_at_first,
        total_last=end.total,
        appeared=appeared,
        vanished=vanished,
        filters={},
        started_at=started_at,
        finished_at=finished_at,
        ranges=len(readings),
    )


def _are_mostly(known: IdArray, shown: IdArray) -> bool:
    """Return whether more than half of the known ids are shown where they belong; the others may have vanished."""
    return 2 * int(np.count_nonzero(contained(shown, known))) > len(known)
