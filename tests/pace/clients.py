"""Clients of the simulated world. Both have the rate controller, and one also limits the requests in flight."""

from dataclasses import dataclass, field
from math import inf

from connector.pace.concurrency import ConcurrencyLimit
from connector.pace.rate import RateController


@dataclass(slots=True)
class RateOnlyClient:
    """A client with the rate controller, and without a limit of requests in flight."""

    rate_controller: RateController = field(default_factory=RateController)
    max_in_flight: float = inf

    def admit_or_compute_wait(self, now: float) -> float:
        return self.rate_controller.admit_or_compute_wait(now)

    def record_list_request(self, now: float) -> None:
        self.rate_controller.reserve_departure(now)

    def record_served_request(self, sent_at: float, now: float, _in_flight: int) -> None:
        self.rate_controller.record_served_request(sent_at, now)

    def record_refusal(self, sent_at: float, now: float, retry_after_s: float | None) -> None:
        self.rate_controller.record_refusal(sent_at, now, retry_after_s)


@dataclass(slots=True)
class LoadClient:
    """A client with the rate controller and the limit of requests in flight, as an import has both."""

    rate_controller: RateController = field(default_factory=RateController)
    concurrency_limit: ConcurrencyLimit = field(default_factory=lambda: ConcurrencyLimit(512))

    @property
    def max_in_flight(self) -> float:
        return self.concurrency_limit.allowed_count

    def admit_or_compute_wait(self, now: float) -> float:
        return self.rate_controller.admit_or_compute_wait(now)

    def record_list_request(self, now: float) -> None:
        self.rate_controller.reserve_departure(now)

    def record_served_request(self, sent_at: float, now: float, in_flight: int) -> None:
        self.rate_controller.record_served_request(sent_at, now)
        self.concurrency_limit.record_answer(sent_at, now, in_flight)

    def record_refusal(self, sent_at: float, now: float, retry_after_s: float | None) -> None:
        self.rate_controller.record_refusal(sent_at, now, retry_after_s)
