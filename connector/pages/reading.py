"""The reading of a list: up to five sweeps, and what they prove together (architecture 7).

Four things prove that everyone who was on the list throughout is in the last sweep:

- one answer: the whole list at one instant;
- id order: ids never change, so in a list sorted by them nobody moves, and pages that join leave nobody out;
- two sweeps: whoever both saw was there at the instant between them, since ids do not come back; where the two saw the
  same ids, and TotalCount was their number, nobody else was there at that instant. That holds in any order;
- partitions: the same of two rounds through the parts of a list that has no order (connector.pages.partitions).
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np

from connector.pages.answer import Answer
from connector.pages.certificate import PROOFS, Certificate, Order, Reason, TotalCount, Verdict
from connector.pages.id_set import NO_IDS, IdArray, IdSet, Mask, contained
from connector.pages.page import Measures, Page
from connector.pages.partitions import Outcome, Partitions
from connector.pages.sweep import Ending, Sweep

MOST_SWEEPS = 5
"""Design, section 7, rule 2."""

_GENDERS = ("male", "female", "")  # service-api.md 2.1
_PARTS_PER_PAGE, _PARTS_AT_LEAST = 24, 384
"""Pages that partitions may take for each full page of the list, and at least: six times what a walk may, for a survey
and five rounds."""


class Reading:
    """Says which page to ask for (`decide_next`), takes the ids that came (`take`), and ends with a certificate."""

    def __init__(self, limit: int = 1000, measures: Measures | None = None) -> None:
        self._limit = limit
        self._measures = measures or Measures()
        self._bases = set[int]()
        self._partitions: Partitions | None = None
        self._gave_up: Reason | None = None  # after parts that proved nothing: the list is read once more, as it comes
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
        parts = self._partitions
        return len(parts.seen if parts is not None and parts.rounds else self._sweep.seen)

    @property
    def ids(self) -> IdArray:
        """The ids of the current sweep so far, ascending."""
        parts = self._partitions
        return (parts.seen if parts is not None and parts.rounds else self._sweep.seen).to_array()

    @property
    def total(self) -> int | None:
        """The latest TotalCount of the whole list."""
        return self._total_last

    @property
    def wants_bases(self) -> bool:
        """Whether `take` is to be told which bases its rows are of: the list may have to be split by them."""
        sweeps = (self._before, self._sweep)
        return "base_id" in self._measures.splits_by and any(each is not None and each.joints_broken for each in sweeps)

    def decide_next(self) -> Page | None:
        """The page to ask for now, or None once the verdict is there."""
        if self._reason is not None:
            return None
        if self._partitions is not None:
            ask = self._partitions.ask
            is_probe = ask.round == 0 or not ask.filters
            return Page(self._sweeps + ask.round, ask.offset, ask.limit, ask.filters, is_probe, ask.ends_at)
        return Page(self._sweeps, self._sweep.next_offset, self._limit, ends_at=self._sweep.ends_at)

    @property
    def is_calm(self) -> bool:
        """Whether an answer still counts that was asked for before the last one came; if not, it is to be asked for
        anew."""
        return self._sweep.is_calm

    def decide_ahead(self, most: int) -> list[Page]:
        """Up to `most` pages after the next one that may be asked for at once: expected, should all go on as it has.

        They are to be taken in this order, each as far as `decide_next` then says the same.
        """
        if self._reason is not None or self._partitions is not None:
            return []
        return [Page(self._sweeps, offset, self._limit) for offset in self._sweep.expect(most)]

    def take(
        self,
        ids: IdArray,
        *,
        total: int | None,
        offset: int | None,
        limit: int | None,
        is_matching: bool = True,
        bases: Collection[int] = (),
    ) -> Mask:
        """Take in the page asked for, with the echoes TotalCount, Offset and Limit of service-api.md 4.3; whether its
        rows match the page's filters; and where `wants_bases`, the bases of its rows.

        Says of each id whether its row is to be kept: each id of a sweep once.
        """
        page = self.decide_next()
        if page is None:
            raise ValueError("The reading has ended: it takes no page.")
        self._bases.update(bases)
        if not page.filters:
            self._total_first = total if not self._pages else self._total_first
            self._total_last = total
        answer = Answer(page.offset, ids, total, offset, limit, is_matching)
        self._pages += 1
        if self._partitions is not None:
            return self._take_part(self._partitions, answer)
        kept = self._sweep.take(answer)
        if self._sweep.ending is not None:
            self._end_sweep()
        return kept

    def certify(
        self, started_at: datetime, finished_at: datetime, filters: Mapping[str, Any] | None = None
    ) -> Certificate:
        """The certificate of an ended reading; times are aware, `filters` is recorded as given."""
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
        is_at_end = sweep.ending is Ending.AT_END
        if is_at_end and self._before is not None:
            self._note_newcomers(ids)
        reason = self._judge(sweep, ids)
        if self._gave_up is not None and reason not in PROOFS:
            reason = self._gave_up
        if reason is not None:
            self._settle(reason)
            return
        if is_at_end:  # one that was broken off says nothing of who was there
            self._note_gone(ids)
            self._before, self._before_ids = sweep, ids
        sweep.seen = IdSet()
        self._sweep = Sweep(self._limit, has_overlap=sweep.has_overlap and sweep.ending is not Ending.MISPAGED)
        self._sweeps += 1

    def _judge(self, sweep: Sweep, ids: IdArray) -> Reason | None:
        """Why the reading ends here, in order of decision; None: another sweep is needed."""
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
        if sweep.ending is Ending.STUCK:
            return _reason_stuck(sweep, len(ids))
        is_hopeless = before is not None and before.is_shuffled and sweep.is_shuffled
        if self._sweeps < MOST_SWEEPS and not is_hopeless:
            return None
        if sweep.is_shuffled:
            return Reason.UNSTABLE_ORDER
        has_other_count = sweep.totals.are_constant and not sweep.totals.are_all(len(ids))
        return Reason.TOTAL_COUNT if has_other_count else Reason.CHANGING

    def _decide_off_count(self, proof: Reason) -> Reason:
        """What comes of a proof against which TotalCount alone stands."""
        if not self._measures.ignores_total_count:
            return Reason.TOTAL_COUNT
        self._total_count = TotalCount.IGNORED
        return proof

    def _settle(self, reason: Reason) -> None:
        """End with this reason, unless there is something left to do about it."""
        may_split = self._partitions is None and self._gave_up is None
        if reason is Reason.UNSTABLE_ORDER and self._measures.splits_by and may_split:
            known: dict[str, Sequence[object]] = {
                "is_active": (True, False),
                "base_id": sorted(self._bases),
                "gender": _GENDERS,
            }
            allowed = _PARTS_AT_LEAST + _PARTS_PER_PAGE * (self._sweep.totals.largest or 0) // self._limit
            values = {name: known[name] for name in self._measures.splits_by}
            self._partitions = Partitions(self._limit, values, allowed)
        else:
            self._reason = reason

    def _take_part(self, partitions: Partitions, answer: Answer) -> Mask:
        kept = partitions.take(answer)
        if partitions.outcome is not None:
            self._sweeps += partitions.rounds
            ends = {
                Outcome.PROVED: Reason.PARTITIONS,
                Outcome.CHANGING: Reason.CHANGING,
                Outcome.NOT_SPLIT: Reason.UNSTABLE_ORDER,
            }
            reason = ends[partitions.outcome]
            if partitions.rounds and reason not in PROOFS:
                self._read_once_more(reason)
            else:
                self._settle(reason)
        return kept

    def _read_once_more(self, reason: Reason) -> None:
        """The last round may have been broken off: a sweep of the whole is the better output, if anybody wants it."""
        self._gave_up, self._partitions, self._before = reason, None, None
        self._sweep = Sweep(self._limit)
        self._sweeps += 1

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
        """(appeared, vanished), at least: told by the last sweep's ranks, or by comparing the sweeps."""
        if self._partitions is not None:
            return self._partitions.appeared, self._partitions.vanished
        sweep, ids = self._sweep, self._sweep.seen.to_array()
        if sweep.ending is not Ending.AT_END:
            return 0, 0
        appeared = int(np.count_nonzero(contained(ids, self._newcomers.to_array())))
        earlier = (self._before_ids, self._gone.to_array())
        vanished = sum(int(np.count_nonzero(~contained(ids, each))) for each in earlier)
        if sweep.joints_broken:  # ranks tell of changes only where the order holds
            return appeared, vanished
        return max(appeared, sweep.changes.appeared), max(vanished, sweep.changes.vanished)


def _reason_stuck(sweep: Sweep, distinct: int) -> Reason:
    if not sweep.totals.are_constant:
        return Reason.CHANGING
    return Reason.PAGING if sweep.totals.are_all(distinct) else Reason.TOTAL_COUNT


def _order_of(sweep: Sweep) -> Order:
    if sweep.is_shuffled:
        return Order.UNSTABLE
    if sweep.direction == 0 or sweep.joints_broken:
        return Order.OTHER
    return Order.ID_DESC if sweep.direction == -1 else Order.ID
