"""Settles the unresolved entries of a base together: presence at once, absence only by the rule of architecture 4.5.

How it works. A subscriber that a look-up shows is present. A subscriber is absent if two look-ups in a row miss it. The
first look-up begins a quiet period after the attempt ended (or after this run found the entry), the second a quiet
period later. The second must show a sentinel: a subscriber that was confirmed after the attempt. A create that had
taken effect would show as well. Without a sentinel, twice the largest lag on record for the account must have passed.

A create that got a 429 is over. So one look-up is enough if it shows a subscriber whose create left after the 429 (a
list of several pages is read twice, without a wait between). A subscriber that another program may have created
meanwhile is looked up in any spelling (architecture 4.7). Absent creates are sent again, held, or given up if they are
suppressed now. The next round settles the entries that stay unknown.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from connector.ledger.entries import Intent, Ledger, UnfinishedEntry
from connector.ledger.records import read_largest_lag, record_lag
from connector.ledger.store import Base
from connector.listing.access import KeyGroup, LookupKey, LookupResult, find_latest_time
from connector.listing.answered import find_existing_ids
from connector.listing.lookup import is_class_shown
from connector.load.candidates import Candidate, CandidateList, Create, read_body, want_unfinished
from connector.load.lookups import LOOKED_UP_AS_SENT, LookedUp, look_up_keys
from connector.load.outcomes import Outcomes, Unresolved
from connector.load.refusals import EarlierRefusals
from connector.load.session import RunMode, Session
from connector.service.wire import encode_subscriber
from connector.states import Event, State

_ATTEMPTS = 5  # creates of one identity, each lost and proved absent: at 2 % loss, a chance of 3 in a billion
_PROVED = "no attempt took effect, each was looked up"  # before the words of a refusal
_PAUSE_S = 1.0  # seconds after a refused create was sent again and refused again
_LOOKS = 20  # look-ups in a row that prove no entry absent; then the remaining entries stay unknown
_BLIND_LOOKS = 5  # inconclusive look-ups in a row: the list cannot be read, and the filters do not work


@dataclass(slots=True)
class _Look:
    """One look-up: its entries, its beginning and end (monotonic), the number of entries that it found, the entries
    that are proved absent, and whether it was conclusive."""

    entries: dict[bytes, UnfinishedEntry]
    began_at: float
    ended_at: float = 0.0
    found: int = 0
    absent: list[UnfinishedEntry] = field(default_factory=list)
    is_conclusive: bool = False


class Settler:
    """Settles the UNKNOWN entries of one base: records in `outcomes` how they end, and sends absent ones again by
    `create`. A plan looks up once, and sends nothing again."""

    def __init__(
        self, session: Session, mode: RunMode, outcomes: Outcomes, refusals: EarlierRefusals, create: Create
    ) -> None:
        self._session, self._mode = session, mode
        self.outcomes, self.refusals, self.create = outcomes, refusals, create
        self._last: LookupResult  # of the last part of the last look-up
        self._look = _Look({}, 0.0)
        self._only: Collection[bytes] | None = None
        self._is_resending_held = False

    async def read_lag(self) -> None:
        """Read the largest lag of the account's list that earlier runs recorded. Raises LedgerError."""
        account, lag = self._session.journal.base.account, self._session.access.lag
        lag_s = await self._session.journal.ask(lambda ledger: read_largest_lag(ledger.connection, account))
        lag.largest_lag_s = max(lag.largest_lag_s, lag_s)

    def select(self, only: Collection[bytes] | None, *, is_resending_held: bool) -> None:
        """Settle `only` the entries with these identities from now on (None: all). With `is_resending_held`, entries of
        runs that hold unknown creates are sent again."""
        self._only, self._is_resending_held = only, is_resending_held

    @property
    def has_unsettled(self) -> bool:
        """Whether unresolved entries remain that this run may settle."""
        return any(unresolved.owner_job is None for unresolved in self.outcomes.unresolved.values())

    async def settle(self) -> None:
        """Settle the unknown entries, of this run and of earlier ones, and then look the refused rows up.

        Raises ListFailed when the service does not return its list, and RunAborted when the run ends itself.
        """
        control, is_loading = self._session.control, self._mode is RunMode.LOAD
        if not is_loading and not control.is_stopping:
            await self._look_once()
        has_more = is_loading
        while has_more and not control.is_stopping:
            self.outcomes.reopen_passing()
            await self._settle_unknown()
            has_more = await self.release()
        self.outcomes.hold_believed()
        if is_loading and not control.is_stopping:
            await self.refusals.look_up(self.outcomes.list_unchecked())
        await self.outcomes.update()
        control.check()

    async def release(self, *, is_asked_for: bool = False) -> bool:
        """Take up the refusals of earlier runs whose kind has passed in this run; return whether there are any.

        With `is_asked_for`, also the refusals that are not final. Raises LedgerError.
        """
        released = await self.refusals.release(is_asked_for=is_asked_for)
        self.outcomes.add_refused_earlier(released, self.refusals.find_recent(released.values()))
        return bool(released)

    async def _settle_unknown(self) -> None:
        """Look up and settle until no entry is left, or look-ups prove nothing more. The remaining entries stay
        UNKNOWN."""
        fruitless_looks = blind_looks = 0
        is_due = True
        while fruitless_looks < _LOOKS and blind_looks < _BLIND_LOOKS:
            unknown = await self._read_unknown()
            if not unknown or not (is_due or await self._wait_for_next_look(unknown)):
                return
            await self._look_once()
            await self.end_look()
            if self._session.control.is_stopping:
                return
            look = self._look
            blind_looks = 0 if look.is_conclusive else blind_looks + 1
            fruitless_looks = 0 if look.absent or look.found else fruitless_looks + 1
            is_due = bool(look.absent)  # creates that were sent again may show at once

    async def _look_once(self) -> None:
        """Settle the entries that one look-up shows, and send none again. The others stay unknown."""
        async for part in look_up_keys([await self.begin_look()]):
            await self.record_look(part)

    # One look-up

    async def begin_look(self) -> KeyGroup:
        """Begin a look-up of the unknown entries, and return their keys. Then call `record_look` for each part of the
        result, and `end_look`."""
        unknown = await self._read_unknown()
        now, policy = self._session.clock.monotonic(), self._session.policy
        self._look = _Look({entry.identity: entry for entry in unknown}, now)
        keys = list[LookupKey]()
        for entry in unknown:
            unresolved = self.outcomes.unresolved[entry.identity]
            is_fresh = unresolved.is_of_this_run and now <= unresolved.known_until
            # The subscriber may have come by another way since, in another spelling.
            keys.append(want_unfinished(entry, in_any_spelling=policy.is_looking and not is_fresh))
        return KeyGroup(self._session.access, keys)

    async def _read_unknown(self) -> list[UnfinishedEntry]:
        """Return the UNKNOWN entries to settle. Refusals of this run that the ledger has as REJECTED become UNKNOWN
        first, unless their kind is believed."""
        base, unresolved_by_identity = self._session.journal.base, self.outcomes.unresolved
        recorded = [
            identity
            for identity, unresolved in unresolved_by_identity.items()
            if unresolved.is_recorded and not self._session.passing.is_believed(unresolved.kind)
        ]

        def read(ledger: Ledger) -> list[UnfinishedEntry]:
            entries = ledger.find_entries(base, recorded)
            refused = [identity for identity, entry in entries.items() if entry.state is State.REJECTED]
            ledger.mark_unresolved(base, refused)
            return ledger.find_unfinished_entries(base, State.UNKNOWN)

        entries = await self._session.journal.ask(read)
        for identity in recorded:
            unresolved_by_identity[identity].is_recorded = False
        found_at, unknown = self._session.clock.monotonic(), list[UnfinishedEntry]()
        for entry in entries:
            known = unresolved_by_identity.get(entry.identity)
            is_of_another_job = known is not None and known.owner_job is not None
            if is_of_another_job or (self._only is not None and entry.identity not in self._only):
                continue
            unresolved = self.outcomes.add_unresolved(entry.identity, Unresolved(found_at))
            if unresolved.attempts not in (None, entry.attempts):
                unresolved.since, unresolved.missed_at = found_at, None
            unresolved.attempts = entry.attempts
            if not unresolved.is_of_this_run:  # attempts of runs that died, for example, do not count against the row
                unresolved.uncounted = entry.attempts
            unknown.append(entry)
        return unknown

    async def _wait_for_next_look(self, unknown: Sequence[UnfinishedEntry]) -> bool:
        """Wait until a quiet period has passed for all entries: since the attempt, or since the look-up that first
        missed the subscriber. Do not wait if another sweep can prove an entry absent at once."""
        wait_s = 0.0
        if not any(self._is_half_proved(entry) for entry in unknown):
            quiet_s = self._session.policy.quiet_period_s
            all_unresolved = [self.outcomes.unresolved[entry.identity] for entry in unknown]
            latest = max(
                unresolved.since if unresolved.missed_at is None else unresolved.missed_at
                for unresolved in all_unresolved
            )
            wait_s = max(latest, self._last.started_at) + quiet_s - self._session.clock.monotonic()
        return await self._session.control.wait(wait_s, f"then {len(unknown):,} unknown are looked for again")

    def _is_half_proved(self, entry: UnfinishedEntry) -> bool:
        """Return whether the entry got a 429, and the last sweep showed a later create that the sweep before did not.

        Such a create counts once two sweeps in a row have shown it (`read_visibility`)."""
        unresolved, session = self.outcomes.unresolved[entry.identity], self._session
        if not unresolved.is_limited or self._last.is_by_filter:
            return False
        later = {
            sentinel
            for sentinel in session.find_sentinels(unresolved.since, is_active=is_sent_active(entry))
            if sentinel.sent_at > unresolved.since
        }
        return not later & self._last.seen_sentinels and any(
            sentinel.subscriber_id in session.access.state.swept_sentinel_ids for sentinel in later
        )

    async def record_look(self, part: LookedUp) -> None:
        """Confirm the entries that a part of a look-up found, and record the others as missed."""
        if part.is_as_sent and part.result.absent_identities:
            self._session.tally.add_message(LOOKED_UP_AS_SENT)
        look, result = self._look, part.result
        await self._confirm_found(result)
        missed = list[UnfinishedEntry]()
        for entry in [look.entries[key.identity] for key in part.keys]:
            if entry.identity in result.found_ids:
                ids = result.found_ids[entry.identity]
                self.outcomes.record_settled(entry.identity, Event.FOUND, entry.attempts, ids)
                continue
            unresolved = self.outcomes.unresolved[entry.identity]
            if entry.identity not in result.absent_identities:
                unresolved.missed_at = None  # two conclusive look-ups in a row are required
            elif (
                unresolved.missed_at is None
                and result.started_at >= unresolved.since + self._session.policy.quiet_period_s
            ):
                unresolved.missed_at = result.started_at
            missed.append(entry)
        look.ended_at = self._session.clock.monotonic()
        look.found += len(part.keys) - len(missed)
        look.absent += await self._find_absent(missed)
        look.is_conclusive |= bool(result.found_ids or result.absent_identities)

    async def _confirm_found(self, result: LookupResult) -> None:
        """Move the entries that the look-up found to CONFIRMED, and record the lag of the list."""
        self._last = result
        base, access, unresolved = self._session.journal.base, self._session.access, self.outcomes.unresolved
        found = [(identity, ids[0]) for identity, ids in result.found_ids.items()]
        is_of_this_run = {subscriber_id: unresolved[identity].is_of_this_run for identity, subscriber_id in found}
        existing = await find_existing_ids(access, is_of_this_run)
        for identity, subscriber_id in found:
            unresolved[identity].has_existed |= subscriber_id in existing
        others = [pair for pair in found if unresolved[pair[0]].may_be_another]
        ours = [pair for pair in found if not unresolved[pair[0]].may_be_another]

        def write(ledger: Ledger) -> None:
            ledger.mark_found(base, State.UNKNOWN, ours)
            ledger.mark_found(base, State.UNKNOWN, others, is_ours=False)
            if result.lag_s > access.lag.largest_lag_s:
                record_lag(ledger.connection, base.account, result.lag_s)

        await self._session.journal.ask(write)
        access.lag.largest_lag_s = max(access.lag.largest_lag_s, result.lag_s)

    # Absence

    async def _find_absent(self, missed: Sequence[UnfinishedEntry]) -> list[UnfinishedEntry]:
        """Return the entries that are proved absent, and those whose absence no look-up can prove: look-ups may hide
        their class (`unprovable`)."""
        session, absent, are_shown = self._session, list[UnfinishedEntry](), dict[bool, bool | None]()
        for entry in missed:
            if not self._is_absent(entry):
                continue
            unresolved, is_active = self.outcomes.unresolved[entry.identity], is_sent_active(entry)
            if not session.find_sentinels(unresolved.since, is_active=is_active):
                if is_active not in are_shown:
                    request = is_class_shown(session.access, is_active=is_active, by_filter=self._last.is_by_filter)
                    are_shown[is_active] = await session.control.until_stopped(request)
                if are_shown[is_active] is None:
                    continue
                unresolved.unprovable = "" if are_shown[is_active] else _describe_hidden(is_active=is_active)
            absent.append(entry)
        return absent

    def _is_absent(self, entry: UnfinishedEntry) -> bool:
        """Return whether the look-ups prove the entry absent, if they show subscribers that are as active.

        A sentinel of the entry's base that is as active must show. If there is none, any other one must show."""
        unresolved, result, session = self.outcomes.unresolved[entry.identity], self._last, self._session
        of_class = session.find_sentinels(unresolved.since, is_active=is_sent_active(entry))
        is_limited = unresolved.is_limited and entry.identity in result.absent_identities
        if is_limited and any(sentinel.sent_at > unresolved.since for sentinel in of_class & result.seen_sentinels):
            return True
        if unresolved.missed_at is None:
            return False
        if result.started_at < unresolved.missed_at + session.policy.quiet_period_s:
            return False
        if session.has_confirmed_since(unresolved.since):
            sentinels = of_class & result.seen_sentinels if of_class else result.seen_sentinels
            return find_latest_time(sentinels) > unresolved.since
        return result.started_at >= unresolved.since + 2 * session.access.lag.largest_lag_s

    async def end_look(self) -> None:
        """Send entries that are proved absent again, or suppress, hold or reject them, by the suppression lists, the
        job and their history.

        No entry is sent again before all are looked up: a new sentinel would not be listed yet, and absence could not
        be proved.
        """
        absent, base, outcomes = self._look.absent, self._session.journal.base, self.outcomes
        if not absent or self._session.control.is_stopping:
            return
        chosen: dict[Event | None, list[UnfinishedEntry]] = {}
        for entry in absent:
            chosen.setdefault(self._choose_event(entry), []).append(entry)
        for entry in chosen.get(Event.REFUSED, ()):  # the new words also separate the refusal from those of its kind
            unresolved = outcomes.unresolved[entry.identity]
            if not self._session.passing.is_believed(unresolved.kind):
                unresolved.message = f"{_PROVED}: {unresolved.message}" if unresolved.message else _PROVED
        suppressed = [entry.identity for entry in chosen.get(Event.SUPPRESSED, ())]
        withheld = [
            (entry.identity, outcomes.unresolved[entry.identity].unprovable or None)
            for entry in chosen.get(Event.WITHHELD, ())
        ]
        refused = [self._read_refusal(entry) for entry in chosen.get(Event.REFUSED, ())]

        def write(ledger: Ledger) -> None:
            ledger.mark_suppressed(base, suppressed)
            ledger.mark_withheld(base, withheld)
            ledger.mark_refused(base, State.UNKNOWN, refused)

        def record(_: None) -> None:
            for event, entries in chosen.items():
                for entry in entries:
                    if event is None:
                        outcomes.unresolved[entry.identity].owner_job = entry.suppressed_by or ""
                    elif event is not Event.ABSENT:
                        outcomes.record_settled(entry.identity, event, entry.attempts)

        await self._session.journal.ask(write, record)
        to_send = chosen.get(Event.ABSENT, [])
        await self._send_again(to_send, base)
        await self._refuse_believed(to_send, base)

    def _choose_event(self, entry: UnfinishedEntry) -> Event | None:
        """Return the event for an absent entry, or None if only another job, with its suppression list, may decide."""
        session, unresolved = self._session, self.outcomes.unresolved[entry.identity]
        if entry.suppressed_by not in (None, session.job):
            return None
        if unresolved.unprovable:
            return Event.WITHHELD
        if session.is_suppressed(entry.identity, self._read_newest(entry)):
            return Event.SUPPRESSED
        if session.passing.is_believed(unresolved.kind):
            return Event.REFUSED
        # The policy of the run that left the entry counts as well: only a person may decide otherwise.
        is_holding = session.policy.on_unknown == "hold" or (bool(entry.is_holding) and not self._is_resending_held)
        if is_holding and not unresolved.is_refused:
            return Event.WITHHELD
        if entry.attempts - unresolved.uncounted >= _ATTEMPTS and unresolved.is_of_this_run:
            return Event.WITHHELD if unresolved.status is None else Event.REFUSED
        return Event.ABSENT

    # Creates that are sent again

    async def _send_again(self, absent: Sequence[UnfinishedEntry], base: Base) -> None:
        """Send these creates again. Entries that no sentinel of their class proves absent go one at a time, until one
        is created: that one is the sentinel of the others, which wait for the next look-up. Entries whose refusal may
        pass go one at a time, too, until one of their kind is created, or the kind is believed."""
        session, began_at, passing = self._session, self._look.began_at, self._session.passing
        kinds = {entry.identity: self.outcomes.unresolved[entry.identity].kind for entry in absent}

        def has_sentinel(entry: UnfinishedEntry, at: float) -> bool:
            return bool(session.find_sentinels(at, is_active=is_sent_active(entry)))

        proved = [entry for entry in absent if has_sentinel(entry, self.outcomes.unresolved[entry.identity].since)]
        proved_identities, together = {entry.identity for entry in proved}, list[UnfinishedEntry]()
        for entry in proved:
            kind = kinds[entry.identity]
            if passing.may_pass(kind) and kind not in passing.passed:
                await self._create_again([entry], base)
                if kind not in passing.passed and not await session.control.rest(_PAUSE_S):
                    return
            else:
                together.append(entry)
        await self._create_again([entry for entry in together if not passing.is_believed(kinds[entry.identity])], base)
        for entry in absent:
            if session.control.is_stopping:
                return
            if entry.identity in proved_identities or has_sentinel(entry, began_at):
                continue
            if not passing.is_believed(kinds[entry.identity]):
                await self._create_again([entry], base)

    async def _create_again(self, entries: Sequence[UnfinishedEntry], base: Base) -> None:
        session, candidates = self._session, list[Candidate]()
        for entry in entries:
            unresolved = self.outcomes.unresolved[entry.identity]
            intent = read_intent(entry) if unresolved.newer is None else unresolved.newer.intent
            is_same = unresolved.is_refused and unresolved.newer is None and unresolved.status is not None
            candidates.append(
                replace(
                    build_again(intent, self._read_newest(entry), base, State.UNKNOWN),
                    known_until=session.policy.known_until(self._look.began_at, self._look.ended_at),
                    refused=(unresolved.status or 0, unresolved.message) if is_same else None,
                )
            )
        await self.create(CandidateList(candidates, session.clock.monotonic).fetch)

    async def _refuse_believed(self, absent: Sequence[UnfinishedEntry], base: Base) -> None:
        """Reject the entries that were not sent again because the tries of their kind have failed."""
        believed = list[UnfinishedEntry]()
        for entry in absent:
            unresolved = self.outcomes.unresolved.get(entry.identity)
            is_unsent = unresolved is not None and not unresolved.is_recorded
            if unresolved is not None and is_unsent and self._session.passing.is_believed(unresolved.kind):
                believed.append(entry)
        refused = [self._read_refusal(entry) for entry in believed]
        await self._session.journal.ask(lambda ledger: ledger.mark_refused(base, State.UNKNOWN, refused))
        for entry in believed:
            self.outcomes.record_settled(entry.identity, Event.REFUSED, entry.attempts)

    def _read_refusal(self, entry: UnfinishedEntry) -> tuple[bytes, int, str]:
        """Return identity, status and message of the entry's refusal, as `Ledger.mark_refused` takes them."""
        unresolved = self.outcomes.unresolved[entry.identity]
        return entry.identity, unresolved.status or 0, unresolved.message

    def _read_newest(self, entry: UnfinishedEntry) -> dict[str, object]:
        """Return the values of the create as the source has them now, or else as the ledger has them."""
        newer = self.outcomes.unresolved[entry.identity].newer
        values = read_body(entry) if newer is None else newer.sent
        return {name: value for name, value in values.items() if value is not None}


def is_sent_active(entry: UnfinishedEntry) -> bool:
    """Return whether the create was for an active subscriber."""
    return read_body(entry).get("is_active") is True


def _describe_hidden(*, is_active: bool) -> str:
    """Return the reason why no look-up can prove an active (or inactive) subscriber absent."""
    kind = "active" if is_active else "inactive"
    return (
        f"the list has shown no {kind} subscriber, so no look-up proves that the create had no effect; look for the "
        "subscriber on the service's own pages"
    )


def read_intent(entry: UnfinishedEntry) -> Intent:
    """Return the intent of the entry's last attempt."""
    return Intent(entry.identity, entry.fingerprint, entry.body, entry.field)


def build_again(intent: Intent, sent: dict[str, object], base: Base, entry_state: State) -> Candidate:
    """Return a create from a kept entry; after the first answer only Base.Id is sent (architecture 4.9)."""
    if base.service_id is not None:
        sent = {name: value for name, value in sent.items() if name != "base_name"} | {"base_id": base.service_id}
    return Candidate(replace(intent, body=encode_subscriber(sent)), sent, entry_state=entry_state)
