"""Faults that hit some creates only: leftovers of a dead run that are lost again, and several bases that fail."""

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
MOST_CREATES = 5  # of one entry and one run, each lost and proved absent
LOST = frozenset({2, 5})


def play(nights: Sequence[Night], number: int = 12) -> Result:
    """Play nights of a job with one row for each person. A retry has no rows."""
    people = People("email")
    for _ in range(number):
        people.add(Random(3))
    people.persons = {
        person: replace(details, spellings=(f"{person}@x.org",)) for person, details in people.persons.items()
    }
    rows = [Cells(person, f"{person}@x.org", "", "Ann", "Lee") for person in people.persons]
    prepared = prepare_nights([Source([rows])] * len(nights), "email")
    scenario = Scenario(
        seed=3,
        settings={"latency_ms": 5, "duplicates": "accept"},
        people=people,
        policy=LoadPolicy(quiet_period_s=10.0),
        nights=tuple(
            night if night.retry else replace(night, portions=portions)
            for night, portions in zip(nights, prepared, strict=True)
        ),
    )
    return simulate(scenario, Ledgers())


def count_creates(result: Result, night: int, persons: frozenset[int]) -> list[int]:
    """Return how many creates of each of these persons left in a night."""
    calls = [call for call in result.world.record.calls if (call.operation, call.night) == ("create", night)]
    return [sum(call.person == person for call in calls) for person in sorted(persons)]


@pytest.mark.parametrize("is_retry", [False, True], ids=["with the source", "as a retry"])
def test_a_leftover_that_is_lost_again_is_held_after_five_creates_of_the_run(is_retry: bool) -> None:
    storm = Storm(weather=Weather(lost=LOST))
    died = Night((), 1.0, storm=storm, ending=Ending(die_at_s=5.0))
    second = Night((), 100.0, storm=storm, retry=RetrySelection() if is_retry else None)
    result = play([died, second, Night((), 100.0)])
    first, second_played, last = result.world.played
    assert first.report is None
    assert {first.ledger[person].state for person in LOST} <= {State.UNKNOWN, State.SENDING}
    assert count_creates(result, 2, LOST) == [MOST_CREATES] * len(LOST)
    assert {second_played.ledger[person].state for person in LOST} == {State.HELD}
    assert count_creates(result, 3, LOST) == [0] * len(LOST)
    assert (last.is_whole, result.faults) == (True, [])


@pytest.mark.parametrize(
    ("switches", "number", "most"),
    [({"required": ["Phone"]}, 30, 20), ({"error_before": 1.0}, 6, 3)],
    ids=["refused", "lost"],
)
def test_bases_that_fail_from_the_start_share_the_limit_on_first_creates(
    switches: dict[str, object], number: int, most: int
) -> None:
    """No base alone has enough rows for the limit."""
    nights = [Night((), gap_s, is_by_row=True, bases=BASES) for gap_s in (1.0, 100.0)]
    result = play([replace(nights[0], storm=Storm(switches)), nights[1]], number)
    first, second = result.world.played
    assert first.report is not None
    assert "the run's first" in (first.report.reason or "")
    assert sum(count_creates(result, 1, frozenset(range(1, number + 1)))) == most
    assert second.is_whole


def test_a_base_whose_creates_are_lost_from_the_start_costs_no_row_of_the_other_bases() -> None:
    of_one_base = frozenset(range(3, 13, 3))  # the base of a row is BASES[person % 3]
    storm = Storm(weather=Weather(lost=of_one_base))
    nights = [Night((), gap_s, is_by_row=True, bases=BASES) for gap_s in (1.0, 100.0)]
    result = play([replace(nights[0], storm=storm), nights[1]])
    first, second = result.world.played
    assert first.report is not None
    assert "base 7: the run's first creates got no usable answer" in (first.report.reason or "")
    assert {person for person, entry in first.ledger.items() if entry.state is State.CONFIRMED} == set(
        range(1, 13)
    ) - of_one_base
    assert (second.is_whole, result.faults) == (True, [])
