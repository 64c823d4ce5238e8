"""A simulated list read in ranges by several readers, whose pages come in any order of time."""

from dataclasses import dataclass, field
from random import Random

import numpy as np

from connector.paging.certificate import Certificate
from connector.paging.overlap import PageAnswer, PageRequest
from connector.paging.ranges import (
    SURVEYED,
    RangeReader,
    RangeReading,
    certify_ranges,
    choose_looks,
    choose_survey,
    divide_list,
    join_ids,
)
from connector.paging.sweep import IdRange
from tests.paging.simulated import SimulatedList, UnderWay
from tests.paging.times import FINISHED, STARTED

LIMIT = 1000


@dataclass(slots=True)
class RangedResult:
    """The certificate, None where the list is to be read by one reader; and the rows kept, range by range."""

    certificate: Certificate | None
    rows: list[int] = field(default_factory=list)
    is_divided: bool = True

    def is_false(self, simulated: SimulatedList) -> bool:
        """A certificate under which somebody who was there throughout is missing, or a row is twice, or new."""
        is_wrong = len(set(self.rows)) < len(self.rows)
        is_wrong |= not simulated.throughout <= set(self.rows) <= simulated.ever
        return self.certificate is not None and (is_wrong or self.certificate.distinct != len(self.rows))


def read_in_ranges(simulated: SimulatedList, parts: int, *, ahead: int = 0, seed: int = 0) -> RangedResult:
    """Read it by as many readers, each with up to `ahead` pages beyond its next one; their turns are drawn."""
    random = Random(seed)
    total = _ask(simulated, 0, SURVEYED).total
    if not total:
        return RangedResult(None, is_divided=False)
    *heads, end = choose_survey(total, parts)
    survey = [*(_ask(simulated, each, SURVEYED) for each in heads), _ask(simulated, end, LIMIT)]
    division = divide_list(survey)
    if division is None:
        return RangedResult(None, is_divided=False)
    readers = [_Reading(simulated, each) for each in division.ranges]
    while going := [each for each in readers if each.reader.decide_next() is not None]:
        random.choice(going).step(ahead)
    readings = [each.reader.describe(number) for number, each in enumerate(readers)]
    rows = [row for each in readers for row in each.rows]
    ids = join_ids(readings)
    looks = choose_looks(division, ids, readings[-1].total)
    if looks is None:
        return RangedResult(None)
    at_end, at_head = (_look(simulated, each) for each in looks)
    certificate = certify_ranges(division, readings, (at_end, at_head), ids, STARTED, FINISHED)
    assert certificate is None or sorted(rows) == ids.tolist()
    return RangedResult(certificate, rows)


def _ask(simulated: SimulatedList, offset: int, limit: int) -> PageAnswer:
    ids, total, echoed, shown = simulated.answer(PageRequest(1, offset, limit))
    return PageAnswer(offset, np.array(ids, dtype=np.int64), total, echoed, shown)


def _look(simulated: SimulatedList, within: IdRange) -> RangeReading:
    reading = _Reading(simulated, within)
    while reading.reader.decide_next() is not None:
        reading.step(0)
    return reading.reader.describe(0, has_neighbours=True)


class _Reading:
    def __init__(self, simulated: SimulatedList, within: IdRange) -> None:
        self.reader, self.rows = RangeReader(LIMIT, within), list[int]()
        self._under_way = UnderWay(simulated)

    def step(self, ahead: int) -> None:
        page = self.reader.decide_next()
        assert page is not None
        self._under_way.follow([page, *self.reader.decide_ahead(ahead)], is_calm=self.reader.is_calm)
        ids, total, offset, shown = self._under_way.take_first()
        kept = self.reader.take(np.array(ids, dtype=np.int64), total=total, offset=offset, limit=shown)
        self.rows += [each for each, keep in zip(ids, kept, strict=True) if keep]
