"""Counts of what was asked and answered, for tests and benchmarks that look from the service's side."""

from collections import Counter
from typing import Any


class Stats:
    """Times are seconds of a clock that does not go back."""

    def __init__(self) -> None:
        self.received: Counter[str] = Counter()
        self.answered: Counter[tuple[str, str]] = Counter()
        self.faults: Counter[str] = Counter()
        self.limited = 0
        self.in_flight = 0
        self.peak_in_flight = 0
        self._window_until = 0.0
        self._inside_window = 0
        self._told = 0

    def note_received(self, operation: str, now: float, told_until: float) -> None:
        """A request of the API has arrived, by a connection that brought the client a Retry-After until then."""
        self.received[operation] += 1
        self.in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        self._inside_window += now < self._window_until
        self._told += now < told_until

    def note_answered(self, operation: str, answer: str) -> None:
        """It was answered with a status, or ended as a fault has it; a hung one is no longer in flight."""
        self.answered[operation, answer] += 1
        self.in_flight -= 1

    def note_retry_after(self, until: float) -> None:
        """A refusal told a client to stay away until then."""
        self._window_until = max(self._window_until, until)

    def read(self) -> dict[str, Any]:
        """All counts: `requests {operation: {received, answers {answer: n}}}` where an answer is a status or the name
        of a fault, `limited` (how many were refused as beyond a limit), `inside_retry_after` (`all` that arrived while
        a Retry-After ran; `told`: those by a connection that had brought it, so that they left after it), `in_flight`,
        `peak_in_flight`, `faults {name: n}`."""
        requests = {
            operation: {
                "received": count,
                "answers": {answer: n for (of, answer), n in self.answered.items() if of == operation},
            }
            for operation, count in self.received.items()
        }
        return {
            "requests": requests,
            "limited": self.limited,
            "inside_retry_after": {"all": self._inside_window, "told": self._told},
            "in_flight": self.in_flight,
            "peak_in_flight": self.peak_in_flight,
            "faults": dict(self.faults),
        }
