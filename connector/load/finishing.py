"""Turns the verdicts on creates into outcomes of rows, and settles entries that stay unknown. Rows of a source and
entries of earlier runs end here in the same way."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from math import inf

from connector.errors import LedgerError
from connector.ledger.entries import Entry, Move, Refusal
from connector.listing.access import LookupKey
from connector.load.candidates import Candidate, build_row, describe_held, take_row
from connector.load.creates import Creator
from connector.load.lookups import KeyLookup
from connector.load.refusals import Refusals
from connector.load.resolution import Settler, Unresolved
from connector.load.session import Problem, Session, Since
from connector.outcomes import Outcome
from connector.pace.refusals import LEAST_ALIKE
from connector.rows import Chunk, LoadRow, Row
from connector.sender import FetchItems
from connector.service.answers import is_about_row, refusal_kind
from connector.states import Event, State
from connector.subscribers.preparation import Difference

_AT_ONCE = 1024  # then signals are heard
_WOULD_BE_CREATED = Move(Event.ANSWERED)
_ROWS_KEPT = 10_000  # about 10 MB; what goes beyond is reported at once


class RunMode(Enum):
    """How a run treats rows. A load sends them and records what they say now, so that no unresolved entry may stay that
    could be one of them."""

    LOAD = "load"
    PLAN = "plan"


@dataclass(frozen=True, slots=True)
class _KeptRow:
    """A row that is reported as `problem` at the end of the run, unless a later look-up shows its identity.

    `is_of_this_run`: this run sent the create, after a look-up had shown the subscriber to be absent. `is_unchecked`:
    the create was refused, and the subscriber was not looked up since. `refused_at` (monotonic) is when this run's
    create was refused (None: it was not), and until `known_until` the look-up before that create may be relied on.
    """

    problem: Problem
    row: LoadRow
    is_of_this_run: bool
    is_unchecked: bool
    refused_at: float | None = None
    known_until: float = -inf

    @property
    def kind(self) -> str:
        """The kind of the refusal if this run's create was refused for what may be no fault of the row, else ""."""
        is_unsure = self.is_of_this_run and self.refused_at is not None
        if not is_unsure or is_about_row(self.problem.http_status or 0, self.problem.message, self.row.name):
            return ""
        return refusal_kind(self.problem.http_status or 0, self.problem.message)


