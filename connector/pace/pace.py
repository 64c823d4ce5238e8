"""The pace of one run, and its circuit breaker. After ten failures in a row, the run sends only single
requests, as probes. If the probes fail as well, the run ends (architecture 6). A run has one pace for all its bases.

The code is pure: each time is an argument, in seconds of a monotonic clock.
"""

from math import inf

from connector.pace.concurrency import ConcurrencyLimit
from connector.pace.rate import FoundLimit, RateController

# The breaker opens after this many failures in a row. A few failures do not show that the service is down.
_FAILURE_COUNT_TO_OPEN_BREAKER = 10
_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 10.0
# If a failed request left more than this many seconds after the last failure, the count of failures starts again.
_MAX_FAILURE_GAP_S = 2 * _LONGEST_WAIT_S

_MAX_FAILURE_TIME_S = 60.0
"""The run ends after this many seconds of failures. A restart of the service takes less time, and cron can start the
run again."""


_MAX_TIME_OF_ONLY_429_S = 180.0
"""The run ends if all answers of this many seconds are 429. The windows of rate limits are shorter."""

# The run ends only after this many 429s in a row. After a long pause, two 429s may be minutes apart, and do not show
# that the service refuses all requests.
_MIN_429_COUNT = 3


class Breaker:
    """A circuit breaker. While the breaker is closed, every request may leave. While the breaker is open, one probe at
    a time may leave, and the waits between probes grow."""

    def __init__(self) -> None:
        self._failures_in_row = 0
        self._failing_since = inf
        self._first_429_at = inf  # time of the first 429 in a row, or inf
        self._count_of_429 = 0  # number of 429 answers in a row
        self._failed_at = -inf
        self._wait_s = _FIRST_WAIT_S
        # The time at which the next probe may leave; None while the breaker is closed.
        self._probe_at: float | None = None
        # The time at which the probe in flight left; None: no probe is in flight.
        self._probe_sent_at: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether so many requests have failed that only single test requests (probes) may leave."""
        return self._probe_at is not None

    def compute_wait_s(self, now: float) -> float:
        """Return the seconds until a request may leave. The result is 0 if a request may leave now, and inf while
        another request tests whether the service works."""
        if self._probe_at is None:
            return 0.0
        return inf if self._probe_sent_at is not None else max(0.0, self._probe_at - now)

    def record_departure(self, now: float) -> None:
        """Record that a request leaves at `now`. While the breaker is open, this request is the probe."""
        if self.is_open:
            self._probe_sent_at = now

    def record_answer(self) -> None:
        """Record that the service answered a request, and did not refuse it because of the rate. Close the breaker."""
        self._failures_in_row, self._failing_since, self._wait_s = 0, inf, _FIRST_WAIT_S
        self._first_429_at, self._count_of_429 = inf, 0
        self._probe_at = self._probe_sent_at = None

    def record_failure(self, sent_at: float, now: float) -> None:
        """Record that a request that left at `sent_at` failed. If the request left long after the last failure, the
        count of failures in a row starts again."""
        if sent_at - self._failed_at > _MAX_FAILURE_GAP_S:
            self._failures_in_row, self._failing_since = 0, inf
        self._failures_in_row, self._failed_at = self._failures_in_row + 1, now
        self._failing_since = min(self._failing_since, now)
        if self._probe_at is None:
            if self._failures_in_row >= _FAILURE_COUNT_TO_OPEN_BREAKER:
                self._probe_at = now + self._wait_s
        elif self._probe_sent_at is not None and sent_at >= self._probe_sent_at:
            self._wait_s = min(2 * self._wait_s, _LONGEST_WAIT_S)
            self._probe_at, self._probe_sent_at = now + self._wait_s, None

    def record_inconclusive_attempt(self, sent_at: float) -> None:
        """Record that an attempt does not show whether the service works, because the attempt was given up, or refused
        because of the rate."""
        if self._probe_sent_at is not None and sent_at >= self._probe_sent_at:
            self._probe_sent_at = None

    def record_rate_limited_request(self, now: float) -> bool:
        """Record that a request was refused because of the rate (429). Return whether the run must end:
        for more than three minutes, all answers (at least three) were 429."""
        self._first_429_at, self._count_of_429 = min(self._first_429_at, now), self._count_of_429 + 1
        is_limited_for_long = now - self._first_429_at > _MAX_TIME_OF_ONLY_429_S
        return is_limited_for_long and self._count_of_429 >= _MIN_429_COUNT

    def has_given_up(self, now: float) -> bool:
        """Return whether the run must end, because requests have failed for a minute."""
        return self._failures_in_row >= 2 and now - self._failing_since >= _MAX_FAILURE_TIME_S


class Pace:
    """The controllers of one run: `rate`, `concurrency` and `breaker`."""

    def __init__(
        self,
        max_rate: float = inf,
        max_concurrency: int = 1,
        found_limit: FoundLimit | None = None,
        found_limit_age_s: float = 0.0,
    ) -> None:
        """`max_rate` (requests/s) and `max_concurrency` (requests in flight) are ceilings. `found_limit` is the limit
        that an earlier run found `found_limit_age_s` seconds ago."""
        self.rate = RateController(max_rate, found_limit, found_limit_age_s)
        self.concurrency = ConcurrencyLimit(max_concurrency)
        self.breaker = Breaker()
