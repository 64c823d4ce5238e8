"""Rows as candidates for a create: rows stay in columns until a request needs them, and then become one object each."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf

import orjson
import pandas as pd
import pyarrow as pa

from connector.fields import BY_NAME, normalise_identity
from connector.ledger.entries import Intent, UnfinishedEntry
from connector.ledger.store import Base
from connector.listing.access import LookupKey
from connector.rows import Chunk, LoadRow, Omission, PlannedChunk, Row
from connector.sender import FetchItems
from connector.service.wire import decode_subscriber, encode_subscriber, plan_encoding
from connector.states import State
from connector.subscribers.identity import split_digests

_READ_AT_ONCE = 1024  # rows that are read out of their columns together: enough to be fast, few enough for memory

ENDS_A_RUN = frozenset({401, 403, 404, 405})
"""Statuses of refusals that, for the first create, are about the token or the address and not about the row."""


def _build_no_row() -> Row:
    return Row(0, "", (), ())


@dataclass(slots=True, unsafe_hash=True)  # one for each row or more: frozen ones take three times as long to make
class Candidate:
    """One subscriber to be created; `sent` has the values of the request's body."""

    intent: Intent
    sent: dict[str, object]
    read_source: Callable[[], Row] = _build_no_row  # an entry of an earlier run has no row
    entry_state: State = State.NONE  # before the create: NONE, REJECTED, or UNKNOWN and proved absent
    refused: tuple[int, str] | None = None  # status and message of an earlier refusal of this create
    known_until: float = inf  # until when (monotonic) the look-up before the create is fresh (architecture 4.7)
    omission: Omission | None = None
    sent_at: float = -inf  # when the latest request left (monotonic)

    @property
    def name(self) -> str:
        """The identity in normal form."""
        return normalise_identity(self.intent.field, str(self.sent[self.intent.field]))


Create = Callable[[FetchItems[Candidate]], Awaitable[None]]
"""Sends, or plans, all candidates that the function returns, until it returns none or the run must stop."""


def extract_row(chunk: Chunk, position: int) -> Row:
    """Return one row of a chunk."""
    cells = chunk.frame.iloc[position].tolist()
    return Row(
        int(chunk.numbers[position]),
        chunk.name,
        tuple(chunk.frame.columns),
        tuple(None if pd.isna(cell) else str(cell) for cell in cells),
    )


def extract_rows(chunk: Chunk, positions: Sequence[int]) -> list[Row]:
    """Return many rows of a chunk, read column by column."""
    part = chunk.frame.iloc[list(positions)]
    columns = tuple(part.columns)
    cells = [pa.array(part[name], pa.string(), from_pandas=True).to_pylist() for name in columns]
    rows_of_cells = zip(*cells, strict=True) if columns else [()] * len(positions)
    numbers = chunk.numbers[list(positions)].tolist()
    return [Row(number, chunk.name, columns, row) for number, row in zip(numbers, rows_of_cells, strict=True)]


