"""Turns the verdicts on creates into outcomes of rows, and settles what stays unknown.

The rows of a source and the entries that earlier runs left end here alike.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Protocol

from connector.errors import LedgerError
from connector.ledger import Entry, Move, Unfinished
from connector.load.candidates import Candidate, describe_held, tell_candidate
from connector.load.creates import Creator, JudgeRefusal, Settle
from connector.load.presence import look_as_well_as_can_be, look_for
from connector.load.refusals import Refusals
from connector.load.resolution import Settled, Settler, Unresolved
from connector.load.session import Problem, Session, Since
from connector.outcomes import Outcome
from connector.rows import Row, Told
from connector.sender import Take
from connector.states import Event, State

_AT_ONCE = 1024  # then signals are heard
_WOULD_BE_CREATED = Move(Event.ANSWERED)
_ROWS_KEPT = 10_000  # about 10 MB; what goes beyond is reported at once


class Creates(Protocol):
    """Takes the rows to be created, and gives a verdict on each."""

    async def create(self, take: Take[Candidate]) -> None:
        """Create all that `take(n)` gives, n at a time at most, until it gives nothing or the run is to stop."""


class Planner:
    """Stands in for a `Creator` in a plan: sends and records nothing, and reports each row as to be created."""

    def __init__(self, session: Session, _judge_refusal: JudgeRefusal, on_verdict: Settle) -> None:
        self._session, self._on_verdict = session, on_verdict

    async def create(self, take: Take[Candidate]) -> None:
        """Report all that `take(n)` gives as to be created, until it gives nothing or the run is to stop."""
        while not self._session.control.is_stopping and (batch := await take(_AT_ONCE)):
            for candidate in batch:
                self._on_verdict(candidate, _WOULD_BE_CREATED)
            await asyncio.sleep(0)


@dataclass(frozen=True, slots=True)
class RunMode:
    """How a run treats rows. `is_sending`: it sends them and records what they say now, so that no unresolved entry may
    stay that could be one of them."""

    build_creator: Callable[[Session, JudgeRefusal, Settle], Creates]
    settle: Callable[[Settler], Awaitable[None]]
    is_sending: bool


SENDING = RunMode(Creator, Settler.settle, is_sending=True)
PLANNING = RunMode(Planner, Settler.look_once, is_sending=False)


@dataclass(frozen=True, slots=True)
class _KeptRow:
    """A row that ends as `problem` says, unless a later look shows its identity; `is_of_this_run`: sent by this run,
    and known absent before."""

    problem: Problem
    told: Told
    is_of_this_run: bool


class Finisher:
    """Sends (or plans), settles and tells each one's end; `close` it however the run ends: so the outcomes sum up."""

    def __init__(self, session: Session, conduct: RunMode) -> None:
        self._session, self._conduct = session, conduct
        self._refusals = Refusals(session, look_for)
        self._creator = conduct.build_creator(session, self._refusals.judge, self._on_verdict)
        self.settler = Settler(session, self._creator.create, self._on_settled, look_as_well_as_can_be)
        self._kept: list[_KeptRow] = []
        self._stale: set[bytes] = set()
        self.open = 0  # rows taken that have neither an outcome nor a doubt yet

    @property
    def doubts(self) -> dict[bytes, Unresolved]:
        """The entries that are unknown, by identity."""
        return self.settler.doubts

    async def begin(self) -> None:
        """Look once more for rows that earlier runs saw refused. Raises RunAborted, ListFailed among them."""
        await self._refusals.begin()

    def is_unproved(self, entry: Entry | Unfinished) -> bool:
        """Return whether the subscriber of a REJECTED entry may exist without showing yet."""
        return self._refusals.is_unproved(entry)

    async def create(self, take: Take[Candidate]) -> None:
        """Send, or plan, all that `take(n)` gives, as `Creator.create` does."""
        await self._creator.create(take)

    def take_stale(self) -> set[bytes]:
        """Return the identities that were not sent since the last call, because their existence check expired."""
        stale, self._stale = self._stale, set()
        return stale

    async def settle_at_once(self) -> bool:
        """Settle what one look can settle in the base; return whether unknown entries are left. Raises as `settle`."""
        if not self._session.control.is_stopping:
            await self.settler.settle(is_patient=False)
        self._session.control.check()
        return any(identity not in self.settler.left_to for identity in self.doubts)

    async def settle(self) -> None:
        """Settle what is unknown in the base, whichever run left it; then see whether refusals were what they seemed.

        Raises RunAborted (ListFailed among them) when the run cannot go on.
        """
        session = self._session
        if not session.control.is_stopping:
            await self._conduct.settle(self.settler)
        if not session.control.is_stopping:
            await self._refusals.check_again()
        if await self._reconsider() and not session.control.is_stopping:
            await self._conduct.settle(self.settler)
        await self._end_doubts()
        session.control.check()

    async def close(self) -> None:
        """Count what has no outcome yet: unknown if it was sent, unsent if not. Raises LedgerError."""
        await self._refusals.close()
        failure = await self._learn_last_words()
        for each in self._kept:
            self._session.tally.report(each.problem)
        self._kept.clear()
        self._session.tally.count(Outcome.UNSENT, self.open)
        self.open = 0
        entries = await self._find_entries(list(self.doubts)) if failure is None else {}
        for identity, doubt in self.doubts.items():
            attempts = entries[identity].attempts if identity in entries else 1
            self.report_doubt(doubt, Outcome.UNKNOWN, "unknown", self._explain(identity, doubt), doubt.status, attempts)
        self.doubts.clear()
        if failure is not None:
            raise failure
        await self._session.journal.flush()

    async def _learn_last_words(self) -> LedgerError | None:
        """Take from the ledger what it has learned of rows without an outcome; a failure is for the caller to raise."""
        failure: LedgerError | None = None
        for step in (self._reconsider, self._end_doubts):
            try:
                await step()
            except LedgerError as error:
                failure = failure or error
        return failure

    def report(self, row: Row, outcome: Outcome, code: str, message: str, status: int | None, attempts: int) -> None:
        """Report a row that ended so and that a person must see."""
        self._session.tally.report(Problem(row, outcome, "", code, message, status, attempts))

    def keep(self, problem: Problem, told: Told, *, is_of_this_run: bool = False) -> None:
        """Keep a row that ends so unless the run's last look shows otherwise.

        `told` is what the row says; `is_of_this_run`: sent by this run, and known absent before.
        """
        if len(self._kept) < _ROWS_KEPT:
            self._kept.append(_KeptRow(problem, told, is_of_this_run))
        else:
            self._session.tally.report(problem)
            self._session.tally.say(
                f"more than {_ROWS_KEPT:,} rows were refused or held: the others are reported as they "
                "were answered, and the next run checks whether the service has them all the same"
            )

    def report_doubt(
        self, doubt: Unresolved, outcome: Outcome, code: str, message: str, status: int | None, attempts: int
    ) -> None:
        """Report an unresolved row of this run, or an entry that an earlier run left, which has no row here."""
        if doubt.row is None:
            self._session.tally.leftovers[code] += 1
        else:
            self.report(doubt.row, outcome, code, message, status, attempts)

    def _explain(self, identity: bytes, doubt: Unresolved) -> str:
        """Return why an entry is still unknown."""
        job = self.settler.left_to.get(identity)
        if job is None:
            return doubt.message or "it was sent, and the service has not shown whether it took effect"
        return f"it is not in the service, and only the job {job}, which has a suppression list, may send it again"

    # Verdicts of creates

    def _on_verdict(self, candidate: Candidate, verdict: Move) -> None:
        self._session.tally.altered.update(verdict.altered)
        self._judge_limits(verdict)
        if candidate.left is State.UNKNOWN:
            self._on_second_verdict(candidate, verdict)
        elif verdict.event is Event.ANSWERED and candidate.take_row is not None:
            omission = candidate.omission if self._conduct.is_sending else None  # a plan has left no zip out
            self._note_reactivated(candidate.intent.identity)
            self._session.tally.report_created(candidate.take_row, omission)
            self.open -= 1
        elif verdict.event is Event.REFUSED and candidate.take_row is not None:
            self._keep_refused(candidate, candidate.take_row(), verdict)
            self.open -= 1
        elif verdict.event is Event.LOST and candidate.take_row is not None:
            self.doubts[candidate.intent.identity] = self._build_doubt(candidate, candidate.take_row(), verdict)
            self.open -= 1
        elif verdict.event is Event.MISANSWERED and candidate.take_row is not None:
            self.report(
                candidate.take_row(), Outcome.UNKNOWN, "held", describe_held(verdict.message), verdict.status, 1
            )
            self.open -= 1
        elif verdict.is_stale:
            self._stale.add(candidate.intent.identity)
            self._session.limits.begun -= 1

    def _judge_limits(self, verdict: Move) -> None:
        if verdict.event in (Event.ANSWERED, Event.REFUSED):
            reason = self._session.limits.note(is_rejected=verdict.event is Event.REFUSED)
            if reason is not None:
                self._session.control.end(reason)

    def _build_doubt(self, candidate: Candidate, row: Row, verdict: Move) -> Unresolved:
        return Unresolved(
            self._session.clock.monotonic(),
            row,
            verdict.status,
            verdict.message,
            is_of_this_run=self._session.policy.is_looking,
            known_until=candidate.known_until,
            told=tell_candidate(candidate),
        )

    def _on_second_verdict(self, candidate: Candidate, verdict: Move) -> None:
        """A create that was sent again, after its first was proved to have had no effect."""
        self._session.tally.settled_absent += verdict.event is not Event.NOT_SENT
        if verdict.event in (Event.LOST, Event.NOT_SENT):
            self.settler.renew(candidate, verdict)
            return
        doubt = self.doubts.pop(candidate.intent.identity)
        if verdict.event is Event.ANSWERED and doubt.row is not None:
            self._report_created(doubt.row, doubt.told)
        elif verdict.event is Event.REFUSED and doubt.row is not None:
            self._keep_refused(candidate, doubt.row, verdict)
        elif verdict.event is Event.MISANSWERED:
            words = describe_held(verdict.message)
            self.report_doubt(doubt, Outcome.UNKNOWN, "held", words, verdict.status, (doubt.attempts or 0) + 1)
        elif verdict.event is Event.REFUSED:
            self._session.tally.leftovers["rejected"] += 1

    # Rows whose outcome is reported after the run's last look

    def _keep_refused(self, candidate: Candidate, row: Row, verdict: Move) -> None:
        problem = Problem(row, Outcome.REJECTED, "", "rejected", verdict.message, verdict.status, 1)
        self.keep(problem, tell_candidate(candidate), is_of_this_run=self._session.policy.is_looking)

    async def _reconsider(self) -> bool:
        """Give the rows that were kept their outcome, by what the ledger has learned of them since; whether some are
        unknown now."""
        known = len(self.doubts)
        entries = await self._find_entries([each.told.identity for each in self._kept])
        kept, self._kept = self._kept, []
        ours = [
            (each.told.identity, each.told.fingerprint)
            for each in kept
            if each.is_of_this_run
            and (entry := entries.get(each.told.identity)) is not None
            and entry.state is State.CONFIRMED
        ]
        if ours:  # refused, and created all the same: the service has what was sent
            base = self._session.journal.base
            await self._session.journal.ask(lambda ledger: ledger.record_equal(base, ours))
        for each in sorted(kept, key=lambda each: (each.problem.row.file, each.problem.row.number)):
            entry, problem = entries.get(each.told.identity), each.problem
            if each.is_of_this_run and entry is not None and entry.state is not State.REJECTED:
                self._session.limits.take_back()
            if entry is not None and entry.state is State.UNKNOWN:  # its kind of refusal is in doubt now
                doubt = Unresolved(self._session.clock.monotonic(), problem.row, problem.http_status, problem.message)
                doubt.is_of_this_run, doubt.told = each.is_of_this_run, each.told
                self.doubts[each.told.identity] = doubt
            elif entry is not None and entry.state is State.CONFIRMED:  # a listing has shown them
                since = _decide_found(entry, each.told.fingerprint)
                self._report_found(problem.row, each.told, since, each.is_of_this_run)
            else:
                attempts = entry.attempts if entry is not None else problem.attempts
                self._session.tally.report(replace(problem, attempts=attempts))
        return len(self.doubts) > known

    async def _end_doubts(self) -> None:
        """Doubts whose entries are in doubt no more: two lines of one base became one, and a listing has shown them, or
        the load of the other has had them refused."""
        entries = await self._find_entries(list(self.doubts))
        for identity, entry in entries.items():
            if entry.state is State.CONFIRMED:
                doubt = self.doubts.pop(identity)
                if doubt.row is not None:
                    fingerprint = doubt.told.fingerprint if doubt.told is not None else None
                    since = _decide_found(entry, fingerprint)
                    self._report_found(doubt.row, doubt.told, since, doubt.is_of_this_run)
            elif entry.state is State.REJECTED:
                doubt = self.doubts.pop(identity)
                words = entry.message or ""
                self.report_doubt(doubt, Outcome.REJECTED, "rejected", words, entry.status, entry.attempts)

    def _report_found(self, row: Row, told: Told | None, since: Since | None, is_of_this_run: bool) -> None:
        """The subscriber is there: created, if it was this run's create and was absent before; `since` is why the row
        is to be compared (None: it is not)."""
        if is_of_this_run:
            self._report_created(row, told)
        elif since is not None and told is not None:
            self._session.waiting.add(self._session.journal, [(row, told, since)])
        else:
            self._count(Outcome.EXISTS, row)

    def _report_created(self, row: Row, told: Told | None) -> None:
        if told is not None:
            self._note_reactivated(told.identity)
        self._session.tally.report_created(lambda: row, told.omission if told is not None else None)

    def _note_reactivated(self, identity: bytes) -> None:
        self._session.tally.reactivated += identity in self._session.access.inactive.reactivated

    def _count(self, outcome: Outcome, row: Row) -> None:
        self._session.tally.count_row(outcome, lambda: row)

    async def _find_entries(self, identities: list[bytes]) -> dict[bytes, Entry]:
        base = self._session.journal.base
        return await self._session.journal.ask(lambda ledger: ledger.find_entries(base, identities))

    # Ends of unknowns

    def _on_settled(self, settled: Settled) -> None:
        doubt, tally = settled.doubt, self._session.tally
        if len(settled.ids) > 1:
            tally.say(
                f"a subscriber whose create was unresolved is in the base {len(settled.ids)} times: ids "
                f"{_write(settled.ids)}"
            )
        if settled.event is Event.FOUND:
            tally.settled_found += 1
            if doubt.row is not None:
                since = None if doubt.newer is None else Since.CHANGED
                self._report_found(doubt.row, doubt.told, since, doubt.is_of_this_run)
            return
        tally.settled_absent += 1
        if settled.event is Event.SUPPRESSED and doubt.row is not None:
            self._count(Outcome.SUPPRESSED, doubt.row)
        elif settled.event is Event.SUPPRESSED:
            tally.leftovers["given up as suppressed"] += 1
        elif settled.event is Event.WITHHELD:
            message = f"held after it was proved absent: {doubt.message or 'it was sent, and no answer came'}"
            self.report_doubt(doubt, Outcome.UNKNOWN, "held", message, doubt.status, settled.attempts)
        else:
            self.report_doubt(doubt, Outcome.REJECTED, "rejected", doubt.message, doubt.status, settled.attempts)


def _write(ids: tuple[int, ...]) -> str:
    return ", ".join(map(str, ids))


def _decide_found(entry: Entry, fingerprint: bytes | None) -> Since | None:
    """Return why a row is to be compared whose identity turned out to exist, by a CONFIRMED entry (None: not at all).

    None: it exists as it was sent.
    """
    if fingerprint in (None, entry.fingerprint):
        return None
    return Since.FIRST if entry.fingerprint is None else Since.CHANGED
