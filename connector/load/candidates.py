"""Candidates: rows that are about to be created. A chunk stores its rows in columns. A row becomes an object only when
a request needs the row."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf

import orjson
import pandas as pd
import pyarrow as pa

from connector.fields import FIELD_BY_NAME, normalise_identity
from connector.ledger.entries import Intent, UnfinishedEntry
from connector.ledger.store import Base
from connector.listing.access import LookupKey
from connector.rows import Chunk, LoadRow, OmittedZip, PlannedChunk, Row
from connector.sender import FetchItems
from connector.service.wire import decode_subscriber, encode_subscriber, plan_encoding
from connector.states import State
from connector.subscribers.identity import split_digests

_READ_BATCH_SIZE = 1024  # number of rows that are read from their columns at once

RUN_ENDING_STATUSES = frozenset({401, 403, 404, 405})
"""HTTP statuses of refusals that end the run if they refuse the first create. The cause of such a refusal is the token
or the base URL."""


@dataclass(slots=True, unsafe_hash=True)  # not frozen: a frozen candidate takes three times as long to create
class Candidate:
    """A subscriber to be created. `sent_values` has the values of the request's body, by field name."""

    intent: Intent
    sent_values: dict[str, object]
    # Default: the candidate is an entry of an earlier run, and has no row.
    read_source_row: Callable[[], Row] = lambda: Row(0, "", (), ())
    # State of the entry before the create: NONE, REJECTED, or UNKNOWN and proved absent.
    entry_state: State = State.NONE
    earlier_refusal: tuple[int, str] | None = None  # the status and the message of an earlier refusal of this create
    valid_until: float = inf  # the time (monotonic) until which the look-up is fresh (architecture 4.7)
    omitted_zip: OmittedZip | None = None
    sent_at: float = -inf  # the time of the latest request (monotonic)

    @property
    def normal_identity(self) -> str:
        """The identity in normal form."""
        return normalise_identity(self.intent.identity_field, str(self.sent_values[self.intent.identity_field]))


SendCandidates = Callable[[FetchItems[Candidate]], Awaitable[None]]
"""The type of a function that sends or plans candidates. Its argument `fetch` returns the next candidates. The function
ends when `fetch` returns no candidate, or when the run must stop."""


def extract_row(chunk: Chunk, position: int) -> Row:
    """Return the row of a chunk at this position."""
    cells = chunk.frame.iloc[position].tolist()
    return Row(
        int(chunk.row_numbers[position]),
        chunk.name,
        tuple(chunk.frame.columns),
        tuple(None if pd.isna(cell) else str(cell) for cell in cells),
    )


def extract_rows(chunk: Chunk, positions: Sequence[int]) -> list[Row]:
    """Return the rows at `positions` of the chunk. The cells are read column by column."""
    frame = chunk.frame.iloc[list(positions)]
    columns = tuple(frame.columns)
    cells_by_column = [pa.array(frame[name], pa.string(), from_pandas=True).to_pylist() for name in columns]
    cell_rows = zip(*cells_by_column, strict=True) if columns else [()] * len(positions)
    row_numbers = chunk.row_numbers[list(positions)].tolist()
    return [Row(row_number, chunk.name, columns, row) for row_number, row in zip(row_numbers, cell_rows, strict=True)]


def find_omitted_zips(
    planned_chunk: PlannedChunk, indexes: Sequence[int], identity_field: str
) -> list[OmittedZip | None]:
    """Return the zip code that the create omits, or None, for each of these indexes of `planned_chunk.subscribers`."""
    if planned_chunk.omitted_zips is None:
        return [None] * len(indexes)
    identity_texts = planned_chunk.subscribers[identity_field].iloc[list(indexes)]
    omitted_zips = planned_chunk.omitted_zips.reindex(identity_texts.index)
    chunk = planned_chunk.chunk
    row_numbers = chunk.row_numbers[identity_texts.index.to_numpy()].tolist()
    return [
        None
        if pd.isna(omitted_zip)
        else OmittedZip(Row(row_number, chunk.name, (), ()), str(identity_text), str(omitted_zip))
        for omitted_zip, identity_text, row_number in zip(
            omitted_zips.tolist(), identity_texts.tolist(), row_numbers, strict=True
        )
    ]


@dataclass(frozen=True, slots=True)
class _RowCells:
    """The cells of some rows of a chunk. Each row is a tuple in the order of `columns`. The other lists have one item
    for each row."""

    columns: list[str]
    rows: list[tuple[object, ...]]
    positions: list[int]
    identities: list[bytes]
    fingerprints: list[bytes]
    omitted_zips: list[OmittedZip | None]


def _read_cells(planned_chunk: PlannedChunk, indexes: list[int], identity_field: str) -> _RowCells:
    subscribers = planned_chunk.subscribers.iloc[indexes]
    columns = [name for name in subscribers.columns if name in FIELD_BY_NAME]
    cells_by_column = [pa.array(subscribers[name], from_pandas=True).to_pylist() for name in columns]
    return _RowCells(
        columns,
        list(zip(*cells_by_column, strict=True)),
        subscribers.index.tolist(),
        split_digests(planned_chunk.identities[indexes]),
        split_digests(planned_chunk.fingerprints[indexes]),
        find_omitted_zips(planned_chunk, indexes, identity_field),
    )


