"""Counts of what was asked and answered, for tests and benchmarks that look from the service's side."""

from collections import Counter
from typing import Any

_GRACE_S = 0.25  # what is on its way when a 429 is answered arrives within this on loopback, also on a busy machine


class Stats:
    """Times are seconds of a clock that does not go back."""

    def __init__(self) -> None:
        self.received: Counter[str] = Counter()
        self.answered: Counter[tuple[str, str]] = Counter()
        self.faults: Counter[str] = Counter()
        self.in_flight = 0
        self.peak_in_flight = 0
        self._window_from = 0.0
        self._window_until = 0.0
        self._inside_window = 0
        self._inside_after_grace = 0

    def note_received(self, operation: str, now: float) -> None:
        """A request of the API has arrived."""
        self.received[operation] += 1
        self.in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        if now < self._window_until:
            self._inside_window += 1
            self._inside_after_grace += now > self._window_from + _GRACE_S

    def note_answered(self, operation: str, answer: str) -> None:
        """It was answered with a status, or ended as a fault has it; a hung one is no longer in flight."""
        self.answered[operation, answer] += 1
        self.in_flight -= 1

    def note_retry_after(self, now: float, wait_s: float) -> None:
        """A 429 told a client to stay away for `wait_s`."""
        if now >= self._window_until:
            self._window_from = now
        self._window_until = max(self._window_until, now + wait_s)

    def read(self) -> dict[str, Any]:
        """All counts: `requests {operation: {received, answers {answer: n}}}` where an answer is a status or the name
        of a fault, `limited` (429s), `inside_retry_after` (arrived while a Retry-After ran; `after_grace`: more than
        250 ms after it began), `in_flight`, `peak_in_flight`, `faults {name: n}`."""
        requests = {
            operation: {
                "received": count,
                "answers": {answer: n for (of, answer), n in self.answered.items() if of == operation},
            }
            for operation, count in self.received.items()
        }
        return {
            "requests": requests,
            "limited": sum(n for (_, answer), n in self.answered.items() if answer == "429"),
            "inside_retry_after": {"all": self._inside_window, "after_grace": self._inside_after_grace},
            "in_flight": self.in_flight,
            "peak_in_flight": self.peak_in_flight,
            "faults": dict(self.faults),
        }
