"""Who is in the base already, and how long that may be relied on (design 4.7)."""

from collections.abc import Sequence

from connector.api.listing import ListFailed
from connector.errors import RunAborted
from connector.load.candidates import Planned
from connector.load.guarding import guard_account
from connector.load.judging import ENDS_A_RUN
from connector.load.looks.looking import Estimate, estimate, list_base, look_as_sent, look_by_filter
from connector.load.looks.sighting import Sighting, Wanted
from connector.load.session import Session


class Knowledge:
    """What a run has learned of who is there. Nobody is created whom it does not cover."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.until = float("-inf") if session.policy.is_looking else float("inf")  # monotonic
        self._of: Planned | None = None  # the one chunk that it is of; None: of everybody, by a listing
        self._spent = 0  # requests by filter: once a listing would have cost as much, the base is listed

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
        """Learn who of a chunk's `wanted` is there, and record them: the cheaper way first, by filters or by a listing.

        Raises RunAborted (ListFailed among them) when that cannot be told of somebody.
        """
        if self.covers(planned):
            return
        began_at = self._session.clock.monotonic()
        cost = await estimate(self._session, wanted)
        if self._is_filter_cheaper(cost) and await self._learn_by_filter(wanted, cost.filtering):
            self._of = planned
        elif not cost.is_list_unreadable and await self._learn_by_listing():
            self._of = None
        else:
            await self._learn_without_listing(wanted)
            self._of = planned
        self.until = self._session.policy.known_until(began_at, self._session.clock.monotonic())

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

    async def _learn_by_listing(self) -> bool:
        listing = await list_base(self._session)
        if listing.doubled:
            self._session.tally.say(
                f"{listing.doubled} identities are in the base more than once already; the service offers no way to "
                "remove one, so that is left to its own pages"
            )
        return listing.is_complete

    async def _learn_without_listing(self, wanted: Sequence[Wanted]) -> None:
        """The list is in no stable order, say: by filters, as far as they go."""
        untold = await self._record(wanted, await look_as_sent(self._session, wanted))
        if untold:
            raise RunAborted(
                f"the list could not be read whole, and its filters do not tell of {untold} whether they are there, so "
                "nobody can be known to be absent and nothing was created; run again, or set load.look to none to "
                "create without looking"
            )

    async def _record(self, wanted: Sequence[Wanted], sighting: Sighting) -> int:
        """Record those found; returns of how many it could not be told."""
        base, identity = self._session.journal.base, self._session.policy.identity
        found = [(each, ids[0]) for each, ids in sighting.found.items()]
        await self._session.journal.ask(lambda ledger: ledger.record_listed(base, identity, found))
        return sum(each.identity not in sighting.found and each.identity not in sighting.missed for each in wanted)
