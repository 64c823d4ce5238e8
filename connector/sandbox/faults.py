"""The faults of requests, and three rate limits. The fault of a request is drawn once.

The random generator and the time are arguments. The time is in seconds of any clock that does not go back.
"""

import math
from bisect import bisect_right
from collections import deque
from enum import StrEnum
from random import Random
from typing import Protocol

from connector.sandbox.switches import SandboxSettings
from connector.sandbox.truth import AnswerFate


class Fault(StrEnum):
    """The faults, in the order in which they are drawn. The value of a member is the name of its switch. In these
    names, `before` and `after` mean before and after the request is executed."""

    REFUSE = "refuse"
    DROP_BEFORE = "drop_before"
    ERROR_BEFORE = "error_before"
    DROP_AFTER = "drop_after"
    ERROR_AFTER = "error_after"
    CUT_ANSWER = "cut_answer"
    HANG_AFTER = "hang_after"
    GARBAGE_AFTER = "garbage_after"
    CREATED_422 = "created_422"
    CREATED_429 = "created_429"
    EXECUTED_STATUS = "executed_status"
    REPEAT = "repeat"
    DISCARD = "discard"
    WRONG_ANSWER = "wrong_answer"
    STRAY_REFUSAL = "stray_refusal"


ANSWER_FATE_BY_FAULT: dict[Fault | None, AnswerFate] = {
    None: AnswerFate.ANSWERED,
    Fault.DROP_AFTER: AnswerFate.CUT,
    Fault.ERROR_AFTER: AnswerFate.SERVER_ERROR,
    Fault.CUT_ANSWER: AnswerFate.CUT_IN_ANSWER,
    Fault.HANG_AFTER: AnswerFate.HUNG,
    Fault.GARBAGE_AFTER: AnswerFate.GARBAGE,
    Fault.CREATED_422: AnswerFate.ANSWERED_422,
    Fault.CREATED_429: AnswerFate.ANSWERED_429,
    Fault.EXECUTED_STATUS: AnswerFate.ANSWERED_AS_REFUSED,
    Fault.WRONG_ANSWER: AnswerFate.WRONG,
    Fault.REPEAT: AnswerFate.ANSWERED,
    Fault.DISCARD: AnswerFate.ANSWERED,  # only a create is discarded: any other request is executed and answered
}


class FaultDraw:
    """Draws the fault of each request, or no fault, with one random number for each request.

    The faults are tried in the order of `Fault`. The switch of a fault is the probability of this fault for a request
    that has none of the faults before it. Example: with refuse=0.5 and drop_before=0.5, half of the requests are
    refused, and a quarter are cut off.
    """

    def __init__(self, settings: SandboxSettings) -> None:
        self._operations = frozenset(settings.fault_operations)
        self._cumulative_probabilities: list[float] = []
        remaining_probability = 1.0
        for fault in Fault:
            remaining_probability *= 1.0 - getattr(settings, fault)
            self._cumulative_probabilities.append(1.0 - remaining_probability)
        self._is_idle = remaining_probability == 1.0

    def draw(self, operation: str, random: Random) -> Fault | None:
        """Return the fault of a request of this operation, or None if the request has no fault."""
        if self._is_idle or operation not in self._operations:
            return None
        index = bisect_right(self._cumulative_probabilities, random.random())
        return tuple(Fault)[index] if index < len(Fault) else None


class CreateBlocker:
    """Refuses all creates for a while, from the create with the number `blocked_from` on. The refusals end after some
    time, or after some refused creates."""

    def __init__(self, settings: SandboxSettings) -> None:
        self._settings = settings
        self._received_count = self._refused_count = 0
        self._started_at = math.inf

    def apply_settings(self, settings: SandboxSettings) -> "CreateBlocker":
        """Return the object for these settings: this object, or a new object if `blocked_from` has changed."""
        if settings.blocked_from != self._settings.blocked_from:
            return CreateBlocker(settings)
        self._settings = settings
        return self

    def blocks_next_create(self, now: float) -> bool:
        """Count a create, and return whether the sandbox refuses this create."""
        settings = self._settings
        self._received_count += 1
        if not settings.blocked_from or self._received_count < settings.blocked_from:
            return False
        self._started_at = min(self._started_at, now)
        is_block_over = settings.blocked_ms and now >= self._started_at + settings.blocked_ms / 1000
        if is_block_over or (settings.blocked_creates and self._refused_count >= settings.blocked_creates):
            return False
        self._refused_count += 1
        return True


