"""Whether a mapping can serve a source, and from its chunks to rows that are ready to load: map, validate, identify,
suppress. No network, no ledger.
"""

import re
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
from connector.rows import Chunk, MalformedRow, Planned, Source
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
from connector.subscribers.mapping import Readings, apply_mapping
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
class Difference:
    """A row that is not used because another row of its subscriber is: the `position` in its chunk, the names of the
    `fields` that differ from the row that is used, and whether an inactive row took the place of this row.

    Without a row that is used, `fields` is empty: an invalid row does not say active, so no row of the subscriber is
    used.
    """

    position: int
    fields: tuple[str, ...]
    is_overruled: bool


@dataclass(frozen=True, slots=True)
class PreparedChunk:
    """One chunk of a source after validation.

    `valid` has all valid rows, `bases` the base of each (None: all rows are for one base), and `persons` the digest of
    each row's subscriber: of the identity, and of the base if there are several. `is_duplicate`, `is_suppressed` and
    `is_different` are masks of the valid rows; the last one marks rows that differ from the row that was used until
    then. `faults` are the faults of invalid rows. `barred` are the identities, with record numbers, that invalid rows
    keep from becoming active (`_find_barred`). `differences` are filled in once the source was read to its end
    (connector.conflicts).

    `omitted_zips` and `yearless` are the positions of valid rows that lost their zip, or a birthday without a year.
    `readings` are the positions of cells that were read as another value than their text.
    `source_rows` counts the records of the source that the chunk was made of, with the records of other shards.
    `consent` has the columns that say who wants no email and that is_active is not made of
    (connector.subscribers.consent).
    """

    chunk: Chunk
    valid: Planned
    all_bases: RowBases | None
    persons: Digests
    is_duplicate: Mask
    is_suppressed: Mask
    is_different: Mask
    faults: tuple[Fault, ...]
    barred: tuple[Digests, Positions]
    omitted_zips: Positions
    yearless: Positions
    readings: Readings
    source_rows: int
    consent: tuple[str, ...]
    differences: tuple[Difference, ...] = ()

    @property
    def planned(self) -> Planned:
        """The rows to load."""
        return self.valid if self._is_each_planned else self.valid.select(np.flatnonzero(self._is_planned))

    @property
    def bases(self) -> RowBases | None:
        """The base of each row to load."""
        if self.all_bases is None or self._is_each_planned:
            return self.all_bases
        return self.all_bases.select(self._is_planned)

    @property
    def repeats(self) -> Positions:
        """The positions of rows that are not used because another row of the subscriber is."""
        return self._find_positions(self.is_duplicate)

    @property
    def suppressed(self) -> Positions:
        """The positions of rows on the suppression list."""
        return self._find_positions(self.is_suppressed)

    @property
    def read(self) -> int:
        """How many records of the source this is."""
        return len(self.chunk.frame) + len(self.chunk.malformed)

    @property
    def invalid(self) -> int:
        """How many of them are no subscriber."""
        return len({fault.position for fault in self.faults}) + len(self.chunk.malformed)

    def cut(self, number: int) -> "PreparedChunk":
        """Return the chunk without the records beyond the first `number` records."""
        numbers = sorted([*self.chunk.numbers.tolist(), *(row.number for row in self.chunk.malformed)])
        if len(numbers) <= number:
            return self
        chunk = cut_chunk(self.chunk, numbers[number - 1])
        size, valid = len(chunk.frame), self.valid
        indices = np.flatnonzero(valid.subscribers.index < size)
        part = replace(valid.select(indices), chunk=chunk)
        return PreparedChunk(
            chunk,
            part,
            None if self.all_bases is None else self.all_bases.select(indices),
            self.persons[indices],
            self.is_duplicate[indices],
            self.is_suppressed[indices],
            self.is_different[indices],
            tuple(fault for fault in self.faults if fault.position < size),
            self.barred,
            self.omitted_zips[self.omitted_zips < size],
            self.yearless[self.yearless < size],
            {reading: found[found < size] for reading, found in self.readings.items()},
            self.source_rows,
            self.consent,
            tuple(difference for difference in self.differences if difference.position < size),
        )

    @property
    def _is_planned(self) -> Mask:
        return ~(self.is_duplicate | self.is_suppressed)

    @property
    def _is_each_planned(self) -> bool:
        return bool(self._is_planned.all())

    def _find_positions(self, mask: Mask) -> Positions:
        return self.valid.subscribers.index.to_numpy(dtype=np.int64)[mask]


