"""Controllers of other tools, which the matrix compares with the rate controller of the connector. The controllers here
follow the published rules of the tools.

Each controller obeys the pause that a refusal asks for, although not every tool does. Each controller has at most 64
requests in flight.
"""

from math import floor

_MAX_IN_FLIGHT = 64
_WAIT_S = 0.001  # with 64 requests in flight, a client waits for this time and then tries again to send a request


class AimdController:
    """Raises the rate by one request/s in each second without a refusal, and halves the rate after a refusal. This is
    the rule of RFC 5681, with seconds in place of round trips."""

    def __init__(self) -> None:
        self._rate, self._due_at, self._paused_until, self._cut_at = 20.0, 0.0, 0.0, -1.0

    def admit_or_compute_wait(self, now: float) -> float:
        """Return 0 if a request may leave now, otherwise the seconds to wait."""
        wait_s = max(self._due_at, self._paused_until) - now
        if wait_s > 1e-9:
            return wait_s
        self._due_at = now + 1 / self._rate
        return 0.0

    def record_served_request(self, _sent_at: float, _now: float) -> None:
        """Record that a request was served."""
        self._rate += 1 / self._rate

    def record_refusal(self, sent_at: float, now: float, retry_after_s: float | None) -> None:
        """Record that a request was refused because of the rate."""
        self._paused_until = max(self._paused_until, now + (retry_after_s or 0.0))
        if sent_at >= self._cut_at:
            self._rate, self._cut_at = max(self._rate / 2, 0.5), max(now, self._paused_until)


class CubicController:
    """The adaptive retry mode of botocore (botocore/retries/adaptive.py and throttling.py). A refusal lowers the rate
    to seven tenths of the measured rate. Then the rate follows the curve of CUBIC, up to twice the measured rate."""

    def __init__(self) -> None:
        self._is_limiting, self._in_flight = False, 0
        self._highest_rate, self._failed_at = 0.0, 0.0
        self._measured_rate, self._answer_count, self._half_second_start = 0.0, 0, 0.0
        self._rate, self._tokens, self._filled_at, self._paused_until = 1.0, 0.0, 0.0, 0.0

    def admit_or_compute_wait(self, now: float) -> float:
        """Return 0 if a request may leave now, otherwise the seconds to wait."""
        if self._in_flight >= _MAX_IN_FLIGHT:
            return _WAIT_S
        if now < self._paused_until:
            return self._paused_until - now
        if self._is_limiting:
            self._fill_bucket(now)
            if self._tokens < 1 - 1e-9:
                return (1 - self._tokens) / self._rate
            self._tokens -= 1
        self._in_flight += 1
        return 0.0

    def record_served_request(self, _sent_at: float, now: float) -> None:
        """Record that a request was served."""
        self._measure_rate(now)
        return_to_highest_rate_s = (self._highest_rate * 0.3 / 0.4) ** (1 / 3)
        self._set_rate(now, 0.4 * (now - self._failed_at - return_to_highest_rate_s) ** 3 + self._highest_rate)

    def record_refusal(self, _sent_at: float, now: float, retry_after_s: float | None) -> None:
        """Record that a request was refused because of the rate."""
        self._measure_rate(now)
        self._paused_until = max(self._paused_until, now + (retry_after_s or 0.0))
        self._highest_rate = min(self._measured_rate, self._rate) if self._is_limiting else self._measured_rate
        self._failed_at, self._is_limiting = now, True
        self._set_rate(now, 0.7 * self._highest_rate)

    def _measure_rate(self, now: float) -> None:
        self._in_flight -= 1
        self._answer_count += 1
        half_second_start = floor(2 * now) / 2
        if half_second_start > self._half_second_start:
            rate = self._answer_count / (half_second_start - self._half_second_start)
            self._measured_rate = 0.8 * rate + 0.2 * self._measured_rate
            self._answer_count, self._half_second_start = 0, half_second_start

    def _fill_bucket(self, now: float) -> None:
        self._tokens = min(max(self._rate, 1.0), self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now

    def _set_rate(self, now: float, rate: float) -> None:
        self._fill_bucket(now)
        self._rate = max(min(rate, 2 * self._measured_rate), 0.5)
        self._tokens = min(self._tokens, max(self._rate, 1.0))
