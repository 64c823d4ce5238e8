"""Refusals of all creates for some time (architecture 4.8): the run ends in time, and no row is lost."""

from collections import Counter
from random import Random

import pytest

from connector.load.session import LoadPolicy
from connector.states import State
from tests.simulation.memory_ledger import Ledgers
from tests.simulation.people import People
from tests.simulation.rows import Cells, Source, prepare_nights
from tests.simulation.scenario import Ending, Night, Scenario, Storm
from tests.simulation.simulate import Result, simulate
from tests.simulation.world import Played

PEOPLE = 400
FIRST_REFUSED = 50


def play(storms: list[Storm | None], ending: Ending | None = None, number: int = PEOPLE) -> Result:
    """A night for each storm; the first ends as `ending` says."""
    people = People("email")
    for _ in range(number):
        people.add(Random(3))
    rows = [Cells(person, f"{person}@x.org", "", "Ann", "Lee") for person in people.persons]
    portions = prepare_nights([Source([rows])] * len(storms), "email")
    nights = [Night(portion, 3600.0, storm=storm) for portion, storm in zip(portions, storms, strict=True)]
    nights[0] = Night(portions[0], 1.0, storm=storms[0], ending=ending or Ending())
    scenario = Scenario(
        seed=3,
        settings={"latency_ms": 50, "duplicates": "accept"},
        people=people,
        policy=LoadPolicy(quiet_period_s=10.0),
        nights=tuple(nights),
    )
    return simulate(scenario, Ledgers())


def block(status: int, seconds: float = 0.0) -> Storm:
    return Storm({"blocked_from": FIRST_REFUSED, "blocked_status": status, "blocked_ms": 1000 * seconds})


def count_states(played: Played) -> Counter[State]:
    return Counter(kept.state for kept in played.ledger.values())


def count_creates(result: Result, played: Played) -> int:
    calls = result.world.record.calls
    return sum((call.operation, call.night) == ("create", played.number) for call in calls)


@pytest.mark.parametrize("status", [200, 400, 402, 403, 404])
def test_refusals_that_last_end_the_run_within_two_minutes_and_the_next_one_finishes(status: int) -> None:
    result = play([block(status), None])
    first, second = result.world.played
    assert first.report is not None
    assert second.report is not None
    assert "run again later" in (first.report.reason or "")
    assert 60 <= first.ended_at - first.began_at <= 120
    assert count_creates(result, first) < FIRST_REFUSED + 110  # those under way when the pause begins, and the tries
    assert count_states(first)[State.REJECTED] >= 20
    assert (second.report.reason, count_states(second)) == (None, Counter({State.CONFIRMED: PEOPLE}))
    assert result.faults == []


@pytest.mark.parametrize("status", [200, 402])
def test_maintenance_of_half_a_minute_ends_no_run(status: int) -> None:
    result = play([block(status, 30.0), None])
    first, _ = result.world.played
    assert first.report is not None
    assert (first.report.reason, count_states(first)) == (None, Counter({State.CONFIRMED: PEOPLE}))
    assert result.faults == []


def test_refusals_that_last_through_a_second_night_cost_that_night_twenty_creates() -> None:
    result = play([block(402), Storm({"blocked_from": 1, "blocked_status": 402}), None])
    _, second, third = result.world.played
    assert count_creates(result, second) <= 20
    assert (count_states(third), result.faults) == (Counter({State.CONFIRMED: PEOPLE}), [])


@pytest.mark.parametrize("ending", [Ending(die_at_s=20.0), Ending(stop_at_s=20.0)], ids=["killed", "stopped"])
def test_a_run_that_ends_during_an_outage_loses_no_row(ending: Ending) -> None:
    result = play([block(200), None, None], ending)
    first, second, third = result.world.played
    assert first.ended_at - first.began_at < 30
    assert second.report is not None
    assert (count_states(second), result.faults) == (Counter({State.CONFIRMED: PEOPLE}), [])
    assert count_creates(result, third) == 0


def test_a_refused_create_that_took_effect_is_found_and_not_sent_again() -> None:
    storm = Storm({"executed_status": 1.0, "executed_statuses": ["400"]}, after_s=1.2, until_s=5.0)
    result = play([storm, None])
    first, _ = result.world.played
    assert first.report is not None
    assert sum(1 for subscriber in result.world.record.stored if subscriber.fate == "answered_as_refused") >= 20
    assert (count_states(first), result.faults) == (Counter({State.CONFIRMED: PEOPLE}), [])
