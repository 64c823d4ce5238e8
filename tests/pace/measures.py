"""Counts the served and refused requests of a period, by their time of sending."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.pace.world import Trip


@dataclass(frozen=True, slots=True)
class Count:
    """The requests of a period: the numbers of served and refused requests, and the number that the limit allows."""

    served: int
    refused: int
    allowed: float

    @property
    def goodput(self) -> float:
        """The served requests as a share of the allowed requests."""
        return self.served / self.allowed

    @property
    def refusals(self) -> float:
        """The refused requests as a share of the sent requests."""
        return self.refused / max(1, self.served + self.refused)


def count(trips: Iterable[Trip], rate: float, since: float, until: float) -> Count:
    """Return the count of the requests that were sent from `since` to before `until` (s). `rate` is the limit."""
    answers = [trip.is_served for trip in trips if since <= trip.sent_at < until]
    return Count(sum(answers), len(answers) - sum(answers), rate * (until - since))


def add(counts: Sequence[Count]) -> Count:
    """Return the sum of several counts."""
    return Count(sum(x.served for x in counts), sum(x.refused for x in counts), sum(x.allowed for x in counts))
