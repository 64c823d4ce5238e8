"""The requests of a run over time, in at most 120 buckets: when all buckets are full, pairs of buckets are merged."""

from dataclasses import dataclass
from typing import Any

_FIRST_S = 0.25  # seconds of a bucket at first: fine enough for a run of ten seconds
_MOST = 120  # buckets: a picture as wide as a phone shows no more


@dataclass(slots=True)
class _Bucket:
    """Counts of one bucket: requests that were answered or given up (`sent`), those refused for their rate, and those
    that failed; the sum of their round trips; and the seconds of pauses that the service asked for."""

    sent: int = 0
    limited: int = 0
    failed: int = 0
    trips_s: float = 0.0
    paused_s: float = 0.0

    def add(self, other: "_Bucket") -> None:
        self.sent += other.sent
        self.limited += other.limited
        self.failed += other.failed
        self.trips_s += other.trips_s
        self.paused_s += other.paused_s


class Timeline:
    """The requests of one client since `began_at` (monotonic)."""

    def __init__(self, began_at: float) -> None:
        self._began_at, self._width_s = began_at, _FIRST_S
        self._full: list[_Bucket] = []
        self._now = _Bucket()
        self._ends_at = began_at + _FIRST_S
        self._pauses: list[tuple[float, float]] = []  # (start, end) of pauses that overlap a bucket that is not closed

    def record_answer(self, sent_at: float, now: float) -> None:
        """Count a request that left at `sent_at`, and was answered or failed at `now`."""
        if now >= self._ends_at:
            self._fill(now)
        self._now.sent += 1
        self._now.trips_s += now - sent_at

    def record_limited(self) -> None:
        """Count a request that was refused for its rate."""
        self._now.limited += 1

    def record_failed(self) -> None:
        """Count a request that was neither successful nor refused."""
        self._now.failed += 1

    def record_pause(self, now: float, until: float) -> None:
        """Record that the service asked at `now` for a pause that ends at `until`."""
        began_at = max(now, self._pauses[-1][1]) if self._pauses else now
        if until > began_at:
            self._pauses.append((began_at, until))

    def as_json(self, now: float) -> dict[str, Any] | None:
        """Return the buckets as columns, or None if there was no request. A bucket lasts `bucket_s` seconds; the last
        bucket may be shorter."""
        if now >= self._ends_at:
            self._fill(now)
        last = _Bucket()
        last.add(self._now)
        last.paused_s = self._sum_pauses(self._ends_at - self._width_s, now)
        buckets = [*self._full, last]
        if not any(bucket.sent for bucket in buckets):
            return None
        return {
            "bucket_s": self._width_s,
            "seconds": round(now - self._began_at, 3),
            "sent": [bucket.sent for bucket in buckets],
            "limited": [bucket.limited for bucket in buckets],
            "failed": [bucket.failed for bucket in buckets],
            "round_trip_ms": [
                round(1000 * bucket.trips_s / bucket.sent, 1) if bucket.sent else None for bucket in buckets
            ],
            "paused_s": [round(bucket.paused_s, 3) for bucket in buckets],
        }

    def _fill(self, now: float) -> None:
        """Close the buckets that have ended at `now`."""
        while self._ends_at <= now:
            self._now.paused_s = self._sum_pauses(self._ends_at - self._width_s, self._ends_at)
            self._full.append(self._now)
            self._now = _Bucket()
            if len(self._full) == _MOST:
                for first, second in zip(self._full[::2], self._full[1::2], strict=True):
                    first.add(second)
                self._full = self._full[::2]
                self._width_s *= 2
            self._ends_at = self._began_at + (len(self._full) + 1) * self._width_s
        self._pauses = [pause for pause in self._pauses if pause[1] > self._ends_at - self._width_s]

    def _sum_pauses(self, began_at: float, ended_at: float) -> float:
        return sum(max(0.0, min(until, ended_at) - max(since, began_at)) for since, until in self._pauses)
