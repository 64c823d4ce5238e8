"""Compares waiting rows with the service (architecture 4.12). The first comparison uses subscribers that look-ups of
the run have shown. The remaining rows are compared by look-ups by Id (up to 100 rows), or by one listing.

A row that equals its subscriber in every mapped field `exists`, and its entry gets the fingerprint of the row. If this
run's create of the row got a 429, an equal row counts as created instead. A row that differs is `changed`, and its
entry records that this fingerprint was reported, so that the next runs need not compare the row. A comparison sends no
create. If the service does not show a subscriber, the run reports the row without a comparison.

An opt-out (architecture 4.17) is a row that says inactive while the service shows the subscriber as active. Opt-outs
are compared in each run. The ledger records opt-outs, because an incremental run does not read their rows again.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from connector.ledger.entries import Entry, Ledger
from connector.ledger.receipts import ReceiptKind
from connector.listing.base_reader import has_identity
from connector.listing.hidden import record_hidden_groups
from connector.listing.pages import ListFailed
from connector.listing.reader import SMALLEST_WINDOW, read_list
from connector.listing.requests import look_up_together, request_rows
from connector.load.session import CompareReason, Session, WaitingRow, WaitingRows
from connector.outcomes import Outcome
from connector.paging.certificate import CutOff
from connector.rows import LoadRow, Row
from connector.service.wire import ListQuery, find_differing_fields, read_field
from connector.spool import SpooledValues
from connector.subscribers.identity import FINGERPRINT_BYTES
from connector.tally import ChangedRow, OptOut, Tally

_MAX_LOOK_UPS_BY_ID = 100
"""Largest number of rows that are looked up by Id. A listing is cheaper for more rows, because a page of the list has
up to 1,000 subscribers."""

_ROWS_PER_COMMIT = 2_000  # rows in one commit

_UNREAD_ROW = Row(0, "", (), ())  # the row of an opt-out that this run has not read
_NEVER_COMPARED_FIELDS = frozenset({"id", "base_id", "base_name"})


class _ComparisonResult(IntEnum):
    """The result of the comparison of a row with the service."""

    NOT_COMPARED = 0
    EQUAL = 1
    DIFFERENT = 2


class _ServiceState(IntEnum):
    """The state of a row's subscriber in the service."""

    NOT_KNOWN = 0
    ACTIVE = 1
    INACTIVE = 2
    CHANGED_IDENTITY = 3  # the Id now has another base or identity
    GONE = 4  # the list lacks the subscriber


async def compare_waiting_rows(
    sessions: Sequence[Session], waiting_rows: WaitingRows, *, compares_reported_rows: bool
) -> None:
    """Give each waiting row its outcome, `exists` or `changed`.

    `sessions` has a session for each base of the run. With `compares_reported_rows`, rows that earlier runs have
    reported are compared again. Also report the opt-outs among the waiting rows, and the opt-outs that the ledger has
    for rows that this run has not read.

    Raises LedgerError, and RunAborted if the run must stop. Call `report_uncompared_rows` later to count the remaining
    rows.
    """
    for session in sessions:
        await _add_opt_outs(session, waiting_rows)
    if not len(waiting_rows):
        return
    comparison = _Comparison(sessions, waiting_rows)
    indexes = list(range(len(waiting_rows))) if compares_reported_rows else waiting_rows.unreported_indexes
    try:
        await comparison.compare_rows(indexes)
        await comparison.record_and_report_results()
    finally:
        comparison.close()


async def _add_opt_outs(session: Session, waiting_rows: WaitingRows) -> None:
    """Add a row to `waiting_rows` for each opt-out of the base that the job has recorded. Leave out opt-outs whose rows
    are already in `waiting_rows`."""
    base, job = session.ledger_writer.base, session.source_job
    identities = await session.ledger_writer.execute(lambda ledger: ledger.find_opt_outs(base, job))
    waiting_identities = waiting_rows.find_identities(session.ledger_writer) if identities else set()
    unread_rows = [
        (LoadRow(_UNREAD_ROW, identity, "", bytes(FINGERPRINT_BYTES), {"is_active": False}), CompareReason.OPTED_OUT)
        for identity in identities
        if identity not in waiting_identities
    ]
    if unread_rows:
        waiting_rows.add(session.ledger_writer, unread_rows)


