# ruff: noqa: S608 - the statements are made of constants of this module
"""The parts of a reconciliation: the compared bases, the rows of the source, the entries of the ledger, and the
differences between source, ledger and list.
"""

import shlex
from collections.abc import Iterator, Sequence
from datetime import date

import numpy as np
import pyarrow as pa

from connector.fields import BaseRef
from connector.imports.base_loads import describe_base, refuse_too_many_bases
from connector.imports.plan import LoadPlan
from connector.imports.remarks import Remarks
from connector.ledger.entries import Entry, Ledger
from connector.ledger.records import find_or_add_base, record_base_id
from connector.ledger.store import Base
from connector.listing.base_reader import BaseReader
from connector.reconcile import Comparison, Integers, ListedBase
from connector.rows import PlannedChunk, format_cell
from connector.service.wire import find_differing_fields
from connector.spool import decode_values, encode_values
from connector.states import State
from connector.subscribers.identity import Suppression
from connector.subscribers.preparation import PreparedChunk, mark_suppressed_rows, read_identities
from connector.subscribers.rules import BaseColumn, RowBases, read_bases
from connector.texts import choose_form, count
from pipelines.report.differences import DifferenceFile, Differences, explain_missing_subscriber, name_state

_ENTRY_BATCH_SIZE = 10_000

ROW_COUNT_NAMES = ("read", "valid", "invalid", "duplicate", "suppressed")
"""The counts of source rows in the report. The sum of the last four counts is the first count."""


# Bases


class ComparedBases:
    """The bases that are compared. `find_base_number` gives each base a number, from 0.

    `listed_bases` are the bases of the list. `bases` are the same bases in the ledger, in the order of their numbers.
    `listed_base_numbers` connects the two lists: (2, 0) means that `listed_bases[2]` is the base with the number 0.
    """

    def __init__(self, listed_bases: Sequence[ListedBase], ledger: Ledger, account: str) -> None:
        self._listed_bases, self._ledger, self._account = listed_bases, ledger, account
        self._number_by_ref: dict[BaseRef, int] = {}
        self.bases: list[Base] = []
        self.listed_base_numbers: list[tuple[int, int]] = []

    def find_base_number(self, base_ref: BaseRef) -> int:
        """Return the number of a base, and record in the ledger the id and the name that the list has for the base.

        Raises RunAborted if another base has the name now, and ConfigurationError if several bases have the name.
        """
        if base_ref not in self._number_by_ref:
            base, indexes = self._find_base(base_ref)
            keys = [compared_base.key for compared_base in self.bases]
            self._number_by_ref[base_ref] = keys.index(base.key) if base.key in keys else len(keys)
            if base.key not in keys:
                self.bases.append(base)
                self.listed_base_numbers += [(index, len(keys)) for index in indexes]
        return self._number_by_ref[base_ref]

    def _find_base(self, base_ref: BaseRef) -> tuple[Base, list[int]]:
        """Return the ledger's base, and the indexes of the listed bases that are this base."""
        base_name = base_ref.name if base_ref.service_id is None else None
        wire_bases = [{"Id": base_id, "Name": listed_name} for base_id, listed_name in self._listed_bases]
        with self._ledger.transaction() as connection:
            base = find_or_add_base(connection, self._account, base_ref.service_id, base_ref.name)
            reader = BaseReader(base, base_name, [])
            indexes = [
                index
                for index, wire_base in enumerate(wire_bases)
                if type(wire_base["Id"]) is int and reader.is_of_base(wire_base)
            ]
            base_name, base_id = base_name or self._find_name(indexes), reader.service_id
            if base_id is not None and base_name is not None and (base.service_id, base.name) != (base_id, base_name):
                base = record_base_id(connection, base, base_id, base_name)
        return base, indexes

    def _find_name(self, indexes: Sequence[int]) -> str | None:
        """Return the listed name of a base that the job names by its id. Return None if the name is not unique."""
        names = {self._listed_bases[index][1] for index in indexes}
        other_names = {name for index, (_, name) in enumerate(self._listed_bases) if index not in indexes}
        return next(iter(names)) if len(names) == 1 and not names & other_names else None


