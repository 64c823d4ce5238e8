from .breaker import (
    Breaker as Breaker,
)
from .concurrency import (
    ConcurrencyLimit as ConcurrencyLimit,
)
from .pace import (
    Pace as Pace,
)
from .rate import (
    Found as Found,
    RateController as RateController,
)
