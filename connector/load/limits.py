"""How much a run may do before it ends itself: those guards of a job that are judged while it goes on."""

from dataclasses import dataclass

from connector.errors import RunAborted

_ENOUGH = 100  # rows; of fewer a share says little, unless all are concerned
_ALL_OF = 10  # rows at least, that all are concerned


def is_excess(number: int, allowed: float | None, of: int) -> bool:
    """Whether so many of so many rows are more than a guard's share (0 to 1; None: any) allows (architecture 8).

    Judged from 100 rows on, below that only when all of at least 10 rows are concerned.
    """
    if allowed is None or (of < _ENOUGH and not (of >= _ALL_OF and number == of)):
        return False
    return number > allowed * of


@dataclass(slots=True)
class Limits:
    """`max_creates` rows may be sent, and a share of `max_rejected` (0 to 1) of the answered be rejected; None: all."""

    max_creates: int | None = None
    max_rejected: float | None = None
    begun: int = 0  # rows that were sent, or are about to be
    answered: int = 0
    rejected: int = 0  # of the answered

    def allow(self, number: int) -> int:
        """How many of so many more may be sent."""
        return number if self.max_creates is None else max(0, min(number, self.max_creates - self.begun))

    def note(self, *, is_rejected: bool) -> str | None:
        """One was answered; why the run is to end by that, or None."""
        self.answered += 1
        self.rejected += is_rejected
        return self._find_excess() if self.answered >= _ENOUGH else None  # fewer are judged once all have been sent

    def take_back(self) -> None:
        """One that was noted as rejected was not, as a look has shown since."""
        self.rejected -= 1

    def check(self) -> None:
        """Judge what there was when all has been sent. Raises RunAborted."""
        if reason := self._find_excess():
            raise RunAborted(reason)

    def describe_creates(self) -> str:
        """Why nobody more is created."""
        return (
            f"guard.max_creates: {self.begun:,} were sent, as many as it allows, and there are more: the source has "
            "changed since it was surveyed. The others were not sent; look at the source, or raise the guard"
        )

    def _find_excess(self) -> str | None:
        if self.max_rejected is None or not is_excess(self.rejected, self.max_rejected, self.answered):
            return None
        return (
            f"guard.max_rejected: of {self.answered:,} creates that were answered {self.rejected:,} were rejected, and "
            f"{100 * self.max_rejected:.3g} % are allowed. Nobody else was sent; the service's words are in the "
            "rejects file: correct the rows or the mapping, or raise the guard"
        )
