"""The process dies at every fifth commit, on either side, and at every 25th step, or, in a campaign, at each; a
calm run follows, with the source and without it in turn, and ends right. Until a run has no more points to die at."""

import json
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from tests.simulation.memory_ledger import Ledgers
from tests.simulation.scenario import Ending
from tests.simulation.simulate import simulate
from tests.simulation.small_scenarios import Small, build_small_scenarios
from tests.simulation.test_seeds import SEEDS, USUAL_SEEDS

SMALL = {small.name: small for small in build_small_scenarios()}

WAYS: dict[str, Callable[[int], Ending]] = {
    "before commit": lambda point: Ending(at_commit=point),
    "after commit": lambda point: Ending(at_commit=point, is_after=True),
    "before step": lambda point: Ending(at_step=point),
}
_IS_CAMPAIGN = SEEDS > USUAL_SEEDS
_STRIDES = {"before commit": 5, "after commit": 5, "before step": 25}  # odd: the source is kept and not in turn
_POINTS = {"before commit": 10, "after commit": 10, "before step": 80}  # each small night has so many at least


def die_everywhere(small: Small, way: str, stride: int, ledgers: Ledgers) -> Iterator[list[str]]:
    """What speaks against each run that died at the nth point, for n from 1 until one came to its end alive."""
    build_ending = WAYS[way]
    for point in count(1, stride):
        is_source_kept = point % 2 == 1
        result = simulate(small.die(build_ending(point), is_source_kept=is_source_kept), ledgers)
        if result.world.played[small.dying].report is not None:
            return
        yield [
            f"death {point}{'' if is_source_kept else ', then without a source'}: {fault}" for fault in result.faults
        ]


@pytest.mark.parametrize(
    ("name", "way"),
    [
        pytest.param(name, way, marks=() if (night + place) % len(WAYS) == 0 else pytest.mark.campaign)
        for night, name in enumerate(SMALL)
        for place, way in enumerate(WAYS)
    ],
)
def test_a_run_ends_right_after_a_death(name: str, way: str, record_property: Callable[[str, object], None]) -> None:
    stride = 1 if _IS_CAMPAIGN else _STRIDES[way]
    deaths = list(die_everywhere(SMALL[name], way, stride, Ledgers()))
    record_property("died", json.dumps([name, way, len(deaths)]))
    assert [fault for faults in deaths for fault in faults] == []
    assert len(deaths) >= _POINTS[way] // stride, "the night no longer does what it is there for"


def test_a_run_that_is_cut_off_while_creates_are_under_way_reports_each_of_them() -> None:
    """A second signal follows the first one at once, every 20 ms."""
    ledgers, small = Ledgers(), SMALL["losses"]
    endings = [Ending(stop_at_s=0.02 * number, cut_at_s=0.02 * number + 0.001) for number in range(1, 50)]
    results = [simulate(small.die(ending, is_source_kept=True), ledgers) for ending in endings]
    assert [fault for result in results for fault in result.faults] == []
