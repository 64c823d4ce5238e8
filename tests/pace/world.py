"""A client with endless requests, a service with a limit, and the network between them, on virtual time."""

import heapq
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from math import inf
from typing import Protocol

from connector.sandbox.faults import RateLimiter, build_limiter

SHARED_BUCKET = "shared"  # a bucket that another client uses as well
_OTHER_CLIENT_SHARE = 0.5  # the rate of the other client, as a share of the limit
_JITTER_SHARE = 0.05
_MAX_WINDOW_OFFSET_S = 60.0
_TIME_TOLERANCE_S = 1e-12

_HandleEvent = Callable[[float, float], None]  # the arguments: now, and the time when the request was sent


class Client(Protocol):
    """The methods of a client that `simulate_client` calls."""

    @property
    def max_in_flight(self) -> float:
        """The largest number of requests in flight."""

    def admit_or_compute_wait(self, now: float) -> float:
        """Return 0 if a request may leave now, otherwise the seconds to wait."""

    def record_list_request(self, now: float) -> None:
        """Record that a list request has left."""

    def record_served_request(self, sent_at: float, now: float, in_flight: int) -> None:
        """Record that a request was served."""

    def record_refusal(self, sent_at: float, now: float, retry_after_s: float | None) -> None:
        """Record that a request was refused because of the rate."""


@dataclass(frozen=True, slots=True)
class LimitedService:
    """A service with a limiter of the kind `kind`.

    `rate_steps`: pairs of a time (s) and the limit (requests/s) from this time on. The first time is 0.
    `round_trip_s`: the round trip of a request that does not wait.
    `round_trip_steps`: pairs of a time (s) and the round trip (s) from this time on.
    `capacity`: the service works on at most this many requests at the same time. Other requests wait.
    `random_refusal_share`: the share of the requests that the service refuses at random.
    `times_of_list_requests`: the times (s) at which the client also sends a list request.
    `are_list_requests_limited`: whether the limiter counts list requests.
    """

    kind: str
    rate_steps: Sequence[tuple[float, float]]
    round_trip_s: float
    window_s: float = 1.0
    retry_after_s: float | None = None
    capacity: float = inf
    random_refusal_share: float = 0.0
    round_trip_steps: Sequence[tuple[float, float]] = ()
    times_of_list_requests: Sequence[float] = ()
    are_list_requests_limited: bool = True

    def build_limiter_at(self, rate: float) -> RateLimiter:
        """Return the limiter with this rate."""
        if rate == inf:
            return build_limiter("bucket", 0, 0, self.window_s)
        if self.kind == SHARED_BUCKET:
            return build_limiter("bucket", rate * (1 + _OTHER_CLIENT_SHARE), 0, self.window_s)
        return build_limiter(self.kind, rate, 0, self.window_s)


@dataclass(frozen=True, slots=True)
class AnsweredRequest:
    """One request: the times of its sending and its answer (s), and whether the request was served."""

    sent_at: float
    answered_at: float
    is_served: bool


def simulate_client(client: Client, service: LimitedService, length_s: float, seed: int) -> list[AnsweredRequest]:
    """Let the client send for `length_s`. Return its requests in the order of their answers."""
    return _Simulation(client, service, length_s, random.Random(seed)).run()


class _Simulation:
    def __init__(self, client: Client, service: LimitedService, length_s: float, rng: random.Random) -> None:
        self._client, self._service, self._length_s, self._random = client, service, length_s, rng
        self._offset = rng.uniform(0, _MAX_WINDOW_OFFSET_S)
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
        if self._service.kind == SHARED_BUCKET:
            self._schedule(0.0, self._on_other_client_request)
        for scheduled_at in self._service.times_of_list_requests:
            self._schedule(scheduled_at, self._on_list_request)
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
        _, self._current_limit = self._rate_steps.popleft()
        self._limiter = self._service.build_limiter_at(self._current_limit)

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
        if is_random_refusal or self._limiter.admit_or_compute_wait(now + self._offset) > 0:
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

    def _on_other_client_request(self, now: float, _sent_at: float) -> None:
        self._limiter.admit_or_compute_wait(now + self._offset)
        self._schedule(
            now + self._random.uniform(0.5, 1.5) / (self._current_limit * _OTHER_CLIENT_SHARE),
            self._on_other_client_request,
        )

    def _on_list_request(self, now: float, _sent_at: float) -> None:
        self._client.record_list_request(now)
        if self._service.are_list_requests_limited:
            self._limiter.admit_or_compute_wait(now + self._offset)

    def _end_request(self, request: AnsweredRequest) -> None:
        self._in_flight_count -= 1
        self._answered_requests.append(request)
        self._send(request.answered_at)
