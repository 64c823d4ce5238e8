"""Refusals as they come: in a row, and what is served while some are refused."""

from connector.pace.deliveries import Deliveries
from connector.pace.windows import Windows

_ENOUGH = 40  # served while some are refused: what is counted then is right within 2.5 %
_FEWEST = 8


class Row:
    """Refusals without anything served in between: from which, and until which (by the time they were sent, s)."""

    __slots__ = ("began_at", "last_at", "number")

    def __init__(self) -> None:
        self.number, self.began_at, self.last_at = 0, 0.0, 0.0

    def add(self, sent_at: float) -> None:
        """Another refusal."""
        self.began_at = sent_at if not self.number else self.began_at
        self.last_at = max(self.last_at, sent_at) if self.number else sent_at
        self.number += 1

    def end(self) -> None:
        """Something was served."""
        self.number = 0

    def is_block(self, windows: Windows, trip_s: float) -> bool:
        """Whether all has been refused for so long that sending on would only make more refusals.

        The rest of a short window is over before a probe comes back, and what is served in all is still to be counted.
        """
        fewest, shortest_s = (3, 0.15) if windows.is_long else (5, max(1.0, 2 * trip_s))
        return self.number >= fewest and self.last_at - self.began_at >= shortest_s


class Pressure:
    """What a limiter serves while it refuses some: its rate, over whole windows that end at a refusal; exactly, if the
    window is known.

    A bucket is empty at each refusal; of a window, sliding or fixed, all has been served by then. What else was sent is
    taken to have been served from the same limit: if it was not, the rate is too high for a second, then measured anew;
    if it was and were left out, the rate would be too low for a minute.
    """

    __slots__ = ("_began_at", "_deliveries", "_others")

    def __init__(self, deliveries: Deliveries, others: Deliveries) -> None:
        self._deliveries, self._others = deliveries, others
        self._began_at: float | None = None

    def measure(self, sent_at: float, windows: Windows, expected: float) -> float | None:
        """What is served a second as of this refusal, or None if it cannot be told yet.

        `expected` is what it was taken to be: fewer requests do for a measure that is far below it.
        """
        if self._began_at is None:
            self._began_at = sent_at
        length_s = int((sent_at - self._began_at) / windows.length_s) * windows.length_s
        since = sent_at - length_s
        served = self._deliveries.count(since, sent_at) + self._others.count(since, sent_at)
        if served < _FEWEST or not length_s:
            return None
        measured = served / length_s
        is_told = served >= _ENOUGH or measured < (1 - 1.2 / served) * expected
        return measured if is_told else None
