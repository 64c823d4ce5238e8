"""The outcomes of the rows of one base (architecture 4), and the rows that wait for an outcome.

Two kinds of rows wait. An *unresolved* row was sent, and nobody knows whether the create took effect. A *held row* was
refused or is held, and a later look-up of the run may still show its subscriber. Rows of a source and entries of
earlier runs end here in the same way.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from math import inf

from connector.errors import LedgerError
from connector.ledger.entries import Entry, Move, Refusal
from connector.ledger.receipts import ReceiptKind
from connector.load.candidates import Candidate, build_row, describe_held
from connector.load.session import Problem, RunMode, Session, Since
from connector.outcomes import Outcome
from connector.pace.refusals import LEAST_ALIKE
from connector.rows import LoadRow, Row
from connector.service.answers import is_about_row, refusal_kind
from connector.states import Event, State

_MOST_HELD_ROWS = 10_000  # about 10 MB; the rows beyond are reported at once


@dataclass(slots=True)
class Unresolved:
    """One unresolved entry in this run, and its row (None: this run has not read the row).

    All times are monotonic. `since` is when the last attempt ended, or when this run found the entry. `status` and
    `message` are those of the last answer. `is_of_this_run`: this run sent the create, after a look-up had shown that
    the subscriber was absent; `known_until` is until when a create may rely on that look-up. `is_refused`: the last
    attempt got a 429 or a refusal that is not final. `is_recorded`: the ledger has the refusal as REJECTED until the
    next look-up begins. `missed_at` is when the first look-up that missed the subscriber began. `uncounted` are
    attempts recorded in the ledger that this run did not send. `newer` is the create of the row if the row says
    something else than what was sent. `attempts` is the number that the ledger had at the last look-up; a larger number
    means that another load of the run has sent the create again. `has_existed`: the subscriber that a look-up found
    existed before the create. `unprovable` is why no look-up can prove the subscriber absent. `owner_job` is the only
    job that may send the create again: this run lacks the suppression list of that job.
    """

    since: float
    row: LoadRow | None = None
    status: int | None = None
    message: str = ""
    is_of_this_run: bool = False
    known_until: float = -inf
    is_refused: bool = False
    is_recorded: bool = False
    missed_at: float | None = None
    uncounted: int = 0
    newer: Candidate | None = None
    attempts: int | None = None
    has_existed: bool = False
    unprovable: str = ""
    owner_job: str | None = None

    @property
    def is_limited(self) -> bool:
        """Whether the last attempt of this run got a 429, or a refusal that may pass."""
        return self.is_of_this_run and self.is_refused

    @property
    def may_be_another(self) -> bool:
        """Whether the subscriber that a look-up found may not be from the create of this entry."""
        return self.has_existed or self.is_limited

    @property
    def kind(self) -> str:
        """The kind of the refusal, or "" if the last attempt was not refused."""
        return refusal_kind(self.status or 0, self.message) if self.is_refused else ""

    def restart(self, candidate: Candidate, move: Move, now: float) -> None:
        """Restart all times, because another attempt was lost or limited. An attempt that was not sent does not count,
        and another look-up is due."""
        self.newer = None  # the ledger has the newer create by now
        self.attempts = None if self.attempts is None else self.attempts + 1
        if move.event is Event.NOT_SENT:
            self.uncounted += 1
            return
        self.is_of_this_run = True
        self.is_refused = self.is_recorded = move.is_limited  # after a lost attempt the policy decides again
        self.uncounted += move.is_limited and not move.may_pass
        self.known_until = candidate.known_until
        self.since, self.missed_at = now, None
        self.status, self.message = move.status, move.message


@dataclass(frozen=True, slots=True)
class _HeldRow:
    """A row that is reported as `problem` at the end of the run, unless a later look-up shows its identity.

    `is_of_this_run` and `known_until` are those of `Unresolved`. `is_unchecked`: the create was refused, and the
    subscriber was not looked up since. `refused_at` (monotonic) is when the create of this run was refused (None: the
    create was not refused in this run).
    """

    problem: Problem
    row: LoadRow
    is_of_this_run: bool = False
    is_unchecked: bool = False
    refused_at: float | None = None
    known_until: float = -inf

    @property
    def kind(self) -> str:
        """The kind of the refusal if the row may not be at fault for the refusal of this run's create, else ""."""
        status, message = self.problem.http_status or 0, self.problem.message
        if not self.is_of_this_run or self.refused_at is None or is_about_row(status, message, self.row.name):
            return ""
        return refusal_kind(status, message)


