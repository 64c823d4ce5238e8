"""Checks that a mapping fits a source, and prepares the rows of the source for a load.

The rows are mapped and validated. Then duplicates and rows on the suppression list are found.

This module uses neither the network nor the ledger.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from difflib import get_close_matches

import numpy as np
import pandas as pd

from connector.errors import ConfigurationError
from connector.fields import BaseRef
from connector.outcomes import Fault
from connector.rows import Chunk, MalformedRow, PlannedChunk, Source
from connector.shards import SINGLE_SHARD, Shard
from connector.subscribers.consent import find_consent_columns
from connector.subscribers.identity import (
    IDENTITY_BYTES,
    Digests,
    Mask,
    Positions,
    SeenIdentities,
    Suppression,
    combine_digests,
    compute_fingerprints,
    compute_identities,
    digest_text,
    join_digests,
    split_digests,
)
from connector.subscribers.mapping import ReinterpretedCells, apply_mapping
from connector.subscribers.rules import (
    BaseColumn,
    ColumnRule,
    FieldMapping,
    RowBases,
    ValidationRules,
    find_mapping_faults,
    list_columns,
    read_bases,
    refuse_mixed_bases,
)
from connector.subscribers.validation import validate_rows


def check_mapping(
    mapping: FieldMapping,
    rules: ValidationRules,
    columns: Sequence[str],
    *,
    source_name: str,
    base: BaseColumn | None = None,
) -> None:
    """Raise ConfigurationError with all faults if a mapping does not fit the source.

    `columns` are the columns of the source. `base` is the column that names the base of each row, or None. The faults:
    - The identity or a required field is unmapped.
    - The source lacks a column.
    - The rule `zip` moves zip codes to a field that is already mapped.
    - A constant or default is invalid.
    """
    field_columns = [(name, column) for name, rule in mapping.rules.items() for column in rule.columns]
    field_columns += [] if base is None else [("the base", base.column)]
    faults = find_mapping_faults(mapping.rules, rules.identity_field, sorted(rules.required), rules.zip_policy)
    for name, column in field_columns:
        if column not in columns:
            similar_columns = get_close_matches(column, columns, n=1)
            hint = f" (did you mean {similar_columns[0]}?)" if similar_columns else ""
            faults.append(f"{name} is mapped to the column {column}, which does not exist{hint}")
    faults += _find_value_faults(mapping)
    if faults:
        raise ConfigurationError(f"{source_name}: {'; '.join(faults)}. Its columns: {', '.join(columns)}")


def _find_value_faults(mapping: FieldMapping) -> list[str]:
    """Return messages about texts of `value` and `default` in the rules that cannot be sent."""
    rule_by_field = {
        name: ColumnRule(value=text) for name, rule in mapping.rules.items() if (text := rule.value or rule.default)
    }
    if not rule_by_field:
        return []
    identity_rules = {"email": ColumnRule(value="nobody@example.com")}
    row = apply_mapping(pd.DataFrame(index=pd.RangeIndex(1)), FieldMapping(identity_rules | rule_by_field)).frame
    faults = validate_rows(row, ValidationRules(), today=date.max).faults
    return [
        f"the {'value' if mapping.rules[fault.field].value else 'default'} for {fault.field} cannot be sent: "
        f"{fault.message}"
        for fault in faults
    ]


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that is not used because of other rows of its subscriber. `position` is the position of the row in its
    chunk.

    `fields` has the fields that differ from the used row. If an invalid row of the subscriber might say inactive, no
    row of the subscriber is used, and `fields` is empty. `is_overruled_by_inactive_row` is true if the row is not used
    because of a row that says, or might say, inactive.
    """

    position: int
    fields: tuple[str, ...]
    is_overruled_by_inactive_row: bool


