"""A subscriber whose create was answered: whether a look shows them tells what the look could have shown."""

import dataclasses
from collections import deque

from connector.values import hot_value

_WITNESSES = (
    1000  # confirmations remembered: absence is proved by the visibility of one that came after (architecture 4.5 (c))
)


@hot_value
class Witness:
    """Somebody confirmed by this run at `at` (monotonic), with the identity's field and its text as it was sent."""

    at: float
    subscriber_id: int
    field: str
    value: str = dataclasses.field(repr=False)


@dataclasses.dataclass(slots=True)
class Seeing:
    """What a run knows of how late the list shows people, whichever of its bases they are in: the latest whom it has
    confirmed, and the largest lag on record for the account (architecture 4.5 (c))."""

    witnesses: deque[Witness] = dataclasses.field(default_factory=lambda: deque(maxlen=_WITNESSES))
    largest_lag_s: float = 0.0
