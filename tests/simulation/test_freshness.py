"""Knowledge expires (architecture 4.7): a subscriber that appears during a slow run is not created again.

Each night is played twice: once to see whom it creates late, and again with those people coming in the meantime.
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
COME_AT_S = 150.0


def build(
    number: int, nights: Sequence[Night], latency_ms: int, max_concurrency: int, fresh_s: float = FRESH_S
) -> Scenario:
    """So many people with one row each, in each night that has a source; a service that takes everybody twice."""
    people = People("email")
    for _ in range(number):
        people.add(Random(3))
    people.persons = {
        subscriber: replace(who, spellings=(f"{subscriber}@x.org",)) for subscriber, who in people.persons.items()
    }
    rows = [Cells(person.number, person.spellings[0], "", "Ann", "Lee") for person in people.persons.values()]
    prepared = prepare_nights([Source([rows])] * len(nights), "email")
    return Scenario(
        seed=3,
        settings={"latency_ms": latency_ms, "duplicates": "accept"},
        people=people,
        policy=LoadPolicy(max_concurrency=max_concurrency, quiet_period_s=10.0, fresh_s=fresh_s),
        nights=tuple(
            replace(night, portions=() if night.retry else portions)
            for night, portions in zip(nights, prepared, strict=True)
        ),
        strangers=({"Base": {"Id": BASE_ID}, "Email": "stranger@y.org", "LastName": "S"},),
    )


def play_with_newcomers(
    scenario: Scenario, place: int, come_at_s: float = COME_AT_S, waiting_s: float = 100.0
) -> tuple[Result, int]:
    """The second playing, and how many came by another way while their creates were waiting in the night `place`, and
    had to wait for so long still."""
    alone = simulate(scenario, Ledgers())
    assert alone.faults == []
    began_at = alone.world.played[place].began_at
    late = {
        subscriber.person
        for subscriber in alone.world.record.stored
        if subscriber.by is not None and subscriber.at > began_at + come_at_s + waiting_s
    }
    newcomers = tuple(
        Newcomer(come_at_s, {"Base": {"Id": BASE_ID}, "Email": f"{person}@x.org", "LastName": "Self"})
        for person in sorted(late)
    )
    nights = list(scenario.nights)
    nights[place] = replace(nights[place], newcomers=newcomers)
    return simulate(replace(scenario, nights=tuple(nights)), Ledgers()), len(newcomers)


def find_late(result: Result, grown_old_s: float) -> list[int]:
    """Those whom we stored so long after they had come by another way."""
    truth, late = Truth(result.world), []
    for person in truth.persons:
        came_at = [stored.at for stored in truth.find_stored(person) if stored.by is None]
        late += [person for own in truth.find_ours(person) if came_at and own.at > min(came_at) + grown_old_s]
    return late


def test_a_pause_that_the_service_asked_for_makes_knowledge_old() -> None:
    storm = Storm({"refuse": 1.0, "refuse_retry_after_s": 400}, after_s=1.2, until_s=60.0)
    scenario = build(60, [Night((), 1.0, storm=storm), Night((), 100.0)], latency_ms=60, max_concurrency=4)
    result, came = play_with_newcomers(scenario, 0)
    assert came >= 20
    assert (result.faults, find_late(result, FRESH_S + 1.0)) == ([], [])


def test_a_rejected_row_is_looked_up_again_in_a_long_retry() -> None:
    storm = Storm({"required": ["Phone"], "latency_ms": 5})
    retry = Night((), 100.0, retry=RetrySelection(is_rejected=True))
    scenario = build(180, [Night((), 1.0, storm=storm), retry, Night((), 100.0)], latency_ms=2_000, max_concurrency=1)
    result, came = play_with_newcomers(scenario, 1)
    assert came >= 5
    assert (result.faults, find_late(result, 120.0)) == ([], [])


def test_an_absent_subscriber_is_looked_up_again_if_sending_takes_long() -> None:
    died = Night((), 1.0, ending=Ending(at_commit=11, is_after=True))
    nights = [died, Night((), 100.0, retry=RetrySelection()), Night((), 100.0)]
    scenario = build(60, nights, latency_ms=5000, max_concurrency=1)
    result, came = play_with_newcomers(scenario, 1)
    assert came >= 10
    assert (result.faults, find_late(result, FRESH_S + 10.0)) == ([], [])


def test_a_row_that_could_not_be_sent_is_looked_up_again_after_an_outage() -> None:
    storm = Storm(weather=Weather(refused=1.0), after_s=1.2, until_s=45.0)
    nights = [Night((), 1.0, storm=storm), Night((), 100.0)]
    scenario = build(60, nights, latency_ms=60, max_concurrency=4, fresh_s=20.0)
    result, came = play_with_newcomers(scenario, 0, come_at_s=5.0, waiting_s=35.0)
    assert came >= 20
    assert (result.faults, find_late(result, 21.0)) == ([], [])


def build_slow_list(**settings: object) -> Scenario:
    """A list whose pages take ten seconds each, and all of them longer than it may be relied on."""
    scenario = build(20, [Night((), 1.0), Night((), 100.0)], latency_ms=10_000, max_concurrency=1)
    strangers = tuple(
        {"Base": {"Id": BASE_ID}, "Email": f"stranger@y{number}.org", "LastName": "S"} for number in range(120)
    )
    stance = {**scenario.settings, "max_limit": 20, **settings}
    return replace(scenario, settings=stance, strangers=strangers)


def test_a_listing_that_takes_too_long_is_continued_from_its_end() -> None:
    result, came = play_with_newcomers(build_slow_list(filters="ignored"), 0, come_at_s=190.0, waiting_s=FRESH_S)
    assert came >= 10
    assert (result.faults, find_late(result, FRESH_S + 10.0)) == ([], [])
    assert result.world.played[-1].is_whole


def test_where_no_look_is_quick_enough_nothing_is_created() -> None:
    result = simulate(build_slow_list(filters="ignored", order="email"), Ledgers())
    assert not any(subscriber.by is not None for subscriber in result.world.record.stored)
    report = result.world.played[0].report
    assert report is not None
    assert "load.fresh lets a create rely on it for 60 s" in report.describe()