def report_uncompared_rows(waiting_rows: WaitingRows, tally: Tally, reason: str) -> None:
    """Report the rows that still wait for a comparison. `reason` explains why these rows were not compared."""
    for index in range(waiting_rows.reported_count, len(waiting_rows)):
        _report_uncompared_row(waiting_rows.read(index), tally, reason)
    waiting_rows.clear()


def _report_uncompared_row(waiting_row: WaitingRow, tally: Tally, reason: str) -> None:
    """Report a row that was not compared, although its subscriber exists. The row counts as existing if its compare
    reason is NEVER_COMPARED or RATE_LIMITED, and as changed if the reason is CHANGED or REPORTED.
    """
    if waiting_row.reason is CompareReason.OPTED_OUT:
        _report_opt_out(waiting_row, tally, reason=reason)
    elif waiting_row.reason in (CompareReason.NEVER_COMPARED, CompareReason.RATE_LIMITED):
        tally.count_row(Outcome.EXISTS, lambda: waiting_row.row.source)
        tally.add_row_message(
            f"some rows count as existing without a comparison of their values, because {reason}. The next run tries "
            "again"
        )
    else:
        is_reported_before = waiting_row.reason is CompareReason.REPORTED
        tally.report_change(
            ChangedRow(
                waiting_row.row.source,
                waiting_row.row.identity_text,
                reason="" if is_reported_before else reason,
                is_reported_before=is_reported_before,
            )
        )


def _report_opt_out(waiting_row: WaitingRow, tally: Tally, identity: str = "", *, reason: str = "") -> None:
    """Report an opt-out. If this run has not read the row, `identity` is the email or the id that the service shows for
    the subscriber."""
    row = None if waiting_row.row.source == _UNREAD_ROW else waiting_row.row.source
    outcome = (
        None if row is None else Outcome.EXISTS if waiting_row.reason is CompareReason.OPTED_OUT else Outcome.CHANGED
    )
    tally.report_opt_out(
        OptOut(row, waiting_row.row.identity, waiting_row.row.identity_text or identity, outcome, reason)
    )


