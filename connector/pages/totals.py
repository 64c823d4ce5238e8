"""What TotalCount said, and what the joints say of the changes behind it (architecture 7, rule 4)."""

from dataclasses import dataclass

from connector.pages.joint import Joint


@dataclass(slots=True)
class Totals:
    """Every TotalCount of one sweep; `is_missing` once an answer had none."""

    first: int | None = None
    last: int | None = None
    smallest: int | None = None
    largest: int | None = None
    is_missing: bool = False

    def note(self, total: int | None) -> None:
        """Take in the TotalCount of one more answer."""
        if total is None:
            self.is_missing = True
            return
        self.first = total if self.first is None else self.first
        self.last = total
        self.smallest = total if self.smallest is None else min(self.smallest, total)
        self.largest = total if self.largest is None else max(self.largest, total)

    def are_all(self, count: int) -> bool:
        """Whether every answer had a TotalCount, and this one."""
        return not self.is_missing and self.smallest == self.largest == count

    @property
    def are_constant(self) -> bool:
        """Whether no answer contradicted another; of none at all, that is so too."""
        return self.smallest == self.largest


@dataclass(slots=True)
class Changes:
    """Who came and went during one sweep, at least, told from ranks: nobody is counted whose change left no trace.

    A change before the joint shifts the ranks of the rows that two pages share; what else TotalCount changed by
    happened after it. So the rows of a stable order come to `first TotalCount - vanished + appeared`, precisely.
    """

    appeared: int = 0
    vanished: int = 0
    is_exact: bool = True

    def note_joint(self, joint: Joint, total_before: int | None, total: int | None) -> None:
        """Take in a matched joint, between answers with these TotalCounts."""
        self._note(joint.shift - joint.appeared_before)
        self.appeared += joint.appeared_before + joint.appeared
        self.vanished += joint.vanished
        if total is None or total_before is None:
            self.is_exact = False
        else:
            self._note((total - total_before - joint.shift) - joint.appeared + joint.vanished)

    def note_end(self, total_before: int | None, total: int | None) -> None:
        """Take in the empty page past the end, where no row tells the place of a change."""
        if total is not None and total_before is not None:
            self._note(total - total_before)

    def _note(self, net: int) -> None:
        self.appeared += max(net, 0)
        self.vanished += max(-net, 0)

    def allow(self, distinct: int, totals: Totals) -> bool:
        """Whether so many different ids fit the TotalCounts: within [smallest - vanished, largest + appeared]."""
        if totals.smallest is None or totals.largest is None:
            return False
        return not self.is_exact or totals.smallest - self.vanished <= distinct <= totals.largest + self.appeared
