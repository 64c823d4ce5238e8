"""Decides which page of the list to ask for next, over up to five sweeps, and what the sweeps prove (architecture 7).

Three facts prove that every subscriber who was on the list throughout is in the last sweep:

- one answer: it had the whole list at one instant;
- id order: ids never change, so no row of a list in id order moves, and pages that join leave no row out;
- two sweeps: ids do not come back, so a subscriber in both sweeps was there at the instant between them. If both saw
  the same ids, and TotalCount was their number, nobody else was there at that instant. This holds in any order.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import numpy as np

from connector.paging.certificate import PROOFS, Certificate, Order, Reason, TotalCount, Verdict
from connector.paging.overlap import NO_IDS, IdArray, IdSet, Mask, PageAnswer, PageRequest, contained
from connector.paging.sweep import Sweep, SweepEnd

MOST_SWEEPS = 5
"""The largest number of sweeps of one reading (architecture 7, rule 2)."""


class Pager:
    """Decides which page to ask for (`decide_next`), receives its ids (`add_page`), and returns a certificate."""

    def __init__(self, limit: int = 1000, *, ignores_total_count: bool = False, reads_ahead: bool = True) -> None:
        self._limit = limit
        self._reads_ahead = reads_ahead
        self._ignores_total_count = ignores_total_count
        self._total_count = TotalCount.CHECKED
        self._sweep: Sweep = Sweep(limit)
        self._sweeps = 1
        self._pages = 0
        self._total_first: int | None = None
        self._total_last: int | None = None
        self._previous: Sweep | None = None
        self._previous_ids: IdArray = NO_IDS
        self._vanished = IdSet()  # ids of an earlier sweep that the previous sweep lacks
        self._newcomers = IdSet()  # ids that the first sweep lacks
        self._reason: Reason | None = None

    @property
    def distinct(self) -> int:
        """The number of different ids of the current sweep so far."""
        return len(self._sweep.seen)

    @property
    def ids(self) -> IdArray:
        """The ids of the current sweep so far, ascending."""
        return self._sweep.seen.to_array()

    @property
    def page_rows(self) -> int:
        """The number of rows of a full page, which may be less than the limit of a request."""
        return self._sweep.page_rows

    @property
    def total(self) -> int | None:
        """The latest TotalCount of the whole list."""
        return self._total_last

    def decide_next(self) -> PageRequest | None:
        """Return the next page to ask for, or None once the reading has ended."""
        if self._reason is not None:
            return None
        return PageRequest(self._sweeps, self._sweep.next_offset, self._limit, ends_at=self._sweep.ends_at)

    @property
    def is_calm(self) -> bool:
        """Whether answers to pages that were asked for ahead may be used. If not, ask for these pages again."""
        return self._sweep.is_calm

    def decide_ahead(self, most: int) -> list[PageRequest]:
        """Return at most `most` pages after the next page that may be asked for now, for a list that does not change.

        Add the answers in this order. Use an answer only if `decide_next` then returns the same page.
        """
        if self._reason is not None or not self._reads_ahead:
            return []
        predicted = self._sweep.predict_pages(most)
        return [PageRequest(self._sweeps, offset, self._limit, ends_at) for offset, ends_at in predicted]

    def add_page(self, ids: IdArray, *, total: int | None, offset: int | None, limit: int | None) -> Mask:
        """Add the page of `decide_next`, with its echoes TotalCount, Offset and Limit (service-api.md 4.3).

        Return a mask of the rows to keep: each id once in a sweep.
        """
        page = self.decide_next()
        if page is None:
            raise ValueError("The reading has ended: no page can be added.")
        self._total_first = total if not self._pages else self._total_first
        self._total_last = total
        self._pages += 1
        kept_mask = self._sweep.add_page(PageAnswer(page.offset, ids, total, offset, limit))
        if self._sweep.ending is not None:
            self._end_sweep()
        return kept_mask

    def certify(
        self, started_at: datetime, finished_at: datetime, filters: Mapping[str, Any] | None = None
    ) -> Certificate:
        """Return the certificate of a reading that has ended. The times are aware; `filters` is copied unchanged."""
        if self._reason is None:
            raise ValueError("The reading has not ended: ask for the next page.")
        appeared, vanished = self._count_changes()
        return Certificate(
            verdict=Verdict.COMPLETE if self._reason in PROOFS else Verdict.INCOMPLETE,
            reason=self._reason,
            order=_order_of(self._sweep),
            sweeps=self._sweeps,
            pages=self._pages,
            distinct=self.distinct,
            total_first=self._total_first,
            total_last=self._total_last,
            appeared=appeared,
            vanished=vanished,
            filters=dict(filters or {}),
            started_at=started_at,
            finished_at=finished_at,
            total_count=self._total_count,
        )

    def _end_sweep(self) -> None:
        sweep, ids = self._sweep, self._sweep.seen.to_array()
        is_at_end = sweep.ending is SweepEnd.AT_END
        if is_at_end and self._previous is not None:
            self._record_newcomers(ids)
        self._reason = self._decide_reason(sweep, ids)
        if self._reason is not None:
            return
        if is_at_end:  # a sweep that did not reach the end does not show who was on the list
            self._record_vanished(ids)
            self._previous, self._previous_ids = sweep, ids
        sweep.seen = IdSet()
        self._sweep = Sweep(self._limit, has_overlap=sweep.has_overlap and sweep.ending is not SweepEnd.MISPAGED)
        self._sweeps += 1

    def _decide_reason(self, sweep: Sweep, ids: IdArray) -> Reason | None:
        """Return the reason why the reading ends after this sweep, or None if another sweep is needed. The first reason
        that applies counts."""
        previous = self._previous
        if sweep.is_one_answer:
            return Reason.ONE_ANSWER
        if sweep.is_in_id_order:
            return Reason.ID_ORDER if sweep.is_count_right else self._decide_wrong_count(Reason.ID_ORDER)
        if previous is not None and sweep.is_whole and previous.is_whole and np.array_equal(ids, self._previous_ids):
            if sweep.totals.are_all(len(ids)) and previous.totals.are_all(len(ids)):
                return Reason.TWO_SWEEPS
            if sweep.totals.are_constant and previous.totals.are_constant:
                return self._decide_wrong_count(Reason.TWO_SWEEPS)
        if sweep.ending is SweepEnd.STUCK:
            if not sweep.totals.are_constant:
                return Reason.CHANGING
            return Reason.PAGING if sweep.totals.are_all(len(ids)) else Reason.TOTAL_COUNT
        is_hopeless = previous is not None and previous.is_shuffled and sweep.is_shuffled
        if self._sweeps < MOST_SWEEPS and not is_hopeless:
            return None
        if sweep.is_shuffled:
            return Reason.UNSTABLE_ORDER
        has_other_count = sweep.totals.are_constant and not sweep.totals.are_all(len(ids))
        return Reason.TOTAL_COUNT if has_other_count else Reason.CHANGING

    def _decide_wrong_count(self, proof: Reason) -> Reason:
        """Return the reason of a reading whose `proof` only TotalCount contradicts."""
        if not self._ignores_total_count:
            return Reason.TOTAL_COUNT
        self._total_count = TotalCount.IGNORED
        return proof

    def _record_newcomers(self, ids: IdArray) -> None:
        new_ids = ids[~contained(self._previous_ids, ids) & ~self._vanished.holds(ids)]
        self._newcomers.add(new_ids[~self._newcomers.holds(new_ids)])

    def _record_vanished(self, ids: IdArray) -> None:
        """Keep the ids of earlier sweeps that this sweep lacks."""
        earlier_ids, vanished = self._vanished.to_array(), IdSet()
        vanished.add(earlier_ids[~contained(ids, earlier_ids)])
        vanished.add(self._previous_ids[~contained(ids, self._previous_ids)])
        self._vanished = vanished

    def _count_changes(self) -> tuple[int, int]:
        """Return lower bounds (appeared, vanished): the larger numbers of two, by the ranks of the last sweep and by a
        comparison of the sweeps."""
        sweep, ids = self._sweep, self._sweep.seen.to_array()
        if sweep.ending is not SweepEnd.AT_END:
            return 0, 0
        appeared = int(np.count_nonzero(contained(ids, self._newcomers.to_array())))
        earlier = (self._previous_ids, self._vanished.to_array())
        vanished = sum(int(np.count_nonzero(~contained(ids, earlier_ids))) for earlier_ids in earlier)
        if sweep.overlaps_broken:  # ranks show changes only if the order is stable
            return appeared, vanished
        return max(appeared, sweep.changes.appeared), max(vanished, sweep.changes.vanished)


def _order_of(sweep: Sweep) -> Order:
    if sweep.is_shuffled:
        return Order.UNSTABLE
    if sweep.direction == 0 or sweep.overlaps_broken:
        return Order.OTHER
    return Order.ID_DESC if sweep.direction == -1 else Order.ID
