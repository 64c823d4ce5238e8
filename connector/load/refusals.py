"""Whether a refusal had no effect (architecture 4.8): the first of each kind is looked up, at once and at the end of
the run, then with some of the others.

A kind that turns out to have created a subscriber is never believed again, in this run or a later one: a row that is
refused like that is unknown, and settled like any other.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence

from connector.errors import RunAborted
from connector.ledger.entries import Entry, Ledger, Move, Unfinished
from connector.ledger.records import (
    RefusalKind,
    mark_refusal_checked,
    mark_refusal_created,
    read_refusal_kinds,
    record_refusal,
)
from connector.listing.access import LookupKey
from connector.listing.pages import ListFailed, fetch_page
from connector.load.candidates import ENDS_A_RUN, NOT_FINAL, Candidate, want_candidate, want_unfinished
from connector.load.session import Look, Session
from connector.service.answers import refusal_kind
from connector.service.wire import TOO_MANY_REQUESTS, ListQuery
from connector.states import Event, State

_LOOKED_UP_AT_THE_END = 50  # of each kind: the first may have been refused in earnest, and others not
_KINDS_LOOKED_UP_AT_ONCE = 20  # a service that words each refusal differently would have the list read for each


class RefusalSample:
    """A sample of keys: the first and, as more come, every second, every fourth and so on. It holds half of `most`
    to `most`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._met = 0
        self._step = 1
        self.kept: list[LookupKey] = []

    def add(self, key: LookupKey) -> None:
        """Count a key; keep every n-th, where n doubles whenever the sample is full."""
        if self._met % self._step == 0:
            if len(self.kept) == self._most:
                self.kept = self.kept[::2]
                self._step *= 2
            if self._met % self._step == 0:
                self.kept.append(key)
        self._met += 1