class _Comparison:
    """A comparison of waiting rows. The results are stored by the index of the row."""

    def __init__(self, sessions: Sequence[Session], waiting_rows: WaitingRows) -> None:
        self._waiting_rows, self._session = waiting_rows, sessions[0]
        self._sessions = {id(session.ledger_writer): session for session in sessions}
        self._comparison_results = np.zeros(len(waiting_rows), dtype=np.int8)
        self._compared_mask = np.zeros(len(waiting_rows), dtype=bool)  # rows that this run compares
        # For each row its index in `_differences`, or -1.
        self._difference_indexes = np.full(len(waiting_rows), -1, dtype=np.int64)
        self._service_states = np.zeros(len(waiting_rows), dtype=np.int8)
        # The job that recorded the opt-out, for rows whose entries are opt-outs.
        self._opt_out_jobs: dict[int, str] = {}
        # The identity or the Id that the service shows, for rows with an opt-out.
        self._opt_out_texts: dict[int, str] = {}
        self._differences = SpooledValues()
        self._reason = "the list did not show the subscriber"
        self._is_compared_with_list = False  # whether the list was read (False: look-ups by Id)
        # Ids of the subscribers to compare, in ascending order.
        self._ids: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)
        # For each of `_ids`, the index of its waiting row.
        self._row_indexes: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._altered_fields: dict[int, frozenset[str]] = {}  # fields that the service altered in its answer

    def close(self) -> None:
        """Delete the temporary file with the differences."""
        self._differences.close()

    async def compare_rows(self, indexes: Sequence[int]) -> None:
        """Compare the waiting rows at these indexes. If the comparison needs a reading of the list, compare all waiting
        rows."""
        if not indexes:
            return
        try:
            await self._find_ids(indexes)
            self._compare_shown_subscribers()
            is_looked_up = len(self._ids) <= _MAX_LOOK_UPS_BY_ID and await self._compare_by_id()
            if not is_looked_up or await self._may_miss_opt_outs():
                await self._find_ids(range(len(self._waiting_rows)))
                await self._compare_by_listing()
        except ListFailed as failure:
            self._reason = f"the list could not be read: {failure}"

    async def _find_ids(self, indexes: Sequence[int]) -> None:
        """Read from the ledger the Ids of the subscribers of these rows."""
        ids, indexes_with_id = list[int](), list[int]()
        for batch in _split_into_batches(indexes):
            rows = [self._waiting_rows.read(index) for index in batch]
            for index, entry in zip(batch, await self._find_entries(rows), strict=True):
                self._compared_mask[index] = True
                if entry is not None and entry.opt_out_job is not None:
                    self._opt_out_jobs[index] = entry.opt_out_job
                    self._opt_out_texts.setdefault(index, f"Id {entry.subscriber_id}")
                if entry is not None and entry.subscriber_id is not None:
                    ids.append(entry.subscriber_id)
                    indexes_with_id.append(index)
                    if entry.altered_fields:
                        self._altered_fields[index] = frozenset(entry.altered_fields.split())
        unsorted_ids = np.array(ids, dtype=np.int64)
        sorting_indexes = np.argsort(unsorted_ids, kind="stable")
        self._ids = unsorted_ids[sorting_indexes]
        self._row_indexes = np.array(indexes_with_id, dtype=np.int64)[sorting_indexes]

    async def _find_entries(self, rows: Sequence[WaitingRow]) -> list[Entry | None]:
        ordered_entries: list[Entry | None] = [None] * len(rows)
        for session, indexes in self._split_by_session(rows):
            entries = await session.ledger_writer.find_entries([rows[index].row.identity for index in indexes])
            for index in indexes:
                ordered_entries[index] = entries.get(rows[index].row.identity)
        return ordered_entries

    def _split_by_session(self, rows: Sequence[WaitingRow]) -> Iterator[tuple[Session, list[int]]]:
        """Yield each session with the indexes of its rows in `rows`."""
        indexes_by_writer_id: dict[int, list[int]] = defaultdict(list)
        for index, row in enumerate(rows):
            indexes_by_writer_id[id(row.ledger_writer)].append(index)
        for writer_id, indexes in indexes_by_writer_id.items():
            yield self._sessions[writer_id], indexes

    def _compare_shown_subscribers(self) -> None:
        """Compare each row whose subscriber an earlier look-up of this run has shown. Only the other rows remain to be
        compared."""
        shown_subscribers = self._session.list_access.state.shown_subscribers
        for batch in _split_into_batches(self._ids.tolist()):
            wire_objects = [shown_subscribers.read(subscriber_id) for subscriber_id in batch]
            self.receive_rows([wire_object for wire_object in wire_objects if wire_object is not None])
        uncompared_mask = self._comparison_results[self._row_indexes] == _ComparisonResult.NOT_COMPARED
        self._ids, self._row_indexes = self._ids[uncompared_mask], self._row_indexes[uncompared_mask]

    async def _compare_by_id(self) -> bool:
        """Look up each subscriber by Id, the first subscriber alone. Return False if the service ignores the filter by
        Id."""
        session, ids = self._session, self._ids.tolist()
        if not ids:
            return True
        session.stop.activity = f"comparing {len(ids):,} rows with the service"
        first_rows = (
            await session.stop.wait_until_stopped(request_rows(session.list_access, ListQuery(id=ids[0])))
        ).rows
        if any(row["Id"] != ids[0] for row in first_rows):
            return False
        self.receive_rows(first_rows)
        look_ups = [
            partial(request_rows, session.list_access, ListQuery(id=subscriber_id)) for subscriber_id in ids[1:]
        ]
        for answer in await session.stop.wait_until_stopped(look_up_together(session.list_access, look_ups)):
            self.receive_rows(answer.rows)
        return True

    async def _may_miss_opt_outs(self) -> bool:
        """Return whether the list must be read for inactive rows whose subscribers the look-ups by Id did not show.
        This is the case if the ledger has an opt-out of such a row, or if the list hides a group of subscribers.
        """
        unseen_row_indexes = [
            index
            for index in self._row_indexes.tolist()
            if self._service_states[index] == _ServiceState.NOT_KNOWN
            and self._waiting_rows.read(index).row.values.get("is_active") is False
        ]
        if any(index in self._opt_out_jobs for index in unseen_row_indexes):
            return True
        return bool(unseen_row_indexes) and bool(await record_hidden_groups(self._session.list_access))

    async def _compare_by_listing(self) -> None:
        session = self._session
        session.stop.activity = f"comparing {len(self._ids):,} rows with the list"
        self._is_compared_with_list = True
        reading = read_list(
            session.list_access.client,
            session.list_access.retrier,
            ListQuery(),
            self,
            now=session.clock.now,
            max_concurrency=session.list_access.policy.max_concurrency,
            reads_ahead=False,
            base_ids=[
                session_of_base.ledger_writer.base.service_id
                for session_of_base in self._sessions.values()
                if session_of_base.ledger_writer.base.service_id
            ],
        )
        certificate = await session.stop.wait_until_stopped(reading)
        if not certificate.is_complete:
            self._reason = f"the list could not be read whole ({certificate.reason})"
            return
        if certificate.cut_off is CutOff.EXCLUDED or certificate.distinct < SMALLEST_WINDOW:
            unseen_mask = self._service_states[self._row_indexes] == _ServiceState.NOT_KNOWN
            self._service_states[self._row_indexes[unseen_mask]] = _ServiceState.GONE

    def start_sweep(self, sweep_number: int) -> None:
        """Do nothing, because a second sweep shows the same subscribers again."""

    def receive_rows(self, wire_objects: Sequence[dict[str, Any]]) -> None:
        """Compare the subscribers of a page with their waiting rows."""
        if not len(self._ids):
            return
        page_ids = np.array([wire_object["Id"] for wire_object in wire_objects], dtype=np.int64)
        id_indexes = np.minimum(np.searchsorted(self._ids, page_ids), len(self._ids) - 1)
        for index_in_page in np.flatnonzero(self._ids[id_indexes] == page_ids).tolist():
            self._compare_row(int(self._row_indexes[id_indexes[index_in_page]]), wire_objects[index_in_page])

    def _compare_row(self, index: int, wire_object: Mapping[str, Any]) -> None:
        waiting_row = self._waiting_rows.read(index)
        session = self._sessions[id(waiting_row.ledger_writer)]
        base, listed_base = session.ledger_writer.base, wire_object.get("Base")
        is_of_base = isinstance(listed_base, dict) and listed_base.get("Id") == base.service_id
        if not is_of_base or not has_identity(wire_object, {waiting_row.row.identity}):
            self._service_states[index] = _ServiceState.CHANGED_IDENTITY
            return
        self._service_states[index] = (
            _ServiceState.ACTIVE if read_field(wire_object, "is_active") else _ServiceState.INACTIVE
        )
        if waiting_row.reason is CompareReason.OPTED_OUT:
            self._opt_out_texts[index] = str(read_field(wire_object, session.policy.identity_field))
            return
        row, altered_fields = waiting_row.row, self._altered_fields.get(index, frozenset())
        excluded_fields = {*_NEVER_COMPARED_FIELDS, session.policy.identity_field, *altered_fields}
        field_names = [name for name in row.values if name not in excluded_fields]
        row_values = [row.values[name] for name in field_names]
        listed_values = [read_field(wire_object, name) for name in field_names]
        different_indexes = find_differing_fields(field_names, row_values, listed_values)
        self._comparison_results[index] = _ComparisonResult.DIFFERENT if different_indexes else _ComparisonResult.EQUAL
        if different_indexes:
            row_differences = [
                [field_names[field_index], listed_values[field_index], row_values[field_index]]
                for field_index in different_indexes
            ]
            self._difference_indexes[index] = self._differences.add([row_differences])

    async def record_and_report_results(self) -> None:
        """Record the results in the ledger, and then report the outcomes, a few thousand rows at a time."""
        waiting_rows = self._waiting_rows
        for batch in _split_into_batches(range(len(waiting_rows))):
            rows = [waiting_rows.read(index) for index in batch]
            for session, indexes in self._split_by_session(rows):
                await self._record_rows(session, [(batch[index], rows[index].row) for index in indexes])
            for index, waiting_row in zip(batch, rows, strict=True):
                self._report_row(index, waiting_row)
            waiting_rows.reported_count = batch[-1] + 1
        waiting_rows.clear()

    async def _record_rows(self, session: Session, rows: Sequence[tuple[int, LoadRow]]) -> None:
        """Record the results for these rows of one base, each with its index."""
        base, job, reported_at = session.ledger_writer.base, session.source_job, session.clock.now().timestamp()
        equal_digests, different_digests = (
            [(row.identity, row.fingerprint) for index, row in rows if self._comparison_results[index] == result]
            for result in (_ComparisonResult.EQUAL, _ComparisonResult.DIFFERENT)
        )
        opt_out_identities = [row.identity for index, row in rows if self._is_opt_out(index, row)]
        ended_opt_out_identities = [row.identity for index, row in rows if self._has_opt_out_ended(index, row, job)]

        def update_ledger(ledger: Ledger) -> None:
            ledger.clear_opt_outs(base, ended_opt_out_identities)
            ledger.record_rows_equal_to_service(base, equal_digests)
            ledger.record_reported_rows(base, different_digests, reported_at)
            ledger.record_opt_outs(base, job, opt_out_identities)

        await session.ledger_writer.execute(update_ledger)

    def _is_opt_out(self, index: int, row: LoadRow) -> bool:
        """Return whether the row is inactive and the service shows its subscriber as active."""
        return bool(self._service_states[index] == _ServiceState.ACTIVE) and row.values.get("is_active") is False

    def _has_opt_out_ended(self, index: int, row: LoadRow, job: str) -> bool:
        """Return whether the recorded opt-out of the row has ended. An opt-out ends if the service shows the subscriber
        as inactive, or if the list lacks the subscriber. It also ends if an active row comes from the job that recorded
        the opt-out."""
        if index not in self._opt_out_jobs:
            return False
        is_reactivated = row.values.get("is_active") is True and self._opt_out_jobs[index] == job
        return is_reactivated or bool(self._service_states[index] in (_ServiceState.INACTIVE, _ServiceState.GONE))

    def _report_row(self, index: int, waiting_row: WaitingRow) -> None:
        tally, comparison_result, row = self._session.tally, self._comparison_results[index], waiting_row.row
        if self._is_opt_out(index, row):
            _report_opt_out(waiting_row, tally, self._opt_out_texts.get(index, ""))
        elif index in self._opt_out_jobs and not self._has_opt_out_ended(index, row, self._opt_out_jobs[index]):
            _report_opt_out(waiting_row, tally, self._opt_out_texts[index], reason=self._reason)
        if waiting_row.reason is CompareReason.OPTED_OUT:
            return
        record_receipt = partial(waiting_row.ledger_writer.record_receipt, row.identity, row.identity_text)
        if comparison_result == _ComparisonResult.EQUAL and waiting_row.reason is CompareReason.RATE_LIMITED:
            record_receipt(ReceiptKind.PROVED_CREATED)
            tally.report_created_row(lambda: row.source, row.values, row.omitted_zip)
            waiting_row.ledger_writer.count_created_row()
        elif comparison_result == _ComparisonResult.EQUAL:
            tally.count_row(Outcome.EXISTS, lambda: waiting_row.row.source)
        elif comparison_result == _ComparisonResult.DIFFERENT:
            differences = self._differences.read(int(self._difference_indexes[index]))
            evidence_name = "sweep" if self._is_compared_with_list else "lookup"
            record_receipt(
                ReceiptKind.CHANGED, evidence_name, "differs in " + ", ".join(field for field, _, _ in differences)
            )
            field_differences = tuple((field, listed_value, value) for field, listed_value, value in differences)
            tally.report_change(ChangedRow(row.source, row.identity_text, field_differences))
        else:
            if not self._compared_mask[index]:  # an earlier run has reported the row
                record_receipt(ReceiptKind.CHANGED, "ledger", "an earlier run reported the difference")
            elif waiting_row.reason is CompareReason.RATE_LIMITED:
                record_receipt(ReceiptKind.EXISTED, "ledger", self._reason)
            elif waiting_row.reason is not CompareReason.NEVER_COMPARED:
                record_receipt(ReceiptKind.CHANGED, "ledger", self._reason)
            _report_uncompared_row(waiting_row, tally, self._reason)


def _split_into_batches(indexes: Sequence[int]) -> Iterator[Sequence[int]]:
    return (
        indexes[batch_start : batch_start + _ROWS_PER_COMMIT]
        for batch_start in range(0, len(indexes), _ROWS_PER_COMMIT)
    )
