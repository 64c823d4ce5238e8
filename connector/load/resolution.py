"""Settles the unresolved entries of a base together: presence at once, absence only by the rule of architecture 4.5.

Theory of operation. A subscriber that a look-up shows is present. It is absent when two look-ups in a row miss it:
the first begins a quiet period after the attempt ended (or was found), the second a quiet period later. The second
must show a sentinel, a subscriber that was confirmed after that attempt: a create that had taken effect would have
shown, too. If there is no sentinel, twice the largest lag on record for the account must have passed instead. A create
that got a 429 is over, so one look-up is enough if that shows a subscriber whose create left after the 429 (a list of
several pages is read twice, without a wait between). A subscriber that may have come by another way since it was known
to be absent is looked up in any spelling (architecture 4.7). Absent ones are sent again, held, or given up if they are
suppressed by now. What that leaves unknown is settled in the next round.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from connector.ledger.entries import Intent, Ledger, Move, Unfinished
from connector.ledger.records import read_largest_lag, record_lag
from connector.ledger.store import Base
from connector.listing.access import KeyGroup, LookupKey, LookupResult, find_latest
from connector.listing.answered import find_existing
from connector.listing.lookup import is_class_shown
from connector.load.candidates import Candidate, CandidateList, read_body, want_unfinished
from connector.load.lookups import LOOKED_UP_AS_SENT, KeyLookup, LookedUp
from connector.load.session import Session
from connector.rows import LoadRow
from connector.sender import FetchItems
from connector.service.answers import refusal_kind
from connector.service.wire import encode_subscriber
from connector.states import Event, State

_ATTEMPTS = 5  # creates of one identity, each lost and proved absent: at 2 % loss, a chance of 3 in a billion
_PROVED = "no attempt took effect, each was looked up"  # before the words of a refusal
_PAUSE_S = 1.0  # after a refused create was sent again and refused again
_LOOKS = 20  # look-ups in which nothing could be proved absent, before the rest is left unknown
_BLIND_LOOKS = 5  # inconclusive look-ups in a row: the list cannot be read, and the filters do not work


@dataclass(slots=True)
class Unresolved:
    """One unresolved entry in this run: since when (monotonic), its row, and the words of the last answer."""

    since: float
    row: LoadRow | None = None
    status: int | None = None
    message: str = ""
    is_of_this_run: bool = False  # sent by this run, and known absent before
    known_until: float = float("-inf")  # until when it may be relied on (monotonic) that they were absent
    is_refused: bool = False  # by a 429 or a refusal that is not final: absent, any policy sends it again
    is_recorded: bool = False  # the ledger has the refusal as REJECTED, until the next look-up begins
    missed_at: float | None = None  # when the first look-up that missed it began
    uncounted: int = 0  # attempts that the ledger counts, and that were never made or are an earlier run's
    newer: Candidate | None = None  # what the source says now, where that is not what was sent
    attempts: int | None = None  # that the ledger counts of it; more, and another load of the run has sent it again
    has_existed: bool = False  # the subscriber that a look-up found existed before the create
    unprovable: str = ""  # why no look-up can prove the subscriber absent

    @property
    def may_be_another(self) -> bool:
        """Whether the subscriber that a look-up found may not be from the create of this entry."""
        return self.has_existed or self.is_limited

    @property
    def is_limited(self) -> bool:
        """Whether the last attempt of this run was answered with 429, or with a refusal that may pass."""
        return self.is_of_this_run and self.is_refused

    @property
    def kind(self) -> str:
        """The kind of the refusal; "" if the last attempt was not refused."""
        return refusal_kind(self.status or 0, self.message) if self.is_refused else ""


@dataclass(slots=True)
class _Looked:
    """One look-up: its entries, its beginning and end (monotonic), the number of entries that it found, the entries
    that are proved absent, and whether it was conclusive."""

    entries: dict[bytes, Unfinished]
    began_at: float
    ended_at: float = 0.0
    found: int = 0
    absent: list[Unfinished] = field(default_factory=list)
    is_conclusive: bool = False


OnSettled = Callable[[Unresolved, Event, int, tuple[int, ...]], None]
"""Receives how one unknown ended: FOUND, WITHHELD, SUPPRESSED or REFUSED, after how many attempts, and the ids that it
was found under."""


class Settler:
    """Turns the unknown entries of the run's base into known ones."""

    def __init__(
        self,
        session: Session,
        create: Callable[[FetchItems[Candidate]], Awaitable[None]],
        on_settled: OnSettled,
        look_up: Callable[[Sequence[KeyGroup]], KeyLookup],
    ) -> None:
        self._session = session
        self._create = create
        self._on_settled = on_settled
        self._look_up = look_up
        self._last: LookupResult  # of the last part of the last look-up
        self._looked = _Looked({}, 0.0)
        self.unresolved: dict[bytes, Unresolved] = {}
        self.left_to: dict[bytes, str] = {}  # absent, and not this run's to send again: the job whose list it lacks
        self.is_resending_held = False
        self.only: set[bytes] | None = None  # settle these alone (`connector retry RUN`)

    async def begin(self) -> None:
        """Read the largest lag of the account's list that earlier runs recorded. Raises LedgerError."""
        account, lag = self._session.journal.base.account, self._session.access.lag
        lag_s = await self._session.journal.ask(lambda ledger: read_largest_lag(ledger.connection, account))
        lag.largest_lag_s = max(lag.largest_lag_s, lag_s)

    @property
    def has_unsettled(self) -> bool:
        """Whether unknown entries are left that this run may settle."""
        return any(identity not in self.left_to for identity in self.unresolved)

    async def settle(self) -> None:
        """Settle what can be settled. What stays UNKNOWN in the ledger was inconclusive.

        Raises ListFailed when the service does not give its list, RunAborted when the run ends itself.
        """
        fruitless = blind = 0
        is_first_look = True
        while fruitless < _LOOKS and blind < _BLIND_LOOKS:
            unknown = await self._read_unknown()
            if not unknown or not (is_first_look or await self._wait_for_next_look(unknown)):
                return
            await self.look_once()
            await self.end_look()
            if self._session.control.is_stopping:
                return
            looked = self._looked
            blind = 0 if looked.is_conclusive else blind + 1
            is_first_look = bool(looked.absent)  # what was sent again may be there at once
            fruitless = 0 if looked.absent or looked.found else fruitless + 1

    async def look_once(self) -> None:
        """Settle the entries that one look-up shows, and send none again; the others stay unknown. Raises as
        `settle` does."""
        lookup = self._look_up([await self.begin_look()])
        while (part := await lookup.read_next()) is not None:
            await self.take(part)

    def renew(self, candidate: Candidate, verdict: Move) -> None:
        """Restart all times of an entry, because another attempt was lost or limited. An attempt that was not sent does
        not count; another look-up is due."""
        unresolved = self.unresolved[candidate.intent.identity]
        unresolved.newer = None  # the ledger has it by now
        unresolved.attempts = None if unresolved.attempts is None else unresolved.attempts + 1
        if verdict.event is Event.NOT_SENT:
            unresolved.uncounted += 1
            return
        unresolved.is_of_this_run = True
        unresolved.is_refused = unresolved.is_recorded = verdict.is_limited  # a lost attempt: the policy decides again
        unresolved.uncounted += verdict.is_limited and not verdict.may_pass
        unresolved.known_until = candidate.known_until
        unresolved.since, unresolved.missed_at = self._session.clock.monotonic(), None
        unresolved.status, unresolved.message = verdict.status, verdict.message

    async def _read_unknown(self) -> list[Unfinished]:
        base = self._session.journal.base
        passing = self._session.passing
        refused = [(identity, each) for identity, each in self.unresolved.items() if each.is_recorded]
        recorded = [identity for identity, each in refused if not passing.is_believed(each.kind)]

        def read(ledger: Ledger) -> list[Unfinished]:
            states = ledger.find_entries(base, recorded)
            refused = [identity for identity, entry in states.items() if entry.state is State.REJECTED]
            ledger.mark_unresolved(base, refused)
            return ledger.find_unfinished(base, State.UNKNOWN)

        entries = await self._session.journal.ask(read)
        for identity in recorded:
            self.unresolved[identity].is_recorded = False
        unknown = [entry for entry in entries if self._is_to_be_settled(entry)]
        found_at = self._session.clock.monotonic()
        for entry in unknown:
            unresolved = self.unresolved.setdefault(entry.identity, Unresolved(found_at))
            if unresolved.attempts not in (None, entry.attempts):
                unresolved.since, unresolved.missed_at = found_at, None
            unresolved.attempts = entry.attempts
            if not unresolved.is_of_this_run:  # runs that died, say: that speaks of them, and not of the row
                unresolved.uncounted = entry.attempts
        return unknown

    def _is_to_be_settled(self, entry: Unfinished) -> bool:
        return entry.identity not in self.left_to and (self.only is None or entry.identity in self.only)

    def _time_to_next_look(self, unknown: list[Unfinished]) -> float:
        """Return the seconds until a quiet period has passed for all: since the attempt, or since the look-up that
        first missed it. Return 0 if another sweep can prove some of them absent at once."""
        if any(self._is_half_proved(entry) for entry in unknown):
            return 0.0
        quiet_s = self._session.policy.quiet_period_s
        all_unresolved = [self.unresolved[entry.identity] for entry in unknown]
        latest = max(each.since if each.missed_at is None else each.missed_at for each in all_unresolved)
        return max(latest, self._last.started_at) + quiet_s - self._session.clock.monotonic()

    def _is_half_proved(self, entry: Unfinished) -> bool:
        """Return whether the entry got a 429, and the last sweep showed a later create that the sweep before did not.

        Such a create counts once two sweeps in a row have shown it (`read_visibility`)."""
        unresolved, session = self.unresolved[entry.identity], self._session
        if not unresolved.is_limited or self._last.is_by_filter:
            return False
        later = {
            each
            for each in session.find_sentinels(unresolved.since, is_active=is_sent_active(entry))
            if each.sent_at > unresolved.since
        }
        return not later & self._last.seen and any(each.subscriber_id in session.access.state.swept for each in later)

    async def _wait_for_next_look(self, unknown: list[Unfinished]) -> bool:
        wait_s = self._time_to_next_look(unknown)
        return await self._session.control.wait(wait_s, f"then {len(unknown):,} unknown are looked for again")

    async def begin_look(self) -> KeyGroup:
        """Begin a look-up of the unknown entries, and return their keys. Then call `take` for each part of the result,
        and `end_look`."""
        unknown = await self._read_unknown()
        self._looked = _Looked({entry.identity: entry for entry in unknown}, self._session.clock.monotonic())
        return KeyGroup(self._session.access, [self._want(entry) for entry in unknown])

    async def take(self, part: LookedUp) -> None:
        """Confirm the entries that a part of a look-up found, and record the others as missed."""
        if part.is_as_sent and part.result.missed:
            self._session.tally.say(LOOKED_UP_AS_SENT)
        looked = self._looked
        remaining = await self._record([looked.entries[key.identity] for key in part.keys], part.result)
        looked.ended_at = self._session.clock.monotonic()
        looked.found += len(part.keys) - len(remaining)
        looked.absent += await self._find_absent(remaining)
        looked.is_conclusive |= bool(part.result.found or part.result.missed)

    async def end_look(self) -> None:
        """Send entries that are proved absent again, or suppress, hold or reject them, by the suppression lists, the
        job and their history.

        No entry is sent again before all are looked up: a new sentinel would not be listed yet, and absence could not
        be proved.
        """
        if self._looked.absent and not self._session.control.is_stopping:
            await self._dispose(self._looked.absent)

    async def _record(self, looked_up: list[Unfinished], result: LookupResult) -> list[Unfinished]:
        """Return the entries that it does not show."""
        self._last = result
        base, lag_s = self._session.journal.base, result.lag_s
        found = [(identity, ids[0]) for identity, ids in result.found.items()]
        is_of_this_run = {each: self.unresolved[identity].is_of_this_run for identity, each in found}
        existing = await find_existing(self._session.access, is_of_this_run)
        for identity, subscriber_id in found:
            self.unresolved[identity].has_existed |= subscriber_id in existing
        others = [each for each in found if self.unresolved[each[0]].may_be_another]
        ours = [each for each in found if not self.unresolved[each[0]].may_be_another]

        def write(ledger: Ledger) -> None:
            ledger.mark_found(base, State.UNKNOWN, ours)
            ledger.mark_found(base, State.UNKNOWN, others, is_ours=False)
            if lag_s > self._session.access.lag.largest_lag_s:
                record_lag(ledger.connection, base.account, lag_s)

        await self._session.journal.ask(write)
        self._session.access.lag.largest_lag_s = max(self._session.access.lag.largest_lag_s, lag_s)
        remaining = []
        for entry in looked_up:
            if entry.identity in result.found:
                self._end(entry, Event.FOUND, result.found[entry.identity])
            else:
                self._note_absence(self.unresolved[entry.identity], result, is_missed=entry.identity in result.missed)
                remaining.append(entry)
        return remaining

    def _want(self, entry: Unfinished) -> LookupKey:
        """Return the look-up key: in any spelling if the subscriber may have come by another way meanwhile."""
        policy, unresolved = self._session.policy, self.unresolved[entry.identity]
        is_fresh = unresolved.is_of_this_run and self._session.clock.monotonic() <= unresolved.known_until
        return want_unfinished(entry, in_any_spelling=policy.is_looking and not is_fresh)

    def _note_absence(self, unresolved: Unresolved, result: LookupResult, *, is_missed: bool) -> None:
        if not is_missed:
            unresolved.missed_at = None  # two look-ups in a row that can tell are asked for
        elif (
            unresolved.missed_at is None and result.started_at >= unresolved.since + self._session.policy.quiet_period_s
        ):
            unresolved.missed_at = result.started_at

    async def _find_absent(self, missed: Sequence[Unfinished]) -> list[Unfinished]:
        """Return the entries that are proved absent, and those whose absence no look-up can prove: look-ups may hide
        their class (`unprovable`)."""
        absent, are_shown = list[Unfinished](), dict[bool, bool | None]()
        for entry in missed:
            if not self._is_absent(entry):
                continue
            unresolved, is_active = self.unresolved[entry.identity], is_sent_active(entry)
            if not self._session.find_sentinels(unresolved.since, is_active=is_active):
                if is_active not in are_shown:
                    asking = is_class_shown(
                        self._session.access, is_active=is_active, by_filter=self._last.is_by_filter
                    )
                    are_shown[is_active] = await self._session.control.until_stopped(asking)
                if are_shown[is_active] is None:
                    continue
                unresolved.unprovable = "" if are_shown[is_active] else _describe_hidden(is_active=is_active)
            absent.append(entry)
        return absent

    def _is_absent(self, entry: Unfinished) -> bool:
        """Return whether the look-ups prove the entry absent, if they show subscribers that are as active.

        A sentinel of the entry's base that is as active must show. If there is none, any other one must show."""
        unresolved, result, session = self.unresolved[entry.identity], self._last, self._session
        of_class = session.find_sentinels(unresolved.since, is_active=is_sent_active(entry))
        is_limited = unresolved.is_limited and entry.identity in result.missed
        if is_limited and any(each.sent_at > unresolved.since for each in of_class & result.seen):
            return True
        if unresolved.missed_at is None:
            return False
        if result.started_at < unresolved.missed_at + self._session.policy.quiet_period_s:
            return False
        if session.has_confirmed_since(unresolved.since):
            return find_latest(of_class & result.seen if of_class else result.seen) > unresolved.since
        return result.started_at >= unresolved.since + 2 * self._session.access.lag.largest_lag_s

    async def _dispose(self, absent: list[Unfinished]) -> None:
        fates = [(entry, self._decide_fate(entry)) for entry in absent]
        base = self._session.journal.base

        def chosen(event: Event) -> list[Unfinished]:
            return [entry for entry, fate in fates if fate is event]

        for entry in chosen(Event.REFUSED):  # of another kind from now on than one that is not believed
            unresolved = self.unresolved[entry.identity]
            if not self._session.passing.is_believed(unresolved.kind):
                unresolved.message = f"{_PROVED}: {unresolved.message}" if unresolved.message else _PROVED

        withheld = [
            (each.identity, self.unresolved[each.identity].unprovable or None) for each in chosen(Event.WITHHELD)
        ]

        def write(ledger: Ledger) -> None:
            ledger.mark_suppressed(base, [entry.identity for entry in chosen(Event.SUPPRESSED)])
            ledger.mark_withheld(base, withheld)
            ledger.mark_refused(base, State.UNKNOWN, [self._words(entry) for entry in chosen(Event.REFUSED)])

        def report(_: None) -> None:
            for entry, fate in fates:
                if fate is None:
                    self.left_to[entry.identity] = entry.suppressed_by or ""
                elif fate is not Event.ABSENT:
                    self._end(entry, fate)

        await self._session.journal.ask(write, report)
        await self._send_again(chosen(Event.ABSENT), base)
        await self._refuse_believed(chosen(Event.ABSENT), base)

    async def _refuse_believed(self, absent: list[Unfinished], base: Base) -> None:
        """Reject the entries that were not sent again because the tries of their kind have failed."""
        unsent = [entry for entry in absent if entry.identity in self.unresolved]
        believed = [
            entry
            for entry in unsent
            if not self.unresolved[entry.identity].is_recorded
            and self._session.passing.is_believed(self.unresolved[entry.identity].kind)
        ]
        words = [self._words(entry) for entry in believed]
        await self._session.journal.ask(lambda ledger: ledger.mark_refused(base, State.UNKNOWN, words))
        for entry in believed:
            self._end(entry, Event.REFUSED)

    async def _send_again(self, absent: list[Unfinished], base: Base) -> None:
        """Send these creates again. Entries that no sentinel of their class proves absent go one at a time, until one
        is created: that one is the sentinel of the others, which wait for the next look-up. Entries whose refusal may
        pass go one at a time, too, until one of their kind is created, or the kind is believed."""
        session, began_at, passing = self._session, self._looked.began_at, self._session.passing

        def has_sentinel(entry: Unfinished, at: float) -> bool:
            return bool(session.find_sentinels(at, is_active=is_sent_active(entry)))

        proved = [entry for entry in absent if has_sentinel(entry, self.unresolved[entry.identity].since)]
        identities, kinds = {entry.identity for entry in proved}, self._find_kinds(absent)
        together = list[Unfinished]()
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
            if entry.identity in identities or has_sentinel(entry, began_at):
                continue
            if not passing.is_believed(kinds[entry.identity]):
                await self._create_again([entry], base)

    def _find_kinds(self, entries: Sequence[Unfinished]) -> dict[bytes, str]:
        """Return the kind of each entry's refusal, by identity."""
        return {entry.identity: self.unresolved[entry.identity].kind for entry in entries}

    async def _create_again(self, entries: Sequence[Unfinished], base: Base) -> None:
        candidates = [self._build_again(entry, base) for entry in entries]
        await self._create(CandidateList(candidates, self._session.clock.monotonic).take)

    def _decide_fate(self, entry: Unfinished) -> Event | None:
        """Return the event for an absent entry; None if only another job's suppression list could decide."""
        session, unresolved = self._session, self.unresolved[entry.identity]
        if entry.suppressed_by not in (None, session.job):
            return None
        if unresolved.unprovable:
            return Event.WITHHELD
        if session.is_suppressed(entry.identity, self._newest(entry)):
            return Event.SUPPRESSED
        if session.passing.is_believed(unresolved.kind):
            return Event.REFUSED
        if self._is_to_be_held(entry):
            return Event.WITHHELD
        if entry.attempts - unresolved.uncounted >= _ATTEMPTS and unresolved.is_of_this_run:
            return Event.WITHHELD if unresolved.status is None else Event.REFUSED
        return Event.ABSENT

    def _is_to_be_held(self, entry: Unfinished) -> bool:
        """Return whether the entry is held: by this run's policy, or by that of the run that left it. Only a person
        may decide otherwise."""
        if self.unresolved[entry.identity].is_refused:
            return False
        return self._session.policy.on_unknown == "hold" or (bool(entry.is_holding) and not self.is_resending_held)

    def _words(self, entry: Unfinished) -> tuple[bytes, int, str]:
        unresolved = self.unresolved[entry.identity]
        return entry.identity, unresolved.status or 0, unresolved.message

    def _end(self, entry: Unfinished, event: Event, ids: tuple[int, ...] = ()) -> None:
        self._on_settled(self.unresolved.pop(entry.identity), event, entry.attempts, ids)

    def _newest(self, entry: Unfinished) -> dict[str, object]:
        """Return the create as the source has it now, or else as it was kept."""
        newer = self.unresolved[entry.identity].newer
        kept = newer.sent if newer is not None else read_body(entry)
        return {name: value for name, value in kept.items() if value is not None}

    def _build_again(self, entry: Unfinished, base: Base) -> Candidate:
        """Return the create once more, addressed to the base as it is known now."""
        newer, sent = self.unresolved[entry.identity].newer, self._newest(entry)
        intent = newer.intent if newer is not None else read_intent(entry)
        known_until = self._session.policy.known_until(self._looked.began_at, self._looked.ended_at)
        unresolved = self.unresolved[entry.identity]
        is_same = unresolved.is_refused and newer is None and unresolved.status is not None
        refused = (unresolved.status or 0, unresolved.message) if is_same else None
        return replace(build_again(intent, sent, base, State.UNKNOWN), known_until=known_until, refused=refused)


def is_sent_active(entry: Unfinished) -> bool:
    """Return whether the create was for an active subscriber."""
    return read_body(entry).get("is_active") is True


def _describe_hidden(*, is_active: bool) -> str:
    """Return why the absence of such a subscriber cannot be proved."""
    kind = "active" if is_active else "inactive"
    return (
        f"the list has shown no {kind} subscriber, so no look-up proves that the create had no effect; look for the "
        "subscriber on the service's own pages"
    )


def read_intent(entry: Unfinished) -> Intent:
    """Return what was intended when the entry was sent last."""
    return Intent(entry.identity, entry.fingerprint, entry.body, entry.field)


def build_again(intent: Intent, sent: dict[str, object], base: Base, left: State) -> Candidate:
    """Return a create from a kept entry; after the first answer only Base.Id is sent (architecture 4.9)."""
    if base.service_id is not None:
        sent = {name: value for name, value in sent.items() if name != "base_name"} | {"base_id": base.service_id}
    return Candidate(replace(intent, body=encode_subscriber(sent)), sent, left=left)