def find_omissions(planned: PlannedChunk, indices: Sequence[int], identity: str) -> list[Omission | None]:
    """Return, for each of these indices (0-based), the zip code that the create omits, or None."""
    if planned.omitted_zips is None:
        return [None] * len(indices)
    part = planned.subscribers[identity].iloc[list(indices)]
    zips = planned.omitted_zips.reindex(part.index)
    numbers, name = planned.chunk.numbers[part.index.to_numpy()].tolist(), planned.chunk.name
    return [
        None if pd.isna(zip_text) else Omission(Row(number, name, (), ()), str(value), str(zip_text))
        for zip_text, value, number in zip(zips.tolist(), part.tolist(), numbers, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Cells:
    """Some rows of a chunk: `rows` are tuples in the order of `columns`; the other lists have one item for each row."""

    columns: list[str]
    rows: list[tuple[object, ...]]
    positions: list[int]
    identities: list[bytes]
    fingerprints: list[bytes]
    omissions: list[Omission | None]


class CandidateStream:
    """The chosen rows of a chunk as candidates, built a few at a time with the base that is known at that time."""

    def __init__(
        self,
        planned: PlannedChunk,
        chosen: Sequence[int],
        entry_states: Mapping[int, State],
        identity: str,
    ) -> None:
        """`chosen` are indices in `planned.subscribers` (0-based), and `entry_states` the states of their entries."""
        self._planned, self._chosen, self._identity = planned, chosen, identity
        self._entry_states = entry_states
        self._next = 0
        self._cells = self._read(0, 0)
        self._first = 0  # which of the chosen the first of the cells is
        self._plan = plan_encoding([*self._cells.columns, "base_id", "base_name"])

    @property
    def remaining(self) -> Sequence[int]:
        """The indices that were not fetched."""
        return self._chosen[self._next :]

    def fetch(self, number: int, base: Base, known_until: float = inf) -> list[Candidate]:
        """Return the next candidates, at most `number`, to be sent by `known_until` (monotonic). Return none at the
        end."""
        end = min(self._next + number, len(self._chosen))
        if end > self._first + len(self._cells.rows):
            self._first = self._next
            self._cells = self._read(self._next, max(end, self._next + _READ_AT_ONCE))
        begin, self._next = self._next, end
        name, value = ("base_id", base.service_id) if base.service_id is not None else ("base_name", base.name)
        reference: dict[str, object] = {name: value}
        return [self._build(index, reference, known_until) for index in range(begin, end)]

    def _read(self, begin: int, end: int) -> _Cells:
        planned, indices = self._planned, list(self._chosen[begin:end])
        part = planned.subscribers.iloc[indices]
        columns = [name for name in part.columns if name in BY_NAME]
        values = [pa.array(part[name], from_pandas=True).to_pylist() for name in columns]
        rows = list(zip(*values, strict=True))
        return _Cells(
            columns,
            rows,
            part.index.tolist(),
            split_digests(planned.identities[indices]),
            split_digests(planned.fingerprints[indices]),
            find_omissions(planned, indices, self._identity),
        )

    def _build(self, index: int, reference: dict[str, object], known_until: float) -> Candidate:
        order, cells = index - self._first, self._cells
        sent = reference.copy()
        for name, cell in zip(cells.columns, cells.rows[order], strict=True):
            if cell is not None:
                sent[name] = cell
        body = encode_subscriber(sent, self._plan)
        intent = Intent(cells.identities[order], cells.fingerprints[order], body, self._identity)
        find_row = partial(extract_row, self._planned.chunk, cells.positions[order])
        entry_state, omission = self._entry_states[self._chosen[index]], cells.omissions[order]
        return Candidate(intent, sent, find_row, entry_state, known_until=known_until, omission=omission)


class CandidateList:
    """Candidates without a chunk. A candidate may be fetched until its existence check expires."""

    def __init__(self, candidates: Sequence[Candidate], monotonic: Callable[[], float]) -> None:
        self._candidates, self._monotonic = candidates, monotonic
        self._next = 0

    @property
    def remaining(self) -> Sequence[Candidate]:
        """The candidates that were not fetched."""
        return self._candidates[self._next :]

    async def fetch(self, number: int) -> list[Candidate]:
        """Return the next candidates, at most `number`. Return none at the end, or once their existence check has
        expired."""
        taken = self._candidates[self._next : self._next + number]
        if taken and self._monotonic() > taken[0].known_until:
            return []
        self._next += len(taken)
        return list(taken)


def read_body(entry: UnfinishedEntry) -> dict[str, object]:
    """Return the values of the entry's body by field name, with None for missing fields."""
    return decode_subscriber(orjson.loads(entry.body)["Subscriber"])


def want_unfinished(entry: UnfinishedEntry, *, in_any_spelling: bool = False) -> LookupKey:
    """Return the key to look up an entry's subscriber, from the entry's body."""
    return LookupKey(entry.identity, entry.field, str(read_body(entry)[entry.field]), in_any_spelling)


def want_rows(planned: PlannedChunk, indices: list[int], field: str) -> list[LookupKey]:
    """Return the keys to look up the rows at these indices of a chunk, in any spelling; `field` is the field of the
    identity."""
    identities = split_digests(planned.identities[indices])
    values = planned.subscribers[field].iloc[indices].tolist()
    pairs = zip(identities, values, strict=True)
    return [LookupKey(identity, field, str(value), in_any_spelling=True) for identity, value in pairs]


def read_rows(planned: PlannedChunk, indices: Sequence[int], identity: str) -> list[LoadRow]:
    """Return the rows at these indices (0-based, in `planned.subscribers`); `identity` is the field of the identity."""
    if not indices:
        return []
    chosen = list(indices)
    part = planned.subscribers.iloc[chosen]
    names = [name for name in part.columns if name in BY_NAME]
    columns = [pa.array(part[name], from_pandas=True).to_pylist() for name in names]
    return [
        LoadRow(row, digest, str(name), fingerprint, dict(zip(names, cells, strict=True)), omission)
        for row, digest, name, fingerprint, cells, omission in zip(
            extract_rows(planned.chunk, part.index.tolist()),
            split_digests(planned.identities[chosen]),
            part[identity].tolist(),
            split_digests(planned.fingerprints[chosen]),
            zip(*columns, strict=True),
            find_omissions(planned, chosen, identity),
            strict=True,
        )
    ]


def build_row(candidate: Candidate, source: Row) -> LoadRow:
    """Return the row of a create."""
    intent, sent = candidate.intent, candidate.sent
    return LoadRow(source, intent.identity, str(sent[intent.field]), intent.fingerprint, sent, candidate.omission)


def describe_held(message: str | None) -> str:
    """Return the text for a person about a row whose entry is HELD; `message` describes the answer (None: no
    answer)."""
    if message is None:
        return "held: it was proved absent; decide by connector retry --held resend or drop"
    return f"held: {message}; decide by connector retry --held resend, accept or drop"


def describe_other(service_id: int | None, name: str | None) -> str:
    """Return the text for a person about a base in an answer: `Newsletter (id 9)`."""
    if service_id is None:
        return name or "none"
    return f"id {service_id}" if name is None else f"{name} (id {service_id})"
