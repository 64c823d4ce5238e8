"""One walk through the list, from offset 0 to an empty page past its end, and the facts that it established.

The order of the list is not known; each page must join the one before it, or the walk steps back until one does. Only
ids come in.
"""

from dataclasses import replace
from enum import Enum

import numpy as np

from connector.paging.overlap import (
    IdArray,
    IdSet,
    ListChanges,
    Mask,
    OverlapKind,
    PageAnswer,
    PageOverlap,
    TakenPage,
    Totals,
    count_overlap,
    decide_direction,
    decide_overlap,
    first_occurrences,
)

CONVINCING = 16
"""So many rows stand in id order by chance once in 16! = 2 * 10**13 times: a shorter page is no evidence of it."""

_TAIL = 2 * CONVINCING
"""Rows that the list's last page is planned to have, so that as many as half may vanish meanwhile."""

_CALM_AGAIN = 8
"""After a change so many overlaps must show none before pages are asked for ahead again: each change may cost the pages
that were under way, so that a list that changes all the time is read one page at a time."""

_RECOUNTS = 2
"""How often the end is read again while TotalCount disagrees: it may be counted a moment apart from the rows."""

_PAGES_PER_STEP, _PAGES_AT_LEAST = 4, 64
"""A walk may take four times the pages that the list needs (for steps back), and 64 more; then it runs in circles."""

_PAGES_AT_MOST = 1_000_000
"""A billion rows in full pages: where a list grows as fast as it is read, the walk ends all the same."""


class SweepEnd(Enum):
    """How a walk ended."""

    AT_END = "at the end"
    MISPAGED = "mispaged"  # pages come from other places than asked: walk page by page, without overlap
    STUCK = "stuck"  # pages repeat even so, or the list grows as fast as it is read


class _Phase(Enum):
    READING = "reading"
    PAST_END = "past the end"  # expects the empty page
    HEAD = "head"  # looks at who was inserted at the head meanwhile