class CandidateStream:
    """The chosen rows of a chunk as candidates. `fetch` builds a few candidates at a time. After an answer has shown
    the Id of the base, the next candidates contain this Id.
    """

    def __init__(
        self, planned_chunk: PlannedChunk, state_by_row_index: Mapping[int, State], identity_field: str
    ) -> None:
        """`state_by_row_index` has the state of the entry of each chosen row, by the index of the row in
        `planned_chunk.subscribers`. `identity_field` is the field of the identity."""
        self._planned_chunk, self._identity_field = planned_chunk, identity_field
        self._indexes, self._states = list(state_by_row_index), list(state_by_row_index.values())
        self._fetched_count = 0
        self._cells = _read_cells(planned_chunk, [], identity_field)
        self._first_cells_index = 0  # the index, among the chosen rows, of the first row in `_cells`
        self._encoding_plan = plan_encoding([*self._cells.columns, "base_id", "base_name"])

    @property
    def unfetched_indexes(self) -> Sequence[int]:
        """The indexes of the rows that `fetch` has not returned yet."""
        return self._indexes[self._fetched_count :]

    def fetch(self, max_count: int, base: Base, valid_until: float = inf) -> list[Candidate]:
        """Return the next candidates, at most `max_count`, or an empty list at the end. The candidates may be sent
        until `valid_until` (monotonic)."""
        first_index = self._fetched_count
        end_index = min(first_index + max_count, len(self._indexes))
        if end_index > self._first_cells_index + len(self._cells.rows):
            self._first_cells_index = first_index
            batch_indexes = self._indexes[first_index : max(end_index, first_index + _READ_BATCH_SIZE)]
            self._cells = _read_cells(self._planned_chunk, batch_indexes, self._identity_field)
        self._fetched_count = end_index
        base_field, base_value = (
            ("base_id", base.service_id) if base.service_id is not None else ("base_name", base.name)
        )
        base_reference: dict[str, object] = {base_field: base_value}
        return [self._build_candidate(index, base_reference, valid_until) for index in range(first_index, end_index)]

    def _build_candidate(self, chosen_index: int, base_reference: dict[str, object], valid_until: float) -> Candidate:
        """Return the candidate of the row with the index `chosen_index` among the chosen rows (0 = first)."""
        row_index, cells = chosen_index - self._first_cells_index, self._cells
        sent_values = base_reference.copy()
        for name, cell in zip(cells.columns, cells.rows[row_index], strict=True):
            if cell is not None:
                sent_values[name] = cell
        body = encode_subscriber(sent_values, self._encoding_plan)
        intent = Intent(cells.identities[row_index], cells.fingerprints[row_index], body, self._identity_field)
        read_source_row = partial(extract_row, self._planned_chunk.chunk, cells.positions[row_index])
        entry_state, omitted_zip = self._states[chosen_index], cells.omitted_zips[row_index]
        return Candidate(
            intent, sent_values, read_source_row, entry_state, valid_until=valid_until, omitted_zip=omitted_zip
        )


class CandidateList:
    """A list of candidates from entries of the ledger. `fetch` returns candidates until their look-up expires."""

    def __init__(self, candidates: Sequence[Candidate], monotonic: Callable[[], float]) -> None:
        self._candidates, self._monotonic = candidates, monotonic
        self._fetched_count = 0

    @property
    def unfetched_candidates(self) -> Sequence[Candidate]:
        """The candidates that `fetch` has not returned yet."""
        return self._candidates[self._fetched_count :]

    async def fetch(self, max_count: int) -> list[Candidate]:
        """Return the next candidates, at most `max_count`. Return an empty list at the end, or after their look-up has
        expired.
        """
        candidates = self._candidates[self._fetched_count : self._fetched_count + max_count]
        if candidates and self._monotonic() > candidates[0].valid_until:
            return []
        self._fetched_count += len(candidates)
        return list(candidates)


def read_body(entry: UnfinishedEntry) -> dict[str, object]:
    """Return the values of the entry's body by field name."""
    values = decode_subscriber(orjson.loads(entry.body)["Subscriber"])
    return {name: value for name, value in values.items() if value is not None}


def build_entry_key(entry: UnfinishedEntry, *, ignores_case: bool) -> LookupKey:
    """Return the key to look up the subscriber of an entry. The text of the identity is from the entry's body."""
    return LookupKey(entry.identity, entry.identity_field, str(read_body(entry)[entry.identity_field]), ignores_case)


def read_rows(planned_chunk: PlannedChunk, indexes: list[int], identity_field: str) -> list[LoadRow]:
    """Return the rows at these indexes of `planned_chunk.subscribers`. `identity_field` is the name of the identity's
    field."""
    if not indexes:
        return []
    cells = _read_cells(planned_chunk, indexes, identity_field)
    values_by_row = [dict(zip(cells.columns, row, strict=True)) for row in cells.rows]
    return [
        LoadRow(source_row, identity, str(values[identity_field]), fingerprint, values, omitted_zip)
        for source_row, identity, fingerprint, values, omitted_zip in zip(
            extract_rows(planned_chunk.chunk, cells.positions),
            cells.identities,
            cells.fingerprints,
            values_by_row,
            cells.omitted_zips,
            strict=True,
        )
    ]


def build_row(candidate: Candidate, source_row: Row) -> LoadRow:
    """Return the row of a candidate. `source_row` is the row as the source contains it."""
    intent, sent_values = candidate.intent, candidate.sent_values
    return LoadRow(
        source_row,
        intent.identity,
        str(sent_values[intent.identity_field]),
        intent.fingerprint,
        sent_values,
        candidate.omitted_zip,
    )


def describe_held_row(message: str | None) -> str:
    """Return a message about a row whose entry is HELD. `message` describes the answer of the service (None: no
    answer)."""
    if message is None:
        return "held: the subscriber was proved absent; decide with connector retry --held resend or --held drop"
    return f"held: {message}; decide with connector retry --held resend, --held accept or --held drop"


def describe_base(base_id: int | None, base_name: str | None) -> str:
    """Return the name and the id of a base as a text, such as `Newsletter (id 9)`."""
    if base_id is None:
        return base_name or "none"
    return f"id {base_id}" if base_name is None else f"{base_name} (id {base_id})"
