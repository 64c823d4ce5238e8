"""The breaker: when a run sends probes to a service that does not answer, and when the run gives up."""

from math import inf

import pytest

from connector.pace.pace import Breaker


def build_open_breaker(failed_at: float = 0.0) -> Breaker:
    breaker = Breaker()
    for _ in range(10):
        breaker.record_failure(failed_at, failed_at)
    return breaker


@pytest.mark.parametrize(("failure_count", "is_open"), [(0, False), (9, False), (10, True)])
def test_the_breaker_opens_after_ten_failures_in_a_row(failure_count: int, is_open: bool) -> None:
    breaker = Breaker()
    for _ in range(failure_count):
        breaker.record_failure(0.0, 1.0)
    assert breaker.is_open is is_open
    assert (breaker.compute_wait_s(1.0) == 0) is not is_open


def test_one_answer_among_failures_keeps_the_breaker_closed() -> None:
    breaker = Breaker()
    for _ in range(3):
        for _ in range(9):
            breaker.record_failure(0.0, 1.0)
        breaker.record_answer()
    assert not breaker.is_open


def test_an_open_breaker_allows_one_probe_at_a_time() -> None:
    breaker = build_open_breaker()
    assert [breaker.compute_wait_s(now) for now in (0.5, 1.0, 1.0)] == [0.5, 0.0, 0.0]
    breaker.record_departure(1.0)
    assert breaker.compute_wait_s(1.0) == inf
    breaker.record_answer()
    assert breaker.compute_wait_s(1.0) == 0.0


def test_each_failed_probe_leads_to_a_longer_wait() -> None:
    breaker, now, waits_s = build_open_breaker(), 0.0, []
    for _ in range(7):
        waits_s.append(breaker.compute_wait_s(now))
        now += waits_s[-1]
        breaker.record_departure(now)
        breaker.record_failure(now, now)
    assert waits_s == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0]


def test_a_failed_request_does_not_count_as_a_probe_if_it_was_sent_before_the_opening() -> None:
    breaker = build_open_breaker(failed_at=5.0)
    breaker.record_departure(6.0)
    breaker.record_failure(4.0, 6.5)
    assert breaker.compute_wait_s(7.0) == inf
    breaker.record_failure(6.0, 7.0)
    assert breaker.compute_wait_s(7.0) == 2.0


def test_an_inconclusive_probe_is_followed_by_another_probe() -> None:
    breaker = build_open_breaker()
    breaker.record_departure(1.0)
    breaker.record_inconclusive_attempt(1.0)
    assert (breaker.is_open, breaker.compute_wait_s(1.0)) == (True, 0.0)


@pytest.mark.parametrize(
    ("failure_times", "has_given_up"),
    [
        ([0.0, 59.0], False),
        ([0.0, 60.0], False),  # no request was sent between the two failures
        ([60.0], False),
        ([0.0, 20.0, 40.0, 60.0], True),
        ([0.0, 20.0, 40.0, 70.0, 90.0], False),
    ],
)
def test_the_breaker_gives_up_after_a_minute_without_an_answer(failure_times: list[float], has_given_up: bool) -> None:
    breaker = Breaker()
    for failed_at in failure_times:
        breaker.record_failure(failed_at, failed_at)
    assert breaker.has_given_up(failure_times[-1]) is has_given_up


def test_the_minute_without_an_answer_starts_again_after_an_answer() -> None:
    breaker = Breaker()
    breaker.record_failure(0.0, 0.0)
    breaker.record_answer()
    breaker.record_failure(50.0, 50.0)
    breaker.record_failure(70.0, 70.0)
    assert not breaker.has_given_up(70.0)


@pytest.mark.parametrize(
    ("refusal_times", "must_end"),
    [([0.0, 218.0], False), ([0.0, 170.0, 179.0], False), ([0.0, 100.0, 181.0], True)],
    ids=["two refusals", "three refusals in less than three minutes", "three refusals in more than three minutes"],
)
def test_the_run_ends_if_all_answers_of_three_minutes_are_429(refusal_times: list[float], must_end: bool) -> None:
    breaker = Breaker()
    assert [breaker.record_rate_limited_request(refusal_time) for refusal_time in refusal_times][-1] is must_end
    breaker.record_answer()
    assert not breaker.record_rate_limited_request(1000.0)
