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
from tests.simulation.world import PlayedNight

PERSON_COUNT = 400
FIRST_REFUSED_CREATE = 50  # the number of the first create that the service refuses


def play(storms: list[Storm | None], ending: Ending | None = None, person_count: int = PERSON_COUNT) -> Result:
    """Play a night for each storm. The first night has the ending `ending`."""
    people = People("email")
    for _ in range(person_count):
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


def build_blocking_storm(status: int, seconds: float = 0.0) -> Storm:
    return Storm({"blocked_from": FIRST_REFUSED_CREATE, "blocked_status": status, "blocked_ms": 1000 * seconds})


def count_states(played_night: PlayedNight) -> Counter[State]:
    return Counter(entry.state for entry in played_night.ledger.values())


def count_creates(result: Result, played_night: PlayedNight) -> int:
    calls = result.world.record.calls
    return sum((call.operation, call.night) == ("create", played_night.number) for call in calls)


@pytest.mark.parametrize("status", [200, 400, 402, 403, 404])
def test_lasting_refusals_end_the_run_within_two_minutes_and_the_next_run_finishes(status: int) -> None:
    result = play([build_blocking_storm(status), None])
    first_night, second_night = result.world.played_nights
    assert first_night.report is not None
    assert second_night.report is not None
    assert "run again later" in (first_night.report.reason or "")
    assert 60 <= first_night.ended_at - first_night.began_at <= 120
    assert (
        count_creates(result, first_night) < FIRST_REFUSED_CREATE + 110
    )  # plus the creates under way when the pause begins, and the probes
    assert count_states(first_night)[State.REJECTED] >= 20
    assert (second_night.report.reason, count_states(second_night)) == (None, Counter({State.CONFIRMED: PERSON_COUNT}))
    assert result.faults == []


@pytest.mark.parametrize("status", [200, 402])
def test_refusals_for_half_a_minute_do_not_end_the_run(status: int) -> None:
    result = play([build_blocking_storm(status, 30.0), None])
    first_night, _ = result.world.played_nights
    assert first_night.report is not None
    assert (first_night.report.reason, count_states(first_night)) == (None, Counter({State.CONFIRMED: PERSON_COUNT}))
    assert result.faults == []


def test_a_second_night_of_lasting_refusals_sends_at_most_twenty_creates() -> None:
    result = play([build_blocking_storm(402), Storm({"blocked_from": 1, "blocked_status": 402}), None])
    _, second_night, third_night = result.world.played_nights
    assert count_creates(result, second_night) <= 20
    assert (count_states(third_night), result.faults) == (Counter({State.CONFIRMED: PERSON_COUNT}), [])


@pytest.mark.parametrize("ending", [Ending(die_at_s=20.0), Ending(first_signal_at_s=20.0)], ids=["killed", "stopped"])
def test_a_run_that_is_killed_or_stopped_during_refusals_loses_no_row(ending: Ending) -> None:
    result = play([build_blocking_storm(200), None, None], ending)
    first_night, second_night, third_night = result.world.played_nights
    assert first_night.ended_at - first_night.began_at < 30
    assert second_night.report is not None
    assert (count_states(second_night), result.faults) == (Counter({State.CONFIRMED: PERSON_COUNT}), [])
    assert count_creates(result, third_night) == 0


def test_a_refused_create_that_took_effect_is_found_and_not_sent_again() -> None:
    storm = Storm({"executed_status": 1.0, "executed_statuses": ["400"]}, after_s=1.2, until_s=5.0)
    result = play([storm, None])
    first_night, _ = result.world.played_nights
    assert first_night.report is not None
    assert (
        sum(1 for subscriber in result.world.record.stored_subscribers if subscriber.fate == "answered_as_refused")
        >= 20
    )
    assert (count_states(first_night), result.faults) == (Counter({State.CONFIRMED: PERSON_COUNT}), [])
