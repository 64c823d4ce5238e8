"""How fast, how many at once, and when not at all: found from what the service does; pure, on a clock passed in."""

from connector.pace.breaker import Breaker
from connector.pace.concurrency import ConcurrencyLimit
from connector.pace.pace import Pace
from connector.pace.rate import Found, RateController

__all__ = ["Breaker", "ConcurrencyLimit", "Found", "Pace", "RateController"]
