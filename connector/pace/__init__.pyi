from .breaker import (
    Breaker as Breaker,
)
from .concurrency import (
    ConcurrencyLimit as ConcurrencyLimit,
)
from .pace import (
    Pace as Pace,
    Rate as Rate,
)
from .rate import (
    Found as Found,
    RateController as RateController,
)
from .shared import (
    BEAT_S as BEAT_S,
    Beat as Beat,
    SharedRate as SharedRate,
    read_beat as read_beat,
    scale as scale,
    write_beat as write_beat,
)
