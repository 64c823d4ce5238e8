"""Decides which page of the list to ask for next, over up to five sweeps, and what the sweeps prove (architecture 7).

Each of three facts proves that the last sweep has every subscriber who was on the list during the whole reading:

- One answer: the answer had the whole list at one instant.
- Id order: an id never changes, so no row of a list in id order moves. Pages that overlap leave no row out.
- Two sweeps: an id that has vanished does not come back. So a subscriber in both sweeps was on the list at the instant
  between the sweeps. If both sweeps have the same ids, and TotalCount is the number of these ids, no other subscriber
  was on the list at that instant. The order of the list does not matter.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import numpy as np

from connector.paging.certificate import (
    PROVING_REASONS,
    Certificate,
    CertificateReason,
    CertificateVerdict,
    Order,
    TotalCountCheck,
)
from connector.paging.overlap import NO_IDS, IdArray, IdSet, Mask, PageAnswer, PageRequest, mark_contained_ids
from connector.paging.sweep import Sweep, SweepEnd

MAX_SWEEPS = 5
"""The list is read from its start to its end at most this many times (architecture 7, rule 2)."""


class Pager:
    """Decides which page to ask for (`decide_next_page`), receives the ids of the page (`add_page`), and returns a
    certificate."""

    def __init__(self, limit: int = 1000, *, ignores_total_count: bool = False, reads_ahead: bool = True) -> None:
        self._limit = limit
        self._reads_ahead = reads_ahead
        self._ignores_total_count = ignores_total_count
        self._total_count_check = TotalCountCheck.CHECKED
        self._sweep: Sweep = Sweep(limit)
        self._sweep_count = 1
        self._page_count = 0
        self._first_total: int | None = None
        self._last_total: int | None = None
        self._previous_sweep: Sweep | None = None
        self._previous_ids: IdArray = NO_IDS
        self._vanished_ids = IdSet()  # ids that an earlier sweep has shown, and the latest finished sweep has not
        self._newcomer_ids = IdSet()  # ids that only later sweeps have shown, and not the first sweep
        self._reason: CertificateReason | None = None

    @property
    def ids(self) -> IdArray:
        """The ids that the current sweep has shown until now, in ascending order."""
        return self._sweep.seen_ids.to_array()

    @property
    def page_size(self) -> int:
        """The number of rows of a full page, which may be less than the limit of a request."""
        return self._sweep.page_size

    def decide_next_page(self) -> PageRequest | None:
        """Return the next page to ask for, or None if no page is needed any more."""
        if self._reason is not None:
            return None
        return PageRequest(
            self._sweep_count, self._sweep.next_offset, self._limit, expected_end=self._sweep.expected_end
        )

    @property
    def is_list_unchanging(self) -> bool:
        """Whether pages that were fetched ahead may be used. If not, these pages must be fetched again."""
        return self._sweep.is_list_unchanging

    def decide_pages_ahead(self, max_pages: int) -> list[PageRequest]:
        """Return at most `max_pages` pages to fetch ahead: the pages that follow the next page if the list does not
        change.

        The caller passes the answers to `add_page` in the order of the pages. The caller drops an answer if
        `decide_next_page` does not return its page.
        """
        if self._reason is not None or not self._reads_ahead:
            return []
        pages = self._sweep.predict_pages(max_pages)
        return [PageRequest(self._sweep_count, offset, self._limit, expected_end) for offset, expected_end in pages]

    def add_page(self, ids: IdArray, *, total_count: int | None, offset: int | None, limit: int | None) -> Mask:
        """Add the answer for the page that `decide_next_page` returned, with the answer's TotalCount, Offset and Limit
        (service-api.md 4.3).

        Return a mask of the rows that no earlier page of the sweep had.
        """
        page = self.decide_next_page()
        if page is None:
            raise ValueError("The reading has ended, so no page can be added.")
        self._first_total = total_count if not self._page_count else self._first_total
        self._last_total = total_count
        self._page_count += 1
        new_row_mask = self._sweep.add_page(PageAnswer(page.offset, ids, total_count, offset, limit))
        if self._sweep.sweep_end is not None:
            self._end_sweep()
        return new_row_mask

    def certify(
        self, started_at: datetime, finished_at: datetime, filters: Mapping[str, Any] | None = None
    ) -> Certificate:
        """Return the certificate, after the last page was added. `started_at` and `finished_at` have a time zone.
        `filters` is copied unchanged into the certificate."""
        if self._reason is None:
            raise ValueError("The reading has not ended. Fetch the next page.")
        appeared_count, vanished_count = self._count_changes()
        return Certificate(
            verdict=CertificateVerdict.COMPLETE if self._reason in PROVING_REASONS else CertificateVerdict.INCOMPLETE,
            reason=self._reason,
            order=_decide_order(self._sweep),
            sweeps=self._sweep_count,
            pages=self._page_count,
            distinct=len(self._sweep.seen_ids),
            total_first=self._first_total,
            total_last=self._last_total,
            appeared=appeared_count,
            vanished=vanished_count,
            filters=dict(filters or {}),
            started_at=started_at,
            finished_at=finished_at,
            total_count=self._total_count_check,
        )

    def _end_sweep(self) -> None:
        sweep, ids = self._sweep, self._sweep.seen_ids.to_array()
        is_at_end = sweep.sweep_end is SweepEnd.AT_END
        if is_at_end and self._previous_sweep is not None:
            newcomer_mask = ~mark_contained_ids(self._previous_ids, ids) & ~self._vanished_ids.mark_contained_ids(ids)
            newcomer_mask &= ~self._newcomer_ids.mark_contained_ids(ids)
            self._newcomer_ids.add(ids[newcomer_mask])
        self._reason = self._decide_reason(sweep, ids)
        if self._reason is not None:
            return
        if is_at_end:  # a sweep that did not reach the end does not show which subscribers were on the list
            vanished_ids = self._vanished_ids.to_array()
            self._vanished_ids = IdSet()
            self._vanished_ids.add(vanished_ids[~mark_contained_ids(ids, vanished_ids)])
            self._vanished_ids.add(self._previous_ids[~mark_contained_ids(ids, self._previous_ids)])
            self._previous_sweep, self._previous_ids = sweep, ids
        sweep.seen_ids = IdSet()
        self._sweep = Sweep(self._limit, has_overlaps=sweep.has_overlaps and sweep.sweep_end is not SweepEnd.MISPAGED)
        self._sweep_count += 1

    def _decide_reason(self, sweep: Sweep, ids: IdArray) -> CertificateReason | None:
        """Return the certificate's reason if this sweep is the last, or None if the list must be read again."""
        previous_sweep = self._previous_sweep
        if sweep.is_one_answer:
            return CertificateReason.ONE_ANSWER
        if sweep.is_in_id_order:
            return (
                CertificateReason.ID_ORDER
                if sweep.is_count_right
                else self._choose_reason_for_wrong_count(CertificateReason.ID_ORDER)
            )
        if (
            previous_sweep is not None
            and sweep.is_whole
            and previous_sweep.is_whole
            and np.array_equal(ids, self._previous_ids)
        ):
            if sweep.totals.has_only_total(len(ids)) and previous_sweep.totals.has_only_total(len(ids)):
                return CertificateReason.TWO_SWEEPS
            if sweep.totals.has_constant_total and previous_sweep.totals.has_constant_total:
                return self._choose_reason_for_wrong_count(CertificateReason.TWO_SWEEPS)
        if sweep.sweep_end is SweepEnd.STUCK:
            if not sweep.totals.has_constant_total:
                return CertificateReason.CHANGING
            return CertificateReason.PAGING if sweep.totals.has_only_total(len(ids)) else CertificateReason.TOTAL_COUNT
        is_order_unstable = previous_sweep is not None and previous_sweep.is_shuffled and sweep.is_shuffled
        if self._sweep_count < MAX_SWEEPS and not is_order_unstable:
            return None
        if sweep.is_shuffled:
            return CertificateReason.UNSTABLE_ORDER
        has_wrong_count = sweep.totals.has_constant_total and not sweep.totals.has_only_total(len(ids))
        return CertificateReason.TOTAL_COUNT if has_wrong_count else CertificateReason.CHANGING

    def _choose_reason_for_wrong_count(self, reason_without_total_count: CertificateReason) -> CertificateReason:
        """Return the certificate's reason if the rows prove a complete list, but TotalCount disagrees."""
        if not self._ignores_total_count:
            return CertificateReason.TOTAL_COUNT
        self._total_count_check = TotalCountCheck.IGNORED
        return reason_without_total_count

    def _count_changes(self) -> tuple[int, int]:
        """Return lower bounds of the number of subscribers that appeared, and of the number that vanished. The offsets
        of rows in the last sweep and a comparison of the sweeps each give bounds. The function returns the larger
        bounds."""
        sweep, ids = self._sweep, self._sweep.seen_ids.to_array()
        if sweep.sweep_end is not SweepEnd.AT_END:
            return 0, 0
        appeared_count = int(np.count_nonzero(mark_contained_ids(ids, self._newcomer_ids.to_array())))
        earlier_id_arrays = (self._previous_ids, self._vanished_ids.to_array())
        vanished_count = sum(
            int(np.count_nonzero(~mark_contained_ids(ids, earlier_ids))) for earlier_ids in earlier_id_arrays
        )
        if sweep.broken_overlap_count:  # offsets of rows show changes only if the order is stable
            return appeared_count, vanished_count
        changes = sweep.changes
        return max(appeared_count, changes.appeared_count), max(vanished_count, changes.vanished_count)


def _decide_order(sweep: Sweep) -> Order:
    if sweep.is_shuffled:
        return Order.UNSTABLE
    if sweep.direction == 0 or sweep.broken_overlap_count:
        return Order.OTHER
    return Order.ID_DESC if sweep.direction == -1 else Order.ID
