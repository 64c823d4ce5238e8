"""Which subscribers are in the base already, and how long that may be relied on (architecture 4.7).

A look-up takes the cheaper way first: the list's filters, or one sweep of the list. Where that is inconclusive, the
other way follows. Each way decides what makes its answer certain.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from connector.errors import RunAborted
from connector.listing.access import LookupKey, LookupResult
from connector.listing.base_list import ListEnd, list_base, list_on, sweep_for
from connector.listing.base_reader import BaseReader
from connector.listing.lookup import ASKED_TOGETHER, can_tell, count_requests, look_by_filter
from connector.listing.pages import ListFailed, fetch_page
from connector.listing.requests import ask, find_shown, take_stats
from connector.load.candidates import ENDS_A_RUN
from connector.load.session import Session, TakeLook
from connector.paging.certificate import SMALLEST_WINDOW, CutOff
from connector.rows import Planned
from connector.service.wire import UNAUTHORISED, ListQuery
from connector.states import State

_NEVER = float("-inf")
_ABSENT_ASKED = 20  # looked up of those that a listing says are absent; 20 more once one of them is present
_ABSENT_SAMPLED = 400  # rows of a chunk, among which these 20 are chosen
_SHOWING_STEPS_S = (0.0, 1.0, 2.0, 4.0, 8.0, 15.0)


@dataclass(frozen=True, slots=True)
class Estimate:
    """The requests that a look-up would take: `listing` by a sweep (None: not known), `filtering` by filters. Where
    `filtering` exceeds `listing`, it is a lower bound.

    `untellable` are identities for which no filter is conclusive; `is_list_unreadable`: the last sweep was incomplete.
    """

    listing: int | None
    filtering: int
    untellable: frozenset[bytes]
    is_list_unreadable: bool

    @property
    def is_filter_cheaper(self) -> bool:
        """Whether to begin with filters: they may answer for all, and cost less than a sweep or a sweep is useless."""
        if self.untellable:
            return False
        return self.is_list_unreadable or (self.listing is not None and self.filtering < self.listing)


async def estimate(session: Session, keys: Sequence[LookupKey]) -> Estimate:
    """Return the requests that a look-up would take. Read one page of the list unless its stats are fresh.

    Raises ListFailed, and RunAborted when the run is to stop.
    """
    stats = await take_stats(session.access)
    if stats.pages is not None and len(keys) >= stats.pages and not session.access.state.is_list_unreadable:
        return Estimate(stats.pages, len(keys), frozenset(), is_list_unreadable=False)  # one for each at the least
    return Estimate(
        stats.pages,
        count_requests(keys),
        frozenset(key.identity for key in keys if not can_tell(session.access, key)),
        session.access.state.is_list_unreadable,
    )


async def look_for(session: Session, keys: Sequence[LookupKey], *, number_left: int | None = None) -> LookupResult:
    """Look the keys up in the run's base, the cheaper way first. Where they are the next of many, `number_left` says
    how many are still looked for.

    Raises ListFailed when the service does not give its list, RunAborted when the base is not the one that was meant or
    the run is to stop.
    """
    if not keys:
        return LookupResult({}, frozenset(), _NEVER, 0.0, session.clock.monotonic())
    if not await _begins_with_filters(session, keys):
        swept = await sweep_for(session.access, keys)
        rest = _split(keys, swept)[1]
        return _join(swept, await _try_filters(session, rest, number_left)) if rest else swept
    filtered = await _try_filters(session, keys, number_left)
    if not _shows_what_we_send(session, filtered):
        filtered = replace(filtered, missed=frozenset())
    rest = _split(keys, filtered)[1]
    return _join(filtered, await sweep_for(session.access, rest)) if rest else filtered


async def look_as_sent(session: Session, keys: Sequence[LookupKey], *, number_left: int | None = None) -> LookupResult:
    """Look the keys up as sent and as normalised, the least that architecture 4.7 asks. It serves where the list cannot
    be read whole and its filters distinguish capitals. `number_left` as in `look_for`, as which it raises."""
    as_sent = [replace(key, in_any_spelling=False) for key in keys]
    result = await look_for(session, as_sent, number_left=number_left)
    if result.missed:
        session.tally.say(
            "the list could not be read whole, so each row was looked up by filters, as it would be "
            "sent and as normalised: a subscriber that exists in other capitals may be created once "
            "more"
        )
    return result


async def look_in_parts(session: Session, keys: Sequence[LookupKey], take: TakeLook) -> None:
    """Look the keys up as they ask; if the list turns out to be unreadable, look the rest up as sent and as normalised.

    `take` is given each key once, with what is found of it: all that a sweep tells together, what filters tell some at
    a time, so that a run which is killed in the middle of thousands has settled most of them. Raises as `look_for`
    does.
    """
    if not keys:
        return
    left: list[LookupKey] = []
    is_by_filter = await _begins_with_filters(session, keys)
    if not is_by_filter:
        swept = await sweep_for(session.access, keys)
        conclusive, keys = _split(keys, swept)
        await take(conclusive, swept)
    for start in range(0, len(keys), ASKED_TOGETHER):
        some = keys[start : start + ASKED_TOGETHER]
        filtered = await _try_filters(session, some, len(keys) - start)
        if is_by_filter and not _shows_what_we_send(session, filtered):
            filtered = replace(filtered, missed=frozenset())
        conclusive, inconclusive = _split(some, filtered)
        await take(conclusive, filtered)
        left += inconclusive
    if left and is_by_filter:
        swept = await sweep_for(session.access, left)
        conclusive, left = _split(left, swept)
        await take(conclusive, swept)
    is_readable = not session.access.state.is_list_unreadable
    again = [each for each in left if each.in_any_spelling and not is_readable]
    open_keys = [each for each in left if is_readable or not each.in_any_spelling]
    for start in range(0, len(again), ASKED_TOGETHER):
        some = again[start : start + ASKED_TOGETHER]
        await take(some, await look_as_sent(session, some, number_left=len(again) - start))
    if open_keys:
        await take(open_keys, LookupResult({}, frozenset(), _NEVER, 0.0, session.clock.monotonic()))


async def _begins_with_filters(session: Session, keys: Sequence[LookupKey]) -> bool:
    return not session.access.known and (await estimate(session, keys)).is_filter_cheaper


async def _try_filters(session: Session, keys: Sequence[LookupKey], number_left: int | None) -> LookupResult:
    """Look the keys up by filters. A failure proves nothing about the list: a service may choke on one strange text."""
    started_at = session.clock.monotonic()
    try:
        return await look_by_filter(session.access, keys, number_left=number_left)
    except ListFailed as failure:
        if failure.status in UNAUTHORISED:
            raise
        session.access.state.useless.update(key.field for key in keys)
        return LookupResult({}, frozenset(), _NEVER, 0.0, started_at)


def _shows_what_we_send(session: Session, result: LookupResult) -> bool:
    """Return whether the filters showed this run's latest sentinel, or proved a lag; otherwise their absences prove
    nothing."""
    latest = max((each.at for each in session.access.sentinels if each.at < result.started_at), default=_NEVER)
    return result.latest_seen_at >= latest or result.lag_s > 0


def _split(keys: Sequence[LookupKey], result: LookupResult) -> tuple[list[LookupKey], list[LookupKey]]:
    """Return the keys of which the result tells, and those of which it is inconclusive."""
    known = result.found.keys() | result.missed
    return [key for key in keys if key.identity in known], [key for key in keys if key.identity not in known]


def _join(first: LookupResult, second: LookupResult) -> LookupResult:
    """Join both results. A sentinel counts only if each look-up that missed an identity showed it."""
    seen = [each.latest_seen_at for each in (first, second) if each.missed]
    return LookupResult(
        {**first.found, **second.found},
        first.missed | second.missed,
        min(seen, default=max(first.latest_seen_at, second.latest_seen_at)),
        max(first.lag_s, second.lag_s),
        min(first.started_at, second.started_at),
    )


class PresenceCache:
    """Which subscribers exist, as far as a run has learned. A row that it does not cover is not created."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.until = float("-inf") if session.policy.is_looking else float("inf")  # monotonic
        self._of: Planned | None = None  # the one chunk that it covers; None: all, by a listing
        self._spent = 0  # requests by filter: once a listing would have cost as much, the base is listed
        self._end: ListEnd | None = None  # of the last listing, where reading on renews it
        self._listing_took_s: float | None = None  # set where a listing takes longer than its answer may be relied on
        self._counted: int | None = None  # TotalCount of a list that may be cut off: the canary must raise it

    def covers(self, planned: Planned) -> bool:
        """Return whether it is known for every row of this chunk whether its subscriber exists."""
        return self._session.clock.monotonic() < self.until and (self._of is None or self._of is planned)

    def forget(self) -> None:
        """Forget what is known: subscribers may have been created since."""
        if self._session.policy.is_looking:
            self.until = float("-inf")

    async def learn(self, planned: Planned, keys: Sequence[LookupKey]) -> None:
        """Look up the keys of a chunk's rows, and record those present: the cheaper way first, by filters or a listing.

        Raises RunAborted (ListFailed included) when one stays inconclusive, or the answer comes too late.
        """
        if self.covers(planned):
            return
        began_at = await self._look(planned, keys)
        self.until = self._session.policy.known_until(began_at, self._session.clock.monotonic())

    async def _look(self, planned: Planned, keys: Sequence[LookupKey]) -> float:
        """Look which are there, and return when that began (monotonic)."""
        began_at = self._session.clock.monotonic()
        if await self._read_on():
            return began_at
        cost = await estimate(self._session, keys)
        if self._is_filter_cheaper(cost) and await self._learn_by_filter(keys, cost.filtering):
            self._of = planned
            return began_at
        if not cost.is_list_unreadable and self._listing_took_s is None:
            if (listed_at := await self._learn_by_listing(keys)) is not None:
                if not self._is_too_old(listed_at):
                    return listed_at
                self._listing_took_s = self._session.clock.monotonic() - listed_at
                return await self._renew(planned, keys)
            began_at = self._session.clock.monotonic()
        await self._learn_without_listing(keys)
        self._of = planned
        return began_at

    def _is_too_old(self, began_at: float) -> bool:
        """Return whether a look-up that began then is too old to rely on."""
        try:
            self._session.policy.known_until(began_at, self._session.clock.monotonic())
        except RunAborted:
            return True
        return False

    async def _renew(self, planned: Planned, keys: Sequence[LookupKey]) -> float:
        """Renew a listing that took too long, by reading on, else by look-ups. Return when that began."""
        began_at = self._session.clock.monotonic()
        if not await self._read_on():
            began_at = self._session.clock.monotonic()
            await self._learn_without_listing(keys)
            self._of = planned
        return began_at

    async def _read_on(self) -> bool:
        """Return whether a listing could be renewed from its end on."""
        if self._end is None or self._session.access.known:
            return False
        self._end = await list_on(self._session.access, self._end)
        if self._end is None:
            return False
        self._of = None
        return True

    def _is_filter_cheaper(self, cost: Estimate) -> bool:
        """Return whether filters are cheaper, counting all that they have cost this run."""
        if cost.is_list_unreadable:
            return cost.is_filter_cheaper
        if self._session.journal.base.service_id is None or self._session.access.known:
            return False  # a listing teaches the base's Id, sees whether several bear its name, and whose account it is
        is_affordable = cost.listing is not None and self._spent + cost.filtering < cost.listing
        return cost.is_filter_cheaper and is_affordable

    async def _learn_by_filter(self, keys: Sequence[LookupKey], requests: int) -> bool:
        """Look them up by a filter that ignores capitals; return False unless it is conclusive for all."""
        self._spent += requests
        try:
            result = await look_by_filter(self._session.access, keys)
        except ListFailed as failure:
            if failure.status in ENDS_A_RUN:
                raise
            return False  # a service may choke on one strange text; its list may still be readable
        return not await self._record(keys, result)

    async def _learn_by_listing(self, keys: Sequence[LookupKey]) -> float | None:
        """List the base; return when that began (monotonic), None where it does not show who is absent."""
        began_at = self._session.clock.monotonic()
        listing = await list_base(self._session.access, keys)
        if listing.doubled:
            self._session.tally.say(
                f"identities that are in the base more than once already: {listing.doubled:,}. The "
                "service's interface removes no subscriber: remove them in its own pages"
            )
        if not listing.is_complete or await self._contradicts_absence(keys, listing.certificate.distinct):
            return None
        certificate = listing.certificate
        is_suspect = certificate.cut_off in (CutOff.NOT_EXCLUDED, CutOff.ACCEPTED)
        self._of, self._end = None, listing.end
        self._counted = certificate.total_last if is_suspect else None
        return began_at

    # A list that is cut off (architecture 7, rule 7)

    async def _contradicts_absence(self, keys: Sequence[LookupKey], listed: int) -> bool:
        """Return whether two subscribers that a long listing lacks are found by look-ups of their own."""
        if listed < SMALLEST_WINDOW:
            return False
        session, absent, found = self._session, await self._find_absent(keys), 0
        reader = BaseReader(
            session.journal.base, session.access.asked_name, [session.policy.identity], session.access.inactive
        )
        for some in (absent[:_ABSENT_ASKED], absent[_ABSENT_ASKED : 2 * _ABSENT_ASKED]):
            found += await self._record_shown(reader, some)
            if found != 1:  # one may have come meanwhile
                break
        if found < 2:
            return False
        session.access.state.is_list_unreadable = True
        session.access.state.unreadable_because = (
            f"the service cuts its list off after {listed:,} subscribers ({found} that it leaves out were found)"
        )
        return True

    async def _find_absent(self, keys: Sequence[LookupKey]) -> list[LookupKey]:
        """Return some keys, from all over the chunk, whose subscribers the listing did not show."""
        sample = keys[:: max(1, len(keys) // _ABSENT_SAMPLED)]
        base, identities = self._session.journal.base, [each.identity for each in sample]
        entries = await self._session.journal.ask(lambda ledger: ledger.find_entries(base, identities))
        there = {identity for identity, entry in entries.items() if entry.state is State.CONFIRMED}
        absent = [each for each in sample if each.identity not in there]
        return absent[:: max(1, len(absent) // (2 * _ABSENT_ASKED))]

    async def _record_shown(self, reader: BaseReader, some: Sequence[LookupKey]) -> int:
        """Record those that the filters show; return how many. A service that refuses the question shows none."""
        session, identities = self._session, {each.identity for each in some}
        rows = list[dict[str, object]]()
        with suppress(ListFailed):
            asked = [(each.field, each.value) for each in some]
            rows = await session.control.until_stopped(find_shown(session.access, asked))
        shown = {identity: number for identity, number in reader.read(rows) if identity in identities}
        base, identity = session.journal.base, session.policy.identity
        await session.journal.ask(lambda ledger: ledger.record_listed(base, identity, list(shown.items())))
        return len(shown)

    @property
    def is_growth_due(self) -> bool:
        """Whether the first create must be seen to raise TotalCount before others rest on the listing."""
        return self._counted is not None

    async def check_growth(self) -> None:
        """Check that TotalCount has grown once the canary shows by its own Id; until it shows, nothing is known.

        Raises RunAborted where the list is cut off, ListFailed.
        """
        session, counted = self._session, self._counted
        if counted is None or not session.access.sentinels:
            return
        self._counted, canary = None, session.access.sentinels[-1].subscriber_id
        shown = list[object]()
        for wait_s in _SHOWING_STEPS_S:
            if wait_s > session.policy.quiet_period_s or not await session.control.rest(wait_s):
                return
            shown = [
                row["Id"]
                for row in (
                    await session.control.until_stopped(ask(session.access, ListQuery(limit=1, id=canary)))
                ).rows
            ]
            if any(each != canary for each in shown):
                return  # the service ignores the filter
            if shown:
                break
        page = await session.control.until_stopped(
            fetch_page(session.access.client, session.access.retrier, ListQuery(limit=1))
        )
        if shown and page.total_count is not None and page.total_count <= counted:
            raise RunAborted(
                f"the service cuts its list off: it counts {page.total_count:,} subscribers, no more than before the "
                f"first create of this run, which it shows by its Id ({canary}). No other row was sent, since "
                "subscribers that exist may not be listed. Run again if subscribers were removed meanwhile"
            )

    async def _learn_without_listing(self, keys: Sequence[LookupKey]) -> None:
        """Look the keys up by filters, because the list cannot be read whole; it has no stable order, for example."""
        number = await self._record(keys, await look_as_sent(self._session, keys))
        if number and self._listing_took_s is not None:
            raise RunAborted(
                f"reading the list took {self._listing_took_s:,.0f} s, and load.fresh lets a create rely on it for "
                f"{self._session.policy.fresh_s:g} s. Its filters do not show whether {_describe(number)}, so no row "
                "was sent since. Make load.fresh longer than a listing takes, then run again"
            )
        if number:
            because = self._session.access.state.unreadable_because or "the list could not be read whole"
            raise RunAborted(
                f"{because}, and its filters do not show whether {_describe(number)}, so no row was sent since. Run "
                "again, or set load.look to none to create without looking, which creates subscribers that exist again"
            )

    async def _record(self, keys: Sequence[LookupKey], result: LookupResult) -> int:
        """Record the subscribers found; return for how many keys the look-up was inconclusive."""
        base, identity = self._session.journal.base, self._session.policy.identity
        found = [(each, ids[0]) for each, ids in result.found.items()]
        await self._session.journal.ask(lambda ledger: ledger.record_listed(base, identity, found))
        return sum(key.identity not in result.found and key.identity not in result.missed for key in keys)


def _describe(inconclusive: int) -> str:
    return "one subscriber exists" if inconclusive == 1 else f"{inconclusive:,} subscribers exist"
