"""Single properties of the rate controller. `test_matrix.py` tests the whole controller."""

from itertools import pairwise
from math import inf

import pytest

from connector.pace.rate import FoundLimit, RateController
from tests.pace.clients import RateOnlyClient
from tests.pace.world import LimitedService, count_requests, simulate_client

ROUND_TRIP_S = 0.1
IDLE_S = 600.0
BURST_S = 0.006  # a sender may wake up this many seconds late; then it sends the missed requests at the same time


def build_controller_with_found_limit(rate: float) -> RateController:
    """Return a controller that has found the limit `rate` of a token bucket. Its last call is at 30 s."""
    client = RateOnlyClient()
    simulate_client(client, LimitedService([(0, rate)], ROUND_TRIP_S), 30.0, seed=1)
    # the controller may test a rate above the limit, or has just begun to raise the rate again
    assert 0.5 * rate <= client.rate_controller.rate <= 1.25 * rate
    return client.rate_controller


def count_admitted(controller: RateController, now: float) -> int:
    """Return the number of requests that leave at this moment."""
    request_count = 0
    while controller.admit_or_compute_wait(now) == 0:
        request_count += 1
        assert request_count < 10_000
    return request_count


@pytest.mark.parametrize("now", [0.0, 123.4, 1e7])
@pytest.mark.parametrize("ceiling", [inf, 50.0, 0.5])
def test_the_wait_before_the_second_request_follows_from_the_initial_rate_or_a_lower_ceiling(
    now: float, ceiling: float
) -> None:
    controller = RateController(ceiling)

    assert controller.admit_or_compute_wait(now) == 0
    assert controller.admit_or_compute_wait(now) == pytest.approx(1 / min(20, ceiling), abs=BURST_S)


@pytest.mark.parametrize("ceiling", [0.5, 5.0, 300.0])
@pytest.mark.parametrize("limit", [inf, 100.0])
def test_the_ceiling_is_never_exceeded(ceiling: float, limit: float) -> None:
    client = RateOnlyClient(RateController(ceiling))

    requests = simulate_client(client, LimitedService([(0, limit)], ROUND_TRIP_S), 60, seed=1)

    for second in range(59):
        sent_count = sum(second <= request.sent_at < second + 1 for request in requests)
        assert sent_count <= ceiling * (1 + BURST_S) + 1
    assert client.rate_controller.rate <= ceiling
    assert count_requests(requests, min(ceiling, limit), 20, 59).goodput >= 0.95


@pytest.mark.parametrize("rate", [5.0, 100.0, 2000.0])
def test_a_sender_sends_no_large_burst_after_an_idle_time(rate: float) -> None:
    controller = build_controller_with_found_limit(rate)

    assert count_admitted(controller, 30.0 + IDLE_S) <= 1 + 1.1 * rate * BURST_S


def test_a_small_number_of_requests_does_not_raise_the_rate_before_a_limit_is_known() -> None:
    controller = RateController()

    for second in range(1000):
        assert controller.admit_or_compute_wait(second) == 0
        controller.record_served_request(second, second + ROUND_TRIP_S)

    # The first answer raises the rate, because the controller does not know yet that few requests are sent.
    assert controller.rate <= 30


def test_the_rate_does_not_grow_beyond_a_known_limit_while_few_requests_are_sent() -> None:
    controller = build_controller_with_found_limit(100)

    for second in range(31, 1031):
        assert controller.admit_or_compute_wait(second) == 0
        controller.record_served_request(second, second + ROUND_TRIP_S)

    assert controller.rate <= 1.4 * 100


