"""How many requests may be sent again: so few that they never become the service's burden (design, section 6)."""

_SPAN_S = 10.0
_SHARE = 0.1
_ALWAYS = 10


class RetryBudget:
    """10 % of the requests of the last ten seconds, and at least 10. The time comes in, in seconds."""

    __slots__ = ("_before", "_began_at", "_requests", "_retries")

    def __init__(self) -> None:
        self._began_at = float("-inf")
        self._requests = self._retries = 0  # in this half of the span
        self._before = (0, 0)  # the same of the half before

    def note_request(self, now: float) -> None:
        """A request leaves, for the first time or again."""
        if now - self._began_at >= _SPAN_S / 2:
            self._begin_half(now)
        self._requests += 1

    def take(self, now: float) -> bool:
        """Whether one may be sent again; it is counted if so."""
        if now - self._began_at >= _SPAN_S / 2:
            self._begin_half(now)
        requests, retries = self._requests + self._before[0], self._retries + self._before[1]
        if retries >= max(_ALWAYS, _SHARE * requests):
            return False
        self._retries += 1
        return True

    def _begin_half(self, now: float) -> None:
        is_next = now - self._began_at < _SPAN_S
        self._before = (self._requests, self._retries) if is_next else (0, 0)
        self._began_at, self._requests, self._retries = now, 0, 0
