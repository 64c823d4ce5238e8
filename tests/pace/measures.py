"""Counts the served and refused requests of a period, by their time of sending."""

from collections.abc import Iterable
from dataclasses import dataclass

from tests.pace.world import AnsweredRequest


@dataclass(frozen=True, slots=True)
class PeriodCounts:
    """The requests of a period: the numbers of served and refused requests, and the number that the limit allows."""

    served_count: int
    refused_count: int
    allowed_count: float

    @property
    def goodput(self) -> float:
        """The served requests as a share of the allowed requests."""
        return self.served_count / self.allowed_count

    @property
    def refused_share(self) -> float:
        """The refused requests as a share of the sent requests."""
        return self.refused_count / max(1, self.served_count + self.refused_count)


def count_requests(requests: Iterable[AnsweredRequest], rate: float, since_s: float, until_s: float) -> PeriodCounts:
    """Count the requests that were sent at `since_s` or later, and before `until_s` (s). `rate` is the limit."""
    is_served_values = [request.is_served for request in requests if since_s <= request.sent_at < until_s]
    return PeriodCounts(
        sum(is_served_values), len(is_served_values) - sum(is_served_values), rate * (until_s - since_s)
    )
