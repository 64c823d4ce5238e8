"""Single look-ups by a filter of the list, many look-ups together, and one page that shows the length of the list.

The caller compares the rows. An answer counts as whole only if its rows and its TotalCount prove it.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from connector.listing.access import IDENTITY_PATHS, ListAccess, ListStats, read_activity
from connector.listing.controls import is_whole, try_sample
from connector.listing.pages import NO_WHOLE_ID, ListFailed, fetch_page
from connector.service.wire import ListPage, ListQuery

_STEP_SHARE = 0.95  # a page repeats a twentieth of the one before it (connector.paging)
T = TypeVar("T")

LookUp = Callable[[], Awaitable[T]]

_AT_ONCE = 16  # look-ups in flight: a hundred look-ups take as long as seven in turn, and no service is overloaded
_SHOWN_AT_MOST = 20  # rows of an answer by one identity; with more rows, the filter does not filter
_VAIN_ROUNDS = 3  # rounds of look-ups one at a time, all refused, after which the look-ups fail
_TRIED = 3  # subscribers outside the list that are tried
_REST_S = 0.2  # seconds before a refused look-up is repeated
_TOO_MANY_REQUESTS = 429
_NOT_OF_THE_FILTER = frozenset({401, 403, 404, 405, 408, 409, _TOO_MANY_REQUESTS})


@dataclass(frozen=True, slots=True)
class Shown:
    """The rows of an answer as received. `is_whole`: the answer has every subscriber that matches the filter."""

    rows: Sequence[dict[str, Any]] = field(repr=False)
    is_whole: bool

    def holds(self, subscriber_id: int) -> bool:
        """Return whether this subscriber is among the rows."""
        return any(row["Id"] == subscriber_id for row in self.rows)


async def ask_page(access: ListAccess, query: ListQuery) -> ListPage | None:
    """Return the first page of the query (service-api.md 4.3), or None if the service refuses the value of its filter
    (400, 422). Raises ListFailed."""
    try:
        listed = await fetch_page(access.client, access.retrier, query)
    except ListFailed as failure:
        if failure.status is None or not 400 <= failure.status < 500 or failure.status in _NOT_OF_THE_FILTER:
            raise
        return None
    if not all(type(row.get("Id")) is int for row in listed.subscribers):
        raise ListFailed(NO_WHOLE_ID)
    return listed


async def ask(access: ListAccess, query: ListQuery) -> Shown:
    """Return the rows of the first page of the query; no rows if the service refuses the value of its filter. Raises
    ListFailed."""
    listed = await ask_page(access, query)
    if listed is None:
        return Shown((), is_whole=False)
    access.known_ids.add_shown([row["Id"] for row in listed.subscribers])
    return Shown(listed.subscribers, is_whole(listed))


async def look_up(access: ListAccess, name: str, text: str) -> Shown:
    """Look up `text` by the filter of one field: email or client_user_id. Raises ListFailed."""
    shown = await ask(access, build_query(name, text))
    access.state.filtered_activity |= read_activity(shown.rows)
    if len({row["Id"] for row in shown.rows}) > 1:
        access.state.plural_filters.add(name)
    return shown


async def find_shown(access: ListAccess, wanted: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return the rows that filters show for these fields and texts. The rows may include other subscribers.

    Presence needs no control. The first look-up is made alone: if its filter lists many rows, return none. Raises
    ListFailed.
    """
    queries = [replace(build_query(name, text), limit=_SHOWN_AT_MOST) for name, text in wanted]
    if not queries:
        return []
    first = (await ask(access, queries[0])).rows
    if len(first) >= _SHOWN_AT_MOST:
        return []
    shown = await look_up_together(access, [partial(ask, access, query) for query in queries[1:]])
    return [*first, *(row for answer in shown for row in answer.rows)]


async def look_up_together(access: ListAccess, look_ups: Sequence[LookUp[T]]) -> list[T]:
    """Make the look-ups, several at a time, and return their results in order. The first failure ends all of them.

    Look-ups that the service refuses for their rate (429) are repeated after a rest, half as many at a time, down to
    one. Raises ListFailed if three rounds of single look-ups are all refused.
    """
    done: dict[int, T] = {}
    waiting, width = list(range(len(look_ups))), max(1, min(_AT_ONCE, access.policy.max_concurrency))
    vain_rounds = 0
    while waiting:
        part = waiting if width > 1 else waiting[:_AT_ONCE]
        limited = await _make(look_ups, part, width, done)
        vain_rounds = vain_rounds + 1 if len(limited) == len(part) and width == 1 else 0
        if vain_rounds == _VAIN_ROUNDS:
            raise ListFailed("The service refuses look-ups for their rate (429). Run it again later.", status=429)
        waiting = [*waiting[len(part) :], *limited]
        if limited:
            width = max(1, width // 2)
            await access.clock.sleep(_REST_S)
    return [done[index] for index in range(len(look_ups))]


async def try_unlisted(access: ListAccess, unlisted: Sequence[int]) -> None:
    """Try the identity filters with subscribers that exist although the list leaves them out. A filter that does not
    find such a subscriber may leave others out as well, so the run no longer uses it."""
    state, page = access.state, partial(ask_page, access)
    for subscriber_id in unlisted[:_TRIED]:
        rows = (await ask(access, ListQuery(id=subscriber_id))).rows
        for name, path in IDENTITY_PATHS:
            text = rows[0].get(path) if len(rows) == 1 else None
            if name in state.useless or not isinstance(text, str) or not text.strip():
                continue
            if not (await try_sample(page, name, (subscriber_id, text))).is_proof:
                state.useless.add(name)
                state.checked_fields.discard(name)


def build_query(name: str, text: str) -> ListQuery:
    """Return the query that filters by this field (email or client_user_id) alone."""
    return ListQuery(email=text) if name == "email" else ListQuery(client_user_id=text)


async def _make(look_ups: Sequence[LookUp[T]], waiting: Iterable[int], width: int, done: dict[int, T]) -> list[int]:
    """Make the look-ups with the indices `waiting`. Return the indices of those that were refused for their rate."""
    indices, limited = iter(waiting), list[int]()

    async def work() -> None:
        for index in indices:  # the workers share the iterator, so each index goes to one worker
            try:
                done[index] = await look_ups[index]()
            except ListFailed as failure:
                if failure.status != _TOO_MANY_REQUESTS:
                    raise
                limited.append(index)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(width):
                group.create_task(work())
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return limited


async def read_stats(access: ListAccess) -> ListStats:
    """Return the stats of the list. If they are older than `policy.fresh_s`, read one page first. Raises ListFailed."""
    state, now = access.state, access.clock.monotonic()
    if state.stats is not None and now < state.stats.taken_at + access.policy.fresh_s:
        return state.stats
    listed = await access.control.until_stopped(
        fetch_page(access.client, access.retrier, ListQuery(base_id=state.base_id))
    )
    pages = None  # the requests of a sweep in id order, the empty page past the end included
    if listed.total_count is not None:
        rows = listed.limit if listed.limit is not None and listed.limit > 0 else max(1, len(listed.subscribers))
        pages = math.ceil(listed.total_count / (rows * _STEP_SHARE)) + 1
    stats = ListStats(now, listed.total_count, pages)
    stats.add(listed.subscribers)
    access.known_ids.add_shown([row["Id"] for row in listed.subscribers if type(row.get("Id")) is int])
    state.stats = stats
    return stats
