"""Looks subscribers up by a filter of the list, one or several at a time, and reads a page that shows the size of the
list. The caller must check whether the returned rows are rows of the requested subscriber. An answer is whole only if
its rows and its TotalCount prove that it has every match.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from connector.listing.access import IDENTITY_FIELDS_AND_KEYS, ListAccess, ListStats, read_is_active_values
from connector.listing.pages import NO_WHOLE_ID_MESSAGE, ListFailed, fetch_page
from connector.listing.trials import has_all_matches, try_sample
from connector.service.wire import TOO_MANY_REQUESTS, ListPage, ListQuery

# Share of new rows in a page, because a page repeats 1/20 of the previous page (connector.paging).
_NEW_ROW_SHARE_OF_PAGE = 0.95
T = TypeVar("T")

LookUp = Callable[[], Awaitable[T]]

_MAX_IN_FLIGHT = 16  # number of look-ups in flight; 100 look-ups then take as long as 7 look-ups one after another
_MIN_UNFILTERED_COUNT = 20  # if a filter by one identity lists this many rows, the service ignores the filter
_MAX_REFUSED_ROUNDS = 3  # after this many rounds of single look-ups that are all refused, the look-ups fail
_MAX_UNLISTED_SAMPLES = 3  # the identity filters are tested with at most this many subscribers that the list leaves out
_RETRY_WAIT_S = 0.2  # seconds before a refused look-up is repeated
_FILTER_INDEPENDENT_STATUSES = frozenset({401, 403, 404, 405, 408, 409, TOO_MANY_REQUESTS})
"""Statuses of refusals that have another cause than the value of the filter."""


@dataclass(frozen=True, slots=True)
class AnswerRows:
    """The rows of an answer as received. With `has_all_matches`, the rows are all subscribers that match the filter."""

    rows: Sequence[dict[str, Any]] = field(repr=False)
    has_all_matches: bool

    def has_subscriber(self, subscriber_id: int) -> bool:
        """Return whether this subscriber is among the rows."""
        return any(row["Id"] == subscriber_id for row in self.rows)


async def request_first_page(access: ListAccess, query: ListQuery) -> ListPage | None:
    """Return the first page of the query (service-api.md 4.3), or None if the service refuses the value of the query's
    filter (400, 422). Raises ListFailed."""
    try:
        page = await fetch_page(access.client, access.retrier, query)
    except ListFailed as failure:
        if failure.status is None or not 400 <= failure.status < 500 or failure.status in _FILTER_INDEPENDENT_STATUSES:
            raise
        return None
    if not all(type(row.get("Id")) is int for row in page.subscribers):
        raise ListFailed(NO_WHOLE_ID_MESSAGE)
    return page


async def request_rows(access: ListAccess, query: ListQuery) -> AnswerRows:
    """Return the rows of the first page of the query, or no rows if the service refuses the value of the query's
    filter. Raises ListFailed."""
    page = await request_first_page(access, query)
    if page is None:
        return AnswerRows((), has_all_matches=False)
    access.record_shown_ids([row["Id"] for row in page.subscribers])
    return AnswerRows(page.subscribers, has_all_matches(page))


async def look_up(access: ListAccess, field_name: str, text: str) -> AnswerRows:
    """Look up `text` by the filter of one field: email or client_user_id. Raises ListFailed."""
    answer = await request_rows(access, build_query(field_name, text))
    access.state.activity_values_shown_by_filters |= read_is_active_values(answer.rows)
    if len({row["Id"] for row in answer.rows}) > 1:
        access.state.multiple_match_fields.add(field_name)
    return answer


async def find_rows_by_filters(access: ListAccess, identities: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """Look up these identities by filters, and return the listed rows. An identity is a pair of a field and a text. The
    rows may include other subscribers. No trial is needed, because a listed row proves that its subscriber exists.

    The first identity is looked up before the others. If its answer has 20 rows, the service ignores the filter. Then
    return no rows. Raises ListFailed.
    """
    queries = [replace(build_query(field_name, text), limit=_MIN_UNFILTERED_COUNT) for field_name, text in identities]
    if not queries:
        return []
    first_rows = (await request_rows(access, queries[0])).rows
    if len(first_rows) >= _MIN_UNFILTERED_COUNT:
        return []
    answers = await look_up_together(access, [partial(request_rows, access, query) for query in queries[1:]])
    return [*first_rows, *(row for answer in answers for row in answer.rows)]


async def look_up_together(access: ListAccess, look_ups: Sequence[LookUp[T]]) -> list[T]:
    """Make the look-ups, several at a time, and return their results in the order of `look_ups`. The first failure ends
    all look-ups.

    Look-ups that the service refuses with 429 (too many requests) are repeated after a wait, half as many at a time,
    down to one. Raises ListFailed if all look-ups of three rounds with one look-up at a time are refused.
    """
    results: dict[int, T] = {}
    pending_indexes = list(range(len(look_ups)))
    concurrency = max(1, min(_MAX_IN_FLIGHT, access.policy.max_concurrency))
    refused_round_count = 0
    while pending_indexes:
        indexes = pending_indexes if concurrency > 1 else pending_indexes[:_MAX_IN_FLIGHT]
        refused_indexes = await _run_round(look_ups, indexes, concurrency, results)
        is_all_refused = len(refused_indexes) == len(indexes) and concurrency == 1
        refused_round_count = refused_round_count + 1 if is_all_refused else 0
        if refused_round_count == _MAX_REFUSED_ROUNDS:
            message = "The service kept answering look-ups with 429 (too many requests). Run again later."
            raise ListFailed(message, status=TOO_MANY_REQUESTS)
        pending_indexes = [*pending_indexes[len(indexes) :], *refused_indexes]
        if refused_indexes:
            concurrency = max(1, concurrency // 2)
            await access.clock.sleep(_RETRY_WAIT_S)
    return [results[index] for index in range(len(look_ups))]


async def try_filters_with_unlisted_ids(access: ListAccess, unlisted_ids: Sequence[int]) -> None:
    """Try the identity filters with existing subscribers that the list leaves out. A filter that does not find such a
    subscriber may also leave out other subscribers, so the run no longer uses the filter."""
    state, request_page = access.state, partial(request_first_page, access)
    for subscriber_id in unlisted_ids[:_MAX_UNLISTED_SAMPLES]:
        rows = (await request_rows(access, ListQuery(id=subscriber_id))).rows
        for name, key in IDENTITY_FIELDS_AND_KEYS:
            text = rows[0].get(key) if len(rows) == 1 else None
            if name in state.unusable_fields or not isinstance(text, str) or not text.strip():
                continue
            if not (await try_sample(request_page, name, (subscriber_id, text))).is_proof:
                state.unusable_fields.add(name)
                state.usable_fields.discard(name)


def build_query(field_name: str, text: str) -> ListQuery:
    """Return the query that filters by this field (email or client_user_id) alone."""
    return ListQuery(email=text) if field_name == "email" else ListQuery(client_user_id=text)


async def _run_round(
    look_ups: Sequence[LookUp[T]], indexes: Iterable[int], concurrency: int, results: dict[int, T]
) -> list[int]:
    """Make the look-ups with these indexes, and add their results to `results`. Return the indexes of look-ups that the
    service refused with 429."""
    remaining_indexes, refused_indexes = iter(indexes), list[int]()

    async def run_look_ups() -> None:
        for index in remaining_indexes:  # the iterator gives each index to one worker
            try:
                results[index] = await look_ups[index]()
            except ListFailed as failure:
                if failure.status != TOO_MANY_REQUESTS:
                    raise
                refused_indexes.append(index)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(run_look_ups())
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return refused_indexes


async def read_list_stats(access: ListAccess) -> ListStats:
    """Return the stats of the list. If the known stats are older than `policy.max_lookup_age_s`, read one page first.
    Raises ListFailed."""
    state, now = access.state, access.clock.monotonic()
    if state.list_stats is not None and now < state.list_stats.read_at + access.policy.max_lookup_age_s:
        return state.list_stats
    page = await access.stop.wait_until_stopped(
        fetch_page(access.client, access.retrier, ListQuery(base_id=state.base_id))
    )
    sweep_request_count = None  # the number of requests of a sweep in id order, including the empty page past the end
    if page.total_count is not None:
        page_size = page.limit if page.limit is not None and page.limit > 0 else max(1, len(page.subscribers))
        sweep_request_count = math.ceil(page.total_count / (page_size * _NEW_ROW_SHARE_OF_PAGE)) + 1
    list_stats = ListStats(now, page.total_count, sweep_request_count)
    list_stats.add(page.subscribers)
    access.record_shown_ids([row["Id"] for row in page.subscribers if type(row.get("Id")) is int])
    state.list_stats = list_stats
    return list_stats
