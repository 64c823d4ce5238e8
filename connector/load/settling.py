"""Settles unknowns, all of a base together: presence at once, absence only by the rule of design 4.5.

Theory of operation. A look is a reading of the whole list. Somebody it shows is there, whatever its certificate.
Somebody is absent when two complete looks in a row did not show them, the first begun a quiet period after the
attempt ended (or was found), the second a quiet period later, and the second showed a subscriber who was confirmed
after that attempt: so a create that had taken effect would have shown, too. Where nobody was confirmed since, twice
the largest lag that this run has seen must have passed instead. The absent are sent again, or held; what that leaves
unknown is settled in the next round.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import orjson

from connector.fields import normalise_identity
from connector.ledger import Base, Intent, Ledger, UnknownEntry
from connector.load.candidates import Candidate, Row
from connector.load.creating import Take, take_from
from connector.load.judging import Verdict
from connector.load.looking import Sighting, search_base
from connector.load.session import Session
from connector.protocol.wire import decode_subscriber, encode_subscriber
from connector.states import Event, State

_ATTEMPTS = 5  # creates of one identity, each lost and proved absent: at 2 % loss, a chance of 3 in a billion
_LOOKS = 20  # looks in which nothing could be proved absent, before the rest is left unknown

Look = Callable[[Session, frozenset[bytes], Sequence[str]], Awaitable[Sighting]]


@dataclass(slots=True)
class Doubt:
    """What this run knows of one unknown: since when (monotonic), the row it stands for, the last answer's words."""

    since: float
    row: Row | None = None
    status: int | None = None
    message: str = ""
    is_of_this_run: bool = False  # sent by this run, and known absent before
    missed_at: float | None = None  # when the first complete look that did not show it began
    newer: Candidate | None = None  # what the source says now, where that is not what was sent


@dataclass(frozen=True, slots=True)
class Settled:
    """How one unknown ended: FOUND, WITHHELD or REFUSED."""

    event: Event
    doubt: Doubt
    attempts: int


