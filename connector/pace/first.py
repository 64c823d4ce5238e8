"""The first estimate of a limit whose refusals cost a pause: nothing can be measured between two of them."""

_MOST_OTHERS = 0.25  # of what was served: requests of another kind, as far as they are believed to count
_MOST_BEFORE_PAUSES = 0.015  # the same where a pause is dear: less than is left below the estimate


class FirstEstimate:
    """All that was served in the window (s) before the first refusal, sent at `refused_at`: the whole of what a window
    allows.

    Requests of another kind may have counted as well; whether they did, the next refusal says.
    """

    __slots__ = ("_length_s", "_most_others", "_others", "_refused_at", "_served", "is_open")

    def __init__(
        self, refused_at: float, length_s: float, served: float, others: float, *, is_pause_dear: bool
    ) -> None:
        self._refused_at, self._length_s = refused_at, length_s
        self._served, self._others = served, others
        self._most_others = _MOST_BEFORE_PAUSES if is_pause_dear else _MOST_OTHERS
        self.is_open = not is_pause_dear and others > 0  # whether a refusal would say that the others did not count

    @property
    def rate(self) -> float:
        """Requests/s."""
        return (self._served + min(self._others, self._most_others * self._served)) / self._length_s

    @property
    def alone(self) -> float:
        """Requests/s, if no others count."""
        return self._served / self._length_s

    def note_late(self, sent_at: float) -> bool:
        """One more was served, whose answer has come after the refusal's. Returns whether it was of that window."""
        is_of_window = self._refused_at - self._length_s <= sent_at <= self._refused_at
        self._served += is_of_window
        return is_of_window
