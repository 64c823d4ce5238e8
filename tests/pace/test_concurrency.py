"""How many may be under way: between 1 and the ceiling, more only when that is what holds requests back."""

import pytest

from connector.pace.concurrency import ConcurrencyLimit


def answer(limit: ConcurrencyLimit, trip_s: float, number: int, *, since: float = 0.0, share: float = 1.0) -> float:
    """So many answers after `trip_s` each, `share` of the limit under way, and another sent for each; the time then."""
    now = since
    for _ in range(number):
        under_way = max(1, int(share * limit.allowed))
        now += trip_s / under_way
        limit.note(now - trip_s, now, under_way)
    return now


@pytest.mark.parametrize(("ceiling", "expected"), [(0, 1), (1, 1), (10, 10), (64, 16), (512, 16)])
def test_it_begins_at_the_ceiling_or_below(ceiling: int, expected: int) -> None:
    assert ConcurrencyLimit(ceiling).allowed == expected


@pytest.mark.parametrize("ceiling", [1, 5, 100, 512])
def test_it_grows_to_the_ceiling_while_nothing_takes_longer_and_never_above(ceiling: int) -> None:
    limit, now, highest = ConcurrencyLimit(ceiling), 0.0, 0

    for _ in range(200):
        now = answer(limit, 0.1, 50, since=now)
        highest = max(highest, limit.allowed)

    assert limit.allowed == highest == ceiling


def test_it_doubles_until_a_round_takes_long_and_grows_by_a_tenth_after_that() -> None:
    limit = ConcurrencyLimit(10_000)

    now = answer(limit, 0.1, 1000)
    doubled = limit.allowed
    now = answer(limit, 0.2, 1000, since=now, share=0.5)  # a round that takes long
    before = limit.allowed
    answer(limit, 0.1, 8 * before, since=now)

    assert doubled >= 512
    assert 1.2 * before < limit.allowed <= 1.8 * before


def test_it_does_not_grow_when_it_is_not_what_holds_requests_back() -> None:
    limit = ConcurrencyLimit(512)

    answer(limit, 0.1, 10_000, share=0.5)

    assert limit.allowed == 16


@pytest.mark.parametrize("factor", [1.5, 4, 100, 10_000])
def test_it_falls_when_round_trips_take_long_and_never_below_one(factor: float) -> None:
    limit, lowest = ConcurrencyLimit(512), 512
    now = answer(limit, 0.1, 1000)
    before = limit.allowed

    for _ in range(200):
        now = answer(limit, 0.1 * factor, 50, since=now, share=0.5)
        lowest = min(lowest, limit.allowed)

    assert 1 <= lowest <= before / min(factor, 1.2)


@pytest.mark.parametrize("noise_s", [0.0, 0.002])
def test_milliseconds_of_noise_on_short_trips_do_not_lower_it(noise_s: float) -> None:
    limit = ConcurrencyLimit(128)
    now = answer(limit, 0.002, 5000)

    answer(limit, 0.002 + noise_s, 5000, since=now)

    assert limit.allowed == 128


def test_answers_of_what_was_sent_in_an_earlier_round_are_left_out() -> None:
    limit = ConcurrencyLimit(128)
    now = answer(limit, 0.1, 5000)

    for number in range(1000):
        limit.note(now - 50, now + number / 1000, limit.allowed)

    assert limit.allowed == 128


def test_a_service_that_has_become_slower_gets_as_many_again() -> None:
    """Less is served with fewer under way, so it was not they who made each other wait."""
    limit = ConcurrencyLimit(128)
    now = answer(limit, 0.05, 5000)

    answer(limit, 0.2, 5000, since=now)

    assert limit.allowed == 128
