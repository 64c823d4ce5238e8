"""Whether those active and those not come to TotalCount, where the service's IsActive filter works (rule 4)."""

from dataclasses import dataclass
from enum import Enum

from connector.pages.answer import Answer


class Agreement(Enum):
    """What the two counts say of TotalCount."""

    AGREES = "agrees"
    DISAGREES = "disagrees"
    UNTOLD = "untold"  # the filter does not work, so that its counts mean nothing


@dataclass(slots=True)
class ActivityCount:
    """Two requests of one row each, and two more where the sum does not fit: the list may have changed since.

    `lowest` and `highest` are what rule 4 allows. `asks_for`: whom to count next, None being everybody.
    """

    lowest: float
    highest: float
    active: int | None = None
    inactive: int | None = None
    asks_for: bool | None = True
    agreement: Agreement | None = None
    _asked: int = 0

    def take(self, answer: Answer) -> None:
        """Take in the answer to `asks_for`."""
        self._asked += 1
        total = answer.total
        if total is None or (self.asks_for is not None and not _is_believable(answer)):
            self.agreement, self.active, self.inactive = Agreement.UNTOLD, None, None
        elif self.asks_for is None:
            self.lowest, self.highest = min(self.lowest, total), max(self.highest, total)
            self._decide(again=True)
        elif self.asks_for:
            self.active = total
            self._decide(again=False)
        else:
            self.inactive = total
            self._decide(again=None)

    def _decide(self, *, again: bool | None) -> None:
        """Go on to ask for `again`, unless the sum fits or all four were asked."""
        if self.inactive is not None and self.lowest <= (self.active or 0) + self.inactive <= self.highest:
            self.agreement = Agreement.AGREES
        elif self._asked == 4:  # active, not, all, and the active again, who may have been counted twice
            self.agreement = Agreement.DISAGREES
        self.asks_for = again


def _is_believable(answer: Answer) -> bool:
    """Whether it shows somebody, all of them as asked, if it counts anybody."""
    return answer.is_matching and bool(len(answer.ids)) == bool(answer.total)
