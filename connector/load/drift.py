"""Compares waiting rows with the service itself (architecture 4.12): first with the subscribers that the run's look-ups
have shown; then by look-ups by Id for up to 100 other rows, or by one listing for more.

Equal in every mapped field: the row exists, and its entry takes the row's fingerprint. Different: changed, and the
entry remembers which fingerprint was reported, so that the next runs need not ask again. Nothing is sent by what is
found: a filter or a list that tells too little costs a row its details, and no more.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from connector.kept_values import KeptValues
from connector.ledger.entries import Entry, Ledger
from connector.ledger.store import Base
from connector.listing.base_reader import has_identity
from connector.listing.pages import ListFailed
from connector.listing.reader import read_list
from connector.listing.requests import ask, look_up_together
from connector.load.session import Change, Session, Since, Tally, WaitingRow, WaitingRows
from connector.outcomes import Outcome
from connector.service.wire import ListQuery, differing_fields, read_field

_LOOKED_UP = 100  # rows of a run: a look-up each, where a page of the list is a thousand subscribers
_AT_ONCE = 2_000  # rows that share a commit

_EQUAL, _DIFFERENT = 1, 2  # verdicts; 0: not seen
_NEVER_COMPARED = frozenset({"id", "base_id", "base_name"})


async def compare_waiting(sessions: Sequence[Session], waiting: WaitingRows, *, is_full: bool = False) -> None:
    """Give each waiting row its outcome, `exists` or `changed`.

    `sessions` are those of the run's bases; `is_full`: what earlier runs have reported is compared again. Raises
    LedgerError, and RunAborted when the run is to stop; rows that have no outcome then are left to `close_waiting`.
    """
    if not len(waiting):
        return
    comparison = _Comparison(sessions, waiting)
    chosen = list(range(len(waiting))) if is_full else waiting.unknown
    try:
        await comparison.compare(chosen)
        await comparison.end()
    finally:
        comparison.close()


def close_waiting(waiting: WaitingRows, tally: Tally, reason: str) -> None:
    """Count the rows that still wait, which could not be compared for this `reason`."""
    for index in range(waiting.ended, len(waiting)):
        _report_uncompared(waiting.read(index), tally, reason)
    waiting.clear()


def _report_uncompared(each: WaitingRow, tally: Tally, reason: str) -> None:
    """Report a row that was not compared. Its subscriber exists; except for its first row, it differs from what was
    sent."""
    if each.since in (Since.FIRST, Since.LIMITED):
        tally.count_row(Outcome.EXISTS, lambda: each.row.source)
        tally.say_of_rows(
            "some rows count as existing, though their values were not compared with the "
            f"subscribers, which were in the service before the ledger knew them: {reason}. The next "
            "run tries again"
        )
    else:
        is_known = each.since is Since.REPORTED
        tally.report_change(
            Change(each.row.source, each.row.name, reason="" if is_known else reason, is_known=is_known)
        )


class _Comparison:
    """One comparison in progress: what was found of each waiting row, by its index."""

    def __init__(self, sessions: Sequence[Session], waiting: WaitingRows) -> None:
        self._waiting, self._session = waiting, sessions[0]
        self._sessions = {id(session.journal): session for session in sessions}
        self._verdicts = np.zeros(len(waiting), dtype=np.int8)
        self._is_asked = np.zeros(len(waiting), dtype=bool)
        self._kept_at = np.full(len(waiting), -1, dtype=np.int64)
        self._differences = KeptValues()
        self._reason = "the list did not show it"
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
            self._take_shown()
            by_look_up = len(self._ids) <= _LOOKED_UP and await self._look_up()
            if not by_look_up:
                await self._find_ids(range(len(self._waiting)))
                await self._list()
        except ListFailed as failure:
            self._reason = f"the list could not be read: {failure}"

    async def _find_ids(self, indices: Sequence[int]) -> None:
        """The service's id of each of these rows, from the ledger."""
        ids, at = list[int](), list[int]()
        for part in _split(indices):
            rows = [self._waiting.read(index) for index in part]
            for index, entry in zip(part, await self._find_entries(rows), strict=True):
                self._is_asked[index] = True
                if entry is not None and entry.subscriber_id is not None:
                    ids.append(entry.subscriber_id)
                    at.append(index)
                    if entry.altered:
                        self._altered[index] = frozenset(entry.altered.split())
        order = np.argsort(np.array(ids, dtype=np.int64), kind="stable")
        self._ids, self._indices = np.array(ids, dtype=np.int64)[order], np.array(at, dtype=np.int64)[order]

    async def _find_entries(self, rows: Sequence[WaitingRow]) -> list[Entry | None]:
        found: list[Entry | None] = [None] * len(rows)
        for session, mine in self._split_by_session(rows):
            identities = [rows[each].row.identity for each in mine]
            base, journal = session.journal.base, session.journal
            entries = await journal.ask(partial(_find, base, identities))
            for each in mine:
                found[each] = entries.get(rows[each].row.identity)
        return found

    def _split_by_session(self, rows: Sequence[WaitingRow]) -> Iterator[tuple[Session, list[int]]]:
        by_owner: dict[int, list[int]] = defaultdict(list)
        for each, row in enumerate(rows):
            by_owner[id(row.owner)].append(each)
        for owner, mine in by_owner.items():
            yield self._sessions[owner], mine

    def _take_shown(self) -> None:
        """Compare rows that this run's look-ups have shown already; the others wait."""
        kept = self._session.access.state.shown
        for part in _split(self._ids.tolist()):
            shown = [kept.read(each) for each in part]
            self.take([each for each in shown if each is not None])
        is_open = self._verdicts[self._indices] == 0
        self._ids, self._indices = self._ids[is_open], self._indices[is_open]

    async def _look_up(self) -> bool:
        """Ask for each by its id, the first one alone; return False if the service ignores that filter."""
        session, ids = self._session, self._ids.tolist()
        if not ids:
            return True
        session.control.activity = f"comparing {len(ids):,} rows with the service"
        first = (await session.control.until_stopped(ask(session.access, ListQuery(id=ids[0])))).rows
        if any(row["Id"] != ids[0] for row in first):
            return False
        self.take(first)
        look_ups = [partial(ask, session.access, ListQuery(id=each)) for each in ids[1:]]
        for shown in await session.control.until_stopped(look_up_together(session.access, look_ups)):
            self.take(shown.rows)
        return True

    async def _list(self) -> None:
        session = self._session
        session.control.activity = f"comparing {len(self._ids):,} rows with the list"
        reading = read_list(
            session.access.client,
            session.access.retrier,
            ListQuery(),
            self,
            now=session.clock.now,
            max_concurrency=session.access.policy.max_concurrency,
            reads_ahead=False,
        )
        certificate = await session.control.until_stopped(reading)
        if not certificate.is_complete:
            self._reason = f"the list could not be read whole ({certificate.reason})"

    def start_sweep(self, number: int) -> None:
        """Do nothing: every sweep shows the same subscribers."""

    def take(self, wire_objects: Sequence[dict[str, Any]]) -> None:
        """Compare the subscribers of a page whose rows wait."""
        if not len(self._ids):
            return
        shown = np.array([wire["Id"] for wire in wire_objects], dtype=np.int64)
        at = np.minimum(np.searchsorted(self._ids, shown), len(self._ids) - 1)
        for number in np.flatnonzero(self._ids[at] == shown).tolist():
            self._judge(int(self._indices[at[number]]), wire_objects[number])

    def _judge(self, index: int, wire: Mapping[str, Any]) -> None:
        waiting = self._waiting.read(index)
        session = self._sessions[id(waiting.owner)]
        base, listed_base = session.journal.base, wire.get("Base")
        is_of_base = isinstance(listed_base, dict) and listed_base.get("Id") == base.service_id
        if not is_of_base or not has_identity(wire, {waiting.row.identity}):
            return
        altered = self._altered.get(index, frozenset())
        names = [name for name in list_compared(waiting.row.values, session.policy.identity) if name not in altered]
        values = [waiting.row.values[name] for name in names]
        listed = [read_field(wire, name) for name in names]
        differing = differing_fields(names, values, listed)
        self._verdicts[index] = _DIFFERENT if differing else _EQUAL
        if differing:
            difference = [[names[each], listed[each], values[each]] for each in differing]
            self._kept_at[index] = self._differences.add([difference])

    async def end(self) -> None:
        """Report each row's outcome, a few thousand at a time, once the ledger has it."""
        waiting, at = self._waiting, self._session.clock.now().timestamp()
        for part in _split(range(len(waiting))):
            rows = [waiting.read(index) for index in part]
            await self._record(part, rows, at)
            for index, each in zip(part, rows, strict=True):
                self._report(index, each)
            waiting.ended = part[-1] + 1
        waiting.clear()

    async def _record(self, indices: Sequence[int], rows: Sequence[WaitingRow], at: float) -> None:
        for session, mine in self._split_by_session(rows):
            verdicts = [(rows[each].row, int(self._verdicts[indices[each]])) for each in mine]
            equal = [(row.identity, row.fingerprint) for row, verdict in verdicts if verdict == _EQUAL]
            different = [(row.identity, row.fingerprint) for row, verdict in verdicts if verdict == _DIFFERENT]
            await session.journal.ask(partial(_write, session.journal.base, equal, different, at))

    def _report(self, index: int, each: WaitingRow) -> None:
        tally, verdict, row = self._session.tally, self._verdicts[index], each.row
        if verdict == _EQUAL and each.since is Since.LIMITED:
            tally.report_created(lambda: row.source, row.values, row.omission)
        elif verdict == _EQUAL:
            tally.count_row(Outcome.EXISTS, lambda: each.row.source)
        elif verdict == _DIFFERENT:
            kept = self._differences.read(int(self._kept_at[index]))
            tally.report_change(Change(row.source, row.name, tuple((field, was, now) for field, was, now in kept)))
        elif self._is_asked[index]:
            _report_uncompared(each, tally, self._reason)
        else:
            tally.report_change(Change(row.source, row.name, is_known=True))


def _split(indices: Sequence[int]) -> Iterator[Sequence[int]]:
    return (indices[begin : begin + _AT_ONCE] for begin in range(0, len(indices), _AT_ONCE))


def _find(base: Base, identities: Sequence[bytes], ledger: Ledger) -> dict[bytes, Entry]:
    return ledger.find_entries(base, identities)


def _write(
    base: Base,
    equal: Sequence[tuple[bytes, bytes]],
    different: Sequence[tuple[bytes, bytes]],
    at: float,
    ledger: Ledger,
) -> None:
    ledger.record_equal(base, equal)
    ledger.record_reported(base, different, at)


def list_compared(values: Mapping[str, object], identity: str) -> Iterator[str]:
    """Yield the fields of a row that are compared: all that the mapping fills, but for the base and the identity."""
    return (name for name in values if name not in _NEVER_COMPARED and name != identity)
