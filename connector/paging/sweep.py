"""One sweep: a walk through the list from offset 0 to an empty page past the end, and the facts that it established.

The order of the list is not known. Each page must join the page before; if a page does not, the walk steps back until a
page joins. A sweep sees ids only.
"""

from dataclasses import replace
from enum import Enum

import numpy as np

from connector.paging.overlap import (
    IdArray,
    IdSet,
    JoinedPage,
    ListChanges,
    Mask,
    OverlapKind,
    PageAnswer,
    PageOverlap,
    Totals,
    count_overlap,
    decide_direction,
    decide_overlap,
    first_occurrences,
)

CONVINCING = 16
"""Rows that a page needs to be evidence of id order: 16 rows are in id order by chance once in 16! = 2 * 10**13."""

_TAIL = 2 * CONVINCING
"""Rows that the last page of the list is planned to have, so that half of them may vanish meanwhile."""

_CALM_AGAIN = 8
"""Overlaps without a change that are required, after a change, before pages are asked for ahead again. Each change may
waste the pages in flight, so a list that changes all the time is read one page at a time."""

_RECOUNTS = 2
"""How often the end is read again while TotalCount disagrees: the service may count at another moment than it lists."""

_PAGES_PER_STEP, _PAGES_AT_LEAST = 4, 64
"""A walk may take four times the pages that the list needs, for steps back, and 64 more. After that it is stuck."""

_PAGES_AT_MOST = 1_000_000
"""A billion rows in full pages. With this bound the walk ends even if the list grows as fast as it is read."""


class SweepEnd(Enum):
    """The way in which a walk ended."""

    AT_END = "at the end"
    MISPAGED = "mispaged"  # pages begin at other offsets than requested: the next sweep has no overlaps
    STUCK = "stuck"  # pages repeat even without overlaps, or the list grows as fast as it is read


class _Phase(Enum):
    READING = "reading"
    PAST_END = "past the end"  # the next page should be empty
    HEAD = "head"  # reads the head again, for subscribers that were inserted there meanwhile


