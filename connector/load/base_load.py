"""Takes a run's rows chunk by chunk and gives each row its outcome; then settles the entries that stayed unknown."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

import numpy as np

from connector.errors import ConfigurationError, RunAborted
from connector.ledger.entries import Entry
from connector.ledger.records import count_unsettled_elsewhere
from connector.ledger.store import Base
from connector.listing.access import LookupKey
from connector.listing.controls import is_missing_false
from connector.listing.requests import ask
from connector.load.candidates import Candidate, CandidateStream, describe_held, read_rows, want_rows
from connector.load.finishing import Finisher, RunMode
from connector.load.guards import guard_account, record_shown, refuse_misanswered, refuse_similar_base
from connector.load.mistaken_ids import MistakenIds
from connector.load.presence import BasePresence, Want
from connector.load.resolution import Unresolved
from connector.load.session import Problem, Session, Since
from connector.outcomes import Outcome
from connector.rows import LoadRow, Planned
from connector.sender import FetchItems
from connector.service.wire import LARGEST_PAGE, ListQuery
from connector.states import State
from connector.subscribers.checks import NEEDLESS_DECIMALS
from connector.subscribers.identity import split_digests

_IN_SOURCE_ORDER = 2_000
"""Rows of a chunk that are taken as they come. More are taken in the order of their identities' digests, which is the
ledger's own: it touches far fewer pages then, and costs half (28 µs a create came down to 16, among 300,000 entries 43
to 22, measured)."""

_NEEDLESS_DECIMALS = re.compile(r"[0-9]+\.0+")

_REPORTED_FOR_S = 7 * 86_400.0
"""For so long a change that was reported is taken to be there still (architecture 4.12)."""


@dataclass(slots=True)
class SortedChunk:
    """A chunk of rows for one base: the indices of rows to create, with the state of their entries, and the entries of
    held or rejected rows. `is_unsure`: a look-up may have found some of the rows since."""

    planned: Planned
    to_create: dict[int, State]
    kept: dict[int, Entry]
    is_unsure: bool = False


class Loader:
    """One load of one base: `begin`, `take` each chunk, `settle`, and `close` however it ends. `presence` has the
    subscribers that the session's survey found to exist."""

    def __init__(self, session: Session, mode: RunMode = RunMode.LOAD, presence: BasePresence | None = None) -> None:
        self._session, self._mode = session, mode
        self.finisher = Finisher(session, mode)
        self.presence = presence or BasePresence(session)
        self._mistaken_ids = MistakenIds(session)
        self._is_clear = False  # whether no unresolved entry is left that a new row might be (`_clear_unresolved`)

    async def begin(self, *, refuses_misanswered: bool = True) -> None:
        """Check that base and account are those of the ledger, and take up refusals that are not final.

        Raises ConfigurationError if a create in this base was answered as one in another base (`refuses_misanswered`),
        and RunAborted (EmptiedError, ListFailed) if the run cannot go on.
        """
        if refuses_misanswered:
            refuse_misanswered(self._session.journal.base)
        await self.finisher.settler.begin()
        self._session.access.known = await guard_account(self._session)  # others are left to sweeps
        await self.finisher.begin()
        self._session.control.check()

    async def take(self, planned: Planned) -> None:
        """Give every row of the chunk its outcome, or leave it to `settle`.

        Raises RunAborted (ListFailed among them) when the run cannot go on; rows that it did not reach are `unsent`.
        """
        chunk = await self.sort(planned)
        try:
            await self.create(chunk)
        finally:
            self.keep(chunk)

    async def sort(self, planned: Planned) -> SortedChunk:
        """Give an outcome to all rows of the chunk that the ledger decides. Then call `keep`, also after an error in
        between."""
        return SortedChunk(planned, *await self._sort(planned, _order(planned)))

    def want(self, chunk: SortedChunk) -> Want | None:
        """Return the look-up that the new rows of the chunk need, or None if no look-up is needed."""
        if not chunk.to_create or self.presence.covers(chunk.planned):
            return None
        chunk.is_unsure = True
        return Want(self.presence, chunk.planned, self._list_keys(chunk))

    async def create(self, chunk: SortedChunk) -> None:
        """Look up the subscribers of the chunk's new rows, and create the absent ones. Raises as `take` does."""
        session, planned = self._session, chunk.planned
        while chunk.to_create and not session.control.is_stopping:
            if chunk.is_unsure or not (self._is_clear and self.presence.covers(planned)):
                await self.presence.learn(planned, self._list_keys(chunk))
                await self._clear_unresolved()
                await self._sort_again(chunk)
            chunk.to_create = await self._suppress_inactive(planned, chunk.to_create)
            chunk.to_create = await self._refuse_mistaken_ids(planned, chunk.to_create)
            if chunk.to_create and session.policy.is_looking:
                refuse_similar_base(session)
            stream = CandidateStream(planned, list(chunk.to_create), chunk.to_create, session.policy.identity)
            base = session.journal.base
            await self.finisher.create(self._take_while_known(planned, stream, base))
            if stream.rest and not session.limits.allow(1):
                session.control.end(session.limits.describe_creates())
            unsent = [*self._find_stale(planned, chunk.to_create), *stream.rest]
            chunk.to_create = {index: chunk.to_create[index] for index in unsent}
            if session.journal.base.key != base.key:  # an answer has shown which base this is: ask about that one
                await self._sort_again(chunk)
        session.control.check()

    def keep(self, chunk: SortedChunk) -> None:
        """Keep rows that are held or rejected; their outcome is reported after the run's last look-up."""
        refusals = self.finisher.refusals
        self._session.tally.take(len(chunk.kept))
        for entry, row in zip(chunk.kept.values(), self._read(chunk.planned, chunk.kept), strict=True):
            is_unchecked = entry.state is State.REJECTED and refusals.is_unchecked(row.identity, entry)
            self.finisher.keep(_build_problem(row, entry), row, is_unchecked=is_unchecked)

    def _list_keys(self, chunk: SortedChunk) -> list[LookupKey]:
        return want_rows(chunk.planned, [*chunk.to_create, *chunk.kept], self._session.policy.identity)

    async def _sort_again(self, chunk: SortedChunk) -> None:
        chunk.is_unsure = False
        indices = [*chunk.to_create, *chunk.kept]
        chunk.to_create, chunk.kept = await self._sort(chunk.planned, indices)

    async def settle(self) -> None:
        """Settle the base's unknown entries, of this run and of earlier ones. Raises as `take` does."""
        await self.finisher.settle()
        if self._mode is RunMode.LOAD and self._session.canaries.is_answered:
            await record_shown(self._session)

    async def close(self) -> None:
        """Report rows that were sent and have no outcome yet. Raises LedgerError."""
        await self.finisher.close()

    async def _sort(self, planned: Planned, indices: list[int]) -> tuple[dict[int, State], dict[int, Entry]]:
        """Give an outcome to all rows that have one by the ledger.

        Return the indices of rows to be created, each with the state of its entry, and the entries of rows held
        or rejected, which a look-up may still show.
        """
        identities = split_digests(planned.identities[indices])
        fingerprints = split_digests(planned.fingerprints[indices])
        digests = list(zip(identities, fingerprints, strict=True))
        base = self._session.journal.base
        different = await self._session.journal.ask(lambda ledger: ledger.find_different(base, digests))
        rows = zip(indices, digests, strict=True) if different else ()  # an unchanged row ends here
        rest = [(index, *row) for index, row in rows if row[0] in different]
        self._count_rows(Outcome.EXISTS, planned, _leave_out(indices, [index for index, _, _ in rest]))
        others = [identity for _, identity, _ in rest if different[identity]]
        entries = await self._session.journal.ask(lambda ledger: ledger.find_entries(base, others)) if others else {}
        to_create: dict[int, State] = {}
        kept, to_compare, recently_refused, unknown, opted_out = (dict[int, Entry]() for _ in range(5))
        for index, identity, fingerprint in rest:
            entry = entries.get(identity)
            if entry is None:
                to_create[index] = State.NONE
                continue
            is_as_sent = entry.fingerprint == fingerprint
            match entry.state:
                case State.CONFIRMED:
                    (opted_out if is_as_sent else to_compare)[index] = entry
                case State.HELD:
                    kept[index] = entry
                case State.REJECTED if is_as_sent:
                    kept[index] = entry
                case State.REJECTED if self.finisher.refusals.may_not_show_yet(entry):
                    recently_refused[index] = entry
                case State.REJECTED | State.NONE:  # the row has changed since it was refused
                    to_create[index] = entry.state
                case State.SENDING | State.UNKNOWN:
                    unknown[index] = entry
                case _:
                    assert_never(entry.state)
        self._set_aside(planned, unknown)
        self._await_comparison(planned, to_compare)
        await self._check_opt_outs(planned, opted_out)
        if recently_refused:
            refused = split_digests(planned.identities[list(recently_refused)])
            await self._session.journal.ask(lambda ledger: ledger.mark_unresolved(base, refused))
            self._set_aside(planned, recently_refused)
        return to_create, kept

    async def _suppress_inactive(self, planned: Planned, indices: dict[int, State]) -> dict[int, State]:
        """Return the indices without rows that say active and whose identities the list shows as inactive. A job
        that does not suppress such rows only has them counted."""
        session, chosen = self._session, list(indices)
        if not chosen or "is_active" not in planned.subscribers:
            return indices
        is_active = planned.subscribers["is_active"].iloc[chosen].eq(True).fillna(False).to_numpy(dtype=bool)
        identities = planned.identities[chosen]
        is_inactive = session.access.inactive.find(identities) & is_active
        unclear = session.access.inactive.unclear
        if unclear is not None and (is_unclear := unclear.find(identities) & is_active & ~is_inactive).any():
            if await self._is_missing_false():
                is_inactive |= is_unclear
            elif session.policy.is_suppressing_inactive:
                session.tally.unclear += int(is_unclear.sum())
                is_inactive |= is_unclear
        found = [index for index, is_found in zip(chosen, is_inactive.tolist(), strict=True) if is_found]
        if not session.policy.is_suppressing_inactive:
            session.access.inactive.reactivated.update(split_digests(planned.identities[found]))
            return indices
        self._count_rows(Outcome.SUPPRESSED, planned, found)
        return {index: indices[index] for index in _leave_out(chosen, found)}

    async def _is_missing_false(self) -> bool:
        """Return whether a subscriber that the list shows without IsActive is inactive. Ask once in a run. Raises
        ConfigurationError if the job suppresses inactive subscribers, and no row shows an IsActive that can be read."""
        access, state = self._session.access, self._session.access.state
        if state.is_missing_false is None:
            queries = [ListQuery(limit=LARGEST_PAGE, is_active=value) for value in (False, True)]
            pages = [list((await self._session.control.until_stopped(ask(access, each))).rows) for each in queries]
            state.is_missing_false = is_missing_false(*pages)
            is_readable = any(isinstance(row.get("IsActive"), bool) for rows in pages for row in rows)
            if not (state.is_missing_false or is_readable) and self._session.policy.is_suppressing_inactive:
                raise ConfigurationError(
                    "the job has suppress: {inactive: true}, and no row of the list shows an IsActive that can be "
                    "read, so nothing tells who has unsubscribed. No more rows were sent. Name the people who have "
                    "unsubscribed in suppress.file, and take suppress.inactive out of the job"
                )
        return state.is_missing_false

    async def _refuse_mistaken_ids(self, planned: Planned, indices: dict[int, State]) -> dict[int, State]:
        """Return the indices without rows whose subscriber is probably in the base under another client_user_id. These
        rows are reported as invalid."""
        session, listed = self._session, self.presence.listed
        if session.policy.identity != "client_user_id" or not session.policy.is_looking:
            return indices
        new = [index for index, left in indices.items() if left is State.NONE]
        texts = dict(zip(new, planned.subscribers["client_user_id"].iloc[new].tolist(), strict=True))
        known = await self._mistaken_ids.find(list(texts.values()), is_listed=listed is not None)
        problems = {
            index: ("id", f"ClientUserId {NEEDLESS_DECIMALS}")
            for index, text in texts.items()
            if _NEEDLESS_DECIMALS.fullmatch(text)
        }
        problems |= {
            index: ("other_spelling", f"'{text}' looks like the known id '{known[text]}': correct the column")
            for index, text in texts.items()
            if text in known
        }
        if "email" in planned.subscribers:
            rest = [index for index in new if index not in problems]
            emails = dict(zip(rest, planned.subscribers["email"].iloc[rest].tolist(), strict=True))
            emails = {index: email for index, email in emails.items() if isinstance(email, str) and email.strip()}
            others = await self._mistaken_ids.find_emails(list(emails.values()), listed)
            for index, email in emails.items():
                if email in others:
                    words = f"'{email}' is in the base already, with the client_user_id '{others[email]}'"
                    problems[index] = "other_id", f"{words}: correct the id, or the email"
        for index, row in zip(problems, self._read(planned, problems), strict=True):
            session.tally.report(Problem(row.source, Outcome.INVALID, "", *problems[index]))
        return {index: left for index, left in indices.items() if index not in problems}

    def _count_rows(self, outcome: Outcome, planned: Planned, indices: Sequence[int]) -> None:
        """Give the rows at these indices of `planned.subscribers` this outcome."""
        tally = self._session.tally
        if tally.on_rows is None:
            tally.count(outcome, len(indices))
        else:
            tally.count_positions(outcome, planned.chunk, planned.subscribers.index[list(indices)].to_numpy())

    def _await_comparison(self, planned: Planned, waiting: Mapping[int, Entry]) -> None:
        """Let the rows at these indices wait for a comparison with the service, each with its entry."""
        if not waiting:
            return
        session = self._session
        session.tally.take(len(waiting))
        rows = zip(waiting.values(), self._read(planned, waiting), strict=True)
        session.waiting.add(session.journal, [(row, self._why(entry, row.fingerprint)) for entry, row in rows])

    async def _check_opt_outs(self, planned: Planned, unchanged: Mapping[int, Entry]) -> None:
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

    def _why(self, entry: Entry, fingerprint: bytes) -> Since:
        """Return why a row with this fingerprint is to be compared."""
        ago_s = self._session.clock.now().timestamp() - (entry.reported_at or 0.0)
        is_late = 0 <= ago_s < _REPORTED_FOR_S  # from a clock that was ahead, it says nothing
        if entry.reported == fingerprint and is_late and entry.opted_out is None:
            return Since.REPORTED
        return Since.FIRST if entry.fingerprint is None else Since.CHANGED

    def _find_stale(self, planned: Planned, indices: dict[int, State]) -> list[int]:
        """Return the indices of rows whose existence check expired before they were sent."""
        stale = self.finisher.take_stale()
        if not stale:
            return []
        identities = split_digests(planned.identities[list(indices)])
        return [index for index, identity in zip(indices, identities, strict=True) if identity in stale]

    def _set_aside(self, planned: Planned, unknown: Mapping[int, Entry]) -> None:
        """Take up rows whose entries are unknown: they are settled before any of them is sent."""
        session = self._session
        session.tally.take(len(unknown))
        newer: dict[int, Unresolved] = {}
        for (index, entry), row in zip(unknown.items(), self._read(planned, unknown), strict=True):
            unresolved = self.finisher.unresolved.setdefault(
                row.identity,
                Unresolved(
                    session.clock.monotonic(), attempts=entry.attempts, is_refused=entry.state is State.REJECTED
                ),
            )
            unresolved.row = row
            if entry.fingerprint != row.fingerprint:
                newer[index] = unresolved
        if not newer:
            return
        left = dict.fromkeys(newer, State.UNKNOWN)
        stream = CandidateStream(planned, list(newer), left, session.policy.identity)
        for unresolved, candidate in zip(newer.values(), stream.take(len(newer), session.journal.base), strict=True):
            unresolved.newer = candidate

    def _read(self, planned: Planned, indices: Iterable[int]) -> list[LoadRow]:
        return read_rows(planned, list(indices), self._session.policy.identity)

    def _take_while_known(self, planned: Planned, stream: CandidateStream, base: Base) -> FetchItems[Candidate]:
        """Take from the stream as long as the look-up, and the base that it was made in, may be relied on."""

        async def take(number: int) -> list[Candidate]:
            limits, now = self._session.limits, self._session.journal.base
            if not self.presence.covers(planned) or now.key != base.key:
                return []
            taken = stream.take(limits.allow(number), now, self.presence.until)
            limits.begun += len(taken)
            return taken

        return take

    async def _clear_unresolved(self) -> None:
        """Settle unresolved entries that may be a new row's subscriber, or raise RunAborted.

        An entry may be unresolved under another identity (email, client_user_id), or under this base when it was
        known by its id alone, or by its name alone.
        """
        session = self._session
        if self._is_clear:
            return
        if await self._has_unresolved_of_another_kind():
            await self.finisher.settle()
            self.presence.forget()  # a subscriber that was just sent again was absent when it was gained
            if await self._has_unresolved_of_another_kind():
                self._refuse_unresolved()
        base = session.journal.base
        unsettled = await session.journal.ask(lambda ledger: count_unsettled_elsewhere(ledger.connection, base))
        if unsettled:
            self._refuse_unsettled_elsewhere(unsettled)
        self._is_clear = True

    def _refuse_unresolved(self) -> None:
        """Refuse the plan. A plan settles no entry, and cannot know how a load will settle it."""
        if self._mode is RunMode.LOAD:
            raise RunAborted(
                "unresolved creates of an earlier run, by another identity, could not be settled, and a "
                "row of this run may be one of them. No row was sent since. Run again later"
            )
        self._session.tally.say_of_rows(
            "an earlier run, by another identity, left unresolved creates: a load settles them "
            "first, and some rows that are planned to be created may turn out to be among them"
        )

    def _refuse_unsettled_elsewhere(self, number: int) -> None:
        """Refuse the load. An earlier run named what may be this base in the other way, so its entries may be new
        rows."""
        raise RunAborted(
            f"a base that may be this one has unresolved or held creates ({number:,}): one run named "
            "it by its id, another by its name, and the service has not shown yet that both are the "
            "same. Run again with the id or the name that came first, or settle them by connector "
            "retry (add --held resend or --held drop for held creates)"
        )

    async def _has_unresolved_of_another_kind(self) -> bool:
        base, identity = self._session.journal.base, self._session.policy.identity
        return await self._session.journal.ask(lambda ledger: ledger.has_unknown_of_another_kind(base, identity))


def _leave_out(indices: list[int], others: list[int]) -> list[int]:
    if not others:
        return indices
    left_out = set(others)
    return [index for index in indices if index not in left_out]


def _order(planned: Planned) -> list[int]:
    """The indices of a chunk's rows in the order in which they are looked up in the ledger, and sent."""
    number = len(planned.identities)
    return list(range(number)) if number <= _IN_SOURCE_ORDER else np.argsort(planned.identities).tolist()


def _build_problem(row: LoadRow, entry: Entry) -> Problem:
    """Return the problem of a row whose entry is held or rejected."""
    if entry.state is State.HELD:
        return Problem(row.source, Outcome.UNKNOWN, "", "held", describe_held(entry.message), None, entry.attempts)
    return Problem(
        row.source, Outcome.REJECTED, "", "rejected", entry.message or "", entry.status or None, entry.attempts
    )
