"""Rows whose fingerprint is not their entry's: they wait on the disk until they are compared with the service
(architecture 4.12). Pure, but for the file that they wait in."""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from connector.fields import BY_NAME
from connector.kept_values import KeptValues
from connector.load.candidates import Candidate, Omission, Planned, Row, find_omissions
from connector.subscribers import FINGERPRINT_BYTES, IDENTITY_BYTES, split_digests

_NEVER_COMPARED = frozenset({"id", "base_id", "base_name"})


@dataclass(frozen=True, slots=True)
class Told:
    """What a row says: digest and text of its identity, fingerprint, values by field name, and a zip that would not be
    sent."""

    identity: bytes
    name: str = field(repr=False)
    fingerprint: bytes
    values: Mapping[str, object] = field(repr=False)
    omission: Omission | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Change:
    """A row of a subscriber who is there, and of whom the source says something else.

    `identity` is its text as the source has it. `fields` are those that differ: name, the service's value, the
    source's. `reason` is why it could not be compared ("": it was); `is_known`: an earlier run has reported the same.
    """

    row: Row
    identity: str = field(repr=False)
    fields: tuple[tuple[str, object, object], ...] = field(default=(), repr=False)
    reason: str = ""
    is_known: bool = False


@dataclass(frozen=True, slots=True)
class WaitingRow:
    """A row that waits: `owner` is what it was handed in with, `is_known` whether an earlier run has reported it."""

    owner: object
    row: Row
    told: Told
    is_known: bool


class WaitingRows:
    """The rows of a run, all its bases together, that wait to be compared: 30 bytes each in memory, the rest in a
    temporary file without a name."""

    def __init__(self) -> None:
        self._owners: list[object] = []
        self._owner_of: array[int] = array("H")
        self._is_known = bytearray()
        self._digests = bytearray()  # identity and fingerprint
        self._values: KeptValues | None = None
        self.ended = 0  # of the first so many the outcome has been told

    def __len__(self) -> int:
        return len(self._owner_of)

    @property
    def unknown(self) -> list[int]:
        """The places of those that no earlier run has reported."""
        return [place for place, is_known in enumerate(self._is_known) if not is_known]

    def add(self, owner: object, rows: Sequence[tuple[Row, Told, bool]]) -> None:
        """Have these wait, each with whether an earlier run has reported it. Raises RunAborted for want of room."""
        if self._values is None:
            self._values = KeptValues()
        if not any(each is owner for each in self._owners):
            self._owners.append(owner)
        number = next(place for place, each in enumerate(self._owners) if each is owner)
        self._values.add([[row.number, row.file, told.name, dict(told.values)] for row, told, _ in rows])
        for _, told, is_known in rows:
            self._owner_of.append(number)
            self._is_known.append(is_known)
            self._digests += told.identity + told.fingerprint

    def read(self, place: int) -> WaitingRow:
        """One of them, by its place (0-based)."""
        if self._values is None:
            raise IndexError(place)
        number, file, name, values = self._values.read(place)
        begin = place * (IDENTITY_BYTES + FINGERPRINT_BYTES)
        identity = bytes(self._digests[begin : begin + IDENTITY_BYTES])
        fingerprint = bytes(self._digests[begin + IDENTITY_BYTES : begin + IDENTITY_BYTES + FINGERPRINT_BYTES])
        told = Told(identity, name, fingerprint, values)
        owner = self._owners[self._owner_of[place]]
        return WaitingRow(owner, Row(number, file, (), ()), told, bool(self._is_known[place]))

    def clear(self) -> None:
        """Forget them all."""
        if self._values is not None:
            self._values.close()
        self._values, self._owners, self._owner_of = None, [], array("H")
        self._is_known, self._digests, self.ended = bytearray(), bytearray(), 0


def tell_rows(planned: Planned, places: Sequence[int], identity: str) -> list[Told]:
    """What the rows at these places (0-based, in `planned.subscribers`) say; `identity` is the field that they are
    known by."""
    chosen = list(places)
    part = planned.subscribers.iloc[chosen]
    names = [name for name in part.columns if name in BY_NAME]
    columns = [pa.array(part[name], from_pandas=True).to_pylist() for name in names]
    return [
        Told(digest, str(name), fingerprint, dict(zip(names, cells, strict=True)), omission)
        for digest, name, fingerprint, cells, omission in zip(
            split_digests(planned.identities[chosen]),
            part[identity].tolist(),
            split_digests(planned.fingerprints[chosen]),
            zip(*columns, strict=True),
            find_omissions(planned, chosen, identity),
            strict=True,
        )
    ]


def tell_candidate(candidate: Candidate) -> Told:
    """What the row of a create says."""
    intent, sent = candidate.intent, candidate.sent
    return Told(intent.identity, str(sent[intent.field]), intent.fingerprint, sent, candidate.omission)


def list_compared(values: Mapping[str, object], identity: str) -> Iterator[str]:
    """The fields of a row that are compared: all that the mapping fills, but for the base and the identity."""
    return (name for name in values if name not in _NEVER_COMPARED and name != identity)
