"""Pages of the list. `fetch_page` fetches one page. `PageFetcher` fetches several pages at once, as many as the service
answers without delay. The module also defines the form of rows, and the sink that receives rows.

Loads look subscribers up one by one and read the service's own objects (`WIRE_FORM`). Exports read columns (`columns`).
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Generic, Protocol

import numpy as np
from typing_extensions import TypeVar

from connector.errors import ConfigurationError, RunAborted
from connector.fields import LARGEST_ID
from connector.pace.concurrency import ConcurrencyLimit
from connector.paging.overlap import NO_IDS, IdArray, Mask, PageRequest
from connector.paging.pager import Pager
from connector.service.answers import parse_wire_page
from connector.service.client import Client, ListAnswerParser
from connector.service.retry import Retrier
from connector.service.wire import (
    TOO_MANY_REQUESTS,
    UNAUTHORISED_STATUSES,
    AmbiguousResult,
    ListPage,
    ListQuery,
    MaskMessage,
    NotSent,
    Refused,
    Rows,
    WireRows,
    is_rate_limit,
    read_field,
)

# Statuses of refusals that the offset cannot have caused.
_OFFSET_INDEPENDENT_STATUSES = frozenset({401, 403, 405, 408, 409, 429})
_REDIRECT_STATUSES = range(300, 400)

NO_WHOLE_ID_MESSAGE = (
    "The service listed a subscriber whose Id is not a whole number (for example, a UUID). The connector needs whole "
    "numbers, so it cannot load, compare or export. Ask the service's operator for numeric ids."
)


class RowForm(Protocol[Rows]):
    """The Python form of the rows of a page. All forms return equal values for the same page."""

    async def parse(
        self, status: int, headers: Mapping[str, str], body: bytes, now: datetime, *, mask_message: MaskMessage
    ) -> ListPage[Rows] | Refused | AmbiguousResult:
        """Return a page of the list, or the refusal or the ambiguous answer, as `parse_list_answer` does
        (service-api.md 4.3)."""

    def read_ids(self, rows: Rows) -> IdArray | None:
        """Return the id of each row, or None if an Id is not a whole number of 64 bits."""

    def select_rows(self, rows: Rows, row_mask: Mask) -> Rows:
        """Return the rows that the mask selects."""

    def read_values(self, rows: Rows, field_name: str) -> Sequence[Any]:
        """Return the value of one field in each row: the value as received, or None for an absent or null value."""

    def count_values(self, rows: Rows, field_name: str) -> Mapping[Any, int]:
        """Return the number of rows with each value of one field. The key None has the number of rows without a
        value."""


class _WireRowForm:
    """The form of rows that are the service's own objects."""

    parse = staticmethod(parse_wire_page)

    def read_ids(self, rows: WireRows) -> IdArray | None:
        ids = [row.get("Id") for row in rows]
        if not all(type(subscriber_id) is int and abs(subscriber_id) <= LARGEST_ID for subscriber_id in ids):
            return None
        return np.array(ids, dtype=np.int64)

    def select_rows(self, rows: WireRows, row_mask: Mask) -> WireRows:
        return [row for row, is_selected in zip(rows, row_mask.tolist(), strict=True) if is_selected]

    def read_values(self, rows: WireRows, field_name: str) -> Sequence[Any]:
        return [read_field(row, field_name) for row in rows]

    def count_values(self, rows: WireRows, field_name: str) -> Mapping[Any, int]:
        values = (read_field(row, field_name) for row in rows)
        return Counter(value if isinstance(value, str | int) else None for value in values)


WIRE_FORM: RowForm[WireRows] = _WireRowForm()
"""The form in which the rows of a page are a list of wire objects."""


SinkRows = TypeVar("SinkRows", contravariant=True, default=WireRows)


class PageSink(Protocol[SinkRows]):
    """An object that receives the rows of the list. If the list is read several times (sweeps), only the rows of the
    last sweep count."""

    def start_sweep(self, sweep_number: int) -> None:
        """Forget all received rows, because a new reading of the whole list begins: the sweep with this number (1 =
        first)."""

    def receive_rows(self, rows: SinkRows, /) -> None:
        """Receive subscribers of the current sweep. A sweep passes each subscriber once."""


