"""The source of a night: rows of a file that the product maps, validates and plans.

All nights of a seed are validated in one go, which is what makes a seed cheap; a row's fate depends on no other row.
"""

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
from connector.subscribers.preparation import find_inactive
from connector.subscribers.rules import ColumnRule, FieldMapping, ValidationRules
from connector.subscribers.validation import validate_rows

_TODAY = date(2026, 11, 1)


@dataclass(frozen=True, slots=True)
class Cells:
    """One row as its source has it, and the person whom it tells of."""

    person: int
    email: str
    client_user_id: str
    first_name: str
    last_name: str


_COLUMNS = tuple(field.name for field in fields(Cells))
_MAPPING = FieldMapping({name: ColumnRule(name) for name in _COLUMNS if name != "person"})


@dataclass(frozen=True, slots=True)
class Told:
    """A valid row, the first of its identity in its night: digest, fingerprint, and what it says."""

    person: int
    identity: bytes
    fingerprint: bytes
    first_name: str


@dataclass(frozen=True, slots=True)
class Portion:
    """One chunk of a night, ready to be loaded, and what `pipelines` would count of it; `told` as in `planned`."""

    planned: PlannedChunk
    read: int
    invalid: int
    repeated: int
    suppressed: int
    told: tuple[Told, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """What one night is told: rows, chunk by chunk, and the job's suppression list."""

    chunks: Sequence[Sequence[Cells]]
    suppression: Suppression | None = None


def prepare_nights(sources: Sequence[Source], identity: str) -> list[tuple[Portion, ...]]:
    """For each night its chunks, prepared; `identity` is the field that makes two rows the same."""
    flat = [astuple(cells) for source in sources for chunk in source.chunks for cells in chunk]
    frame = pd.DataFrame(flat, columns=list(_COLUMNS)).astype({"person": "str"})
    valid = validate_rows(apply_mapping(frame, _MAPPING).frame, ValidationRules(identity), today=_TODAY).subscribers
    identities = compute_identities(valid[identity], identity)
    fingerprints = compute_fingerprints(valid, identity)
    places = valid.index.to_numpy()
    prepared, start = [], 0
    for source in sources:
        seen, first_number, portions = SeenIdentities(), 1, []
        for chunk in source.chunks:
            rows = slice(start, start + len(chunk))
            inside = slice(*np.searchsorted(places, (rows.start, rows.stop)))
            repeats, _ = seen.add(identities[inside], fingerprints[inside], find_inactive(valid.iloc[inside]))
            suppressed = _find_suppressed(source.suppression, identities[inside]) & ~repeats
            left = ~repeats & ~suppressed
            subscribers = valid.iloc[inside]
            planned = PlannedChunk(
                _cut(frame.iloc[rows], first_number),
                subscribers.set_axis(subscribers.index - rows.start)[left],
                identities[inside][left],
                fingerprints[inside][left],
            )
            counts = (len(chunk), len(chunk) - len(repeats), int(repeats.sum()), int(suppressed.sum()))
            portions.append(Portion(planned, *counts, _tell(planned, chunk)))
            start, first_number = rows.stop, first_number + len(chunk)
        prepared.append(tuple(portions))
    return prepared


def _find_suppressed(suppression: Suppression | None, identities: Digests) -> Mask:
    return np.zeros(len(identities), dtype=bool) if suppression is None else suppression.find(identities)


def _cut(rows: pd.DataFrame, first_number: int) -> Chunk:
    numbers = np.arange(first_number, first_number + len(rows), dtype=np.int64)
    return Chunk(rows.reset_index(drop=True), numbers, (), "people.csv")


def _tell(planned: PlannedChunk, chunk: Sequence[Cells]) -> tuple[Told, ...]:
    identities, fingerprints = split_digests(planned.identities), split_digests(planned.fingerprints)
    rows = [chunk[position] for position in planned.subscribers.index]
    return tuple(
        Told(row.person, identity, fingerprint, row.first_name)
        for row, identity, fingerprint in zip(rows, identities, fingerprints, strict=True)
    )
