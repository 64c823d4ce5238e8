"""How long a request is under way, and by how much that varies (averages that forget, as TCP keeps them)."""

_WEIGHT = 0.1
_FIRST_GUESS_S = 0.1


class TripTime:
    """Mean round-trip time of single attempts, `mean_s`, and the mean distance from it."""

    __slots__ = ("_deviation_s", "_is_known", "mean_s")

    def __init__(self) -> None:
        self.mean_s = _FIRST_GUESS_S
        self._deviation_s = 0.0
        self._is_known = False

    def note(self, seconds: float) -> None:
        """One attempt took so long from its first byte to its whole answer."""
        if not self._is_known:
            self.mean_s, self._is_known = seconds, True
        off = seconds - self.mean_s
        self._deviation_s += _WEIGHT * (abs(off) - self._deviation_s)
        self.mean_s += _WEIGHT * off

    @property
    def margin_s(self) -> float:
        """Answers come out of order by about so much: what was sent that long before has been answered, mostly."""
        return 2 * self._deviation_s
