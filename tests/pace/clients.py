"""Clients of the simulated world. Both have the rate controller, and one also limits the requests in flight."""

from dataclasses import dataclass, field
from math import inf

from connector.pace.concurrency import ConcurrencyLimit
from connector.pace.rate import RateController


@dataclass(slots=True)
class RateOnlyClient:
    """A client with the rate controller, and without a limit of requests in flight."""

    rate_controller: RateController = field(default_factory=RateController)

    @property
    def max_in_flight(self) -> float:
        """The largest number of requests in flight."""
        return inf

    def admit_or_compute_wait(self, now: float) -> float:
        """Return 0 if a request may leave now, otherwise the seconds to wait."""
        return self.rate_controller.admit_or_compute_wait(now)

    def record_served_request(self, sent_at: float, now: float, _in_flight: int) -> None:
        """Record that a request was served."""
        self.rate_controller.record_served_request(sent_at, now)

    def record_refusal(self, sent_at: float, now: float, retry_after_s: float | None) -> None:
        """Record that a request was refused because of the rate."""
        self.rate_controller.record_refusal(sent_at, now, retry_after_s)


@dataclass(slots=True)
class LoadClient(RateOnlyClient):
    """A client with the rate controller and the limit of requests in flight, as an import has both."""

    concurrency_limit: ConcurrencyLimit = field(default_factory=lambda: ConcurrencyLimit(512))

    @property
    def max_in_flight(self) -> float:
        """The largest number of requests in flight."""
        return self.concurrency_limit.allowed_count

    def record_served_request(self, sent_at: float, now: float, in_flight: int) -> None:
        """Record that a request was served, and how many requests were in flight."""
        self.rate_controller.record_served_request(sent_at, now)
        self.concurrency_limit.record_answer(sent_at, now, in_flight)
