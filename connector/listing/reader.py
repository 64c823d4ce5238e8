"""Reads the whole list, page by page, into a sink, and certifies what was read (architecture 7).

Which page comes next and what they prove is decided in connector.paging; what a row means is the sink's business.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import partial
from typing import Any, Generic

import numpy as np

from connector.listing.controls import Ask, FilterTrials, Match, build_match, find_missed, try_filters
from connector.listing.evidence import FindLacking, Suspect, gather_evidence
from connector.listing.pages import WIRE, Form, ListFailed, PageSink, fetch_page, try_page
from connector.paging.certificate import Certificate, Reason, Verdict, decide_cut_off, may_be_cut_off
from connector.paging.overlap import NO_IDS, IdArray, Mask, Measures, PageRequest
from connector.paging.pager import DIMENSIONS, Pager
from connector.service.client import Client, ParseListed
from connector.service.retry import Retrier
from connector.service.wire import ListPage, ListQuery, Rows

_PAGING = frozenset({"offset", "limit"})
_NONE: frozenset[int] = frozenset()

MOST_AHEAD = 4
"""Pages under way beyond the next one: while one is decoded here, others are made there, and no service is stormed."""

LIST_CONNECTIONS = 8
"""Enough for the pages under way and those that were dropped a moment ago."""

_PATIENCE = 8
"""After a page that had to be asked for again, so many are read one at a time."""


@dataclass(frozen=True, slots=True)
class ListProgress:
    """How far a reading has come: the sweep (1 = first), its rows so far, and the latest TotalCount."""

    sweep: int
    rows: int
    total: int | None


async def read_list(
    client: Client,
    retrier: Retrier,
    query: ListQuery,
    sink: PageSink[Rows],
    *,
    form: Form[Rows] = WIRE,  # type: ignore[assignment] # no other default is known for a form
    now: Callable[[], datetime],
    on_progress: Callable[[ListProgress], None] | None = None,
    ahead: int = MOST_AHEAD,
    is_thorough: bool = True,
    ignore_total_count: bool = False,
    accept_cut_off_possible: bool = False,
    find_lacking: FindLacking | None = None,
    draw: Callable[[int], bytes] = os.urandom,
) -> Certificate:
    """Read all subscribers that `query` asks for into `sink`, and certify whether these were all (service-api.md 4.3).

    `form` is that of the rows which the sink takes: wire objects, if nothing else is said. `query.limit` is the size of
    a page; `query.offset` must be 0 (ValueError). `now` gives aware times. Rows that do not match the query's filters
    are left out, whatever the service thinks that they mean, and counted in the certificate's `filters`. A page is
    handed to the sink while the next is on its way, and on a quiet list up to `ahead` more. What `is_thorough` asks for
    more than pages: the query's own filters are tried first, with a listed subscriber and with one made up
    by `draw` (random bytes), and the service is asked by one of those that worked, else for the whole list; where the
    order is unstable the list is read in parts, by filters that work. With `ignore_total_count` a list whose TotalCount
    alone disagrees is complete. A long list that is complete otherwise is checked for a result window that cuts it off
    (architecture 7, rule 7), by entries of the ledger too where `find_lacking` gives them; one that may be cut off,
    with no evidence either way, is complete with `accept_cut_off_possible`. Raises ListFailed when a page cannot be
    had; what the sink raises passes through.
    """
    if query.offset:
        raise ValueError("A list is read from its beginning: the query's offset must be 0.")
    started_at, filters, ask = now(), list_filters(query), partial(try_page, client, retrier)
    trial = await try_filters(ask, filters, draw) if filters and is_thorough else None
    if trial is not None:
        query = _narrow(query, filters, trial.sent)
    dispatcher = PageDispatcher(
        sink, form, build_match(filters), on_progress, trial.expected if trial is not None else _NONE
    )
    pager = Pager(query.limit, _choose_measures(list_filters(query), is_thorough, ignore_total_count))
    await read_pages(client, retrier, query, pager, dispatcher, form, ahead)
    recorded = await _record_filters(ask, filters, trial, dispatcher) if filters else {}
    certificate = pager.certify(started_at, now(), recorded)
    if certificate.is_complete and recorded.get("missed"):
        return replace(certificate, verdict=Verdict.INCOMPLETE, reason=Reason.FILTER)
    if not may_be_cut_off(certificate):
        return certificate
    suspect = Suspect(certificate, query, pager.ids)
    findings = await gather_evidence(ask, suspect, list_filters(query), draw, find_lacking)
    return decide_cut_off(replace(certificate, finished_at=now()), findings, accepts_possible=accept_cut_off_possible)


async def read_pages(
    client: Client,
    retrier: Retrier,
    query: ListQuery,
    pager: Pager,
    dispatcher: "PageDispatcher[Rows]",
    form: Form[Rows],
    ahead: int,
) -> None:
    """Have every page fetched that `pager` asks for, until it asks for none; hand the rows to `dispatcher`."""
    prefetcher = PagePrefetcher(
        client,
        lambda page: fetch_page(client, retrier, _ask_for(query, page), parse=form.parse),
        lambda page: _attempt_page(client, _ask_for(query, page), form.parse),
    )
    await prefetcher.follow(_pages_to_ask(pager, ahead), is_calm=pager.is_calm)
    try:
        while (page := pager.decide_next()) is not None:
            try:
                listed = await prefetcher.take_next()
            except ListFailed as failure:
                if page.ends_at is None or not failure.says_no_more:
                    raise
                pager.take(NO_IDS, total=page.ends_at, offset=page.offset, limit=None)
                await prefetcher.follow(_pages_to_ask(pager, ahead), is_calm=pager.is_calm)
                continue
            ids = read_ids(form, listed)
            kept = pager.take(
                ids,
                total=listed.total_count,
                offset=listed.offset,
                limit=listed.limit,
                is_matching=_is_matching(form, listed, page),
                bases=_read_bases(form, listed) if pager.wants_bases else (),
            )
            await prefetcher.follow(_pages_to_ask(pager, ahead), is_calm=pager.is_calm)
            await asyncio.sleep(0)  # lets the next request leave before this page is worked on
            if not page.is_probe:
                dispatcher.dispatch(page.sweep, replace(listed, total_count=pager.total), ids, kept)
    finally:
        await prefetcher.drop_all()


def _narrow(query: ListQuery, filters: Mapping[str, object], sent: str | None) -> ListQuery:
    """The query by one of its filters, or by none."""
    others: dict[str, Any] = {name: None for name in filters if name != sent}
    return replace(query, **others)


async def _record_filters(
    ask: Ask, filters: Mapping[str, object], trial: FilterTrials | None, dispatcher: "PageDispatcher[Rows]"
) -> dict[str, Any]:
    """The certificate's `filters`."""
    recorded: dict[str, Any] = {"asked": filters, "dropped": dispatcher.dropped}
    if trial is None:
        return recorded
    recorded |= {"sent": trial.sent, "controls": trial.controls}
    # Who is missing has gone meanwhile, if the list no longer shows them.
    missed = await find_missed(ask, filters, dispatcher.missing) if trial.sent is not None else _NONE
    return recorded | ({"missed": len(missed)} if missed else {})


