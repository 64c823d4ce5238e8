"""The rate controller against all kinds of limiters and against random refusals, on virtual time: the cells, the play
of a cell, and the measurements of a play."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from heapq import heappop, heappush
from itertools import product
from math import ceil, inf, log
from random import Random
from typing import Protocol

from connector.sandbox.faults import Bucket, FixedWindow, RateLimiter, SlidingWindow, Unlimited

TWO_TOKENS = 0.0
LIMITERS = (
    *(("bucket", depth_s) for depth_s in (TWO_TOKENS, 0.2, 1.0, 10.0, 60.0)),
    *(("fixed window", window_s) for window_s in (1.0, 10.0, 60.0)),
    *(("sliding window", window_s) for window_s in (1.0, 10.0, 60.0)),
)
DATE = -1.0  # a Retry-After with the date at which the limiter serves again, in whole seconds
PAUSES = (None, 1.0, 5.0, 30.0, DATE)
RATES = (5.0, 50.0, 500.0)
ROUND_TRIPS_S = (0.02, 0.3)
ALONE, SHARED, CHANGED = "alone", "shared", "changed"
SCENES = (ALONE, SHARED, CHANGED)

LENGTH_S = 1800
BEGIN_S = 900
END_S = {"shared": 1350, "changed": 1080}  # end of the other client, and of the halved limit
FIRST_S = 60
"""Seconds of the first minute of a first run."""
CHANCE_S = 300
"""The length of a play of a chance cell, in seconds. 2,000 creates take 22 s, so the search for the limit counts as
well."""
CHANCES = (0.001, 0.01, 0.05)
STATUSES = (429, 503)
NO_LIMIT = "no limit"
FASTEST = 1000.0  # requests/s that the client of a chance cell can send
_UNKNOWN = 16.0  # the largest ratio of the first refused rate to the limit
_SEARCH_S = 0.2  # seconds until the first refusal of a client that doubles 20 requests/s
_OTHERS = 1 / 3  # the share of the limit that another client uses
_LATE_S = 0.001  # the largest delay of a sender's timer
_STALLS = 0.001  # the share of the requests that leave late
_JITTER = 0.1  # the jitter as a share of the time of the answer


class Controller(Protocol):
    """A client that can play a cell."""

    def admit(self, now: float) -> float:
        """Return 0 if a request may leave now, otherwise the seconds to wait."""

    def record_served(self, sent_at: float, now: float) -> None:
        """Record that the request was served."""

    def record_refused(self, sent_at: float, now: float, retry_after_s: float | None) -> None:
        """Record that the request was refused because of the rate."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A limiter, the pause of its refusals, the limit (requests/s), the round trip, and the events during the play.

    `chance` is the share of requests that is refused at random with `status`, before the limiter counts them.
    """

    kind: str
    span_s: float
    pause_s: float | None
    rate: float
    trip_s: float
    scene: str = ALONE
    chance: float = 0.0
    status: int = 429

    def __str__(self) -> str:
        span = "" if self.kind == NO_LIMIT else " two tokens" if self.span_s == TWO_TOKENS else f" {self.span_s:g} s"
        pause = {None: "none", DATE: "date"}.get(self.pause_s, f"{self.pause_s} s")
        scene = f"{self.chance:.1%} refused with {self.status}" if self.chance else self.scene
        return f"{self.kind}{span}, pause {pause}, {self.rate:g}/s, {1000 * self.trip_s:g} ms, {scene}"

    @property
    def cost_s(self) -> float:
        """The pause after a refusal in seconds. For a date, the longest pause that is known before the play."""
        if self.pause_s == DATE:
            return self.span_s if self.kind == "fixed window" else 1.0
        return self.pause_s or 0.0

    def build(self, rate: float) -> RateLimiter:
        """Return the limiter with this limit."""
        if self.kind == NO_LIMIT:
            return Unlimited()
        if self.kind == "bucket":
            return Bucket(rate, max(2, round(rate * self.span_s)))
        return (FixedWindow if self.kind == "fixed window" else SlidingWindow)(rate, self.span_s)


def list_cells() -> Iterator[Cell]:
    """Yield all cells of the matrix."""
    for (kind, span_s), pause_s, rate, trip_s, scene in product(LIMITERS, PAUSES, RATES, ROUND_TRIPS_S, SCENES):
        yield Cell(kind, span_s, pause_s, rate, trip_s, scene)


def list_chance_cells() -> Iterator[Cell]:
    """Yield the cells with random refusals, without a limit or with a bucket of 500 requests/s."""
    for chance, status, pause_s, has_limit in product(CHANCES, STATUSES, (None, 1.0, 5.0), (False, True)):
        kind, span_s, rate = ("bucket", 1.0, 500.0) if has_limit else (NO_LIMIT, 0.0, FASTEST)
        yield Cell(kind, span_s, pause_s, rate, ROUND_TRIPS_S[0], chance=chance, status=status)


@dataclass(frozen=True, slots=True)
class Played:
    """The counts of a play by the second of sending: served requests, refused requests, the longest pause (s), and
    served requests of the other client. `inside` is the number of requests that left inside a known pause."""

    served: list[int]
    refused: list[int]
    paused: list[float]
    other_served: list[int]
    inside: int


def play(
    cell: Cell, controller: Controller, seed: int = 1, length_s: int = LENGTH_S, *, stall_s: float = 0.0
) -> Played:
    """Send all requests that the controller allows for `length_s` seconds. One request in a thousand leaves up to
    `stall_s` late."""
    random = Random(seed).random
    half_s, back_s, jitter_s = cell.trip_s / 2, cell.trip_s / 2, _JITTER * cell.trip_s / 2
    served, refused, other_served = [0] * (length_s + 1), [0] * (length_s + 1), [0] * (length_s + 1)
    paused = [0.0] * (length_s + 1)
    arrivals: deque[float] = deque()
    answers: list[tuple[float, float, float]] = []  # heap: answered at, sent at, pause or mark
    served_mark, failed_mark = -2.0, -3.0
    gap_s = 1 / FASTEST if cell.chance else 0.0
    offset = 100.0 * random()  # the start of the limiter's clock
    limiter = cell.build(cell.rate)
    change_at = float(BEGIN_S) if cell.scene == CHANGED else inf
    other_at = float(BEGIN_S) if cell.scene == SHARED else inf
    send_at, paused_until, inside = 0.0, -1.0, 0
    while True:
        arrive_at = arrivals[0] + half_s if arrivals else inf
        answer_at = answers[0][0] if answers else inf
        now = min(send_at, arrive_at, answer_at, other_at)
        if now > length_s:
            return Played(served[:-1], refused[:-1], paused[:-1], other_served[:-1], inside)
        if now >= change_at:
            limiter = cell.build(cell.rate / 2 if change_at == BEGIN_S else cell.rate)
            change_at = END_S[CHANGED] if change_at == BEGIN_S else inf
        if now == answer_at:
            _, sent_at, pause_s = heappop(answers)
            if pause_s == served_mark:
                controller.record_served(sent_at, now)
                served[int(sent_at)] += 1
            elif pause_s == failed_mark:
                controller.record_served(sent_at, now)  # like `RequestLimiter` for a 503 without Retry-After
            else:
                refused[int(sent_at)] += 1
                if pause_s < 0:
                    controller.record_refused(sent_at, now, None)
                else:
                    paused_until = max(paused_until, now + pause_s)
                    paused[int(sent_at)] = max(paused[int(sent_at)], pause_s)
                    controller.record_refused(sent_at, now, pause_s)
        elif now == arrive_at:
            sent_at = arrivals.popleft()
            at = now + offset
            is_chance = cell.chance > 0 and random() < cell.chance
            wait_s = 0.0 if is_chance else limiter.admit(at)
            back_at, pause_s = now + back_s + jitter_s * random(), -1.0  # answers may overtake each other
            if is_chance:
                pause_s = cell.pause_s if cell.pause_s is not None else failed_mark if cell.status == 503 else -1.0
            elif wait_s <= 0:
                pause_s = served_mark
            elif cell.pause_s == DATE:
                pause_s = max(ceil(at + wait_s) - offset - back_at, 0.0)
            elif cell.pause_s is not None:
                pause_s = cell.pause_s
            heappush(answers, (back_at, sent_at, pause_s))
        elif now == send_at:
            wait_s = controller.admit(now)
            if wait_s > 0:
                send_at = now + wait_s + _LATE_S * random()
                if stall_s and random() < _STALLS:
                    send_at += stall_s * random()
            else:
                arrivals.append(now)
                send_at = now + gap_s
                inside += now < paused_until - 1e-6
        else:
            other_served[int(now)] += limiter.admit(now + offset) <= 0
            other_at = now + (0.5 + random()) / (cell.rate * _OTHERS)
            if other_at >= END_S[SHARED]:
                other_at = inf


@dataclass(frozen=True, slots=True)
class Measurements:
    """The measurements of a cell. Goodput is the share of the allowed requests that were served.

    `goodput` and `refused`: the goodput and the share of refused requests in a steady state. `beside`: the goodput
    while another client uses a third. `exceeded`: the share of refused requests after the limit was halved. `used_s`:
    the seconds until a doubled limit was used. `first`: the goodput of the first minute, as a share of the best goodput
    that is certain for a client that does not know the limit. `inside`: the number of requests inside a pause.
    """

    goodput: float
    refused: float
    beside: float
    exceeded: float
    used_s: float
    first: float
    inside: float


def measure(cell: Cell, played: Played) -> Measurements:
    """Return the measurements of a play. The state is steady after 300 s and 20 pauses."""
    begin = min(int(300 + 20 * cell.cost_s), BEGIN_S - 1)
    end = LENGTH_S if cell.scene == ALONE else BEGIN_S
    served, refused = sum(played.served[begin:end]), sum(played.refused[begin:end])
    goodput = served / (cell.rate * (end - begin))
    beside, exceeded, used_s = goodput, 0.0, 0.0
    if cell.scene == SHARED:
        since, until = BEGIN_S + int(30 + 2 * cell.cost_s), END_S[SHARED]
        beside = sum(played.served[since:until]) / (cell.rate * (until - since) - sum(played.other_served[since:until]))
    if cell.scene == CHANGED:
        exceeded, used_s = _find_exceeded(played, cell), _find_used(played, cell)
    first = min(sum(played.served[:FIRST_S]) / (cell.rate * FIRST_S) / find_first_bound(cell), 1.0)  # at most 1
    return Measurements(goodput, refused / max(served + refused, 1), beside, exceeded, used_s, first, played.inside)


def find_first_bound(cell: Cell) -> float:
    """Return the best goodput of the first minute that is certain for a client that does not know the limit.

    The first refusal shows only that the limit lies within a factor of the refused rate. Without another refusal, the
    client can use 1 / (1 + ln factor) of the remaining time (docs/explanation/pace.md). The limit is known after two
    more refusals: two ramps after equal pauses give (n2 - n1) / (t2 - t1). The first refusal does not count, because
    the limiter was fresh. The limiter allows a burst at the start and after each pause.
    """
    span_s = cell.span_s if cell.kind != "bucket" else max(cell.span_s, 2 / cell.rate)
    saved_s = min(span_s, cell.cost_s)
    factor = max(_UNKNOWN, 1 + cell.cost_s / max(span_s, _SEARCH_S))  # n requests in t s allow limits from n / (t + p)
    once_s, known_s = FIRST_S - cell.cost_s, max(FIRST_S - 3 * cell.cost_s, 0.0)  # without the pauses
    if known_s:
        known_s += saved_s
    return min((span_s + saved_s + max(once_s / (1 + log(factor)), known_s)) / FIRST_S, 1.0)


def average(measurements: Sequence[Measurements]) -> Measurements:
    """Return the mean of several plays. A doubled limit that is never used counts as used at the end."""
    means = {
        key.name: sum(min(getattr(result, key.name), LENGTH_S) for result in measurements) / len(measurements)
        for key in fields(Measurements)
    }
    return Measurements(**means)


@dataclass(frozen=True, slots=True)
class Promise:
    """The bounds of a cell: the smallest goodput, the largest share of refused requests in a steady state and after a
    halving, and the longest time (s) until a doubled limit is used."""

    goodput: float
    refused: float
    exceeded: float
    used_s: float

    def list_misses(self, cell: Cell, measurements: Measurements) -> list[str]:
        """Return a text for each bound that the measurements of the cell break."""
        misses = []
        if cell.scene == ALONE and measurements.goodput < self.goodput - _ROUNDING:
            misses.append(f"goodput {measurements.goodput:.1%} of {self.goodput:.0%}")
        if cell.scene == ALONE and measurements.refused > self.refused + _ROUNDING:
            misses.append(f"refused {measurements.refused:.1%}, {self.refused:.0%} promised")
        if measurements.exceeded > self.exceeded + _ROUNDING:
            misses.append(f"refused after a halving {measurements.exceeded:.1%}, {self.exceeded:.0%} promised")
        if measurements.used_s > self.used_s:
            misses.append(f"doubled limit used after {measurements.used_s:.0f} s, {self.used_s:.0f} s promised")
        if measurements.inside:
            misses.append(f"{measurements.inside:g} sent inside a pause")
        return misses


_ROUNDING = 0.0005


def read_promise(cell: Cell) -> Promise:
    """Return the promise of a cell (docs/pace.md). A doubled limit is found within two ramps of 20 pauses each, or
    within six windows."""
    window_s = cell.span_s if cell.kind != "bucket" else 0.0
    return Promise(0.85, 0.03, 0.10, max(90.0, 40 * (cell.pause_s or 0.0), 6 * window_s))


_STRETCH_S = 10


def _find_exceeded(played: Played, cell: Cell) -> float:
    """Return the share of refused requests after the client had time to notice the halved limit.

    This time begins at the first refusal after the halving, because a limiter may first allow a burst. It is half a
    minute or two windows, whichever is longer, and two pauses."""
    end = END_S[CHANGED]
    first = next((second for second in range(BEGIN_S, end) if played.refused[second]), end)
    windows_s = 2 * cell.span_s if cell.kind != "bucket" else 0.0
    since = min(int(first + max(30, windows_s) + 2 * played.paused[first]), end)
    refused = sum(played.refused[since:end])
    return refused / max(refused + sum(played.served[since:end]), 1)


def _find_used(played: Played, cell: Cell) -> float:
    """Return the seconds from the doubling to the first period in which nine tenths of the doubled limit are used."""
    length_s = max(_STRETCH_S, int(cell.span_s) if cell.kind != "bucket" else 0)
    for begin in range(END_S[CHANGED], LENGTH_S - length_s):
        if sum(played.served[begin : begin + length_s]) >= 0.9 * cell.rate * length_s:
            return begin - END_S[CHANGED]
    return inf
