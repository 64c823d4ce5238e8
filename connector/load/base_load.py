"""Loads the rows of one base chunk by chunk, so that each row gets an outcome. Then settles the unknown entries of the
base."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import assert_never

import numpy as np

from connector.errors import RunAborted
from connector.ledger.entries import Entry, Ledger
from connector.ledger.receipts import ReceiptKind, find_runs_in_outbox
from connector.ledger.records import count_unsettled_entries_of_possible_duplicate_bases
from connector.ledger.store import Base
from connector.listing.access import LookupKey
from connector.load.candidates import (
    Candidate,
    CandidateStream,
    SendCandidates,
    describe_held_row,
    read_body,
    read_rows,
)
from connector.load.checks import record_shown_subscriber, refuse_misanswered_base, refuse_similar_base, verify_account
from connector.load.creates import Creator, plan_creates
from connector.load.new_rows import MistakenIds, find_inactive_indexes
from connector.load.outcomes import Outcomes
from connector.load.presence import BasePresence, LookupTask
from connector.load.refusals import EarlierRefusals
from connector.load.resolution import Settler
from connector.load.session import CompareReason, RunMode, Session
from connector.load.unresolved import UnresolvedCreate
from connector.outcomes import Outcome
from connector.rows import LoadRow, PlannedChunk
from connector.states import State, find_traits
from connector.subscribers.identity import split_digests
from connector.tally import Problem

_LARGEST_SMALL_CHUNK = 2_000
"""The largest chunk (in rows) that is processed in the order of the source. The rows of a larger chunk are sorted by
digest, like the entries in the ledger. The creates of sorted rows change far fewer pages of the database, and take
about half the time (measured).
"""

_MAX_AGE_OF_REPORTED_DIFFERENCE_S = 7 * 86_400.0
"""If a run has reported a row as changed, later runs do not compare the row for this number of seconds (architecture
4.12). A week is an estimate: a person has time to correct the subscriber, and a forgotten difference is reported
again."""


@dataclass(slots=True)
class ClassifiedChunk:
    """A chunk of rows for one base. The dicts have the rows without an outcome: rows to create, and rows whose entries
    are HELD, REJECTED or DROPPED."""

    planned_chunk: PlannedChunk
    state_by_row_index: dict[int, State]  # the state of the entry of each row to create
    held_or_rejected_entry_by_row_index: dict[int, Entry]
    is_outdated: bool = False  # whether the entries of these rows may have changed after the dicts were made


class Loader:
    """The load of one base. Call `begin` first, `classify_chunk`, `create_new_rows` and `postpone_rows` for each chunk,
    and then `settle`. Call `close` in any case. If the run has planned all rows before this load (the survey),
    `presence` has the results of the survey's look-ups."""

    def __init__(self, session: Session, mode: RunMode = RunMode.LOAD, presence: BasePresence | None = None) -> None:
        self._session, self._mode = session, mode
        self.presence = presence or BasePresence(session)
        self._outcomes, self._refusals = Outcomes(session, mode), EarlierRefusals(session)
        self._send_candidates: SendCandidates = (
            Creator(session, self._outcomes).create_subscribers
            if mode is RunMode.LOAD
            else partial(plan_creates, session, self._outcomes)
        )
        self.settler = Settler(session, mode, self._outcomes, self._refusals, self._send_candidates)
        self._mistaken_ids = MistakenIds(session)
        # Whether `_settle_conflicts` has proved that no unresolved entry is for the subscriber of a new row.
        self._is_free_of_conflicts = False

    async def begin(self, *, refuses_misanswered_base: bool = True) -> None:
        """Verify the base and the account, and choose the earlier refusals that this run sends again.

        Raises RunAborted (EmptiedListError, ListFailed) if the run cannot continue. With `refuses_misanswered_base`,
        raises ConfigurationError if the service answered a create in this base with another base.
        """
        session = self._session
        if refuses_misanswered_base:
            refuse_misanswered_base(session.ledger_writer.base)
        await self.settler.read_lag()
        # A complete sweep must show one of these entries.
        session.list_access.unverified_entries = await verify_account(session)
        await self._refusals.choose_retried_refusals()
        self._outcomes.add_earlier_refusals(
            session.retried_refusals, self._refusals.find_recently_refused_identities(session.retried_refusals.values())
        )
        await self._record_unresolved_rows()
        session.stop.raise_if_stop_requested()

    async def _record_unresolved_rows(self) -> None:
        """Record a receipt for each unknown create of an earlier run, because this run settles these creates.

        Skip a create whose run has undelivered receipts, because one of these receipts is for this create."""
        ledger_writer, base = self._session.ledger_writer, self._session.ledger_writer.base
        if not ledger_writer.has_receipts:
            return
        unknown_entries = await ledger_writer.execute(
            lambda ledger: ledger.find_unfinished_entries(base, State.UNKNOWN)
        )
        runs_with_undelivered_receipts = await ledger_writer.execute(
            lambda ledger: find_runs_in_outbox(ledger.connection)
        )
        for entry in unknown_entries:
            if entry.run_key not in runs_with_undelivered_receipts:
                ledger_writer.record_receipt(
                    entry.identity, str(read_body(entry)[entry.identity_field]), ReceiptKind.KNOWN
                )

    async def classify_chunk(self, planned_chunk: PlannedChunk) -> ClassifiedChunk:
        """Give an outcome to each row of the chunk whose outcome follows from the ledger, and return the other rows.
        Call `postpone_rows` later in any case, even after an error.
        """
        row_count = len(planned_chunk.identities)
        is_small_chunk = row_count <= _LARGEST_SMALL_CHUNK
        indexes = list(range(row_count)) if is_small_chunk else np.argsort(planned_chunk.identities).tolist()
        return ClassifiedChunk(planned_chunk, *await self._classify_rows(planned_chunk, indexes))

    def plan_lookup(self, chunk: ClassifiedChunk) -> LookupTask | None:
        """Return the look-up that the new rows of the chunk need, or None if no look-up is needed."""
        if not chunk.state_by_row_index or self.presence.covers_chunk(chunk.planned_chunk):
            return None
        chunk.is_outdated = True
        return self._build_lookup_task(chunk)

    async def create_new_rows(self, chunk: ClassifiedChunk) -> None:
        """Look up the subscribers of the chunk's new rows, and create the absent subscribers.

        Raises RunAborted (or ListFailed) if the run cannot continue. Rows that the run has not reached are `unsent`.
        """
        session, planned_chunk = self._session, chunk.planned_chunk
        while chunk.state_by_row_index and not session.stop.is_stopping:
            if chunk.is_outdated or not (self._is_free_of_conflicts and self.presence.covers_chunk(planned_chunk)):
                await self.presence.account.look_up([self._build_lookup_task(chunk)])
                await self._settle_conflicts()
                await self._classify_rows_again(chunk)
            await self._refuse_rows(chunk)
            if chunk.state_by_row_index and session.policy.looks_up_first:
                refuse_similar_base(session)
            candidate_stream = CandidateStream(planned_chunk, chunk.state_by_row_index, session.policy.identity_field)
            base = session.ledger_writer.base
            await self._send_candidates(partial(self._fetch_candidates, planned_chunk, candidate_stream, base))
            if candidate_stream.unfetched_indexes and not session.create_limits.compute_sendable_row_count(1):
                session.stop.request_stop(session.create_limits.describe_reached_limit())
            unsent_indexes = [
                *self._find_expired_rows(planned_chunk, chunk.state_by_row_index),
                *candidate_stream.unfetched_indexes,
            ]
            chunk.state_by_row_index = {index: chunk.state_by_row_index[index] for index in unsent_indexes}
            # If an answer has shown the Id of the base, the run must read the entries that the ledger has for this Id.
            if session.ledger_writer.base.key != base.key:
                await self._classify_rows_again(chunk)
        session.stop.raise_if_stop_requested()

    def postpone_rows(self, chunk: ClassifiedChunk) -> None:
        """Postpone the rows whose entries are HELD, REJECTED or DROPPED. The run reports the outcomes of these rows
        after its last look-up."""
        self._session.tally.add_started_rows(len(chunk.held_or_rejected_entry_by_row_index))
        rows = self._read_rows(chunk.planned_chunk, chunk.held_or_rejected_entry_by_row_index)
        for entry, row in zip(chunk.held_or_rejected_entry_by_row_index.values(), rows, strict=True):
            is_unchecked = find_traits(entry.state).counts_as_rejected and self._refusals.is_unchecked(
                row.identity, entry
            )
            self._outcomes.postpone_row(_build_problem(row, entry), row, is_unchecked=is_unchecked)
            self._session.ledger_writer.record_receipt(row.identity, row.identity_text, ReceiptKind.KNOWN)

    async def settle(self) -> None:
        """Settle the base's unknown entries of this run and of earlier runs. Raises as `create_new_rows` does."""
        await self.settler.settle()
        if self._mode is RunMode.LOAD and self._session.canaries.has_accepted_create:
            await record_shown_subscriber(self._session)

    async def close(self) -> None:
        """Report the rows that were sent and have no outcome yet. Raises LedgerError."""
        await self._outcomes.close()

    # Give outcomes to rows by the states of their entries

    def _build_lookup_task(self, chunk: ClassifiedChunk) -> LookupTask:
        """Return the look-up of the chunk's rows without an outcome. The look-up is case-insensitive."""
        planned_chunk, field = chunk.planned_chunk, self._session.policy.identity_field
        indexes = [*chunk.state_by_row_index, *chunk.held_or_rejected_entry_by_row_index]
        identities = split_digests(planned_chunk.identities[indexes])
        texts = planned_chunk.subscribers[field].iloc[indexes].tolist()
        keys = [
            LookupKey(identity, field, str(text), ignores_case=True)
            for identity, text in zip(identities, texts, strict=True)
        ]
        return LookupTask(self.presence, planned_chunk, keys)

    async def _classify_rows_again(self, chunk: ClassifiedChunk) -> None:
        chunk.is_outdated = False
        chunk.state_by_row_index, chunk.held_or_rejected_entry_by_row_index = await self._classify_rows(
            chunk.planned_chunk, [*chunk.state_by_row_index, *chunk.held_or_rejected_entry_by_row_index]
        )

    async def _classify_rows(
        self, planned_chunk: PlannedChunk, indexes: list[int]
    ) -> tuple[dict[int, State], dict[int, Entry]]:
        """Give an outcome to each row whose outcome follows from the ledger.

        Return two dicts by the index of the row: the states of the entries of rows to create, and HELD, REJECTED or
        DROPPED entries. A look-up may still show the subscribers of the entries in the second dict.
        """
        identities = split_digests(planned_chunk.identities[indexes])
        fingerprints = split_digests(planned_chunk.fingerprints[indexes])
        digest_pairs = list(zip(identities, fingerprints, strict=True))
        base, ledger_writer = self._session.ledger_writer.base, self._session.ledger_writer
        has_entry_by_identity = await ledger_writer.execute(
            lambda ledger: ledger.find_identities_of_changed_rows(base, digest_pairs)
        )
        # If `has_entry_by_identity` is empty, no row has changed, so no loop over all rows is needed.
        indexed_digest_pairs = zip(indexes, digest_pairs, strict=True) if has_entry_by_identity else ()
        changed_rows = [
            (index, *digest_pair)
            for index, digest_pair in indexed_digest_pairs
            if digest_pair[0] in has_entry_by_identity
        ]
        changed_indexes = {index for index, _, _ in changed_rows}
        unchanged_indexes = [index for index in indexes if index not in changed_indexes]
        self._record_outcome(Outcome.EXISTS, planned_chunk, unchanged_indexes)
        identities_with_entry = [identity for _, identity, _ in changed_rows if has_entry_by_identity[identity]]
        entries = await ledger_writer.find_entries(identities_with_entry) if identities_with_entry else {}
        state_by_row_index: dict[int, State] = {}
        (
            held_or_rejected_entry_by_row_index,
            entries_to_compare,
            recently_refused_entries,
            unknown_entries,
            opt_out_entries,
        ) = (dict[int, Entry]() for _ in range(5))
        for index, identity, fingerprint in changed_rows:
            entry = entries.get(identity)
            if entry is None:
                state_by_row_index[index] = State.NONE
                continue
            is_unchanged = entry.fingerprint == fingerprint
            match entry.state:
                case State.CONFIRMED:
                    (opt_out_entries if is_unchanged else entries_to_compare)[index] = entry
                case State.HELD:
                    held_or_rejected_entry_by_row_index[index] = entry
                case State.REJECTED | State.DROPPED if is_unchanged:
                    held_or_rejected_entry_by_row_index[index] = entry
                case State.REJECTED | State.DROPPED if self._refusals.is_recent_refusal(entry):
                    recently_refused_entries[index] = entry
                case State.REJECTED | State.DROPPED | State.NONE:  # a rejected or dropped row has changed since then
                    state_by_row_index[index] = entry.state
                case State.SENDING | State.UNKNOWN:
                    unknown_entries[index] = entry
                case _:
                    assert_never(entry.state)
        self._add_unresolved_creates(planned_chunk, unknown_entries)
        self._add_waiting_rows(planned_chunk, entries_to_compare)
        await self._check_opt_outs(planned_chunk, opt_out_entries)
        if recently_refused_entries:
            refused_identities = split_digests(planned_chunk.identities[list(recently_refused_entries)])
            states = [entry.state for entry in recently_refused_entries.values()]

            def mark_unresolved(ledger: Ledger) -> None:
                for state in set(states):
                    identities_and_states = zip(refused_identities, states, strict=True)
                    identities_of_state = [
                        identity for identity, old_state in identities_and_states if old_state is state
                    ]
                    ledger.mark_unresolved(base, identities_of_state, state)

            await ledger_writer.execute(mark_unresolved)
            self._add_unresolved_creates(planned_chunk, recently_refused_entries)
        return state_by_row_index, held_or_rejected_entry_by_row_index

    async def _refuse_rows(self, chunk: ClassifiedChunk) -> None:
        """Remove the rows of inactive subscribers, and the rows with a mistaken client_user_id, from the rows to
        create. Report the removed rows."""
        planned_chunk, tally = chunk.planned_chunk, self._session.tally
        inactive_indexes = find_inactive_indexes(self._session, planned_chunk, list(chunk.state_by_row_index))
        self._record_outcome(Outcome.SUPPRESSED, planned_chunk, inactive_indexes)
        for index in inactive_indexes:
            del chunk.state_by_row_index[index]
        new_row_indexes = [index for index, state in chunk.state_by_row_index.items() if state is State.NONE]
        problems = await self._mistaken_ids.find_mistaken_ids(
            planned_chunk, new_row_indexes, self.presence.listing_rows
        )
        tally.add_started_rows(len(problems))
        for index, row in zip(problems, self._read_rows(planned_chunk, problems), strict=True):
            tally.report_problem(Problem(row.source, Outcome.INVALID, "", *problems[index]))
            del chunk.state_by_row_index[index]

    def _record_outcome(self, outcome: Outcome, planned_chunk: PlannedChunk, indexes: Sequence[int]) -> None:
        """Give this outcome to the rows at these indexes of `planned_chunk.subscribers`."""
        tally = self._session.tally
        if tally.recorder.needs_all_rows:
            positions = planned_chunk.subscribers.index[list(indexes)].to_numpy()
            tally.count_rows_at_positions(outcome, planned_chunk.chunk, positions)
        else:
            tally.count_rows(outcome, len(indexes))

    def _add_waiting_rows(self, planned_chunk: PlannedChunk, entries: Mapping[int, Entry]) -> None:
        """Add rows to the rows that wait for a comparison with the service. `entries` contains the entry of each row,
        by the index of the row."""
        if not entries:
            return
        session = self._session
        session.tally.add_started_rows(len(entries))
        entries_and_rows = zip(entries.values(), self._read_rows(planned_chunk, entries), strict=True)
        session.waiting_rows.add(
            session.ledger_writer, [(row, self._find_compare_reason(entry, row)) for entry, row in entries_and_rows]
        )

    def _find_compare_reason(self, entry: Entry, row: LoadRow) -> CompareReason:
        age_s = self._session.clock.now().timestamp() - (entry.reported_at or 0.0)
        is_recent = 0 <= age_s < _MAX_AGE_OF_REPORTED_DIFFERENCE_S  # a negative age comes from a clock that was ahead
        if entry.reported_fingerprint == row.fingerprint and is_recent and entry.opt_out_job is None:
            return CompareReason.REPORTED
        return CompareReason.NEVER_COMPARED if entry.fingerprint is None else CompareReason.CHANGED

    async def _check_opt_outs(self, planned_chunk: PlannedChunk, unchanged_entries: Mapping[int, Entry]) -> None:
        """Give the outcome EXISTS to these unchanged rows, whose entries have an opt-out. A row with `is_active` false
        also waits for a comparison, which shows whether the opt-out has ended. A row with `is_active` true ends the
        opt-out if this job has recorded the opt-out."""
        session = self._session
        if not unchanged_entries:
            return
        self._record_outcome(Outcome.EXISTS, planned_chunk, list(unchanged_entries))
        rows = self._read_rows(planned_chunk, unchanged_entries)
        inactive_rows = [row for row in rows if row.values.get("is_active") is False]
        session.waiting_rows.add(session.ledger_writer, [(row, CompareReason.OPTED_OUT) for row in inactive_rows])
        ended_opt_out_identities = [
            row.identity
            for row, entry in zip(rows, unchanged_entries.values(), strict=True)
            if row.values.get("is_active") is True and entry.opt_out_job == session.source_job
        ]
        base = session.ledger_writer.base
        await session.ledger_writer.execute(lambda ledger: ledger.clear_opt_outs(base, ended_opt_out_identities))

    def _find_expired_rows(self, planned_chunk: PlannedChunk, indexes: Collection[int]) -> list[int]:
        stale_identities = self._outcomes.pop_stale_identities()
        if not stale_identities:
            return []
        identities = split_digests(planned_chunk.identities[list(indexes)])
        return [index for index, identity in zip(indexes, identities, strict=True) if identity in stale_identities]

    def _add_unresolved_creates(self, planned_chunk: PlannedChunk, entries: Mapping[int, Entry]) -> None:
        """Add an unresolved create for each row in `entries`. `entries` contains the entry of each row, by the index of
        the row. Before the run sends a create again, it settles all unresolved creates."""
        session = self._session
        session.tally.add_started_rows(len(entries))
        unresolved_create_by_index: dict[int, UnresolvedCreate] = {}
        for (index, entry), row in zip(entries.items(), self._read_rows(planned_chunk, entries), strict=True):
            unresolved_create = UnresolvedCreate(
                session.clock.monotonic(),
                row,
                attempt_count=entry.attempt_count,
                is_refused=find_traits(entry.state).counts_as_rejected,
            )
            unresolved_create = self._outcomes.add_unresolved_create(row.identity, unresolved_create)
            if entry.fingerprint != row.fingerprint:
                unresolved_create_by_index[index] = unresolved_create
        if not unresolved_create_by_index:
            return
        state_by_row_index = dict.fromkeys(unresolved_create_by_index, State.UNKNOWN)
        candidate_stream = CandidateStream(planned_chunk, state_by_row_index, session.policy.identity_field)
        candidates = candidate_stream.fetch(len(unresolved_create_by_index), session.ledger_writer.base)
        for unresolved_create, candidate in zip(unresolved_create_by_index.values(), candidates, strict=True):
            unresolved_create.newer_intent, unresolved_create.newer_values = candidate.intent, candidate.sent_values

    def _read_rows(self, planned_chunk: PlannedChunk, indexes: Iterable[int]) -> list[LoadRow]:
        return read_rows(planned_chunk, list(indexes), self._session.policy.identity_field)

    async def _fetch_candidates(
        self, planned_chunk: PlannedChunk, candidate_stream: CandidateStream, base: Base, max_count: int
    ) -> list[Candidate]:
        """Return the next candidates, at most `max_count`. Return no candidate after the look-up has expired, or after
        an answer has changed the base."""
        create_limits, current_base = self._session.create_limits, self._session.ledger_writer.base
        if not self.presence.covers_chunk(planned_chunk) or current_base.key != base.key:
            return []
        candidates = candidate_stream.fetch(
            create_limits.compute_sendable_row_count(max_count), current_base, self.presence.valid_until
        )
        create_limits.sent_count += len(candidates)
        return candidates

    # Unresolved entries that may be for the subscriber of a new row

    async def _settle_conflicts(self) -> None:
        """Settle the unresolved entries that may be for the subscriber of a new row. Raise RunAborted if unresolved
        entries remain.

        Two kinds of entries may be for this subscriber. Some entries have another identity field than the row, for
        example `email` and not `client_user_id`. Other entries exist because the ledger has this base twice: once with
        only its id, and once with only its name.
        """
        session = self._session
        if self._is_free_of_conflicts:
            return
        if await self._has_unresolved_creates_of_another_field():
            await self.settler.settle()
            self.presence.forget_look_up()  # the look-up does not show subscribers that were created after it
            if await self._has_unresolved_creates_of_another_field():
                if self._mode is RunMode.LOAD:
                    raise RunAborted(
                        "an earlier run with another identity field has unresolved creates, and this run could not "
                        "resolve these creates. A row of this run may be for the same subscriber, so no further row "
                        "was sent. Run again later"
                    )
                session.tally.add_row_message(  # only a load settles the entries, and a plan does not
                    "an earlier run with another identity field has unresolved creates. A load resolves these creates "
                    "first, and may then find that the subscribers of some planned rows exist"
                )
        base = session.ledger_writer.base
        unsettled_count = await session.ledger_writer.execute(
            lambda ledger: count_unsettled_entries_of_possible_duplicate_bases(ledger.connection, base)
        )
        if unsettled_count:
            raise RunAborted(
                "the ledger may have this base twice, because one run named the base by its id and another run by its "
                f"name. The other base in the ledger has {unsettled_count:,} unresolved or held creates. The service "
                "has not shown yet whether both are the same base. Run again with the id or the name that came first, "
                "or resolve the creates with connector retry (add --held resend or --held drop for held creates)"
            )
        self._is_free_of_conflicts = True

    async def _has_unresolved_creates_of_another_field(self) -> bool:
        base, identity_field = self._session.ledger_writer.base, self._session.policy.identity_field
        return await self._session.ledger_writer.execute(
            lambda ledger: ledger.has_unknown_entry_of_another_field(base, identity_field)
        )


def _build_problem(row: LoadRow, entry: Entry) -> Problem:
    match entry.state:
        case State.HELD:
            message = describe_held_row(entry.message)
            return Problem(row.source, Outcome.UNKNOWN, "", "held", message, None, entry.attempt_count)
        case State.REJECTED:
            message = entry.message or ""
            return Problem(row.source, Outcome.REJECTED, "", "rejected", message, entry.status, entry.attempt_count)
        case State.DROPPED:
            message = entry.message or ""
            return Problem(row.source, Outcome.REJECTED, "", "dropped", message, None, entry.attempt_count)
        case State.NONE | State.SENDING | State.UNKNOWN | State.CONFIRMED:
            raise ValueError(f"the row of an entry in the state {entry.state.name} is not a problem")
    assert_never(entry.state)
