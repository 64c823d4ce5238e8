"""How long a run continues while every answer refuses the rate (429). Pure: each time is an argument, in seconds."""

from math import inf

_PATIENCE_S = 180.0  # longer than any usual window of a rate limit


class Patience:
    """The time since which the service has refused every request for its rate, in every base of the run."""

    __slots__ = ("_refused_since",)

    def __init__(self) -> None:
        self._refused_since = inf  # since this time every answer was a refusal for the rate

    def record_refused(self, now: float) -> None:
        """Record that a request was refused for its rate."""
        self._refused_since = min(self._refused_since, now)

    def record_other_answer(self) -> None:
        """Record an answer that is not a refusal for the rate."""
        self._refused_since = inf

    def is_over(self, now: float) -> bool:
        """Return whether every answer was a refusal for too long, so that the run must end."""
        return now - self._refused_since > _PATIENCE_S
