"""What was served, by the time at which it was sent: a limiter counts requests as they come, not as they end."""

_GRAIN_S = 0.005
_PER_SECOND = round(1 / _GRAIN_S)
KEPT_S = 400.0
"""Longer than any stretch that is looked at: the longest hold, and the rise after it."""

_KEPT = round(KEPT_S) * _PER_SECOND
_ROOM = 2 * _KEPT


class Deliveries:
    """How many of the requests sent in each 5 ms were served, for the last 400 s."""

    def __init__(self) -> None:
        self._first = 0  # the number of the first cell
        self._cells: list[int] = []

    def add(self, sent_at: float, number: int = 1) -> None:
        """So many requests that were sent then (s) were served."""
        place = int(sent_at * _PER_SECOND) - self._first
        if not self._cells:
            self._first, place = self._first + place, 0
        missing = place + 1 - len(self._cells)
        if missing > 0:
            self._make_room(missing)
            place = int(sent_at * _PER_SECOND) - self._first
        if place >= 0:  # else: too long ago to matter
            self._cells[place] += number

    def count(self, since: float, until: float) -> float:
        """How many that were sent in [since, until) were served; cells at the ends count by the part that is inside."""
        if until <= since:
            return 0.0
        begin, end = since * _PER_SECOND - self._first, until * _PER_SECOND - self._first
        first, last = int(max(begin, 0.0)), int(max(end, 0.0))
        number = float(sum(self._cells[first:last]))
        number -= self._read(first) * (max(begin, 0.0) - first)
        return number + self._read(last) * (max(end, 0.0) - last)

    def _read(self, place: int) -> int:
        return self._cells[place] if place < len(self._cells) else 0

    def _make_room(self, number: int) -> None:
        if number > _ROOM:  # a pause longer than all that is remembered
            self._first += len(self._cells) + number - _KEPT
            self._cells = [0] * _KEPT
            return
        self._cells.extend([0] * number)
        if len(self._cells) > _ROOM:
            gone = len(self._cells) - _KEPT
            del self._cells[:gone]
            self._first += gone
