"""Keeps the subscribers that a sweep of the list shows, by base, so that one sweep serves every base of a run.

The kept subscribers also serve a base that the run meets later. They wait in a temporary file, about 60 bytes each.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from connector.kept_values import KeptValues
from connector.listing.access import ListAccess
from connector.listing.base_reader import BaseReader

ListedBase = tuple[int, str | None]
"""The Id and the Name of a base, as the list has them."""


_KEPT_WHOLE = 200_000
"""The largest list of which all subscribers are kept with their values: 130 MB in a temporary file, which save a
second reading of the list."""


class SweptRows:
    """A sink for a reading of the list. Only the last sweep counts.

    The identities and the Ids of subscribers in the bases of `accesses` are kept, with `keeps_all` of all bases.
    Subscribers with one of `identities` are also kept with their values, for a comparison (architecture 4.12). In a
    list of up to 200,000 subscribers all are kept with their values, because later chunks may have their rows.
    """

    def __init__(
        self, accesses: Sequence[ListAccess], identities: Collection[bytes] = (), *, keeps_all: bool = False
    ) -> None:
        self._state = accesses[0].state
        self._readers = [build_reader(each, [each.policy.identity]) for each in accesses]
        self._identities = frozenset(identities)
        self._keeps_all = keeps_all
        stats = self._state.stats
        self._keeps_whole = stats is not None and stats.total is not None and stats.total <= _KEPT_WHOLE
        self._values = KeptValues()
        self._indices: dict[ListedBase, list[int]] = defaultdict(list)
        self._is_ours: dict[ListedBase, bool] = {}
        self.last_id = 0

    @property
    def bases(self) -> Sequence[ListedBase]:
        """The bases of which subscribers are kept."""
        return list(self._indices)

    @property
    def size(self) -> int:
        """The number of parts that are kept, which is the index of the next part."""
        return sum(len(indices) for indices in self._indices.values())

    def start_sweep(self, number: int) -> None:
        """Forget the last sweep: a subscriber may show once in each, and twice in one sweep means two ids."""
        self._values.close()
        self._indices.clear()
        self.last_id = 0

    def take(self, wire_objects: Sequence[dict[str, Any]]) -> None:
        """Keep the subscribers of a page.

        Raises RunAborted if the disk is full, or if another base now has the name of a base of the run, and
        ConfigurationError if several bases have the name.
        """
        by_base: dict[ListedBase, list[tuple[bytes, int]]] = defaultdict(list)
        whole, reader = list[dict[str, Any]](), self._readers[0]
        reader.note_inactive(wire_objects)
        for wire in wire_objects:
            base = _read_base(wire)
            if base is None or not (self._is_of_ours(base) or self._keeps_all):
                continue
            listed = reader.read_one(wire)
            by_base[base] += listed
            if self._keeps_whole or any(identity in self._identities for identity, _ in listed):
                whole.append(wire)
        if whole:
            self._state.shown.keep(whole)
        self.last_id = max(self.last_id, max((wire["Id"] for wire in wire_objects), default=0))
        for base, listed in by_base.items():
            values = [part for identity, subscriber_id in listed for part in (identity.hex(), subscriber_id)]
            self._indices[base].append(self._values.add([values]))

    def read(self, base: ListedBase, *, since: int = 0) -> Iterator[list[tuple[bytes, int]]]:
        """Yield the identities and ids of the base, page by page; `since` is a former `size`."""
        for index in self._indices[base]:
            if index >= since:
                values = self._values.read(index)
                yield [(bytes.fromhex(values[at]), values[at + 1]) for at in range(0, len(values), 2)]

    def _is_of_ours(self, base: ListedBase) -> bool:
        if base not in self._is_ours:
            service_id, name = base
            of_each = [reader.is_of_base({"Id": service_id, "Name": name}) for reader in self._readers]
            self._is_ours[base] = any(of_each)
        return self._is_ours[base]


def build_reader(access: ListAccess, fields: Sequence[str]) -> BaseReader:
    """Return a reader for the subscribers of the base of `access`."""
    return BaseReader(access.journal.base, access.asked_name, fields, access.inactive)


def _read_base(wire: dict[str, Any]) -> ListedBase | None:
    base = wire.get("Base")
    if not isinstance(base, dict) or type(base.get("Id")) is not int:
        return None
    name = base.get("Name")
    return base["Id"], name if isinstance(name, str) else None