class ListFailed(RunAborted):
    """A list request failed after all retries. `status` is the HTTP status, or None without an answer. `status` is 429
    for every answer that means "too many requests"."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status

    @property
    def is_query_refused(self) -> bool:
        """Whether the service refused the query itself, with a status such as 400 or 404. If the query has an offset,
        the refusal may mean that the list has no row at this offset."""
        return self.status is not None and 400 <= self.status < 500 and self.status not in _OFFSET_INDEPENDENT_STATUSES


class TokenRefusedError(ListFailed, ConfigurationError):
    """The service refused the token at the first request of the run, so the configuration is wrong. Nothing was
    sent."""


async def try_fetch_page(client: Client, retrier: Retrier, query: ListQuery) -> ListPage | None:
    """Return a page, or None if the service does not return this page. Use this function if the caller can continue
    without the page.

    If the service fails without a refusal of the query, read a row of the whole list and then try the page once more.
    So an outage raises ListFailed, and does not look like a query that the service does not support.
    """
    try:
        return await fetch_page(client, retrier, query)
    except ListFailed as failure:
        if failure.is_query_refused:
            return None
        await fetch_page(client, retrier, ListQuery(limit=1))
    try:
        return await fetch_page(client, retrier, query)
    except ListFailed:
        return None


async def fetch_page(
    client: Client,
    retrier: Retrier,
    query: ListQuery,
    *,
    parse: ListAnswerParser[Rows] = WIRE_FORM.parse,  # type: ignore[assignment] # as in Client.list_subscribers
) -> ListPage[Rows]:
    """Return one page of the list (service-api.md 4.3), with retries. Raises ListFailed."""
    answer = await retrier.read(lambda: client.list_subscribers(query, parse), client.counts["list"])
    if isinstance(answer, ListPage):
        return answer
    raise _explain_failure(answer, client)


def _explain_failure(answer: Refused | AmbiguousResult | NotSent, client: Client) -> ListFailed:
    if not isinstance(answer, NotSent) and is_rate_limit(answer.status, answer.retry_after_s):
        message = f"The service refuses list requests because there are too many ({answer.status}). Run again later."
        return ListFailed(message, status=TOO_MANY_REQUESTS)
    if isinstance(answer, NotSent):
        hint = "Check the base URL and the network, and run again."
        return ListFailed(
            f"The list could not be read, because the service cannot be reached: {answer.message}. {hint}"
        )
    has_success_status = answer.status is not None and 200 <= answer.status < 300
    # A page that cannot be parsed holds personal data, so the message shows nothing of the page.
    message = "the answer is not a page of the list" if has_success_status else answer.message or "no message"
    if isinstance(answer, Refused):
        is_token_refused = answer.status in UNAUTHORISED_STATUSES
        hint = "Check the token." if is_token_refused else "Check the base URL, or run again later."
        is_first_request = (
            sum(request_counts.sent - request_counts.retried for request_counts in client.counts.values()) == 1
        )
        error_class = TokenRefusedError if is_token_refused and is_first_request else ListFailed
        return error_class(f"The service refused its list ({answer.status}: {message}). {hint}", status=answer.status)
    status_text = f"status {answer.status}, " if answer.status is not None else ""
    # A retry gets the same redirect, because the service has another address or the address asks for a login.
    hint = "Check the base URL." if answer.status in _REDIRECT_STATUSES else "Run again later."
    return ListFailed(f"The service did not return its list ({status_text}{message}). {hint}", status=answer.status)


@dataclass(frozen=True, slots=True)
class ReceivedPage(Generic[Rows]):
    """A page of a sweep, with its rows and their ids."""

    sweep_number: int  # the number of the sweep (1 = first)
    rows: Rows
    ids: IdArray
    new_row_mask: Mask  # the rows that no earlier page of the sweep has
    total_count: int | None  # the latest TotalCount


async def read_pages(
    fetcher: "PageFetcher[Rows]", pager: Pager, row_form: RowForm[Rows], concurrency_limit: ConcurrencyLimit
) -> AsyncGenerator[ReceivedPage[Rows], None]:
    """Fetch every page that `pager` asks for, with at most as many in flight as `concurrency_limit` allows, and yield
    the pages. Raises ListFailed.
    """

    async def request_pages() -> None:
        page = pager.decide_next_page()
        later_pages = pager.decide_pages_ahead(concurrency_limit.allowed_count - 1)
        pages = [] if page is None else [page, *later_pages]
        await fetcher.request_pages(pages, is_list_unchanging=pager.is_list_unchanging)

    await request_pages()
    while (page := pager.decide_next_page()) is not None:
        try:
            list_page = await fetcher.receive_next_page()
        except ListFailed as failure:
            if page.expected_end is None or not failure.is_query_refused:
                raise
            pager.add_page(NO_IDS, total_count=page.expected_end, offset=page.offset, limit=None)
            await request_pages()
            continue
        ids = row_form.read_ids(list_page.subscribers)
        if ids is None:  # the connector compares pages by their ids
            raise ListFailed(NO_WHOLE_ID_MESSAGE)
        new_row_mask = pager.add_page(
            ids, total_count=list_page.total_count, offset=list_page.offset, limit=list_page.limit
        )
        await request_pages()
        await asyncio.sleep(0)  # with this pause, the next request leaves before the caller works on this page
        yield ReceivedPage(page.sweep_number, list_page.subscribers, ids, new_row_mask, list_page.total_count)


class PageFetcher(Generic[Rows]):
    """A queue of the requests for pages that are in flight. `receive_next_page` returns the pages in the order of this
    queue. The end of the context cancels all requests.

    Only the request for the next page is retried. Requests for later pages are attempted once. If all requests were
    retried, the retries would be used up before a restart of the service ends. `concurrency_limit` receives the time of
    each page, and each failure.
    """

    def __init__(
        self,
        client: Client,
        retrier: Retrier,
        query: ListQuery,
        row_form: RowForm[Rows],
        concurrency_limit: ConcurrencyLimit,
        monotonic: Callable[[], float],
    ) -> None:
        self._client = client
        self._retrier = retrier
        self._query = query
        self._row_form = row_form
        self._concurrency_limit = concurrency_limit
        self._monotonic = monotonic
        self._in_flight: deque[tuple[PageRequest, asyncio.Task[ListPage[Rows] | None]]] = deque()
        self._unanswered_count = 0

    async def request_pages(self, pages: Sequence[PageRequest], *, is_list_unchanging: bool) -> None:
        """Fetch these pages, the next page first.

        Requests in flight for other pages are cancelled. If `is_list_unchanging` is false, all requests in flight are
        cancelled. During a pause that the service has asked for, only the next page is requested.
        """
        reused_request_count = 0
        compared_request_count = min(len(self._in_flight), len(pages))
        while (
            is_list_unchanging
            and reused_request_count < compared_request_count
            and self._in_flight[reused_request_count][0] == pages[reused_request_count]
        ):
            reused_request_count += 1
        if reused_request_count < len(self._in_flight) and is_list_unchanging and reused_request_count == len(pages):
            # Requests for further pages are in flight, because the limit was higher before. Keep these requests.
            reused_request_count = len(self._in_flight)
        await self._cancel_requests_after(reused_request_count)
        for page in pages[reused_request_count:1] if self._client.is_paused else pages[reused_request_count:]:
            has_retries = not self._in_flight
            self._in_flight.append((page, asyncio.create_task(self._fetch_page(page, has_retries=has_retries))))

    async def receive_next_page(self) -> ListPage[Rows]:
        """Return the next page. Raises the error of its request."""
        page, answer = self._in_flight[0]
        list_page = await answer
        while list_page is None:  # a request without retries has failed
            self._client.counts["list"].retried += 1
            list_page = await self._fetch_page(page, has_retries=True)
        self._in_flight.popleft()
        return list_page

    async def __aenter__(self) -> "PageFetcher[Rows]":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._cancel_requests_after(0)

    async def _fetch_page(self, page: PageRequest, *, has_retries: bool) -> ListPage[Rows] | None:
        """Return the page. Without `has_retries`, return None if the only attempt fails.

        Pass the time or the failure of the request to the concurrency limit. Do not pass the time of a request that
        waited for the end of a pause."""
        query, request_counts = replace(self._query, offset=page.offset, limit=page.limit), self._client.counts["list"]
        earlier_retried_count = request_counts.retried
        sent_at, is_client_paused = self._monotonic(), self._client.is_paused
        self._unanswered_count += 1
        list_page: ListPage[Rows] | None = None
        try:
            if has_retries:
                list_page = await fetch_page(self._client, self._retrier, query, parse=self._row_form.parse)
                is_refused = request_counts.retried > earlier_retried_count
            else:
                answer = await self._client.list_subscribers(query, self._row_form.parse)
                list_page = answer if isinstance(answer, ListPage) else None
                is_refused = list_page is None
            if is_refused:
                self._concurrency_limit.record_refusal(sent_at, self._monotonic())
            elif not is_client_paused:
                self._concurrency_limit.record_answer(sent_at, self._monotonic(), self._unanswered_count)
        finally:
            self._unanswered_count -= 1
        return list_page

    async def _cancel_requests_after(self, kept_request_count: int) -> None:
        dropped_tasks = [self._in_flight.pop()[1] for _ in range(len(self._in_flight) - kept_request_count)]
        for task in dropped_tasks:
            task.cancel()
        await asyncio.gather(*dropped_tasks, return_exceptions=True)
