"""The bound of a chance cell: a client that knows the limit, obeys pauses and sends as fast as it may in between."""

from tests.pace.matrix import CHANCE_S, FIRST_S, NO_LIMIT, Cell, Controller, Played, play


class Informed:
    """Sends whenever the bucket, whose rate (requests/s) and depth (requests) it knows, has a token."""

    def __init__(self, rate: float, depth: float) -> None:
        self._rate, self._depth, self._tokens = rate, depth, depth
        self._filled_at, self._paused_until = 0.0, 0.0

    def admit(self, now: float) -> float:
        """0 when a request leaves, else the seconds to wait."""
        if now < self._paused_until:
            return self._paused_until - now
        self._tokens = min(self._depth, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
        if self._tokens < 1 - 1e-9:
            return (1 - self._tokens) / self._rate
        self._tokens -= 1
        return 0.0

    def record_served(self, sent_at: float, now: float) -> None:
        """Nothing that it does not know."""

    def record_refused(self, _sent_at: float, now: float, retry_after_s: float | None) -> None:
        """Chance refused it, and it took no token."""
        self._tokens += 1
        self._paused_until = max(self._paused_until, now + (retry_after_s or 0.0))


def measure_chance(cell: Cell, controller: Controller, seed: int, length_s: int = CHANCE_S) -> tuple[float, float, int]:
    """Return what the controller was served as a share of the bound, from the first create to the end and in the first
    minute, and how many requests it sent inside a pause."""
    depth = 1e9 if cell.kind == NO_LIMIT else round(cell.rate * cell.span_s)
    bound = play(cell, Informed(cell.rate, depth), seed, length_s)
    played = play(cell, controller, seed, length_s)
    return _share(played, bound, length_s), _share(played, bound, FIRST_S), played.inside


def _share(played: Played, bound: Played, seconds: int) -> float:
    return sum(played.served[:seconds]) / sum(bound.served[:seconds])
