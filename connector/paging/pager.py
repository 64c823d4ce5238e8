"""Which page of the list to ask for next, over up to five sweeps, and what they prove together (architecture 7).

Four things prove that every subscriber who was on the list throughout is in the last sweep:

- one answer: the whole list at one instant;
- id order: ids never change, so in a list sorted by them no row moves, and pages that join leave none out;
- two sweeps: a subscriber in both was there at the instant between them, since ids do not come back; where both saw the
  same ids, and TotalCount was their number, no other was there at that instant. That holds in any order;
- partitions: the same of two rounds through the parts of a list that has no order. No filter is trusted: each row of a
  part is compared here, and the parts must come to the TotalCount of the whole.
"""

from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

import numpy as np

from connector.paging.certificate import PROOFS, Certificate, Order, Reason, TotalCount, Verdict
from connector.paging.overlap import NO_IDS, Filters, IdArray, IdSet, Mask, Measures, PageAnswer, PageRequest, contained
from connector.paging.sweep import Sweep, SweepEnd

DIMENSIONS = ("is_active", "base_id", "gender")
"""The filters whose values are known beforehand, or seen in the sweeps: by these a list can be split."""

MOST_ROUNDS = 5
"""As many as sweeps (architecture 7, rules 2 and 3)."""

MOST_SWEEPS = 5
"""Design, section 7, rule 2."""

_GENDERS = ("male", "female", "")  # service-api.md 2.1
_PARTS_PER_PAGE, _PARTS_AT_LEAST = 24, 384
"""Pages that partitions may take for each full page of the list, and at least: six times what a walk may, for a survey
and five rounds."""


class PartitionsEnd(Enum):
    """How it ended."""

    PROVED = "proved"  # two successive rounds agree with each other and with every TotalCount
    NOT_SPLIT = "not split"  # no filter that works, or none that makes parts small enough
    CHANGING = "changing"  # it can be split, but no two successive rounds agreed


@dataclass(frozen=True, slots=True)
class PartRequest:
    """A page of a part; the rows of `round` 0 only tell whether and how the list can be split."""

    round: int
    offset: int
    limit: int
    filters: Filters
    ends_at: int | None = None


@dataclass(frozen=True, slots=True)
class _Part:
    filters: Filters
    total: int
    is_one_answer: bool


class Partitions:
    """Says what to ask for (`ask`), takes the answers (`take`), until there is an `outcome`.

    `values` are those of each dimension by which the list may be split; at most `allowed` pages are asked for.
    """

    def __init__(self, limit: int, values: Mapping[str, Sequence[object]], allowed: int) -> None:
        self.outcome: PartitionsEnd | None = None
        self.rounds = 0
        self.seen = IdSet()  # ids of the current round
        self.total = 0  # the last TotalCount of the whole
        self.appeared = self.vanished = 0  # between the first round and the last, at least
        self._limit = limit
        self._values = {name: each for name, each in values.items() if 2 <= len(each) <= allowed}
        self._broken = set[str]()
        self._left = allowed
        self._kept: Mask = np.zeros(0, dtype=np.bool_)
        self._first: IdArray | None = None
        self._steps = self._run()
        self.ask = next(self._steps)

    def take(self, answer: PageAnswer) -> Mask:
        """Take in the answer to `ask`; says of each id whether its row is to be kept."""
        self._kept = np.zeros(len(answer.ids), dtype=np.bool_)
        self._left -= 1
        try:
            self.ask = self._steps.send(answer)
        except StopIteration as end:
            self.outcome = end.value
        if self.outcome is None and self._left <= 0:
            self._steps.close()
            self.outcome = PartitionsEnd.CHANGING if self.rounds else PartitionsEnd.NOT_SPLIT
        return self._kept

    def _run(self) -> Generator[PartRequest, PageAnswer, PartitionsEnd]:
        parts: list[_Part] | None = None
        before: IdArray | None = None
        has_total = yield from self._count_all()
        while has_total and self.rounds < MOST_ROUNDS:
            parts = parts or (yield from self._survey())
            if parts is None:
                return PartitionsEnd.NOT_SPLIT
            total = self.total
            is_whole = yield from self._read_round(parts)
            has_total = yield from self._count_all()
            ids = self._note_changes()
            is_all = is_whole and total == self.total == len(ids)
            if is_all and before is not None and np.array_equal(ids, before):
                return PartitionsEnd.PROVED
            before = ids if is_all else None
            parts = parts if is_whole else None
        return PartitionsEnd.CHANGING if self.rounds else PartitionsEnd.NOT_SPLIT

    def _count_all(self) -> Generator[PartRequest, PageAnswer, bool]:
        """Ask for the TotalCount of the whole; return False if the service gives none."""
        total = (yield PartRequest(self.rounds, 0, 1, ())).total
        self.total = total or 0
        return total is not None

    def _survey(self) -> Generator[PartRequest, PageAnswer, list[_Part] | None]:
        """The parts by which to read, each small enough for one answer; None: it cannot be split so."""
        parts, waiting = list[_Part](), [_Part((), self.total, is_one_answer=False)]
        while waiting:
            split = yield from self._split(waiting.pop())
            if split is None:
                return None
            parts += [part for part in split if part.is_one_answer]
            waiting += [part for part in split if not part.is_one_answer]
        return parts

    def _split(self, whole: _Part) -> Generator[PartRequest, PageAnswer, list[_Part] | None]:
        """By the first dimension that works; one that does not is not asked for again."""
        for name, values in self._values.items():
            if name in self._broken or name in dict(whole.filters):
                continue
            parts = yield from self._try(whole.filters, name, values)
            if parts is not None and (yield from self._is_sum(whole, sum(part.total for part in parts))):
                return parts
            self._broken.add(name)
        return None

    def _try(
        self, filters: Filters, name: str, values: Sequence[object]
    ) -> Generator[PartRequest, PageAnswer, list[_Part] | None]:
        parts = []
        for value in values:
            narrower = (*filters, (name, value))
            answer = yield PartRequest(0, 0, self._limit, narrower)
            if answer.total is None or not answer.is_matching:
                return None
            is_one_answer = len(answer.ids) == answer.total < (answer.limit or 0) <= self._limit
            parts.append(_Part(narrower, answer.total, is_one_answer))
        return parts

    def _is_sum(self, whole: _Part, total: int) -> Generator[PartRequest, PageAnswer, bool]:
        """Whether the parts come to the whole, as it was counted before them or, as it changes, up to now."""
        if total == whole.total:
            return True
        again = (yield PartRequest(0, 0, 1, whole.filters)).total
        return again is not None and min(whole.total, again) <= total <= max(whole.total, again)

    def _read_round(self, parts: Sequence[_Part]) -> Generator[PartRequest, PageAnswer, bool]:
        """Read every part; return False once a part is not whole in one answer, or a subscriber comes twice."""
        self.rounds += 1
        self.seen = IdSet()
        for part in parts:
            sweep = Sweep(self._limit)
            while sweep.ending is None and sweep.pages < 2:  # its rows, and the empty page past them
                answer = yield PartRequest(self.rounds, sweep.next_offset, self._limit, part.filters, sweep.ends_at)
                is_new = sweep.take(answer) & ~self.seen.holds(answer.ids)
                if not answer.is_matching or not is_new.all():
                    return False
                self._kept = is_new
                self.seen.add(answer.ids)
            if not sweep.is_one_answer:
                return False
        return True

    def _note_changes(self) -> IdArray:
        """The ids of the round that ended, against those of the first."""
        ids = self.seen.to_array()
        if self._first is None:
            self._first = ids
        self.appeared = len(np.setdiff1d(ids, self._first, assume_unique=True))
        self.vanished = len(np.setdiff1d(self._first, ids, assume_unique=True))
        return ids


