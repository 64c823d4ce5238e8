"""Controllers of other tools, written after their published rules, to be played in the matrix beside ours.

Each obeys the pause that is asked for, though not every tool does, and has at most 64 requests under way.
"""

from math import floor

_UNDER_WAY = 64
_WAIT_S = 0.001  # until one may leave that waits for an answer


class Aimd:
    """A request a second more in each second that is served, half after a refusal (RFC 5681, with seconds for round
    trips)."""

    def __init__(self) -> None:
        self._rate, self._due_at, self._paused_until, self._cut_at = 20.0, 0.0, 0.0, -1.0

    def admit(self, now: float) -> float:
        """0 when a request leaves, else the seconds to wait."""
        wait_s = max(self._due_at, self._paused_until) - now
        if wait_s > 1e-9:
            return wait_s
        self._due_at = now + 1 / self._rate
        return 0.0

    def record_served(self, _sent_at: float, _now: float) -> None:
        """It was served."""
        self._rate += 1 / self._rate

    def record_refused(self, sent_at: float, now: float, retry_after_s: float | None) -> None:
        """It was refused for its rate."""
        self._paused_until = max(self._paused_until, now + (retry_after_s or 0.0))
        if sent_at >= self._cut_at:
            self._rate, self._cut_at = max(self._rate / 2, 0.5), max(now, self._paused_until)


class CubicRetry:
    """The adaptive retry mode of botocore: seven tenths of the measured rate after a refusal, then the curve of CUBIC
    back to that rate and beyond, at most twice what is measured (botocore/retries/adaptive.py and throttling.py)."""

    def __init__(self) -> None:
        self._is_limiting, self._under_way = False, 0
        self._most, self._failed_at = 0.0, 0.0
        self._measured, self._count, self._bucket_at = 0.0, 0, 0.0
        self._rate, self._tokens, self._filled_at, self._paused_until = 1.0, 0.0, 0.0, 0.0

    def admit(self, now: float) -> float:
        """0 when a request leaves, else the seconds to wait."""
        if self._under_way >= _UNDER_WAY:
            return _WAIT_S
        if now < self._paused_until:
            return self._paused_until - now
        if self._is_limiting:
            self._fill(now)
            if self._tokens < 1 - 1e-9:
                return (1 - self._tokens) / self._rate
            self._tokens -= 1
        self._under_way += 1
        return 0.0

    def record_served(self, _sent_at: float, now: float) -> None:
        """It was served."""
        self._measure(now)
        zero_s = (self._most * 0.3 / 0.4) ** (1 / 3)
        self._set(now, 0.4 * (now - self._failed_at - zero_s) ** 3 + self._most)

    def record_refused(self, _sent_at: float, now: float, retry_after_s: float | None) -> None:
        """It was refused for its rate."""
        self._measure(now)
        self._paused_until = max(self._paused_until, now + (retry_after_s or 0.0))
        self._most = min(self._measured, self._rate) if self._is_limiting else self._measured
        self._failed_at, self._is_limiting = now, True
        self._set(now, 0.7 * self._most)

    def _measure(self, now: float) -> None:
        self._under_way -= 1
        self._count += 1
        bucket_at = floor(2 * now) / 2
        if bucket_at > self._bucket_at:
            self._measured = 0.8 * self._count / (bucket_at - self._bucket_at) + 0.2 * self._measured
            self._count, self._bucket_at = 0, bucket_at

    def _fill(self, now: float) -> None:
        self._tokens = min(max(self._rate, 1.0), self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now

    def _set(self, now: float, rate: float) -> None:
        self._fill(now)
        self._rate = max(min(rate, 2 * self._measured), 0.5)
        self._tokens = min(self._tokens, max(self._rate, 1.0))
