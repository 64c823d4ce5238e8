"""The source of a run: rows of a file that the product maps, validates and plans.

The rows of all runs are validated together, which saves most of the time. The result is the same, because the
validation of a row does not depend on other rows."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from datetime import date

import numpy as np
import pandas as pd

from connector.rows import Chunk, PlannedChunk
from connector.subscribers.identity import (
    Digests,
    Mask,
    SeenIdentities,
    Suppression,
    compute_fingerprints,
    compute_identities,
    split_digests,
)
from connector.subscribers.mapping import apply_mapping
from connector.subscribers.preparation import build_inactive_mask
from connector.subscribers.rules import ColumnRule, FieldMapping, ValidationRules
from connector.subscribers.validation import validate_rows

_TODAY = date(2026, 11, 1)


@dataclass(frozen=True, slots=True)
class Cells:
    """The cells of a row in the source, and the number of its person."""

    person_number: int
    email: str
    client_user_id: str
    first_name: str
    last_name: str


_COLUMNS = tuple(field.name for field in fields(Cells))
_MAPPING = FieldMapping({name: ColumnRule(name) for name in _COLUMNS if name != "person_number"})


@dataclass(frozen=True, slots=True)
class ValidRow:
    """A valid row: the first row of its identity in the run."""

    person_number: int
    identity: bytes
    fingerprint: bytes
    first_name: str


@dataclass(frozen=True, slots=True)
class PreparedChunk:
    """A chunk of a run that is ready to be loaded, with its counts. `rows` has the rows of `planned_chunk`."""

    planned_chunk: PlannedChunk
    read_count: int
    invalid_count: int
    duplicate_count: int
    suppressed_count: int
    rows: tuple[ValidRow, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """The input of a run: the rows of each chunk, and the suppression list of the job."""

    chunks: Sequence[Sequence[Cells]]
    suppression: Suppression | None = None


def prepare_runs(sources: Sequence[Source], identity_field: str) -> list[tuple[PreparedChunk, ...]]:
    """Return the prepared chunks of each run."""
    cell_tuples = [astuple(cells) for source in sources for chunk in source.chunks for cells in chunk]
    frame = pd.DataFrame(cell_tuples, columns=list(_COLUMNS)).astype({"person_number": "str"})
    valid_rows = validate_rows(
        apply_mapping(frame, _MAPPING).frame, ValidationRules(identity_field), today=_TODAY
    ).subscribers
    identities = compute_identities(valid_rows[identity_field], identity_field)
    fingerprints = compute_fingerprints(valid_rows, identity_field)
    row_indexes = valid_rows.index.to_numpy()
    prepared_runs, chunk_start = [], 0
    for source in sources:
        seen_identities, first_row_number, prepared_chunks = SeenIdentities(), 1, []
        for chunk in source.chunks:
            chunk_slice = slice(chunk_start, chunk_start + len(chunk))
            valid_slice = slice(*np.searchsorted(row_indexes, (chunk_slice.start, chunk_slice.stop)))
            duplicate_mask, _ = seen_identities.add(
                identities[valid_slice], fingerprints[valid_slice], build_inactive_mask(valid_rows.iloc[valid_slice])
            )
            suppressed_mask = _find_suppressed_rows(source.suppression, identities[valid_slice]) & ~duplicate_mask
            loaded_mask = ~duplicate_mask & ~suppressed_mask
            subscribers = valid_rows.iloc[valid_slice]
            planned_chunk = PlannedChunk(
                _build_chunk(frame.iloc[chunk_slice], first_row_number),
                subscribers.set_axis(subscribers.index - chunk_slice.start)[loaded_mask],
                identities[valid_slice][loaded_mask],
                fingerprints[valid_slice][loaded_mask],
            )
            row_counts = (
                len(chunk),
                len(chunk) - len(duplicate_mask),
                int(duplicate_mask.sum()),
                int(suppressed_mask.sum()),
            )
            prepared_chunks.append(PreparedChunk(planned_chunk, *row_counts, _list_rows(planned_chunk, chunk)))
            chunk_start, first_row_number = chunk_slice.stop, first_row_number + len(chunk)
        prepared_runs.append(tuple(prepared_chunks))
    return prepared_runs


def _find_suppressed_rows(suppression: Suppression | None, identities: Digests) -> Mask:
    return np.zeros(len(identities), dtype=bool) if suppression is None else suppression.build_digest_mask(identities)


def _build_chunk(rows: pd.DataFrame, first_row_number: int) -> Chunk:
    row_numbers = np.arange(first_row_number, first_row_number + len(rows), dtype=np.int64)
    return Chunk(rows.reset_index(drop=True), row_numbers, (), "people.csv")


def _list_rows(planned_chunk: PlannedChunk, chunk: Sequence[Cells]) -> tuple[ValidRow, ...]:
    identities, fingerprints = split_digests(planned_chunk.identities), split_digests(planned_chunk.fingerprints)
    rows = [chunk[position] for position in planned_chunk.subscribers.index]
    return tuple(
        ValidRow(row.person_number, identity, fingerprint, row.first_name)
        for row, identity, fingerprint in zip(rows, identities, fingerprints, strict=True)
    )
