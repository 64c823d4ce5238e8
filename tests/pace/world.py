"""A client with endless requests, a service with a limit, and the network between them, on virtual time."""

import heapq
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from math import inf

from connector.sandbox.faults import BucketLimiter, NoLimiter
from tests.pace.clients import RateOnlyClient

_JITTER_SHARE = 0.05
_TIME_TOLERANCE_S = 1e-12

_HandleEvent = Callable[[float, float], None]  # the arguments: now, and the time when the request was sent


@dataclass(frozen=True, slots=True)
class LimitedService:
    """A service with a token bucket, or without a limit.

    `rate_steps`: pairs of a time (s) and the limit (requests/s) from this time on. The first time is 0. A limit of
    `inf` means no limit.
    `round_trip_s`: the round trip of a request that does not wait.
    `round_trip_steps`: pairs of a time (s) and the round trip (s) from this time on.
    `capacity`: the service works on at most this many requests at the same time. Other requests wait.
    `random_refusal_share`: the share of the requests that the service refuses at random.
    """

    rate_steps: Sequence[tuple[float, float]]
    round_trip_s: float
    retry_after_s: float | None = None
    capacity: float = inf
    random_refusal_share: float = 0.0
    round_trip_steps: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True, slots=True)
class AnsweredRequest:
    """One request: the times of its sending and its answer (s), and whether the request was served."""

    sent_at: float
    answered_at: float
    is_served: bool


def simulate_client(
    client: RateOnlyClient, service: LimitedService, length_s: float, seed: int
) -> list[AnsweredRequest]:
    """Let the client send for `length_s`. Return its requests in the order of their answers."""
    return _Simulation(client, service, length_s, random.Random(seed)).run()


@dataclass(frozen=True, slots=True)
class PeriodCounts:
    """The requests of a period: the numbers of served and refused requests, and the number that the limit allows."""

    served_count: int
    refused_count: int
    allowed_count: float

    @property
    def goodput(self) -> float:
        """The served requests as a share of the allowed requests."""
        return self.served_count / self.allowed_count

    @property
    def refused_share(self) -> float:
        """The refused requests as a share of the sent requests."""
        return self.refused_count / max(1, self.served_count + self.refused_count)


def count_requests(requests: Iterable[AnsweredRequest], rate: float, since_s: float, until_s: float) -> PeriodCounts:
    """Count the requests that were sent at `since_s` or later, and before `until_s` (s). `rate` is the limit."""
    is_served_values = [request.is_served for request in requests if since_s <= request.sent_at < until_s]
    return PeriodCounts(
        sum(is_served_values), len(is_served_values) - sum(is_served_values), rate * (until_s - since_s)
    )


class _Simulation:
    def __init__(self, client: RateOnlyClient, service: LimitedService, length_s: float, rng: random.Random) -> None:
        self._client, self._service, self._length_s, self._random = client, service, length_s, rng
        self._rate_steps, self._round_trip_steps = deque(service.rate_steps), deque(service.round_trip_steps)
        self._round_trip_s = service.round_trip_s
        self._events: list[tuple[float, int, _HandleEvent, float]] = []
        self._event_numbers = count()
        self._in_flight_count = 0
        self._active_count = 0
        self._queued_sent_times: deque[float] = deque()
        self._send_due_at = inf
        self._answered_requests: list[AnsweredRequest] = []

    def run(self) -> list[AnsweredRequest]:
        self._apply_rate_step()
        self._send(0.0)
        while self._events:
            now, _, handle_event, sent_at = heapq.heappop(self._events)
            if now > self._length_s:
                break
            while self._rate_steps and now >= self._rate_steps[0][0]:
                self._apply_rate_step()
            while self._round_trip_steps and now >= self._round_trip_steps[0][0]:
                _, self._round_trip_s = self._round_trip_steps.popleft()
            handle_event(now, sent_at)
        return self._answered_requests

    def _apply_rate_step(self) -> None:
        _, limit = self._rate_steps.popleft()
        self._limiter = NoLimiter() if limit == inf else BucketLimiter(limit, burst=0)

    def _schedule(self, scheduled_at: float, handle_event: _HandleEvent, sent_at: float = 0.0) -> None:
        heapq.heappush(self._events, (scheduled_at, next(self._event_numbers), handle_event, sent_at))

    def _send(self, now: float) -> None:
        """Send all requests that may leave now, and plan the next request."""
        while self._in_flight_count < self._client.max_in_flight:
            wait_s = self._client.admit_or_compute_wait(now)
            if wait_s > 0:
                self._schedule_sending(now, now + wait_s)
                return
            self._in_flight_count += 1
            self._schedule(now + self._round_trip_s / 2, self._on_arrival, now)

    def _schedule_sending(self, now: float, due_at: float) -> None:
        """Plan to send at the time `due_at`, unless a plan for this time exists."""
        if not now < self._send_due_at <= due_at + _TIME_TOLERANCE_S:
            self._send_due_at = due_at
            self._schedule(due_at, self._on_send_due)

    def _on_send_due(self, now: float, _sent_at: float) -> None:
        if now == self._send_due_at:  # otherwise a later plan has replaced this plan
            self._send(now)

    def _on_arrival(self, now: float, sent_at: float) -> None:
        is_random_refusal = (
            self._service.random_refusal_share > 0 and self._random.random() < self._service.random_refusal_share
        )
        if is_random_refusal or self._limiter.admit_or_compute_wait(now) > 0:
            self._schedule(now + self._draw_answer_delay_s(), self._on_refused, sent_at)
        elif self._active_count < self._service.capacity:
            self._begin_work(now, sent_at)
        else:
            self._queued_sent_times.append(sent_at)

    def _begin_work(self, now: float, sent_at: float) -> None:
        self._active_count += 1
        self._schedule(now + self._draw_answer_delay_s(), self._on_served, sent_at)

    def _draw_answer_delay_s(self) -> float:
        return self._round_trip_s / 2 * self._random.uniform(1 - _JITTER_SHARE, 1 + _JITTER_SHARE)

    def _on_served(self, now: float, sent_at: float) -> None:
        self._active_count -= 1
        if self._queued_sent_times:
            self._begin_work(now, self._queued_sent_times.popleft())
        self._client.record_served_request(sent_at, now, self._in_flight_count)
        self._end_request(AnsweredRequest(sent_at, now, True))

    def _on_refused(self, now: float, sent_at: float) -> None:
        self._client.record_refusal(sent_at, now, self._service.retry_after_s)
        self._end_request(AnsweredRequest(sent_at, now, False))

    def _end_request(self, request: AnsweredRequest) -> None:
        self._in_flight_count -= 1
        self._answered_requests.append(request)
        self._send(request.answered_at)
