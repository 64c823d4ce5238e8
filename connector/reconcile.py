"""What the service lists, kept so that a source can be laid beside it; and the subscribers that only one of them has.

Of each listed subscriber a digest, an id and a base are in memory, and in a file what is compared: 34 bytes each in
memory; a subscriber of another base takes 8, one without an identity 16. `Matching`, which is pure, takes 24 bytes for
each; of the source only a mark on the subscribers that it has met is kept.
"""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from connector.fields import BY_NAME
from connector.kept_values import KeptValues
from connector.service.wire import read_field
from connector.subscribers.identity import IDENTITY_BYTES, Digests, Mask, digest_identity, join_digests

Integers = npt.NDArray[np.int64]

BaseOf = tuple[object, object]
"""A base as it is listed: its id and its name."""


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


@dataclass(frozen=True, slots=True)
class _Gathered:
    """Columns over all subscribers that are kept, in the order in which they came; `by_base` are their indices, base by
    base, the base `number` from `begins[number]` on; `all_ids` are the ids of the whole list, ascending."""

    digests: Digests
    ids: Integers
    by_base: Integers
    begins: Integers
    all_ids: Integers


class ListedRows:
    """A sink for `read_list`: keeps those of the bases that `is_wanted`, with the values of the fields `names`.

    `identity` is the field that identifies a subscriber. Close it when it is no longer read.
    """

    def __init__(self, identity: str, names: Sequence[str], is_wanted: Callable[[BaseOf], bool]) -> None:
        self._identity, self._names, self._is_wanted = BY_NAME[identity], tuple(names), is_wanted
        self._values = KeptValues()
        self.start_sweep(0)

    def start_sweep(self, number: int) -> None:
        """Forget what was taken: another sweep shows all of it again."""
        self._values.close()
        self._digests: list[bytes] = []  # a page in each, and so of the arrays
        self._ids: list[Integers] = [np.empty(0, dtype=np.int64)]
        self._bases: list[npt.NDArray[np.int32]] = [np.empty(0, dtype=np.int32)]
        self._other_ids: list[Integers] = []
        self._gathered: _Gathered | None = None
        self._numbers: dict[BaseOf, int] = {}
        self._nameless: dict[BaseOf, array[int]] = {}  # the ids of those in each base who have no identity

    def take(self, wire_objects: Sequence[dict[str, Any]]) -> None:
        """Keep a page."""
        digests, ids, bases, others, kept = list[bytes](), list[int](), list[int](), list[int](), list[list[object]]()
        for wire in wire_objects:
            of_base = _read_base(wire)
            if not self._is_wanted(of_base):
                others.append(wire["Id"])
                continue
            number = self._numbers.setdefault(of_base, len(self._numbers))
            name = wire.get(self._identity.path[0])
            if not isinstance(name, str) or not name.strip():
                self._nameless.setdefault(of_base, array("q")).append(wire["Id"])
                others.append(wire["Id"])
                continue
            digests.append(digest_identity(self._identity.name, name))
            ids.append(wire["Id"])
            bases.append(number)
            kept.append([name, *(read_field(wire, field) for field in self._names)])
        self._digests.append(b"".join(digests))
        self._ids.append(np.array(ids, dtype=np.int64))
        self._bases.append(np.array(bases, dtype=np.int32))
        self._other_ids.append(np.array(others, dtype=np.int64))
        self._values.add(kept)

    @property
    def bases(self) -> list[BaseOf]:
        """Every wanted base that has a listed subscriber."""
        return list(self._numbers)

    def match(self, bases: Sequence[BaseOf]) -> Matching:
        """Return those of these bases, to be matched by their identities; an index is one for `read`. To be called once
        all were taken."""
        gathered = self._gather()
        numbers = [self._numbers[each] for each in bases]
        of_each = [gathered.by_base[gathered.begins[number] : gathered.begins[number + 1]] for number in numbers]
        indices = np.concatenate([np.empty(0, dtype=np.int64), *of_each])
        return Matching(gathered.digests[indices], gathered.ids[indices], indices)

    def collect_nameless(self, bases: Sequence[BaseOf]) -> Integers:
        """Return the ids of subscribers of these bases without an identity, ascending. Call it once all were taken."""
        of_each = [np.array(self._nameless[each], dtype=np.int64) for each in bases if each in self._nameless]
        return np.sort(np.concatenate([np.empty(0, dtype=np.int64), *of_each]))

    def collect_ids(self) -> Integers:
        """Return the ids of the whole list, of every base, ascending. Call it once all were taken."""
        return self._gather().all_ids

    def read(self, place: int) -> tuple[str, list[Any]]:
        """Return the text of the identity as it is listed, and the values of the fields, as they came."""
        name, *values = self._values.read(place)
        return name, values

    def _gather(self) -> _Gathered:
        """The pages made one, once."""
        if self._gathered is None:
            ids, of_row = np.concatenate(self._ids), np.concatenate(self._bases)
            by_base = np.argsort(of_row, kind="stable")
            begins = np.searchsorted(of_row[by_base], np.arange(len(self._numbers) + 1))
            all_ids = np.sort(np.concatenate([ids, *self._other_ids]))
            self._gathered = _Gathered(join_digests(self._digests, IDENTITY_BYTES), ids, by_base, begins, all_ids)
        return self._gathered

    def close(self) -> None:
        """Let go of the file."""
        self._values.close()


def _read_base(wire: dict[str, Any]) -> BaseOf:
    """The id and the name, None where it is no whole number or no text."""
    base = wire.get("Base")
    if not isinstance(base, dict):
        return None, None
    service_id, name = base.get("Id"), base.get("Name")
    return service_id if type(service_id) is int else None, name if isinstance(name, str) else None
