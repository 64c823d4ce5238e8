"""Faults of some creates: entries of a dead run whose creates are lost again, and several bases that fail."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from connector.load.retry import RetrySelection
from connector.load.session import LoadPolicy
from connector.states import State
from tests.simulation.memory_ledger import Ledgers
from tests.simulation.network import Weather
from tests.simulation.people import People
from tests.simulation.rows import Cells, Source, prepare_nights
from tests.simulation.scenario import BASE_ID, Ending, Night, Scenario, Storm
from tests.simulation.simulate import Result, simulate

BASES = (BASE_ID, 9, 11)
MAX_CREATES = 5  # lost creates of one entry in one run, each proved absent
LOST_PERSONS = frozenset({2, 5})


def play(nights: Sequence[Night], person_count: int = 12) -> Result:
    """Play nights of a job with one row for each person. A retry has no rows."""
    people = People("email")
    for _ in range(person_count):
        people.add(Random(3))
    people.persons = {
        person: replace(person_details, spellings=(f"{person}@x.org",))
        for person, person_details in people.persons.items()
    }
    rows = [Cells(person, f"{person}@x.org", "", "Ann", "Lee") for person in people.persons]
    prepared_nights = prepare_nights([Source([rows])] * len(nights), "email")
    scenario = Scenario(
        seed=3,
        settings={"latency_ms": 5, "duplicates": "accept"},
        people=people,
        policy=LoadPolicy(quiet_period_s=10.0),
        nights=tuple(
            night if night.retry else replace(night, portions=portions)
            for night, portions in zip(nights, prepared_nights, strict=True)
        ),
    )
    return simulate(scenario, Ledgers())


def count_creates(result: Result, night: int, persons: frozenset[int]) -> list[int]:
    """Return the number of creates of each of these persons that left in a night."""
    calls = [call for call in result.world.record.calls if (call.operation, call.night) == ("create", night)]
    return [sum(call.person == person for call in calls) for person in sorted(persons)]


@pytest.mark.parametrize("is_retry", [False, True], ids=["with the source", "as a retry"])
def test_an_entry_of_a_dead_run_is_held_after_five_lost_creates_of_the_next_run(is_retry: bool) -> None:
    storm = Storm(weather=Weather(lost_persons=LOST_PERSONS))
    dying_night = Night((), 1.0, storm=storm, ending=Ending(die_at_s=5.0))
    second_night = Night((), 100.0, storm=storm, retry=RetrySelection() if is_retry else None)
    result = play([dying_night, second_night, Night((), 100.0)])
    first_played_night, second_played_night, last_played_night = result.world.played_nights
    assert first_played_night.report is None
    assert {first_played_night.ledger[person].state for person in LOST_PERSONS} <= {State.UNKNOWN, State.SENDING}
    assert count_creates(result, 2, LOST_PERSONS) == [MAX_CREATES] * len(LOST_PERSONS)
    assert {second_played_night.ledger[person].state for person in LOST_PERSONS} == {State.HELD}
    assert count_creates(result, 3, LOST_PERSONS) == [0] * len(LOST_PERSONS)
    assert (last_played_night.is_finished, result.faults) == (True, [])


@pytest.mark.parametrize(
    ("switches", "person_count", "expected_count"),
    [({"required": ["Phone"]}, 30, 20), ({"error_before": 1.0}, 6, 3)],
    ids=["refused", "lost"],
)
def test_bases_that_fail_from_the_start_share_the_limit_on_first_creates(
    switches: dict[str, object], person_count: int, expected_count: int
) -> None:
    """No base by itself has enough rows to reach the limit."""
    nights = [Night((), gap_s, is_by_row=True, bases=BASES) for gap_s in (1.0, 100.0)]
    result = play([replace(nights[0], storm=Storm(switches)), nights[1]], person_count)
    first_played_night, second_played_night = result.world.played_nights
    assert first_played_night.report is not None
    assert "the run's first" in (first_played_night.report.reason or "")
    assert sum(count_creates(result, 1, frozenset(range(1, person_count + 1)))) == expected_count
    assert second_played_night.is_finished


def test_a_base_whose_creates_are_lost_does_not_stop_the_other_bases() -> None:
    persons_of_base = frozenset(range(3, 13, 3))  # the base of a row is BASES[person % 3]
    storm = Storm(weather=Weather(lost_persons=persons_of_base))
    nights = [Night((), gap_s, is_by_row=True, bases=BASES) for gap_s in (1.0, 100.0)]
    result = play([replace(nights[0], storm=storm), nights[1]])
    first_played_night, second_played_night = result.world.played_nights
    assert first_played_night.report is not None
    assert "base 7: the run's first creates got no usable answer" in (first_played_night.report.reason or "")
    assert {person for person, entry in first_played_night.ledger.items() if entry.state is State.CONFIRMED} == set(
        range(1, 13)
    ) - persons_of_base
    assert (second_played_night.is_finished, result.faults) == (True, [])