def test_refusals_do_not_cut_the_rate_again_if_their_requests_preceded_the_last_cut() -> None:
    rate_cut_times = list[float]()

    class RecordingClient(RateOnlyClient):
        def admit_or_compute_wait(self, now: float) -> float:
            previous_rate = self.rate_controller.rate
            wait_s = super().admit_or_compute_wait(now)
            if self.rate_controller.rate < previous_rate:
                rate_cut_times.append(now)
            return wait_s

    round_trip_s = 1.0
    requests = simulate_client(RecordingClient(), LimitedService([(0, 100)], round_trip_s), 15, seed=1)

    late_refusals = [
        request
        for request in requests
        if request.sent_at < rate_cut_times[0] < request.answered_at and not request.is_served
    ]
    assert len(late_refusals) > 50, "too few refusals arrive after the rate was cut"
    assert all(next_cut_at - cut_at >= 0.9 * round_trip_s for cut_at, next_cut_at in pairwise(rate_cut_times))


@pytest.mark.parametrize("seed", range(1, 4))
def test_the_controller_follows_a_temporary_fall_of_the_limit(seed: int) -> None:
    client = RateOnlyClient()
    service = LimitedService([(0, 100), (30, 25), (60, 100)], ROUND_TRIP_S)

    requests = simulate_client(client, service, 150, seed)

    assert count_requests(requests, 100, 20, 30).goodput > 0.95
    assert 0.95 < count_requests(requests, 25, 40, 60).goodput < 1.05
    assert count_requests(requests, 100, 125, 149).goodput > 0.95


@pytest.mark.parametrize("pause_s", [0.5, 30.0, 3600.0])
def test_the_next_request_leaves_at_the_end_of_a_pause(pause_s: float) -> None:
    controller = build_controller_with_found_limit(100)
    controller.record_refusal(29.9, 30.0, pause_s)

    for pause_share in (0.0, 0.3, 0.99):
        now = 30.0 + pause_share * pause_s
        assert controller.admit_or_compute_wait(now) == pytest.approx(30.0 + pause_s - now)
    assert 1 <= count_admitted(controller, 30.0 + pause_s) <= 2


@pytest.mark.parametrize("is_limit_known", [False, True])
def test_a_page_waits_for_the_end_of_a_pause(is_limit_known: bool) -> None:
    controller = build_controller_with_found_limit(100) if is_limit_known else RateController()
    controller.record_refusal(29.9, 30.0, retry_after_s=5.0)

    assert 31.0 + controller.reserve_departure(31.0) >= 35.0


@pytest.mark.parametrize("pause_s", [0.5, 1.0, 30.0])
def test_after_the_first_refusals_a_request_waits_little_longer_than_the_pause(pause_s: float) -> None:
    controller, now = RateController(), 0.0
    for index in range(4):
        pause_ended_at = now
        while (wait_s := controller.admit_or_compute_wait(now)) > 0:
            now += wait_s
        assert index == 0 or now - pause_ended_at <= max(pause_s, 1.0) + ROUND_TRIP_S
        controller.record_refusal(now, now + ROUND_TRIP_S, pause_s)
        now += ROUND_TRIP_S + pause_s


def test_one_probe_leaves_each_second_while_all_requests_are_refused() -> None:
    service = LimitedService([(0, 100), (30, 1e-6), (150, 100)], ROUND_TRIP_S)

    requests = simulate_client(RateOnlyClient(), service, 170, seed=1)

    assert 90 <= count_requests(requests, 100, 35, 150).refused_count <= 120
    assert count_requests(requests, 100, 150, 152).served_count >= 1
    assert count_requests(requests, 100, 152, 170).goodput >= 0.2


def test_the_wait_after_a_thousand_refusals_in_a_row_is_at_most_one_second() -> None:
    controller, now = RateController(), 0.0
    for _ in range(1100):
        while (wait_s := controller.admit_or_compute_wait(now)) > 0:
            now += wait_s
        controller.record_refusal(now, now + ROUND_TRIP_S)
        now += ROUND_TRIP_S

    assert 0 < controller.admit_or_compute_wait(now) <= 1


def test_the_rate_recovers_soon_after_a_short_outage() -> None:
    service = LimitedService([(0, 100), (30, 1e-6), (33, 100)], ROUND_TRIP_S)

    requests = simulate_client(RateOnlyClient(), service, 90, seed=1)

    assert count_requests(requests, 100, 35, 90).goodput >= 0.75