@dataclass(frozen=True, slots=True)
class PreparedChunk:
    """One chunk of a source after validation. Each position is the position of a row in `chunk`."""

    chunk: Chunk
    valid_chunk: PlannedChunk  # the valid rows
    valid_bases: RowBases | None  # the bases of the valid rows; None: all rows are for one base
    # For each valid row, a digest of the identity, and also of the base if there are several bases.
    subscriber_digests: Digests
    duplicate_mask: Mask  # valid rows that are not used, because of another row of the subscriber
    suppressed_mask: Mask  # valid rows on the suppression list that are not in `duplicate_mask`
    different_row_mask: Mask  # valid rows that differ from an earlier row of the same subscriber
    faults: tuple[Fault, ...]  # the faults of the invalid rows
    # The identities and the record numbers of invalid rows that may mean an inactive subscriber.
    # Active rows of these identities are not used.
    blocking_records: tuple[Digests, Positions]
    omitted_zip_positions: Positions  # valid rows whose zip code is left out
    yearless_positions: Positions  # valid rows whose birthday is left out, because the birthday has no year
    reinterpreted_cells: ReinterpretedCells  # the positions of cells whose value differs from their text
    source_row_count: int  # the number of records, including the records of other shards
    consent_columns: tuple[str, ...]  # unmapped consent columns (connector.subscribers.consent)
    differences: tuple[Difference, ...] = ()  # set by connector.spooled_rows at the end of the source

    @property
    def planned_chunk(self) -> PlannedChunk:
        """The rows that the run will load."""
        planned_mask = self._planned_mask
        return self.valid_chunk if planned_mask.all() else self.valid_chunk.select(np.flatnonzero(planned_mask))

    @property
    def bases(self) -> RowBases | None:
        """The base of each row that the run will load."""
        return None if self.valid_bases is None else self.valid_bases.select(self._planned_mask)

    @property
    def repeated_positions(self) -> Positions:
        """The positions of rows that are not used because another row of the subscriber is used."""
        return self._find_positions(self.duplicate_mask)

    @property
    def suppressed_positions(self) -> Positions:
        """The positions of rows that are not used because they are on the suppression list."""
        return self._find_positions(self.suppressed_mask)

    @property
    def invalid_count(self) -> int:
        """The number of invalid and malformed records."""
        return len({fault.position for fault in self.faults}) + len(self.chunk.malformed_rows)

    def truncate(self, record_count: int) -> "PreparedChunk":
        """Return the first `record_count` records of the chunk."""
        chunk = self.chunk.truncate(record_count)
        if chunk is self.chunk:
            return self
        row_count = len(chunk.frame)
        indices = np.flatnonzero(self.valid_chunk.subscribers.index < row_count)
        return replace(
            self,
            chunk=chunk,
            valid_chunk=replace(self.valid_chunk.select(indices), chunk=chunk),
            valid_bases=None if self.valid_bases is None else self.valid_bases.select(indices),
            subscriber_digests=self.subscriber_digests[indices],
            duplicate_mask=self.duplicate_mask[indices],
            suppressed_mask=self.suppressed_mask[indices],
            different_row_mask=self.different_row_mask[indices],
            faults=tuple(fault for fault in self.faults if fault.position < row_count),
            omitted_zip_positions=self.omitted_zip_positions[self.omitted_zip_positions < row_count],
            yearless_positions=self.yearless_positions[self.yearless_positions < row_count],
            reinterpreted_cells={
                reinterpretation: positions[positions < row_count]
                for reinterpretation, positions in self.reinterpreted_cells.items()
            },
            differences=tuple(difference for difference in self.differences if difference.position < row_count),
        )

    @property
    def _planned_mask(self) -> Mask:
        return ~(self.duplicate_mask | self.suppressed_mask)

    def _find_positions(self, mask: Mask) -> Positions:
        return self.valid_chunk.subscribers.index.to_numpy(dtype=np.int64)[mask]


def build_inactive_mask(subscribers: pd.DataFrame) -> Mask:
    """Return the mask of the rows whose is_active is false."""
    if "is_active" not in subscribers:
        return np.zeros(len(subscribers), dtype=bool)
    return subscribers["is_active"].eq(False).fillna(False).to_numpy(dtype=bool)


