"""How fast and how many at once: found from what the service serves, pure, on a clock that is passed in."""

from connector.pace.concurrency import ConcurrencyLimit
from connector.pace.rate import RateController

__all__ = ["ConcurrencyLimit", "RateController"]