@pytest.mark.parametrize("retry_after_s", [None, 1.0])
def test_an_outage_at_the_start_does_not_discard_the_limit_of_the_last_run(
    retry_after_s: float | None,
) -> None:
    service = LimitedService([(0, 1e-6), (2, 100)], ROUND_TRIP_S, retry_after_s=retry_after_s)
    found_limit = FoundLimit(95, 105, retry_after_s or 0.0, 0)

    requests = simulate_client(RateOnlyClient(RateController(found_limit=found_limit)), service, 40, seed=1)

    assert count_requests(requests, 100, 10, 40).goodput >= 0.5


@pytest.mark.parametrize("pause_s", [0.0, 1.0, 30.0])
@pytest.mark.parametrize("day_count", [7, 30, 3650])
@pytest.mark.parametrize("rate", [2.0, 100.0])
def test_an_old_limit_slows_a_run_for_less_than_30_seconds(rate: float, day_count: int, pause_s: float) -> None:
    found_limit = FoundLimit(0.95 * rate, 1.05 * rate, pause_s, 0)
    client = RateOnlyClient(RateController(found_limit=found_limit, found_limit_age_s=day_count * 86_400.0))

    requests = simulate_client(
        client, LimitedService([(0, rate)], ROUND_TRIP_S, retry_after_s=pause_s or None), 30, seed=1
    )

    assert count_requests(requests, rate, 0, 30).goodput >= 0.25


def test_daily_runs_without_a_refusal_do_not_change_the_found_limit() -> None:
    found_limit, found_on_day = FoundLimit(95.0, 105.0, 30.0, 0.0), 0
    for day in range(1, 21):
        controller = RateController(found_limit=found_limit, found_limit_age_s=86_400.0 * (day - found_on_day))
        assert controller.rate >= 20
        simulate_client(RateOnlyClient(controller), LimitedService([(0, inf)], ROUND_TRIP_S), 1, seed=day)
        if controller.is_limit_measured:
            assert controller.found_limit is not None
            found_limit, found_on_day = controller.found_limit, day


def test_a_limit_found_by_page_requests_is_at_most_twice_their_rate() -> None:
    controller = RateController()
    for page_index in range(600):  # ten pages a second; the search for the limit does not delay pages
        assert controller.reserve_departure(page_index / 10) == 0
        controller.record_served_request(page_index / 10, page_index / 10 + ROUND_TRIP_S)
    assert controller.rate < 100, "the page requests have raised the rate of creates too far"
    controller.record_refusal(60.0, 60.1, retry_after_s=5.0)
    assert controller.reserve_departure(65.2) >= 0
    assert controller.found_limit is not None
    assert controller.found_limit.ramp_end_rate <= 20


def test_a_random_refusal_does_not_raise_the_lower_bound_of_a_limit() -> None:
    controller = RateController(ceiling=50)

    def send_when_admitted(now: float) -> float:
        while (wait_s := controller.admit_or_compute_wait(now)) > 0:
            now += wait_s
        return now

    sent_at = [send_when_admitted(0.0)]
    for _ in range(3):
        sent_at.append(send_when_admitted(sent_at[-1]))
    controller.record_refusal(sent_at[0], sent_at[-1] + 0.1, retry_after_s=1.0)
    # The limiter serves the next requests, so the refusal was random.
    for request_sent_at in sent_at[1:]:
        controller.record_served_request(request_sent_at, sent_at[-1] + 0.15)
    now = sent_at[-1] + 1.2
    for _ in range(150):
        now = send_when_admitted(now)
        controller.record_served_request(now, now + ROUND_TRIP_S)
    controller.record_refusal(send_when_admitted(now), now + ROUND_TRIP_S, retry_after_s=2.5)

    assert controller.found_limit is not None
    mean_of_bounds = (150 / 5.5 * 50) ** 0.5
    assert controller.found_limit.ramp_start_rate == pytest.approx(mean_of_bounds, rel=0.1)
