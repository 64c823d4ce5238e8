"""When a service that does not answer is left alone: after a run of failures single probes, then none (architecture 6).

Pure: the time comes in, in seconds of a clock that does not go back.
"""

from math import inf

_FAILURES = 10  # in a row; one that is restarted cuts off all that is under way, and answers a second later
_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 10.0
_APART_S = 2 * _LONGEST_WAIT_S  # between probes it is less: nothing was to be sent meanwhile
_GIVEN_UP_S = 60.0  # a restart takes seconds; a run that is started again by cron loses less than one that hangs


class Breaker:
    """Closed, it lets everything pass; open, one probe at a time, each after a longer wait."""

    __slots__ = ("_failed_at", "_failing_since", "_in_a_row", "_probe_at", "_probe_sent_at", "_wait_s")

    def __init__(self) -> None:
        self._in_a_row = 0
        self._failing_since = inf
        self._failed_at = -inf
        self._wait_s = _FIRST_WAIT_S
        self._probe_at: float | None = None  # when the next probe may leave; None while it is closed
        self._probe_sent_at: float | None = None  # when the probe left that has no answer yet

    @property
    def is_open(self) -> bool:
        """Whether only probes may leave."""
        return self._probe_at is not None

    def wait(self, now: float) -> float:
        """0 when a request may leave; else the seconds to wait: inf, until a probe is back."""
        if self._probe_at is None:
            return 0.0
        return inf if self._probe_sent_at is not None else max(0.0, self._probe_at - now)

    def note_leaving(self, now: float) -> None:
        """A request leaves, since it may: while it is open, as the probe."""
        if self.is_open:
            self._probe_sent_at = now

    def note_well(self) -> None:
        """A request was answered."""
        self._in_a_row, self._failing_since, self._wait_s = 0, inf, _FIRST_WAIT_S
        self._probe_at = self._probe_sent_at = None

    def note_failure(self, sent_at: float, now: float) -> None:
        """A request that left then was not answered. One that left long after the last failure begins a new row."""
        if sent_at - self._failed_at > _APART_S:
            self._in_a_row, self._failing_since = 0, inf
        self._in_a_row, self._failed_at = self._in_a_row + 1, now
        self._failing_since = min(self._failing_since, now)
        if self._probe_at is None:
            if self._in_a_row >= _FAILURES:
                self._probe_at = now + self._wait_s
        elif self._probe_sent_at is not None and sent_at >= self._probe_sent_at:
            self._wait_s = min(2 * self._wait_s, _LONGEST_WAIT_S)
            self._probe_at, self._probe_sent_at = now + self._wait_s, None

    def note_inconclusive(self, sent_at: float) -> None:
        """Note that an attempt says nothing: it was given up, or refused for its rate."""
        if self._probe_sent_at is not None and sent_at >= self._probe_sent_at:
            self._probe_sent_at = None

    def has_given_up(self, now: float) -> bool:
        """Return whether nothing has been answered for so long that trying on is no use."""
        return self._in_a_row >= 2 and now - self._failing_since >= _GIVEN_UP_S
