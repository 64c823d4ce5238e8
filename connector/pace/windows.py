"""How long a limiter's window is, learnt from how long everything is refused."""

USUAL_S = (1.0, 2.0, 3.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0)
_OFF = 0.9  # what is measured is off by the gaps between probes; a window's length is a number that people like
_UNCONFIRMED_S = 10.0  # a longer one may have been an outage, and is not waited for until it shows a second time
_LONG_BLOCK_S = 1.5
_TOO_LONG = 3.0


class Windows:
    """The window's length as far as it is known, `length_s`: the shortest usual one until a block shows a longer."""

    __slots__ = ("_opened_at", "is_confirmed", "length_s")

    def __init__(self) -> None:
        self.length_s = USUAL_S[0]
        self.is_confirmed = False
        self._opened_at = 0.0

    @property
    def is_long(self) -> bool:
        """Whether it is longer than what is assumed of a limiter that has shown nothing."""
        return self.length_s > USUAL_S[0]

    @property
    def waited_s(self) -> float:
        """How long to wait for what a rate does within a window; 0 for the shortest."""
        if not self.is_long:
            return 0.0
        return self.length_s if self.is_confirmed else min(self.length_s, _UNCONFIRMED_S)

    def forget(self) -> None:
        """More is served than a window would have allowed: one that has shown only once was none."""
        if not self.is_confirmed and self.length_s > _UNCONFIRMED_S:
            self.length_s = USUAL_S[0]

    def begin(self, now: float) -> None:
        """The first request leaves."""
        self._opened_at = now

    def open(self, blocked_at: float, now: float) -> float | None:
        """All was refused since `blocked_at`, and is not any more.

        Returns for how long (s) what was served by then is one window's, or None if the block was too short to tell.
        From one opening to the next is a window, unless there were windows in between that filled up unnoticed.
        """
        blocked_s, length_s = now - blocked_at, now - self._opened_at
        self._opened_at = now
        if blocked_s <= _LONG_BLOCK_S:
            return None
        if length_s > _TOO_LONG * max(self.length_s, blocked_s):
            length_s = max(self.length_s, 2 * blocked_s)
        before = self.length_s
        self.length_s = max((each for each in USUAL_S if _OFF * each < length_s), default=USUAL_S[0])
        self.is_confirmed = self.length_s == before
        return length_s
