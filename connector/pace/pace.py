"""The pace controllers of one run. The bases of the run share them, one base at a time."""

from math import inf

from connector.pace.breaker import Breaker
from connector.pace.concurrency import ConcurrencyLimit
from connector.pace.patience import Patience
from connector.pace.rate import Found, RateController


class Pace:
    """The controllers of one run: `rate`, `concurrency`, `breaker` and `patience`."""

    __slots__ = ("breaker", "concurrency", "patience", "rate")

    def __init__(
        self,
        max_rate: float = inf,
        max_concurrency: int = 1,
        found: Found | None = None,
        age_s: float = 0.0,
    ) -> None:
        """`max_rate` (requests/s) and `max_concurrency` (requests in flight) are ceilings. `found` is the limit that an
        earlier run found `age_s` seconds ago."""
        self.rate = RateController(max_rate, found, age_s)
        self.concurrency = ConcurrencyLimit(max_concurrency)
        self.breaker = Breaker()
        self.patience = Patience()