class Refusals:
    """The service's refusals, as far as this run knows them."""

    def __init__(self, session: Session, look_for: Look) -> None:
        self._session, self._look_for = session, look_for
        self._met: dict[str, RefusalSample] = {}  # by the kind of refusal
        self._checks: dict[str, asyncio.Task[bool]] = {}
        self._creating: set[str] = set()  # kinds that have created, ever
        self._unproved: set[str] = set()  # kinds of earlier runs so recent that what they created may not show yet

    async def begin(self) -> None:
        """Read the kinds that earlier runs recorded, and look the first row of each kind up once more; entries that a
        run recorded before it knew that their kind creates become UNKNOWN. Raises ListFailed and RunAborted as a
        look-up does."""
        base = self._session.journal.base
        kinds = await self._session.journal.ask(lambda ledger: read_refusal_kinds(ledger.connection, base.account))
        self._creating.update(kind.kind for kind in kinds if kind.has_created)
        to_check = [kind for kind in kinds if not kind.is_checked and kind.base_key == base.key]
        if to_check:
            await self._check_earlier(to_check)
        await self._doubt(self._creating)

    def is_unproved(self, entry: Entry | Unfinished) -> bool:
        """Return whether a refusal by an earlier run is not final, or may have created a subscriber who does not show
        yet."""
        return entry.status in NOT_FINAL or refusal_kind(entry.status or 0, entry.message or "") in self._unproved

    async def judge(self, candidate: Candidate, verdict: Move) -> Event:
        """Return what a refusal is to the ledger: REFUSED, or LOST if its kind is known to create.

        Waits until the first of its kind has been looked up. A 429 that could not be is LOST, too: it would be sent
        again. No refusal is taken for "not sent" (architecture 4.8).
        """
        kind = refusal_kind(verdict.status or 0, verdict.message)
        if not self._session.policy.is_looking and kind not in self._creating:
            return Event.REFUSED  # a found subscriber may have existed before: that proves nothing about the refusal
        is_checked = kind in self._creating or await self._check_at_once(kind, candidate)
        if kind in self._creating or (verdict.status == TOO_MANY_REQUESTS and not is_checked):
            return Event.LOST
        if verdict.status in ENDS_A_RUN and is_checked:
            await self._probe_list()
        return Event.REFUSED

    async def check_again(self) -> None:
        """Look up once more the first row of each kind that this run has met, and some of the others. Entries of a
        kind that turns out to create become UNKNOWN. Raises ListFailed and RunAborted as a look-up does."""
        await self._learn_from_others()
        base = self._session.journal.base
        believed = [(kind, key) for kind, met in self._met.items() if kind not in self._creating for key in met.kept]
        if not believed:
            return
        result = await self._look_for(self._session, list({key.identity: key for _, key in believed}.values()))
        identities = [key.identity for _, key in believed]
        entries = await self._session.journal.ask(lambda ledger: ledger.find_entries(base, identities))
        created = Counter(
            kind
            for kind, key in believed
            if self._has_created(kind, entries.get(key.identity), result.found.get(key.identity, ()))
        )
        await self._record_first(set(created))
        for kind, number in created.items():
            if _is_of_the_rate(kind):
                self._session.tally.note_twice(
                    f"of {len(self._met[kind].kept)} subscribers that were refused for the rate and sent "
                    f"again, {number} are in the service twice: it creates some of those that it refuses so. "
                    "Remove them in the service's own pages, and lower load.max_rate"
                )
        await self._mark_unresolved(set(created))

    async def _record_first(self, kinds: set[str]) -> None:
        """Record kinds beyond those that were looked up at once: else nothing could say that they have created."""
        journal = self._session.journal
        firsts = [(kind, self._met[kind].kept[0].identity) for kind in kinds - self._checks.keys()]

        def write(ledger: Ledger) -> None:
            for kind, identity in firsts:
                record_refusal(ledger.connection, journal.base, kind, identity)

        if firsts:
            await journal.ask(write)

    async def _learn_from_others(self) -> None:
        """Doubt what is recorded under a kind that the load of another base has found to create meanwhile."""
        base = self._session.journal.base
        kinds = await self._session.journal.ask(lambda ledger: read_refusal_kinds(ledger.connection, base.account))
        self._creating.update(kind.kind for kind in kinds if kind.has_created)
        await self._doubt(self._creating)

    async def close(self) -> None:
        """End look-ups that are still under way; their results are no longer needed."""
        for check in self._checks.values():
            check.cancel()
        await asyncio.gather(*self._checks.values(), return_exceptions=True)

    def _has_created(self, kind: str, entry: Entry | None, ids: Sequence[int]) -> bool:
        """Return whether a subscriber exists that no answer reported and that was absent before the create."""
        if entry is None or entry.state is State.REJECTED:
            return bool(ids)
        if entry.state is not State.CONFIRMED:
            return False
        if not _is_of_the_rate(kind):  # not sent again in this run: a listing has shown them
            return True
        return bool(set(ids) - {entry.subscriber_id})

    async def _probe_list(self) -> None:
        """End the run if the list is refused as well: what one row met before may now be the token's fault."""
        try:
            await fetch_page(self._session.access.client, self._session.access.retrier, ListQuery(limit=1))
        except ListFailed as failure:
            self._end_if_refused(failure)

    def _end_if_refused(self, failure: ListFailed) -> None:
        if failure.status in ENDS_A_RUN:
            self._session.control.end(f"the service refuses creates and its list alike: {failure}")

    async def _check_at_once(self, kind: str, candidate: Candidate) -> bool:
        """Look the first row of the kind up, unless that has been done; return whether the look-up was conclusive."""
        self._met.setdefault(kind, RefusalSample(_LOOKED_UP_AT_THE_END)).add(want_candidate(candidate))
        if kind not in self._checks and len(self._checks) < _KINDS_LOOKED_UP_AT_ONCE:
            self._checks[kind] = asyncio.ensure_future(self._check_first(kind, want_candidate(candidate)))
        if kind not in self._checks:
            return False
        is_conclusive = await asyncio.shield(check := self._checks[kind])
        if not is_conclusive and self._checks.get(kind) is check:
            del self._checks[kind]  # the next of the kind is looked up instead
        return is_conclusive

    async def _check_first(self, kind: str, key: LookupKey) -> bool:
        journal = self._session.journal
        await journal.ask(lambda ledger: record_refusal(ledger.connection, journal.base, kind, key.identity))
        try:
            result = await self._look_for(self._session, [key])
        except ListFailed as failure:
            self._end_if_refused(failure)
            return False  # inconclusive now; the end of the run looks it up again
        except RunAborted:
            return False
        if key.identity in result.found:
            await self._mark_unresolved({kind}, is_midway=True)
        return True

    async def _check_earlier(self, kinds: list[RefusalKind]) -> None:
        """Check the kinds of earlier runs by entries that are still REJECTED: only these keep the address.

        Of a run that did not come to its end some more of each kind are looked up, as it would have done there. The
        check is the last one if it was long enough ago (architecture 4.5) for a subscriber that was created to show.
        """
        session, base = self._session, self._session.journal.base
        late_enough = session.clock.now().timestamp() - 2 * session.access.shown_after_s
        refused = await session.journal.ask(lambda ledger: ledger.find_unfinished(base, State.REJECTED))
        known = {entry.identity: want_unfinished(entry) for entry in refused}
        samples = {kind.kind: RefusalSample(_LOOKED_UP_AT_THE_END) for kind in kinds}
        for kind in kinds:
            if kind.identity in known:
                samples[kind.kind].add(known[kind.identity])
        for entry in refused:
            if not entry.has_ended and _kind_of(entry) in samples:
                samples[_kind_of(entry)].add(known[entry.identity])
        asked = {key.identity: key for sample in samples.values() for key in sample.kept}
        result = await self._look_for(session, list(asked.values())) if asked else None
        found = {
            kind
            for kind, sample in samples.items()
            if result and any(key.identity in result.found for key in sample.kept)
        }
        found |= {kind.kind for kind in kinds if kind.is_found and not _is_of_the_rate(kind.kind)}
        decided = found | {
            kind.kind
            for kind in kinds
            if kind.identity not in known
            or (result and kind.identity in result.missed and (kind.ended_at or late_enough + 1) <= late_enough)
        }

        self._unproved = {kind.kind for kind in kinds} - decided

        def write(ledger: Ledger) -> None:
            for kind in decided:
                mark_refusal_checked(ledger.connection, base, kind)

        # before the kinds are checked: a run that dies in between checks them once more
        await self._mark_unresolved(found)
        await session.journal.ask(write)

    async def _mark_unresolved(self, kinds: set[str], *, is_midway: bool = False) -> None:
        """Move entries that were refused in one of these ways to UNKNOWN: their subscribers may exist.

        In the middle of a run (`is_midway`) those of this run alone: it may be about to send others again.
        """
        if kinds:
            await self._note_creating(kinds)
            await self._doubt(kinds, is_own=is_midway)

    async def _doubt(self, kinds: set[str], *, is_own: bool = False) -> None:
        journal = self._session.journal
        base, run_key = journal.base, journal.run_key

        def write(ledger: Ledger) -> None:
            refused = [entry for entry in ledger.find_unfinished(base, State.REJECTED) if _kind_of(entry) in kinds]
            ledger.mark_unresolved(base, [each.identity for each in refused if not is_own or each.run_key == run_key])

        if kinds:
            await self._session.journal.ask(write)

    async def _note_creating(self, kinds: set[str]) -> None:
        self._creating |= kinds
        account = self._session.journal.base.account

        def write(ledger: Ledger) -> None:
            for kind in kinds:
                mark_refusal_created(ledger.connection, account, kind)

        await self._session.journal.ask(write)
        for kind in sorted(kinds):
            self._session.tally.say(
                f"subscribers that the service refused ({kind}) exist all the same: each refusal of this "
                "kind is looked up before it is believed"
            )


def _is_of_the_rate(kind: str) -> bool:
    return kind.startswith(str(TOO_MANY_REQUESTS))


def _kind_of(entry: Unfinished) -> str:
    return refusal_kind(entry.status or 0, entry.message or "")
