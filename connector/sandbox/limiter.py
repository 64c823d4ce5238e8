"""Rate limits, three ways to count; pure: the time comes in, in seconds of any clock that does not go back."""

import math
from collections import deque
from typing import Protocol

_HAIR = 1e-9  # sums of floats may miss a whole token, or the end of a window, by rounding


class Limiter(Protocol):
    """Lets a request in, or says how long until the next would be let in."""

    def admit(self, now: float) -> float:
        """0 when the request is let in and counted; otherwise the seconds to wait, and nothing is counted."""


class Unlimited:
    """No limit."""

    def admit(self, now: float) -> float:
        """Always 0."""
        return 0.0


class Bucket:
    """A bucket that holds `burst` tokens and gains `rate` of them a second; each request takes one."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = float(burst) or max(1.0, rate)
        self._tokens = self._burst
        self._counted_at = -math.inf

    def admit(self, now: float) -> float:
        """Takes a token, or tells when there will be one."""
        if self._counted_at > -math.inf:
            self._tokens = min(self._burst, self._tokens + (now - self._counted_at) * self._rate)
        self._counted_at = now
        if self._tokens >= 1 - _HAIR:
            self._tokens -= 1
            return 0.0
        return (1 - self._tokens) / self._rate


class FixedWindow:
    """At most so many requests in each window of the clock."""

    def __init__(self, rate: float, window_s: float) -> None:
        self._allowed = max(1, math.floor(rate * window_s + _HAIR))
        self._window_s = window_s
        self._window = -math.inf
        self._count = 0

    def admit(self, now: float) -> float:
        """Counts in the present window, or tells when the next begins."""
        window = now // self._window_s
        if window != self._window:
            self._window, self._count = window, 0
        if self._count < self._allowed:
            self._count += 1
            return 0.0
        return max(_HAIR, (window + 1) * self._window_s - now)


class SlidingWindow:
    """At most so many requests in any stretch of a window's length."""

    def __init__(self, rate: float, window_s: float) -> None:
        self._allowed = max(1, math.floor(rate * window_s + _HAIR))
        self._window_s = window_s
        self._admitted: deque[float] = deque()

    def admit(self, now: float) -> float:
        """Counts what was let in since a window ago, or tells when the oldest of it is that old."""
        while self._admitted and self._admitted[0] + self._window_s <= now:
            self._admitted.popleft()
        if len(self._admitted) < self._allowed:
            self._admitted.append(now)
            return 0.0
        return self._admitted[0] + self._window_s - now


def build_limiter(kind: str, rate: float, burst: int, window_s: float) -> Limiter:
    """The limiter that the switches `limiter`, `rate`, `burst` and `window_ms` describe."""
    if not rate:
        return Unlimited()
    if kind == "bucket":
        return Bucket(rate, burst)
    return FixedWindow(rate, window_s) if kind == "fixed_window" else SlidingWindow(rate, window_s)
