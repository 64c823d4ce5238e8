"""A list in no stable order, read in parts: the service's filters split it until each part comes whole in one answer.

No filter is believed: each row of a part is compared here, and the parts must come to the TotalCount of the whole. What
proves that nobody is missing is what proves it of two sweeps (rule 2): whoever two successive rounds both saw was there
at the instant between them, when TotalCount, asked without filters, was exactly their number.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from connector.pages.answer import Answer
from connector.pages.id_set import IdArray, IdSet, Mask
from connector.pages.page import Filters
from connector.pages.sweep import Sweep

DIMENSIONS = ("is_active", "base_id", "gender")
"""The filters whose values are known beforehand, or seen in the sweeps: by these a list can be split."""

MOST_ROUNDS = 5
"""As many as sweeps (architecture 7, rules 2 and 3)."""


class Outcome(Enum):
    """How it ended."""

    PROVED = "proved"  # two successive rounds agree with each other and with every TotalCount
    NOT_SPLIT = "not split"  # no filter that works, or none that makes parts small enough
    CHANGING = "changing"  # it can be split, but no two successive rounds agreed


@dataclass(frozen=True, slots=True)
class Ask:
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
        self.outcome: Outcome | None = None
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

    def take(self, answer: Answer) -> Mask:
        """Take in the answer to `ask`; says of each id whether its row is to be kept."""
        self._kept = np.zeros(len(answer.ids), dtype=np.bool_)
        self._left -= 1
        try:
            self.ask = self._steps.send(answer)
        except StopIteration as end:
            self.outcome = end.value
        if self.outcome is None and self._left <= 0:
            self._steps.close()
            self.outcome = Outcome.CHANGING if self.rounds else Outcome.NOT_SPLIT
        return self._kept

    def _run(self) -> Generator[Ask, Answer, Outcome]:
        parts: list[_Part] | None = None
        before: IdArray | None = None
        has_total = yield from self._count_all()
        while has_total and self.rounds < MOST_ROUNDS:
            parts = parts or (yield from self._survey())
            if parts is None:
                return Outcome.NOT_SPLIT
            total = self.total
            is_whole = yield from self._read_round(parts)
            has_total = yield from self._count_all()
            ids = self._note_changes()
            is_all = is_whole and total == self.total == len(ids)
            if is_all and before is not None and np.array_equal(ids, before):
                return Outcome.PROVED
            before = ids if is_all else None
            parts = parts if is_whole else None
        return Outcome.CHANGING if self.rounds else Outcome.NOT_SPLIT

    def _count_all(self) -> Generator[Ask, Answer, bool]:
        """Ask for the TotalCount of the whole; False: there is none."""
        total = (yield Ask(self.rounds, 0, 1, ())).total
        self.total = total or 0
        return total is not None

    def _survey(self) -> Generator[Ask, Answer, list[_Part] | None]:
        """The parts by which to read, each small enough for one answer; None: it cannot be split so."""
        parts, waiting = list[_Part](), [_Part((), self.total, is_one_answer=False)]
        while waiting:
            split = yield from self._split(waiting.pop())
            if split is None:
                return None
            parts += [part for part in split if part.is_one_answer]
            waiting += [part for part in split if not part.is_one_answer]
        return parts

    def _split(self, whole: _Part) -> Generator[Ask, Answer, list[_Part] | None]:
        """By the first dimension that works; one that does not is not asked for again."""
        for name, values in self._values.items():
            if name in self._broken or name in dict(whole.filters):
                continue
            parts = yield from self._try(whole.filters, name, values)
            if parts is not None and (yield from self._is_sum(whole, sum(part.total for part in parts))):
                return parts
            self._broken.add(name)
        return None

    def _try(self, filters: Filters, name: str, values: Sequence[object]) -> Generator[Ask, Answer, list[_Part] | None]:
        parts = []
        for value in values:
            narrower = (*filters, (name, value))
            answer = yield Ask(0, 0, self._limit, narrower)
            if answer.total is None or not answer.is_matching:
                return None
            is_one_answer = len(answer.ids) == answer.total < (answer.limit or 0) <= self._limit
            parts.append(_Part(narrower, answer.total, is_one_answer))
        return parts

    def _is_sum(self, whole: _Part, total: int) -> Generator[Ask, Answer, bool]:
        """Whether the parts come to the whole, as it was counted before them or, as it changes, up to now."""
        if total == whole.total:
            return True
        again = (yield Ask(0, 0, 1, whole.filters)).total
        return again is not None and min(whole.total, again) <= total <= max(whole.total, again)

    def _read_round(self, parts: Sequence[_Part]) -> Generator[Ask, Answer, bool]:
        """Read every part; False as soon as one does not come whole in one answer, or somebody comes twice."""
        self.rounds += 1
        self.seen = IdSet()
        for part in parts:
            sweep = Sweep(self._limit)
            while sweep.ending is None and sweep.pages < 2:  # its rows, and the empty page past them
                answer = yield Ask(self.rounds, sweep.next_offset, self._limit, part.filters, sweep.ends_at)
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