def _pages_to_ask(pager: Pager, ahead: int) -> list[PageRequest]:
    page = pager.decide_next()
    return [] if page is None else [page, *pager.decide_ahead(ahead)]


def _ask_for(query: ListQuery, page: PageRequest) -> ListQuery:
    filters: dict[str, Any] = dict(page.filters)
    return replace(query, offset=page.offset, limit=page.limit, **filters)


def _choose_measures(filters: Mapping[str, object], is_thorough: bool, ignore_total_count: bool) -> Measures:
    """The filters that are asked for already cannot split the list."""
    splits_by = tuple(name for name in DIMENSIONS if is_thorough and name not in filters)
    return Measures(splits_by, ignore_total_count)


def _is_matching(form: Form[Rows], listed: ListPage[Rows], page: PageRequest) -> bool:
    """Return whether every row is as the page's own filters ask."""
    match = build_match(dict(page.filters))
    return match is None or bool(match(partial(form.read_values, listed.subscribers)).all())


def _read_bases(form: Form[Rows], listed: ListPage[Rows]) -> set[int]:
    """The Ids of the bases that its rows are of."""
    return {each for each in form.read_values(listed.subscribers, "base_id") if type(each) is int}


async def _attempt_page(client: Client, query: ListQuery, parse: ParseListed[Rows]) -> ListPage[Rows] | None:
    """A page that may be asked for once more, later and with patience."""
    answer = await client.list_subscribers(query, parse)
    return answer if isinstance(answer, ListPage) else None


