"""A subscriber whose create was answered: whether a look shows them tells what the look could have shown."""

import dataclasses

from connector.values import hot_value


@hot_value
class Witness:
    """Somebody confirmed by this run at `at` (monotonic), with the identity's field and its text as it was sent."""

    at: float
    subscriber_id: int
    field: str
    value: str = dataclasses.field(repr=False)