def prepare_chunks(
    source: Source,
    mapping: FieldMapping,
    rules: ValidationRules,
    *,
    today: date,
    row_limit: int | None,
    base: BaseColumn | None = None,
    suppression: Suppression | None = None,
    shard: Shard = SINGLE_SHARD,
    extra_columns: Collection[str] = (),
    ignored_columns: Collection[str] = (),
) -> Iterator[PreparedChunk]:
    """Read the source chunk by chunk to its end, and leave out the records of other shards.

    `base` is the column that names the base of each row, or None if all rows are for one base. `extra_columns` are read
    in addition to the columns of the mapping and of the base. `ignored_columns` are not checked for consent. If
    is_active is mapped to a column, records beyond `row_limit` are also read, because they may show that a subscriber
    is inactive. Raises SourceError. Raises ConfigurationError if the column names some bases by id and others by name.
    """
    seen_identities = SeenIdentities()
    seen_bases: dict[BaseRef, None] = {}
    columns_to_read = [*list_columns(mapping.columns, base), *extra_columns]
    activity_rule = mapping.rules.get("is_active")
    is_activity_read = activity_rule is not None and bool(activity_rule.columns)
    for source_chunk in _read_limited_chunks(source, None if is_activity_read else row_limit, columns_to_read):
        chunk = source_chunk if shard.is_whole else select_shard(source_chunk, mapping, rules, shard, today=today)
        mapped_chunk = apply_mapping(chunk.frame, mapping, today=today)
        bases, known_faults = None, mapped_chunk.faults
        if base is not None:
            bases, base_faults = read_bases(chunk.frame, base)
            known_faults += base_faults
            seen_bases.update(dict.fromkeys(bases.bases))
            refuse_mixed_bases(base.column, seen_bases)
        validation_result = validate_rows(mapped_chunk.frame, rules, today=today, known_faults=known_faults)
        valid_rows = validation_result.subscribers
        row_bases = None if bases is None else bases.select(valid_rows.index.to_numpy())
        identities = compute_identities(valid_rows[rules.identity_field], rules.identity_field)
        fingerprints = compute_fingerprints(valid_rows, rules.identity_field)
        subscriber_digests = _compute_subscriber_digests(identities, row_bases)
        duplicate_mask, different_row_mask = seen_identities.add(
            subscriber_digests, fingerprints, build_inactive_mask(valid_rows)
        )
        suppressed_mask = (
            mark_suppressed_rows(suppression, valid_rows, identities, rules.identity_field) & ~duplicate_mask
        )
        omitted_zips, zip_positions = None, validation_result.omitted_zip_positions
        if len(zip_positions):
            omitted_zips = mapped_chunk.frame["address_zip"].iloc[zip_positions]
        blocking_records = identities[:0], chunk.row_numbers[:0]
        if is_activity_read:
            invalid_positions = sorted({fault.position for fault in validation_result.faults})
            invalid_chunk = replace(
                chunk,
                frame=chunk.frame.iloc[invalid_positions].reset_index(drop=True),
                row_numbers=chunk.row_numbers[invalid_positions],
                malformed_rows=source_chunk.malformed_rows,
            )
            blocking_records = _find_blocking_records(invalid_chunk, mapping, rules.identity_field, today=today)
        yield PreparedChunk(
            chunk,
            PlannedChunk(chunk, valid_rows, identities, fingerprints, omitted_zips),
            row_bases,
            subscriber_digests,
            duplicate_mask,
            suppressed_mask,
            different_row_mask,
            validation_result.faults,
            blocking_records,
            zip_positions,
            validation_result.yearless_positions,
            mapped_chunk.reinterpreted_cells,
            source_chunk.record_count,
            tuple(find_consent_columns(chunk.frame, mapping, ignored_columns)),
        )


def _compute_subscriber_digests(identities: Digests, bases: RowBases | None) -> Digests:
    """Return the digest of each row's subscriber. An identity in two bases is two subscribers."""
    if bases is None or not bases.bases:
        return identities
    base_digests = [digest_text(f"{base.service_id}:{base.name}") for base in bases.bases]
    return combine_digests(identities, join_digests(base_digests, IDENTITY_BYTES)[bases.base_indices])


def _find_blocking_records(
    chunk: Chunk, mapping: FieldMapping, identity_field: str, *, today: date
) -> tuple[Digests, Positions]:
    """Return the identities and the record numbers of invalid rows that may mean an inactive subscriber.

    These rows are malformed records, and rows whose is_active is present and is not true. Other faults do not matter.
    """
    malformed_identities, malformed_row_numbers = find_possible_identities(chunk.malformed_rows, identity_field)
    if not len(chunk.frame):
        return malformed_identities, malformed_row_numbers
    positions, identities = read_identities(chunk.frame, mapping, identity_field, today=today)
    activity_rules = {"email": ColumnRule(value="nobody@example.com"), "is_active": mapping.rules["is_active"]}
    mapped_chunk = apply_mapping(chunk.frame, FieldMapping(activity_rules), today=today)
    rows_with_activity = validate_rows(
        mapped_chunk.frame, ValidationRules(), today=today, known_faults=mapped_chunk.faults
    ).subscribers
    may_be_inactive_mask = mapped_chunk.frame["is_active"].notna().to_numpy(dtype=bool, copy=True)
    may_be_inactive_mask[rows_with_activity.index[rows_with_activity["is_active"].eq(True).fillna(False)]] = False
    blocking_mask = may_be_inactive_mask[positions]
    positions, identities = positions[blocking_mask], identities[blocking_mask]
    return np.concatenate([malformed_identities, identities]), np.concatenate(
        [malformed_row_numbers, chunk.row_numbers[positions]]
    )


