"""From a chunk of a source to rows that are ready to load: map, validate, plan. No network, no ledger."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date

import numpy as np
import pandas as pd

from connector.extract import Chunk, Source
from connector.load import Planned
from connector.mapping import FieldMapping, apply_mapping
from connector.outcomes import Fault
from connector.plan import SeenIdentities, compute_fingerprints, compute_identities
from connector.plan.digests import Digests
from connector.plan.seen import Mask
from connector.plan.suppression import Suppression
from connector.validation import Rules, validate_rows


@dataclass(frozen=True, slots=True)
class Prepared:
    """One chunk, sorted: rows to load, faults of invalid ones, repeats (and those that differ, by position), and how
    many were on the suppression list."""

    chunk: Chunk
    planned: Planned
    faults: tuple[Fault, ...]
    repeated: int
    different: tuple[int, ...]
    suppressed: int
    omitted_zips: int

    @property
    def read(self) -> int:
        """How many records of the source this is."""
        return len(self.chunk.frame) + len(self.chunk.malformed)


def prepare_chunks(
    source: Source,
    mapping: FieldMapping,
    rules: Rules,
    *,
    today: date,
    limit: int | None,
    suppression: Suppression | None = None,
) -> Iterator[Prepared]:
    """Read the source to its end, or to `limit` records, chunk by chunk. Raises SourceError."""
    seen = SeenIdentities()
    for chunk in _read_at_most(source, limit):
        mapped = apply_mapping(chunk.frame, mapping)
        validated = validate_rows(mapped.frame, rules, today=today, known=mapped.faults)
        valid = validated.subscribers
        identities = compute_identities(valid[rules.identity], rules.identity)
        fingerprints = compute_fingerprints(valid, rules.identity)
        repeats = seen.add(identities, fingerprints)
        is_suppressed = _find_suppressed(suppression, valid, identities, rules.identity) & ~repeats.is_duplicate
        left = ~repeats.is_duplicate & ~is_suppressed
        planned = Planned(chunk, valid[left], identities[left], fingerprints[left])
        different = tuple(int(each) for each in valid.index[repeats.is_different])
        repeated, suppressed = int(np.count_nonzero(repeats.is_duplicate)), int(np.count_nonzero(is_suppressed))
        omitted_zips = len(validated.omitted_zips)
        yield Prepared(chunk, planned, validated.faults, repeated, different, suppressed, omitted_zips)


def _find_suppressed(suppression: Suppression | None, valid: pd.DataFrame, identities: Digests, identity: str) -> Mask:
    if suppression is None:
        return np.zeros(len(valid), dtype=bool)
    return suppression.find(identities) if suppression.field == identity else suppression.build_mask(valid)


def _read_at_most(source: Source, limit: int | None) -> Iterator[Chunk]:
    left = limit
    for chunk in source.chunks():
        size = len(chunk.numbers) + len(chunk.malformed)
        if left is not None and size > left:
            yield _cut(chunk, left)
            return
        yield chunk
        left = left - size if left is not None else None
        if left == 0:
            return


def _cut(chunk: Chunk, size: int) -> Chunk:
    """The first records of a chunk, counted, since their numbers need not follow each other."""
    last = sorted([*chunk.numbers.tolist(), *(row.number for row in chunk.malformed)])[:size][-1]
    kept = int(np.count_nonzero(chunk.numbers <= last))
    malformed = tuple(row for row in chunk.malformed if row.number <= last)
    return replace(chunk, frame=chunk.frame.iloc[:kept], numbers=chunk.numbers[:kept], malformed=malformed)
