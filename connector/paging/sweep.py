"""One sweep: a reading of the list from offset 0 to an empty page past the end, and the facts that the sweep shows.

The order of the list is not known. Each page must overlap the previous page. If a page does not overlap, the sweep
steps back until a page overlaps. A sweep uses only the ids of the rows.
"""

from dataclasses import replace
from enum import Enum

import numpy as np

from connector.paging.overlap import (
    IdSet,
    JoinedPage,
    ListChanges,
    Mask,
    OverlapKind,
    PageAnswer,
    PageOverlap,
    Totals,
    compute_overlap_rows,
    decide_direction,
    decide_overlap,
    mark_first_occurrences,
)

MIN_ROWS_TO_PROVE_ORDER = 16
"""A page needs this many rows to be evidence of id order. By chance, 16 rows are in id order once in 16! = 2 *
10**13."""

_LAST_PAGE_ROW_COUNT = 2 * MIN_ROWS_TO_PROVE_ORDER
"""The planned number of rows of the last page of the list. Half of these rows may vanish before the page is read, and
the page is still evidence of id order."""

_MIN_UNCHANGED_OVERLAPS = 8
"""After a change, this many overlaps without a change are needed before pages are fetched ahead again. Each change may
waste the pages in flight, so a list that changes all the time is read one page at a time."""

_MAX_RECOUNTS = 2
"""If TotalCount disagrees with the rows, the end of the list is read again, at most this many times. The service may
compute TotalCount before the rows."""

_MAX_PAGES_FACTOR, _MAX_EXTRA_PAGES = 4, 64
"""A sweep may step back and read rows again. So a sweep may request four times the pages that the list needs, plus 64
pages. A sweep that needs more pages is stuck."""

_MAX_PAGES = 1_000_000
"""The number of full pages in a list of a billion rows. With this limit, a sweep ends even if the list grows as fast as
the sweep reads it."""


class SweepEnd(Enum):
    """The way in which a sweep ended: at the end of the list, or earlier because the paging of the service is
    unusable."""

    AT_END = "at the end"
    MISPAGED = "mispaged"  # pages begin at wrong offsets or cannot overlap, so the next sweep has no overlaps
    STUCK = "stuck"  # pages are wrong even without overlaps, or the sweep needs too many pages


class _Phase(Enum):
    READING = "reading"
    PAST_END = "past the end"  # the next page should be empty
    HEAD = "head"  # the sweep reads the first pages again, because subscribers may have been inserted there meanwhile


