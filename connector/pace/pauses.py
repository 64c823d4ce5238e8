"""The pauses that the service asks for (Retry-After): until when nothing leaves, and what may be made up for after."""

from math import inf

_KEPT_S = 1.0  # a bucket keeps about as much as it gains in a second
_FASTER = 2.0


class Pauses:
    """`until` (s): nothing may leave before; `cost_s`: how long the last pause was; `can_make_up`: whether the limiter
    may keep what is not used, as a bucket does."""

    __slots__ = ("_began_at", "_made_up_from", "_owed", "can_make_up", "cost_s", "until")

    def __init__(self) -> None:
        self.until = -inf
        self.cost_s = 0.0
        self._began_at = -inf
        self._owed = 0.0  # requests that were held up, and that a bucket has kept a place for
        self.can_make_up = True
        self._made_up_from = inf  # when the first that made up for a pause was sent

    def note(self, sent_at: float, now: float, asked_s: float, rate: float) -> None:
        """A request that was sent at `sent_at` was refused, and a pause of `asked_s` asked for, at this rate."""
        if sent_at >= self._made_up_from:
            self.can_make_up = False  # this limiter keeps nothing
        self._made_up_from = inf
        if now >= self.until:
            self._began_at = now
        self.until = max(self.until, now + asked_s)
        self.cost_s = self.until - self._began_at
        self._owed = rate * min(self.cost_s, _KEPT_S) if self.can_make_up else 0.0

    def quicken(self, gap_s: float, now: float) -> float:
        """The time until the next request, shorter while there is something to make up for."""
        if self._owed <= 0 or now < self.until:
            return gap_s
        self._owed -= 1 - 1 / _FASTER
        self._made_up_from = min(self._made_up_from, now)
        return gap_s / _FASTER
