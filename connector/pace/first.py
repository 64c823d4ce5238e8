"""The first estimate of a limit whose refusals cost a pause: nothing can be measured between two of them."""

_MOST_OTHERS = 0.25  # of what was served: requests of another kind, as far as they are believed to count
_MOST_BEFORE_PAUSES = 0.015  # the same where a pause is dear: less than is left below the estimate


class FirstEstimate:
    """All that was served in the window before the first refusal, taken for the whole of what a window allows.

    Requests of another kind may have counted as well; whether they did, the next refusal says.
    """

    __slots__ = ("_length_s", "_most_others", "_others", "_served", "is_open")

    def __init__(self, served: float, others: float, length_s: float, *, is_pause_dear: bool) -> None:
        self._served, self._others, self._length_s = served, others, length_s
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

    def note_late(self) -> None:
        """One more was served in that window: its answer has come after the refusal's."""
        self._served += 1