class Sweep:
    """One sweep. The caller fetches the page at `next_offset` and passes the answer to `add_page`, until `sweep_end` is
    set."""

    def __init__(self, limit: int, *, has_overlaps: bool = True) -> None:
        self.requested_limit = limit
        self.has_overlaps = has_overlaps
        self.next_offset = 0
        self.sweep_end: SweepEnd | None = None
        self.seen_ids = IdSet()
        self.totals = Totals()
        self.changes = ListChanges()
        self.page_count = 0
        self.matched_overlap_count = 0
        self.broken_overlap_count = 0
        self.has_repeated_ids = False  # whether an id came twice on one page, or on pages that do not overlap
        self.direction: int | None = None
        self.are_pages_long_enough = True  # whether every page is long enough to be evidence of the order
        self.page_size = 0  # rows of a full page: Limit of the answers or, without Limit, the rows of the largest page
        self._phase = _Phase.READING
        self._latest_page: JoinedPage | None = None
        self._end_page: JoinedPage | None = None
        self._inserted_ids = IdSet()  # ids that only the second reading of the list's first pages shows
        self._inserted_count = 0
        """The number of rows that were inserted before the position of the sweep. If the list is in id order, the
        second reading of the first pages shows all these rows."""

        self._is_head_known = True  # whether the sweep has read all rows at the beginning of the list
        self._missed_end_count = 0  # number of times that the list did not end at the offset that the sweep expected
        self._largest_page_rows = 0  # rows of the largest accepted page
        self._is_latest_page_known = False  # whether earlier pages had all rows of the latest page
        self._end_recount_count = 0
        # The number of overlaps since the last change of the list. After a change, the number starts at a negative
        # value. While the number is negative, no pages are fetched ahead.
        self._unchanged_overlap_count = 0
        self._accepted_count = 0  # number of accepted pages, without first pages that were read again
        self._largest_step = 1  # largest number of rows between the beginnings of two pages
        self._row_count_at_end = 0

    @property
    def is_in_id_order(self) -> bool:
        """Whether rule 1 holds: the ids of all pages only rise or only fall, every page is long enough, no overlap is
        broken, and all rows at the beginning of the list have been read."""
        is_each_page_in_order = bool(self.direction) and self.are_pages_long_enough
        return self.is_whole and self.has_overlaps and is_each_page_in_order and self._is_head_known

    @property
    def is_whole(self) -> bool:
        """Whether the sweep reached the end without a broken overlap and without a repeated id."""
        return self.sweep_end is SweepEnd.AT_END and not self.broken_overlap_count and not self.has_repeated_ids

    @property
    def is_one_answer(self) -> bool:
        """Whether one page has the whole list: the page has TotalCount rows, and fewer rows than Limit, and the sweep
        reached the end after this page. Also true if the list is empty."""
        end_page = self._end_page
        if not self.is_whole or self._accepted_count > 1:
            return False
        if end_page is None:
            return self.totals.first_total == 0
        return self._accepted_count == 1 and end_page.is_partly_filled and end_page.total_count == end_page.end_offset

    @property
    def is_count_right(self) -> bool:
        """Whether TotalCount agrees with the end of the list and with the number of different ids (rule 4)."""
        is_end_at_total_count = (
            self.totals.last_total == 0
            if self._end_page is None
            else self._end_page.total_count == self._end_page.end_offset
        )
        return (
            is_end_at_total_count
            and not self.totals.is_total_missing
            and self.changes.is_count_possible(self._row_count_at_end, self.totals)
        )

    @property
    def is_shuffled(self) -> bool:
        """Whether most overlaps are broken, because the order changes from one request to the next."""
        return self.broken_overlap_count > self.matched_overlap_count

    @property
    def expected_end(self) -> int | None:
        """TotalCount if the sweep has read TotalCount rows and the next page begins after these rows. Otherwise
        None."""
        latest_page = self._latest_page
        if (
            latest_page is None
            or self._phase is not _Phase.PAST_END
            or latest_page.total_count != latest_page.end_offset
        ):
            return None
        return latest_page.total_count

    @property
    def is_list_unchanging(self) -> bool:
        """Whether the list seems to be unchanged. Only then may the sweep use pages that were fetched ahead.

        The service may read these pages in any order, so their offsets and TotalCounts may not show a change of the
        list. After a change, pages are fetched one at a time, until several overlaps show no further change.
        """
        return self._unchanged_overlap_count > 0

    def predict_pages(self, max_pages: int) -> list[tuple[int, int | None]]:
        """Return at most `max_pages` pages that follow the next page, each as its offset and its `expected_end`.

        The result assumes that the list does not change. The result is empty if the list has changed recently, or if
        two pages of the sweep did not match. The last page is the empty page at TotalCount.
        """
        latest_page, pages = self._latest_page, list[tuple[int, int | None]]()
        if latest_page is None or latest_page.total_count is None or self._phase is not _Phase.READING:
            return pages
        if self._unchanged_overlap_count < 0 or self.broken_overlap_count:
            return pages
        page = replace(latest_page, offset=self.next_offset)
        while len(pages) < max_pages and page.end_offset < latest_page.total_count:
            page = replace(page, offset=self._compute_next_offset(page))
            pages.append((page.offset, None))
        if len(pages) < max_pages and self.has_overlaps:
            pages.append((latest_page.total_count, latest_page.total_count))
        return pages

    def add_page(self, answer: PageAnswer) -> Mask:
        """Add the answer to the request at `next_offset`. Return a mask of the rows that no earlier page of the sweep
        had.

        The mask has no row of a page that does not overlap the previous page, because the page is read again.
        """
        self.page_count += 1
        self.totals.record(answer.total_count)
        has_limit_echo = answer.limit is not None and 1 <= answer.limit <= self.requested_limit
        self.page_size = answer.limit if has_limit_echo and answer.limit else max(self.page_size, len(answer.ids))
        new_row_mask = np.zeros(len(answer.ids), dtype=np.bool_)
        if self._has_wrong_offset(answer):
            self.sweep_end = SweepEnd.MISPAGED if self.has_overlaps else SweepEnd.STUCK
        elif not len(answer.ids):
            self._add_empty_page(answer)
        else:
            new_row_mask = self._add_rows(answer)
        # The sweep may have read more rows than the first TotalCount, because rows were added meanwhile.
        row_count = max(self.totals.first_total or 0, len(self.seen_ids))
        max_pages = min(_MAX_EXTRA_PAGES + _MAX_PAGES_FACTOR * (row_count // self._largest_step), _MAX_PAGES)
        if self.sweep_end is None and self.page_count > max_pages:
            self.sweep_end = SweepEnd.STUCK
        return new_row_mask

    def _has_wrong_offset(self, answer: PageAnswer) -> bool:
        """Return whether the page begins at another offset than requested. An empty page past all rows may have any
        Offset."""
        if answer.offset is None or answer.offset == answer.requested_offset:
            return False
        return bool(len(answer.ids)) or self._latest_page is None or answer.offset < self._latest_page.end_offset

    def _add_rows(self, answer: PageAnswer) -> Mask:
        latest_page, ids = self._latest_page, answer.ids
        new_row_mask = ~self.seen_ids.mark_contained_ids(ids) & mark_first_occurrences(ids)
        if latest_page is not None and latest_page.is_repeated_by(answer):
            self.sweep_end = SweepEnd.MISPAGED if self.has_overlaps else SweepEnd.STUCK
        elif not self.has_overlaps:
            self.has_repeated_ids |= not new_row_mask.all()
        elif latest_page is not None:
            overlap = decide_overlap(latest_page.ids, latest_page.offset, ids, answer.requested_offset, new_row_mask)
            if self._phase is _Phase.PAST_END or (overlap.kind is OverlapKind.GAP and answer.requested_offset > 0):
                self._step_back(latest_page, answer.requested_offset)
                return np.zeros(len(ids), dtype=np.bool_)
            self._record_overlap(overlap, latest_page.total_count, answer.total_count)
        self._accept_page(answer, new_row_mask)
        return new_row_mask

    def _record_overlap(self, overlap: PageOverlap, previous_total: int | None, total_count: int | None) -> None:
        is_list_unchanged = overlap == PageOverlap(OverlapKind.MATCHED) and previous_total == total_count
        self._unchanged_overlap_count = (
            self._unchanged_overlap_count + 1 if is_list_unchanged else -_MIN_UNCHANGED_OVERLAPS
        )
        if overlap.kind is OverlapKind.MATCHED:
            self.matched_overlap_count += 1
            if self._phase is not _Phase.HEAD:
                self.changes.record_overlap(overlap, previous_total, total_count)
                self._inserted_count += max(0, overlap.offset_shift - overlap.appeared_count_before_overlap)
                # Appeared and vanished subscribers may cancel out in TotalCount, so the first pages are read again.
                self._is_head_known = False
        elif overlap.kind is OverlapKind.MOSTLY_KNOWN:
            self.changes.is_exact = False
            self._is_head_known = False
        else:  # the order is not stable (MOVED), or the page at offset 0 has no row that was read before (GAP)
            self.broken_overlap_count += 1

    def _accept_page(self, answer: PageAnswer, new_row_mask: Mask) -> None:
        ids = answer.ids
        self.are_pages_long_enough &= len(ids) >= MIN_ROWS_TO_PROVE_ORDER
        joined_ids = ids
        if not self.has_overlaps and self._latest_page is not None:
            joined_ids = np.concatenate([self._latest_page.ids[-1:], ids])
        if len(joined_ids) > 1:
            direction = decide_direction(joined_ids)
            self.direction = direction if self.direction in (None, direction) else 0
        self.has_repeated_ids |= not mark_first_occurrences(ids).all()
        # The first page is full if it has as many rows as the limit. A service may make all later pages smaller.
        is_first_page = not self._accepted_count and not self._missed_end_count
        is_partly_filled = len(ids) < (
            self.page_size if is_first_page else min(self.page_size, self._largest_page_rows)
        )
        self._latest_page = page = JoinedPage(answer.requested_offset, ids, answer.total_count, is_partly_filled)
        self._largest_page_rows = max(self._largest_page_rows, len(ids))
        self._largest_step = max(self._largest_step, page.row_count_before_overlap)
        self._is_latest_page_known = not new_row_mask.any()
        if self._phase is _Phase.HEAD:
            self._accept_head_page(page, new_row_mask)
        else:
            self._accepted_count += 1
            self._phase = _Phase.PAST_END if self._is_probably_last(page) else _Phase.READING
            self.next_offset = self._compute_next_offset(page)
            if self.has_overlaps and len(ids) == 1 and self._phase is _Phase.READING:
                self.sweep_end = SweepEnd.MISPAGED  # pages of one row cannot overlap
        self.seen_ids.add(ids[new_row_mask])

    def _accept_head_page(self, page: JoinedPage, new_row_mask: Mask) -> None:
        """Add one of the first pages of the list, which are read a second time. The second reading ends at the first
        page with a row that the sweep has read before."""
        known_row_mask = ~new_row_mask & ~self._inserted_ids.mark_contained_ids(page.ids)
        self._inserted_ids.add(page.ids[new_row_mask])
        if known_row_mask.any():
            # If these pages show fewer new rows than were inserted, rows have moved, so the list is not in id order.
            has_all_insertions = len(self._inserted_ids) >= self._inserted_count
            # In id order, this page has every known row between its smallest and largest id, except vanished rows.
            known_row_count = self.seen_ids.count_between(int(page.ids.min()), int(page.ids.max()))
            has_most_known_rows = 2 * int(np.count_nonzero(known_row_mask)) > known_row_count
            self._is_head_known = (
                bool(self.direction) and not self.broken_overlap_count and has_all_insertions and has_most_known_rows
            )
            self.changes.appeared_count = max(self.changes.appeared_count, len(self._inserted_ids))
            self.sweep_end = self.sweep_end or SweepEnd.AT_END
        self.next_offset = self._compute_next_offset(page)

    def _is_probably_last(self, page: JoinedPage) -> bool:
        """Return whether this is probably the last page. At least two of three signs must hold: the page is short, has
        no new row, or reaches TotalCount. A wrong guess costs one page, because only an empty page past the end ends
        the sweep.
        """
        is_total_reached = page.total_count is None or page.total_count <= page.end_offset
        return page.is_partly_filled + self._is_latest_page_known + is_total_reached >= 2

    def _compute_next_offset(self, page: JoinedPage) -> int:
        """Return the offset of the next page. The next page overlaps this page, or begins at or past its end."""
        if not self.has_overlaps:
            if self._phase is not _Phase.PAST_END:
                return page.end_offset
            return max(page.end_offset, page.offset + self.page_size)  # the service may align pages to the limit
        # A growing list may have rows past the expected end, so each attempt goes further past the end.
        if self._phase is _Phase.PAST_END:
            return page.end_offset + min((1 << self._missed_end_count) - 1, self.page_size // 2)
        offset = page.offset + page.row_count_before_overlap
        if (
            page.total_count is not None
            and page.total_count >= page.end_offset
            and len(page.ids) > _LAST_PAGE_ROW_COUNT
        ):
            # The last page must have enough rows to be evidence of id order, so the page begins earlier.
            offset = min(offset, page.total_count - _LAST_PAGE_ROW_COUNT)
        return max(offset, page.offset + 1)

    def _step_back(self, latest_page: JoinedPage, requested_offset: int) -> None:
        """Set the next offset to an earlier row, because the page at `requested_offset` did not overlap `latest_page`.
        Subscribers have vanished, or the list did not end at the expected offset.

        The overlap doubles. Example: the latest page ends at offset 1,000, and `requested_offset` is 950. Then the next
        offset is 900.
        """
        self._missed_end_count += self._phase is _Phase.PAST_END
        self._unchanged_overlap_count = -_MIN_UNCHANGED_OVERLAPS
        self._phase = self._phase if self._phase is _Phase.HEAD else _Phase.READING
        min_overlap_rows = max(
            compute_overlap_rows(len(latest_page.ids)), min(_LAST_PAGE_ROW_COUNT, self.page_size // 2)
        )
        self.next_offset = max(
            0, latest_page.end_offset - max(2 * (latest_page.end_offset - requested_offset), min_overlap_rows)
        )

    def _add_empty_page(self, answer: PageAnswer) -> None:
        latest_page = self._latest_page
        if latest_page is None or not self.has_overlaps or self._phase is _Phase.HEAD:
            self._finish_at_end()
        elif (
            self._phase is _Phase.PAST_END
            and latest_page.is_partly_filled
            and answer.requested_offset >= latest_page.end_offset
        ):
            if (
                latest_page.total_count not in (None, latest_page.end_offset)
                and self._end_recount_count < _MAX_RECOUNTS
            ):
                self._end_recount_count += 1
                self._step_back(latest_page, answer.requested_offset)
            else:
                self.changes.record_end(latest_page.total_count, answer.total_count)
                self._finish_at_end()
        elif answer.requested_offset > 0:
            self._step_back(latest_page, answer.requested_offset)
        else:  # all subscribers have vanished
            self.broken_overlap_count += 1
            self._finish_at_end()

    def _finish_at_end(self) -> None:
        """End the sweep at the end of the list. If the ids may prove completeness, first read the beginning of the list
        again, because unread rows may have moved there."""
        if self._phase is _Phase.HEAD:
            self.sweep_end = SweepEnd.AT_END
            return
        self._end_page = self._latest_page
        self._row_count_at_end = len(self.seen_ids)
        are_ids_possibly_in_order = (
            self.direction and self.are_pages_long_enough and not (self.broken_overlap_count or self.has_repeated_ids)
        )
        if self._is_head_known or not are_ids_possibly_in_order:
            self.sweep_end = SweepEnd.AT_END
            return
        self._phase, self._latest_page, self.next_offset = _Phase.HEAD, None, 0