def list_filters(query: ListQuery) -> dict[str, object]:
    """Return the filters that are asked for, by field name (those of the query are the field table's)."""
    values = {each.name: getattr(query, each.name) for each in fields(query) if each.name not in _PAGING}
    return {name: value for name, value in values.items() if value is not None}


def read_ids(form: Form[Rows], listed: ListPage[Rows]) -> IdArray:
    """Return the subscribers' ids; without them two pages cannot be distinguished."""
    ids = form.read_ids(listed.subscribers)
    if ids is None:
        raise ListFailed("The service listed a subscriber without a whole number as its Id: the list cannot be read.")
    return ids


@dataclass(slots=True)
class PageDispatcher(Generic[Rows]):
    """To `sink`, in `form`, the rows that `match`; `missing` are the `expected` Ids that no row of this sweep had."""

    sink: PageSink[Rows]
    form: Form[Rows]
    match: Match | None
    on_progress: Callable[[ListProgress], None] | None
    expected: frozenset[int]
    missing: frozenset[int] = _NONE
    sweep: int = 0
    rows: int = 0
    dropped: int = 0

    def __post_init__(self) -> None:
        self.missing = self.expected

    def dispatch(self, sweep: int, listed: ListPage[Rows], ids: IdArray, kept: Mask) -> None:
        if sweep != self.sweep:
            self.sweep, self.rows, self.dropped, self.missing = sweep, 0, 0, self.expected
            self.sink.start_sweep(sweep)
        if self.missing:
            self.missing = self.missing.difference(ids.tolist())
        if self.match is not None:
            matching = kept & self.match(partial(self.form.read_values, listed.subscribers))
            self.dropped += int(np.count_nonzero(kept) - np.count_nonzero(matching))
            kept = matching
        if kept.any():
            self.sink.take(listed.subscribers if kept.all() else self.form.keep(listed.subscribers, kept))
        self.rows += int(np.count_nonzero(kept))
        if self.on_progress is not None:
            self.on_progress(ListProgress(sweep, self.rows, listed.total_count))


class PagePrefetcher(Generic[Rows]):
    """The pages under way, in the order in which they are to be taken; leave none behind: `drop_all`.

    `fetch` has a page, trying again; `attempt` tries once, and None says that it failed. Only the next page is fetched
    with patience: five at once would use up the retries that one of them needs to outlive a restart.
    """

    def __init__(
        self,
        client: Client,
        fetch: Callable[[PageRequest], Coroutine[Any, Any, ListPage[Rows]]],
        attempt: Callable[[PageRequest], Coroutine[Any, Any, ListPage[Rows] | None]],
    ) -> None:
        self._client = client
        self._fetch = fetch
        self._attempt = attempt
        self._under_way: deque[tuple[PageRequest, asyncio.Task[ListPage[Rows] | None]]] = deque()
        self._retried = client.counts["list"].retried
        self._patience = 0

    async def follow(self, wanted: Sequence[PageRequest], *, is_calm: bool) -> None:
        """Go on to `wanted`, the next page first: what was asked for and deviates from it is dropped, all of it unless
        `is_calm`; the rest is begun, but the next one alone while the service wants quiet or gave a page badly."""
        kept = 0
        while is_calm and kept < min(len(self._under_way), len(wanted)) and self._under_way[kept][0] == wanted[kept]:
            kept += 1
        await self._drop_from(kept)
        for page in wanted[kept:] if len(wanted) > 1 and self._is_well() else wanted[kept:1]:
            begin = self._attempt if self._under_way else self._fetch
            self._under_way.append((page, asyncio.create_task(begin(page))))

    async def take_next(self) -> ListPage[Rows]:
        """Return the answer to the next page; raises what its request raised."""
        page, answer = self._under_way[0]
        listed = await answer
        if listed is None:
            self._client.counts["list"].retried += 1
            listed = await self._fetch(page)
        self._under_way.popleft()
        return listed

    async def drop_all(self) -> None:
        """End every request whose answer is no longer needed; their own failures do not count."""
        await self._drop_from(0)

    async def _drop_from(self, kept: int) -> None:
        dropped = [self._under_way.pop()[1] for _ in range(len(self._under_way) - kept)]
        for answer in dropped:
            answer.cancel()
        await asyncio.gather(*dropped, return_exceptions=True)

    def _is_well(self) -> bool:
        retried = self._client.counts["list"].retried
        self._patience = _PATIENCE if retried != self._retried else max(0, self._patience - 1)
        self._retried = retried
        return not self._patience and not self._client.is_quiet
