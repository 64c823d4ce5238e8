"""Fetches the pages of a reading, as many at once as the service can answer without delay."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Generic

from connector.listing.pages import NO_WHOLE_ID, Form, ListFailed, fetch_page
from connector.pace.concurrency import ConcurrencyLimit
from connector.paging.overlap import NO_IDS, IdArray, Mask, PageRequest
from connector.paging.pager import Pager
from connector.service.client import Client
from connector.service.retry import Retrier
from connector.service.wire import ListPage, ListQuery, Rows


@dataclass(frozen=True, slots=True)
class ReadPage(Generic[Rows]):
    """A page of a sweep: its rows, their ids, the mask `kept` of the rows to keep, and the latest TotalCount."""

    sweep: int
    rows: Rows
    ids: IdArray
    kept: Mask
    total: int | None


async def read_pages(
    fetcher: "PageFetcher[Rows]", pager: Pager, form: Form[Rows], limit: ConcurrencyLimit
) -> AsyncGenerator[ReadPage[Rows], None]:
    """Fetch every page that `pager` asks for, with at most as many in flight as `limit` allows, and yield the pages.
    Raises ListFailed."""
    await fetcher.follow(_choose_pages(pager, limit), is_calm=pager.is_calm)
    while (page := pager.decide_next()) is not None:
        try:
            listed = await fetcher.take_next()
        except ListFailed as failure:
            if page.ends_at is None or not failure.says_no_more:
                raise
            pager.add_page(NO_IDS, total=page.ends_at, offset=page.offset, limit=None)
            await fetcher.follow(_choose_pages(pager, limit), is_calm=pager.is_calm)
            continue
        ids = read_ids(form, listed)
        kept = pager.add_page(ids, total=listed.total_count, offset=listed.offset, limit=listed.limit)
        await fetcher.follow(_choose_pages(pager, limit), is_calm=pager.is_calm)
        await asyncio.sleep(0)  # lets the next request leave before this page is worked on
        yield ReadPage(page.sweep, listed.subscribers, ids, kept, pager.total)


def _choose_pages(pager: Pager, limit: ConcurrencyLimit) -> list[PageRequest]:
    page = pager.decide_next()
    return [] if page is None else [page, *pager.decide_ahead(limit.allowed - 1)]


def read_ids(form: Form[Rows], listed: ListPage[Rows]) -> IdArray:
    """Return the ids of the subscribers. Raises ListFailed if an Id is not a whole number, since ids tell pages
    apart."""
    ids = form.read_ids(listed.subscribers)
    if ids is None:
        raise ListFailed(NO_WHOLE_ID)
    return ids


class PageFetcher(Generic[Rows]):
    """The pages in flight, in the order in which `take_next` returns them. At the end of the context all are cancelled.

    Only the next page is retried; the others are attempted once. Otherwise all pages together would use up the retries
    that one page needs to outlast a restart of the service. `limit` receives the time of each page, and each failure.
    """

    def __init__(
        self,
        client: Client,
        retrier: Retrier,
        query: ListQuery,
        form: Form[Rows],
        limit: ConcurrencyLimit,
        monotonic: Callable[[], float],
    ) -> None:
        self._client = client
        self._retrier = retrier
        self._query = query
        self._form = form
        self._limit = limit
        self._monotonic = monotonic
        self._in_flight: deque[tuple[PageRequest, asyncio.Task[ListPage[Rows] | None]]] = deque()
        self._unanswered = 0

    async def follow(self, wanted: Sequence[PageRequest], *, is_calm: bool) -> None:
        """Fetch the `wanted` pages, the next page first.

        Requests in flight that differ from `wanted` are dropped; without `is_calm` all are. During a pause that the
        service has asked for, only the next page is requested.
        """
        same_count = 0
        both_count = min(len(self._in_flight), len(wanted))
        while is_calm and same_count < both_count and self._in_flight[same_count][0] == wanted[same_count]:
            same_count += 1
        if same_count < len(self._in_flight) and is_calm and same_count == len(wanted):
            same_count = len(self._in_flight)  # fewer requests are allowed now, but those in flight are still used
        await self._drop_from(same_count)
        for page in wanted[same_count:1] if self._client.is_quiet else wanted[same_count:]:
            fetch = self._attempt if self._in_flight else self._fetch
            self._in_flight.append((page, asyncio.create_task(fetch(page))))

    async def take_next(self) -> ListPage[Rows]:
        """Return the next page. Raises the error of its request."""
        page, answer = self._in_flight[0]
        listed = await answer
        if listed is None:
            self._client.counts["list"].retried += 1
            listed = await self._fetch(page)
        self._in_flight.popleft()
        return listed

    async def __aenter__(self) -> "PageFetcher[Rows]":
        return self

    async def __aexit__(self, *_: object) -> None:
        """Cancel every request in flight, and ignore its errors."""
        await self._drop_from(0)

    async def _fetch(self, page: PageRequest) -> ListPage[Rows]:
        retried = self._client.counts["list"].retried
        with self._measure() as measure:
            listed = await fetch_page(self._client, self._retrier, self._ask_for(page), parse=self._form.parse)
            measure.is_refused = self._client.counts["list"].retried > retried
        return listed

    async def _attempt(self, page: PageRequest) -> ListPage[Rows] | None:
        with self._measure() as measure:
            answer = await self._client.list_subscribers(self._ask_for(page), self._form.parse)
            measure.is_refused = not isinstance(answer, ListPage)
        return answer if isinstance(answer, ListPage) else None

    @contextmanager
    def _measure(self) -> Iterator["_Measure"]:
        """Pass the time or the failure of one request to the limit. The time of a request that waits for the end of a
        pause is left out."""
        measure, sent_at, is_paused = _Measure(), self._monotonic(), self._client.is_quiet
        self._unanswered += 1
        try:
            yield measure
            if measure.is_refused:
                self._limit.record_refused(sent_at, self._monotonic())
            elif not is_paused:
                self._limit.record_answer(sent_at, self._monotonic(), self._unanswered)
        finally:
            self._unanswered -= 1

    def _ask_for(self, page: PageRequest) -> ListQuery:
        return replace(self._query, offset=page.offset, limit=page.limit)

    async def _drop_from(self, kept_count: int) -> None:
        dropped = [self._in_flight.pop()[1] for _ in range(len(self._in_flight) - kept_count)]
        for answer in dropped:
            answer.cancel()
        await asyncio.gather(*dropped, return_exceptions=True)


@dataclass(slots=True)
class _Measure:
    """The result of one request for a page."""

    is_refused: bool = False