# The source and the ledger


class SourceRows:
    """Puts the rows of a source into a comparison, chunk by chunk.

    `row_counts` has a count for each name of `ROW_COUNT_NAMES`. `field_names` are the fields that are compared.
    """

    def __init__(
        self,
        plan: LoadPlan,
        suppression: Suppression | None,
        comparison: Comparison,
        compared_bases: ComparedBases,
        field_names: Sequence[str],
    ) -> None:
        self._plan, self._suppression = plan, suppression
        self._comparison, self._compared_bases, self._field_names = comparison, compared_bases, field_names
        self._remarks = Remarks()
        self.row_counts = dict.fromkeys(ROW_COUNT_NAMES, 0)
        self._unidentified_row_count = 0
        if isinstance(plan.rows.base, BaseRef):
            compared_bases.find_base_number(plan.rows.base)
        for base in (plan.rows.base.values or {}).values() if isinstance(plan.rows.base, BaseColumn) else ():
            compared_bases.find_base_number(base)

    def add_chunk(self, prepared_chunk: PreparedChunk) -> None:
        """Add a chunk that was prepared without the suppression list. Raises the errors of
        `ComparedBases.find_base_number`.
        """
        planned_chunk, identity_field = prepared_chunk.planned_chunk, self._plan.rows.rules.identity_field
        suppressed_mask = mark_suppressed_rows(
            self._suppression, planned_chunk.subscribers, planned_chunk.identities, identity_field
        )
        base_numbers = self._find_base_numbers(len(planned_chunk.identities), prepared_chunk.bases)
        compared_rows = planned_chunk.select(np.flatnonzero(~suppressed_mask))
        row_numbers = planned_chunk.chunk.row_numbers[compared_rows.subscribers.index.to_numpy()]
        identity_texts = compared_rows.subscribers[identity_field].tolist()
        row_contents = map(encode_values, _read_values(compared_rows, self._field_names))
        self._comparison.add_rows(
            base_numbers[~suppressed_mask], compared_rows.identities, row_numbers, identity_texts, row_contents
        )
        self._comparison.add_present_identities(
            base_numbers[suppressed_mask], planned_chunk.identities[suppressed_mask]
        )
        self._add_invalid_rows(prepared_chunk)
        self._remarks.add_chunk(prepared_chunk)
        self.row_counts["read"] += prepared_chunk.chunk.record_count
        self.row_counts["valid"] += len(compared_rows.identities)
        self.row_counts["invalid"] += prepared_chunk.invalid_count
        self.row_counts["duplicate"] += len(prepared_chunk.repeated_positions)
        self.row_counts["suppressed"] += int(np.count_nonzero(suppressed_mask))

    def list_messages(self) -> Iterator[str]:
        """Yield the messages about the rows."""
        yield from self._remarks.messages
        yield from self._remarks.describe_cells(self._plan.rows.mapping)
        if self._plan.rows.unmapped_columns:
            yield f"columns not used: {', '.join(self._plan.rows.unmapped_columns)}"
        if self.row_counts["invalid"]:
            invalid_count = self.row_counts["invalid"]
            invalid_rows_text = f"{count(invalid_count, 'row')} {choose_form(invalid_count, 'is', 'are')}"
            job = "JOB" if self._plan.job_path is None else shlex.quote(str(self._plan.job_path))
            yield (
                f"{invalid_rows_text} invalid and {choose_form(invalid_count, 'was', 'were')} not compared. To see "
                f"why, run: connector validate {job}"
            )
        if row_count := self._unidentified_row_count:
            yield (
                f"{row_count:,} of the invalid rows {choose_form(row_count, 'has', 'have')} no identity "
                "or no base that can be read. Subscribers of these rows may be counted as extra"
            )

    def _add_invalid_rows(self, prepared_chunk: PreparedChunk) -> None:
        """Count the subscriber of an invalid row as present in the source, if the row has a readable identity."""
        positions = sorted({fault.position for fault in prepared_chunk.faults})
        self._unidentified_row_count += len(prepared_chunk.chunk.malformed_rows)
        if not positions:
            return
        identity_field, column = self._plan.rows.rules.identity_field, self._plan.rows.base_column
        frame = prepared_chunk.chunk.frame.iloc[positions].reset_index(drop=True)
        indices, identities = read_identities(frame, self._plan.rows.mapping, identity_field, today=date.max)
        bases = None if column is None else read_bases(frame, column)[0].select(indices)
        base_numbers = self._find_base_numbers(len(indices), bases)
        self._comparison.add_present_identities(base_numbers[base_numbers >= 0], identities[base_numbers >= 0])
        self._unidentified_row_count += len(positions) - int(np.count_nonzero(base_numbers >= 0))

    def _find_base_numbers(self, row_count: int, bases: RowBases | None) -> Integers:
        """Return the number of the base of each row, or -1 for a row without a base."""
        if bases is None:
            return np.zeros(row_count, dtype=np.int64)
        # The last element is for rows without a base (index -1).
        base_number_by_index = np.full(len(bases.bases) + 1, -1, dtype=np.int64)
        for index in np.unique(bases.base_indices[bases.base_indices >= 0]).tolist():
            base_number_by_index[index] = self._compared_bases.find_base_number(bases.bases[index])
        if isinstance(self._plan.rows.base, BaseColumn):
            refuse_too_many_bases(self._plan.rows.base, len(self._compared_bases.bases))
        return base_number_by_index[bases.base_indices]