def read_identities(
    frame: pd.DataFrame, mapping: FieldMapping, identity_field: str, *, today: date
) -> tuple[Positions, Digests]:
    """Return the positions of the rows that have a valid identity, and the digests of these identities. Other fields of
    the rows are not checked."""
    mapped_chunk = apply_mapping(frame, FieldMapping({identity_field: mapping.rules[identity_field]}), today=today)
    valid_rows = validate_rows(
        mapped_chunk.frame, ValidationRules(identity_field), today=today, known_faults=mapped_chunk.faults
    ).subscribers
    return valid_rows.index.to_numpy(dtype=np.int64), compute_identities(valid_rows[identity_field], identity_field)


_IDENTITY_TEXT_PATTERNS = {
    "email": re.compile(r"[^\s,;|\"<>()\[\]{}:]+@[^\s,;|\"<>()\[\]{}:]+"),
    "client_user_id": re.compile(r'[^,;|\t\n"]+'),
}
"""Patterns of the texts in a malformed record that may be identities, by field."""


def find_possible_identities(records: Sequence[MalformedRow], identity_field: str) -> tuple[Digests, Positions]:
    """Return the identities that these malformed records may contain, and the record number of each identity."""
    numbered_texts = [
        (text.strip("' \r"), record.number)
        for record in records
        for text in _IDENTITY_TEXT_PATTERNS[identity_field].findall(record.raw_record)
    ]
    identities = pd.Series([text for text, _ in numbered_texts], dtype="str")
    record_numbers = np.array([record_number for _, record_number in numbered_texts], dtype=np.int64)
    return compute_identities(identities, identity_field), record_numbers


def select_shard(chunk: Chunk, mapping: FieldMapping, rules: ValidationRules, shard: Shard, *, today: date) -> Chunk:
    """Return the records of a chunk that belong to the shard. The digest from `digest_rows` decides."""
    shard_mask = shard.build_digest_mask(
        join_digests(digest_rows(chunk.frame, mapping, rules.identity_field, today=today)[0], IDENTITY_BYTES)
    )
    return replace(
        chunk,
        frame=chunk.frame[shard_mask].reset_index(drop=True),
        row_numbers=chunk.row_numbers[shard_mask],
        malformed_rows=tuple(row for row in chunk.malformed_rows if shard.has_digest(digest_text(row.raw_record))),
    )


def digest_rows(
    frame: pd.DataFrame, mapping: FieldMapping, identity_field: str, *, today: date
) -> tuple[list[bytes], list[bool]]:
    """Return a digest for each row of text cells, and whether the row has a valid identity. With a valid identity,
    the digest is the digest of the identity. Otherwise, the digest is of the cells that the mapping uses."""
    positions, identities = read_identities(frame, mapping, identity_field, today=today)
    digests, has_identity_flags = [b""] * len(frame), [False] * len(frame)
    for position, digest in zip(positions.tolist(), split_digests(identities), strict=True):
        digests[position], has_identity_flags[position] = digest, True
    unidentified_rows = frame[[*mapping.columns]].drop(positions)
    for position, cells in zip(
        unidentified_rows.index, unidentified_rows.itertuples(index=False, name=None), strict=True
    ):
        digests[position] = digest_text(repr([None if pd.isna(cell) else str(cell) for cell in cells]))
    return digests, has_identity_flags


def mark_suppressed_rows(
    suppression: Suppression | None, valid_rows: pd.DataFrame, identities: Digests, identity_field: str
) -> Mask:
    """Return the mask of the valid rows that are on the suppression list. `identities` are the digests of the rows'
    `identity_field`."""
    if suppression is None:
        return np.zeros(len(valid_rows), dtype=bool)
    if suppression.field == identity_field:
        return suppression.build_digest_mask(identities)
    return suppression.build_row_mask(valid_rows)


def _read_limited_chunks(source: Source, row_limit: int | None, used_columns: Collection[str]) -> Iterator[Chunk]:
    """Yield the chunks of the source with at most `row_limit` records."""
    remaining_row_count = row_limit
    for chunk in source.read_chunks(used_columns):
        if remaining_row_count is not None:
            chunk = chunk.truncate(remaining_row_count)
            remaining_row_count -= chunk.record_count
        yield chunk
        if remaining_row_count == 0:
            return