class Sweep:
    """The walk: `next_offset` says what to ask for, `take` what to make of the answer, until `ending` is set."""

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
        self.has_repeats = False  # an id twice where no overlap explains it
        self.direction: int | None = None
        self.is_convincing = True  # every page long enough to be evidence of the order
        self._limit = 0  # rows that a full page has: as echoed or, without an echo, the most that came
        self._phase = _Phase.READING
        self._last: TakenPage | None = None
        self._end: TakenPage | None = None
        self._inserted = IdSet()
        self._came_before = 0  # rows that came in behind the walk: in a list in id order they are new, and at its head
        self._is_head_known = True
        self._ends_missed = 0
        self._widest = 0  # rows of the largest page that joined
        self._is_idle = False
        self._recounts = 0
        self._calm = 0  # overlaps in a row that show no change; below 0: so many are to come first
        self._accepted = 0
        self._step = 1
        self._rows_at_end = 0

    @property
    def page_rows(self) -> int:
        """Rows of a full page: the limit as the service echoes it or, without an echo, the rows of the largest page."""
        return self._limit

    @property
    def is_in_id_order(self) -> bool:
        """Rule 1: ids strictly monotone on every page, each overlap matched, no row out of order at the head."""
        is_joined = self.has_overlap and not self.overlaps_broken and not self.has_repeats
        is_monotone = bool(self.direction) and self.is_convincing and self._is_head_known
        return self.ending is SweepEnd.AT_END and is_joined and is_monotone

    @property
    def is_whole(self) -> bool:
        """Whether the walk came to the end with all overlaps matched and no id twice."""
        return self.ending is SweepEnd.AT_END and not self.overlaps_broken and not self.has_repeats

    @property
    def is_one_answer(self) -> bool:
        """The list came whole in one answer: TotalCount rows, fewer than Limit, and past them an empty page."""
        end = self._end
        if not self.is_whole or self._accepted > 1:
            return False
        return self.totals.first == 0 if end is None else self._accepted == 1 and end.is_short and end.total == end.end

    @property
    def is_count_right(self) -> bool:
        """Whether TotalCount agrees with the end, and with the ids seen (rule 4)."""
        is_end_right = self.totals.last == 0 if self._end is None else self._end.total == self._end.end
        return is_end_right and not self.totals.is_missing and self.changes.allow(self._rows_at_end, self.totals)

    @property
    def is_shuffled(self) -> bool:
        """Whether most overlaps broke: the order changes from one request to the next."""
        return self.overlaps_broken > self.overlaps_matched

    @property
    def ends_at(self) -> int | None:
        """The TotalCount that the rows so far agree with, where the next page is just past them."""
        last = self._last
        is_past_end = self._phase is _Phase.PAST_END and last is not None and last.total == last.end
        return last.total if is_past_end and last is not None else None

    @property
    def is_calm(self) -> bool:
        """Whether nothing spoke of a change lately: only then an answer counts that was asked for before the last one.

        Pages that were answered in another order than their own still join by the ids that they share. But ranks and
        TotalCounts tell of changes only where time goes with the walk, so once they do, it goes on one at a time.
        """
        return self._calm > 0

    def expect(self, most: int) -> list[tuple[int, int | None]]:
        """Return offset and `ends_at` of the pages after the next one, should all go on as it has: never further than
        the empty page at TotalCount, and none after an overlap that broke."""
        last, expected = self._last, list[tuple[int, int | None]]()
        is_reading = self._phase is _Phase.READING and self._calm >= 0
        if last is None or last.total is None or not is_reading or self.overlaps_broken:
            return expected
        page = replace(last, offset=self.next_offset)
        while len(expected) < most and page.end < last.total:
            page = replace(page, offset=self._offset_after(page))
            expected.append((page.offset, None))
        if len(expected) < most and self.has_overlap:
            expected.append((last.total, last.total))
        return expected

    def take(self, answer: PageAnswer) -> Mask:
        """Take in the answer at `next_offset`; says of each id whether it is the first time in this sweep, and to be
        kept. Rows of a page that does not join are not kept: they come again."""
        self.pages += 1
        self.totals.note(answer.total)
        has_echo = answer.limit is not None and 1 <= answer.limit <= self.asked_limit
        self._limit = answer.limit if has_echo and answer.limit else max(self._limit, len(answer.ids))
        kept = np.zeros(len(answer.ids), dtype=np.bool_)
        if self._is_misplaced(answer):
            self.ending = SweepEnd.MISPAGED if self.has_overlap else SweepEnd.STUCK
        elif not len(answer.ids):
            self._take_empty(answer)
        else:
            kept = self._take_rows(answer)
        rows = max(self.totals.first or 0, len(self.seen))  # what a growing list adds counts once it has been read
        allowed = min(_PAGES_AT_LEAST + _PAGES_PER_STEP * (rows // self._step), _PAGES_AT_MOST)
        if self.ending is None and self.pages > allowed:
            self.ending = SweepEnd.STUCK
        return kept

    def _is_misplaced(self, answer: PageAnswer) -> bool:
        """Return whether the page is from another place than asked; an empty one past all rows may say where it
        likes."""
        if answer.offset is None or answer.offset == answer.asked:
            return False
        return bool(len(answer.ids)) or self._last is None or answer.offset < self._last.end

    def _take_rows(self, answer: PageAnswer) -> Mask:
        last, ids = self._last, answer.ids
        fresh = ~self.seen.holds(ids) & first_occurrences(ids)
        if last is not None and last.is_repeated_by(answer):
            self.ending = SweepEnd.MISPAGED if self.has_overlap else SweepEnd.STUCK
        elif not self.has_overlap:
            self.has_repeats |= not fresh.all()
        elif last is not None:
            overlap = decide_overlap(last.ids, last.offset, ids, answer.asked, fresh)
            if self._phase is _Phase.PAST_END or (overlap.kind is OverlapKind.GAP and answer.asked > 0):
                self._step_back(last, answer.asked)
                return np.zeros(len(ids), dtype=np.bool_)
            self._note_overlap(overlap, last.total, answer.total)
        self._accept(answer, fresh)
        return fresh

    def _note_overlap(self, overlap: PageOverlap, total_before: int | None, total: int | None) -> None:
        is_unchanged = overlap == PageOverlap(OverlapKind.MATCHED) and total_before == total
        self._calm = self._calm + 1 if is_unchanged else -_CALM_AGAIN
        if overlap.kind is OverlapKind.MATCHED:
            self.overlaps_matched += 1
            if self._phase is not _Phase.HEAD:
                self.changes.record_overlap(overlap, total_before, total)
                self._came_before += max(0, overlap.shift - overlap.appeared_before)
                self._is_head_known = False  # even where all looks quiet: who came in may hide behind who went
        elif overlap.kind is OverlapKind.BEHIND:
            self.changes.is_exact = False
            self._is_head_known = False
        else:  # moved; or a gap even at offset 0, where nothing is left of what was read
            self.overlaps_broken += 1

    def _accept(self, answer: PageAnswer, fresh: Mask) -> None:
        ids = answer.ids
        self._note_order(ids)
        self.has_repeats |= not first_occurrences(ids).all()
        # The limit is only believed until a page contradicts.
        is_first = not self._accepted and not self._ends_missed
        is_short = len(ids) < (self._limit if is_first else min(self._limit, self._widest))
        self._last = page = TakenPage(answer.asked, ids, answer.total, is_short)
        self._widest = max(self._widest, len(ids))
        self._step = max(self._step, page.step)
        self._is_idle = not fresh.any()
        if self._phase is _Phase.HEAD:
            self._accept_at_head(page, fresh)
        else:
            self._accepted += 1
            self._phase = _Phase.PAST_END if self._is_last(page) else _Phase.READING
            self.next_offset = self._offset_after(page)
            if self.has_overlap and len(ids) == 1 and self._phase is _Phase.READING:
                self.ending = SweepEnd.MISPAGED  # pages of one row cannot overlap
        self.seen.add(ids[fresh])

    def _accept_at_head(self, page: TakenPage, fresh: Mask) -> None:
        """Go on from the head until rows appear that were there before: up to them all is known now, and in order."""
        was_there = ~fresh & ~self._inserted.holds(page.ids)
        self._inserted.add(page.ids[fresh])
        if was_there.any():
            # Fewer at the head than came in behind: some row moved to where it was not looked for, so ids are no order.
            is_accounted_for = len(self._inserted) >= self._came_before
            # In id order a row that was read and lies between two of this page is on it, unless it has vanished.
            between = self.seen.count_between(int(page.ids.min()), int(page.ids.max()))
            is_in_place = 2 * int(np.count_nonzero(was_there)) > between
            self._is_head_known = bool(self.direction) and not self.overlaps_broken and is_accounted_for and is_in_place
            self.changes.appeared = max(self.changes.appeared, len(self._inserted))
            self.ending = self.ending or SweepEnd.AT_END
        self.next_offset = self._offset_after(page)

    def _note_order(self, ids: IdArray) -> None:
        self.is_convincing &= len(ids) >= CONVINCING
        if not self.has_overlap and self._last is not None:
            ids = np.concatenate([self._last.ids[-1:], ids])
        if len(ids) > 1:
            direction = decide_direction(ids)
            self.direction = direction if self.direction in (None, direction) else 0

    def _is_last(self, page: TakenPage) -> bool:
        """Return whether to expect nothing past this page, by two signs of three: it is short, brought no new row, and
        reaches TotalCount. Only the answer there decides; a wrong guess costs a page."""
        is_total_reached = page.total is None or page.total <= page.end
        return page.is_short + self._is_idle + is_total_reached >= 2

    def _offset_after(self, page: TakenPage) -> int:
        """Where the next page begins: so far before the end of this one that they overlap, or past the end."""
        if not self.has_overlap:  # where pages are aligned to the limit, so is the place past the end
            return max(page.end, page.offset + self._limit) if self._phase is _Phase.PAST_END else page.end
        if self._phase is _Phase.PAST_END:  # further past it each time, where a growing list has filled the place
            return page.end + min((1 << self._ends_missed) - 1, self._limit // 2)
        offset = page.offset + page.step
        if page.total is not None and page.total >= page.end and len(page.ids) > _TAIL:
            offset = min(offset, page.total - _TAIL)  # so that the list's last page is evidence of its order
        return max(offset, page.offset + 1)

    def _step_back(self, last: TakenPage, asked: int) -> None:
        """Read from twice as far back, and enough rows to be evidence of their order. The pages do not join at `asked`,
        because subscribers before it vanished; or the list does not end where it seemed to."""
        self._ends_missed += self._phase is _Phase.PAST_END
        self._calm = -_CALM_AGAIN
        self._phase = self._phase if self._phase is _Phase.HEAD else _Phase.READING
        enough = max(count_overlap(len(last.ids)), min(_TAIL, self._limit // 2))
        self.next_offset = max(0, last.end - max(2 * (last.end - asked), enough))

    def _take_empty(self, answer: PageAnswer) -> None:
        last = self._last
        if last is None or not self.has_overlap or self._phase is _Phase.HEAD:
            self._finish()
        elif self._phase is _Phase.PAST_END and last.is_short and answer.asked >= last.end:
            if last.total not in (None, last.end) and self._recounts < _RECOUNTS:
                self._recounts += 1
                self._step_back(last, answer.asked)
            else:
                self.changes.record_end(last.total, answer.total)
                self._finish()
        elif answer.asked > 0:
            self._step_back(last, answer.asked)
        else:  # all of them vanished
            self.overlaps_broken += 1
            self._finish()

    def _finish(self) -> None:
        """The end was reached. Before id order is taken for proof, see that no old rows moved to the head unread."""
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