def find_inactive(subscribers: pd.DataFrame) -> Mask:
    """Return which of these rows say inactive. A row without is_active says nothing."""
    if "is_active" not in subscribers:
        return np.zeros(len(subscribers), dtype=bool)
    return subscribers["is_active"].eq(False).fillna(False).to_numpy(dtype=bool)


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
    """Read the source chunk by chunk to its end, and leave out the records of other shards.

    `base` is the column that names the base of each row, or None if all rows are for one base. `more_columns` are used
    beside the columns of the mapping and of the base. `ignored` columns say nothing about consent. The records beyond
    `limit` come, too, if a column says who is inactive: one of them may say that of an earlier record's subscriber.
    Raises SourceError, and ConfigurationError if the column names some bases by id and others by name.
    """
    seen = SeenIdentities()
    asked: dict[BaseRef, None] = {}
    used = [*list_columns(mapping.columns, base), *more_columns]
    activity = mapping.rules.get("is_active")
    is_activity_read = activity is not None and bool(activity.columns)
    for read in _read_at_most(source, None if is_activity_read else limit, used):
        chunk = read if shard.is_whole else select_shard(read, mapping, rules, shard, today=today)
        mapped = apply_mapping(chunk.frame, mapping, today=today)
        bases, unplaced = (None, ()) if base is None else read_bases(chunk.frame, base)
        if base is not None and bases is not None:
            asked.update(dict.fromkeys(bases.asked))
            refuse_mixed(base.column, asked)
        validated = validate_rows(mapped.frame, rules, today=today, known=[*mapped.faults, *unplaced])
        valid = validated.subscribers
        valid_bases = None if bases is None else bases.select(valid.index.to_numpy())
        identities = compute_identities(valid[rules.identity], rules.identity)
        fingerprints = compute_fingerprints(valid, rules.identity)
        persons = _compute_persons(identities, valid_bases)
        is_duplicate, is_different = seen.add(persons, fingerprints, find_inactive(valid))
        is_suppressed = find_suppressed(suppression, valid, identities, rules.identity) & ~is_duplicate
        omitted = mapped.frame["address_zip"].iloc[validated.omitted_zips] if len(validated.omitted_zips) else None
        barred = identities[:0], chunk.numbers[:0]
        if is_activity_read:
            invalid = sorted({fault.position for fault in validated.faults})
            frame = chunk.frame.iloc[invalid].reset_index(drop=True)
            part = replace(chunk, frame=frame, numbers=chunk.numbers[invalid], malformed=read.malformed)
            barred = _find_barred(part, mapping, rules.identity, today=today)
        yield PreparedChunk(
            chunk,
            Planned(chunk, valid, identities, fingerprints, omitted),
            valid_bases,
            persons,
            is_duplicate,
            is_suppressed,
            is_different,
            validated.faults,
            barred,
            validated.omitted_zips,
            validated.yearless,
            mapped.readings,
            len(read.numbers) + len(read.malformed),
            tuple(find_consent(chunk.frame, mapping, ignored)),
        )


def _compute_persons(identities: Digests, bases: RowBases | None) -> Digests:
    """Return each row's subscriber as a digest. In two bases the same identity is two subscribers (architecture 3)."""
    if bases is None or not bases.asked:
        return identities
    base_digests = [digest_text(f"{base.service_id}:{base.name}") for base in bases.asked]
    return separate_digests(identities, join_digests(base_digests, IDENTITY_BYTES)[bases.places])


def _find_barred(chunk: Chunk, mapping: FieldMapping, identity: str, *, today: date) -> tuple[Digests, Positions]:
    """Return the identities, with record numbers, of invalid rows that do not clearly say active, whatever else is
    wrong with the rows. A malformed record says nothing clearly. A row without is_active says nothing at all."""
    named, numbers = find_named(chunk.malformed, identity)
    if not len(chunk.frame):
        return named, numbers
    read = apply_mapping(chunk.frame, FieldMapping({identity: mapping.rules[identity]}), today=today)
    valid = validate_rows(read.frame, ValidationRules(identity), today=today, known=read.faults).subscribers
    anybody = {"email": ColumnRule(value="nobody@example.com"), "is_active": mapping.rules["is_active"]}
    read = apply_mapping(chunk.frame, FieldMapping(anybody), today=today)
    active = validate_rows(read.frame, ValidationRules(), today=today, known=read.faults).subscribers
    is_clear = read.frame["is_active"].isna().to_numpy(dtype=bool, copy=True)
    is_clear[active.index[active["is_active"].eq(True).fillna(False)]] = True
    valid = valid[~is_clear[valid.index]]
    positions = valid.index.to_numpy(dtype=np.int64)
    identities = compute_identities(valid[identity], identity)
    return np.concatenate([named, identities]), np.concatenate([numbers, chunk.numbers[positions]])


_WORDS = {
    "email": re.compile(r"[^\s,;|\"<>()\[\]{}:]+@[^\s,;|\"<>()\[\]{}:]+"),
    "client_user_id": re.compile(r'[^,;|\t\n"]+'),
}
"""What may be an identity in the text of a record that cannot be read."""


def find_named(records: Sequence[MalformedRow], identity: str) -> tuple[Digests, Positions]:
    """Return the identities that these records may name, with the record numbers."""
    words = [(word.strip("' \r"), record.number) for record in records for word in _WORDS[identity].findall(record.raw)]
    named = pd.Series([word for word, _ in words], dtype="str")
    numbers = np.array([number for _, number in words], dtype=np.int64)
    return compute_identities(named, identity), numbers


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
            yield cut_chunk(chunk, numbers[remaining - 1])
            return
        yield chunk
        remaining = None if remaining is None else remaining - len(numbers)
        if remaining == 0:
            return


def cut_chunk(chunk: Chunk, last: int) -> Chunk:
    """Return the chunk without the records behind the record number `last`; numbers need not be consecutive."""
    size = int(np.count_nonzero(chunk.numbers <= last))
    malformed = tuple(row for row in chunk.malformed if row.number <= last)
    return replace(chunk, frame=chunk.frame.iloc[:size], numbers=chunk.numbers[:size], malformed=malformed)
