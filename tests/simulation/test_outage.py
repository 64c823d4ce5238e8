"""A service that is down (architecture 6): the run ends within two minutes, and the next run finishes the work."""

from dataclasses import replace
from itertools import pairwise
from math import inf
from random import Random

import pytest

from connector.load.session import LoadPolicy
from tests.simulation.memory_ledger import Ledgers
from tests.simulation.network import Weather
from tests.simulation.people import People
from tests.simulation.rows import Cells, Source, prepare_nights
from tests.simulation.scenario import Night, Scenario, Storm
from tests.simulation.simulate import Result, simulate

PEOPLE = 400
DOWN_AFTER_S = 2.0
OUTAGES = {
    "refuses connections": Storm(weather=Weather(refused=1.0), after_s=DOWN_AFTER_S),
    "fails before it stores": Storm({"error_before": 1.0}, after_s=DOWN_AFTER_S),
    "fails after it stored": Storm({"error_after": 1.0}, after_s=DOWN_AFTER_S),
    "hangs": Storm({"hang_after": 1.0}, after_s=DOWN_AFTER_S),
    "cuts connections": Storm({"drop_before": 1.0}, after_s=DOWN_AFTER_S),
}


def play(storm: Storm, number: int = PEOPLE, max_rate: float = inf) -> Result:
    """One night with the storm, and one after it."""
    people = People("email")
    for _ in range(number):
        people.add(Random(3))
    people.persons = {
        subscriber: replace(who, spellings=(f"{subscriber}@x.org",)) for subscriber, who in people.persons.items()
    }
    rows = [Cells(person.number, person.spellings[0], "", "Ann", "Lee") for person in people.persons.values()]
    portions = prepare_nights([Source([rows])] * 2, "email")
    nights = (Night(portions[0], 1.0, storm=storm), Night(portions[1], 3600.0))
    scenario = Scenario(
        seed=3,
        settings={"latency_ms": 50, "rate": 50, "duplicates": "accept"},
        people=people,
        policy=LoadPolicy(quiet_period_s=10.0, max_rate=max_rate),
        nights=nights,
    )
    return simulate(scenario, Ledgers())


@pytest.mark.parametrize("outage", OUTAGES)
def test_the_run_ends_within_two_minutes_and_the_next_one_finishes(outage: str) -> None:
    result = play(OUTAGES[outage])
    first, second = result.world.played
    assert first.report is not None
    assert second.report is not None
    assert "run again" in (first.report.reason or "")
    assert first.ended_at - first.began_at - DOWN_AFTER_S <= 120
    assert 0 < sum(1 for subscriber in result.world.record.stored if subscriber.at < first.ended_at) < PEOPLE
    assert (second.report.reason, result.faults) == (None, [])


def test_a_service_that_comes_back_within_a_minute_does_not_end_the_run() -> None:
    storm = replace(OUTAGES["refuses connections"], until_s=DOWN_AFTER_S + 30.0)
    result = play(storm)
    first = result.world.played[0]
    assert first.report is not None
    assert (first.report.reason, result.faults) == (None, [])


def test_single_probes_leave_during_an_outage() -> None:
    result = play(OUTAGES["fails before it stores"])
    first = result.world.played[0]
    lost = [
        call
        for call in result.world.record.calls
        if call.operation == "create" and first.began_at + DOWN_AFTER_S + 5 < call.sent_at < first.ended_at
    ]
    assert 3 <= len(lost) <= 12
    assert all(later.sent_at - sooner.sent_at > 0.9 for sooner, later in pairwise(lost))


@pytest.mark.parametrize("outage", OUTAGES)
def test_a_run_that_may_send_one_in_five_seconds_ends_as_well(outage: str) -> None:
    storm = replace(OUTAGES[outage], after_s=15.0)
    result = play(storm, 60, max_rate=0.2)
    first, second = result.world.played
    assert first.report is not None
    assert second.report is not None
    assert "run again" in (first.report.reason or "")
    assert first.ended_at - first.began_at - 15.0 <= 180
    assert (second.report.reason, result.faults) == (None, [])


@pytest.mark.parametrize("outage", ["refuses connections", "hangs"])
def test_a_service_that_is_down_from_the_start_ends_the_run_within_two_minutes(outage: str) -> None:
    storm = replace(OUTAGES[outage], switches={**OUTAGES[outage].switches, "list_error": 1.0}, after_s=0.0)
    first, second = play(storm).world.played
    assert first.report is not None
    assert second.report is not None
    assert first.report.reason is not None
    assert first.ended_at - first.began_at <= 120
    assert second.report.reason is None
