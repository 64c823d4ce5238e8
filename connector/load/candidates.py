"""Rows on their way to become requests: columns until the last moment, then objects for those to be created."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf

import orjson
import pandas as pd
import pyarrow as pa

from connector.fields import BY_NAME, normalise_identity
from connector.ledger import Base, Intent, Unfinished
from connector.load.looks.sighting import Wanted
from connector.rows import Chunk, Planned as Planned
from connector.service import decode_subscriber, encode_subscriber, plan_encoding
from connector.states import State
from connector.subscribers import split_digests
from connector.values import hot_value

_READ_AT_ONCE = 1024  # rows taken out of their columns together: enough that it costs nothing, few enough to hold


@dataclass(frozen=True, slots=True)
class Row:
    """A row as its source gave it, for a person who looks for it: record number (from 1), file, cells as they came."""

    number: int
    file: str
    columns: tuple[str, ...]
    cells: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Omission:
    """A zip that is left out of what is sent: the row (without its cells), its identity as the source has it, and the
    zip."""

    row: Row
    identity: str
    zip: str


@hot_value
class Candidate:
    """One subscriber to be created; `sent` are the values that its body holds."""

    intent: Intent
    sent: dict[str, object]
    take_row: Callable[[], Row] | None = None  # None: no row of this run, but an unknown that an earlier one left
    left: State = State.NONE  # what its entry is before it is sent: NONE, REJECTED, or UNKNOWN and proved absent
    refused: tuple[int, str] | None = None  # status and words of a refusal that stands again if this is never sent
    known_until: float = inf  # monotonic: until then what a look said of them may be relied on (architecture 4.7)
    omission: Omission | None = None

    @property
    def name(self) -> str:
        """Its identity in normal form."""
        return normalise_identity(self.intent.field, str(self.sent[self.intent.field]))


def take_row(chunk: Chunk, position: int) -> Row:
    """One row of a chunk, as a value of its own."""
    cells = chunk.frame.iloc[position].tolist()
    return Row(
        int(chunk.numbers[position]),
        chunk.name,
        tuple(chunk.frame.columns),
        tuple(None if pd.isna(cell) else str(cell) for cell in cells),
    )


def take_rows(chunk: Chunk, positions: Sequence[int]) -> list[Row]:
    """Many rows of a chunk, taken column by column."""
    part = chunk.frame.iloc[list(positions)]
    columns = tuple(part.columns)
    cells = [pa.array(part[name], pa.string(), from_pandas=True).to_pylist() for name in columns]
    of_rows = zip(*cells, strict=True) if columns else [()] * len(positions)
    numbers = chunk.numbers[list(positions)].tolist()
    return [Row(number, chunk.name, columns, row) for number, row in zip(numbers, of_rows, strict=True)]


def find_omissions(planned: Planned, places: Sequence[int], identity: str) -> list[Omission | None]:
    """For each of these places (0-based) the zip that is left out there, if one is."""
    if planned.omitted_zips is None:
        return [None] * len(places)
    part = planned.subscribers[identity].iloc[list(places)]
    zips = planned.omitted_zips.reindex(part.index)
    numbers, name = planned.chunk.numbers[part.index.to_numpy()].tolist(), planned.chunk.name
    return [
        None if pd.isna(each) else Omission(Row(number, name, (), ()), str(value), str(each))
        for each, value, number in zip(zips.tolist(), part.tolist(), numbers, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Cells:
    """Some rows out of their columns: a tuple for each, in the order of `columns`, and what belongs to each."""

    columns: list[str]
    rows: list[tuple[object, ...]]
    positions: list[int]
    identities: list[bytes]
    fingerprints: list[bytes]
    omissions: list[Omission | None]


class CandidateStream:
    """The chosen rows of a chunk, made into candidates a few at a time, with the base as it is known by then."""

    def __init__(
        self,
        planned: Planned,
        chosen: Sequence[int],
        left: Mapping[int, State],
        identity: str,
    ) -> None:
        """`chosen` are places in `planned.subscribers` (0-based), `left` the state of each one's entry."""
        self._planned, self._chosen, self._left, self._identity = planned, chosen, left, identity
        self._next = 0
        self._cells = self._read(0, 0)
        self._first = 0  # which of the chosen the first of the cells is
        self._plan = plan_encoding([*self._cells.columns, "base_id", "base_name"])

    @property
    def rest(self) -> Sequence[int]:
        """The places that have not been taken."""
        return self._chosen[self._next :]

    def take(self, number: int, base: Base, known_until: float = inf) -> list[Candidate]:
        """The next candidates, at most `number`, to be sent by `known_until` (monotonic); empty at the end."""
        end = min(self._next + number, len(self._chosen))
        if end > self._first + len(self._cells.rows):
            self._first = self._next
            self._cells = self._read(self._next, max(end, self._next + _READ_AT_ONCE))
        begin, self._next = self._next, end
        name, value = ("base_id", base.service_id) if base.service_id is not None else ("base_name", base.name)
        reference: dict[str, object] = {name: value}
        return [self._build(at, reference, known_until) for at in range(begin, end)]

    def _read(self, begin: int, end: int) -> _Cells:
        planned, places = self._planned, list(self._chosen[begin:end])
        part = planned.subscribers.iloc[places]
        columns = [name for name in part.columns if name in BY_NAME]
        values = [pa.array(part[name], from_pandas=True).to_pylist() for name in columns]
        rows = list(zip(*values, strict=True))
        return _Cells(
            columns,
            rows,
            part.index.tolist(),
            split_digests(planned.identities[places]),
            split_digests(planned.fingerprints[places]),
            find_omissions(planned, places, self._identity),
        )

    def _build(self, at: int, reference: dict[str, object], known_until: float) -> Candidate:
        order, cells = at - self._first, self._cells
        sent = reference.copy()
        for name, cell in zip(cells.columns, cells.rows[order], strict=True):
            if cell is not None:
                sent[name] = cell
        body = encode_subscriber(sent, self._plan)
        intent = Intent(cells.identities[order], cells.fingerprints[order], body, self._identity)
        find_row = partial(take_row, self._planned.chunk, cells.positions[order])
        left, omission = self._left[self._chosen[at]], cells.omissions[order]
        return Candidate(intent, sent, find_row, left, known_until=known_until, omission=omission)


