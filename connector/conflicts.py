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
    """Rows of noted subscribers: each one's subscriber, record number, whether it says inactive and whether it is a
    duplicate, and the digests of its values (a column for each field)."""

    persons: Digests
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
        self._barred: list[tuple[Digests, Positions]] = []
        self._contested: Digests = np.empty(0, dtype="S16")  # the noted subscribers, in order, once all are known
        self._used: _Rows  # the row that is used for each of them, in their order; none for a barred subscriber
        self.messages: list[str] = []

    def note(self, prepared: PreparedChunk) -> None:
        """Note the subscribers of this chunk whose rows differ, or whose invalid row says inactive."""
        if prepared.is_different.any():
            self._noted.append(prepared.persons[prepared.is_different])
        if len(prepared.barred[0]):
            self._barred.append(prepared.barred)

    def settle(self, chunks: Iterable[PreparedChunk]) -> None:
        """Find the row that is used for each noted subscriber. The chunks are read only if there is one."""
        if not self._noted and not self._barred:
            return
        self._contested = np.unique(np.concatenate([*self._noted, *(persons for persons, _ in self._barred)]))
        rows = _Rows.join([self._select(prepared)[1] for prepared in chunks])
        barred, numbers = rows.persons[:0], rows.numbers[:0]
        if self._barred:
            persons, all_numbers = (np.concatenate(each) for each in zip(*self._barred, strict=True))
            barred, first = np.unique(persons, return_index=True)
            numbers = all_numbers[first]
        usable = np.flatnonzero(~rows.is_duplicate & (rows.is_inactive | ~np.isin(rows.persons, barred)))
        usable = usable[np.lexsort((~rows.is_inactive[usable], rows.persons[usable]))]  # inactive rows first
        _, first = np.unique(rows.persons[usable], return_index=True)
        used = self._used = rows.select(usable[first])
        others = np.unique(rows.persons[~rows.is_inactive])  # with a row that does not say inactive
        is_overruling = used.is_inactive & np.isin(used.persons, others)
        is_barring = np.isin(barred, others) & ~np.isin(barred, used.persons)
        self.messages += _describe(used.numbers[is_overruling], numbers[is_barring])

    def resolve(self, prepared: PreparedChunk) -> PreparedChunk:
        """Return the chunk without the rows that an inactive row replaces, and with the fields in which rows differ."""
        if not len(self._contested):
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
        indices = np.flatnonzero(np.isin(prepared.persons, self._contested))
        rows = prepared.valid.subscribers.iloc[indices]
        numbers = prepared.chunk.numbers[rows.index.to_numpy(dtype=np.int64)]
        digests = compute_field_digests(rows, self._names)
        return indices, _Rows(
            prepared.persons[indices], numbers, find_inactive(rows), prepared.is_duplicate[indices], digests
        )


def _describe(overruling: Positions, barring: Positions) -> Iterator[str]:
    if number := len(overruling):
        yield (
            f"{count(number, 'subscriber')} {agree(number, 'has', 'have')} rows that disagree on is_active: the "
            f"inactive row is used ({_name_rows(overruling)})"
        )
    if number := len(barring):
        yield (
            f"{count(number, 'subscriber')} {agree(number, 'has', 'have')} an invalid row that says inactive "
            f"({_name_rows(barring)}), so no other row of {agree(number, 'this subscriber', 'these subscribers')} is "
            f"used. Correct the invalid {agree(number, 'row', 'rows')}"
        )


def _name_rows(numbers: Positions) -> str:
    named = sorted(numbers.tolist())
    more = f" and {len(named) - _ROWS_NAMED:,} more" if len(named) > _ROWS_NAMED else ""
    return f"{agree(len(named), 'row', 'rows')} {', '.join(f'{each:,}' for each in named[:_ROWS_NAMED])}{more}"
