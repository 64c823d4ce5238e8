"""`connector retry`: settles unresolved, held and rejected entries of earlier runs. The ledger has the request bodies
of these entries."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import assert_never

from connector.choices import HeldDecision
from connector.fields import FIELD_NAMES
from connector.ledger.entries import Ledger, UnfinishedEntry
from connector.ledger.receipts import ReceiptKind
from connector.ledger.records import record_wrong_answer
from connector.ledger.store import Base
from connector.listing.access import KeyGroup
from connector.load.candidates import Candidate, CandidateList, build_entry_key, describe_held_row, read_body
from connector.load.lookups import UNCHECKED_SPELLINGS_MESSAGE, look_up_keys
from connector.load.resolution import Settler, read_intent, rebuild_candidate
from connector.load.session import RunMode, Session
from connector.load.unresolved import UnresolvedCreate
from connector.outcomes import Outcome
from connector.rows import LoadRow, Row, format_cell
from connector.states import State, find_traits
from connector.tally import Problem

_DROPPED_MESSAGE = "dropped by connector retry --held drop. A run sends the create again after a change of its row"


@dataclass(frozen=True, slots=True)
class RetrySelection:
    """The selection of the entries to retry, from the options of the command."""

    run_id: str | None = None  # retry only entries that this run sent last; None: retry the entries of all runs
    is_rejected: bool = False  # whether rejected entries are also retried
    held_decision: HeldDecision | None = None  # None: the entries stay held, unless a look-up shows the subscribers

    @property
    def refuses_misanswered_base(self) -> bool:
        """Whether the retry ends immediately if the service has answered a create in the base with another base. This
        is the case for a retry of rejected entries without `--held resend`."""
        return self.is_rejected and self.held_decision != "resend"

    def choose_mode(self, base: Base) -> RunMode:
        """Return LOAD if the retry may send creates, or PLAN if the retry only looks subscribers up.

        The result is PLAN if the service has answered a create in the base with another base, and no option of the
        retry asks for creates."""
        sends_creates = self.held_decision == "resend" or self.is_rejected or not base.has_wrong_answer
        return RunMode.LOAD if sends_creates else RunMode.PLAN

    def is_selected(self, entry: UnfinishedEntry) -> bool:
        """Return whether the entry is selected. If the command names a run, the entry is selected only if the named run
        was the last run that sent the entry."""
        return self.run_id in (None, entry.run_id)


async def retry_entries(session: Session, settler: Settler, selection: RetrySelection) -> None:
    """Settle the selected entries of the base. Each entry counts as a row that was read.

    Raises RunAborted (or ListFailed) if the run cannot continue.
    """
    entry_retry = _EntryRetry(session, settler, selection)
    await settler.reopen_waiting_refusals(is_resending_all=True)
    if selection.is_rejected:
        session.waiting_refusals.clear()  # `send_rejected_rows` sends these creates again
    await entry_retry.prepare_entries()
    await settler.settle(reopens_waiting_refusals=False)
    while not session.stop.is_stopping and await settler.reopen_waiting_refusals():
        await entry_retry.add_unknown_entries()  # the added creates also count as rows of this retry
        await settler.settle(reopens_waiting_refusals=False)
    if selection.is_rejected and not session.stop.is_stopping:
        await entry_retry.send_rejected_rows()
        await settler.settle()


class _EntryRetry:
    """The retry of one base's entries, state by state."""

    def __init__(self, session: Session, settler: Settler, selection: RetrySelection) -> None:
        self._session, self._settler, self._selection = session, settler, selection
        self._row_numbers: Iterator[int] = count(1)
        # A retry of rejected entries settles all entries, because no create may leave before all entries are settled.
        self._selected_identities: set[bytes] | None = (
            None if selection.run_id is None or selection.is_rejected else set()
        )
        settler.select_entries(self._selected_identities, resends_held_entries=selection.held_decision == "resend")

    async def prepare_entries(self) -> None:
        """Prepare the selected entries that wait for a retry. Apply the person's decision to HELD entries at once.
        UNKNOWN entries are settled later.

        All entries are read before the first decision, because a decision changes the state of an entry."""
        entries_by_state = {
            state: await self._find_selected_entries(state) for state in State if find_traits(state).waits_for_retry
        }
        for state, entries in entries_by_state.items():
            match state:
                case State.UNKNOWN:
                    for entry in entries:
                        self._add_unresolved_create(entry)
                case State.HELD:
                    await self._decide_held_entries(entries)
                case State.REJECTED | State.DROPPED | State.NONE | State.SENDING | State.CONFIRMED:
                    raise ValueError(f"a retry of entries in the state {state.name} is not known")
                case _:
                    assert_never(state)

    async def add_unknown_entries(self) -> None:
        """Add each unknown entry, with its row, to the entries to settle. Leave out entries that were added before."""
        unresolved_by_identity = self._settler.outcomes.unresolved_creates
        identities_with_row = {identity for identity, entry in unresolved_by_identity.items() if entry.row is not None}
        for entry in await self._find_selected_entries(State.UNKNOWN, identities_with_row):
            self._add_unresolved_create(entry)

    async def _decide_held_entries(self, held_entries: list[UnfinishedEntry]) -> None:
        """Reopen, accept or drop the held entries, as a person has decided. Without a decision, confirm the held
        entries whose subscribers a look-up shows."""
        ledger_writer = self._session.ledger_writer
        match self._selection.held_decision:
            case "resend":
                await self._reopen_entries(held_entries)
            case "accept":
                await self._accept_entries(held_entries)
            case "drop":
                identities = [entry.identity for entry in held_entries]
                await ledger_writer.execute(
                    lambda ledger: ledger.mark_dropped(ledger_writer.base, identities, _DROPPED_MESSAGE)
                )
                for entry in held_entries:
                    self._report_entry(entry, Outcome.REJECTED, "dropped", _DROPPED_MESSAGE, None)
            case None:
                for entry in await self._confirm_listed_entries(held_entries, State.HELD):
                    self._report_entry(entry, Outcome.UNKNOWN, "held", describe_held_row(entry.message), None)
            case _:
                assert_never(self._selection.held_decision)

    async def _accept_entries(self, held_entries: list[UnfinishedEntry]) -> None:
        """Confirm the held entries that have a readable answer to their create. Entries without such an answer stay
        held."""
        base = self._session.ledger_writer.base
        accepted_subscribers = [
            (entry.identity, entry.id_in_answer) for entry in held_entries if entry.id_in_answer is not None
        ]
        await self._session.ledger_writer.execute(lambda ledger: ledger.mark_accepted(base, accepted_subscribers))
        self._session.tally.count_rows(Outcome.EXISTS, len(accepted_subscribers))
        for entry in held_entries:
            if entry.id_in_answer is not None:
                self._record_receipt(entry)
            else:
                message = f"there is no answer to accept; {describe_held_row(entry.message)}"
                self._report_entry(entry, Outcome.UNKNOWN, "held", message, None)

    async def _reopen_entries(self, held_entries: list[UnfinishedEntry]) -> None:
        """Reopen the held entries that this run may send again. The other entries stay held, and a person can drop them
        later."""
        session, ledger_writer = self._session, self._session.ledger_writer
        entries_not_suppressed_by_other_jobs = [
            entry for entry in held_entries if entry.suppressing_job in (None, session.job)
        ]

        def update_ledger(ledger: Ledger) -> None:
            ledger.mark_reopened(ledger_writer.base, [entry.identity for entry in entries_not_suppressed_by_other_jobs])
            record_wrong_answer(ledger.connection, ledger_writer.base, None, None)

        await ledger_writer.execute(update_ledger)
        for entry in entries_not_suppressed_by_other_jobs:
            self._add_unresolved_create(entry)
        for entry in held_entries:
            if entry.suppressing_job not in (None, session.job):
                message = (
                    f"held: only the job {entry.suppressing_job}, which has a suppression list, may send the create "
                    "again"
                )
                self._report_entry(entry, Outcome.UNKNOWN, "held", message, None)

    async def send_rejected_rows(self) -> None:
        """Look the rejected entries up, and send absent entries again. An entry that the list may not show yet is
        settled later."""
        rejected_entries, ledger_writer = await self._find_selected_entries(State.REJECTED), self._session.ledger_writer
        recent_entries, unsent_entries = list[UnfinishedEntry](), list[UnfinishedEntry]()
        for entry in rejected_entries:
            is_recent = self._settler.refusals.is_recent_refusal(entry)
            (recent_entries if is_recent else unsent_entries).append(entry)
        identities = [entry.identity for entry in recent_entries]
        await ledger_writer.execute(lambda ledger: ledger.mark_unresolved(ledger_writer.base, identities))
        for entry in recent_entries:
            self._add_unresolved_create(entry)
        while unsent_entries and not self._session.stop.is_stopping:
            started_at = self._session.clock.monotonic()
            absent_entries = await self._confirm_listed_entries(unsent_entries, State.REJECTED, needs_proof=True)
            valid_until = self._session.policy.compute_valid_until(started_at, self._session.clock.monotonic())
            built_candidates = [self._build_candidate(entry, valid_until) for entry in absent_entries]
            candidates = CandidateList(
                [candidate for candidate in built_candidates if candidate is not None], self._session.clock.monotonic
            )
            await self._settler.send_candidates(candidates.fetch)
            unsent_identities = self._settler.outcomes.pop_stale_identities().union(
                candidate.intent.identity for candidate in candidates.unfetched_candidates
            )
            unsent_entries = [entry for entry in unsent_entries if entry.identity in unsent_identities]

    async def _find_selected_entries(
        self, state: State, excluded_identities: Collection[bytes] = ()
    ) -> list[UnfinishedEntry]:
        """Return the selected entries in this state that are not among `excluded_identities`, and count the returned
        entries as read."""
        base = self._session.ledger_writer.base
        entries = await self._session.ledger_writer.execute(lambda ledger: ledger.find_unfinished_entries(base, state))
        selected_entries = [
            entry
            for entry in entries
            if self._selection.is_selected(entry)
            if entry.identity not in excluded_identities
        ]
        self._session.tally.read_count += len(selected_entries)
        return selected_entries

    async def _confirm_listed_entries(
        self, entries: list[UnfinishedEntry], state: State, *, needs_proof: bool = False
    ) -> list[UnfinishedEntry]:
        """Confirm the entries that a look-up shows, and return the other entries. With `needs_proof`, return only
        entries that are proved absent, and reject the entries whose look-up was inconclusive."""
        if not entries:
            return []
        keys = [build_entry_key(entry, ignores_case=state is State.REJECTED) for entry in entries]
        base, tally = self._session.ledger_writer.base, self._session.tally
        found_ids, absent_identities = dict[bytes, int](), set[bytes]()

        async for lookup_part in look_up_keys([KeyGroup(self._session.list_access, keys)]):
            if lookup_part.has_unchecked_spellings and lookup_part.result.absent_identities:
                tally.add_message(UNCHECKED_SPELLINGS_MESSAGE)
            found_ids.update((identity, ids[0]) for identity, ids in lookup_part.result.found_ids.items())
            absent_identities.update(lookup_part.result.absent_identities)
        await self._session.ledger_writer.execute(
            lambda ledger: ledger.mark_found(base, state, list(found_ids.items()))
        )
        tally.settled_found_count += len(found_ids)
        tally.count_rows(Outcome.EXISTS, len(found_ids))
        unlisted_entries = [entry for entry in entries if entry.identity not in found_ids]
        if not needs_proof:
            return unlisted_entries
        for entry in unlisted_entries:
            if entry.identity not in absent_identities:
                self._reject_entry(
                    entry, "the service has not shown whether the subscriber exists, so the create was not sent again"
                )
        return [entry for entry in unlisted_entries if entry.identity in absent_identities]

    def _build_candidate(self, entry: UnfinishedEntry, valid_until: float) -> Candidate | None:
        """Return a create of a rejected entry. If a suppression list forbids the create, report the outcome and return
        None."""
        session = self._session
        sent_values = read_body(entry)
        if entry.suppressing_job not in (None, session.job):
            self._reject_entry(
                entry, f"only the job {entry.suppressing_job}, which has a suppression list, may send the create again"
            )
            return None
        if session.is_suppressed(entry.identity, sent_values):
            self._session.tally.count_rows(Outcome.SUPPRESSED, 1)
            return None
        candidate = rebuild_candidate(read_intent(entry), sent_values, session.ledger_writer.base, State.REJECTED)
        refusal = entry.status or 0, entry.message or ""
        read_source_row = partial(self._build_row, entry)
        return Candidate(candidate.intent, candidate.sent_values, read_source_row, State.REJECTED, refusal, valid_until)

    def _add_unresolved_create(self, entry: UnfinishedEntry) -> None:
        if self._selected_identities is not None:
            self._selected_identities.add(entry.identity)
        self._session.tally.add_started_rows()
        self._record_receipt(entry)
        row = LoadRow(self._build_row(entry), entry.identity, "", b"", read_body(entry))
        unresolved_create = UnresolvedCreate(self._session.clock.monotonic(), row, is_refused=entry.status is not None)
        self._settler.outcomes.add_unresolved_create(entry.identity, unresolved_create)

    def _record_receipt(self, entry: UnfinishedEntry) -> None:
        identity_text = str(read_body(entry)[entry.identity_field])
        self._session.ledger_writer.record_receipt(entry.identity, identity_text, ReceiptKind.KNOWN)

    def _reject_entry(self, entry: UnfinishedEntry, reason: str) -> None:
        message = f"{entry.message or 'rejected'}; {reason}"
        self._report_entry(entry, Outcome.REJECTED, "rejected", message, entry.status)

    def _report_entry(
        self, entry: UnfinishedEntry, outcome: Outcome, problem_code: str, message: str, status: int | None
    ) -> None:
        self._session.tally.add_started_rows()
        self._session.tally.report_problem(
            Problem(self._build_row(entry), outcome, "", problem_code, message, status, entry.attempt_count)
        )

    def _build_row(self, entry: UnfinishedEntry) -> Row:
        """Return the entry's body as a row of a rejects file, with a column for each field, so that a person can import
        the row again."""
        sent_values = read_body(entry)
        cells = tuple(format_cell(sent_values.get(name)) for name in FIELD_NAMES)
        return Row(next(self._row_numbers), f"run {entry.run_id}", FIELD_NAMES, cells)
