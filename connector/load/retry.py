"""`connector retry`: settles unresolved, held and rejected entries of earlier runs, from the bodies in the ledger."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Literal

from connector.fields import NAMES
from connector.ledger.entries import Ledger, UnfinishedEntry
from connector.ledger.receipts import ReceiptKind
from connector.ledger.records import mark_misanswered_base
from connector.ledger.store import Base
from connector.listing.access import KeyGroup
from connector.load.candidates import Candidate, CandidateList, describe_held, read_body, want_unfinished
from connector.load.lookups import LOOKED_UP_AS_SENT, look_up_keys
from connector.load.outcomes import Unresolved
from connector.load.resolution import Settler, build_again, read_intent
from connector.load.session import Problem, RunMode, Session
from connector.outcomes import Outcome
from connector.rows import LoadRow, Row, write_cell
from connector.states import State

Held = Literal["leave", "resend", "accept", "drop"]
"""The decision about held entries."""

_DROPPED = "given up by connector retry --held drop; it is tried again once its row changes"


@dataclass(frozen=True, slots=True)
class RetrySelection:
    """The entries to retry: unknown and held ones, and rejected ones if `is_rejected`; of any run, or of the run that
    sent them last."""

    run_id: str | None = None
    is_rejected: bool = False
    held: Held = "leave"

    @property
    def refuses_misanswered(self) -> bool:
        """Whether to refuse a base whose create was answered as one in another base. A retry that only looks up, or
        sends held entries again, does not refuse it."""
        return self.is_rejected and self.held != "resend"

    def choose_mode(self, base: Base) -> RunMode:
        """Return LOAD if the retry sends, and PLAN if it only looks up, because creates in the base were answered as in
        another base."""
        is_sending = self.held == "resend" or self.is_rejected or not base.is_misanswered
        return RunMode.LOAD if is_sending else RunMode.PLAN

    def concerns(self, entry: UnfinishedEntry) -> bool:
        """Return whether the entry is of the run that was asked for."""
        return self.run_id in (None, entry.run_id)


async def retry_entries(session: Session, settler: Settler, selection: RetrySelection) -> None:
    """Take up the selected entries of the base, each counted as a row read, and settle them.

    Raises RunAborted (ListFailed among them) when the run cannot go on.
    """
    retry = _Retry(session, settler, selection)
    await settler.release(is_asked_for=True)
    if selection.is_rejected:
        session.withheld.clear()  # the retry sends the others itself
    await retry.take_up_unknown()
    await retry.take_up_held()
    await settler.settle()
    if selection.is_rejected and not session.control.is_stopping:
        await retry.take_up_rejected()
        await settler.settle()


class _Retry:
    """One base's entries, taken up state by state."""

    def __init__(self, session: Session, settler: Settler, selection: RetrySelection) -> None:
        self._session, self._settler, self._selection = session, settler, selection
        self._numbers: Iterator[int] = count(1)
        self._given_up = set[bytes]()  # entries that this retry has dropped: it does not send them as rejected ones
        # No new create may leave while an entry of the base is unresolved, so a retry of rejected entries settles all.
        self._only: set[bytes] | None = None if selection.run_id is None or selection.is_rejected else set()
        settler.select(self._only, is_resending_held=selection.held == "resend")

    async def take_up_unknown(self) -> None:
        """Add the unknown entries to those that are settled."""
        for entry in await self._find(State.UNKNOWN):
            self._settle_later(entry)

    async def take_up_held(self) -> None:
        """Decide about held entries as selected: reopen, drop or accept them, or confirm the entries that a look-up
        finds."""
        held, journal = await self._find(State.HELD), self._session.journal
        identities = [entry.identity for entry in held]
        if self._selection.held == "resend":
            await self._reopen(held)
        elif self._selection.held == "drop":
            await journal.ask(lambda ledger: ledger.mark_dropped(journal.base, identities, _DROPPED))
            self._given_up.update(identities)
            for entry in held:
                self._report(entry, Outcome.REJECTED, "dropped", _DROPPED, None)
        elif self._selection.held == "accept":
            await self._accept(held)
        else:
            for entry in await self._find_out(held, State.HELD):
                self._report(entry, Outcome.UNKNOWN, "held", describe_held(entry.message), None)

    async def _accept(self, held: list[UnfinishedEntry]) -> None:
        """Confirm the entries with an answer. Entries without an answer stay held."""
        base = self._session.journal.base
        accepted = [(entry.identity, entry.answered_id) for entry in held if entry.answered_id is not None]
        await self._session.journal.ask(lambda ledger: ledger.mark_accepted(base, accepted))
        self._session.tally.count(Outcome.EXISTS, len(accepted))
        for entry in held:
            if entry.answered_id is not None:
                self._record_receipt(entry)
            else:
                words = f"no answer to accept; {describe_held(entry.message)}"
                self._report(entry, Outcome.UNKNOWN, "held", words, None)

    async def _reopen(self, held: list[UnfinishedEntry]) -> None:
        """Reopen the entries that this run may send again. The others stay held, and can be dropped later."""
        session, journal = self._session, self._session.journal
        ours = [entry for entry in held if entry.suppressed_by in (None, session.job)]

        def write(ledger: Ledger) -> None:
            ledger.mark_reopened(journal.base, [entry.identity for entry in ours])
            mark_misanswered_base(ledger.connection, journal.base, None, None)

        await journal.ask(write)
        for entry in ours:
            self._settle_later(entry)
        for entry in held:
            if entry.suppressed_by not in (None, session.job):
                words = f"held: only the job {entry.suppressed_by}, which has a suppression list, may send it again"
                self._report(entry, Outcome.UNKNOWN, "held", words, None)

    async def take_up_rejected(self) -> None:
        """Look rejected entries up, and send absent ones again; one that may not show yet is settled first."""
        rejected, journal = await self._find(State.REJECTED), self._session.journal
        recent, others = list[UnfinishedEntry](), list[UnfinishedEntry]()
        for entry in rejected:
            (recent if self._settler.refusals.may_not_show_yet(entry) else others).append(entry)
        identities = [entry.identity for entry in recent]
        await journal.ask(lambda ledger: ledger.mark_unresolved(journal.base, identities))
        for entry in recent:
            self._settle_later(entry)
        while others and not self._session.control.is_stopping:
            began_at = self._session.clock.monotonic()
            absent = await self._find_out(others, State.REJECTED, is_known=True)
            known_until = self._session.policy.known_until(began_at, self._session.clock.monotonic())
            candidates = [candidate for entry in absent if (candidate := self._build(entry, known_until)) is not None]
            again = CandidateList(candidates, self._session.clock.monotonic)
            await self._settler.create(again.fetch)
            stale = self._settler.outcomes.pop_stale().union(candidate.intent.identity for candidate in again.remaining)
            others = [entry for entry in others if entry.identity in stale]

    async def _find(self, state: State) -> list[UnfinishedEntry]:
        base = self._session.journal.base
        entries = await self._session.journal.ask(lambda ledger: ledger.find_unfinished_entries(base, state))
        concerned = [
            entry for entry in entries if self._selection.concerns(entry) and entry.identity not in self._given_up
        ]
        self._session.tally.read += len(concerned)
        return concerned

    async def _find_out(
        self, entries: list[UnfinishedEntry], state: State, *, is_known: bool = False
    ) -> list[UnfinishedEntry]:
        """Confirm the entries that a look-up shows, and return the others. With `is_known`, return only entries that
        are absent, and reject those whose look-up was inconclusive."""
        if not entries:
            return []
        wanted = [want_unfinished(entry, in_any_spelling=state is State.REJECTED) for entry in entries]
        base, tally = self._session.journal.base, self._session.tally
        found, missed = dict[bytes, int](), set[bytes]()

        async for part in look_up_keys([KeyGroup(self._session.access, wanted)]):
            if part.is_as_sent and part.result.absent_identities:
                tally.add_message(LOOKED_UP_AS_SENT)
            found.update((identity, ids[0]) for identity, ids in part.result.found_ids.items())
            missed.update(part.result.absent_identities)
        await self._session.journal.ask(lambda ledger: ledger.mark_found(base, state, list(found.items())))
        tally.settled_found += len(found)
        tally.count(Outcome.EXISTS, len(found))
        others = [entry for entry in entries if entry.identity not in found]
        if not is_known:
            return others
        for entry in others:
            if entry.identity not in missed:
                self._reject(entry, "the service has not shown whether it exists, so it was not sent again")
        return [entry for entry in others if entry.identity in missed]

    def _build(self, entry: UnfinishedEntry, known_until: float) -> Candidate | None:
        """Return a create of a rejected entry. If a suppression list forbids the create, report the outcome and return
        None."""
        session = self._session
        sent = {name: value for name, value in read_body(entry).items() if value is not None}
        if entry.suppressed_by not in (None, session.job):
            self._reject(entry, f"only the job {entry.suppressed_by}, which has a suppression list, may send it again")
            return None
        if session.is_suppressed(entry.identity, sent):
            self._session.tally.count(Outcome.SUPPRESSED, 1)
            return None
        again = build_again(read_intent(entry), sent, session.journal.base, State.REJECTED)
        refused = entry.status or 0, entry.message or ""
        row = partial(self._write, entry)
        return Candidate(again.intent, again.sent, row, State.REJECTED, refused, known_until)

    def _settle_later(self, entry: UnfinishedEntry) -> None:
        if self._only is not None:
            self._only.add(entry.identity)
        self._session.tally.add_taken()
        self._record_receipt(entry)
        row = LoadRow(self._write(entry), entry.identity, "", b"", {})
        unresolved = Unresolved(self._session.clock.monotonic(), row, is_refused=entry.status is not None)
        self._settler.outcomes.add_unresolved(entry.identity, unresolved)

    def _record_receipt(self, entry: UnfinishedEntry) -> None:
        name = str(read_body(entry)[entry.field])
        self._session.journal.record_receipt(entry.identity, name, ReceiptKind.KNOWN)

    def _reject(self, entry: UnfinishedEntry, why: str) -> None:
        words = f"{entry.message or 'rejected'}; {why}"
        self._report(entry, Outcome.REJECTED, "rejected", words, entry.status)

    def _report(self, entry: UnfinishedEntry, outcome: Outcome, code: str, message: str, status: int | None) -> None:
        self._session.tally.add_taken()
        self._session.tally.report(Problem(self._write(entry), outcome, "", code, message, status, entry.attempts))

    def _write(self, entry: UnfinishedEntry) -> Row:
        """Return the entry's body as a row for a person, with a column for each field, so that it can be imported
        again."""
        values = read_body(entry)
        cells = tuple(write_cell(values[name]) for name in NAMES)
        return Row(next(self._numbers), f"run {entry.run_id}", NAMES, cells)
