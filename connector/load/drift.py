"""Compares waiting rows with the service (architecture 4.12): first with subscribers that look-ups of the run have
shown, then by look-ups by Id for up to 100 rows, or by one listing for more.

A row that is equal in every mapped field `exists`, and its entry gets the fingerprint of the row. Any other row is
`changed`, and its entry records the reported fingerprint, so that the next runs need not compare the row. A comparison
sends nothing. If a filter or a list shows too little, only the details of a row are missing.

Opt-outs (architecture 4.17) are compared in each run: rows that say inactive while the service shows the subscriber as
active. The ledger keeps them, because an incremental run does not read their rows again.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from connector.ledger.entries import Entry, Ledger
from connector.ledger.receipts import ReceiptKind
from connector.listing.base_reader import has_identity
from connector.listing.hidden import learn_hidden_classes
from connector.listing.pages import ListFailed
from connector.listing.reader import SMALLEST_WINDOW, read_list
from connector.listing.requests import ask, look_up_together
from connector.load.session import Change, OptOut, Session, Since, Tally, WaitingRow, WaitingRows
from connector.outcomes import Outcome
from connector.paging.certificate import CutOff
from connector.rows import LoadRow, Row
from connector.service.wire import ListQuery, differing_fields, read_field
from connector.spool import SpooledValues
from connector.subscribers.identity import FINGERPRINT_BYTES

_LOOKED_UP = 100  # rows of a run: a look-up each, where a page of the list is a thousand subscribers
_AT_ONCE = 2_000  # rows that share a commit

_EQUAL, _DIFFERENT = 1, 2  # verdicts; 0: not seen
_ACTIVE, _INACTIVE, _OTHER, _GONE = 1, 2, 3, 4  # the service shows the subscriber so, or with another identity; 0: not
_NOT_READ = Row(0, "", (), ())  # of an opt-out whose row this run has not read
_NEVER_COMPARED = frozenset({"id", "base_id", "base_name"})


async def compare_waiting(sessions: Sequence[Session], waiting: WaitingRows, *, is_full: bool = False) -> None:
    """Give each waiting row its outcome, `exists` or `changed`.

    `sessions` are those of the run's bases. With `is_full`, rows that earlier runs have reported are compared again.
    Report the opt-outs among these rows, and those of rows that this run has not read. Raises LedgerError, and
    RunAborted if the run must stop. Then `close_waiting` counts the remaining rows.
    """
    for session in sessions:
        await _add_opt_outs(session, waiting)
    if not len(waiting):
        return
    comparison = _Comparison(sessions, waiting)
    chosen = list(range(len(waiting))) if is_full else waiting.unknown
    try:
        await comparison.compare(chosen)
        await comparison.end()
    finally:
        comparison.close()


async def _add_opt_outs(session: Session, waiting: WaitingRows) -> None:
    """Let the opt-outs of the base wait whose rows this run has not read."""
    base, job = session.journal.base, session.source_job
    recorded = await session.journal.ask(lambda ledger: ledger.find_opt_outs(base, job))
    waiting_identities = waiting.find_identities(session.journal) if recorded else set()
    unread = [
        (LoadRow(_NOT_READ, identity, "", bytes(FINGERPRINT_BYTES), {"is_active": False}), Since.OPTED_OUT)
        for identity in recorded
        if identity not in waiting_identities
    ]
    if unread:
        waiting.add(session.journal, unread)


def close_waiting(waiting: WaitingRows, tally: Tally, reason: str) -> None:
    """Count the rows that still wait, which could not be compared for this `reason`."""
    for index in range(waiting.ended, len(waiting)):
        _report_uncompared(waiting.read(index), tally, reason)
    waiting.clear()


def _report_uncompared(waiting_row: WaitingRow, tally: Tally, reason: str) -> None:
    """Report a row that was not compared. Its subscriber exists. The row differs from the last create, unless it is the
    first row of the subscriber."""
    if waiting_row.since is Since.OPTED_OUT:
        _report_opt_out(waiting_row, tally, reason=reason)
    elif waiting_row.since in (Since.FIRST, Since.LIMITED):
        tally.count_row(Outcome.EXISTS, lambda: waiting_row.row.source)
        tally.add_row_message(
            "some rows count as existing, though their values were not compared with the "
            f"subscribers, which were in the service before the ledger knew them: {reason}. The next "
            "run tries again"
        )
    else:
        is_known = waiting_row.since is Since.REPORTED
        tally.report_change(
            Change(waiting_row.row.source, waiting_row.row.name, reason="" if is_known else reason, is_known=is_known)
        )


def _report_opt_out(waiting_row: WaitingRow, tally: Tally, identity: str = "", *, reason: str = "") -> None:
    """Report the opt-out of a waiting row, or of a row that this run has not read and whose subscriber the service
    shows with this `identity`."""
    row = None if waiting_row.row.source == _NOT_READ else waiting_row.row.source
    outcome = None if row is None else Outcome.EXISTS if waiting_row.since is Since.OPTED_OUT else Outcome.CHANGED
    tally.report_opt_out(OptOut(row, waiting_row.row.identity, waiting_row.row.name or identity, outcome, reason))


class _Comparison:
    """One comparison in progress, with the findings of each waiting row by its index. `_activities` has the activity
    that the service shows, and `_recorded` the jobs of rows whose entries are opt-outs."""

    def __init__(self, sessions: Sequence[Session], waiting: WaitingRows) -> None:
        self._waiting, self._session = waiting, sessions[0]
        self._sessions = {id(session.journal): session for session in sessions}
        self._verdicts = np.zeros(len(waiting), dtype=np.int8)
        self._is_asked = np.zeros(len(waiting), dtype=bool)
        self._difference_at = np.full(len(waiting), -1, dtype=np.int64)
        self._activities = np.zeros(len(waiting), dtype=np.int8)
        self._recorded: dict[int, str] = {}
        self._names: dict[int, str] = {}  # of subscribers whose rows this run has not read
        self._differences = SpooledValues()
        self._reason = "the list did not show it"
        self._is_listed = False  # whether rows are compared with the list, and not with look-ups
        self._ids: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)  # of the asked, ascending, and their indices
        self._indices: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._altered: dict[int, frozenset[str]] = {}

    def close(self) -> None:
        """Close the file."""
        self._differences.close()

    async def compare(self, chosen: Sequence[int]) -> None:
        """Compare the rows at these indices; where that takes the list, all that wait."""
        if not chosen:
            return
        try:
            await self._find_ids(chosen)
            self._compare_shown()
            by_look_up = len(self._ids) <= _LOOKED_UP and await self._look_up()
            if not by_look_up or await self._may_miss_opt_outs():
                await self._find_ids(range(len(self._waiting)))
                await self._list()
        except ListFailed as failure:
            self._reason = f"the list could not be read: {failure}"

    async def _find_ids(self, indices: Sequence[int]) -> None:
        """Read the service's ids of these rows from the ledger."""
        ids, asked_indices = list[int](), list[int]()
        for part in _split(indices):
            rows = [self._waiting.read(index) for index in part]
            for index, entry in zip(part, await self._find_entries(rows), strict=True):
                self._is_asked[index] = True
                if entry is not None and entry.opted_out is not None:
                    self._recorded[index] = entry.opted_out
                    self._names.setdefault(index, f"Id {entry.subscriber_id}")
                if entry is not None and entry.subscriber_id is not None:
                    ids.append(entry.subscriber_id)
                    asked_indices.append(index)
                    if entry.altered:
                        self._altered[index] = frozenset(entry.altered.split())
        order = np.argsort(np.array(ids, dtype=np.int64), kind="stable")
        self._ids, self._indices = np.array(ids, dtype=np.int64)[order], np.array(asked_indices, dtype=np.int64)[order]

    async def _find_entries(self, rows: Sequence[WaitingRow]) -> list[Entry | None]:
        found: list[Entry | None] = [None] * len(rows)
        for session, mine in self._split_by_session(rows):
            identities = [rows[index].row.identity for index in mine]
            entries = await session.journal.find_entries(identities)
            for index in mine:
                found[index] = entries.get(rows[index].row.identity)
        return found

    def _split_by_session(self, rows: Sequence[WaitingRow]) -> Iterator[tuple[Session, list[int]]]:
        by_owner: dict[int, list[int]] = defaultdict(list)
        for index, row in enumerate(rows):
            by_owner[id(row.owner)].append(index)
        for owner, mine in by_owner.items():
            yield self._sessions[owner], mine

    def _compare_shown(self) -> None:
        """Compare rows that this run's look-ups have shown already; the others wait."""
        kept = self._session.access.state.shown_subscribers
        for part in _split(self._ids.tolist()):
            shown = [kept.read(subscriber_id) for subscriber_id in part]
            self.take([wire for wire in shown if wire is not None])
        is_open = self._verdicts[self._indices] == 0
        self._ids, self._indices = self._ids[is_open], self._indices[is_open]

    async def _look_up(self) -> bool:
        """Look each subscriber up by Id, the first one alone. Return False if the service ignores this filter."""
        session, ids = self._session, self._ids.tolist()
        if not ids:
            return True
        session.control.activity = f"comparing {len(ids):,} rows with the service"
        first = (await session.control.until_stopped(ask(session.access, ListQuery(id=ids[0])))).rows
        if any(row["Id"] != ids[0] for row in first):
            return False
        self.take(first)
        look_ups = [partial(ask, session.access, ListQuery(id=subscriber_id)) for subscriber_id in ids[1:]]
        for shown in await session.control.until_stopped(look_up_together(session.access, look_ups)):
            self.take(shown.rows)
        return True

    async def _may_miss_opt_outs(self) -> bool:
        """Return whether the list may show a row's subscriber as active, or prove that an opt-out is gone, though the
        look-ups by Id did not show the subscriber: a list may hide a class of subscribers from them."""
        unseen = [index for index in self._indices.tolist() if not self._activities[index]]
        unseen = [index for index in unseen if self._waiting.read(index).row.values.get("is_active") is False]
        if any(index in self._recorded for index in unseen):
            return True
        return bool(unseen) and bool(await learn_hidden_classes(self._session.access))

    async def _list(self) -> None:
        session = self._session
        session.control.activity = f"comparing {len(self._ids):,} rows with the list"
        self._is_listed = True
        reading = read_list(
            session.access.client,
            session.access.retrier,
            ListQuery(),
            self,
            now=session.clock.now,
            max_concurrency=session.access.policy.max_concurrency,
            reads_ahead=False,
            base_ids=[
                session_of_base.journal.base.service_id
                for session_of_base in self._sessions.values()
                if session_of_base.journal.base.service_id
            ],
        )
        certificate = await session.control.until_stopped(reading)
        if not certificate.is_complete:
            self._reason = f"the list could not be read whole ({certificate.reason})"
            return
        if certificate.cut_off is CutOff.EXCLUDED or certificate.distinct < SMALLEST_WINDOW:
            self._activities[self._indices[self._activities[self._indices] == 0]] = _GONE

    def start_sweep(self, number: int) -> None:
        """Do nothing: every sweep shows the same subscribers."""

    def take(self, wire_objects: Sequence[dict[str, Any]]) -> None:
        """Compare the subscribers of a page whose rows wait."""
        if not len(self._ids):
            return
        shown = np.array([wire["Id"] for wire in wire_objects], dtype=np.int64)
        at = np.minimum(np.searchsorted(self._ids, shown), len(self._ids) - 1)
        for number in np.flatnonzero(self._ids[at] == shown).tolist():
            self._compare_row(int(self._indices[at[number]]), wire_objects[number])

    def _compare_row(self, index: int, wire: Mapping[str, Any]) -> None:
        waiting = self._waiting.read(index)
        session = self._sessions[id(waiting.owner)]
        base, listed_base = session.journal.base, wire.get("Base")
        is_of_base = isinstance(listed_base, dict) and listed_base.get("Id") == base.service_id
        if not is_of_base or not has_identity(wire, {waiting.row.identity}):
            self._activities[index] = _OTHER
            return
        self._activities[index] = _ACTIVE if read_field(wire, "is_active") else _INACTIVE
        if waiting.since is Since.OPTED_OUT:
            self._names[index] = str(read_field(wire, session.policy.identity))
            return
        altered = self._altered.get(index, frozenset())
        names = [name for name in list_compared(waiting.row.values, session.policy.identity) if name not in altered]
        values = [waiting.row.values[name] for name in names]
        listed = [read_field(wire, name) for name in names]
        differing = differing_fields(names, values, listed)
        self._verdicts[index] = _DIFFERENT if differing else _EQUAL
        if differing:
            difference = [[names[number], listed[number], values[number]] for number in differing]
            self._difference_at[index] = self._differences.add([difference])

    async def end(self) -> None:
        """Record the findings in the ledger and then report the outcomes, a few thousand rows at a time."""
        waiting = self._waiting
        for part in _split(range(len(waiting))):
            rows = [waiting.read(index) for index in part]
            for session, mine in self._split_by_session(rows):
                await self._record(session, [(part[index], rows[index].row) for index in mine])
            for index, waiting_row in zip(part, rows, strict=True):
                self._report(index, waiting_row)
            waiting.ended = part[-1] + 1
        waiting.clear()

    async def _record(self, session: Session, rows: Sequence[tuple[int, LoadRow]]) -> None:
        """Record the findings about these rows of one base, each with its index."""
        base, job, reported_at = session.journal.base, session.source_job, session.clock.now().timestamp()
        digests = [(row.identity, row.fingerprint) for _, row in rows]
        verdicts = [self._verdicts[index] for index, _ in rows]
        equal = [digest for digest, verdict in zip(digests, verdicts, strict=True) if verdict == _EQUAL]
        different = [digest for digest, verdict in zip(digests, verdicts, strict=True) if verdict == _DIFFERENT]
        opted_out = [row.identity for index, row in rows if self._is_opt_out(index, row)]
        over = [row.identity for index, row in rows if self._is_over(index, row, job)]

        def write(ledger: Ledger) -> None:
            ledger.clear_opt_outs(base, over)
            ledger.record_equal(base, equal)
            ledger.record_reported(base, different, reported_at)
            ledger.record_opt_outs(base, job, opted_out)

        await session.journal.ask(write)

    def _is_opt_out(self, index: int, row: LoadRow) -> bool:
        """Return whether the row says inactive and the service shows its subscriber as active."""
        return bool(self._activities[index] == _ACTIVE) and row.values.get("is_active") is False

    def _is_over(self, index: int, row: LoadRow, job: str) -> bool:
        """Return whether the recorded opt-out of the row is over: the service shows the subscriber as inactive or not
        at all, or a row of the recording job says active."""
        if index not in self._recorded:
            return False
        says_active = row.values.get("is_active") is True and self._recorded[index] == job
        return says_active or bool(self._activities[index] in (_INACTIVE, _GONE))

    def _report(self, index: int, waiting_row: WaitingRow) -> None:
        tally, verdict, row = self._session.tally, self._verdicts[index], waiting_row.row
        if self._is_opt_out(index, row):
            _report_opt_out(waiting_row, tally, self._names.get(index, ""))
        elif index in self._recorded and not self._is_over(index, row, self._recorded[index]):
            _report_opt_out(waiting_row, tally, self._names[index], reason=self._reason)
        if waiting_row.since is Since.OPTED_OUT:
            return
        journal = self._sessions[id(waiting_row.owner)].journal
        record = partial(journal.record_receipt, row.identity, row.name)
        if verdict == _EQUAL and waiting_row.since is Since.LIMITED:
            record(ReceiptKind.CREATED)
            tally.report_created(lambda: row.source, row.values, row.omission)
        elif verdict == _EQUAL:
            tally.count_row(Outcome.EXISTS, lambda: waiting_row.row.source)
        elif verdict == _DIFFERENT:
            kept = self._differences.read(int(self._difference_at[index]))
            evidence = "sweep" if self._is_listed else "lookup"
            record(ReceiptKind.CHANGED, evidence, "differs in " + ", ".join(field for field, _, _ in kept))
            tally.report_change(Change(row.source, row.name, tuple((field, was, now) for field, was, now in kept)))
        elif self._is_asked[index]:
            if waiting_row.since is not Since.FIRST:
                kind = ReceiptKind.EXISTED if waiting_row.since is Since.LIMITED else ReceiptKind.CHANGED
                record(kind, "ledger", self._reason)
            _report_uncompared(waiting_row, tally, self._reason)
        else:
            record(ReceiptKind.CHANGED, "ledger", "as an earlier run reported")
            tally.report_change(Change(row.source, row.name, is_known=True))


def _split(indices: Sequence[int]) -> Iterator[Sequence[int]]:
    return (indices[begin : begin + _AT_ONCE] for begin in range(0, len(indices), _AT_ONCE))


def list_compared(values: Mapping[str, object], identity: str) -> Iterator[str]:
    """Yield the fields of a row that are compared: all that the mapping fills, but for the base and the identity."""
    return (name for name in values if name not in _NEVER_COMPARED and name != identity)
