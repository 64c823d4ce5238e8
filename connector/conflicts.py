"""Rows of one subscriber that say different things: which of them is used, and in which fields the others differ.

The first row is used, unless another row says inactive. So both can be known only at the end of the source.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from connector.fields import SENT
from connector.plurals import agree, count
from connector.subscribers.identity import Digests, Mask, compute_field_digests
from connector.subscribers.preparation import Difference, Positions, PreparedChunk, find_inactive

_ROWS_NAMED = 10  # in one message


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of noted subscribers: each one's subscriber and identity, the index of its file, its record number, whether
    it says inactive and whether it is a duplicate, and the digests of its values (a column for each field)."""

    persons: Digests
    identities: Digests
    files: Positions
    numbers: Positions
    is_inactive: Mask
    is_duplicate: Mask
    digests: npt.NDArray[np.bytes_]

    def select(self, indices: Positions) -> "_Rows":
        """Return some of the rows."""
        return _Rows(*(getattr(self, name)[indices] for name in self.__slots__))

    @classmethod
    def join(cls, parts: Sequence["_Rows"]) -> "_Rows":
        """Return all rows together."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__slots__))


class Conflicts:
    """`note` each chunk of a source in order, then `settle` with all chunks once more, then `resolve` each chunk."""

    def __init__(self, identity: str) -> None:
        self._names = tuple(field.name for field in SENT if field.name != identity)
        self._noted: list[Digests] = []
        self._barred: list[tuple[Digests, Positions, Positions]] = []  # identities, indices of files, record numbers
        self._files: dict[str, int] = {}
        self._contested: Digests = np.empty(0, dtype="S16")  # the noted subscribers, once all are known
        self._barred_identities: Digests = self._contested  # of invalid rows, in order
        self._used: _Rows  # the row that is used for each of them, in their order; none for a barred subscriber
        self.messages: list[str] = []

    def note(self, prepared: PreparedChunk) -> None:
        """Note the subscribers of this chunk whose rows differ, and the identities of invalid rows that do not say
        active."""
        if prepared.is_different.any():
            self._noted.append(prepared.persons[prepared.is_different])
        if len(prepared.barred[0]):
            identities, numbers = prepared.barred
            self._barred.append((identities, np.full(len(identities), self._find_file(prepared)), numbers))

    def settle(self, chunks: Iterable[PreparedChunk]) -> None:
        """Find the row that is used for each noted subscriber. The chunks are read only if there is one."""
        if not self._noted and not self._barred:
            return
        self._contested = np.unique(np.concatenate([self._contested, *self._noted]))
        places = np.empty((0, 2), dtype=np.int64)  # a place: index of the file, record number
        if self._barred:
            identities, files, numbers = (np.concatenate(each) for each in zip(*self._barred, strict=True))
            self._barred_identities, first = np.unique(identities, return_index=True)
            places = np.stack([files, numbers], axis=1)[first]
        barred = self._barred_identities
        rows = _Rows.join([self._select(prepared)[1] for prepared in chunks])
        usable = np.flatnonzero(~rows.is_duplicate & (rows.is_inactive | ~np.isin(rows.identities, barred)))
        usable = usable[np.lexsort((~rows.is_inactive[usable], rows.persons[usable]))]  # inactive rows first
        _, first = np.unique(rows.persons[usable], return_index=True)
        used = self._used = rows.select(usable[first])
        others = np.unique(rows.persons[~rows.is_inactive])  # with a row that does not say inactive
        is_overruling = used.is_inactive & np.isin(used.persons, others)
        is_unused = ~rows.is_inactive & ~np.isin(rows.persons, used.persons)
        is_barring = np.isin(barred, rows.identities[is_unused])
        used_places = np.stack([used.files, used.numbers], axis=1)
        self.messages += self._describe(used_places[is_overruling].tolist(), places[is_barring].tolist())

    def resolve(self, prepared: PreparedChunk) -> PreparedChunk:
        """Return the chunk without the rows that an inactive row replaces, and with the fields in which rows differ."""
        if not len(self._contested) and not len(self._barred_identities):
            return prepared
        indices, rows = self._select(prepared)
        used = self._used
        found = np.searchsorted(used.persons, rows.persons)
        found[found == len(used.persons)] = 0
        has_used = np.zeros(len(indices), dtype=bool)
        if len(used.persons):
            has_used = used.persons[found] == rows.persons
        is_overruled = ~rows.is_inactive
        is_overruled[has_used] &= used.is_inactive[found[has_used]]
        is_duplicate = prepared.is_duplicate.copy()
        is_duplicate[indices] |= is_overruled & ~prepared.is_suppressed[indices]
        positions, differences = prepared.valid.subscribers.index.to_numpy()[indices], list[Difference]()
        for place in np.flatnonzero(is_duplicate[indices]).tolist():
            fields: tuple[str, ...] = ()
            if has_used[place]:
                differs = rows.digests[place] != used.digests[found[place]]
                fields = tuple(name for name, is_other in zip(self._names, differs, strict=True) if is_other)
            if fields or not has_used[place]:
                differences.append(Difference(int(positions[place]), fields, bool(is_overruled[place])))
        return replace(prepared, is_duplicate=is_duplicate, differences=tuple(differences))

    def _select(self, prepared: PreparedChunk) -> tuple[Positions, _Rows]:
        """Return the valid rows of noted subscribers, with their indices."""
        identities = prepared.valid.identities
        is_noted = np.isin(prepared.persons, self._contested) | np.isin(identities, self._barred_identities)
        indices = np.flatnonzero(is_noted)
        rows = prepared.valid.subscribers.iloc[indices]
        numbers = prepared.chunk.numbers[rows.index.to_numpy(dtype=np.int64)]
        digests = compute_field_digests(rows, self._names)
        return indices, _Rows(
            prepared.persons[indices],
            identities[indices],
            np.full(len(indices), self._find_file(prepared)),
            numbers,
            find_inactive(rows),
            prepared.is_duplicate[indices],
            digests,
        )

    def _find_file(self, prepared: PreparedChunk) -> int:
        return self._files.setdefault(prepared.chunk.name, len(self._files))

    def _describe(self, overruling: list[list[int]], barring: list[list[int]]) -> Iterator[str]:
        """Yield messages; the arguments are the places of rows that are used, and of invalid rows."""
        if number := len(overruling):
            yield (
                f"{count(number, 'subscriber')} {agree(number, 'has', 'have')} rows that disagree on is_active: the "
                f"inactive row is used ({self._name_rows(overruling)})"
            )
        if number := len(barring):
            yield (
                f"{count(number, 'subscriber')} {agree(number, 'has', 'have')} an invalid row that says inactive, or "
                f"that cannot be read ({self._name_rows(barring)}), so no other row of "
                f"{agree(number, 'this subscriber', 'these subscribers')} is used. Correct the invalid "
                f"{agree(number, 'row', 'rows')}"
            )

    def _name_rows(self, places: list[list[int]]) -> str:
        names, named = list(self._files), sorted(places)[:_ROWS_NAMED]
        more = f" and {len(places) - _ROWS_NAMED:,} more" if len(places) > _ROWS_NAMED else ""
        if len(names) > 1:
            return ", ".join(f"row {number:,} of {names[file]}" for file, number in named) + more
        return f"{agree(len(places), 'row', 'rows')} {', '.join(f'{number:,}' for _, number in named)}{more}"
