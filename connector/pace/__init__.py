"""How fast, how many at once, and when not at all: found from what the service does; pure, on a clock passed in."""

from connector.pace.breaker import Breaker
from connector.pace.budget import RetryBudget
from connector.pace.concurrency import ConcurrencyLimit
from connector.pace.rate import RateController

__all__ = ["Breaker", "ConcurrencyLimit", "RateController", "RetryBudget"]