GARBAGE_BODIES = (
    b"\x00\xff\xfe upstream sent no body \x80",
    b"<html><body>It works!</body></html>",
    b"null",
    b"[]",
    b'{"success":true}',
    b'{"success":"true","Subscriber":{"Id":1}}',
    b'{"success":true,"Subscriber":{"Id":null}}',
    b'{"success":true,"Subscriber":',
)
"""Bodies of answers that are not a success. Each body has a different fault."""

# Limits of the request rate

# Rounding errors of floats change the number of tokens, or the end of a window, by less than this number.
_ROUNDING_TOLERANCE = 1e-9


class RateLimiter(Protocol):
    """A limit of the request rate."""

    def admit_or_compute_wait(self, now: float) -> float:
        """Admit and count the request and return 0, or return the seconds to wait and count nothing."""


class NoLimiter:
    """A limiter that admits every request."""

    def admit_or_compute_wait(self, now: float) -> float:
        """Return 0."""
        return 0.0


class BucketLimiter:
    """A bucket that holds `burst` tokens and gains `rate` tokens per second. Each request takes one token."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = float(burst) or max(1.0, rate)
        self._tokens = self._burst
        self._filled_at = -math.inf

    def admit_or_compute_wait(self, now: float) -> float:
        """Take a token and return 0, or return the seconds until the bucket has a token."""
        if self._filled_at > -math.inf:
            self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
        if self._tokens >= 1 - _ROUNDING_TOLERANCE:
            self._tokens -= 1
            return 0.0
        return (1 - self._tokens) / self._rate


class FixedWindowLimiter:
    """A limit of `rate * window_s` requests in each window. The windows follow one another, and each lasts
    `window_s`."""

    def __init__(self, rate: float, window_s: float) -> None:
        self._max_requests = max(1, math.floor(rate * window_s + _ROUNDING_TOLERANCE))
        self._window_s = window_s
        self._window_index = -math.inf
        self._admitted_count = 0

    def admit_or_compute_wait(self, now: float) -> float:
        """Count the request in the present window and return 0, or return the seconds until the next window."""
        window_index = now // self._window_s
        if window_index != self._window_index:
            self._window_index, self._admitted_count = window_index, 0
        if self._admitted_count < self._max_requests:
            self._admitted_count += 1
            return 0.0
        return max(_ROUNDING_TOLERANCE, (window_index + 1) * self._window_s - now)


class SlidingWindowLimiter:
    """A limit of `rate * window_s` requests in any period of `window_s` seconds."""

    def __init__(self, rate: float, window_s: float) -> None:
        self._max_requests = max(1, math.floor(rate * window_s + _ROUNDING_TOLERANCE))
        self._window_s = window_s
        self._admitted_times: deque[float] = deque()

    def admit_or_compute_wait(self, now: float) -> float:
        """Count the request and return 0, or return the seconds until the oldest counted request is `window_s` old."""
        while self._admitted_times and self._admitted_times[0] + self._window_s <= now:
            self._admitted_times.popleft()
        if len(self._admitted_times) < self._max_requests:
            self._admitted_times.append(now)
            return 0.0
        return self._admitted_times[0] + self._window_s - now


def build_limiter(kind: str, rate: float, burst: int, window_s: float) -> RateLimiter:
    """Return the limiter that the switches `limiter`, `rate`, `burst` and `window_ms` describe."""
    if not rate:
        return NoLimiter()
    if kind == "bucket":
        return BucketLimiter(rate, burst)
    return FixedWindowLimiter(rate, window_s) if kind == "fixed_window" else SlidingWindowLimiter(rate, window_s)
