"""The process dies at each fifth commit, on either side, and at each 25th step; in a campaign at each of them.
A calm run follows, with the source and without the source in turn, and ends right.
"""

import json
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from tests.simulation.memory_ledger import Ledgers
from tests.simulation.scenario import Ending
from tests.simulation.simulate import simulate
from tests.simulation.small_scenarios import Small, build_small_scenarios
from tests.simulation.test_seeds import SEEDS, USUAL_SEEDS

SMALL = build_small_scenarios()

WAYS: dict[str, Callable[[int], Ending]] = {
    "before commit": lambda point: Ending(at_commit=point),
    "after commit": lambda point: Ending(at_commit=point, is_after=True),
    "before step": lambda point: Ending(at_step=point),
}
_IS_CAMPAIGN = SEEDS > USUAL_SEEDS
_STRIDES = {"before commit": 5, "after commit": 5, "before step": 25}  # odd, so that the source is there in turn
_POINTS = {"before commit": 10, "after commit": 10, "before step": 80}  # the fewest points of a small night


def die_everywhere(small: Small, way: str, stride: int, ledgers: Ledgers) -> Iterator[list[str]]:
    """Yield the faults of each run that died at point 1, 1 + stride, …, until a run came to its end alive."""
    build_ending = WAYS[way]
    for point in count(1, stride):
        is_source_kept = point % 2 == 1
        result = simulate(small.die(build_ending(point), is_source_kept=is_source_kept), ledgers)
        if result.world.played[small.dying].report is not None:
            return
        yield [
            f"death {point}{'' if is_source_kept else ', then without a source'}: {fault}" for fault in result.faults
        ]


@pytest.mark.parametrize(("number", "small"), list(enumerate(SMALL)), ids=[small.name for small in SMALL])
def test_a_run_after_a_death_ends_right(
    number: int, small: Small, record_property: Callable[[str, object], None]
) -> None:
    """Each small night dies in one way, the next night in another way. A campaign tries all ways."""
    for way in WAYS if _IS_CAMPAIGN else [list(WAYS)[-number % len(WAYS)]]:
        stride = 1 if _IS_CAMPAIGN else _STRIDES[way]
        deaths = list(die_everywhere(small, way, stride, Ledgers()))
        record_property("died", json.dumps([small.name, way, len(deaths)]))
        assert [fault for faults in deaths for fault in faults] == []
        assert len(deaths) >= _POINTS[way] // stride, "the night is too short"


def test_a_run_that_a_second_signal_cuts_off_reports_each_create() -> None:
    """The second signal follows the first one at once. The moments are 80 ms apart, in a campaign 20 ms."""
    ledgers, small = Ledgers(), SMALL[0]
    moments_s = [0.02 * number for number in range(1, 50, 1 if _IS_CAMPAIGN else 4)]
    endings = [Ending(stop_at_s=moment_s, cut_at_s=moment_s + 0.001) for moment_s in moments_s]
    results = [simulate(small.die(ending, is_source_kept=True), ledgers) for ending in endings]
    assert [fault for result in results for fault in result.faults] == []
