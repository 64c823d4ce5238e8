"""Takes a run's rows chunk by chunk and gives each its outcome; afterwards settles what stayed unknown."""

from collections import Counter

from connector.errors import RunAborted
from connector.ledger import Base, Entry, Intent, count_doubts_elsewhere
from connector.load.candidates import Candidate, CandidateStream, Planned, Row, take_row
from connector.load.creating import Creator, Take
from connector.load.deciding import Decision, decide_row
from connector.load.judging import Verdict
from connector.load.looking import list_base
from connector.load.session import Session
from connector.load.settling import Doubt, Settled, Settler
from connector.load.tally import Problem
from connector.outcomes import Outcome
from connector.plan.digests import split_digests
from connector.states import Event, State

_SHORTEST_FRESH_S = 1.0
_COUNTED = {
    Decision.EXISTS: Outcome.EXISTS,
    Decision.FIRST_TOLD: Outcome.EXISTS,
    Decision.CHANGED: Outcome.CHANGED,
}


class Loader:
    """One load of one base: `take` each chunk, then `settle`; `close` however it ends, so that the outcomes sum up."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._creator = Creator(session, self._on_verdict)
        self._settler = Settler(session, self._creator.create, self._on_settled)
        self._stale_at: float | None = None if session.policy.is_looking else float("inf")
        self._is_clear = False  # whether all that must be known before creating is known (`_make_clear`)
        self._open = 0  # rows taken that have neither an outcome nor a doubt yet

    async def take(self, planned: Planned) -> None:
        """Give every row of the chunk its outcome, or leave it to `settle`.

        Raises RunAborted (ListFailed among them) when the run cannot go on; rows that it did not reach are `unsent`.
        """
        self._open += len(planned.identities)
        places, held = await self._sort(planned, list(range(len(planned.identities))))
        while places and not self._session.stopping.is_set():
            if not self._is_clear or self._is_stale():
                await self._make_clear()
                places, held = await self._sort(planned, [*places, *held])
            stream = CandidateStream(planned, list(places), places, self._session.policy.identity)
            base = self._session.journal.base
            await self._creator.create(self._take_while_known(stream, base))
            places = {place: places[place] for place in stream.rest}
            if self._session.journal.base.key != base.key:  # an answer has told which base this is: ask about that one
                places, held = await self._sort(planned, [*places, *held])
        self._report_held(planned, held)
        self._session.check()

    async def settle(self) -> None:
        """Settle what is unknown in the base, whichever run left it. Raises as `take` does."""
        if not self._session.stopping.is_set():
            await self._settler.settle()
        self._session.check()

    async def close(self) -> None:
        """Count what has no outcome yet: unknown if it was sent, unsent if not."""
        self._session.tally.count(Outcome.UNSENT, self._open)
        self._open = 0
        for doubt in self._settler.doubts.values():
            if doubt.row is None:
                self._session.tally.leftovers["unknown"] += 1
            else:
                message = doubt.message or "it was sent, and it could not be told whether it took effect"
                self._report(doubt.row, Outcome.UNKNOWN, "unknown", message, doubt.status, 1)
        self._settler.doubts.clear()
        await self._session.journal.flush()

    async def _sort(self, planned: Planned, places: list[int]) -> tuple[dict[int, State], list[int]]:
        """Give an outcome to all that have one by the ledger; return the places of those to be created, each with the
        state of its entry, and of those that are held (a look may yet show them)."""
        identities = split_digests(planned.identities[places])
        fingerprints = split_digests(planned.fingerprints[places])
        base = self._session.journal.base
        entries = await self._session.journal.ask(lambda ledger: ledger.find_entries(base, identities))
        to_create: dict[int, State] = {}
        held: list[int] = []
        told: list[tuple[bytes, bytes]] = []
        counted: Counter[Outcome] = Counter()
        for place, identity, fingerprint in zip(places, identities, fingerprints, strict=True):
            entry = entries.get(identity)
            decision = decide_row(entry, fingerprint)
            if entry is None or decision is Decision.AGAIN:
                to_create[place] = State.NONE if entry is None else State.REJECTED
            elif decision is Decision.HELD:
                held.append(place)
            elif decision in _COUNTED:
                counted[_COUNTED[decision]] += 1
                if decision is Decision.FIRST_TOLD:
                    told.append((identity, fingerprint))
            else:
                self._set_aside(decision, entry, planned, place, Intent(identity, fingerprint, b""))
        for outcome, number in counted.items():
            self._session.tally.count(outcome, number)
            self._open -= number
        if told:
            await self._session.journal.ask(lambda ledger: ledger.record_fingerprints(base, told))
        return to_create, held

    def _report_held(self, planned: Planned, held: list[int]) -> None:
        for place in held:
            row = take_row(planned.chunk, int(planned.subscribers.index[place]))
            self._open -= 1
            message = "held: it was proved absent, and the job leaves it to a person"
            self._report(row, Outcome.UNKNOWN, "held", message, None, 1)

    def _set_aside(self, decision: Decision, entry: Entry, planned: Planned, place: int, told: Intent) -> None:
        """A row whose identity was rejected or is unknown: the ledger's word, or a doubt to be settled."""
        row = take_row(planned.chunk, int(planned.subscribers.index[place]))
        self._open -= 1
        if decision is Decision.REJECTED:
            self._report(row, Outcome.REJECTED, "rejected", entry.message or "", entry.status, entry.attempts)
        else:
            doubt = self._settler.doubts.setdefault(told.identity, Doubt(self._session.clock.monotonic()))
            doubt.row = row
            if entry.fingerprint != told.fingerprint:
                stream = CandidateStream(planned, [place], {place: State.UNKNOWN}, self._session.policy.identity)
                doubt.newer = stream.take(1, self._session.journal.base)[0]

    def _take_while_known(self, stream: CandidateStream, base: Base) -> Take:
        """Take from the stream for as long as what was looked up, and in which base, may be relied on."""

        def take(number: int) -> list[Candidate]:
            now = self._session.journal.base
            return [] if self._is_stale() or now.key != base.key else stream.take(number, now)

        return take

    def _is_stale(self) -> bool:
        return self._stale_at is None or self._session.clock.monotonic() >= self._stale_at

    async def _make_clear(self) -> None:
        """All that must be known before anybody is created in this run: who is there, and what is still in doubt.

        Somebody may be unknown under another identity (email, client_user_id), or under this base when it was known by
        its id alone, or by its name alone: until that is settled a new row might be that very person.
        """
        session = self._session
        if self._is_stale():
            await self._look_before_creating()
        if not self._is_clear and await self._has_doubts_of_another_kind():
            await self._settler.settle()
            if await self._has_doubts_of_another_kind():
                raise RunAborted(
                    "some creates of a run by another identity are unknown and could not be settled, so a row of this "
                    "one might be one of them; nothing new was created: run again later"
                )
        base = session.journal.base
        doubts = await session.journal.ask(lambda ledger: count_doubts_elsewhere(ledger.connection, base))
        if doubts:
            raise RunAborted(
                f"{doubts} creates are unknown in a base that may be this one: one was given by its id, the other by "
                "its name, and the service has not told yet that they are one. Run again by the one that came first"
            )
        self._is_clear = True

    async def _has_doubts_of_another_kind(self) -> bool:
        base, identity = self._session.journal.base, self._session.policy.identity
        unknown = await self._session.journal.ask(lambda ledger: ledger.find_unknown(base))
        return any(entry.field != identity for entry in unknown)

    async def _look_before_creating(self) -> None:
        """Learn who is in the base, and how long that may be relied on (design 4.7)."""
        began_at = self._session.clock.monotonic()
        certificate = await list_base(self._session)
        if not certificate.is_complete:
            raise RunAborted(
                f"the list could not be read whole (reason: {certificate.reason}), so nobody can be known to be absent "
                "and nothing was created; run again, or set load.look to none to create without looking"
            )
        took_s = self._session.clock.monotonic() - began_at
        # A list that takes long to read stays good for twice that time, or a large base would only ever be listed.
        self._stale_at = began_at + max(self._session.policy.fresh_s, 3 * took_s, _SHORTEST_FRESH_S)

    def _on_verdict(self, candidate: Candidate, verdict: Verdict) -> None:
        self._session.tally.altered.update(verdict.altered)
        if candidate.left is State.UNKNOWN:
            self._on_second_verdict(candidate, verdict)
        elif verdict.event is Event.ANSWERED:
            self._session.tally.count(Outcome.CREATED)
            self._open -= 1
        elif verdict.event is Event.REFUSED and candidate.take_row is not None:
            self._report(candidate.take_row(), Outcome.REJECTED, "rejected", verdict.message, verdict.status, 1)
            self._open -= 1
        elif verdict.event is Event.LOST and candidate.take_row is not None:
            now = self._session.clock.monotonic()
            self._settler.doubts[candidate.intent.identity] = Doubt(
                now, candidate.take_row(), verdict.status, verdict.message, self._session.policy.is_looking
            )
            self._open -= 1

    def _on_second_verdict(self, candidate: Candidate, verdict: Verdict) -> None:
        """A create that was sent again, after its first was proved to have had no effect."""
        self._session.tally.settled_absent += verdict.event is not Event.NOT_SENT
        if verdict.event in (Event.LOST, Event.NOT_SENT):
            self._settler.renew(candidate.intent.identity, verdict)
            return
        doubt = self._settler.doubts.pop(candidate.intent.identity)
        if verdict.event is Event.ANSWERED and doubt.row is not None:
            self._session.tally.count(Outcome.CREATED)
        elif verdict.event is Event.REFUSED:
            self._report_doubt(doubt, Outcome.REJECTED, "rejected", verdict.message, verdict.status, 2)

    def _on_settled(self, settled: Settled) -> None:
        doubt, tally = settled.doubt, self._session.tally
        if settled.event is Event.FOUND:
            tally.settled_found += 1
            if doubt.row is not None and doubt.newer is not None and not doubt.is_of_this_run:
                tally.count(Outcome.CHANGED)
            elif doubt.row is not None:
                tally.count(Outcome.CREATED if doubt.is_of_this_run else Outcome.EXISTS)
            return
        tally.settled_absent += 1
        if settled.event is Event.WITHHELD:
            message = f"held after it was proved absent: {doubt.message or 'it was sent, and no answer came'}"
            self._report_doubt(doubt, Outcome.UNKNOWN, "held", message, doubt.status, settled.attempts)
        else:
            self._report_doubt(doubt, Outcome.REJECTED, "rejected", doubt.message, doubt.status, settled.attempts)

    def _report_doubt(
        self, doubt: Doubt, outcome: Outcome, code: str, message: str, status: int | None, attempts: int
    ) -> None:
        """Of a row of this run, or of an entry that an earlier one left, which has no row here."""
        if doubt.row is None:
            self._session.tally.leftovers[code] += 1
        else:
            self._report(doubt.row, outcome, code, message, status, attempts)

    def _report(self, row: Row, outcome: Outcome, code: str, message: str, status: int | None, attempts: int) -> None:
        self._session.tally.report(Problem(row, outcome, "", code, message, status, attempts))
