"""Clients of the simulated world: the rate controller alone, and together with the limit of requests in flight."""

from dataclasses import dataclass, field
from math import inf

from connector.pace.concurrency import ConcurrencyLimit
from connector.pace.rate import RateController


@dataclass(slots=True)
class RateAlone:
    """A client that only the rate controller limits."""

    rate: RateController = field(default_factory=RateController)
    allowed: float = inf

    def admit(self, now: float) -> float:
        return self.rate.admit(now)

    def note_list(self, now: float) -> None:
        self.rate.reserve(now)

    def record_served(self, sent_at: float, now: float, _under_way: int) -> None:
        self.rate.record_served(sent_at, now)

    def record_refused(self, sent_at: float, now: float, retry_after_s: float | None) -> None:
        self.rate.record_refused(sent_at, now, retry_after_s)


@dataclass(slots=True)
class Both:
    """A client with the rate controller and the limit of requests in flight, like a load."""

    rate: RateController = field(default_factory=RateController)
    concurrency: ConcurrencyLimit = field(default_factory=lambda: ConcurrencyLimit(512))

    @property
    def allowed(self) -> float:
        return self.concurrency.allowed

    def admit(self, now: float) -> float:
        return self.rate.admit(now)

    def note_list(self, now: float) -> None:
        self.rate.reserve(now)

    def record_served(self, sent_at: float, now: float, under_way: int) -> None:
        self.rate.record_served(sent_at, now)
        self.concurrency.record_answer(sent_at, now, under_way)

    def record_refused(self, sent_at: float, now: float, retry_after_s: float | None) -> None:
        self.rate.record_refused(sent_at, now, retry_after_s)
