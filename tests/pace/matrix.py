"""The matrix of the rate controller: its cells, the simulated run of a cell on virtual time, and the measurements of a
run.

The cells have all kinds of limiters and random refusals.
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

TWO_TOKENS_SPAN_S = 0.0
LIMITERS = (
    *(("bucket", depth_s) for depth_s in (TWO_TOKENS_SPAN_S, 0.2, 1.0, 10.0, 60.0)),
    *(("fixed window", window_s) for window_s in (1.0, 10.0, 60.0)),
    *(("sliding window", window_s) for window_s in (1.0, 10.0, 60.0)),
)
DATE_PAUSE = -1.0  # stands for a Retry-After with the date at which the limiter serves again, in whole seconds
PAUSES = (None, 1.0, 5.0, 30.0, DATE_PAUSE)
RATES = (5.0, 50.0, 500.0)
ROUND_TRIPS_S = (0.02, 0.3)
ALONE, SHARED, CHANGED = "alone", "shared", "changed"
SCENARIOS = (ALONE, SHARED, CHANGED)

RUN_LENGTH_S = 1800
CHANGE_BEGIN_S = 900
CHANGE_END_S_BY_SCENARIO = {"shared": 1350, "changed": 1080}  # seconds until the other client or the halved limit ends
FIRST_MINUTE_S = 60
"""Seconds of the first minute of a first run."""
CHANCE_RUN_LENGTH_S = 300
"""Seconds of a simulated run of a chance cell. The run is short, so that the search for the limit counts as well."""
RANDOM_REFUSAL_SHARES = (0.001, 0.01, 0.05)
STATUSES = (429, 503)
NO_LIMIT = "no limit"
MAX_CLIENT_RATE = 1000.0  # requests/s that the client of a chance cell can send
_MAX_RATE_FACTOR = 16.0  # the largest ratio of the first refused rate to the limit
_SEARCH_S = 0.2  # seconds until the first refusal of a client that begins with 20 requests/s and doubles the rate
_OTHER_CLIENT_SHARE = 1 / 3  # the share of the limit that another client uses
_MAX_TIMER_DELAY_S = 0.001  # the largest delay of a sender's timer
_STALL_SHARE = 0.001  # the share of the requests that leave late
_JITTER_SHARE = 0.1  # the largest random delay of an answer, as a share of the time for which the answer travels


class Controller(Protocol):
    """A rate controller, or another client whose run in a cell can be simulated."""

    def admit_or_compute_wait(self, now: float) -> float:
        """Return 0 if a request may leave now, otherwise the seconds to wait."""

    def record_served(self, sent_at: float, now: float) -> None:
        """Record that the request was served."""

    def record_refusal(self, sent_at: float, now: float, retry_after_s: float | None) -> None:
        """Record that the request was refused because of the rate."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A limiter, the pause that its refusals ask for, the limit (requests/s), the round trip, and the scenario. The
    scenario says whether another client shares the limit, or the limit changes.

    `random_refusal_share` is the share of requests that is refused at random with `status`. The limiter does not count
    these requests.
    """

    limiter_kind: str
    span_s: float
    pause_s: float | None
    rate: float
    round_trip_s: float
    scenario: str = ALONE
    random_refusal_share: float = 0.0
    status: int = 429

    def __str__(self) -> str:
        span_text = (
            ""
            if self.limiter_kind == NO_LIMIT
            else " two tokens"
            if self.span_s == TWO_TOKENS_SPAN_S
            else f" {self.span_s:g} s"
        )
        pause_text = {None: "none", DATE_PAUSE: "date"}.get(self.pause_s, f"{self.pause_s} s")
        scenario_text = (
            f"{self.random_refusal_share:.1%} refused with {self.status}"
            if self.random_refusal_share
            else self.scenario
        )
        return (
            f"{self.limiter_kind}{span_text}, pause {pause_text}, {self.rate:g}/s, {1000 * self.round_trip_s:g} ms, "
            f"{scenario_text}"
        )

    @property
    def expected_pause_s(self) -> float:
        """The pause after a refusal in seconds. For a date, the length of a fixed window, or one second."""
        if self.pause_s == DATE_PAUSE:
            return self.span_s if self.limiter_kind == "fixed window" else 1.0
        return self.pause_s or 0.0

    def build_limiter(self, rate: float) -> RateLimiter:
        """Return the limiter with this limit."""
        if self.limiter_kind == NO_LIMIT:
            return NoLimiter()
        if self.limiter_kind == "bucket":
            return BucketLimiter(rate, max(2, round(rate * self.span_s)))
        return (FixedWindowLimiter if self.limiter_kind == "fixed window" else SlidingWindowLimiter)(rate, self.span_s)


def list_cells() -> Iterator[Cell]:
    """Yield all cells of the matrix."""
    for (limiter_kind, span_s), pause_s, rate, round_trip_s, scenario in product(
        LIMITERS, PAUSES, RATES, ROUND_TRIPS_S, SCENARIOS
    ):
        yield Cell(limiter_kind, span_s, pause_s, rate, round_trip_s, scenario)


def list_chance_cells() -> Iterator[Cell]:
    """Yield the cells with random refusals, without a limit or with a bucket of 500 requests/s."""
    for random_refusal_share, status, pause_s, has_limit in product(
        RANDOM_REFUSAL_SHARES, STATUSES, (None, 1.0, 5.0), (False, True)
    ):
        limiter_kind, span_s, rate = ("bucket", 1.0, 500.0) if has_limit else (NO_LIMIT, 0.0, MAX_CLIENT_RATE)
        yield Cell(
            limiter_kind,
            span_s,
            pause_s,
            rate,
            ROUND_TRIPS_S[0],
            random_refusal_share=random_refusal_share,
            status=status,
        )


@dataclass(frozen=True, slots=True)
class RunCounts:
    """The counts of a simulated run by the second of sending: served requests, refused requests, the longest pause (s),
    and served requests of the other client. `sent_in_pause_count` is the number of requests that left during a pause
    that the client knew."""

    served_counts: list[int]
    refused_counts: list[int]
    longest_pauses_s: list[float]
    other_served_counts: list[int]
    sent_in_pause_count: int


def simulate_run(
    cell: Cell, controller: Controller, seed: int = 1, length_s: int = RUN_LENGTH_S, *, stall_s: float = 0.0
) -> RunCounts:
    """Send all requests that the controller allows in `length_s` seconds. One request in a thousand leaves up to
    `stall_s` seconds late."""
    draw_random = Random(seed).random
    request_travel_s, answer_travel_s, max_jitter_s = (
        cell.round_trip_s / 2,
        cell.round_trip_s / 2,
        _JITTER_SHARE * cell.round_trip_s / 2,
    )
    served_counts, refused_counts, other_served_counts = (
        [0] * (length_s + 1),
        [0] * (length_s + 1),
        [0] * (length_s + 1),
    )
    longest_pauses_s = [0.0] * (length_s + 1)
    travelling_sent_times: deque[float] = deque()
    # The heap has (time of the answer, time of sending, pause in seconds). A negative pause marks another answer.
    pending_answers: list[tuple[float, float, float]] = []
    served_mark, failed_mark = -2.0, -3.0
    gap_s = 1 / MAX_CLIENT_RATE if cell.random_refusal_share else 0.0
    clock_offset_s = 100.0 * draw_random()  # the clock of the limiter is ahead, because windows began before the run
    limiter = cell.build_limiter(cell.rate)
    limit_change_at = float(CHANGE_BEGIN_S) if cell.scenario == CHANGED else inf
    other_client_sends_at = float(CHANGE_BEGIN_S) if cell.scenario == SHARED else inf
    send_at, paused_until, sent_in_pause_count = 0.0, -1.0, 0
    while True:
        arrive_at = travelling_sent_times[0] + request_travel_s if travelling_sent_times else inf
        answer_at = pending_answers[0][0] if pending_answers else inf
        now = min(send_at, arrive_at, answer_at, other_client_sends_at)
        if now > length_s:
            return RunCounts(
                served_counts[:-1],
                refused_counts[:-1],
                longest_pauses_s[:-1],
                other_served_counts[:-1],
                sent_in_pause_count,
            )
        if now >= limit_change_at:
            limiter = cell.build_limiter(cell.rate / 2 if limit_change_at == CHANGE_BEGIN_S else cell.rate)
            limit_change_at = CHANGE_END_S_BY_SCENARIO[CHANGED] if limit_change_at == CHANGE_BEGIN_S else inf
        if now == answer_at:
            _, sent_at, pause_s = heappop(pending_answers)
            if pause_s == served_mark:
                controller.record_served(sent_at, now)
                served_counts[int(sent_at)] += 1
            elif pause_s == failed_mark:
                controller.record_served(sent_at, now)  # like `RequestLimiter` for a 503 without Retry-After
            else:
                refused_counts[int(sent_at)] += 1
                if pause_s < 0:
                    controller.record_refusal(sent_at, now, None)
                else:
                    paused_until = max(paused_until, now + pause_s)
                    longest_pauses_s[int(sent_at)] = max(longest_pauses_s[int(sent_at)], pause_s)
                    controller.record_refusal(sent_at, now, pause_s)
        elif now == arrive_at:
            sent_at = travelling_sent_times.popleft()
            limiter_time = now + clock_offset_s
            is_random_refusal = cell.random_refusal_share > 0 and draw_random() < cell.random_refusal_share
            wait_s = 0.0 if is_random_refusal else limiter.admit_or_compute_wait(limiter_time)
            # The delay is random, so answers may overtake each other.
            answered_at, pause_s = now + answer_travel_s + max_jitter_s * draw_random(), -1.0
            if is_random_refusal:
                pause_s = cell.pause_s if cell.pause_s is not None else failed_mark if cell.status == 503 else -1.0
            elif wait_s <= 0:
                pause_s = served_mark
            elif cell.pause_s == DATE_PAUSE:
                pause_s = max(ceil(limiter_time + wait_s) - clock_offset_s - answered_at, 0.0)
            elif cell.pause_s is not None:
                pause_s = cell.pause_s
            heappush(pending_answers, (answered_at, sent_at, pause_s))
        elif now == send_at:
            wait_s = controller.admit_or_compute_wait(now)
            if wait_s > 0:
                send_at = now + wait_s + _MAX_TIMER_DELAY_S * draw_random()
                if stall_s and draw_random() < _STALL_SHARE:
                    send_at += stall_s * draw_random()
            else:
                travelling_sent_times.append(now)
                send_at = now + gap_s
                sent_in_pause_count += now < paused_until - 1e-6
        else:
            other_served_counts[int(now)] += limiter.admit_or_compute_wait(now + clock_offset_s) <= 0
            other_client_sends_at = now + (0.5 + draw_random()) / (cell.rate * _OTHER_CLIENT_SHARE)
            if other_client_sends_at >= CHANGE_END_S_BY_SCENARIO[SHARED]:
                other_client_sends_at = inf


@dataclass(frozen=True, slots=True)
class Measurements:
    """The measurements of a cell. Goodput is the share of the allowed requests that were served.

    `goodput` and `refused_share`: the goodput and the share of refused requests in a steady state.
    `goodput_beside_other_client`: the goodput while another client uses a third of the limit.
    `refused_share_after_halving`: the share of refused requests after the limit was halved.
    `doubled_limit_used_after_s`: the seconds until a doubled limit was used.
    `first_minute_goodput`: the goodput of the first minute, as a share of the best goodput that is certain for a client
    that does not know the limit.
    `sent_in_pause_count`: the number of requests inside a pause.
    """

    goodput: float
    refused_share: float
    goodput_beside_other_client: float
    refused_share_after_halving: float
    doubled_limit_used_after_s: float
    first_minute_goodput: float
    sent_in_pause_count: float


def measure(cell: Cell, run_counts: RunCounts) -> Measurements:
    """Return the measurements of a simulated run. The state is steady after 300 s and 20 pauses."""
    begin_s = min(int(300 + 20 * cell.expected_pause_s), CHANGE_BEGIN_S - 1)
    end_s = RUN_LENGTH_S if cell.scenario == ALONE else CHANGE_BEGIN_S
    served_count, refused_count = (
        sum(run_counts.served_counts[begin_s:end_s]),
        sum(run_counts.refused_counts[begin_s:end_s]),
    )
    goodput = served_count / (cell.rate * (end_s - begin_s))
    goodput_beside_other_client, refused_share_after_halving, doubled_limit_used_after_s = goodput, 0.0, 0.0
    if cell.scenario == SHARED:
        since_s, until_s = CHANGE_BEGIN_S + int(30 + 2 * cell.expected_pause_s), CHANGE_END_S_BY_SCENARIO[SHARED]
        goodput_beside_other_client = sum(run_counts.served_counts[since_s:until_s]) / (
            cell.rate * (until_s - since_s) - sum(run_counts.other_served_counts[since_s:until_s])
        )
    if cell.scenario == CHANGED:
        refused_share_after_halving, doubled_limit_used_after_s = (
            _find_refused_share_after_halving(run_counts, cell),
            _find_doubled_limit_used_after_s(run_counts, cell),
        )
    first_minute_goodput = min(
        sum(run_counts.served_counts[:FIRST_MINUTE_S]) / (cell.rate * FIRST_MINUTE_S) / find_first_minute_bound(cell),
        1.0,
    )
    return Measurements(
        goodput,
        refused_count / max(served_count + refused_count, 1),
        goodput_beside_other_client,
        refused_share_after_halving,
        doubled_limit_used_after_s,
        first_minute_goodput,
        run_counts.sent_in_pause_count,
    )


def find_first_minute_bound(cell: Cell) -> float:
    """Return the best goodput of the first minute that is certain for a client that does not know the limit.

    The first refusal shows only that the limit lies within a factor of the refused rate. Without another refusal, the
    client can use 1 / (1 + ln factor) of the remaining time (docs/explanation/pace.md). The limit is known after two
    more refusals: two ramps after equal pauses give (n2 - n1) / (t2 - t1). The first refusal does not count, because
    the limiter was fresh. The limiter allows a burst at the start and after each pause.
    """
    span_s = cell.span_s if cell.limiter_kind != "bucket" else max(cell.span_s, 2 / cell.rate)
    saved_burst_s = min(span_s, cell.expected_pause_s)
    # After n requests in t s, and with a pause of p s, the limit is at least n / (t + p).
    rate_factor = max(_MAX_RATE_FACTOR, 1 + cell.expected_pause_s / max(span_s, _SEARCH_S))
    time_after_one_pause_s, time_after_three_pauses_s = (
        FIRST_MINUTE_S - cell.expected_pause_s,
        max(FIRST_MINUTE_S - 3 * cell.expected_pause_s, 0.0),
    )
    if time_after_three_pauses_s:
        time_after_three_pauses_s += saved_burst_s
    return min(
        (span_s + saved_burst_s + max(time_after_one_pause_s / (1 + log(rate_factor)), time_after_three_pauses_s))
        / FIRST_MINUTE_S,
        1.0,
    )


def compute_means(measurements: Sequence[Measurements]) -> Measurements:
    """Return the mean of several simulated runs. If a run never uses the doubled limit, the length of the run
    counts."""
    mean_by_name = {
        measurement_field.name: sum(
            min(getattr(run_measurements, measurement_field.name), RUN_LENGTH_S) for run_measurements in measurements
        )
        / len(measurements)
        for measurement_field in fields(Measurements)
    }
    return Measurements(**mean_by_name)


@dataclass(frozen=True, slots=True)
class Promise:
    """The bounds of a cell: the smallest goodput, the largest share of refused requests in a steady state and after a
    halving, and the longest time (s) until a doubled limit is used."""

    min_goodput: float
    max_refused_share: float
    max_refused_share_after_halving: float
    max_doubled_limit_used_after_s: float

    def list_misses(self, cell: Cell, measurements: Measurements) -> list[str]:
        """Return a text for each bound that the measurements of the cell break."""
        misses = []
        if cell.scenario == ALONE and measurements.goodput < self.min_goodput - _ROUNDING_TOLERANCE:
            misses.append(f"goodput {measurements.goodput:.1%} of {self.min_goodput:.0%}")
        if cell.scenario == ALONE and measurements.refused_share > self.max_refused_share + _ROUNDING_TOLERANCE:
            misses.append(f"refused {measurements.refused_share:.1%}, {self.max_refused_share:.0%} promised")
        if measurements.refused_share_after_halving > self.max_refused_share_after_halving + _ROUNDING_TOLERANCE:
            misses.append(
                f"refused after a halving {measurements.refused_share_after_halving:.1%}, "
                f"{self.max_refused_share_after_halving:.0%} promised"
            )
        if measurements.doubled_limit_used_after_s > self.max_doubled_limit_used_after_s:
            misses.append(
                f"doubled limit used after {measurements.doubled_limit_used_after_s:.0f} s, "
                f"{self.max_doubled_limit_used_after_s:.0f} s "
                "promised"
            )
        if measurements.sent_in_pause_count:
            misses.append(f"{measurements.sent_in_pause_count:g} sent inside a pause")
        return misses


_ROUNDING_TOLERANCE = 0.0005


def read_promise(cell: Cell) -> Promise:
    """Return the promise of a cell (docs/pace.md). A doubled limit is found within two ramps of 20 pauses each, or
    within six windows."""
    window_s = cell.span_s if cell.limiter_kind != "bucket" else 0.0
    return Promise(0.85, 0.03, 0.10, max(90.0, 40 * (cell.pause_s or 0.0), 6 * window_s))


_MIN_PERIOD_S = 10


def _find_refused_share_after_halving(run_counts: RunCounts, cell: Cell) -> float:
    """Return the share of refused requests after the halving, without the time in which the client may learn the limit.

    The learning time begins at the first refusal after the halving, because a limiter may first allow a burst. The
    learning time is two pauses, and half a minute or two windows, whichever is longer."""
    end_s = CHANGE_END_S_BY_SCENARIO[CHANGED]
    first_refusal_s = next(
        (second for second in range(CHANGE_BEGIN_S, end_s) if run_counts.refused_counts[second]), end_s
    )
    two_windows_s = 2 * cell.span_s if cell.limiter_kind != "bucket" else 0.0
    since_s = min(
        int(first_refusal_s + max(30, two_windows_s) + 2 * run_counts.longest_pauses_s[first_refusal_s]), end_s
    )
    refused_count = sum(run_counts.refused_counts[since_s:end_s])
    return refused_count / max(refused_count + sum(run_counts.served_counts[since_s:end_s]), 1)


def _find_doubled_limit_used_after_s(run_counts: RunCounts, cell: Cell) -> float:
    """Return the seconds from the doubling to the first period in which the client uses 90 % of the doubled limit."""
    length_s = max(_MIN_PERIOD_S, int(cell.span_s) if cell.limiter_kind != "bucket" else 0)
    for begin_s in range(CHANGE_END_S_BY_SCENARIO[CHANGED], RUN_LENGTH_S - length_s):
        if sum(run_counts.served_counts[begin_s : begin_s + length_s]) >= 0.9 * cell.rate * length_s:
            return begin_s - CHANGE_END_S_BY_SCENARIO[CHANGED]
    return inf
