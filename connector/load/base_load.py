"""Loads the rows of one base chunk by chunk, so that each row gets an outcome, and then settles the unknown entries."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import assert_never

import numpy as np

from connector.errors import RunAborted
from connector.ledger.entries import Entry
from connector.ledger.receipts import ReceiptKind, find_runs_in_outbox
from connector.ledger.records import count_unsettled_elsewhere
from connector.ledger.store import Base
from connector.listing.access import LookupKey
from connector.load.candidates import Candidate, CandidateStream, Create, describe_held, read_body, read_rows, want_rows
from connector.load.checks import guard_account, record_shown, refuse_misanswered, refuse_similar_base
from connector.load.creates import Creator, plan_creates
from connector.load.new_rows import MistakenIds, find_inactive
from connector.load.outcomes import Outcomes, Unresolved
from connector.load.presence import BasePresence, Want
from connector.load.refusals import EarlierRefusals
from connector.load.resolution import Settler
from connector.load.session import Problem, RunMode, Session, Since
from connector.outcomes import Outcome
from connector.rows import LoadRow, PlannedChunk
from connector.sender import FetchItems
from connector.states import State
from connector.subscribers.identity import split_digests

_IN_SOURCE_ORDER = 2_000
"""Rows of a chunk that are taken in their own order. Rows of a larger chunk are taken in the order of their identities'
digests, which is the ledger's own order. That order touches far fewer pages and costs half as much (16 µs a create
instead of 28, and 22 instead of 43 among 300,000 entries, measured)."""

_REPORTED_FOR_S = 7 * 86_400.0
"""Seconds for which a reported change is assumed to exist still (architecture 4.12)."""


@dataclass(slots=True)
class SortedChunk:
    """A chunk of rows for one base: the indices of rows to create, with the state of their entries, and the entries of
    held or rejected rows. `is_unsure`: a look-up may have found some of the rows since."""

    planned: PlannedChunk
    to_create: dict[int, State]
    held: dict[int, Entry]
    is_unsure: bool = False


class Loader:
    """The load of one base: call `begin`, `load` for each chunk, and `settle`; call `close` in any case. `presence` has
    the subscribers that the survey of the session found to exist."""

    def __init__(self, session: Session, mode: RunMode = RunMode.LOAD, presence: BasePresence | None = None) -> None:
        self._session, self._mode = session, mode
        self.presence = presence or BasePresence(session)
        self._outcomes, self._refusals = Outcomes(session, mode), EarlierRefusals(session)
        self._creator = Creator(session, self._outcomes)
        is_loading = mode is RunMode.LOAD
        self._create: Create = self._creator.create if is_loading else partial(plan_creates, session, self._outcomes)
        self.settler = Settler(session, mode, self._outcomes, self._refusals, self._create)
        self._mistaken_ids = MistakenIds(session)
        self._is_clear = False  # whether no unresolved entry can be a new row (`_clear_unresolved`)

    async def begin(self, *, refuses_misanswered: bool = True) -> None:
        """Check that base and account are those of the ledger, and choose the earlier refusals that this run sends
        again.

        Raises ConfigurationError if a create in this base was answered as one in another base (`refuses_misanswered`),
        and RunAborted (EmptiedError, ListFailed) if the run cannot go on.
        """
        session = self._session
        if refuses_misanswered:
            refuse_misanswered(session.journal.base)
        await self.settler.read_lag()
        session.access.unverified_entries = await guard_account(session)  # a sweep verifies the others
        await self._refusals.begin()
        self._outcomes.add_refused_earlier(session.retried, self._refusals.find_recent(session.retried.values()))
        await self._record_unresolved()
        session.control.check()

    async def _record_unresolved(self) -> None:
        """Record a receipt for each unknown create of an earlier run, which this run settles. The receipts of an
        earlier run that wait in the outbox have the result, too, so these creates are left out."""
        journal, base = self._session.journal, self._session.journal.base
        if not journal.has_receipts:
            return
        unknown = await journal.ask(lambda ledger: ledger.find_unfinished_entries(base, State.UNKNOWN))
        undelivered = await journal.ask(lambda ledger: find_runs_in_outbox(ledger.connection))
        for entry in unknown:
            if entry.run_key not in undelivered:
                journal.record_receipt(entry.identity, str(read_body(entry)[entry.field]), ReceiptKind.KNOWN)

    async def load(self, planned: PlannedChunk) -> None:
        """Give every row of the chunk its outcome, or leave the row to `settle`.

        Raises RunAborted (ListFailed among them) when the run cannot go on; the rows that the run did not reach are
        `unsent`.
        """
        chunk = await self.sort(planned)
        try:
            await self.create_new(chunk)
        finally:
            self.hold(chunk)

    async def sort(self, planned: PlannedChunk) -> SortedChunk:
        """Give an outcome to all rows of the chunk that the ledger decides. Then call `hold`, also after an error in
        between."""
        row_count = len(planned.identities)
        is_in_order = row_count <= _IN_SOURCE_ORDER
        indices = list(range(row_count)) if is_in_order else np.argsort(planned.identities).tolist()
        return SortedChunk(planned, *await self._sort(planned, indices))

    def want(self, chunk: SortedChunk) -> Want | None:
        """Return the look-up that the new rows of the chunk need, or None if no look-up is needed."""
        if not chunk.to_create or self.presence.covers(chunk.planned):
            return None
        chunk.is_unsure = True
        return Want(self.presence, chunk.planned, self._list_keys(chunk))

    async def create_new(self, chunk: SortedChunk) -> None:
        """Look up the subscribers of the chunk's new rows, and create the absent ones. Raises as `load` does."""
        session, planned = self._session, chunk.planned
        while chunk.to_create and not session.control.is_stopping:
            if chunk.is_unsure or not (self._is_clear and self.presence.covers(planned)):
                await self.presence.learn(planned, self._list_keys(chunk))
                await self._clear_unresolved()
                await self._sort_again(chunk)
            await self._refuse_rows(chunk)
            if chunk.to_create and session.policy.is_looking:
                refuse_similar_base(session)
            stream = CandidateStream(planned, list(chunk.to_create), chunk.to_create, session.policy.identity)
            base = session.journal.base
            await self._create(self._fetch_while_known(planned, stream, base))
            if stream.remaining and not session.limits.allow(1):
                session.control.end(session.limits.describe_creates())
            unsent = [*self._find_stale(planned, chunk.to_create), *stream.remaining]
            chunk.to_create = {index: chunk.to_create[index] for index in unsent}
            if session.journal.base.key != base.key:  # an answer has shown which base this is: ask about that one
                await self._sort_again(chunk)
        session.control.check()

    def hold(self, chunk: SortedChunk) -> None:
        """Hold the rows whose entries are held or rejected; their outcome is reported after the run's last look-up."""
        self._session.tally.add_taken(len(chunk.held))
        for entry, row in zip(chunk.held.values(), self._read(chunk.planned, chunk.held), strict=True):
            is_unchecked = entry.state is State.REJECTED and self._refusals.is_unchecked(row.identity, entry)
            self._outcomes.hold(_build_problem(row, entry), row, is_unchecked=is_unchecked)
            self._session.journal.record_receipt(row.identity, row.name, ReceiptKind.KNOWN)

    async def settle(self) -> None:
        """Settle the base's unknown entries, of this run and of earlier ones. Raises as `load` does."""
        await self.settler.settle()
        if self._mode is RunMode.LOAD and self._session.canaries.is_answered:
            await record_shown(self._session)

    async def close(self) -> None:
        """Report rows that were sent and have no outcome yet. Raises LedgerError."""
        await self._creator.close()
        await self._outcomes.close()

    # Rows and their entries

    def _list_keys(self, chunk: SortedChunk) -> list[LookupKey]:
        return want_rows(chunk.planned, [*chunk.to_create, *chunk.held], self._session.policy.identity)

    async def _sort_again(self, chunk: SortedChunk) -> None:
        chunk.is_unsure = False
        chunk.to_create, chunk.held = await self._sort(chunk.planned, [*chunk.to_create, *chunk.held])

    async def _sort(self, planned: PlannedChunk, indices: list[int]) -> tuple[dict[int, State], dict[int, Entry]]:
        """Give an outcome to all rows that have one by the ledger.

        Return the indices of rows to be created, each with the state of its entry, and the entries of rows held
        or rejected, which a look-up may still show.
        """
        identities = split_digests(planned.identities[indices])
        fingerprints = split_digests(planned.fingerprints[indices])
        digests = list(zip(identities, fingerprints, strict=True))
        base, journal = self._session.journal.base, self._session.journal
        different = await journal.ask(lambda ledger: ledger.find_changed_identities(base, digests))
        pairs = zip(indices, digests, strict=True) if different else ()  # an unchanged row ends here
        remaining = [(index, *digest) for index, digest in pairs if digest[0] in different]
        self._count_rows(Outcome.EXISTS, planned, _leave_out(indices, [index for index, _, _ in remaining]))
        others = [identity for _, identity, _ in remaining if different[identity]]
        entries = await journal.find_entries(others) if others else {}
        to_create: dict[int, State] = {}
        held, to_compare, recently_refused, unknown, opted_out = (dict[int, Entry]() for _ in range(5))
        for index, identity, fingerprint in remaining:
            entry = entries.get(identity)
            if entry is None:
                to_create[index] = State.NONE
                continue
            is_as_sent = entry.fingerprint == fingerprint
            match entry.state:
                case State.CONFIRMED:
                    (opted_out if is_as_sent else to_compare)[index] = entry
                case State.HELD:
                    held[index] = entry
                case State.REJECTED if is_as_sent:
                    held[index] = entry
                case State.REJECTED if self._refusals.may_not_show_yet(entry):
                    recently_refused[index] = entry
                case State.REJECTED | State.NONE:  # the row has changed since it was refused
                    to_create[index] = entry.state
                case State.SENDING | State.UNKNOWN:
                    unknown[index] = entry
                case _:
                    assert_never(entry.state)
        self._add_unresolved(planned, unknown)
        self._await_comparison(planned, to_compare)
        await self._check_opt_outs(planned, opted_out)
        if recently_refused:
            refused = split_digests(planned.identities[list(recently_refused)])
            await journal.ask(lambda ledger: ledger.mark_unresolved(base, refused))
            self._add_unresolved(planned, recently_refused)
        return to_create, held

    async def _refuse_rows(self, chunk: SortedChunk) -> None:
        """Remove rows from the rows to be created: rows of inactive subscribers, and rows with a mistaken id."""
        planned, tally = chunk.planned, self._session.tally
        inactive = find_inactive(self._session, planned, list(chunk.to_create))
        self._count_rows(Outcome.SUPPRESSED, planned, inactive)
        for index in inactive:
            del chunk.to_create[index]
        new = [index for index, state in chunk.to_create.items() if state is State.NONE]
        problems = await self._mistaken_ids.find_problems(planned, new, self.presence.listed)
        tally.add_taken(len(problems))
        for index, row in zip(problems, self._read(planned, problems), strict=True):
            tally.report(Problem(row.source, Outcome.INVALID, "", *problems[index]))
            del chunk.to_create[index]

    def _count_rows(self, outcome: Outcome, planned: PlannedChunk, indices: Sequence[int]) -> None:
        """Give the rows at these indices of `planned.subscribers` this outcome."""
        tally = self._session.tally
        if tally.on_rows is None:
            tally.count(outcome, len(indices))
        else:
            tally.count_positions(outcome, planned.chunk, planned.subscribers.index[list(indices)].to_numpy())

    def _await_comparison(self, planned: PlannedChunk, entries: Mapping[int, Entry]) -> None:
        """Let the rows at these indices wait for a comparison with the service, each with its entry."""
        if not entries:
            return
        session = self._session
        session.tally.add_taken(len(entries))
        rows = zip(entries.values(), self._read(planned, entries), strict=True)
        session.waiting.add(session.journal, [(row, self._find_reason(entry, row)) for entry, row in rows])

    def _find_reason(self, entry: Entry, row: LoadRow) -> Since:
        """Return why a row must be compared with the service."""
        age_s = self._session.clock.now().timestamp() - (entry.reported_at or 0.0)
        is_recent = 0 <= age_s < _REPORTED_FOR_S  # a report from a clock that was ahead proves nothing
        if entry.reported == row.fingerprint and is_recent and entry.opted_out is None:
            return Since.REPORTED
        return Since.FIRST if entry.fingerprint is None else Since.CHANGED

    async def _check_opt_outs(self, planned: PlannedChunk, unchanged: Mapping[int, Entry]) -> None:
        """Count unchanged rows whose entries are opt-outs as existing. A row that says inactive is compared with the
        service again; a row that says active ends the opt-out that its own job has recorded."""
        session = self._session
        if not unchanged:
            return
        self._count_rows(Outcome.EXISTS, planned, list(unchanged))
        rows = self._read(planned, unchanged)
        inactive = [row for row in rows if row.values.get("is_active") is False]
        session.waiting.add(session.journal, [(row, Since.OPTED_OUT) for row in inactive])
        over = [
            row.identity
            for row, entry in zip(rows, unchanged.values(), strict=True)
            if row.values.get("is_active") is True and entry.opted_out == session.source_job
        ]
        base = session.journal.base
        await session.journal.ask(lambda ledger: ledger.clear_opt_outs(base, over))

    def _find_stale(self, planned: PlannedChunk, indices: Collection[int]) -> list[int]:
        """Return the indices of rows whose existence check expired before they were sent."""
        stale = self._outcomes.pop_stale()
        if not stale:
            return []
        identities = split_digests(planned.identities[list(indices)])
        return [index for index, identity in zip(indices, identities, strict=True) if identity in stale]

    def _add_unresolved(self, planned: PlannedChunk, entries: Mapping[int, Entry]) -> None:
        """Add rows whose entries are unknown: all of them are settled before any of them is sent."""
        session = self._session
        session.tally.add_taken(len(entries))
        newer: dict[int, Unresolved] = {}
        for (index, entry), row in zip(entries.items(), self._read(planned, entries), strict=True):
            unresolved = Unresolved(
                session.clock.monotonic(), row, attempts=entry.attempts, is_refused=entry.state is State.REJECTED
            )
            unresolved = self._outcomes.add_unresolved(row.identity, unresolved)
            if entry.fingerprint != row.fingerprint:
                newer[index] = unresolved
        if not newer:
            return
        states = dict.fromkeys(newer, State.UNKNOWN)
        stream = CandidateStream(planned, list(newer), states, session.policy.identity)
        for unresolved, candidate in zip(newer.values(), stream.fetch(len(newer), session.journal.base), strict=True):
            unresolved.newer = candidate

    def _read(self, planned: PlannedChunk, indices: Iterable[int]) -> list[LoadRow]:
        return read_rows(planned, list(indices), self._session.policy.identity)

    def _fetch_while_known(self, planned: PlannedChunk, stream: CandidateStream, base: Base) -> FetchItems[Candidate]:
        """Return a function that takes candidates from the stream, as long as the look-up, and the base that the
        look-up was made in, may be relied on."""

        async def fetch(number: int) -> list[Candidate]:
            limits, present_base = self._session.limits, self._session.journal.base
            if not self.presence.covers(planned) or present_base.key != base.key:
                return []
            taken = stream.fetch(limits.allow(number), present_base, self.presence.until)
            limits.begun += len(taken)
            return taken

        return fetch

    # Unresolved entries that a new row may be

    async def _clear_unresolved(self) -> None:
        """Settle unresolved entries that may be a new row's subscriber, or raise RunAborted.

        An entry may be unresolved under another identity (email, client_user_id), or under this base when it was
        known by its id alone, or by its name alone.
        """
        session = self._session
        if self._is_clear:
            return
        if await self._has_unresolved_of_another_kind():
            await self.settler.settle()
            self.presence.forget()  # creates that were just sent again were absent when they were looked up
            if await self._has_unresolved_of_another_kind():
                if self._mode is RunMode.LOAD:
                    raise RunAborted(
                        "unresolved creates of an earlier run, by another identity, could not be settled, and a "
                        "row of this run may be one of them. No row was sent since. Run again later"
                    )
                session.tally.add_row_message(  # a plan cannot know how a load will settle the entries
                    "an earlier run, by another identity, left unresolved creates: a load settles them "
                    "first, and some rows that are planned to be created may turn out to be among them"
                )
        base = session.journal.base
        unsettled = await session.journal.ask(lambda ledger: count_unsettled_elsewhere(ledger.connection, base))
        if unsettled:
            raise RunAborted(
                f"a base that may be this one has unresolved or held creates ({unsettled:,}): one run named "
                "it by its id, another by its name, and the service has not shown yet that both are the "
                "same. Run again with the id or the name that came first, or settle them by connector "
                "retry (add --held resend or --held drop for held creates)"
            )
        self._is_clear = True

    async def _has_unresolved_of_another_kind(self) -> bool:
        base, identity = self._session.journal.base, self._session.policy.identity
        return await self._session.journal.ask(lambda ledger: ledger.has_unknown_of_another_field(base, identity))


def _leave_out(indices: list[int], others: Collection[int]) -> list[int]:
    if not others:
        return indices
    left_out = set(others)
    return [index for index in indices if index not in left_out]


def _build_problem(row: LoadRow, entry: Entry) -> Problem:
    """Return the problem of a row whose entry is held or rejected."""
    if entry.state is State.HELD:
        return Problem(row.source, Outcome.UNKNOWN, "", "held", describe_held(entry.message), None, entry.attempts)
    return Problem(
        row.source, Outcome.REJECTED, "", "rejected", entry.message or "", entry.status or None, entry.attempts
    )
