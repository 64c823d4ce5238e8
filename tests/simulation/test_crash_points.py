"""Processes that are killed before or after a commit, or at a step. The next runs, which have no faults, end correctly.

By default, a process is killed at every fifth commit and every 25th step. In a long run of the test, a process is
killed at each commit and step. After every second kill, the next run has the source. After the other kills, the next
run is a retry without the source.
"""

import json
from collections.abc import Callable, Iterator
from itertools import chain, count

import pytest

from tests.simulation.memory_ledger import Ledgers
from tests.simulation.scenario import RunEnding
from tests.simulation.simulate import simulate
from tests.simulation.small_scenarios import SmallScenario, build_small_scenarios
from tests.simulation.test_seeds import DEFAULT_SEED_COUNT, SEED_COUNT

SMALL_SCENARIOS = build_small_scenarios()

BUILD_ENDING_BY_KILL_KIND: dict[str, Callable[[int], RunEnding]] = {
    "before commit": lambda point: RunEnding(kill_at_commit=point),
    "after commit": lambda point: RunEnding(kill_at_commit=point, kills_after_commit=True),
    "before step": lambda point: RunEnding(kill_at_step=point),
}
_IS_LONG_RUN = SEED_COUNT > DEFAULT_SEED_COUNT
# The distances are odd numbers, so every second kill is at an odd point. After a kill at an odd point, the next run
# has the source.
_POINT_DISTANCE_BY_KILL_KIND = {"before commit": 5, "after commit": 5, "before step": 25}
# Each run must have at least this number of commits or steps. Otherwise the test kills at too few points.
_MIN_POINT_COUNT_BY_KILL_KIND = {"before commit": 10, "after commit": 10, "before step": 80}


def kill_at_each_point(
    small_scenario: SmallScenario, kill_kind: str, point_distance: int, ledgers: Ledgers
) -> Iterator[list[str]]:
    """Kill the process at each `point_distance`-th point, until a run ends before its kill point. Yield the
    contradictions."""
    build_ending = BUILD_ENDING_BY_KILL_KIND[kill_kind]
    for kill_point in count(1, point_distance):
        has_source_after_kill = kill_point % 2 == 1
        result = simulate(
            small_scenario.build_killed_scenario(build_ending(kill_point), has_source_after_kill=has_source_after_kill),
            ledgers,
        )
        if result.simulation.run_results[small_scenario.killed_run_index].report is not None:
            return
        yield [
            f"killed at point {kill_point}{'' if has_source_after_kill else ', then without a source'}: {contradiction}"
            for contradiction in result.contradictions
        ]


@pytest.mark.parametrize(
    ("scenario_number", "small_scenario"),
    list(enumerate(SMALL_SCENARIOS)),
    ids=[small_scenario.name for small_scenario in SMALL_SCENARIOS],
)
def test_the_runs_after_a_kill_fulfil_every_claim(
    scenario_number: int, small_scenario: SmallScenario, record_property: Callable[[str, object], None]
) -> None:
    """In a short run of this test, each scenario tries one of the three kinds of kills. A long run tries all kinds."""
    for kill_kind in (
        BUILD_ENDING_BY_KILL_KIND
        if _IS_LONG_RUN
        else [list(BUILD_ENDING_BY_KILL_KIND)[-scenario_number % len(BUILD_ENDING_BY_KILL_KIND)]]
    ):
        point_distance = 1 if _IS_LONG_RUN else _POINT_DISTANCE_BY_KILL_KIND[kill_kind]
        contradictions_of_kills = list(kill_at_each_point(small_scenario, kill_kind, point_distance, Ledgers()))
        record_property("kill_points", json.dumps([small_scenario.name, kill_kind, len(contradictions_of_kills)]))
        assert list(chain.from_iterable(contradictions_of_kills)) == []
        assert len(contradictions_of_kills) >= _MIN_POINT_COUNT_BY_KILL_KIND[kill_kind] // point_distance, (
            "the run has too few kill points"
        )


def test_every_claim_holds_after_a_second_signal() -> None:
    """Each simulated run gets two signals, 1 ms apart. The first signal comes 80 ms later in each next run (in a long
    run of the tests 20 ms later)."""
    ledgers, small_scenario = Ledgers(), SMALL_SCENARIOS[0]
    first_signal_times_s = [0.02 * index for index in range(1, 50, 1 if _IS_LONG_RUN else 4)]
    endings = [
        RunEnding(first_signal_at_s=first_signal_time_s, second_signal_at_s=first_signal_time_s + 0.001)
        for first_signal_time_s in first_signal_times_s
    ]
    results = [
        simulate(small_scenario.build_killed_scenario(ending, has_source_after_kill=True), ledgers)
        for ending in endings
    ]
    assert [contradiction for result in results for contradiction in result.contradictions] == []