class Sweep:
    """The walk: ask for the page at `next_offset`, and pass the answer to `add_page`, until `ending` is set."""

    def __init__(self, limit: int, *, has_overlap: bool = True) -> None:
        self.asked_limit = limit
        self.has_overlap = has_overlap
        self.next_offset = 0
        self.ending: SweepEnd | None = None
        self.seen = IdSet()
        self.totals = Totals()
        self.changes = ListChanges()
        self.pages = 0
        self.overlaps_matched = 0
        self.overlaps_broken = 0
        self.has_repeats = False  # whether an id came twice and no overlap explains the repetition
        self.direction: int | None = None
        self.is_convincing = True  # whether every page is long enough to be evidence of the order
        self._limit = 0  # rows of a full page: as echoed or, without an echo, the rows of the largest page
        self._phase = _Phase.READING
        self._last: JoinedPage | None = None
        self._end: JoinedPage | None = None
        self._inserted = IdSet()
        self._inserted_before = 0  # rows inserted behind the walk: in id order they are new, and at the list's head
        self._is_head_known = True
        self._ends_missed = 0
        self._widest = 0  # rows of the largest page that joined
        self._is_idle = False  # whether the last page had no new row
        self._recounts = 0
        self._calm_count = 0  # overlaps in a row without a change; while negative, no page is asked for ahead
        self._accepted_count = 0
        self._step = 1
        self._rows_at_end = 0

    @property
    def page_rows(self) -> int:
        """Rows of a full page: the limit as the service echoes it or, without an echo, the rows of the largest page."""
        return self._limit

    @property
    def is_in_id_order(self) -> bool:
        """Whether rule 1 holds: ids strictly monotone on every page, each overlap matched, no row out of order at the
        head."""
        is_joined = self.has_overlap and not self.overlaps_broken and not self.has_repeats
        is_monotone = bool(self.direction) and self.is_convincing and self._is_head_known
        return self.ending is SweepEnd.AT_END and is_joined and is_monotone

    @property
    def is_whole(self) -> bool:
        """Whether the walk reached the end with no overlap broken and no id repeated."""
        return self.ending is SweepEnd.AT_END and not self.overlaps_broken and not self.has_repeats

    @property
    def is_one_answer(self) -> bool:
        """Whether one answer had the whole list: TotalCount rows, fewer than Limit, and an empty page after them."""
        end = self._end
        if not self.is_whole or self._accepted_count > 1:
            return False
        if end is None:
            return self.totals.first == 0
        return self._accepted_count == 1 and end.is_short and end.total == end.end

    @property
    def is_count_right(self) -> bool:
        """Whether TotalCount agrees with the end of the list and with the number of ids seen (rule 4)."""
        is_end_right = self.totals.last == 0 if self._end is None else self._end.total == self._end.end
        return is_end_right and not self.totals.is_missing and self.changes.allow(self._rows_at_end, self.totals)

    @property
    def is_shuffled(self) -> bool:
        """Whether most overlaps are broken, because the order changes from one request to the next."""
        return self.overlaps_broken > self.overlaps_matched

    @property
    def ends_at(self) -> int | None:
        """The TotalCount if it agrees with the rows so far and the next page begins just past them, else None."""
        last = self._last
        is_past_end = self._phase is _Phase.PAST_END and last is not None and last.total == last.end
        return last.total if is_past_end and last is not None else None

    @property
    def is_calm(self) -> bool:
        """Whether the latest overlaps showed no change. Only then pages that were asked for ahead may be used.

        Pages that were answered out of order still join by the ids that they share. But ranks and TotalCounts show
        changes only if the pages were answered in order. So after a change, pages are asked for one at a time.
        """
        return self._calm_count > 0

    def predict_pages(self, most: int) -> list[tuple[int, int | None]]:
        """Return offset and `ends_at` of at most `most` pages after the next page, for a list that does not change.

        The last of them is the empty page at TotalCount. After a broken overlap, return none.
        """
        last, expected = self._last, list[tuple[int, int | None]]()
        is_reading = self._phase is _Phase.READING and self._calm_count >= 0
        if last is None or last.total is None or not is_reading or self.overlaps_broken:
            return expected
        page = replace(last, offset=self.next_offset)
        while len(expected) < most and page.end < last.total:
            page = replace(page, offset=self._offset_after(page))
            expected.append((page.offset, None))
        if len(expected) < most and self.has_overlap:
            expected.append((last.total, last.total))
        return expected

    def add_page(self, answer: PageAnswer) -> Mask:
        """Add the answer to the request at `next_offset`. Return a mask of the rows to keep: each id once in a sweep.

        Rows of a page that does not join are not kept, because they are read again.
        """
        self.pages += 1
        self.totals.record(answer.total)
        has_echo = answer.limit is not None and 1 <= answer.limit <= self.asked_limit
        self._limit = answer.limit if has_echo and answer.limit else max(self._limit, len(answer.ids))
        kept_mask = np.zeros(len(answer.ids), dtype=np.bool_)
        if self._is_misplaced(answer):
            self.ending = SweepEnd.MISPAGED if self.has_overlap else SweepEnd.STUCK
        elif not len(answer.ids):
            self._add_empty(answer)
        else:
            kept_mask = self._add_rows(answer)
        rows = max(self.totals.first or 0, len(self.seen))  # rows that were added meanwhile count once they are read
        most_pages = min(_PAGES_AT_LEAST + _PAGES_PER_STEP * (rows // self._step), _PAGES_AT_MOST)
        if self.ending is None and self.pages > most_pages:
            self.ending = SweepEnd.STUCK
        return kept_mask

    def _is_misplaced(self, answer: PageAnswer) -> bool:
        """Return whether the page begins at another offset than requested. An empty page past all rows may have any
        Offset."""
        if answer.offset is None or answer.offset == answer.requested_offset:
            return False
        return bool(len(answer.ids)) or self._last is None or answer.offset < self._last.end

    def _add_rows(self, answer: PageAnswer) -> Mask:
        last, ids = self._last, answer.ids
        fresh_mask = ~self.seen.holds(ids) & first_occurrences(ids)
        if last is not None and last.is_repeated_by(answer):
            self.ending = SweepEnd.MISPAGED if self.has_overlap else SweepEnd.STUCK
        elif not self.has_overlap:
            self.has_repeats |= not fresh_mask.all()
        elif last is not None:
            overlap = decide_overlap(last.ids, last.offset, ids, answer.requested_offset, fresh_mask)
            if self._phase is _Phase.PAST_END or (overlap.kind is OverlapKind.GAP and answer.requested_offset > 0):
                self._step_back(last, answer.requested_offset)
                return np.zeros(len(ids), dtype=np.bool_)
            self._record_overlap(overlap, last.total, answer.total)
        self._accept(answer, fresh_mask)
        return fresh_mask

    def _record_overlap(self, overlap: PageOverlap, total_before: int | None, total: int | None) -> None:
        is_unchanged = overlap == PageOverlap(OverlapKind.MATCHED) and total_before == total
        self._calm_count = self._calm_count + 1 if is_unchanged else -_CALM_AGAIN
        if overlap.kind is OverlapKind.MATCHED:
            self.overlaps_matched += 1
            if self._phase is not _Phase.HEAD:
                self.changes.record_overlap(overlap, total_before, total)
                self._inserted_before += max(0, overlap.shift - overlap.appeared_before)
                self._is_head_known = False  # arrivals can mask departures: TotalCount does not change
        elif overlap.kind is OverlapKind.BEHIND:
            self.changes.is_exact = False
            self._is_head_known = False
        else:  # MOVED, or a GAP at offset 0: no row that was read before is left there
            self.overlaps_broken += 1

    def _accept(self, answer: PageAnswer, fresh_mask: Mask) -> None:
        ids = answer.ids
        self._record_order(ids)
        self.has_repeats |= not first_occurrences(ids).all()
        # The limit counts as the size of a full page only for the first page: later pages may all be smaller.
        is_first = not self._accepted_count and not self._ends_missed
        is_short = len(ids) < (self._limit if is_first else min(self._limit, self._widest))
        self._last = page = JoinedPage(answer.requested_offset, ids, answer.total, is_short)
        self._widest = max(self._widest, len(ids))
        self._step = max(self._step, page.step)
        self._is_idle = not fresh_mask.any()
        if self._phase is _Phase.HEAD:
            self._accept_at_head(page, fresh_mask)
        else:
            self._accepted_count += 1
            self._phase = _Phase.PAST_END if self._is_last(page) else _Phase.READING
            self.next_offset = self._offset_after(page)
            if self.has_overlap and len(ids) == 1 and self._phase is _Phase.READING:
                self.ending = SweepEnd.MISPAGED  # pages of one row cannot overlap
        self.seen.add(ids[fresh_mask])

    def _accept_at_head(self, page: JoinedPage, fresh_mask: Mask) -> None:
        """Read on from the head until a page has rows that the sweep has read before. Then all rows at the head are
        known."""
        was_read_mask = ~fresh_mask & ~self._inserted.holds(page.ids)
        self._inserted.add(page.ids[fresh_mask])
        if was_read_mask.any():
            # If the head has fewer new rows than were inserted behind the walk, other rows moved: not an id order.
            is_accounted_for = len(self._inserted) >= self._inserted_before
            # In id order, a row that was read and lies between two rows of this page is on it, unless it has vanished.
            between_count = self.seen.count_between(int(page.ids.min()), int(page.ids.max()))
            is_in_place = 2 * int(np.count_nonzero(was_read_mask)) > between_count
            self._is_head_known = bool(self.direction) and not self.overlaps_broken and is_accounted_for and is_in_place
            self.changes.appeared = max(self.changes.appeared, len(self._inserted))
            self.ending = self.ending or SweepEnd.AT_END
        self.next_offset = self._offset_after(page)

    def _record_order(self, ids: IdArray) -> None:
        self.is_convincing &= len(ids) >= CONVINCING
        if not self.has_overlap and self._last is not None:
            ids = np.concatenate([self._last.ids[-1:], ids])
        if len(ids) > 1:
            direction = decide_direction(ids)
            self.direction = direction if self.direction in (None, direction) else 0

    def _is_last(self, page: JoinedPage) -> bool:
        """Return whether this is probably the last page: at least two of three signs hold.

        The signs: the page is short, has no new row, and reaches TotalCount. A wrong guess costs one page, because the
        answer past the end decides.
        """
        is_total_reached = page.total is None or page.total <= page.end
        return page.is_short + self._is_idle + is_total_reached >= 2

    def _offset_after(self, page: JoinedPage) -> int:
        """Return the offset of the next page: it overlaps this page, or begins past the end."""
        if not self.has_overlap:  # if the service aligns pages to the limit, the page past the end is aligned as well
            return max(page.end, page.offset + self._limit) if self._phase is _Phase.PAST_END else page.end
        if self._phase is _Phase.PAST_END:  # further past the end each time that a growing list had rows there
            return page.end + min((1 << self._ends_missed) - 1, self._limit // 2)
        offset = page.offset + page.step
        if page.total is not None and page.total >= page.end and len(page.ids) > _TAIL:
            offset = min(offset, page.total - _TAIL)  # so that the last page of the list is evidence of the order
        return max(offset, page.offset + 1)

    def _step_back(self, last: JoinedPage, requested_offset: int) -> None:
        """Set the next offset twice as far back, with enough rows to be evidence of their order.

        The page at `requested_offset` did not join because earlier subscribers vanished, or the list did not end where
        expected.
        """
        self._ends_missed += self._phase is _Phase.PAST_END
        self._calm_count = -_CALM_AGAIN
        self._phase = self._phase if self._phase is _Phase.HEAD else _Phase.READING
        least_overlap = max(count_overlap(len(last.ids)), min(_TAIL, self._limit // 2))
        self.next_offset = max(0, last.end - max(2 * (last.end - requested_offset), least_overlap))

    def _add_empty(self, answer: PageAnswer) -> None:
        last = self._last
        if last is None or not self.has_overlap or self._phase is _Phase.HEAD:
            self._finish()
        elif self._phase is _Phase.PAST_END and last.is_short and answer.requested_offset >= last.end:
            if last.total not in (None, last.end) and self._recounts < _RECOUNTS:
                self._recounts += 1
                self._step_back(last, answer.requested_offset)
            else:
                self.changes.record_end(last.total, answer.total)
                self._finish()
        elif answer.requested_offset > 0:
            self._step_back(last, answer.requested_offset)
        else:  # all subscribers vanished
            self.overlaps_broken += 1
            self._finish()

    def _finish(self) -> None:
        """End the walk at the end of the list. If the ids may prove completeness, read the head first: unread rows may
        have moved there."""
        if self._phase is _Phase.HEAD:
            self.ending = SweepEnd.AT_END
            return
        self._end = self._last
        self._rows_at_end = len(self.seen)
        could_be_in_id_order = self.direction and self.is_convincing and not (self.overlaps_broken or self.has_repeats)
        if self._is_head_known or not could_be_in_id_order:
            self.ending = SweepEnd.AT_END
            return
        self._phase, self._last, self.next_offset = _Phase.HEAD, None, 0
