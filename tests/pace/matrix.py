"""The matrix of the rate controller: its cases, the simulated run of a case on virtual time, and the measurements of a
run.

The cases have all kinds of limiters and random refusals.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from heapq import heappop, heappush
from itertools import product
from math import ceil, inf, log
from random import Random
from typing import Protocol

from connector.sandbox.faults import BucketLimiter, FixedWindowLimiter, NoLimiter, RateLimiter, SlidingWindowLimiter

TWO_TOKEN_BUCKET_SPAN_S = 0.0  # stands for a bucket with two tokens
LIMITERS = (
    *(("bucket", bucket_span_s) for bucket_span_s in (TWO_TOKEN_BUCKET_SPAN_S, 0.2, 1.0, 10.0, 60.0)),
    *(("fixed window", window_s) for window_s in (1.0, 10.0, 60.0)),
    *(("sliding window", window_s) for window_s in (1.0, 10.0, 60.0)),
)
# Stands for a Retry-After that is a date: the time at which the limiter serves again, rounded up to whole seconds.
DATE_PAUSE = -1.0
PAUSES = (None, 1.0, 5.0, 30.0, DATE_PAUSE)
RATES = (5.0, 50.0, 500.0)
ROUND_TRIPS_S = (0.02, 0.3)
ONE_CLIENT, SHARED_LIMIT, CHANGED_LIMIT = "alone", "shared", "changed"
_TEXT_BY_SCENARIO = {
    ONE_CLIENT: "one client",
    SHARED_LIMIT: "another client shares the limit",
    CHANGED_LIMIT: "the limit changes",
}
SCENARIOS = (ONE_CLIENT, SHARED_LIMIT, CHANGED_LIMIT)

RUN_LENGTH_S = 1800
CHANGE_BEGIN_S = 900
CHANGE_END_S_BY_SCENARIO = {
    "shared": 1350,
    "changed": 1080,
}  # seconds until the other client stops, or the limit is doubled
FIRST_MINUTE_S = 60
RANDOM_REFUSAL_RUN_LENGTH_S = 300
"""Length of a simulated run with random refusals (s). The run is short, so that the search for the limit takes a
notable share of the run."""
RANDOM_REFUSAL_SHARES = (0.001, 0.01, 0.05)
STATUSES = (429, 503)
NO_LIMIT = "no limit"
MAX_CLIENT_RATE = 1000.0  # requests/s that a client can send to a service with random refusals
_MIN_RATE_FACTOR = 16.0  # the assumed smallest factor between the two bounds of an unknown limit
# Seconds until the first refusal of a client that begins with 20 requests/s and doubles the rate.
_FIRST_REFUSAL_AFTER_S = 0.2
_OTHER_CLIENT_SHARE = 1 / 3  # the share of the limit that another client uses
_MAX_TIMER_DELAY_S = 0.001  # the largest delay of a sender's timer
_STALL_SHARE = 0.001  # the share of the requests that leave late
_JITTER_SHARE = 0.1  # the largest random delay of an answer, as a share of the answer's travel time


class Controller(Protocol):
    """An object that decides when requests leave: a rate controller, or a client that knows the limit."""

    def admit_or_compute_wait(self, now: float) -> float:
        """Return 0 if a request may leave now, otherwise the seconds to wait."""

    def record_served_request(self, sent_at: float, now: float) -> None:
        """Record that the request was served."""

    def record_refusal(self, sent_at: float, now: float, retry_after_s: float | None) -> None:
        """Record that the request was refused because of the rate."""


@dataclass(frozen=True, slots=True)
class Case:
    """A limiter, the pause that its refusals ask for, the limit (requests/s), the round trip, and the scenario. The
    scenario says whether another client shares the limit, or the limit changes.

    `limiter_span_s` is the window of the limiter, or the time in which an empty bucket becomes full.
    `random_refusal_share` is the share of requests that is refused at random with `status`. The limiter does not count
    these requests.
    """

    limiter_kind: str
    limiter_span_s: float
    pause_s: float | None
    rate: float
    round_trip_s: float
    scenario: str = ONE_CLIENT
    random_refusal_share: float = 0.0
    status: int = 429

    def __str__(self) -> str:
        span_text = (
            ""
            if self.limiter_kind == NO_LIMIT
            else " of two tokens"
            if self.limiter_span_s == TWO_TOKEN_BUCKET_SPAN_S
            else f" of {self.limiter_span_s:g} s"
        )
        pause_text = (
            "no Retry-After"
            if self.pause_s is None
            else "Retry-After as a date"
            if self.pause_s == DATE_PAUSE
            else f"pause of {self.pause_s:g} s"
        )
        rate_text = (
            f"at most {self.rate:g} requests/s sent" if self.limiter_kind == NO_LIMIT else f"limit {self.rate:g}/s"
        )
        scenario_text = (
            f"{self.random_refusal_share:.1%} refused at random with {self.status}"
            if self.random_refusal_share
            else _TEXT_BY_SCENARIO[self.scenario]
        )
        return (
            f"{self.limiter_kind}{span_text}, {rate_text}, {pause_text}, "
            f"round trip {1000 * self.round_trip_s:g} ms, {scenario_text}"
        )

    @property
    def expected_pause_s(self) -> float:
        """The pause after a refusal (s). If Retry-After is a date, the pause is the whole window for a fixed-window
        limiter, and one second for other limiters."""
        if self.pause_s == DATE_PAUSE:
            return self.limiter_span_s if self.limiter_kind == "fixed window" else 1.0
        return self.pause_s or 0.0

    def build_limiter(self, rate: float) -> RateLimiter:
        """Return the limiter with this limit."""
        if self.limiter_kind == NO_LIMIT:
            return NoLimiter()
        if self.limiter_kind == "bucket":
            return BucketLimiter(rate, max(2, round(rate * self.limiter_span_s)))
        return (FixedWindowLimiter if self.limiter_kind == "fixed window" else SlidingWindowLimiter)(
            rate, self.limiter_span_s
        )


def list_cases() -> Iterator[Case]:
    """Yield all cases of the matrix."""
    for (limiter_kind, limiter_span_s), pause_s, rate, round_trip_s, scenario in product(
        LIMITERS, PAUSES, RATES, ROUND_TRIPS_S, SCENARIOS
    ):
        yield Case(limiter_kind, limiter_span_s, pause_s, rate, round_trip_s, scenario)


def list_random_refusal_cases() -> Iterator[Case]:
    """Yield the cases with random refusals, without a limit or with a bucket of 500 requests/s."""
    for random_refusal_share, status, pause_s, has_limit in product(
        RANDOM_REFUSAL_SHARES, STATUSES, (None, 1.0, 5.0), (False, True)
    ):
        limiter_kind, limiter_span_s, rate = ("bucket", 1.0, 500.0) if has_limit else (NO_LIMIT, 0.0, MAX_CLIENT_RATE)
        yield Case(
            limiter_kind,
            limiter_span_s,
            pause_s,
            rate,
            ROUND_TRIPS_S[0],
            random_refusal_share=random_refusal_share,
            status=status,
        )


@dataclass(frozen=True, slots=True)
class RunCounts:
    """The counts of a simulated run. In each list, the value with index 7 is about the requests that were sent between
    7 s and 8 s. `longest_pauses_s` has the longest pause that a refusal asked for. `sent_in_pause_count` is the number
    of requests that were sent during a pause that the client knew."""

    served_counts: list[int]
    refused_counts: list[int]
    longest_pauses_s: list[float]
    served_counts_of_other_client: list[int]
    sent_in_pause_count: int


def simulate_run(
    case: Case, controller: Controller, seed: int = 1, length_s: int = RUN_LENGTH_S, *, stall_s: float = 0.0
) -> RunCounts:
    """Send all requests that the controller allows in `length_s` seconds. One request in a thousand is sent up to
    `stall_s` seconds late."""
    draw_random = Random(seed).random
    request_travel_s, answer_travel_s, max_jitter_s = (
        case.round_trip_s / 2,
        case.round_trip_s / 2,
        _JITTER_SHARE * case.round_trip_s / 2,
    )
    served_counts, refused_counts, served_counts_of_other_client = (
        [0] * (length_s + 1),
        [0] * (length_s + 1),
        [0] * (length_s + 1),
    )
    longest_pauses_s = [0.0] * (length_s + 1)
    sent_times_of_travelling_requests: deque[float] = deque()
    # Each element of the heap is (time of the answer, time of sending, pause in seconds). A negative pause is a mark:
    # `served_mark` for a served request, `failed_mark` for a failed request, and -1 for a refusal without a pause.
    pending_answers: list[tuple[float, float, float]] = []
    served_mark, failed_mark = -2.0, -3.0
    min_send_interval_s = 1 / MAX_CLIENT_RATE if case.random_refusal_share else 0.0
    clock_offset_s = 100.0 * draw_random()  # so that the windows of the limiter do not begin with the run
    limiter = case.build_limiter(case.rate)
    limit_change_at = float(CHANGE_BEGIN_S) if case.scenario == CHANGED_LIMIT else inf
    next_departure_of_other_client_at = float(CHANGE_BEGIN_S) if case.scenario == SHARED_LIMIT else inf
    next_departure_at, paused_until, sent_in_pause_count = 0.0, -1.0, 0
    while True:
        next_arrival_at = (
            sent_times_of_travelling_requests[0] + request_travel_s if sent_times_of_travelling_requests else inf
        )
        next_answer_at = pending_answers[0][0] if pending_answers else inf
        now = min(next_departure_at, next_arrival_at, next_answer_at, next_departure_of_other_client_at)
        if now > length_s:
            return RunCounts(
                served_counts[:-1],
                refused_counts[:-1],
                longest_pauses_s[:-1],
                served_counts_of_other_client[:-1],
                sent_in_pause_count,
            )
        if now >= limit_change_at:
            limiter = case.build_limiter(case.rate / 2 if limit_change_at == CHANGE_BEGIN_S else case.rate)
            limit_change_at = CHANGE_END_S_BY_SCENARIO[CHANGED_LIMIT] if limit_change_at == CHANGE_BEGIN_S else inf
        if now == next_answer_at:
            _, sent_at, pause_s = heappop(pending_answers)
            if pause_s == served_mark:
                controller.record_served_request(sent_at, now)
                served_counts[int(sent_at)] += 1
            elif pause_s == failed_mark:
                controller.record_served_request(sent_at, now)  # like `RequestLimiter` for a 503 without Retry-After
            else:
                refused_counts[int(sent_at)] += 1
                if pause_s < 0:
                    controller.record_refusal(sent_at, now, None)
                else:
                    paused_until = max(paused_until, now + pause_s)
                    longest_pauses_s[int(sent_at)] = max(longest_pauses_s[int(sent_at)], pause_s)
                    controller.record_refusal(sent_at, now, pause_s)
        elif now == next_arrival_at:
            sent_at = sent_times_of_travelling_requests.popleft()
            limiter_time = now + clock_offset_s
            is_random_refusal = case.random_refusal_share > 0 and draw_random() < case.random_refusal_share
            wait_s = 0.0 if is_random_refusal else limiter.admit_or_compute_wait(limiter_time)
            # The delay is random, so answers may overtake each other.
            answered_at, pause_s = now + answer_travel_s + max_jitter_s * draw_random(), -1.0
            if is_random_refusal:
                pause_s = case.pause_s if case.pause_s is not None else failed_mark if case.status == 503 else -1.0
            elif wait_s <= 0:
                pause_s = served_mark
            elif case.pause_s == DATE_PAUSE:
                pause_s = max(ceil(limiter_time + wait_s) - clock_offset_s - answered_at, 0.0)
            elif case.pause_s is not None:
                pause_s = case.pause_s
            heappush(pending_answers, (answered_at, sent_at, pause_s))
        elif now == next_departure_at:
            wait_s = controller.admit_or_compute_wait(now)
            if wait_s > 0:
                next_departure_at = now + wait_s + _MAX_TIMER_DELAY_S * draw_random()
                if stall_s and draw_random() < _STALL_SHARE:
                    next_departure_at += stall_s * draw_random()
            else:
                sent_times_of_travelling_requests.append(now)
                next_departure_at = now + min_send_interval_s
                sent_in_pause_count += now < paused_until - 1e-6
        else:
            served_counts_of_other_client[int(now)] += limiter.admit_or_compute_wait(now + clock_offset_s) <= 0
            next_departure_of_other_client_at = now + (0.5 + draw_random()) / (case.rate * _OTHER_CLIENT_SHARE)
            if next_departure_of_other_client_at >= CHANGE_END_S_BY_SCENARIO[SHARED_LIMIT]:
                next_departure_of_other_client_at = inf


@dataclass(frozen=True, slots=True)
class Measurements:
    """The measurements of a case. Goodput is the number of served requests, divided by the number of allowed requests.

    `goodput` and `refused_share`: the goodput and the share of refused requests in the steady state.
    `goodput_beside_other_client`: the goodput while another client uses a third of the limit.
    `refused_share_under_halved_limit`: the share of refused requests after the limit was halved.
    `time_to_use_doubled_limit_s`: the seconds from the doubling of the limit until the client uses the doubled limit.
    `first_minute_goodput`: the goodput of the first minute, divided by `compute_best_first_minute_goodput`.
    `sent_in_pause_count`: the number of requests that left during a pause that the client knew.
    """

    goodput: float
    refused_share: float
    goodput_beside_other_client: float
    refused_share_under_halved_limit: float
    time_to_use_doubled_limit_s: float
    first_minute_goodput: float
    sent_in_pause_count: float


def measure(case: Case, run_counts: RunCounts) -> Measurements:
    """Return the measurements of a simulated run. The steady state begins after 300 s plus 20 times the pause."""
    steady_begin_s = min(int(300 + 20 * case.expected_pause_s), CHANGE_BEGIN_S - 1)
    steady_end_s = RUN_LENGTH_S if case.scenario == ONE_CLIENT else CHANGE_BEGIN_S
    served_count, refused_count = (
        sum(run_counts.served_counts[steady_begin_s:steady_end_s]),
        sum(run_counts.refused_counts[steady_begin_s:steady_end_s]),
    )
    goodput = served_count / (case.rate * (steady_end_s - steady_begin_s))
    goodput_beside_other_client, refused_share_under_halved_limit, time_to_use_doubled_limit_s = goodput, 0.0, 0.0
    if case.scenario == SHARED_LIMIT:
        measured_from_s, measured_until_s = (
            CHANGE_BEGIN_S + int(30 + 2 * case.expected_pause_s),
            CHANGE_END_S_BY_SCENARIO[SHARED_LIMIT],
        )
        goodput_beside_other_client = sum(run_counts.served_counts[measured_from_s:measured_until_s]) / (
            case.rate * (measured_until_s - measured_from_s)
            - sum(run_counts.served_counts_of_other_client[measured_from_s:measured_until_s])
        )
    if case.scenario == CHANGED_LIMIT:
        refused_share_under_halved_limit, time_to_use_doubled_limit_s = (
            _find_refused_share_under_halved_limit(run_counts, case),
            _find_time_to_use_doubled_limit_s(run_counts, case),
        )
    first_minute_goodput = min(
        sum(run_counts.served_counts[:FIRST_MINUTE_S])
        / (case.rate * FIRST_MINUTE_S)
        / compute_best_first_minute_goodput(case),
        1.0,
    )
    return Measurements(
        goodput,
        refused_count / max(served_count + refused_count, 1),
        goodput_beside_other_client,
        refused_share_under_halved_limit,
        time_to_use_doubled_limit_s,
        first_minute_goodput,
        run_counts.sent_in_pause_count,
    )


def compute_best_first_minute_goodput(case: Case) -> float:
    """Return the best possible goodput of the first minute for a client that does not know the limit.

    docs/explanation/pace.md (Rates that no client can reach) describes the two strategies of such a client. After its
    first refusal, the client avoids all refusals, or measures the limit by two more refusals. The result is the goodput
    of the better strategy. It includes the bursts that the limiter allows at the start and after a pause.
    """
    limiter_span_s = case.limiter_span_s if case.limiter_kind != "bucket" else max(case.limiter_span_s, 2 / case.rate)
    burst_after_pause_s = min(limiter_span_s, case.expected_pause_s)
    # The limiter serves n requests in t s, and then refuses with a pause of p s. So the limit is between n / (t + p)
    # and n / t. The factor between the two bounds is 1 + p / t.
    rate_factor = max(_MIN_RATE_FACTOR, 1 + case.expected_pause_s / max(limiter_span_s, _FIRST_REFUSAL_AFTER_S))
    time_after_one_pause_s, time_after_three_pauses_s = (
        FIRST_MINUTE_S - case.expected_pause_s,
        max(FIRST_MINUTE_S - 3 * case.expected_pause_s, 0.0),
    )
    if time_after_three_pauses_s:
        time_after_three_pauses_s += burst_after_pause_s
    return min(
        (
            limiter_span_s
            + burst_after_pause_s
            + max(time_after_one_pause_s / (1 + log(rate_factor)), time_after_three_pauses_s)
        )
        / FIRST_MINUTE_S,
        1.0,
    )


def compute_means(measurements: Sequence[Measurements]) -> Measurements:
    """Return the mean of each measurement over several simulated runs. If a run never uses the doubled limit, its
    `time_to_use_doubled_limit_s` counts as `RUN_LENGTH_S`."""
    mean_by_measurement_name = {
        measurement_field.name: sum(
            min(getattr(run_measurements, measurement_field.name), RUN_LENGTH_S) for run_measurements in measurements
        )
        / len(measurements)
        for measurement_field in fields(Measurements)
    }
    return Measurements(**mean_by_measurement_name)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds that the measurements of a case must keep."""

    min_goodput: float
    max_refused_share: float
    max_refused_share_under_halved_limit: float
    max_time_to_use_doubled_limit_s: float

    def list_broken_bounds(self, case: Case, measurements: Measurements) -> list[str]:
        """Return a text for each bound that the measurements of the case break."""
        broken_bounds = []
        if case.scenario == ONE_CLIENT and measurements.goodput < self.min_goodput - _ROUNDING_TOLERANCE:
            broken_bounds.append(f"goodput {measurements.goodput:.1%} (minimum {self.min_goodput:.0%})")
        if case.scenario == ONE_CLIENT and measurements.refused_share > self.max_refused_share + _ROUNDING_TOLERANCE:
            broken_bounds.append(f"{measurements.refused_share:.1%} refused (maximum {self.max_refused_share:.0%})")
        max_refused_share = self.max_refused_share_under_halved_limit
        if measurements.refused_share_under_halved_limit > max_refused_share + _ROUNDING_TOLERANCE:
            broken_bounds.append(
                f"{measurements.refused_share_under_halved_limit:.1%} refused under the halved limit "
                f"(maximum {max_refused_share:.0%})"
            )
        if measurements.time_to_use_doubled_limit_s > self.max_time_to_use_doubled_limit_s:
            broken_bounds.append(
                f"doubled limit used after {measurements.time_to_use_doubled_limit_s:.0f} s "
                f"(maximum {self.max_time_to_use_doubled_limit_s:.0f} s)"
            )
        if measurements.sent_in_pause_count:
            broken_bounds.append(f"{measurements.sent_in_pause_count:g} requests sent inside a pause (maximum 0)")
        return broken_bounds


