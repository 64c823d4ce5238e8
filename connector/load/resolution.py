"""Settles the unresolved entries of a base together. One look-up proves presence. Absence needs the proof of
architecture 4.5.

- A subscriber is present if a look-up shows the subscriber.
- A subscriber is absent if two look-ups in a row do not find the subscriber. The first look-up begins a quiet period
  after the attempt ended (or after this run found the entry), the second look-up a quiet period later.
- The second look-up must show a confirmed create: another create of this run, which the service confirmed after the
  attempt. A list that shows this newer subscriber would also show the subscriber of the attempt. Without a confirmed
  create, twice the largest recorded lag of the account must have passed.
- A create that got a 429 has no later effect. So one look-up proves absence if it shows a subscriber whose create left
  after the 429. A list of several pages is read twice in this case, without a wait between the readings.
- A subscriber that another program may have created is looked up in any spelling (architecture 4.7).

If the subscriber is absent, the create is sent again or held. If the subscriber is on the suppression list now, the
create is given up. Entries that stay unknown are looked up again.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, assert_never

from connector.ledger.entries import Intent, Ledger, UnfinishedEntry
from connector.ledger.records import read_largest_lag, record_lag
from connector.ledger.store import Base
from connector.listing.access import ConfirmedCreate, KeyGroup, LookupKey, LookupResult, find_latest_confirmation_time
from connector.listing.answered import find_existing_ids
from connector.listing.lookup import is_group_shown
from connector.load.candidates import Candidate, CandidateList, SendCandidates, build_entry_key, read_body
from connector.load.lookups import UNCHECKED_SPELLINGS_MESSAGE, LookupPart, look_up_keys
from connector.load.outcomes import Outcomes
from connector.load.refusals import EarlierRefusals
from connector.load.session import RunMode, Session
from connector.load.unresolved import UnresolvedCreate
from connector.service.wire import encode_subscriber
from connector.states import Event, NoResendEvent, State

# The message about a rejected entry begins with this text. The message of the refusal follows.
_PROVED_ABSENT_MESSAGE = "look-ups showed that no attempt took effect"
_PAUSE_AFTER_REFUSAL_S = 1.0  # seconds to wait after the service has refused a create again
# After this number of consecutive look-ups that settle no entry, the entries stay unknown.
_MAX_LOOK_UPS_WITHOUT_SETTLED_ENTRY = 20
_MAX_INCONCLUSIVE_LOOK_UPS = 5  # after this number of consecutive inconclusive look-ups, the entries stay unknown


@dataclass(slots=True)
class _LookUp:
    """One look-up of unresolved entries."""

    entries: dict[bytes, UnfinishedEntry]  # by identity
    started_at: float  # monotonic
    ended_at: float = 0.0  # monotonic
    found_count: int = 0  # number of entries whose subscribers were found
    absent_entries: list[UnfinishedEntry] = field(default_factory=list)  # entries that are proved absent
    is_conclusive: bool = False


class Settler:
    """Settles the UNKNOWN entries of one base. The results go to `outcomes`, and `send_candidates` sends absent entries
    again. A plan makes one look-up, and sends nothing."""

    def __init__(
        self,
        session: Session,
        mode: RunMode,
        outcomes: Outcomes,
        refusals: EarlierRefusals,
        send_candidates: SendCandidates,
    ) -> None:
        self._session, self._mode = session, mode
        self.outcomes, self.refusals, self.send_candidates = outcomes, refusals, send_candidates
        self._last_result: LookupResult  # the result of the last part of the last look-up
        self._look_up = _LookUp({}, 0.0)
        self._selected_identities: Collection[bytes] | None = None  # the identities to settle; None: all entries
        self._resends_held_entries = False

    async def read_lag(self) -> None:
        """Read the largest lag of the account's list that earlier runs recorded. Raises LedgerError."""
        account, list_state = self._session.ledger_writer.base.account, self._session.list_access.state
        lag_s = await self._session.ledger_writer.execute(lambda ledger: read_largest_lag(ledger.connection, account))
        list_state.largest_lag_s = max(list_state.largest_lag_s, lag_s)

    def select_entries(self, identities: Collection[bytes] | None, *, resends_held_entries: bool) -> None:
        """Settle only the entries with these identities from now on (None: all entries). With `resends_held_entries`,
        also send creates again that an earlier run with `on_unknown: hold` has left unresolved.
        """
        self._selected_identities, self._resends_held_entries = identities, resends_held_entries

    @property
    def has_unsettled_entries(self) -> bool:
        """Whether unresolved entries remain that this run may settle."""
        return any(
            unresolved_create.owner_job is None for unresolved_create in self.outcomes.unresolved_creates.values()
        )

    async def settle(self, *, reopens_waiting_refusals: bool = True) -> None:
        """Settle the unknown entries of this run and of earlier runs, and then look the refused rows up.

        With `reopens_waiting_refusals`, also settle the refused creates of earlier runs that wait. A create waits until
        another create with the same kind of refusal was sent again and accepted.

        Raises ListFailed if the service does not return its list, and RunAborted if the run must end.
        """
        stop, is_loading = self._session.stop, self._mode is RunMode.LOAD
        if not is_loading and not stop.is_stopping:
            await self._look_up_once()
        has_more_entries = is_loading
        while has_more_entries and not stop.is_stopping:
            self.outcomes.reopen_temporary_refusals()
            await self._settle_unknown_entries()
            has_more_entries = reopens_waiting_refusals and await self.reopen_waiting_refusals()
        self.outcomes.postpone_final_refusals()
        if is_loading and not stop.is_stopping:
            await self.refusals.look_up_rows(self.outcomes.list_unchecked_rows())
        await self.outcomes.report_resolved_rows()
        stop.raise_if_stop_requested()

    async def reopen_waiting_refusals(self, *, is_resending_all: bool = False) -> bool:
        """Add the refused creates of earlier runs that need not wait any longer to the unresolved creates. Return
        whether a create was added.

        A create waits until another create with the same kind of refusal was sent again and accepted. With
        `is_resending_all`, a create waits only if its refusal is final. Raises LedgerError.
        """
        reopened_refusals = await self.refusals.reopen_waiting_refusals(is_resending_all=is_resending_all)
        self.outcomes.add_earlier_refusals(
            reopened_refusals, self.refusals.find_recently_refused_identities(reopened_refusals.values())
        )
        return bool(reopened_refusals)

    async def _settle_unknown_entries(self) -> None:
        """Look up and settle entries until no entry remains, or until many consecutive look-ups have settled no entry.
        The remaining entries stay UNKNOWN."""
        look_up_count_without_settled_entry = inconclusive_look_up_count = 0
        is_look_up_due = True
        while (
            look_up_count_without_settled_entry < _MAX_LOOK_UPS_WITHOUT_SETTLED_ENTRY
            and inconclusive_look_up_count < _MAX_INCONCLUSIVE_LOOK_UPS
        ):
            unknown_entries = await self._read_unknown_entries()
            if not unknown_entries or not (is_look_up_due or await self._wait_for_next_look_up(unknown_entries)):
                return
            await self._look_up_once()
            await self.end_look_up()
            if self._session.stop.is_stopping:
                return
            look_up = self._look_up
            inconclusive_look_up_count = 0 if look_up.is_conclusive else inconclusive_look_up_count + 1
            look_up_count_without_settled_entry = (
                0 if look_up.absent_entries or look_up.found_count else look_up_count_without_settled_entry + 1
            )
            # Creates of absent entries may have been sent again. The list may show the result already, so do not wait.
            is_look_up_due = bool(look_up.absent_entries)

    async def _look_up_once(self) -> None:
        """Make one look-up, and settle the entries whose subscribers the look-up shows. All other entries stay unknown.
        Send nothing."""
        async for lookup_part in look_up_keys([await self.begin_look_up()]):
            await self.record_look_up(lookup_part)

    def _find_unresolved_create(self, entry: UnfinishedEntry) -> UnresolvedCreate:
        return self.outcomes.unresolved_creates[entry.identity]

    def _find_later_confirmed_creates_of_group(self, entry: UnfinishedEntry) -> set[ConfirmedCreate]:
        """Return this run's creates with the entry's base and `is_active` that the service confirmed after the attempt
        of the entry."""
        attempt_ended_at = self._find_unresolved_create(entry).attempt_ended_at
        return self._session.find_confirmed_creates(attempt_ended_at, is_active=is_sent_active(entry))

    # The steps of one look-up

    async def begin_look_up(self) -> KeyGroup:
        """Begin a look-up of the unknown entries, and return their keys. The caller must then call `record_look_up` for
        each part of the result, and `end_look_up`."""
        unknown_entries = await self._read_unknown_entries()
        now, policy = self._session.clock.monotonic(), self._session.policy
        self._look_up = _LookUp({entry.identity: entry for entry in unknown_entries}, now)
        keys = list[LookupKey]()
        for entry in unknown_entries:
            unresolved_create = self._find_unresolved_create(entry)
            is_look_up_fresh = unresolved_create.is_of_this_run and now <= unresolved_create.valid_until
            # The first look-up is valid until `valid_until`. Later, another program may have created the subscriber in
            # another spelling.
            keys.append(build_entry_key(entry, ignores_case=policy.looks_up_first and not is_look_up_fresh))
        return KeyGroup(self._session.list_access, keys)

    async def _read_unknown_entries(self) -> list[UnfinishedEntry]:
        """Return the UNKNOWN entries to settle. First make the refused creates of this run UNKNOWN, except those whose
        kind of refusal is final."""
        base, unresolved_by_identity = self._session.ledger_writer.base, self.outcomes.unresolved_creates
        recorded_identities = [
            identity
            for identity, unresolved_create in unresolved_by_identity.items()
            if unresolved_create.is_rejected_in_ledger
            and not self._session.temporary_refusals.is_final_kind(unresolved_create.refusal_kind)
        ]

        def read_entries(ledger: Ledger) -> list[UnfinishedEntry]:
            entries = ledger.find_entries(base, recorded_identities)
            rejected_identities = [identity for identity, entry in entries.items() if entry.state is State.REJECTED]
            ledger.mark_unresolved(base, rejected_identities)
            return ledger.find_unfinished_entries(base, State.UNKNOWN)

        entries = await self._session.ledger_writer.execute(read_entries)
        for identity in recorded_identities:
            unresolved_by_identity[identity].is_rejected_in_ledger = False
        found_at, unknown_entries = self._session.clock.monotonic(), list[UnfinishedEntry]()
        for entry in entries:
            unresolved_create = unresolved_by_identity.get(entry.identity)
            is_of_another_job = unresolved_create is not None and unresolved_create.owner_job is not None
            is_selected = self._selected_identities is None or entry.identity in self._selected_identities
            if is_of_another_job or not is_selected:
                continue
            unresolved_create = self.outcomes.add_unresolved_create(entry.identity, UnresolvedCreate(found_at))
            unresolved_create.begin_look_up(entry.attempt_count, found_at)
            unknown_entries.append(entry)
        return unknown_entries

    async def _wait_for_next_look_up(self, unknown_entries: Sequence[UnfinishedEntry]) -> bool:
        """Wait until a quiet period has passed for all entries: after the attempt, or after the look-up that first did
        not find the subscriber. Do not wait if a second sweep can prove an entry absent at once."""
        wait_s = 0.0
        if not any(self._needs_second_sweep(entry) for entry in unknown_entries):
            quiet_period_s = self._session.policy.quiet_period_s
            unresolved_creates = [self._find_unresolved_create(entry) for entry in unknown_entries]
            latest_wait_start = max(
                unresolved_create.attempt_ended_at
                if unresolved_create.first_missed_at is None
                else unresolved_create.first_missed_at
                for unresolved_create in unresolved_creates
            )
            wait_s = (
                max(latest_wait_start, self._last_result.started_at) + quiet_period_s - self._session.clock.monotonic()
            )
        return await self._session.stop.wait(wait_s, f"then {len(unknown_entries):,} unknown rows are looked up again")

    def _needs_second_sweep(self, entry: UnfinishedEntry) -> bool:
        """Return whether a second sweep, without a wait, may prove that the refused create of the entry had no effect.

        The proof needs two sweeps in a row that show a subscriber whose create left after the refusal
        (`read_confirmed_create_visibility`). Return True if only the last sweep showed such a subscriber."""
        unresolved_create, session = self._find_unresolved_create(entry), self._session
        if not unresolved_create.has_retryable_refusal or self._last_result.is_filter_result:
            return False
        later_confirmed_creates = {
            create
            for create in self._find_later_confirmed_creates_of_group(entry)
            if create.sent_at > unresolved_create.attempt_ended_at
        }
        return not later_confirmed_creates & self._last_result.seen_confirmed_creates and any(
            create.subscriber_id in session.list_access.state.swept_confirmed_create_ids
            for create in later_confirmed_creates
        )

    async def record_look_up(self, lookup_part: LookupPart) -> None:
        """Confirm the entries that a part of a look-up found, and record that the look-up did not find the other
        entries."""
        if lookup_part.has_unchecked_spellings and lookup_part.result.absent_identities:
            self._session.tally.add_message(UNCHECKED_SPELLINGS_MESSAGE)
        look_up, result = self._look_up, lookup_part.result
        await self._confirm_found_entries(result)
        missed_entries = list[UnfinishedEntry]()
        for entry in [look_up.entries[key.identity] for key in lookup_part.keys]:
            if entry.identity in result.found_ids:
                found_ids = result.found_ids[entry.identity]
                self.outcomes.record_found_subscriber(entry.identity, found_ids)
                continue
            self._find_unresolved_create(entry).record_missed_look_up(
                result.started_at,
                self._session.policy.quiet_period_s,
                is_conclusive=entry.identity in result.absent_identities,
            )
            missed_entries.append(entry)
        look_up.ended_at = self._session.clock.monotonic()
        look_up.found_count += len(lookup_part.keys) - len(missed_entries)
        look_up.absent_entries += await self._find_absent_entries(missed_entries)
        look_up.is_conclusive |= bool(result.found_ids or result.absent_identities)

    async def _confirm_found_entries(self, result: LookupResult) -> None:
        """Move the entries that the look-up found to CONFIRMED, and record the lag of the list."""
        self._last_result = result
        base, list_access = self._session.ledger_writer.base, self._session.list_access
        unresolved_by_identity = self.outcomes.unresolved_creates
        found_identities_and_ids = [(identity, ids[0]) for identity, ids in result.found_ids.items()]
        is_of_this_run_by_id = {
            subscriber_id: unresolved_by_identity[identity].is_of_this_run
            for identity, subscriber_id in found_identities_and_ids
        }
        existing_ids = await find_existing_ids(list_access, is_of_this_run_by_id)
        for identity, subscriber_id in found_identities_and_ids:
            unresolved_by_identity[identity].is_subscriber_older_than_create |= subscriber_id in existing_ids
        maybe_foreign_identities_and_ids = [
            pair for pair in found_identities_and_ids if unresolved_by_identity[pair[0]].may_be_foreign
        ]
        created_identities_and_ids = [
            pair for pair in found_identities_and_ids if not unresolved_by_identity[pair[0]].may_be_foreign
        ]

        def update_ledger(ledger: Ledger) -> None:
            ledger.mark_found(base, State.UNKNOWN, created_identities_and_ids)
            ledger.mark_found(base, State.UNKNOWN, maybe_foreign_identities_and_ids, is_own_create=False)
            if result.lag_s > list_access.state.largest_lag_s:
                record_lag(ledger.connection, base.account, result.lag_s)

        await self._session.ledger_writer.execute(update_ledger)
        list_access.state.largest_lag_s = max(list_access.state.largest_lag_s, result.lag_s)

    # The proof of absence

    async def _find_absent_entries(self, missed_entries: Sequence[UnfinishedEntry]) -> list[UnfinishedEntry]:
        """Return two kinds of entries. The look-ups have proved the first kind absent. No look-up can prove the second
        kind absent, because the list may hide their group of subscribers. The second kind gets an
        `unprovable_reason`."""
        session, absent_entries = self._session, list[UnfinishedEntry]()
        group_visibility_by_is_active = dict[bool, bool | None]()
        for entry in missed_entries:
            if not self._is_absent(entry):
                continue
            unresolved_create, is_active = self._find_unresolved_create(entry), is_sent_active(entry)
            if not self._find_later_confirmed_creates_of_group(entry):
                if is_active not in group_visibility_by_is_active:
                    group_visibility_by_is_active[is_active] = await session.stop.wait_until_stopped(
                        is_group_shown(
                            session.list_access, is_active=is_active, uses_filters=self._last_result.is_filter_result
                        )
                    )
                if group_visibility_by_is_active[is_active] is None:
                    continue
                unresolved_create.unprovable_reason = (
                    "" if group_visibility_by_is_active[is_active] else _explain_missing_proof(is_active=is_active)
                )
            absent_entries.append(entry)
        return absent_entries

    def _is_absent(self, entry: UnfinishedEntry) -> bool:
        """Return whether the look-ups prove the entry absent. The proof assumes that the list shows subscribers of the
        entry's group: the same base and the same `is_active`.

        Creates of this run that the service confirmed after the attempt show whether the list is fresh enough. If the
        run has such creates of the group, the look-ups must show at least one of them. If the run has such creates of
        other groups only, the look-ups must show at least one of these. If nothing was confirmed after the attempt,
        twice the largest lag must have passed."""
        unresolved_create, result, session = self._find_unresolved_create(entry), self._last_result, self._session
        later_confirmed_creates = self._find_later_confirmed_creates_of_group(entry)
        is_absent_after_refusal = unresolved_create.has_retryable_refusal and entry.identity in result.absent_identities
        first_confirmed_create = session.canaries.first_confirmed_create
        # A confirmed create with a smaller Id than `first_confirmed_create` may be an older subscriber that the service
        # has updated.
        if is_absent_after_refusal and any(
            create.sent_at > unresolved_create.attempt_ended_at
            and (first_confirmed_create is None or create.subscriber_id >= first_confirmed_create.subscriber_id)
            for create in later_confirmed_creates & result.seen_confirmed_creates
        ):
            return True
        if unresolved_create.first_missed_at is None:
            return False
        if result.started_at < unresolved_create.first_missed_at + session.policy.quiet_period_s:
            return False
        if (
            session.list_access.confirmed_creates
            and session.list_access.confirmed_creates[-1].confirmed_at > unresolved_create.attempt_ended_at
        ):
            confirmed_creates = (
                later_confirmed_creates & result.seen_confirmed_creates
                if later_confirmed_creates
                else result.seen_confirmed_creates
            )
            return find_latest_confirmation_time(confirmed_creates) > unresolved_create.attempt_ended_at
        return result.started_at >= unresolved_create.attempt_ended_at + 2 * session.list_access.state.largest_lag_s

    async def end_look_up(self) -> None:
        """Decide what happens to each entry that is proved absent: send its create again, suppress, hold or reject the
        entry.

        All entries are looked up before any entry is sent again. Otherwise new confirmed creates, which the list may
        not show yet, would prevent the proof of absence of the remaining entries.
        """
        absent_entries, base, outcomes = self._look_up.absent_entries, self._session.ledger_writer.base, self.outcomes
        if not absent_entries or self._session.stop.is_stopping:
            return
        entries_to_send, suppressed_identities = list[UnfinishedEntry](), list[bytes]()
        held_identities_and_reasons, refusals = list[tuple[bytes, str | None]](), list[tuple[bytes, int, str]]()
        no_resend_events = list[tuple[UnfinishedEntry, NoResendEvent]]()
        for entry in absent_entries:
            unresolved_create = self._find_unresolved_create(entry)
            match event := self._choose_event(entry):
                case None:
                    unresolved_create.owner_job = entry.suppressing_job or ""
                    continue
                case Event.ABSENT:
                    entries_to_send.append(entry)
                    continue
                case Event.SUPPRESSED:
                    suppressed_identities.append(entry.identity)
                case Event.HELD:
                    held_identities_and_reasons.append((entry.identity, unresolved_create.unprovable_reason or None))
                case Event.REFUSED:
                    if not self._session.temporary_refusals.is_final_kind(unresolved_create.refusal_kind):
                        # The message is part of the refusal's kind. Refusals of the new kind are not temporary.
                        messages = [_PROVED_ABSENT_MESSAGE, unresolved_create.message]
                        unresolved_create.message = ": ".join(filter(None, messages))
                    refusals.append(self._read_refusal(entry))
                case _:
                    assert_never(event)
            no_resend_events.append((entry, event))

        def update_ledger(ledger: Ledger) -> None:
            ledger.mark_suppressed(base, suppressed_identities)
            ledger.mark_held(base, held_identities_and_reasons)
            ledger.mark_refused(base, State.UNKNOWN, refusals)

        def record_no_resends(_: None) -> None:
            for entry, event in no_resend_events:
                outcomes.record_no_resend(entry.identity, event, entry.attempt_count)

        await self._session.ledger_writer.execute(update_ledger, record_no_resends)
        await self._send_entries_again(entries_to_send, base)
        await self._reject_entries_with_final_refusal(entries_to_send, base)

    def _choose_event(self, entry: UnfinishedEntry) -> NoResendEvent | Literal[Event.ABSENT] | None:
        """Return the event for an absent entry. Return None if only the job with the suppression list may decide about
        the entry."""
        session, unresolved_create = self._session, self._find_unresolved_create(entry)
        if entry.suppressing_job not in (None, session.job):
            return None
        if unresolved_create.unprovable_reason:
            return Event.HELD
        if session.is_suppressed(entry.identity, self._read_newest_values(entry)):
            return Event.SUPPRESSED
        if entry.is_dropped_create and unresolved_create.newer_intent is None:
            return Event.HELD
        if session.temporary_refusals.is_final_kind(unresolved_create.refusal_kind):
            return Event.REFUSED
        # The creates of an earlier run with `on_unknown: hold` are held until a person wants to send these creates
        # again.
        is_held_by_earlier_run = bool(entry.run_holds_absent_creates) and not self._resends_held_entries
        holds_entry = session.policy.on_unknown == "hold" or is_held_by_earlier_run
        if holds_entry and not unresolved_create.is_refused:
            return Event.HELD
        if unresolved_create.has_no_remaining_attempt:
            return Event.HELD if unresolved_create.status is None else Event.REFUSED
        return Event.ABSENT

    # Creates that are sent again

    async def _send_entries_again(self, absent_entries: Sequence[UnfinishedEntry], base: Base) -> None:
        """Send the creates of these absent entries again.

        Creates without a confirmed create of their group are sent one at a time, until the service has created a
        subscriber. This create is a confirmed create for the other entries, which wait for the next look-up.

        Creates whose refusal may be temporary are also sent one at a time. If the service accepts one of these creates,
        all other creates with the same kind of refusal are sent together. If a kind of refusal becomes final, the other
        creates with this kind are not sent.
        """
        session, started_at = self._session, self._look_up.started_at
        temporary_refusals = session.temporary_refusals
        refusal_kinds = {entry.identity: self._find_unresolved_create(entry).refusal_kind for entry in absent_entries}
        entries_with_confirmed_create = [
            entry for entry in absent_entries if self._find_later_confirmed_creates_of_group(entry)
        ]
        identities_with_confirmed_create = {entry.identity for entry in entries_with_confirmed_create}
        entries_to_send = list[UnfinishedEntry]()
        for entry in entries_with_confirmed_create:
            refusal_kind = refusal_kinds[entry.identity]
            if (
                temporary_refusals.may_be_temporary(refusal_kind)
                and refusal_kind not in temporary_refusals.accepted_kinds
            ):
                await self._send_creates_again([entry], base)
                if refusal_kind not in temporary_refusals.accepted_kinds and not await session.stop.sleep(
                    _PAUSE_AFTER_REFUSAL_S
                ):
                    return
            else:
                entries_to_send.append(entry)
        await self._send_creates_again(
            [entry for entry in entries_to_send if not temporary_refusals.is_final_kind(refusal_kinds[entry.identity])],
            base,
        )
        for entry in absent_entries:
            if session.stop.is_stopping:
                return
            if entry.identity in identities_with_confirmed_create or session.find_confirmed_creates(
                started_at, is_active=is_sent_active(entry)
            ):
                continue
            if not temporary_refusals.is_final_kind(refusal_kinds[entry.identity]):
                await self._send_creates_again([entry], base)

    async def _send_creates_again(self, entries: Sequence[UnfinishedEntry], base: Base) -> None:
        session, candidates = self._session, list[Candidate]()
        for entry in entries:
            unresolved_create = self._find_unresolved_create(entry)
            intent = unresolved_create.newer_intent or read_intent(entry)
            is_same_create = (
                unresolved_create.is_refused
                and unresolved_create.newer_intent is None
                and unresolved_create.status is not None
            )
            candidates.append(
                replace(
                    rebuild_candidate(intent, self._read_newest_values(entry), base, State.UNKNOWN),
                    valid_until=session.policy.compute_valid_until(self._look_up.started_at, self._look_up.ended_at),
                    earlier_refusal=(unresolved_create.status or 0, unresolved_create.message)
                    if is_same_create
                    else None,
                )
            )
        await self.send_candidates(CandidateList(candidates, session.clock.monotonic).fetch)

    async def _reject_entries_with_final_refusal(self, absent_entries: Sequence[UnfinishedEntry], base: Base) -> None:
        """Reject the absent entries whose kind of refusal has become final. Their creates were not sent again."""
        entries_with_final_refusal = list[UnfinishedEntry]()
        for entry in absent_entries:
            unresolved_create = self.outcomes.unresolved_creates.get(entry.identity)
            if (
                unresolved_create is not None
                and not unresolved_create.is_rejected_in_ledger
                and self._session.temporary_refusals.is_final_kind(unresolved_create.refusal_kind)
            ):
                entries_with_final_refusal.append(entry)
        refusals = [self._read_refusal(entry) for entry in entries_with_final_refusal]
        await self._session.ledger_writer.execute(lambda ledger: ledger.mark_refused(base, State.UNKNOWN, refusals))
        for entry in entries_with_final_refusal:
            self.outcomes.record_no_resend(entry.identity, Event.REFUSED, entry.attempt_count)

    def _read_refusal(self, entry: UnfinishedEntry) -> tuple[bytes, int, str]:
        """Return the identity, status and message of the entry's refusal, for `Ledger.mark_refused`."""
        unresolved_create = self._find_unresolved_create(entry)
        return entry.identity, unresolved_create.status or 0, unresolved_create.message

    def _read_newest_values(self, entry: UnfinishedEntry) -> dict[str, object]:
        """Return the values of the changed row, or the values in the ledger if the row has not changed."""
        unresolved_create = self._find_unresolved_create(entry)
        return read_body(entry) if unresolved_create.newer_intent is None else unresolved_create.newer_values


def is_sent_active(entry: UnfinishedEntry) -> bool:
    """Return whether the create was for an active subscriber."""
    return read_body(entry).get("is_active") is True


def _explain_missing_proof(*, is_active: bool) -> str:
    """Return the reason why no look-up can prove an active (or inactive) subscriber absent."""
    is_active_text = "active" if is_active else "inactive"
    return (
        f"the list has shown no {is_active_text} subscriber, so no look-up proves that the create had no effect; look "
        "the subscriber up on the service's own pages"
    )


def read_intent(entry: UnfinishedEntry) -> Intent:
    """Return the intent of the entry's last attempt."""
    return Intent(entry.identity, entry.fingerprint, entry.body, entry.identity_field)


def rebuild_candidate(intent: Intent, sent_values: dict[str, object], base: Base, entry_state: State) -> Candidate:
    """Return a candidate from an entry of the ledger. If the base's Id is known, replace Base.Name by Base.Id
    (architecture 4.9)."""
    if base.service_id is not None:
        sent_values = {name: value for name, value in sent_values.items() if name != "base_name"} | {
            "base_id": base.service_id
        }
    return Candidate(replace(intent, body=encode_subscriber(sent_values)), sent_values, entry_state=entry_state)
