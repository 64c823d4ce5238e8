"""Which subscribers are in the base already, and how long that may be relied on (architecture 4.7)."""

from collections.abc import Sequence
from contextlib import suppress

from connector.errors import RunAborted
from connector.listing import ListFailed, fetch_page
from connector.load.candidates import Planned
from connector.load.guarding import guard_account
from connector.load.judging import ENDS_A_RUN
from connector.load.looks.listed import BaseReader
from connector.load.looks.looking import Estimate, estimate, list_base, list_on, look_as_sent, look_by_filter
from connector.load.looks.lookups import ask, find_shown
from connector.load.looks.reading_on import ListEnd
from connector.load.looks.sighting import Sighting, Wanted
from connector.load.session import Session
from connector.pages import CutOff
from connector.pages.certificate import SMALLEST_WINDOW
from connector.service import ListQuery
from connector.states import State

_ABSENT_ASKED = 20  # of those that a listing says are absent, and as many more once one of them is there
_ABSENT_SAMPLED = 400  # of a chunk, among whom they are sought
_SHOWING_STEPS_S = (0.0, 1.0, 2.0, 4.0, 8.0, 15.0)


class Knowledge:
    """What a run has learned of who is there. No subscriber is created whom it does not cover."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.until = float("-inf") if session.policy.is_looking else float("inf")  # monotonic
        self._of: Planned | None = None  # the one chunk that it is of; None: of everybody, by a listing
        self._spent = 0  # requests by filter: once a listing would have cost as much, the base is listed
        self._end: ListEnd | None = None  # of the last listing, where reading on renews it
        self._listing_took_s: float | None = None  # where that is longer than what it says may be relied on
        self._counted: int | None = None  # TotalCount of a list that may be cut off: the canary must raise it

    async def guard_account(self) -> None:
        """Design 4.10; what could not be told is left to the run's own sweeps of the list. Raises RunAborted."""
        self._session.lookout.known = await guard_account(self._session)

    def covers(self, planned: Planned) -> bool:
        """Whether it is known of everybody in this chunk whether they are there."""
        return self._session.clock.monotonic() < self.until and (self._of is None or self._of is planned)

    def forget(self) -> None:
        """Somebody may have come since."""
        if self._session.policy.is_looking:
            self.until = float("-inf")

    async def learn(self, planned: Planned, wanted: Sequence[Wanted]) -> None:
        """Learn which of a chunk's `wanted` are there, and record them: the cheaper way first, by filters or a listing.

        Raises RunAborted (ListFailed among them) when that cannot be told of one, or not soon enough.
        """
        if self.covers(planned):
            return
        began_at = self._session.clock.monotonic()
        if not await self._read_on():
            cost = await estimate(self._session, wanted)
            if self._is_filter_cheaper(cost) and await self._learn_by_filter(wanted, cost.filtering):
                self._of = planned
            elif (
                cost.is_list_unreadable or self._listing_took_s is not None or not await self._learn_by_listing(wanted)
            ):
                await self._learn_without_listing(wanted)
                self._of = planned
            elif self._is_too_old(began_at):
                self._listing_took_s = self._session.clock.monotonic() - began_at
                began_at = await self._renew(planned, wanted)
        self.until = self._session.policy.known_until(began_at, self._session.clock.monotonic())

    def _is_too_old(self, began_at: float) -> bool:
        """Whether a look that began then may be relied on no more."""
        try:
            self._session.policy.known_until(began_at, self._session.clock.monotonic())
        except RunAborted:
            return True
        return False

    async def _renew(self, planned: Planned, wanted: Sequence[Wanted]) -> float:
        """Look again after a listing that took too long, by reading on, else by look-ups; returns when that began."""
        began_at = self._session.clock.monotonic()
        if not await self._read_on():
            began_at = self._session.clock.monotonic()
            await self._learn_without_listing(wanted)
            self._of = planned
        return began_at

    async def _read_on(self) -> bool:
        """Whether a listing could be renewed from its end on."""
        if self._end is None or self._session.lookout.known:
            return False
        self._end = await list_on(self._session, self._end)
        self._of = None if self._end is not None else self._of
        return self._end is not None

    def _is_filter_cheaper(self, cost: Estimate) -> bool:
        """With all that filters have cost this run so far: chunk by chunk they would always be cheaper."""
        if cost.is_list_unreadable:
            return cost.is_filter_cheaper
        if self._session.journal.base.service_id is None or self._session.lookout.known:
            return False  # a listing teaches the base's Id, sees whether several bear its name, and whose account it is
        is_affordable = cost.listing is not None and self._spent + cost.filtering < cost.listing
        return cost.is_filter_cheaper and is_affordable

    async def _learn_by_filter(self, wanted: Sequence[Wanted], requests: int) -> bool:
        """By a filter that finds people in whatever capitals they are there; False when it does not tell of all."""
        self._spent += requests
        try:
            sighting = await look_by_filter(self._session, wanted)
        except ListFailed as failure:
            if failure.status in ENDS_A_RUN:
                raise
            return False  # a service may choke on one strange text: its list may be had all the same
        return not await self._record(wanted, sighting)

    async def _learn_by_listing(self, wanted: Sequence[Wanted]) -> bool:
        listing = await list_base(self._session)
        if listing.doubled:
            self._session.tally.say(
                f"{listing.doubled} identities are in the base more than once already; the service offers no way to "
                "remove one, so that is left to its own pages"
            )
        if not listing.is_complete or await self._contradicts_absence(wanted, listing.certificate.distinct):
            return False
        certificate = listing.certificate
        is_suspect = certificate.cut_off in (CutOff.NOT_EXCLUDED, CutOff.ACCEPTED)
        self._of, self._end = None, listing.end
        self._counted = certificate.total_last if is_suspect else None
        return True

    # A list that is cut off (architecture 7, rule 7)

    async def _contradicts_absence(self, wanted: Sequence[Wanted], listed: int) -> bool:
        """Whether two of some that a long listing says are absent are there all the same, looked up one by one."""
        if listed < SMALLEST_WINDOW:
            return False
        session, absent, found = self._session, await self._find_absent(wanted), 0
        reader = BaseReader(session.journal.base, session.asked_name, [session.policy.identity], session.inactive)
        for some in (absent[:_ABSENT_ASKED], absent[_ABSENT_ASKED : 2 * _ABSENT_ASKED]):
            found += await self._record_shown(reader, some)
            if found != 1:  # one may have come meanwhile
                break
        if found < 2:
            return False
        session.lookout.is_list_unreadable = True
        session.lookout.unreadable_because = (
            f"the service cuts its list off after {listed:,} subscribers ({found} that it leaves out were found)"
        )
        return True

    async def _find_absent(self, wanted: Sequence[Wanted]) -> list[Wanted]:
        """Some of these who are absent by what was listed, from all over the chunk."""
        sample = wanted[:: max(1, len(wanted) // _ABSENT_SAMPLED)]
        base, identities = self._session.journal.base, [each.identity for each in sample]
        entries = await self._session.journal.ask(lambda ledger: ledger.find_entries(base, identities))
        there = {identity for identity, entry in entries.items() if entry.state is State.CONFIRMED}
        absent = [each for each in sample if each.identity not in there]
        return absent[:: max(1, len(absent) // (2 * _ABSENT_ASKED))]

    async def _record_shown(self, reader: BaseReader, some: Sequence[Wanted]) -> int:
        """Record those of these whom their filters show; how many. A service that refuses to be asked shows nobody."""
        session, identities = self._session, {each.identity for each in some}
        rows = list[dict[str, object]]()
        with suppress(ListFailed):
            asked = [(each.field, each.value) for each in some]
            rows = await session.until_stopped(find_shown(session, asked))
        shown = {identity: number for identity, number in reader.read(rows) if identity in identities}
        base, identity = session.journal.base, session.policy.identity
        await session.journal.ask(lambda ledger: ledger.record_listed(base, identity, list(shown.items())))
        return len(shown)

    @property
    def is_growth_due(self) -> bool:
        """Whether the first create must be seen to raise TotalCount before others rest on the listing."""
        return self._counted is not None

    async def check_growth(self) -> None:
        """Once the canary shows by its own Id, TotalCount must have grown; where it does not show, nothing is told.

        Raises RunAborted where the list is cut off, ListFailed.
        """
        session, counted = self._session, self._counted
        if counted is None or not session.witnesses:
            return
        self._counted, canary = None, session.witnesses[-1].subscriber_id
        shown = list[object]()
        for wait_s in _SHOWING_STEPS_S:
            if wait_s > session.policy.quiet_period_s or not await session.rest(wait_s):
                return
            shown = [
                row["Id"] for row in (await session.until_stopped(ask(session, ListQuery(limit=1, id=canary)))).rows
            ]
            if any(each != canary for each in shown):
                return  # the filter is none
            if shown:
                break
        page = await session.until_stopped(fetch_page(session.client, session.retrier, ListQuery(limit=1)))
        if shown and page.total_count is not None and page.total_count <= counted:
            raise RunAborted(
                f"the service cuts its list off: it counts {page.total_count:,} subscribers, no more than before the "
                f"first create of this run, which it shows by its Id ({canary}). No other row was sent, since "
                "subscribers that exist may not be listed. Run again if subscribers were removed meanwhile"
            )

    async def _learn_without_listing(self, wanted: Sequence[Wanted]) -> None:
        """The list is in no stable order, say: by filters, as far as they go."""
        untold = await self._record(wanted, await look_as_sent(self._session, wanted))
        if untold and self._listing_took_s is not None:
            raise RunAborted(
                f"reading the list took {self._listing_took_s:,.0f} s, and load.fresh lets a create rely on it for "
                f"{self._session.policy.fresh_s:g} s. Its filters do not tell of {untold} subscribers whether they "
                "exist, so no row was sent since. Make load.fresh longer than a listing takes, then run again"
            )
        if untold:
            because = self._session.lookout.unreadable_because or "the list could not be read whole"
            raise RunAborted(
                f"{because}, and its filters do not tell of {untold} whether they are there, so "
                "no subscriber can be known to be absent and no row was sent since; run again, or set load.look "
                "to none to create without looking"
            )

    async def _record(self, wanted: Sequence[Wanted], sighting: Sighting) -> int:
        """Record those found; returns of how many it could not be told."""
        base, identity = self._session.journal.base, self._session.policy.identity
        found = [(each, ids[0]) for each, ids in sighting.found.items()]
        await self._session.journal.ask(lambda ledger: ledger.record_listed(base, identity, found))
        return sum(each.identity not in sighting.found and each.identity not in sighting.missed for each in wanted)