def _read_values(chunk: PlannedChunk, field_names: Sequence[str]) -> Iterator[Sequence[object]]:
    """Yield the values of the fields, row by row. A zip code that cannot be sent is a text."""
    rows = chunk.subscribers
    empty_column = [None] * len(rows)
    columns = [
        pa.array(rows[name], from_pandas=True).to_pylist() if name in rows else empty_column for name in field_names
    ]
    if chunk.omitted_zips is not None and "address_zip" in field_names:
        index = field_names.index("address_zip")
        zip_texts = pa.array(chunk.omitted_zips.reindex(rows.index), pa.string(), from_pandas=True).to_pylist()
        columns[index] = [
            text if value is None else value for value, text in zip(columns[index], zip_texts, strict=True)
        ]
    return zip(*columns, strict=True) if columns else iter([()] * len(rows))


def add_entries(comparison: Comparison, compared_bases: ComparedBases, ledger: Ledger, identity_field: str) -> None:
    """Add the ledger's entries of these bases to the comparison. Raises LedgerError and RunAborted."""
    for base_number, base in enumerate(compared_bases.bases):
        last_identity = b""
        while True:
            with ledger.transaction():
                entries = ledger.list_entries(base, identity_field, last_identity, _ENTRY_BATCH_SIZE)
            comparison.add_entries(base_number, entries)
            if len(entries) < _ENTRY_BATCH_SIZE:
                break
            last_identity = entries[-1][0]


# Differences

_SELECT_DRIFTED_SQL = """
SELECT joined.base_number, source.name, id, source.content, listed.content
FROM joined JOIN source USING (position) JOIN listed USING (id)
WHERE source.content <> listed.content ORDER BY position
"""

_SELECT_MISSING_SQL = """
SELECT joined.base_number, row_number, name, vanished.base_number IS NULL, state, joined.subscriber_id, status, message
FROM joined JOIN source USING (position) LEFT JOIN vanished USING (position)
WHERE id IS NULL ORDER BY position
"""

_SELECT_DUPLICATED_OR_EXTRA_SQL = """
WITH several AS (
    SELECT base_number, digest, list(listed.id ORDER BY listed.id) AS ids
    FROM listed JOIN numbered_base USING (listed_base_index)
    SEMI JOIN (FROM joined WHERE times > 1) USING (base_number, digest)
    GROUP BY ALL
)
SELECT joined.base_number, name, coalesce(ids, [id]), state, subscriber_id, status, message
FROM joined JOIN listed USING (id)
LEFT JOIN several ON several.base_number = joined.base_number AND several.digest = joined.digest
WHERE {condition} ORDER BY joined.base_number, name IS NULL, id
"""

