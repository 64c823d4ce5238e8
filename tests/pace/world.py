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

SHARED = "shared"  # a bucket that another client uses as well
_OTHERS = 0.5  # the requests of the other client as a share of our limit
_JITTER = 0.05
_WINDOWS_BEGIN_WITHIN_S = 60.0
_HAIR_S = 1e-12

_Happening = Callable[[float, float], None]  # the arguments: now, and the time when the request was sent


class Client(Protocol):
    """The methods of a client that the world calls."""

    @property
    def allowed(self) -> float:
        """The largest number of requests in flight."""

    def admit(self, now: float) -> float:
        """Return 0 if a request may leave now, otherwise the seconds to wait."""

    def note_list(self, now: float) -> None:
        """Record that a request of another kind has left."""

    def record_served(self, sent_at: float, now: float, under_way: int) -> None:
        """Record that a request was served."""

    def record_refused(self, sent_at: float, now: float, retry_after_s: float | None) -> None:
        """Record that a request was refused because of the rate."""


@dataclass(frozen=True, slots=True)
class World:
    """A service with a limit of `kind`. `steps` has the times and rates of the limit ((s, requests/s), the first at 0).

    `rtt_s` is the round trip of a request that does not wait, and `rtt_steps` has later values ((s, s)). The service
    works on at most `capacity` requests at once, for the second half of their round trip. Other requests wait.
    `faulty` is the share of requests that is refused at random. At each time of `lists_at`, the client also sends a
    request of another kind, which the same limit counts if `are_lists_limited`.
    """

    kind: str
    steps: Sequence[tuple[float, float]]
    rtt_s: float
    window_s: float = 1.0
    retry_after_s: float | None = None
    capacity: float = inf
    faulty: float = 0.0
    rtt_steps: Sequence[tuple[float, float]] = ()
    lists_at: Sequence[float] = ()
    are_lists_limited: bool = True

    def build(self, rate: float) -> RateLimiter:
        """Return the limiter with this rate."""
        if rate == inf:
            return build_limiter("bucket", 0, 0, self.window_s)
        if self.kind == SHARED:
            return build_limiter("bucket", rate * (1 + _OTHERS), 0, self.window_s)
        return build_limiter(self.kind, rate, 0, self.window_s)


@dataclass(frozen=True, slots=True)
class Trip:
    """One request: the times of its sending and its answer (s), and whether the request was served."""

    sent_at: float
    answered_at: float
    is_served: bool


def run(client: Client, world: World, seconds: float, seed: int) -> list[Trip]:
    """Let the client send for `seconds`. Return its trips in the order of their answers."""
    return _Run(client, world, seconds, random.Random(seed)).play()


class _Run:
    def __init__(self, client: Client, world: World, seconds: float, rng: random.Random) -> None:
        self._client, self._world, self._seconds, self._random = client, world, seconds, rng
        self._offset = rng.uniform(0, _WINDOWS_BEGIN_WITHIN_S)
        self._steps, self._rtt_steps = deque(world.steps), deque(world.rtt_steps)
        self._rtt_s = world.rtt_s
        self._events: list[tuple[float, int, _Happening, float]] = []
        self._number = count()
        self._under_way = 0
        self._worked_on = 0
        self._waiting: deque[float] = deque()
        self._due = inf
        self._trips: list[Trip] = []

    def play(self) -> list[Trip]:
        self._take_step()
        self._send(0.0)
        if self._world.kind == SHARED:
            self._add(0.0, self._on_other)
        for at in self._world.lists_at:
            self._add(at, self._on_list)
        while self._events:
            now, _, happen, sent_at = heapq.heappop(self._events)
            if now > self._seconds:
                break
            while self._steps and now >= self._steps[0][0]:
                self._take_step()
            while self._rtt_steps and now >= self._rtt_steps[0][0]:
                _, self._rtt_s = self._rtt_steps.popleft()
            happen(now, sent_at)
        return self._trips

    def _take_step(self) -> None:
        _, self._rate = self._steps.popleft()
        self._limiter = self._world.build(self._rate)

    def _add(self, at: float, happen: _Happening, sent_at: float = 0.0) -> None:
        heapq.heappush(self._events, (at, next(self._number), happen, sent_at))

    def _send(self, now: float) -> None:
        """Send all requests that may leave now, and plan the next request."""
        while self._under_way < self._client.allowed:
            wait_s = self._client.admit(now)
            if wait_s > 0:
                self._plan(now, now + wait_s)
                return
            self._under_way += 1
            self._add(now + self._rtt_s / 2, self._on_arrival, now)

    def _plan(self, now: float, due: float) -> None:
        """Plan to send at the time `due`, unless this is planned already."""
        if not now < self._due <= due + _HAIR_S:
            self._due = due
            self._add(due, self._on_due)

    def _on_due(self, now: float, _sent_at: float) -> None:
        if now == self._due:  # otherwise a later plan has replaced this plan
            self._send(now)

    def _on_arrival(self, now: float, sent_at: float) -> None:
        is_faulty = self._world.faulty > 0 and self._random.random() < self._world.faulty
        if is_faulty or self._limiter.admit(now + self._offset) > 0:
            self._add(now + self._draw_way_back(), self._on_refused, sent_at)
        elif self._worked_on < self._world.capacity:
            self._work_on(now, sent_at)
        else:
            self._waiting.append(sent_at)

    def _work_on(self, now: float, sent_at: float) -> None:
        self._worked_on += 1
        self._add(now + self._draw_way_back(), self._on_served, sent_at)

    def _draw_way_back(self) -> float:
        return self._rtt_s / 2 * self._random.uniform(1 - _JITTER, 1 + _JITTER)

    def _on_served(self, now: float, sent_at: float) -> None:
        self._worked_on -= 1
        if self._waiting:
            self._work_on(now, self._waiting.popleft())
        self._client.record_served(sent_at, now, self._under_way)
        self._end_trip(Trip(sent_at, now, True))

    def _on_refused(self, now: float, sent_at: float) -> None:
        self._client.record_refused(sent_at, now, self._world.retry_after_s)
        self._end_trip(Trip(sent_at, now, False))

    def _on_other(self, now: float, _sent_at: float) -> None:
        self._limiter.admit(now + self._offset)
        self._add(now + self._random.uniform(0.5, 1.5) / (self._rate * _OTHERS), self._on_other)

    def _on_list(self, now: float, _sent_at: float) -> None:
        self._client.note_list(now)
        if self._world.are_lists_limited:
            self._limiter.admit(now + self._offset)

    def _end_trip(self, trip: Trip) -> None:
        self._under_way -= 1
        self._trips.append(trip)
        self._send(trip.answered_at)
