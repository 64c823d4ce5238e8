"""How many requests may be under way: as many as the service works on at once, and hardly a queue of ours before it.

Theory of operation. In rounds: the mean round-trip time of a round's requests against the least that any round had. As
long as it stays near that, and the limit is what holds requests back, the limit grows: twofold until the first round
that takes long, by a tenth after that. When a round takes long, requests wait for each other somewhere, and the limit
falls to what would hardly have had to wait (Little's law: as much is served in the least time). If less is served with
fewer under way, it was not they who made each other wait: the service has become slower, and what its round trips take
is the least time from then on.

A refusal or a failure halves the limit while the limit doubles, and takes a quarter later. After refusals the limit
grows only once several rounds went well: four times as many for each refusal, half as many for each growth.
"""

from math import inf

_FIRST = 16.0
_LEAST = 1.0
_NEAR = 1.15
_LONG = 1.25
_TOLERATED_S = 0.003  # a round trip on loopback varies by milliseconds with the work of this process
_MUCH_FEWER = 0.8
_LESS = 0.85
_GROWTH = 0.1
_FEWEST_IN_ROUND = 16
_SHORTEST_ROUND_S = 0.1
_MOST_ROUNDS_TO_GROW = 16
_HALF, _THREE_QUARTERS = (
    0.5,
    0.75,
)  # after doubling, half was right before; after growth by a tenth, the limit is nearly right


class ConcurrencyLimit:
    """A limit of requests in flight: `allowed`, which begins at `first` and never exceeds `ceiling`.

    Latency alone does not reduce the limit below `least`; refusals do. A round has at least `fewest_in_round` answers.
    """

    def __init__(
        self,
        ceiling: int,
        *,
        first: float = _FIRST,
        least: float = _LEAST,
        fewest_in_round: int = _FEWEST_IN_ROUND,
    ) -> None:
        self._ceiling = max(float(ceiling), _LEAST)
        self._allowed = min(first, self._ceiling)
        self._least = min(least, self._ceiling)
        self._fewest_in_round = fewest_in_round
        self._rounds_to_grow = 1  # rounds that must go well before the limit grows; more after each refusal
        self._rounds_well = 0
        self._is_doubling = True
        self._least_s = inf
        self._fell: tuple[float, float] | None = None  # from which limit, and how much was served a second by then
        self._began_at = -inf
        self._first_at = 0.0  # when the first answer of the round came
        self._number, self._sum_s, self._most = 0, 0.0, 0

    @property
    def allowed(self) -> int:
        """The limit, at least 1."""
        return int(self._allowed)

    def note(self, sent_at: float, now: float, under_way: int) -> None:
        """One attempt that left at `sent_at` is answered (s); `under_way` with it, as the answer came."""
        if sent_at < self._began_at:  # sent in another round, by another limit
            return
        if not self._number:
            self._first_at = now
        self._number += 1
        self._sum_s += now - sent_at
        self._most = max(self._most, under_way)
        if self._number >= max(self._fewest_in_round, self._allowed / 2) and now - self._began_at >= _SHORTEST_ROUND_S:
            self._end_round(self._sum_s / self._number, now)

    def note_refused(self, sent_at: float, now: float) -> None:
        """Reduce the limit because an attempt that left at `sent_at` (s) was refused or failed.

        Attempts that left before the last reduction are ignored.
        """
        if sent_at < self._began_at:
            return
        fallen = self._allowed * (_HALF if self._is_doubling else _THREE_QUARTERS)
        self._is_doubling, self._fell = False, None
        self._rounds_to_grow, self._rounds_well = min(4 * self._rounds_to_grow, _MOST_ROUNDS_TO_GROW), 0
        self._allowed = max(_LEAST, min(fallen, self._allowed - 1))
        self._begin_round(now)

    def _begin_round(self, now: float) -> None:
        self._began_at, self._number, self._sum_s, self._most = now, 0, 0.0, 0

    def _end_round(self, mean_s: float, now: float) -> None:
        is_binding = self._most >= 0.9 * int(self._allowed)
        served = (self._number - 1) / max(now - self._first_at, _SHORTEST_ROUND_S / 100)
        self._begin_round(now)
        self._least_s = min(self._least_s, mean_s)
        if self._fell is not None and self._allowed < _MUCH_FEWER * self._fell[0]:
            if is_binding and served < _LESS * self._fell[1]:
                self._least_s = mean_s
            self._fell = None
        if mean_s > _LONG * self._least_s + _TOLERATED_S:
            self._is_doubling = False
            self._fell = self._fell or (self._allowed, served)
            fallen = self._allowed * (_NEAR * self._least_s + _TOLERATED_S) / mean_s
            self._allowed = max(fallen, min(self._least, self._allowed))
        elif is_binding and mean_s <= _NEAR * self._least_s + _TOLERATED_S:
            self._grow()

    def _grow(self) -> None:
        self._rounds_well += 1
        if self._rounds_well < self._rounds_to_grow:
            return
        self._rounds_to_grow, self._rounds_well = max(1, self._rounds_to_grow // 2), 0
        grown = 2 * self._allowed if self._is_doubling else self._allowed + max(1.0, _GROWTH * self._allowed)
        self._allowed = min(grown, self._ceiling)
