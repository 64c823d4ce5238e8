"""What the sandbox really stored, and when, by its own truth log: no tool's word is taken for what it did."""

from dataclasses import dataclass
from typing import Any

from connector.sandbox import SandboxProcess


@dataclass(frozen=True, slots=True)
class Creates:
    """When each subscriber was stored (Unix seconds, in order), as what, and how many are there more than once."""

    times: tuple[float, ...]
    stored: frozenset[str]
    duplicates: int

    @property
    def span_s(self) -> float:
        """From the first to the last."""
        return self.times[-1] - self.times[0] if self.times else 0.0

    def compute_rate(self, skip_s: float = 0.0) -> float:
        """Creates/s from `skip_s` after the first to the last; NaN when that is not a second, if any is skipped."""
        left = [at for at in self.times if at >= self.times[0] + skip_s]
        if len(left) < 2 or (skip_s and self.span_s < skip_s + 1):
            return float("nan")
        return (len(left) - 1) / (left[-1] - left[0])


def read_creates(sandbox: SandboxProcess) -> Creates:
    """All creates since the sandbox was last emptied."""
    truth = sandbox.truth()
    events = [event for event in truth["events"] if event["kind"] == "created"]
    stored = frozenset(_describe(event["subscriber"]) for event in events)
    return Creates(tuple(event["at"] for event in events), stored, len(truth["duplicates"]))


def _describe(subscriber: dict[str, Any]) -> str:
    return repr(sorted((name, str(value)) for name, value in subscriber.items() if name != "Id"))