class CandidateList:
    """Candidates of no chunk, to be taken for as long as what is known of them may be relied on."""

    def __init__(self, candidates: Sequence[Candidate], monotonic: Callable[[], float]) -> None:
        self._candidates, self._monotonic = candidates, monotonic
        self._next = 0

    @property
    def rest(self) -> Sequence[Candidate]:
        """Those that have not been taken."""
        return self._candidates[self._next :]

    def take(self, number: int) -> list[Candidate]:
        """The next ones, at most `number`; empty at the end, or once they are to be looked for anew."""
        taken = self._candidates[self._next : self._next + number]
        if taken and self._monotonic() > taken[0].known_until:
            return []
        self._next += len(taken)
        return list(taken)


def read_body(entry: Unfinished) -> dict[str, object]:
    """The values of a kept body by field name; None where it has none."""
    return decode_subscriber(orjson.loads(entry.body)["Subscriber"])


def want_candidate(candidate: Candidate) -> Wanted:
    """Whoever a create is for."""
    field = candidate.intent.field
    return Wanted(candidate.intent.identity, field, str(candidate.sent[field]))


def want_unfinished(entry: Unfinished, *, in_any_spelling: bool = False) -> Wanted:
    """Whoever an entry is of, as its body names them."""
    return Wanted(entry.identity, entry.field, str(read_body(entry)[entry.field]), in_any_spelling)


def want_rows(planned: Planned, places: list[int], field: str) -> list[Wanted]:
    """The subscribers at these places of a chunk, by their identity's `field`, by whatever way they came."""
    identities = split_digests(planned.identities[places])
    values = planned.subscribers[field].iloc[places].tolist()
    pairs = zip(identities, values, strict=True)
    return [Wanted(identity, field, str(value), in_any_spelling=True) for identity, value in pairs]
