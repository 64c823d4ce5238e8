"""What trips come to: how much was served and refused in a stretch, by the time of sending, and when a rate was met."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.pace.world import Trip


@dataclass(frozen=True, slots=True)
class Count:
    """What was sent in a stretch: how much of it was served, and how much the limiter would have allowed."""

    served: int
    refused: int
    allowed: float

    @property
    def goodput(self) -> float:
        """What was served, as a share of what is allowed."""
        return self.served / self.allowed

    @property
    def refusals(self) -> float:
        """What was refused, as a share of what was sent."""
        return self.refused / max(1, self.served + self.refused)


def count(trips: Iterable[Trip], rate: float, since: float, until: float) -> Count:
    """Of what was sent in [since, until) (s)."""
    answers = [trip.is_served for trip in trips if since <= trip.sent_at < until]
    return Count(sum(answers), len(answers) - sum(answers), rate * (until - since))


def add(counts: Sequence[Count]) -> Count:
    """Several counts as one."""
    return Count(sum(x.served for x in counts), sum(x.refused for x in counts), sum(x.allowed for x in counts))
