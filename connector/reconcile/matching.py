"""Which subscribers of a source the service lists, and which it does not: over digests and ids, in sorted arrays. Pure.

24 bytes for each listed subscriber; of the source only a mark on the subscribers that it has met is kept.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from connector.subscribers import Digests, Mask

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Person:
    """An identity that is listed: under these ids, ascending, each with its index in the listing (0-based)."""

    ids: tuple[int, ...]
    indices: tuple[int, ...]


class Matching:
    """Those listed in one base. A person is an identity, numbered from 0 in the order of the identities."""

    def __init__(self, identities: Digests, ids: Integers, indices: Integers) -> None:
        """`identities` (S16), `ids` and `indices` of all who are listed, in any order; an identity may be there several
        times, an id once."""
        by_id = np.argsort(ids, kind="stable")
        order = by_id[np.argsort(identities[by_id], kind="stable")]
        identities, self._ids, self._indices = identities[order], ids[order], indices[order]
        is_first = np.ones(len(identities), dtype=bool)
        is_first[1:] = identities[1:] != identities[:-1]
        self._identities = identities[is_first]
        self._begins = np.append(np.flatnonzero(is_first), len(identities))
        self._is_met = np.zeros(len(self._identities), dtype=bool)
        self._is_compared = np.zeros(len(self._identities), dtype=bool)

    def __len__(self) -> int:
        """Return how many subscribers are listed."""
        return len(self._identities)

    def find(self, identities: Digests) -> Integers:
        """Return for each of these (S16) the subscriber's number, -1 where that identity is not listed."""
        if not len(self._identities):
            return np.full(len(identities), -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(self._identities, identities), len(self._identities) - 1)
        return np.where(self._identities[at] == identities, at, -1).astype(np.int64)

    def meet(self, identities: Digests) -> Integers:
        """Return the same; from now on the source has them."""
        found = self.find(identities)
        self._is_met[found[found >= 0]] = True
        return found

    def compare(self, identities: Digests) -> tuple[Integers, Mask]:
        """Return the same of rows that are to be compared, and which of those that are listed are so for the first
        time."""
        found = self.meet(identities)
        is_new = np.zeros(len(found), dtype=bool)
        is_new[np.unique(found, return_index=True)[1]] = True
        is_listed = found >= 0
        is_new[is_listed] &= ~self._is_compared[found[is_listed]]
        self._is_compared[found[is_listed]] = True
        return found, is_new & is_listed

    def find_first(self, numbers: Integers) -> tuple[Integers, Integers, Mask]:
        """Return for each of these subscribers (their numbers) the smallest id, its index, and whether it has more."""
        begins = self._begins[numbers]
        return self._ids[begins], self._indices[begins], self._begins[numbers + 1] - begins > 1

    def read(self, number: int) -> Person:
        """Return the ids and indices of one person."""
        rows = slice(int(self._begins[number]), int(self._begins[number + 1]))
        return Person(tuple(self._ids[rows].tolist()), tuple(self._indices[rows].tolist()))

    def find_extra(self) -> Integers:
        """Return the subscribers that the source has not shown, by their smallest ids."""
        return self._sort(np.flatnonzero(~self._is_met))

    def find_duplicated(self) -> Integers:
        """Return the subscribers that are listed under more than one id, in the same order."""
        return self._sort(np.flatnonzero(np.diff(self._begins) > 1))

    def take_identities(self, numbers: Integers) -> Digests:
        """Return the digests of these subscribers."""
        return self._identities[numbers]

    def _sort(self, numbers: Integers) -> Integers:
        return numbers[np.argsort(self._ids[self._begins[numbers]])]