class Settler:
    """Turns the unknown entries of the run's base into known ones."""

    def __init__(
        self,
        session: Session,
        create: Callable[[Take], Awaitable[None]],
        on_settled: Callable[[Settled], None],
        look: Look = search_base,
    ) -> None:
        self._session = session
        self._create = create
        self._on_settled = on_settled
        self._search = look
        self._largest_lag_s = 0.0
        self._last: Sighting
        self.doubts: dict[bytes, Doubt] = {}

    async def settle(self) -> None:
        """Settle all that can be; what is left in the ledger as UNKNOWN afterwards could not be told.

        Raises ListFailed when the service does not give its list, RunAborted when the run ends itself.
        """
        fruitless = 0
        is_first_look = True
        while (unknown := await self._read_unknown()) and fruitless < _LOOKS:
            if not is_first_look and not await self._wait_for_next_look(unknown):
                return
            remaining = await self._look(unknown)
            absent = [entry for entry in remaining if self._is_absent(entry)]
            if self._session.stopping.is_set():
                return
            await self._dispose(absent)
            is_first_look = bool(absent)  # what was sent again may be there at once
            fruitless = 0 if absent or len(remaining) < len(unknown) else fruitless + 1

    def renew(self, identity: bytes, verdict: Verdict) -> None:
        """Another attempt was lost: all that has to do with time begins anew."""
        doubt = self.doubts[identity]
        doubt.since, doubt.missed_at = self._session.clock.monotonic(), None
        doubt.status, doubt.message, doubt.newer = verdict.status, verdict.message, None

    async def _read_unknown(self) -> list[UnknownEntry]:
        base = self._session.journal.base
        unknown = await self._session.journal.ask(lambda ledger: ledger.find_unknown(base))
        found_at = self._session.clock.monotonic()
        for entry in unknown:
            self.doubts.setdefault(entry.identity, Doubt(found_at))
        return unknown

    def _time_to_next_look(self, unknown: list[UnknownEntry]) -> float:
        """Until a quiet period has passed for all: since the attempt, or since the look that first missed it."""
        quiet_s = self._session.policy.quiet_period_s
        doubts = [self.doubts[entry.identity] for entry in unknown]
        latest = max(doubt.since if doubt.missed_at is None else doubt.missed_at for doubt in doubts)
        return max(latest, self._last.started_at) + quiet_s - self._session.clock.monotonic()

    async def _wait_for_next_look(self, unknown: list[UnknownEntry]) -> bool:
        wait_s = self._time_to_next_look(unknown)
        self._session.activity = f"waiting {max(wait_s, 0):.0f} s before looking for {len(unknown):,} unknown again"
        return await self._session.rest(wait_s)

    async def _look(self, unknown: list[UnknownEntry]) -> list[UnknownEntry]:
        """Settle those that a look at the list shows; note on the others what the look says of them."""
        fields = sorted({entry.field for entry in unknown})
        wanted = frozenset(entry.identity for entry in unknown)
        self._last = sighting = await self._search(self._session, wanted, fields)
        self._measure_lag(sighting)
        base = self._session.journal.base
        found = list(sighting.found.items())
        await self._session.journal.ask(lambda ledger: ledger.mark_found(base, State.UNKNOWN, found))
        remaining = []
        for entry in unknown:
            if entry.identity in sighting.found:
                self._end(entry, Event.FOUND)
            else:
                self._note_absence(self.doubts[entry.identity], sighting)
                remaining.append(entry)
        return remaining

    def _note_absence(self, doubt: Doubt, sighting: Sighting) -> None:
        if not sighting.is_complete:
            doubt.missed_at = None  # two complete looks in a row are asked for
        elif doubt.missed_at is None and sighting.started_at >= doubt.since + self._session.policy.quiet_period_s:
            doubt.missed_at = sighting.started_at

    def _is_absent(self, entry: UnknownEntry) -> bool:
        doubt, sighting = self.doubts[entry.identity], self._last
        if doubt.missed_at is None:
            return False
        if sighting.started_at < doubt.missed_at + self._session.policy.quiet_period_s:
            return False
        if self._session.witnesses and self._session.witnesses[-1][0] > doubt.since:
            return sighting.latest_seen_at > doubt.since
        return sighting.started_at >= doubt.since + 2 * self._largest_lag_s

    def _measure_lag(self, sighting: Sighting) -> None:
        """A confirmed subscriber that a look does not show lags at least by the time since its answer."""
        for confirmed_at, subscriber_id in self._session.witnesses:
            if subscriber_id not in sighting.seen_ids and confirmed_at < sighting.started_at:
                self._largest_lag_s = max(self._largest_lag_s, sighting.started_at - confirmed_at)

    async def _dispose(self, absent: list[UnknownEntry]) -> None:
        """Send the absent again or, as the job or their history says, hold them or take them as refused."""
        session, base = self._session, self._session.journal.base
        worn = [entry for entry in absent if entry.attempts >= _ATTEMPTS and self.doubts[entry.identity].message]
        refused = [entry for entry in worn if self.doubts[entry.identity].status is not None]
        held = [entry for entry in absent if session.policy.on_unknown == "hold" or entry in worn]
        held = [entry for entry in held if entry not in refused]
        settled = {entry.identity for entry in (*held, *refused)}
        again = [self._build_again(entry, base) for entry in absent if entry.identity not in settled]

        def write(ledger: Ledger) -> None:
            ledger.mark_withheld(base, [entry.identity for entry in held])
            ledger.mark_refused(base, State.UNKNOWN, [self._words(entry) for entry in refused])

        await session.journal.ask(write)
        for event, entries in ((Event.WITHHELD, held), (Event.REFUSED, refused)):
            for entry in entries:
                self._end(entry, event)
        for candidate in again:
            self.doubts[candidate.intent.identity].is_of_this_run = True
        await self._create(take_from(again))

    def _words(self, entry: UnknownEntry) -> tuple[bytes, int, str]:
        doubt = self.doubts[entry.identity]
        return entry.identity, doubt.status or 0, doubt.message

    def _end(self, entry: UnknownEntry, event: Event) -> None:
        self._on_settled(Settled(event, self.doubts.pop(entry.identity), entry.attempts))

    def _build_again(self, entry: UnknownEntry, base: Base) -> Candidate:
        """The create as the source has it now, or else as it was kept, addressed to the base as it is known now."""
        newer = self.doubts[entry.identity].newer
        kept = newer.sent if newer is not None else decode_subscriber(orjson.loads(entry.body)["Subscriber"])
        fingerprint = newer.intent.fingerprint if newer is not None else entry.fingerprint
        sent = {name: value for name, value in kept.items() if value is not None}
        if base.service_id is not None:  # from the first answer on only Base.Id is sent (design 4.9)
            sent.pop("base_name", None)
            sent["base_id"] = base.service_id
        intent = Intent(entry.identity, fingerprint, encode_subscriber(sent), entry.field)
        name = normalise_identity(entry.field, str(sent[entry.field]))
        return Candidate(intent, name, sent, left=State.UNKNOWN)
