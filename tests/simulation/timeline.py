"""Virtual time: the events in their order. Nothing waits; the clock jumps to the next event."""

import heapq
from collections.abc import Callable
from datetime import UTC, datetime

_EPOCH = datetime(2026, 11, 2, tzinfo=UTC).timestamp()
_BEGINNING_S = 1000.0  # not 0: a time that nobody set must not look like one


class Timer:
    """Something that is to happen, unless it is cancelled."""

    __slots__ = ("act", "is_cancelled")

    def __init__(self, act: Callable[[], None]) -> None:
        self.act = act
        self.is_cancelled = False

    def cancel(self) -> None:
        """It is not to happen."""
        self.is_cancelled = True


class Timeline:
    """The clock that the service and every process share; what is due at the same moment happens in order of asking."""

    def __init__(self) -> None:
        self.now_s = _BEGINNING_S
        self._due: list[tuple[float, int, Timer]] = []
        self._asked = 0

    def read(self) -> float:
        """Seconds, never going back."""
        return self.now_s

    def read_wall(self) -> float:
        """The same moment in Unix seconds."""
        return _EPOCH + self.now_s

    def read_date(self) -> datetime:
        """The same moment, aware."""
        return datetime.fromtimestamp(self.read_wall(), UTC)

    def call_at(self, when_s: float, act: Callable[[], None]) -> Timer:
        """Let it happen then, or next if that is past."""
        timer = Timer(act)
        self._asked += 1
        heapq.heappush(self._due, (max(when_s, self.now_s), self._asked, timer))
        return timer

    def call_later(self, delay_s: float, act: Callable[[], None]) -> Timer:
        """Let it happen so much later."""
        return self.call_at(self.now_s + delay_s, act)

    def advance(self, until_s: float = float("inf")) -> bool:
        """Let the next thing happen; False when there is none before `until_s`."""
        while self._due and self._due[0][0] <= until_s:
            when_s, _, timer = heapq.heappop(self._due)
            if not timer.is_cancelled:
                self.now_s = when_s
                timer.act()
                return True
        return False

    def pass_until(self, until_s: float) -> None:
        """Let everything happen that is due until then, and let that be now."""
        while self.advance(until_s):
            pass
        self.now_s = max(self.now_s, until_s)
