"""A subscriber that appears during a slow run is not created again, because look-ups expire (architecture 4.7).

Each scenario is played twice. The first play shows who is created late. In the second play, another program creates
these people meanwhile.
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from connector.load.retry import RetrySelection
from connector.load.session import LoadPolicy
from tests.simulation.memory_ledger import Ledgers
from tests.simulation.network import Weather
from tests.simulation.people import People
from tests.simulation.rows import Cells, Source, prepare_nights
from tests.simulation.scenario import BASE_ID, Ending, Newcomer, Night, Scenario, Storm
from tests.simulation.simulate import Result, simulate
from tests.simulation.truth import Truth

FRESH_S = 60.0
NEWCOMERS_AT_S = 150.0


def build_scenario(
    person_count: int, nights: Sequence[Night], latency_ms: int, max_concurrency: int, fresh_s: float = FRESH_S
) -> Scenario:
    """Return a scenario with `person_count` people. The service stores duplicates."""
    people = People("email")
    for _ in range(person_count):
        people.add(Random(3))
    people.persons = {
        number: replace(person, spellings=(f"{number}@x.org",)) for number, person in people.persons.items()
    }
    rows = [Cells(person.number, person.spellings[0], "", "Ann", "Lee") for person in people.persons.values()]
    prepared_nights = prepare_nights([Source([rows])] * len(nights), "email")
    return Scenario(
        seed=3,
        settings={"latency_ms": latency_ms, "duplicates": "accept"},
        people=people,
        policy=LoadPolicy(max_concurrency=max_concurrency, quiet_period_s=10.0, fresh_s=fresh_s),
        nights=tuple(
            replace(night, portions=() if night.retry else portions)
            for night, portions in zip(nights, prepared_nights, strict=True)
        ),
        strangers=({"Base": {"Id": BASE_ID}, "Email": "stranger@y.org", "LastName": "S"},),
    )


def play_with_newcomers(
    scenario: Scenario, night_index: int, come_at_s: float = NEWCOMERS_AT_S, waiting_s: float = 100.0
) -> tuple[Result, int]:
    """Return the result of the second play, and the number of newcomers.

    A newcomer is a person that the first play stored more than `waiting_s` seconds after `come_at_s` in the night
    `night_index`. In the second play, another program creates the person at `come_at_s`.
    """
    first_play = simulate(scenario, Ledgers())
    assert first_play.faults == []
    began_at = first_play.world.played_nights[night_index].began_at
    late_persons = {
        subscriber.person
        for subscriber in first_play.world.record.stored_subscribers
        if subscriber.call is not None and subscriber.stored_at > began_at + come_at_s + waiting_s
    }
    newcomers = tuple(
        Newcomer(come_at_s, {"Base": {"Id": BASE_ID}, "Email": f"{person}@x.org", "LastName": "Self"})
        for person in sorted(late_persons)
    )
    nights = list(scenario.nights)
    nights[night_index] = replace(nights[night_index], newcomers=newcomers)
    return simulate(replace(scenario, nights=tuple(nights)), Ledgers()), len(newcomers)


def find_late_creates(result: Result, expiry_s: float) -> list[int]:
    """Return the persons that we stored more than `expiry_s` seconds after another program created them."""
    truth, late_persons = Truth(result.world), []
    for person in truth.persons:
        foreign_times = [subscriber.stored_at for subscriber in truth.find_stored(person) if subscriber.call is None]
        late_persons += [
            person
            for subscriber in truth.find_ours(person)
            if foreign_times and subscriber.stored_at > min(foreign_times) + expiry_s
        ]
    return late_persons


def test_a_subscriber_is_looked_up_again_after_a_pause_that_the_service_asked_for() -> None:
    storm = Storm({"refuse": 1.0, "refuse_retry_after_s": 400}, after_s=1.2, until_s=60.0)
    scenario = build_scenario(60, [Night((), 1.0, storm=storm), Night((), 100.0)], latency_ms=60, max_concurrency=4)
    result, newcomer_count = play_with_newcomers(scenario, 0)
    assert newcomer_count >= 20
    assert (result.faults, find_late_creates(result, FRESH_S + 1.0)) == ([], [])


def test_a_rejected_row_is_looked_up_again_in_a_long_retry() -> None:
    storm = Storm({"required": ["Phone"], "latency_ms": 5})
    retry = Night((), 100.0, retry=RetrySelection(is_rejected=True))
    scenario = build_scenario(
        180, [Night((), 1.0, storm=storm), retry, Night((), 100.0)], latency_ms=2_000, max_concurrency=1
    )
    result, newcomer_count = play_with_newcomers(scenario, 1)
    assert newcomer_count >= 5
    assert (result.faults, find_late_creates(result, 120.0)) == ([], [])


def test_an_absent_subscriber_is_looked_up_again_if_sending_takes_long() -> None:
    died = Night((), 1.0, ending=Ending(at_commit=11, is_after=True))
    nights = [died, Night((), 100.0, retry=RetrySelection()), Night((), 100.0)]
    scenario = build_scenario(60, nights, latency_ms=5000, max_concurrency=1)
    result, newcomer_count = play_with_newcomers(scenario, 1)
    assert newcomer_count >= 10
    assert (result.faults, find_late_creates(result, FRESH_S + 10.0)) == ([], [])


def test_a_row_that_could_not_be_sent_is_looked_up_again_after_an_outage() -> None:
    storm = Storm(weather=Weather(refused_share=1.0), after_s=1.2, until_s=45.0)
    nights = [Night((), 1.0, storm=storm), Night((), 100.0)]
    scenario = build_scenario(60, nights, latency_ms=60, max_concurrency=4, fresh_s=20.0)
    result, newcomer_count = play_with_newcomers(scenario, 0, come_at_s=5.0, waiting_s=35.0)
    assert newcomer_count >= 20
    assert (result.faults, find_late_creates(result, 21.0)) == ([], [])


def build_slow_list(**settings: object) -> Scenario:
    """Return a scenario in which a page takes ten seconds, and the whole list takes longer than `load.fresh`."""
    scenario = build_scenario(20, [Night((), 1.0), Night((), 100.0)], latency_ms=10_000, max_concurrency=1)
    strangers = tuple(
        {"Base": {"Id": BASE_ID}, "Email": f"stranger@y{number}.org", "LastName": "S"} for number in range(120)
    )
    stance = {**scenario.settings, "max_limit": 20, **settings}
    return replace(scenario, settings=stance, strangers=strangers)


def test_a_listing_that_takes_too_long_is_continued_from_its_end() -> None:
    result, newcomer_count = play_with_newcomers(
        build_slow_list(filters="ignored"), 0, come_at_s=190.0, waiting_s=FRESH_S
    )
    assert newcomer_count >= 10
    assert (result.faults, find_late_creates(result, FRESH_S + 10.0)) == ([], [])
    assert result.world.played_nights[-1].is_finished


def test_nothing_is_created_if_every_look_up_takes_too_long() -> None:
    result = simulate(build_slow_list(filters="ignored", order="email"), Ledgers())
    assert not any(subscriber.call is not None for subscriber in result.world.record.stored_subscribers)
    report = result.world.played_nights[0].report
    assert report is not None
    assert "longer than load.fresh (60 s) allows" in report.describe()
