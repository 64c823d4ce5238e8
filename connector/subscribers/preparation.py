"""Whether a mapping can serve a source, and from its chunks to rows that are ready to load: map, validate, identify,
suppress. No network, no ledger.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from difflib import get_close_matches

import numpy as np
import numpy.typing as npt
import pandas as pd

from connector.errors import ConfigurationError
from connector.fields import BaseRef
from connector.outcomes import Fault
from connector.rows import Chunk, Planned, Source
from connector.shards import WHOLE, Shard
from connector.subscribers.consent import find_consent
from connector.subscribers.identity import (
    IDENTITY_BYTES,
    Digests,
    Mask,
    SeenIdentities,
    compute_fingerprints,
    compute_identities,
    digest_text,
    join_digests,
    separate_digests,
)
from connector.subscribers.mapping import apply_mapping
from connector.subscribers.row_bases import BaseColumn, RowBases, list_columns, read_bases, refuse_mixed
from connector.subscribers.rules import ColumnRule, FieldMapping, ValidationRules, find_mapping_faults
from connector.subscribers.suppression import Suppression
from connector.subscribers.validation import validate_rows

Positions = npt.NDArray[np.int64]


def check_mapping(
    mapping: FieldMapping, rules: ValidationRules, columns: Sequence[str], *, where: str, base: BaseColumn | None = None
) -> None:
    """Refuse a mapping that cannot serve, before anything is read: raises ConfigurationError with all that is wrong.

    `columns` are the source's, `where` names it, `base` is the column that says each row's base, if one does. Wrong
    are an identity or required field that nothing fills, a column that the source lacks, a zip that would overwrite a
    mapped field, a value for every row that no row may have.
    """
    used = [(name, column) for name, rule in mapping.rules.items() for column in rule.columns]
    used += [] if base is None else [("the base", base.column)]
    faults = find_mapping_faults(mapping.rules, rules.identity, sorted(rules.required), rules.zip)
    for name, column in used:
        if column not in columns:
            meant = get_close_matches(column, columns, n=1)
            hint = f", did you mean {meant[0]}?" if meant else ""
            faults.append(f"{name} is mapped to the column {column}, which is not there{hint}")
    faults += _find_value_faults(mapping)
    if faults:
        raise ConfigurationError(f"{where}: {'; '.join(faults)}. Its columns: {', '.join(columns)}")


def _find_value_faults(mapping: FieldMapping) -> list[str]:
    """A wrong `value` or `default` would make rows invalid: validation judges it here, on a row with nothing else."""
    constants = {
        name: ColumnRule(value=constant)
        for name, rule in mapping.rules.items()
        if (constant := rule.value or rule.default)
    }
    if not constants:
        return []
    identity = {"email": ColumnRule(value="nobody@example.com")}
    row = apply_mapping(pd.DataFrame(index=pd.RangeIndex(1)), FieldMapping(identity | constants)).frame
    faults = validate_rows(row, ValidationRules(), today=date.max).faults
    return [
        f"the {'value' if mapping.rules[fault.field].value else 'default'} for {fault.field} cannot be sent: "
        f"{fault.message}"
        for fault in faults
    ]


@dataclass(frozen=True, slots=True)
class PreparedChunk:
    """One chunk of a source after validation.

    `planned` has the rows to load, and `faults` the faults of invalid rows. `repeats`, `different` and `suppressed`
    have the positions of second rows of a subscriber, of second rows that differ from the first one, and of rows on the
    suppression list. `omitted_zips` and `yearless` count valid rows that lost their zip, or a birthday without a year.
    `names` has the identities of all valid rows, indexed by position. `source_rows` counts the records of the source
    that the chunk was made of, with the records of other shards. `consent` has the columns that say who wants no email
    and that is_active is not made of (connector.subscribers.consent).

    `bases` has the base of each row to load, if a column names the bases; None if all rows are for one base.
    """

    chunk: Chunk
    planned: Planned
    bases: RowBases | None
    faults: tuple[Fault, ...]
    repeats: Positions
    different: tuple[int, ...]
    suppressed: Positions
    omitted_zips: int
    yearless: int
    names: pd.Series
    source_rows: int
    consent: tuple[str, ...]

    @property
    def read(self) -> int:
        """How many records of the source this is."""
        return len(self.chunk.frame) + len(self.chunk.malformed)

    @property
    def invalid(self) -> int:
        """How many of them are no subscriber."""
        return len({fault.position for fault in self.faults}) + len(self.chunk.malformed)


def prepare_chunks(
    source: Source,
    mapping: FieldMapping,
    rules: ValidationRules,
    *,
    today: date,
    limit: int | None,
    base: BaseColumn | None = None,
    suppression: Suppression | None = None,
    shard: Shard = WHOLE,
    more_columns: Collection[str] = (),
    ignored: Collection[str] = (),
) -> Iterator[PreparedChunk]:
    """Read the source chunk by chunk to its end, or to `limit` records, and leave out the records of other shards.

    `base` is the column that names the base of each row, or None if all rows are for one base. `more_columns` are used
    beside the columns of the mapping and of the base. `ignored` columns say nothing about consent. Raises SourceError,
    and ConfigurationError if the column names some bases by id and others by name.
    """
    seen = SeenIdentities()
    asked: dict[BaseRef, None] = {}
    used = [*list_columns(mapping.columns, base), *more_columns]
    for read in _read_at_most(source, limit, used):
        chunk = read if shard.is_whole else select_shard(read, mapping, rules, shard, today=today)
        mapped = apply_mapping(chunk.frame, mapping, today=today)
        bases, unplaced = (None, ()) if base is None else read_bases(chunk.frame, base)
        if base is not None and bases is not None:
            asked.update(dict.fromkeys(bases.asked))
            refuse_mixed(base.column, asked)
        validated = validate_rows(mapped.frame, rules, today=today, known=[*mapped.faults, *unplaced])
        valid = validated.subscribers
        bases = None if bases is None else bases.select(valid.index.to_numpy())
        identities = compute_identities(valid[rules.identity], rules.identity)
        fingerprints = compute_fingerprints(valid, rules.identity)
        persons = identities  # in two bases the same identity is two subscribers (architecture 3)
        if bases is not None and bases.asked:
            base_digests = [digest_text(f"{base.service_id}:{base.name}") for base in bases.asked]
            persons = separate_digests(identities, join_digests(base_digests, IDENTITY_BYTES)[bases.places])
        is_duplicate, is_different = seen.add(persons, fingerprints)
        is_suppressed = find_suppressed(suppression, valid, identities, rules.identity) & ~is_duplicate
        left = ~is_duplicate & ~is_suppressed
        omitted = mapped.frame["address_zip"].iloc[validated.omitted_zips] if len(validated.omitted_zips) else None
        planned = Planned(chunk, valid[left], identities[left], fingerprints[left], omitted)
        bases = None if bases is None else bases.select(left)
        different = tuple(int(each) for each in valid.index[is_different])
        repeated, suppressed = (valid.index[mask].to_numpy() for mask in (is_duplicate, is_suppressed))
        lost, names = (len(validated.omitted_zips), len(validated.yearless)), valid[rules.identity]
        source_rows = len(read.numbers) + len(read.malformed)
        yield PreparedChunk(
            chunk,
            planned,
            bases,
            validated.faults,
            repeated,
            different,
            suppressed,
            *lost,
            names,
            source_rows,
            tuple(find_consent(chunk.frame, mapping, ignored)),
        )


def select_shard(chunk: Chunk, mapping: FieldMapping, rules: ValidationRules, shard: Shard, *, today: date) -> Chunk:
    """Return the records of a chunk that belong to the shard.

    The digest of the identity decides. For a record without a valid identity the digest of its content decides."""
    identity = FieldMapping({rules.identity: mapping.rules[rules.identity]})
    mapped = apply_mapping(chunk.frame, identity)
    demands = replace(rules, required=frozenset())
    valid = validate_rows(mapped.frame, demands, today=today, known=mapped.faults).subscribers
    is_own = np.zeros(len(chunk.numbers), dtype=bool)
    is_own[valid.index] = shard.contains(compute_identities(valid[rules.identity], rules.identity))
    unidentified = chunk.frame.drop(valid.index)
    for position, cells in zip(unidentified.index, unidentified.itertuples(index=False, name=None), strict=True):
        is_own[position] = shard.holds(digest_text(repr([None if pd.isna(cell) else str(cell) for cell in cells])))
    return replace(
        chunk,
        frame=chunk.frame[is_own].reset_index(drop=True),
        numbers=chunk.numbers[is_own],
        malformed=tuple(row for row in chunk.malformed if shard.holds(digest_text(row.raw))),
    )


def find_suppressed(suppression: Suppression | None, valid: pd.DataFrame, identities: Digests, identity: str) -> Mask:
    """Return which of these valid rows are on the list; `identities` are the rows' own, by the field `identity`."""
    if suppression is None:
        return np.zeros(len(valid), dtype=bool)
    return suppression.find(identities) if suppression.field == identity else suppression.build_mask(valid)


def _read_at_most(source: Source, limit: int | None, used: Collection[str]) -> Iterator[Chunk]:
    """Yield the source's chunks; the last one is cut where `limit` records are read."""
    remaining = limit
    for chunk in source.chunks(used):
        numbers = sorted([*chunk.numbers.tolist(), *(row.number for row in chunk.malformed)]) if remaining else []
        if remaining is not None and len(numbers) > remaining:
            last = numbers[remaining - 1]  # by the records' numbers, which need not follow each other
            count = int(np.count_nonzero(chunk.numbers <= last))
            malformed = tuple(row for row in chunk.malformed if row.number <= last)
            yield replace(chunk, frame=chunk.frame.iloc[:count], numbers=chunk.numbers[:count], malformed=malformed)
            return
        yield chunk
        remaining = None if remaining is None else remaining - len(numbers)
        if remaining == 0:
            return
