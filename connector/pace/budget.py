"""How many requests may be sent again: so few that they never become the service's burden (design, section 6)."""

from collections import deque

_SPAN_S = 10
_SHARE = 0.1
_ALWAYS = 10


class RetryBudget:
    """10 % of the requests of the last ten seconds, and at least 10. The time comes in, in seconds."""

    __slots__ = ("_seconds",)

    def __init__(self) -> None:
        self._seconds: deque[list[int]] = deque()  # [which second, requests, retries]

    def note_request(self, now: float) -> None:
        """A request leaves, for the first time or again."""
        self._read_second(now)[1] += 1

    def take(self, now: float) -> bool:
        """Whether one may be sent again; it is counted if so."""
        second = self._read_second(now)
        requests, retries = (sum(each[place] for each in self._seconds) for place in (1, 2))
        if retries >= max(_ALWAYS, _SHARE * requests):
            return False
        second[2] += 1
        return True

    def _read_second(self, now: float) -> list[int]:
        if not self._seconds or self._seconds[-1][0] != int(now):
            self._seconds.append([int(now), 0, 0])
            while self._seconds[0][0] < int(now) - _SPAN_S:
                self._seconds.popleft()
        return self._seconds[-1]
