"""The limit of requests in flight is between 1 and the ceiling. The limit grows only if more than half of the limit is
used."""

import heapq
from dataclasses import dataclass

import pytest

from connector.pace.concurrency import ConcurrencyLimit


def record_answers(
    limit: ConcurrencyLimit, round_trip_s: float, answer_count: int, *, start_time: float = 0.0, used_share: float = 1.0
) -> float:
    """Record `answer_count` answers, each `round_trip_s` seconds after its request. The requests in flight use
    `used_share` of the limit. Return the time of the last answer."""
    now = start_time
    for _ in range(answer_count):
        in_flight = max(1, int(used_share * limit.allowed_count))
        now += round_trip_s / in_flight
        limit.record_answer(now - round_trip_s, now, in_flight)
    return now


@pytest.mark.parametrize(("ceiling", "expected_limit"), [(0, 1), (1, 1), (10, 10), (64, 16), (512, 16)])
def test_the_limit_begins_at_16_unless_the_ceiling_is_lower(ceiling: int, expected_limit: int) -> None:
    assert ConcurrencyLimit(ceiling).allowed_count == expected_limit


@pytest.mark.parametrize("ceiling", [1, 5, 100, 512])
def test_fast_answers_raise_the_limit_to_the_ceiling(ceiling: int) -> None:
    limit, now, highest_limit = ConcurrencyLimit(ceiling), 0.0, 0

    for _ in range(200):
        now = record_answers(limit, 0.1, 50, start_time=now)
        highest_limit = max(highest_limit, limit.allowed_count)

    assert limit.allowed_count == highest_limit == ceiling


def test_the_first_slow_round_ends_the_doubling_of_the_limit() -> None:
    limit = ConcurrencyLimit(10_000)

    now = record_answers(limit, 0.1, 1000)
    doubled_limit = limit.allowed_count
    now = record_answers(limit, 0.2, 1000, start_time=now, used_share=0.5)  # a round with slow answers
    limit_before = limit.allowed_count
    record_answers(limit, 0.1, 8 * limit_before, start_time=now)

    assert doubled_limit >= 512
    assert 1.2 * limit_before < limit.allowed_count <= 1.8 * limit_before


def test_the_limit_does_not_grow_while_half_of_the_limit_is_unused() -> None:
    limit = ConcurrencyLimit(512)

    record_answers(limit, 0.1, 10_000, used_share=0.5)

    assert limit.allowed_count == 16


@pytest.mark.parametrize("slowdown_factor", [1.5, 4, 100, 10_000])
def test_slow_round_trips_lower_the_limit_but_not_below_one(slowdown_factor: float) -> None:
    limit, lowest_limit = ConcurrencyLimit(512), 512
    now = record_answers(limit, 0.1, 1000)
    limit_before = limit.allowed_count

    for _ in range(200):
        now = record_answers(limit, 0.1 * slowdown_factor, 50, start_time=now, used_share=0.5)
        lowest_limit = min(lowest_limit, limit.allowed_count)

    assert 1 <= lowest_limit <= limit_before / min(slowdown_factor, 1.2)


@pytest.mark.parametrize("noise_s", [0.0, 0.002])
def test_milliseconds_of_noise_on_short_round_trips_do_not_lower_the_limit(noise_s: float) -> None:
    limit = ConcurrencyLimit(128)
    now = record_answers(limit, 0.002, 5000)

    record_answers(limit, 0.002 + noise_s, 5000, start_time=now)

    assert limit.allowed_count == 128


def test_answers_to_requests_of_an_earlier_round_do_not_count() -> None:
    limit = ConcurrencyLimit(128)
    now = record_answers(limit, 0.1, 5000)

    for index in range(1000):
        limit.record_answer(now - 50, now + index / 1000, limit.allowed_count)

    assert limit.allowed_count == 128


def test_the_limit_returns_to_its_ceiling_even_if_the_service_stays_slower() -> None:
    """A lower limit does not make the answers faster. So the number of requests in flight is not the cause of the slow
    answers, and the limit grows again."""
    limit = ConcurrencyLimit(128)
    now = record_answers(limit, 0.05, 5000)

    record_answers(limit, 0.2, 5000, start_time=now)

    assert limit.allowed_count == 128


def build_page_concurrency_limit() -> ConcurrencyLimit:
    """Return the limit for pages of the list. The limit begins at eight, and a round has at least four answers."""
    return ConcurrencyLimit(32, first_limit=8, min_limit_in_slow_rounds=5, min_answers_in_round=4)


@dataclass(slots=True)
class PageService:
    """A service that makes a page in `latency_s`, and at most `capacity` pages at a time. The service refuses a request
    if `refusal_threshold` requests are in flight."""

    latency_s: float
    capacity: int = 1000
    refusal_threshold: int = 1000

    def fetch_pages(self, limit: ConcurrencyLimit, page_count: int) -> tuple[float, int]:
        """Fetch pages in virtual time within the limit. Return the seconds, and the number of refused requests."""
        now, refused_count, answered_count = 0.0, 0, 0
        in_flight: list[tuple[float, float, bool]] = []  # (time of the answer, time of sending, whether refused)
        worker_free_times = [0.0] * self.capacity
        while answered_count < page_count:
            while len(in_flight) < limit.allowed_count:
                if len(in_flight) >= self.refusal_threshold:
                    heapq.heappush(in_flight, (now + 0.01, now, True))
                    continue
                ready_at = max(now, heapq.heappop(worker_free_times)) + self.latency_s
                heapq.heappush(worker_free_times, ready_at)
                heapq.heappush(in_flight, (ready_at, now, False))
            answered_at, sent_at, is_refused = in_flight[0]
            now = answered_at
            if is_refused:
                refused_count += 1
                limit.record_refusal(sent_at, now)
            else:
                answered_count += 1
                limit.record_answer(sent_at, now, len(in_flight))
            heapq.heappop(in_flight)
        return now, refused_count


def test_the_limit_soon_allows_32_pages_in_flight_for_a_slow_service() -> None:
    limit = build_page_concurrency_limit()

    duration_s, _ = PageService(latency_s=0.3).fetch_pages(limit, 200)

    assert limit.allowed_count == 32
    assert duration_s < 200 * 0.3 / 20


@pytest.mark.parametrize("capacity", [1, 2, 8])
def test_few_pages_wait_at_a_service_with_a_small_capacity(capacity: int) -> None:
    limit = build_page_concurrency_limit()

    duration_s, _ = PageService(0.1, capacity=capacity).fetch_pages(limit, 400)

    assert duration_s < 1.05 * 400 * 0.1 / capacity
    assert 5 <= limit.allowed_count <= max(5, 2 * capacity)


@pytest.mark.parametrize("refusal_threshold", [1, 2, 3, 10])
def test_a_service_with_a_refusal_threshold_is_kept_busy_with_few_refusals(refusal_threshold: int) -> None:
    limit = build_page_concurrency_limit()

    duration_s, refused_count = PageService(0.1, refusal_threshold=refusal_threshold).fetch_pages(limit, 400)

    assert limit.allowed_count <= refusal_threshold + 1
    assert refused_count < 40
    assert duration_s < 2 * 400 * 0.1 / refusal_threshold


def test_a_refusal_does_not_lower_the_limit_if_its_request_was_sent_before_the_last_cut() -> None:
    limit = build_page_concurrency_limit()
    limit.record_refusal(0.0, 1.0)
    limit.record_refusal(0.5, 1.1)

    assert limit.allowed_count == 4
