"""A set of ids that grows page by page at 8 bytes an id: a few sorted arrays, merged as they double."""

import numpy as np
import numpy.typing as npt

IdArray = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

NO_IDS: IdArray = np.empty(0, dtype=np.int64)


class IdSet:
    """Ids seen so far. A Python set of a million ids takes 64 MB and more, this one 8."""

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: list[IdArray] = []

    def __len__(self) -> int:
        return sum(len(run) for run in self._runs)

    def holds(self, ids: IdArray) -> Mask:
        """For each id, whether it is in the set."""
        held = np.zeros(len(ids), dtype=np.bool_)
        if not len(ids):
            return held
        low, high = ids.min(), ids.max()
        for run in self._runs:
            if run[0] <= high and run[-1] >= low:  # in id order a page meets one run, or none
                held |= contained(run, ids)
        return held

    def count_between(self, low: int, high: int) -> int:
        """How many of the set are from `low` to `high`, both included."""
        return sum(int(np.searchsorted(run, high, "right") - np.searchsorted(run, low)) for run in self._runs)

    def add(self, ids: IdArray) -> None:
        """Take in ids that differ from each other and from those in the set."""
        if len(ids):
            self._runs.append(np.sort(ids))
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            self._merge_last_two()

    def to_array(self) -> IdArray:
        """All ids, ascending."""
        while len(self._runs) > 1:
            self._merge_last_two()
        return self._runs[0] if self._runs else NO_IDS

    def _merge_last_two(self) -> None:
        # A stable sort of int64 is a merge of the runs that it finds: two of them cost one pass.
        merged = np.concatenate(self._runs[-2:])
        merged.sort(kind="stable")
        self._runs[-2:] = [merged]


def contained(ascending: IdArray, ids: IdArray) -> Mask:
    """For each of `ids`, whether `ascending` (sorted) has it."""
    if not len(ascending):
        return np.zeros(len(ids), dtype=np.bool_)
    places = np.minimum(np.searchsorted(ascending, ids), len(ascending) - 1)
    held: Mask = ascending[places] == ids
    return held


def first_occurrences(ids: IdArray) -> Mask:
    """For each id, whether it stands in the array for the first time."""
    first = np.zeros(len(ids), dtype=np.bool_)
    first[np.unique(ids, return_index=True)[1]] = True
    return first
