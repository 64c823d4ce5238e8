"""Which page of the list to ask for next, over up to five sweeps, and what they prove together (architecture 7).

Three things prove that every subscriber who was on the list throughout is in the last sweep:

- one answer: the whole list at one instant;
- id order: ids never change, so in a list sorted by them no row moves, and pages that join leave none out;
- two sweeps: a subscriber in both was there at the instant between them, since ids do not come back; where both saw the
  same ids, and TotalCount was their number, no other was there at that instant. That holds in any order.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import numpy as np

from connector.paging.certificate import PROOFS, Certificate, Order, Reason, TotalCount, Verdict
from connector.paging.overlap import NO_IDS, IdArray, IdSet, Mask, PageAnswer, PageRequest, contained
from connector.paging.sweep import Sweep, SweepEnd

MOST_SWEEPS = 5
"""Sweeps of one reading, at most (architecture 7, rule 2)."""


class Pager:
    """Says which page to ask for (`decide_next`), takes the ids that came (`take`), and ends with a certificate."""

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
        self._before: Sweep | None = None
        self._before_ids: IdArray = NO_IDS
        self._gone = IdSet()  # in an earlier sweep, and not in the one before
        self._newcomers = IdSet()  # not in the first sweep
        self._reason: Reason | None = None

    @property
    def distinct(self) -> int:
        """Different ids of the current sweep so far."""
        return len(self._sweep.seen)

    @property
    def ids(self) -> IdArray:
        """The ids of the current sweep so far, ascending."""
        return self._sweep.seen.to_array()

    @property
    def page_rows(self) -> int:
        """Rows of a full page, which may be fewer than the limit of a request."""
        return self._sweep.page_rows

    @property
    def total(self) -> int | None:
        """The latest TotalCount of the whole list."""
        return self._total_last

    def decide_next(self) -> PageRequest | None:
        """Return the page to ask for now, or None once the verdict is there."""
        if self._reason is not None:
            return None
        return PageRequest(self._sweeps, self._sweep.next_offset, self._limit, ends_at=self._sweep.ends_at)

    @property
    def is_calm(self) -> bool:
        """Whether an answer still counts that was asked for before the last one came; if not, ask for it again."""
        return self._sweep.is_calm

    def decide_ahead(self, most: int) -> list[PageRequest]:
        """Up to `most` pages after the next one that may be asked for at once: expected, should all go on as it has.

        They are to be taken in this order, each as far as `decide_next` then says the same.
        """
        if self._reason is not None or not self._reads_ahead:
            return []
        expected = self._sweep.expect(most)
        return [PageRequest(self._sweeps, offset, self._limit, ends_at) for offset, ends_at in expected]

    def take(self, ids: IdArray, *, total: int | None, offset: int | None, limit: int | None) -> Mask:
        """Take in the page asked for, with the echoes TotalCount, Offset and Limit of service-api.md 4.3.

        Says of each id whether its row is to be kept: each id of a sweep once.
        """
        page = self.decide_next()
        if page is None:
            raise ValueError("The reading has ended: it takes no page.")
        self._total_first = total if not self._pages else self._total_first
        self._total_last = total
        self._pages += 1
        kept = self._sweep.take(PageAnswer(page.offset, ids, total, offset, limit))
        if self._sweep.ending is not None:
            self._end_sweep()
        return kept

    def certify(
        self, started_at: datetime, finished_at: datetime, filters: Mapping[str, Any] | None = None
    ) -> Certificate:
        """Return the certificate of an ended reading; times are aware, `filters` is recorded as given."""
        if self._reason is None:
            raise ValueError("The reading has not ended: ask for the next page.")
        appeared, vanished = self._changes()
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
        if is_at_end and self._before is not None:
            self._note_newcomers(ids)
        self._reason = self._judge(sweep, ids)
        if self._reason is not None:
            return
        if is_at_end:  # one that was broken off says nothing of who was there
            self._note_gone(ids)
            self._before, self._before_ids = sweep, ids
        sweep.seen = IdSet()
        self._sweep = Sweep(self._limit, has_overlap=sweep.has_overlap and sweep.ending is not SweepEnd.MISPAGED)
        self._sweeps += 1

    def _judge(self, sweep: Sweep, ids: IdArray) -> Reason | None:
        """Return why the reading ends here, in order of decision; None: another sweep is needed."""
        before = self._before
        if sweep.is_one_answer:
            return Reason.ONE_ANSWER
        if sweep.is_in_id_order:
            return Reason.ID_ORDER if sweep.is_count_right else self._decide_off_count(Reason.ID_ORDER)
        if before is not None and sweep.is_whole and before.is_whole and np.array_equal(ids, self._before_ids):
            if sweep.totals.are_all(len(ids)) and before.totals.are_all(len(ids)):
                return Reason.TWO_SWEEPS
            if sweep.totals.are_constant and before.totals.are_constant:
                return self._decide_off_count(Reason.TWO_SWEEPS)
        if sweep.ending is SweepEnd.STUCK:
            if not sweep.totals.are_constant:
                return Reason.CHANGING
            return Reason.PAGING if sweep.totals.are_all(len(ids)) else Reason.TOTAL_COUNT
        is_hopeless = before is not None and before.is_shuffled and sweep.is_shuffled
        if self._sweeps < MOST_SWEEPS and not is_hopeless:
            return None
        if sweep.is_shuffled:
            return Reason.UNSTABLE_ORDER
        has_other_count = sweep.totals.are_constant and not sweep.totals.are_all(len(ids))
        return Reason.TOTAL_COUNT if has_other_count else Reason.CHANGING

    def _decide_off_count(self, proof: Reason) -> Reason:
        """What comes of a proof against which TotalCount alone stands."""
        if not self._ignores_total_count:
            return Reason.TOTAL_COUNT
        self._total_count = TotalCount.IGNORED
        return proof

    def _note_newcomers(self, ids: IdArray) -> None:
        new = ids[~contained(self._before_ids, ids) & ~self._gone.holds(ids)]
        self._newcomers.add(new[~self._newcomers.holds(new)])

    def _note_gone(self, ids: IdArray) -> None:
        """Keep who was there in an earlier sweep and is not in this one."""
        earlier, gone = self._gone.to_array(), IdSet()
        gone.add(earlier[~contained(ids, earlier)])
        gone.add(self._before_ids[~contained(ids, self._before_ids)])
        self._gone = gone

    def _changes(self) -> tuple[int, int]:
        """Return lower bounds (appeared, vanished), from the last sweep's ranks or by comparing the sweeps."""
        sweep, ids = self._sweep, self._sweep.seen.to_array()
        if sweep.ending is not SweepEnd.AT_END:
            return 0, 0
        appeared = int(np.count_nonzero(contained(ids, self._newcomers.to_array())))
        earlier = (self._before_ids, self._gone.to_array())
        vanished = sum(int(np.count_nonzero(~contained(ids, each))) for each in earlier)
        if sweep.overlaps_broken:  # ranks tell of changes only where the order holds
            return appeared, vanished
        return max(appeared, sweep.changes.appeared), max(vanished, sweep.changes.vanished)


def _order_of(sweep: Sweep) -> Order:
    if sweep.is_shuffled:
        return Order.UNSTABLE
    if sweep.direction == 0 or sweep.overlaps_broken:
        return Order.OTHER
    return Order.ID_DESC if sweep.direction == -1 else Order.ID