_SELECT_VANISHED_SQL = """
SELECT vanished.base_number, source.name, subscriber_id FROM vanished LEFT JOIN source USING (position)
ORDER BY position NULLS LAST, vanished.base_number, vanished.digest
"""

COUNT_CONFIRMED_ENTRIES_SQL = f"""
SELECT base_number, count(*), count(id) FROM joined WHERE state = {int(State.CONFIRMED)} GROUP BY base_number
"""
"""For each base: the number of the base, the count of its confirmed entries, and the count of confirmed entries whose
subscribers are listed in the base."""

COUNT_UNIDENTIFIED_SUBSCRIBERS_SQL = "SELECT count(*) FROM joined WHERE digest IS NULL"
"""The number of listed subscribers without an identity."""


def report_differences(
    comparison: Comparison,
    bases: Sequence[Base],
    identity_field: str,
    field_names: Sequence[str],
    differences: Differences,
    file: DifferenceFile,
) -> None:
    """Count the differences of a joined comparison in `differences`, and write them to `file`. `field_names` are the
    compared fields.

    If the list is not known to be complete, only drifted and duplicated subscribers are reported.
    """
    base_names = [describe_base(base) for base in bases]
    for base_number, identity_text, subscriber_id, *contents in comparison.fetch_rows(_SELECT_DRIFTED_SQL):
        values, listed_values = map(decode_values, contents)
        differing_indexes = find_differing_fields(field_names, values, listed_values)
        if differing_indexes:
            differences.count("drifted", subscriber_id)
        for index in differing_indexes:
            name, base_name = field_names[index], base_names[base_number]
            differences.fields[name] += 1
            source_text, listed_text = format_cell(values[index]) or "", format_cell(listed_values[index]) or ""
            texts = {"field_name": name, "source_text": source_text, "service_text": listed_text}
            file.write("drifted", base_name, identity_text, [subscriber_id], **texts)
    for kind, condition_sql in (("duplicated", "times > 1"), ("extra", "NOT is_in_source")):
        if kind == "extra" and not differences.is_certain:
            return
        for base_number, identity_bytes, ids, *entry_values in comparison.fetch_rows(
            _SELECT_DUPLICATED_OR_EXTRA_SQL.format(condition=condition_sql)
        ):
            differences.count(kind, ids[0])
            if identity_bytes is None:
                message = f"the service lists the subscriber without {identity_field}"
                file.write(kind, base_names[base_number], "", ids, message=message)
                continue
            entry = _read_entry(*entry_values)
            id_in_ledger = entry.subscriber_id if entry is not None else None
            message = f"the ledger has the id {id_in_ledger}" if id_in_ledger is not None else ""
            identity_text = identity_bytes.decode(errors="surrogatepass")
            file.write(kind, base_names[base_number], identity_text, ids, state_name=name_state(entry), message=message)
    missing_rows = comparison.fetch_rows(_SELECT_MISSING_SQL)
    for base_number, row_number, identity_text, is_id_listed, *entry_values in missing_rows:
        entry = _read_entry(*entry_values)
        state_name, message = name_state(entry), explain_missing_subscriber(entry, is_id_listed=is_id_listed)
        differences.count("missing", row_number)
        differences.missing_count_by_state[state_name] += 1
        file.write("missing", base_names[base_number], identity_text, [], state_name=state_name, message=message)
    for base_number, identity_text, subscriber_id in comparison.fetch_rows(_SELECT_VANISHED_SQL):
        differences.count("vanished", subscriber_id)
        message = "an earlier run confirmed the subscriber, and the service no longer lists the subscriber"
        texts = {"state_name": "confirmed", "message": message}
        file.write("vanished", base_names[base_number], identity_text or "", [subscriber_id], **texts)


def _read_entry(state: int | None, subscriber_id: int | None, status: int | None, message: str | None) -> Entry | None:
    return None if state is None else Entry(State(state), subscriber_id, None, status, message, attempt_count=0)
