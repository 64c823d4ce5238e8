"""Virtual time: no code waits, because the clock jumps to the next event."""

import heapq
from collections.abc import Callable
from datetime import UTC, datetime

_EPOCH = datetime(2026, 11, 2, tzinfo=UTC).timestamp()
_START_S = 1000.0  # not 0, so that no time equals a value that was never set


class Timer:
    """An event that happens unless it is cancelled."""

    __slots__ = ("callback", "is_cancelled")

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        """Cancel the event."""
        self.is_cancelled = True


class Timeline:
    """The clock of the service and of every process. Events with the same time happen in the order in
    which they were added."""

    def __init__(self) -> None:
        self.now_s = _START_S
        self._events: list[tuple[float, int, Timer]] = []
        self._call_count = 0

    def read_monotonic_s(self) -> float:
        """Return the time in seconds. The time never goes back."""
        return self.now_s

    def read_unix_s(self) -> float:
        """Return the time in Unix seconds."""
        return _EPOCH + self.now_s

    def read_date(self) -> datetime:
        """Return the time as a datetime with a time zone."""
        return datetime.fromtimestamp(self.read_unix_s(), UTC)

    def call_at(self, due_at_s: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` at this time. If the time has passed, `callback` is the next event."""
        timer = Timer(callback)
        self._call_count += 1
        heapq.heappush(self._events, (max(due_at_s, self.now_s), self._call_count, timer))
        return timer

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` after `delay_s` seconds."""
        return self.call_at(self.now_s + delay_s, callback)

    def advance(self, end_s: float = float("inf")) -> bool:
        """Let the next event happen. Return False if there is no event before `end_s`."""
        while self._events and self._events[0][0] <= end_s:
            due_at_s, _, timer = heapq.heappop(self._events)
            if not timer.is_cancelled:
                self.now_s = due_at_s
                timer.callback()
                return True
        return False

    def advance_to(self, end_s: float) -> None:
        """Let all events until `end_s` happen, and set the clock to `end_s`."""
        while self.advance(end_s):
            pass
        self.now_s = max(self.now_s, end_s)