class Pager:
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
        """Whether `take` needs to know the bases of its rows: the list may have to be split by them."""
        sweeps = (self._before, self._sweep)
        return "base_id" in self._measures.splits_by and any(
            each is not None and each.overlaps_broken for each in sweeps
        )

    def decide_next(self) -> PageRequest | None:
        """Return the page to ask for now, or None once the verdict is there."""
        if self._reason is not None:
            return None
        if self._partitions is not None:
            ask = self._partitions.ask
            is_probe = ask.round == 0 or not ask.filters
            return PageRequest(self._sweeps + ask.round, ask.offset, ask.limit, ask.filters, is_probe, ask.ends_at)
        return PageRequest(self._sweeps, self._sweep.next_offset, self._limit, ends_at=self._sweep.ends_at)

    @property
    def is_calm(self) -> bool:
        """Whether an answer still counts that was asked for before the last one came; if not, ask for it again."""
        return self._sweep.is_calm

    def decide_ahead(self, most: int) -> list[PageRequest]:
        """Up to `most` pages after the next one that may be asked for at once: expected, should all go on as it has.

        They are to be taken in this order, each as far as `decide_next` then says the same.
        """
        if self._reason is not None or self._partitions is not None:
            return []
        return [PageRequest(self._sweeps, offset, self._limit) for offset in self._sweep.expect(most)]

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
        answer = PageAnswer(page.offset, ids, total, offset, limit, is_matching)
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

    def _take_part(self, partitions: Partitions, answer: PageAnswer) -> Mask:
        kept = partitions.take(answer)
        if partitions.outcome is not None:
            self._sweeps += partitions.rounds
            ends = {
                PartitionsEnd.PROVED: Reason.PARTITIONS,
                PartitionsEnd.CHANGING: Reason.CHANGING,
                PartitionsEnd.NOT_SPLIT: Reason.UNSTABLE_ORDER,
            }
            reason = ends[partitions.outcome]
            if partitions.rounds and reason not in PROOFS:
                self._read_once_more(reason)
            else:
                self._settle(reason)
        return kept

    def _read_once_more(self, reason: Reason) -> None:
        """Sweep the whole once more: the last round may have been broken off, and a sweep is the better output."""
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
        """Return lower bounds (appeared, vanished), from the last sweep's ranks or by comparing the sweeps."""
        if self._partitions is not None:
            return self._partitions.appeared, self._partitions.vanished
        sweep, ids = self._sweep, self._sweep.seen.to_array()
        if sweep.ending is not SweepEnd.AT_END:
            return 0, 0
        appeared = int(np.count_nonzero(contained(ids, self._newcomers.to_array())))
        earlier = (self._before_ids, self._gone.to_array())
        vanished = sum(int(np.count_nonzero(~contained(ids, each))) for each in earlier)
        if sweep.overlaps_broken:  # ranks tell of changes only where the order holds
            return appeared, vanished
        return max(appeared, sweep.changes.appeared), max(vanished, sweep.changes.vanished)


def _reason_stuck(sweep: Sweep, distinct: int) -> Reason:
    if not sweep.totals.are_constant:
        return Reason.CHANGING
    return Reason.PAGING if sweep.totals.are_all(distinct) else Reason.TOTAL_COUNT


def _order_of(sweep: Sweep) -> Order:
    if sweep.is_shuffled:
        return Order.UNSTABLE
    if sweep.direction == 0 or sweep.overlaps_broken:
        return Order.OTHER
    return Order.ID_DESC if sweep.direction == -1 else Order.ID
