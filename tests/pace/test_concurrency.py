"""The limit of requests in flight: it is between 1 and the ceiling, and grows only if it delays requests."""

import heapq
from dataclasses import dataclass

import pytest

from connector.pace.concurrency import ConcurrencyLimit


def answer(limit: ConcurrencyLimit, trip_s: float, number: int, *, since: float = 0.0, share: float = 1.0) -> float:
    """Record `number` answers, each after `trip_s`, with `share` of the limit in flight. Return the time of the last
    answer."""
    now = since
    for _ in range(number):
        under_way = max(1, int(share * limit.allowed))
        now += trip_s / under_way
        limit.record_answer(now - trip_s, now, under_way)
    return now


@pytest.mark.parametrize(("ceiling", "expected"), [(0, 1), (1, 1), (10, 10), (64, 16), (512, 16)])
def test_the_limit_begins_at_the_ceiling_or_at_16(ceiling: int, expected: int) -> None:
    assert ConcurrencyLimit(ceiling).allowed == expected


@pytest.mark.parametrize("ceiling", [1, 5, 100, 512])
def test_the_limit_grows_to_the_ceiling_and_not_above_while_answers_stay_fast(ceiling: int) -> None:
    limit, now, highest = ConcurrencyLimit(ceiling), 0.0, 0

    for _ in range(200):
        now = answer(limit, 0.1, 50, since=now)
        highest = max(highest, limit.allowed)

    assert limit.allowed == highest == ceiling


def test_the_limit_doubles_until_a_round_is_slow_and_then_grows_by_a_tenth() -> None:
    limit = ConcurrencyLimit(10_000)

    now = answer(limit, 0.1, 1000)
    doubled = limit.allowed
    now = answer(limit, 0.2, 1000, since=now, share=0.5)  # a round with slow answers
    before = limit.allowed
    answer(limit, 0.1, 8 * before, since=now)

    assert doubled >= 512
    assert 1.2 * before < limit.allowed <= 1.8 * before


def test_the_limit_does_not_grow_while_half_of_it_is_unused() -> None:
    limit = ConcurrencyLimit(512)

    answer(limit, 0.1, 10_000, share=0.5)

    assert limit.allowed == 16


@pytest.mark.parametrize("factor", [1.5, 4, 100, 10_000])
def test_the_limit_falls_while_round_trips_are_slow_and_stays_at_one_or_more(factor: float) -> None:
    limit, lowest = ConcurrencyLimit(512), 512
    now = answer(limit, 0.1, 1000)
    before = limit.allowed

    for _ in range(200):
        now = answer(limit, 0.1 * factor, 50, since=now, share=0.5)
        lowest = min(lowest, limit.allowed)

    assert 1 <= lowest <= before / min(factor, 1.2)


@pytest.mark.parametrize("noise_s", [0.0, 0.002])
def test_milliseconds_of_noise_on_short_trips_do_not_lower_the_limit(noise_s: float) -> None:
    limit = ConcurrencyLimit(128)
    now = answer(limit, 0.002, 5000)

    answer(limit, 0.002 + noise_s, 5000, since=now)

    assert limit.allowed == 128


def test_answers_to_requests_of_an_earlier_round_do_not_count() -> None:
    limit = ConcurrencyLimit(128)
    now = answer(limit, 0.1, 5000)

    for number in range(1000):
        limit.record_answer(now - 50, now + number / 1000, limit.allowed)

    assert limit.allowed == 128


def test_a_service_that_became_slower_gets_the_same_limit_again() -> None:
    """With fewer requests in flight, the service serves less. So the requests did not delay each other."""
    limit = ConcurrencyLimit(128)
    now = answer(limit, 0.05, 5000)

    answer(limit, 0.2, 5000, since=now)

    assert limit.allowed == 128


def build_page_limit() -> ConcurrencyLimit:
    """Return the limit for pages of the list. It begins at eight, and a round has at least four answers."""
    return ConcurrencyLimit(32, first=8, least=5, fewest_in_round=4)


@dataclass(slots=True)
class PageService:
    """A service that makes a page in `latency_s`, and at most `capacity` pages at a time. It refuses a request if
    `refuses_above` requests are in flight."""

    latency_s: float
    capacity: int = 1000
    refuses_above: int = 1000

    def fetch(self, limit: ConcurrencyLimit, pages: int) -> tuple[float, int]:
        """Fetch pages in virtual time within the limit. Return the seconds, and the number of refused requests."""
        now, refused, answered = 0.0, 0, 0
        in_flight: list[tuple[float, float, bool]] = []  # (time of the answer, time of sending, whether refused)
        free_at = [0.0] * self.capacity
        while answered < pages:
            while len(in_flight) < limit.allowed:
                if len(in_flight) >= self.refuses_above:
                    heapq.heappush(in_flight, (now + 0.01, now, True))
                    continue
                done_at = max(now, heapq.heappop(free_at)) + self.latency_s
                heapq.heappush(free_at, done_at)
                heapq.heappush(in_flight, (done_at, now, False))
            at, sent_at, is_refused = in_flight[0]
            now = at
            if is_refused:
                refused += 1
                limit.record_refused(sent_at, now)
            else:
                answered += 1
                limit.record_answer(sent_at, now, len(in_flight))
            heapq.heappop(in_flight)
        return now, refused


def test_many_pages_of_a_slow_service_are_soon_fetched_at_once() -> None:
    limit = build_page_limit()

    took_s, _ = PageService(latency_s=0.3).fetch(limit, 200)

    assert limit.allowed == 32
    assert took_s < 200 * 0.3 / 20


@pytest.mark.parametrize("capacity", [1, 2, 8])
def test_pages_do_not_wait_in_a_queue_of_a_service_with_a_small_capacity(capacity: int) -> None:
    limit = build_page_limit()

    took_s, _ = PageService(0.1, capacity=capacity).fetch(limit, 400)

    assert took_s < 1.05 * 400 * 0.1 / capacity
    assert 5 <= limit.allowed <= max(5, 2 * capacity)


@pytest.mark.parametrize("refuses_above", [1, 2, 3, 10])
def test_a_service_that_refuses_pages_is_kept_busy_and_seldom_refuses(refuses_above: int) -> None:
    limit = build_page_limit()

    took_s, refused = PageService(0.1, refuses_above=refuses_above).fetch(limit, 400)

    assert limit.allowed <= refuses_above + 1
    assert refused < 40
    assert took_s < 2 * 400 * 0.1 / refuses_above


def test_a_refusal_of_a_request_from_before_the_last_fall_does_not_count() -> None:
    limit = build_page_limit()
    limit.record_refused(0.0, 1.0)
    limit.record_refused(0.5, 1.1)

    assert limit.allowed == 4
