"""The pauses that the service asks for (Retry-After): until when nothing leaves, and what may be made up for after."""

from math import inf

from connector.pace.deliveries import Deliveries

_KEPT_S = 1.0  # a bucket keeps about as much as it gains in a second
_WINDOWS_TOLD = 4.0
_FASTER = 2.0


class Pauses:
    """`until` (s): nothing may leave before; `cost_s`: how long the last pause was; `can_make_up`: whether the limiter
    may keep what is not used, as a bucket does; `has_overdone`: whether the last refusal was of what made up."""

    __slots__ = ("_began_at", "_made_up_from", "_owed", "_resumed_at", "can_make_up", "cost_s", "has_overdone", "until")

    def __init__(self) -> None:
        self.until = -inf
        self.cost_s = 0.0
        self._began_at = self._resumed_at = -inf
        self._owed = 0.0  # requests that were held up, and that a bucket has kept a place for
        self.can_make_up = True
        self.has_overdone = False
        self._made_up_from = inf  # when the first that made up for a pause was sent

    def note(self, sent_at: float, now: float, asked_s: float, rate: float) -> None:
        """A request that was sent at `sent_at` was refused, and a pause of `asked_s` asked for.

        At `rate` (requests/s) is made up for it; 0 when it is not known yet at which.
        """
        self.has_overdone = sent_at >= self._made_up_from
        if self.has_overdone:
            self.can_make_up = False  # this limiter keeps nothing
        self._made_up_from = inf
        if now >= self.until:
            self._began_at, self._resumed_at = now, self.until
        self.until = max(self.until, now + asked_s)
        self.cost_s = self.until - self._began_at
        self._owed = rate * min(self.cost_s, _KEPT_S) if self.can_make_up else 0.0

    def measure_bucket(self, sent_at: float, deliveries: Deliveries, window_s: float) -> float | None:
        """What a bucket, full when the last pause ended and empty at this refusal, gains a second.

        None if it may as well be a window that refused: that does so within two of its lengths, or hardly at all.
        """
        since_s = sent_at - self._resumed_at
        if not _WINDOWS_TOLD * window_s < since_s < inf:
            return None
        return deliveries.count(self._resumed_at, sent_at) / (since_s + _KEPT_S)

    def quicken(self, gap_s: float, now: float) -> float:
        """The time until the next request, shorter while there is something to make up for."""
        if self._owed <= 0 or now < self.until:
            return gap_s
        self._owed -= 1 - 1 / _FASTER
        self._made_up_from = min(self._made_up_from, now)
        return gap_s / _FASTER
