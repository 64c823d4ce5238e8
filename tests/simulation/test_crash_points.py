"""Processes that die before or after a commit, or at a step. The calm runs that follow end correctly.

By default a process dies at every fifth commit and every 25th step, in a campaign at each commit and step. The next run
has the source after every second death, and is a retry without the source after the others.
"""

import json
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from tests.simulation.memory_ledger import Ledgers
from tests.simulation.scenario import Ending
from tests.simulation.simulate import simulate
from tests.simulation.small_scenarios import SmallScenario, build_small_scenarios
from tests.simulation.test_seeds import DEFAULT_SEED_COUNT, SEED_COUNT

SMALL_SCENARIOS = build_small_scenarios()

ENDINGS: dict[str, Callable[[int], Ending]] = {
    "before commit": lambda point: Ending(at_commit=point),
    "after commit": lambda point: Ending(at_commit=point, is_after=True),
    "before step": lambda point: Ending(at_step=point),
}
_IS_CAMPAIGN = SEED_COUNT > DEFAULT_SEED_COUNT
_STRIDES = {
    "before commit": 5,
    "after commit": 5,
    "before step": 25,
}  # odd, so that every second death is at an odd point
_LEAST_POINTS = {
    "before commit": 10,
    "after commit": 10,
    "before step": 80,
}  # the number of points in the smallest night


def die_at_each_point(
    small_scenario: SmallScenario, ending_name: str, stride: int, ledgers: Ledgers
) -> Iterator[list[str]]:
    """Yield the faults of each scenario with a death at point 1, 1 + stride, …, until a run ends without dying."""
    build_ending = ENDINGS[ending_name]
    for point in count(1, stride):
        is_source_kept = point % 2 == 1
        result = simulate(small_scenario.build_death(build_ending(point), is_source_kept=is_source_kept), ledgers)
        if result.world.played_nights[small_scenario.dying_index].report is not None:
            return
        yield [
            f"death {point}{'' if is_source_kept else ', then without a source'}: {fault}" for fault in result.faults
        ]


@pytest.mark.parametrize(
    ("number", "small_scenario"),
    list(enumerate(SMALL_SCENARIOS)),
    ids=[small_scenario.name for small_scenario in SMALL_SCENARIOS],
)
def test_the_runs_after_a_death_fulfil_every_claim(
    number: int, small_scenario: SmallScenario, record_property: Callable[[str, object], None]
) -> None:
    """Each small night dies in one of three ways, in turn. A campaign tries all ways with each night."""
    for ending_name in ENDINGS if _IS_CAMPAIGN else [list(ENDINGS)[-number % len(ENDINGS)]]:
        stride = 1 if _IS_CAMPAIGN else _STRIDES[ending_name]
        deaths = list(die_at_each_point(small_scenario, ending_name, stride, Ledgers()))
        record_property("died", json.dumps([small_scenario.name, ending_name, len(deaths)]))
        assert [fault for faults in deaths for fault in faults] == []
        assert len(deaths) >= _LEAST_POINTS[ending_name] // stride, "the night is too short"


def test_a_run_that_a_second_signal_ends_fulfils_every_claim() -> None:
    """The second signal follows the first signal at once, at moments 80 ms apart (in a campaign 20 ms)."""
    ledgers, small_scenario = Ledgers(), SMALL_SCENARIOS[0]
    moments_s = [0.02 * number for number in range(1, 50, 1 if _IS_CAMPAIGN else 4)]
    endings = [Ending(first_signal_at_s=moment_s, second_signal_at_s=moment_s + 0.001) for moment_s in moments_s]
    results = [simulate(small_scenario.build_death(ending, is_source_kept=True), ledgers) for ending in endings]
    assert [fault for result in results for fault in result.faults] == []
