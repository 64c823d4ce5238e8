"""Refusals that have nothing to do with our rate: faults, or a limit that others use up.

A rate that was too high has fewer refusals once it is cut. Where several cuts leave their share as it was, that share
is noise: it is no reason to cut again, nor to stop growing.
"""

_AS_BEFORE = 0.6
_FEWEST = 3
_MOST = 0.08  # a share that is larger has to do with us, or is nothing to get used to
_CUTS = 3
_CUTS_AFTER_PAUSES = 5  # a service that asks for pauses counts, most likely
_TOLERATED = 2.0
_SLACK = 0.01
_UNTIL_TOLD = 0.2
_FADES = 0.7


class Noise:
    """`share`: how many of the requests are refused at any rate, as far as it is known. Counts since the last cut."""

    __slots__ = ("_before", "_cuts", "_refused", "_served", "share")

    def __init__(self) -> None:
        self.share = 0.0
        self._before = 1.0  # the share that led to the last cuts
        self._cuts = 0  # in a row that left the share as it was
        self._served = self._refused = 0

    def note_served(self) -> None:
        """One was served that was sent since the last cut."""
        self._served += 1

    def note_refused(self) -> None:
        """One was refused that was sent since the last cut."""
        self._refused += 1

    def explains_start(self) -> bool:
        """Whether so few are refused, before anything is known, that it need not be the rate."""
        return self._refused < _FEWEST or self._read_share() <= _UNTIL_TOLD

    def explains(self) -> bool:
        """Whether no more were refused than would be at any rate."""
        if not self.share:
            return False
        return self._refused < _FEWEST or self._read_share() <= _TOLERATED * self.share + _SLACK

    @property
    def is_first_cut(self) -> bool:
        """Whether the next cut is the first since it was calm, or since one that helped."""
        return not self._cuts

    def is_left(self, *, is_paused: bool) -> bool:
        """Whether the last cuts have changed nothing: what is refused now is noise, and known as such from now on.

        To be asked before each cut; `note_cut` follows unless it is.
        """
        share, cuts = self._read_share(), _CUTS_AFTER_PAUSES if is_paused else _CUTS
        if self._cuts < cuts or self._refused < _FEWEST or not _AS_BEFORE * self._before <= share <= _MOST:
            return False
        self.share = max(self.share, share)
        self._cuts = 0
        self.begin()
        return True

    def is_to_be_seen(self, *, is_paused: bool) -> bool:
        """Whether there were cuts enough, and it cannot be told yet what they have changed."""
        return is_paused and self._cuts >= _CUTS_AFTER_PAUSES and self._refused < _FEWEST

    def note_cut(self) -> None:
        """The rate is cut, for what was refused since the last time."""
        share = self._read_share()
        has_helped = self._refused >= _FEWEST and share < _AS_BEFORE * self._before
        self._cuts = 1 if has_helped or not self._cuts else self._cuts + 1
        weight = 1 / min(self._cuts, _CUTS_AFTER_PAUSES)
        self._before = share if self._cuts == 1 else (1 - weight) * self._before + weight * share
        self.begin()

    def note_calm(self) -> None:
        """It has been quiet for so long that the rate is tried upward."""
        faded = self.share * _FADES
        self.share = faded if faded > _SLACK / 10 else 0.0
        self._before, self._cuts = 1.0, 0
        self.begin()

    def begin(self) -> None:
        """Count anew."""
        self._served = self._refused = 0

    def _read_share(self) -> float:
        return self._refused / max(1, self._served + self._refused)
