"""For how long refusals for the rate (429) alone are borne. Pure: the time comes in, in seconds."""

from math import inf

_PATIENCE_S = 180.0  # longer than any usual window: this service takes no creates from us now


class Patience:
    """With a service that refuses everything for its rate, whichever base it is for."""

    __slots__ = ("_refused_since",)

    def __init__(self) -> None:
        self._refused_since = inf  # nothing but refusals for the rate since then

    def note_refused(self, now: float) -> None:
        """A request was refused for the rate."""
        self._refused_since = min(self._refused_since, now)

    def note_taken(self) -> None:
        """A request was answered otherwise."""
        self._refused_since = inf

    def is_over(self, now: float) -> bool:
        """Return whether nothing else has come for too long."""
        return now - self._refused_since > _PATIENCE_S