_ROUNDING_TOLERANCE = 0.0005


def choose_bounds(case: Case) -> Bounds:
    """Return the bounds of a case (docs/pace.md). The time until a doubled limit is used may be 90 s, 40 pauses or six
    windows, whichever is longest."""
    window_s = case.limiter_span_s if case.limiter_kind != "bucket" else 0.0
    return Bounds(0.85, 0.03, 0.10, max(90.0, 40 * (case.pause_s or 0.0), 6 * window_s))


_MIN_PERIOD_S = 10


def _find_refused_share_under_halved_limit(run_counts: RunCounts, case: Case) -> float:
    """Return the share of refused requests after the limit was halved and the client has learned the new limit.

    The client begins to learn at the first refusal, because a limiter may first allow a burst. The learning takes two
    pauses plus 30 s. If two windows are longer than 30 s, the learning takes two pauses plus two windows."""
    end_s = CHANGE_END_S_BY_SCENARIO[CHANGED_LIMIT]
    first_refusal_s = next(
        (second for second in range(CHANGE_BEGIN_S, end_s) if run_counts.refused_counts[second]), end_s
    )
    two_windows_s = 2 * case.limiter_span_s if case.limiter_kind != "bucket" else 0.0
    learned_at_s = min(
        int(first_refusal_s + max(30, two_windows_s) + 2 * run_counts.longest_pauses_s[first_refusal_s]), end_s
    )
    refused_count = sum(run_counts.refused_counts[learned_at_s:end_s])
    return refused_count / max(refused_count + sum(run_counts.served_counts[learned_at_s:end_s]), 1)


def _find_time_to_use_doubled_limit_s(run_counts: RunCounts, case: Case) -> float:
    """Return the seconds from the doubling to the first period in which the client uses 90 % of the doubled limit."""
    length_s = max(_MIN_PERIOD_S, int(case.limiter_span_s) if case.limiter_kind != "bucket" else 0)
    for begin_s in range(CHANGE_END_S_BY_SCENARIO[CHANGED_LIMIT], RUN_LENGTH_S - length_s):
        if sum(run_counts.served_counts[begin_s : begin_s + length_s]) >= 0.9 * case.rate * length_s:
            return begin_s - CHANGE_END_S_BY_SCENARIO[CHANGED_LIMIT]
    return inf
