"""All that a run has found of how fast a service takes creates; shared by its bases, which take turns."""

from math import inf

from connector.pace.breaker import Breaker
from connector.pace.concurrency import ConcurrencyLimit
from connector.pace.patience import Patience
from connector.pace.rate import Found, RateController
from connector.pace.shared import SharedRate

Rate = RateController | SharedRate
"""Says when the next request may leave: of a run by itself, or of a part of a joint run."""


class Pace:
    """The controllers of one run: `rate`, `concurrency`, `breaker` and `patience`; of a part of a joint run `shared` is
    its rate, which needs to hear of the others'."""

    __slots__ = ("breaker", "concurrency", "patience", "rate", "shared")

    def __init__(
        self,
        max_rate: float = inf,
        max_concurrency: int = 1,
        found: Found | None = None,
        age_s: float = 0.0,
        *,
        part: tuple[int, int] | None = None,
    ) -> None:
        """`max_rate` (requests/s) and `max_concurrency` (requests under way) are ceilings; `found` is what an earlier
        run found of the rate, `age_s` ago. `part` (I, N): part I of N of a joint run, which share rate and ceiling."""
        self.shared = None if part is None else SharedRate(*part, max_rate, found, age_s)
        self.rate: Rate = self.shared or RateController(max_rate, found, age_s)
        self.concurrency = ConcurrencyLimit(max_concurrency)
        self.breaker = Breaker()
        self.patience = Patience()