class Outcomes:
    """The outcomes of the rows of one base, in the tally of the run. Call `close` in any case, so that the outcomes sum
    up to the rows read. Only this class adds and removes `unresolved` entries, by identity."""

    def __init__(self, session: Session, mode: RunMode) -> None:
        self._session, self._mode = session, mode
        self.unresolved: dict[bytes, Unresolved] = {}
        self._held_rows: list[_HeldRow] = []
        self._stale: set[bytes] = set()

    # Unresolved entries

    def add_unresolved(self, identity: bytes, unresolved: Unresolved) -> Unresolved:
        """Add an unresolved entry, and return it. If the entry is there already, only its row is replaced."""
        known = self.unresolved.setdefault(identity, unresolved)
        if unresolved.row is not None:
            known.row = unresolved.row
        return known

    def add_refused_earlier(self, refusals: Mapping[bytes, Refusal], recent: Collection[bytes]) -> None:
        """Add entries that an earlier run left refused, and that are UNKNOWN now. `recent` are those whose subscribers
        the list may not show yet. Attach the held rows of these entries."""
        now = self._session.clock.monotonic()
        for identity, refusal in refusals.items():
            self.unresolved[identity] = Unresolved(
                now,
                status=refusal.status,
                message=refusal.message,
                is_refused=True,
                missed_at=None if identity in recent else -inf,  # two quiet periods have passed: one look-up is enough
            )
        held_rows, self._held_rows = self._held_rows, []
        for held in held_rows:
            if held.row.identity in refusals:
                self.unresolved[held.row.identity].row = held.row
            else:
                self._held_rows.append(held)

    def reopen_passing(self) -> None:
        """Make rows unresolved whose refusal by this run may pass: they are settled like rows that got a 429."""
        passing, held_rows, self._held_rows = self._session.passing, self._held_rows, []
        for kind, number in Counter(held.kind for held in held_rows).items():
            if kind and number >= LEAST_ALIKE:
                passing.suspect(kind)
        for held in held_rows:
            if held.refused_at is None or not passing.may_pass(held.kind):
                self._held_rows.append(held)
                continue
            self._session.limits.take_back()
            self.unresolved[held.row.identity] = Unresolved(
                held.refused_at,
                held.row,
                held.problem.http_status,
                held.problem.message,
                is_of_this_run=True,
                known_until=held.known_until,
                is_refused=True,
                is_recorded=True,
            )

    def hold_believed(self) -> None:
        """Hold the rows whose refusals the ledger has as REJECTED, and which were tried for long enough."""
        for identity, unresolved in list(self.unresolved.items()):
            row = unresolved.row
            if unresolved.is_recorded and row is not None and self._session.passing.is_believed(unresolved.kind):
                del self.unresolved[identity]
                problem = _build_rejected(row.source, unresolved.status, unresolved.message)
                self._held_rows.append(_HeldRow(problem, row, unresolved.is_of_this_run, is_unchecked=True))

    # Creates that have ended

    def record(self, candidate: Candidate, move: Move) -> None:
        """Record how a create has ended: give its row an outcome, or let the row wait."""
        session, identity, tally = self._session, candidate.intent.identity, self._session.tally
        tally.altered.update(move.altered)
        if move.event in (Event.ANSWERED, Event.REFUSED) and not move.is_limited:
            is_rejected = move.event is Event.REFUSED
            reason = session.limits.record(is_rejected=is_rejected, undecided=session.passing.count)
            if reason is not None:
                session.control.end(reason)
        if candidate.entry_state is State.UNKNOWN:
            self._record_second(candidate, move)
        elif move.event is Event.ANSWERED:
            omission = candidate.omission if self._mode is RunMode.LOAD else None  # a plan has left no zip out
            tally.reactivated += identity in session.access.inactive_identities.reactivated
            tally.report_created(candidate.read_source, candidate.sent, omission)
        elif move.event is Event.LOST or move.is_limited:
            self.unresolved[identity] = Unresolved(
                session.clock.monotonic(),
                build_row(candidate, candidate.read_source()),
                move.status,
                move.message,
                is_of_this_run=session.policy.is_looking,
                known_until=candidate.known_until,
                is_refused=move.is_limited,
                is_recorded=move.is_limited,
                uncounted=int(move.is_limited and not move.may_pass),
            )
        elif move.event is Event.REFUSED:
            self._hold_refused(candidate, candidate.read_source(), move)
        elif move.event is Event.MISANSWERED:
            self._hold_misanswered(candidate, candidate.read_source(), move, attempts=1)
        elif move.event is Event.NOT_SENT:
            tally.remove_taken()
            if move.is_stale:
                self._stale.add(identity)
                session.limits.begun -= 1

    def _record_second(self, candidate: Candidate, move: Move) -> None:
        """Record the end of a create that was sent again, after its first attempt was proved to have had no effect."""
        tally, identity = self._session.tally, candidate.intent.identity
        tally.settled_absent += move.event is not Event.NOT_SENT
        if move.event in (Event.LOST, Event.NOT_SENT) or move.is_limited:
            self.unresolved[identity].restart(candidate, move, self._session.clock.monotonic())
            return
        unresolved = self.unresolved.pop(identity)
        if move.event is Event.ANSWERED and unresolved.row is not None:
            self._report_created(unresolved.row)
        elif move.event is Event.REFUSED and unresolved.row is not None:
            self._hold_refused(candidate, unresolved.row.source, move)
        elif move.event is Event.MISANSWERED and unresolved.row is not None:
            attempts = (unresolved.attempts or 0) + 1
            self._hold_misanswered(candidate, unresolved.row.source, move, attempts=attempts)
        elif move.event is Event.MISANSWERED:
            tally.leftovers["held"] += 1
        elif move.event is Event.REFUSED:
            tally.leftovers["rejected"] += 1

    def pop_stale(self) -> set[bytes]:
        """Return the identities that were not sent since the last call, because their existence check expired."""
        stale, self._stale = self._stale, set()
        return stale

    # Held rows

    def hold(self, problem: Problem, row: LoadRow, *, is_unchecked: bool = False) -> None:
        """Hold a row whose ledger entry is held or rejected. The argument `is_unchecked` is that of `_HeldRow`."""
        self._hold(_HeldRow(problem, row, is_unchecked=is_unchecked))

    def _hold(self, held: _HeldRow) -> None:
        if len(self._held_rows) < _MOST_HELD_ROWS or held.row.identity in self._session.withheld:
            self._held_rows.append(held)
        else:
            self._session.tally.report(held.problem)
            self._session.tally.add_message(
                f"More than {_MOST_HELD_ROWS:,} rows were refused or held. The rows beyond are reported as the service "
                "answered, without a look-up of their subscribers."
            )

    def _hold_refused(self, candidate: Candidate, source: Row, move: Move) -> None:
        self._hold(
            _HeldRow(
                _build_rejected(source, move.status, move.message),
                build_row(candidate, source),
                is_of_this_run=self._session.policy.is_looking,
                is_unchecked=True,
                refused_at=self._session.clock.monotonic(),
                known_until=candidate.known_until,
            )
        )

    def _hold_misanswered(self, candidate: Candidate, source: Row, move: Move, *, attempts: int) -> None:
        problem = Problem(source, Outcome.UNKNOWN, "", "held", describe_held(move.message), move.status, attempts)
        is_created = self._session.policy.is_looking and not move.is_known
        self._hold(_HeldRow(problem, build_row(candidate, source), is_of_this_run=is_created))

    def list_unchecked(self) -> list[LoadRow]:
        """Return the refused rows whose subscribers were not looked up since the refusal."""
        return [held.row for held in self._held_rows if held.is_unchecked]

    # Outcomes by what the ledger has recorded since

    async def update(self) -> None:
        """Give the held rows, and the rows that are no longer unresolved, the outcome that the ledger has recorded."""
        await self._end_held_rows()
        await self._end_resolved()

    async def _end_held_rows(self) -> None:
        session = self._session
        entries = await self._session.journal.find_entries([held.row.identity for held in self._held_rows])
        confirmed = {
            identity: entry.subscriber_id for identity, entry in entries.items() if entry.state is State.CONFIRMED
        }
        held_rows = [
            replace(held, is_of_this_run=False)
            if session.access.known_ids.was_shown_before_creates(confirmed.get(held.row.identity) or 0)
            else held
            for held in self._held_rows
        ]
        ours = [
            (held.row.identity, held.row.fingerprint)
            for held in held_rows
            if held.is_of_this_run and held.row.identity in confirmed
        ]
        if ours:  # refused, and created all the same: the service has what was sent
            base = session.journal.base
            await session.journal.ask(lambda ledger: ledger.record_equal(base, ours))
        self._held_rows = self._held_rows[len(held_rows) :]  # only now: if the ledger fails, no row loses its outcome
        for held in sorted(held_rows, key=lambda held: (held.row.source.file, held.row.source.number)):
            entry, problem = entries.get(held.row.identity), held.problem
            if entry is not None and entry.state is State.CONFIRMED:  # a listing has shown the subscriber
                if held.is_of_this_run and problem.outcome is Outcome.REJECTED:
                    session.limits.take_back()
                self._report_found(held.row, _find_reason(entry, held.row), is_of_this_run=held.is_of_this_run)
            else:
                attempts = entry.attempts if entry is not None else problem.attempts
                session.tally.report(replace(problem, attempts=attempts))

    async def _end_resolved(self) -> None:
        """End entries that are UNKNOWN no more: two lines of one base became one, and a listing has shown the
        subscribers, or the load of the other line got them refused."""
        for identity, entry in (await self._session.journal.find_entries(list(self.unresolved))).items():
            if entry.state is State.CONFIRMED:
                unresolved = self.unresolved.pop(identity)
                if unresolved.row is not None:
                    self._report_settled(unresolved.row, unresolved, _find_reason(entry, unresolved.row))
            elif entry.state is State.REJECTED:
                unresolved = self.unresolved.pop(identity)
                words = entry.message or ""
                self._report_unresolved(unresolved, Outcome.REJECTED, "rejected", words, entry.status, entry.attempts)

    async def close(self) -> None:
        """Report all rows that were sent or refused and have no outcome yet. Raises LedgerError."""
        failure: LedgerError | None = None
        entries: dict[bytes, Entry] = {}
        try:
            if self._mode is RunMode.LOAD:
                await self._reject_unsent()
            await self.update()
            entries = await self._session.journal.find_entries(list(self.unresolved))
        except LedgerError as error:
            failure = error
        for held in self._held_rows:
            self._session.tally.report(held.problem)
        self._held_rows.clear()
        for identity, unresolved in self.unresolved.items():
            attempts = entries[identity].attempts if identity in entries else 1
            words = unresolved.message or "it was sent, and the service has not shown whether it took effect"
            if unresolved.owner_job is not None:
                words = (
                    f"it is not in the service, and only the job {unresolved.owner_job}, which has a suppression list, "
                    "may send it again"
                )
            self._report_unresolved(unresolved, Outcome.UNKNOWN, "unknown", words, unresolved.status, attempts)
        if self._mode is RunMode.PLAN and failure is None:
            await self._reject_unsent()
        self.unresolved.clear()
        if failure is not None:
            raise failure
        await self._session.journal.flush()

    async def _reject_unsent(self) -> None:
        """Move refused entries that this run does not send again back to REJECTED: a later run knows their refusal."""
        base, entries = self._session.journal.base, await self._session.journal.find_entries(list(self.unresolved))
        refused = [
            (identity, unresolved.status, unresolved.message)
            for identity, unresolved in self.unresolved.items()
            if unresolved.is_refused and unresolved.status is not None and identity in entries
            if entries[identity].state is State.UNKNOWN
        ]
        await self._session.journal.ask(lambda ledger: ledger.mark_refused(base, State.UNKNOWN, refused))

    # Reports

    def record_settled(self, identity: bytes, event: Event, attempts: int, ids: tuple[int, ...] = ()) -> None:
        """Record that an unresolved entry has ended after `attempts`: FOUND under these `ids`, WITHHELD, SUPPRESSED or
        REFUSED."""
        tally, unresolved = self._session.tally, self.unresolved.pop(identity)
        row = unresolved.row
        if event is Event.FOUND:
            tally.record_twins(ids)
            if len(ids) > 1:
                listed = ", ".join(map(str, ids))
                tally.add_message(
                    f"a subscriber whose create was unresolved is in the base {len(ids)} times: ids {listed}"
                )
            tally.settled_found += 1
            if row is not None:
                self._report_settled(row, unresolved, None if unresolved.newer is None else Since.CHANGED)
            return
        tally.settled_absent += not unresolved.unprovable
        if event is Event.SUPPRESSED and row is not None:
            tally.count_row(Outcome.SUPPRESSED, lambda: row.source)
        elif event is Event.SUPPRESSED:
            tally.leftovers["given up as suppressed"] += 1
        elif event is Event.WITHHELD:
            words = f"held after it was proved absent: {unresolved.message or 'it was sent, and no answer came'}"
            if unresolved.unprovable:
                words = describe_held(unresolved.unprovable)
            self._report_unresolved(unresolved, Outcome.UNKNOWN, "held", words, unresolved.status, attempts)
        else:
            words = unresolved.message
            self._report_unresolved(unresolved, Outcome.REJECTED, "rejected", words, unresolved.status, attempts)

    def _report_unresolved(
        self, unresolved: Unresolved, outcome: Outcome, code: str, message: str, status: int | None, attempts: int
    ) -> None:
        """Report an unresolved row. An entry of an earlier run without a row in this run counts as a leftover."""
        tally = self._session.tally
        if unresolved.row is None:
            tally.leftovers[code] += 1
        else:
            tally.report(Problem(unresolved.row.source, outcome, "", code, message, status, attempts))

    def _report_settled(self, row: LoadRow, unresolved: Unresolved, since: Since | None) -> None:
        """Report a row whose unresolved create was found. A 429 rarely takes effect, so its row is compared. A
        subscriber that existed before the create is not created."""
        if unresolved.has_existed:
            self._session.journal.record_receipt(row.identity, row.name, ReceiptKind.EXISTED)
            self._report_found(row, Since.FIRST, is_of_this_run=False)
        elif unresolved.is_limited:
            self._report_found(row, Since.LIMITED, is_of_this_run=False)
        else:
            self._report_found(row, since, is_of_this_run=unresolved.is_of_this_run)

    def _report_found(self, row: LoadRow, since: Since | None, *, is_of_this_run: bool) -> None:
        """Report a row whose subscriber exists. The row is created if `is_of_this_run`; otherwise `since` is why the
        row must be compared with the service (None: no comparison)."""
        if is_of_this_run:
            self._session.journal.record_receipt(row.identity, row.name, ReceiptKind.CREATED)
            self._report_created(row)
        elif since is not None:
            self._session.waiting.add(self._session.journal, [(row, since)])
        else:
            self._session.tally.count_row(Outcome.EXISTS, lambda: row.source)

    def _report_created(self, row: LoadRow) -> None:
        tally = self._session.tally
        tally.reactivated += row.identity in self._session.access.inactive_identities.reactivated
        tally.report_created(lambda: row.source, row.values, row.omission)


def _build_rejected(source: Row, status: int | None, message: str) -> Problem:
    return Problem(source, Outcome.REJECTED, "", "rejected", message, status, 1)


def _find_reason(entry: Entry, row: LoadRow) -> Since | None:
    """Return why a row with a CONFIRMED entry must be compared with the service, or None if the row is as it was
    sent."""
    if row.fingerprint in (b"", entry.fingerprint):
        return None
    return Since.FIRST if entry.fingerprint is None else Since.CHANGED