class Finisher:
    """Sends (or plans), settles and reports each one's end; `close` it however the run ends: so the outcomes sum up.

    `unresolved` are the entries that are unknown, by identity. `create` sends or plans all that `take(n)` gives, n at a
    time at most, until it gives nothing or the run is to stop.
    """

    def __init__(self, session: Session, mode: RunMode) -> None:
        self._session, self._mode = session, mode
        self.refusals = Refusals(session)
        self.create = self._plan
        if mode is RunMode.LOAD:
            self.create = Creator(session, self.refusals.check_list, self._on_verdict).create
        self.settler = Settler(session, self.create, self._on_settled, KeyLookup)
        self.unresolved = self.settler.unresolved
        self._kept: list[_KeptRow] = []
        self._stale: set[bytes] = set()

    async def begin(self) -> None:
        """Add the entries whose refusal in an earlier run is to be tried again to `unresolved`. Raises LedgerError."""
        await self.refusals.begin()
        self._take_up_earlier(self._session.retried)

    def _take_up_earlier(self, refusals: Mapping[bytes, Refusal]) -> None:
        """Add entries that an earlier run left refused, and that are UNKNOWN now, to `unresolved`."""
        now = self._session.clock.monotonic()
        for identity, refusal in refusals.items():
            is_recent = self.refusals.may_not_show_yet(refusal)
            self.unresolved[identity] = Unresolved(
                now,
                status=refusal.status,
                message=refusal.message,
                is_refused=True,
                missed_at=None if is_recent else -inf,  # two quiet periods have passed: one look-up is enough
            )

    def take_stale(self) -> set[bytes]:
        """Return the identities that were not sent since the last call, because their existence check expired."""
        stale, self._stale = self._stale, set()
        return stale

    async def settle(self) -> None:
        """Settle the base's unknown entries, of this run and of earlier ones; then look the refused rows up.

        Raises RunAborted (ListFailed among them) when the run cannot go on.
        """
        session = self._session
        if self._mode is RunMode.PLAN and not session.control.is_stopping:
            await self.settler.look_once()
        is_loading = self._mode is RunMode.LOAD
        while is_loading and not session.control.is_stopping:
            self._take_up_passing()
            await self.settler.settle()
            is_loading = await self.release()
        self._give_back_believed()
        if self._mode is RunMode.LOAD and not session.control.is_stopping:
            await self._look_up_refused()
        await self._reconsider()
        await self._end_resolved()
        session.control.check()

    async def close(self) -> None:
        """Report rows without an outcome that were sent or refused. Raises LedgerError."""
        await self.refusals.close()
        failure: LedgerError | None = None
        entries: dict[bytes, Entry] = {}
        try:
            if self._mode is RunMode.LOAD:
                await self._return_refused()
            await self._reconsider()
            await self._end_resolved()
            entries = await self._find_entries(list(self.unresolved))
        except LedgerError as error:
            failure = error
        for kept in self._kept:
            self._session.tally.report(kept.problem)
        self._kept.clear()
        for identity, each in self.unresolved.items():
            attempts = entries[identity].attempts if identity in entries else 1
            words = self._explain(identity, each)
            self._report_unresolved(each, Outcome.UNKNOWN, "unknown", words, each.status, attempts)
        if self._mode is RunMode.PLAN and failure is None:
            await self._return_refused()
        self.unresolved.clear()
        if failure is not None:
            raise failure
        await self._session.journal.flush()

    def report(self, row: Row, outcome: Outcome, code: str, message: str, status: int | None, attempts: int) -> None:
        """Report a row that a person must see, with its outcome."""
        self._session.tally.report(Problem(row, outcome, "", code, message, status, attempts))

    def keep(
        self,
        problem: Problem,
        row: LoadRow,
        *,
        is_of_this_run: bool = False,
        is_unchecked: bool = False,
        refused_at: float | None = None,
        known_until: float = -inf,
    ) -> None:
        """Keep a row whose outcome the last look-up of the run may change. The arguments are those of `_KeptRow`."""
        if len(self._kept) < _ROWS_KEPT or row.identity in self._session.withheld:
            self._kept.append(_KeptRow(problem, row, is_of_this_run, is_unchecked, refused_at, known_until))
        else:
            self._session.tally.report(problem)
            self._session.tally.say(
                f"More than {_ROWS_KEPT:,} rows were refused or held. The rows beyond are reported as the service "
                "answered, without a look-up of their subscribers."
            )

    def _report_unresolved(
        self, unresolved: Unresolved, outcome: Outcome, code: str, message: str, status: int | None, attempts: int
    ) -> None:
        """Report an unresolved row of this run, or an entry that an earlier run left, which has no row here."""
        if unresolved.row is None:
            self._session.tally.leftovers[code] += 1
        else:
            self.report(unresolved.row.source, outcome, code, message, status, attempts)

    def _explain(self, identity: bytes, unresolved: Unresolved) -> str:
        """Return why an entry is still unknown."""
        job = self.settler.left_to.get(identity)
        if job is None:
            return unresolved.message or "it was sent, and the service has not shown whether it took effect"
        return f"it is not in the service, and only the job {job}, which has a suppression list, may send it again"

    # Verdicts of creates

    async def _plan(self, take: FetchItems[Candidate]) -> None:
        """Send and record nothing, and report all that `take(n)` gives as to be created."""
        while not self._session.control.is_stopping and (batch := await take(_AT_ONCE)):
            for candidate in batch:
                self._session.tally.take(candidate.left is not State.UNKNOWN)
                self._on_verdict(candidate, _WOULD_BE_CREATED)
            await asyncio.sleep(0)

    def _on_verdict(self, candidate: Candidate, verdict: Move) -> None:
        self._session.tally.altered.update(verdict.altered)
        self._judge_limits(verdict)
        if candidate.left is State.UNKNOWN:
            self._on_second_verdict(candidate, verdict)
        elif verdict.event is Event.ANSWERED:
            omission = candidate.omission if self._mode is RunMode.LOAD else None  # a plan has left no zip out
            self._note_reactivated(candidate.intent.identity)
            self._session.tally.report_created(candidate.take_row, candidate.sent, omission)
        elif verdict.event is Event.LOST or verdict.is_limited:
            self.unresolved[candidate.intent.identity] = self._build_unresolved(candidate, verdict)
        elif verdict.event is Event.REFUSED:
            self._keep_refused(candidate, candidate.take_row(), verdict)
        elif verdict.event is Event.MISANSWERED:
            self._keep_misanswered(candidate, candidate.take_row(), verdict, attempts=1)
        elif verdict.event is Event.NOT_SENT:
            self._session.tally.give_back()
            if verdict.is_stale:
                self._stale.add(candidate.intent.identity)
                self._session.limits.begun -= 1

    def _judge_limits(self, verdict: Move) -> None:
        if verdict.event in (Event.ANSWERED, Event.REFUSED) and not verdict.is_limited:
            is_rejected = verdict.event is Event.REFUSED
            reason = self._session.limits.note(is_rejected=is_rejected, undecided=self._session.passing.count)
            if reason is not None:
                self._session.control.end(reason)

    def _build_unresolved(self, candidate: Candidate, verdict: Move) -> Unresolved:
        return Unresolved(
            self._session.clock.monotonic(),
            build_row(candidate, candidate.take_row()),
            verdict.status,
            verdict.message,
            is_of_this_run=self._session.policy.is_looking,
            known_until=candidate.known_until,
            is_refused=verdict.is_limited,
            is_recorded=verdict.is_limited,
            uncounted=int(verdict.is_limited and not verdict.may_pass),
        )

    def _on_second_verdict(self, candidate: Candidate, verdict: Move) -> None:
        """A create that was sent again, after its first was proved to have had no effect."""
        self._session.tally.settled_absent += verdict.event is not Event.NOT_SENT
        if verdict.event in (Event.LOST, Event.NOT_SENT) or verdict.is_limited:
            self.settler.renew(candidate, verdict)
            return
        unresolved = self.unresolved.pop(candidate.intent.identity)
        if verdict.event is Event.ANSWERED and unresolved.row is not None:
            self._report_created(unresolved.row)
        elif verdict.event is Event.REFUSED and unresolved.row is not None:
            self._keep_refused(candidate, unresolved.row.source, verdict)
        elif verdict.event is Event.MISANSWERED and unresolved.row is not None:
            attempts = (unresolved.attempts or 0) + 1
            self._keep_misanswered(candidate, unresolved.row.source, verdict, attempts=attempts)
        elif verdict.event is Event.MISANSWERED:
            self._session.tally.leftovers["held"] += 1
        elif verdict.event is Event.REFUSED:
            self._session.tally.leftovers["rejected"] += 1

    # Refusals that may pass

    def _take_up_passing(self) -> None:
        """Move this run's refused rows whose refusal may pass to `unresolved`: they are settled like those of a 429."""
        passing, kept_rows, self._kept = self._session.passing, self._kept, []
        for kind, number in Counter(kept.kind for kept in kept_rows).items():
            if kind and number >= LEAST_ALIKE:
                passing.suspect(kind)
        for kept in kept_rows:
            problem, refused_at = kept.problem, kept.refused_at
            if refused_at is None or not passing.may_pass(kept.kind):
                self._kept.append(kept)
                continue
            self._session.limits.take_back()
            self.unresolved[kept.row.identity] = Unresolved(
                refused_at,
                kept.row,
                problem.http_status,
                problem.message,
                is_of_this_run=True,
                known_until=kept.known_until,
                is_refused=True,
                is_recorded=True,
            )

    async def release(self, *, is_asked_for: bool = False) -> bool:
        """Take up the refusals of earlier runs whose kind has passed in this run; return whether there are any.

        With `is_asked_for`, also those that are not final. Raises LedgerError.
        """
        released = await self.refusals.release(is_asked_for=is_asked_for)
        self._take_up_earlier(released)
        kept_rows, self._kept = self._kept, []
        for kept in kept_rows:
            if kept.row.identity in released:
                self.unresolved[kept.row.identity].row = kept.row
            else:
                self._kept.append(kept)
        return bool(released)

    async def _return_refused(self) -> None:
        """Move refused entries that this run does not send again back to REJECTED: a later run knows their refusal."""
        base, entries = self._session.journal.base, await self._find_entries(list(self.unresolved))
        refused = [
            (identity, each.status, each.message)
            for identity, each in self.unresolved.items()
            if each.is_refused and each.status is not None and identity in entries
            if entries[identity].state is State.UNKNOWN
        ]
        await self._session.journal.ask(lambda ledger: ledger.mark_refused(base, State.UNKNOWN, refused))

    def _give_back_believed(self) -> None:
        """Keep the rows whose refusal the ledger has as REJECTED, and has been tried long enough."""
        passing = self._session.passing
        for identity, each in list(self.unresolved.items()):
            if each.is_recorded and each.row is not None and passing.is_believed(each.kind):
                del self.unresolved[identity]
                problem = Problem(each.row.source, Outcome.REJECTED, "", "rejected", each.message, each.status, 1)
                self._kept.append(_KeptRow(problem, each.row, each.is_of_this_run, is_unchecked=True))

    # Rows whose outcome is reported after the run's last look-up

    def _keep_refused(self, candidate: Candidate, source: Row, verdict: Move) -> None:
        problem = Problem(source, Outcome.REJECTED, "", "rejected", verdict.message, verdict.status, 1)
        is_looking = self._session.policy.is_looking
        refused_at = self._session.clock.monotonic()
        self.keep(
            problem,
            build_row(candidate, source),
            is_of_this_run=is_looking,
            is_unchecked=True,
            refused_at=refused_at,
            known_until=candidate.known_until,
        )

    def _keep_misanswered(self, candidate: Candidate, source: Row, verdict: Move, *, attempts: int) -> None:
        words = describe_held(verdict.message)
        problem = Problem(source, Outcome.UNKNOWN, "", "held", words, verdict.status, attempts)
        is_created = self._session.policy.is_looking and not verdict.is_known
        self.keep(problem, build_row(candidate, source), is_of_this_run=is_created)

    async def _look_up_refused(self) -> None:
        """Look the refused rows up that no look-up has checked. Raises ListFailed and RunAborted."""
        field = self._session.policy.identity
        unchecked = [kept.row for kept in self._kept if kept.is_unchecked]
        await self.refusals.look_up([LookupKey(row.identity, field, row.name) for row in unchecked])

    async def _reconsider(self) -> None:
        """Give the kept rows their outcome, as the ledger has it by now."""
        entries = await self._find_entries([each.row.identity for each in self._kept])
        known = self._session.access.known_ids
        confirmed = {
            identity: entry.subscriber_id for identity, entry in entries.items() if entry.state is State.CONFIRMED
        }
        kept = [
            replace(each, is_of_this_run=False)
            if known.was_shown_first(confirmed.get(each.row.identity) or 0)
            else each
            for each in self._kept
        ]
        ours = [
            (each.row.identity, each.row.fingerprint)
            for each in kept
            if each.is_of_this_run and each.row.identity in confirmed
        ]
        if ours:  # refused, and created all the same: the service has what was sent
            base = self._session.journal.base
            await self._session.journal.ask(lambda ledger: ledger.record_equal(base, ours))
        self._kept = self._kept[len(kept) :]  # not before: what was sent must not lose its outcome if that fails
        for each in sorted(kept, key=lambda each: (each.row.source.file, each.row.source.number)):
            entry, problem = entries.get(each.row.identity), each.problem
            if entry is not None and entry.state is State.CONFIRMED:  # a listing has shown them
                if each.is_of_this_run and problem.outcome is Outcome.REJECTED:
                    self._session.limits.take_back()
                self._report_found(each.row, _decide_found(entry, each.row), each.is_of_this_run)
            else:
                attempts = entry.attempts if entry is not None else problem.attempts
                self._session.tally.report(replace(problem, attempts=attempts))

    async def _end_resolved(self) -> None:
        """Report those whose entries are unknown no more: two lines of one base became one, and a listing has shown
        them, or the load of the other has had them refused."""
        entries = await self._find_entries(list(self.unresolved))
        for identity, entry in entries.items():
            if entry.state is State.CONFIRMED:
                unresolved = self.unresolved.pop(identity)
                if (row := unresolved.row) is not None:
                    self._report_settled(row, unresolved, _decide_found(entry, row))
            elif entry.state is State.REJECTED:
                unresolved = self.unresolved.pop(identity)
                words = entry.message or ""
                self._report_unresolved(unresolved, Outcome.REJECTED, "rejected", words, entry.status, entry.attempts)

    def _report_found(self, row: LoadRow, since: Since | None, is_of_this_run: bool) -> None:
        """Report a row whose subscriber exists: created, if it was this run's create and was absent before; `since`
        is why the row is to be compared (None: it is not)."""
        if is_of_this_run:
            self._report_created(row)
        elif since is not None:
            self._session.waiting.add(self._session.journal, [(row, since)])
        else:
            self._session.tally.count_row(Outcome.EXISTS, lambda: row.source)

    def _report_settled(self, row: LoadRow, unresolved: Unresolved, since: Since | None) -> None:
        """Report a row whose unresolved create was found. A 429 rarely takes effect, so its row is compared; and a
        subscriber that existed before the create is not created."""
        if unresolved.has_existed:
            self._report_found(row, Since.FIRST, is_of_this_run=False)
        elif unresolved.is_limited:
            self._report_found(row, Since.LIMITED, is_of_this_run=False)
        else:
            self._report_found(row, since, unresolved.is_of_this_run)

    def _report_created(self, row: LoadRow) -> None:
        self._note_reactivated(row.identity)
        self._session.tally.report_created(lambda: row.source, row.values, row.omission)

    def _note_reactivated(self, identity: bytes) -> None:
        self._session.tally.reactivated += identity in self._session.access.inactive.reactivated

    async def _find_entries(self, identities: list[bytes]) -> dict[bytes, Entry]:
        base = self._session.journal.base
        return await self._session.journal.ask(lambda ledger: ledger.find_entries(base, identities))

    # Ends of unknowns

    def _on_settled(self, unresolved: Unresolved, event: Event, attempts: int, ids: tuple[int, ...]) -> None:
        tally, row, status = self._session.tally, unresolved.row, unresolved.status
        tally.note_twins(ids)
        if len(ids) > 1:
            tally.say(
                f"a subscriber whose create was unresolved is in the base {len(ids)} times: ids "
                f"{', '.join(map(str, ids))}"
            )
        if event is Event.FOUND:
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
            self._report_unresolved(unresolved, Outcome.UNKNOWN, "held", words, status, attempts)
        else:
            self._report_unresolved(unresolved, Outcome.REJECTED, "rejected", unresolved.message, status, attempts)


def build_different(chunk: Chunk, difference: Difference, identity: str) -> Problem:
    """Return a row that is not used because another row of its `identity` is, and says something else."""
    fields = f"This row differs in {', '.join(difference.fields)}"
    code = "overruled" if difference.is_overruled else "differs"
    if not difference.fields:
        message = (
            f"another row of the same {identity} is invalid and does not clearly say active, so this row is not used"
        )
    elif difference.is_overruled:
        message = f"another row of the same {identity} says inactive, and is used instead. {fields}"
    else:
        message = f"another row of the same {identity} is used instead. {fields}"
    return Problem(take_row(chunk, difference.position), Outcome.DUPLICATE, identity, code, message)


def _decide_found(entry: Entry, row: LoadRow) -> Since | None:
    """Return why a row with a CONFIRMED entry is to be compared; None if the row is as it was sent."""
    if row.fingerprint in (b"", entry.fingerprint):
        return None
    return Since.FIRST if entry.fingerprint is None else Since.CHANGED
