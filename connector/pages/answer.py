"""One page of the list as it came and as it was taken; only its ids, and what the service says of their place."""

from dataclasses import dataclass

import numpy as np

from connector.pages.id_set import IdArray

_OVERLAP_SHARE = 20
"""A page repeats 1/20 of the one before: 5.3 % more pages, and 50 people of a full page may vanish between two requests
before a step back is needed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One page as it came: where it was asked for, its ids, the three echoes, and whether its rows are as asked."""

    asked: int
    ids: IdArray
    total: int | None
    offset: int | None
    limit: int | None
    is_matching: bool = True


@dataclass(frozen=True, slots=True)
class Taken:
    """A page that joined, at the offset asked for; `is_short`: so few rows that none can follow."""

    offset: int
    ids: IdArray
    total: int | None
    is_short: bool

    @property
    def end(self) -> int:
        """The offset behind its last row."""
        return self.offset + len(self.ids)

    def is_repeated_by(self, answer: Answer) -> bool:
        """Whether another place has the very same rows, though the list claims not to have changed (rule 5)."""
        is_elsewhere = answer.asked != self.offset and answer.total == self.total
        return is_elsewhere and np.array_equal(answer.ids, self.ids)

    @property
    def step(self) -> int:
        """The rows by which a page like this one moves on."""
        return max(1, len(self.ids) - count_overlap(len(self.ids)))


def count_overlap(rows: int) -> int:
    """The rows of a page of so many that the next one repeats."""
    return max(1, rows // _OVERLAP_SHARE)
