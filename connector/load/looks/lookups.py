"""One look-up by a filter of the list, and many of them together. What the rows mean is the caller's to compare.

Nothing is taken from the service's word but TotalCount: an answer is whole when it can be seen to be.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from connector.listing import ListFailed, fetch_page, read_list
from connector.load.session import Session
from connector.service import ListPage, ListQuery

T = TypeVar("T")

LookUp = Callable[[], Awaitable[T]]

_AT_ONCE = 16  # look-ups under way together: a hundred take as long as seven, and no service is stormed
_MOST_PAGES = 5  # of one look-up's answer; where a filter matches more, a sweep is the better way
_SHOWN_AT_MOST = 20  # rows of an answer by one identity; more, and its filter is none
_VAIN_ROUNDS = 3  # of look-ups one at a time, all refused
_REST_S = 0.2  # what was refused at once would be refused again at once
_TOO_MANY_REQUESTS = 429
_NOT_OF_THE_FILTER = frozenset({401, 403, 404, 405, 408, 409, _TOO_MANY_REQUESTS})


@dataclass(frozen=True, slots=True)
class Shown:
    """The rows of an answer, as the service wrote them; `is_whole`: nobody who matches the filter was left out."""

    rows: Sequence[dict[str, Any]] = field(repr=False)
    is_whole: bool

    def holds(self, subscriber_id: int) -> bool:
        """Whether this subscriber is among the rows."""
        return any(row["Id"] == subscriber_id for row in self.rows)

    def proves(self, subscriber_id: int) -> bool:
        """The same of a control: the answer must be one that would be believed if they were not in it."""
        return self.is_whole and self.holds(subscriber_id)


async def ask(session: Session, query: ListQuery) -> Shown:
    """The first page of what this query lists (service-api.md 4.3).

    A filter whose value the service refuses (400, 422) shows nobody, and not as a whole. Raises ListFailed.
    """
    shown, _ = await _ask(session, query)
    return shown


async def look_up(session: Session, name: str, text: str) -> Shown:
    """Look up `text` by the filter of one field: email or client_user_id.

    Of an answer in several pages, rows that do not match the filter here are left out. Raises ListFailed.
    """
    query = build_query(name, text)
    shown, pages = await _ask(session, query)
    return await _read_pages(session, query) if 1 < pages <= _MOST_PAGES else shown


async def find_shown(session: Session, asked: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """The rows that filters show for these fields and texts, others among them: presence needs no control.

    The first is asked alone, and a filter that lists many no more. Raises ListFailed.
    """
    queries = [replace(build_query(name, text), limit=_SHOWN_AT_MOST) for name, text in asked]
    if not queries:
        return []
    first = (await ask(session, queries[0])).rows
    if len(first) == _SHOWN_AT_MOST:
        return []
    shown = await look_up_together(session, [partial(ask, session, each) for each in queries[1:]])
    return [*first, *(row for answer in shown for row in answer.rows)]


async def look_up_together(session: Session, look_ups: Sequence[LookUp[T]]) -> list[T]:
    """Make these look-ups, some at a time, and give what each gives; the first failure ends them all.

    Those that the service refuses for their rate (429) are made again after a rest, half as many at a time, down to one
    alone; for as long as that gets on with them.
    """
    done: dict[int, T] = {}
    waiting, width = list(range(len(look_ups))), max(1, min(_AT_ONCE, session.policy.max_concurrency))
    vain = 0
    while waiting:
        part = waiting if width > 1 else waiting[:_AT_ONCE]
        limited = await _make(look_ups, part, width, done)
        vain = vain + 1 if len(limited) == len(part) and width == 1 else 0
        if vain == _VAIN_ROUNDS:
            raise ListFailed("The service refuses look-ups for their rate (429). Run it again later.", status=429)
        waiting = [*waiting[len(part) :], *limited]
        if limited:
            width = max(1, width // 2)
            await session.clock.sleep(_REST_S)
    return [done[place] for place in range(len(look_ups))]


def build_query(name: str, text: str) -> ListQuery:
    """The query by the one filter of this field."""
    return ListQuery(email=text) if name == "email" else ListQuery(client_user_id=text)


async def _make(look_ups: Sequence[LookUp[T]], waiting: Iterable[int], width: int, done: dict[int, T]) -> list[int]:
    """Make those that wait; returns the places of those that were refused for their rate."""
    places, limited = iter(waiting), list[int]()

    async def work() -> None:
        for place in places:  # shared: each is taken by one worker
            try:
                done[place] = await look_ups[place]()
            except ListFailed as failure:
                if failure.status != _TOO_MANY_REQUESTS:
                    raise
                limited.append(place)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(width):
                group.create_task(work())
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return limited


async def _ask(session: Session, query: ListQuery) -> tuple[Shown, int]:
    """The first page, and how many pages the whole of it would have (0: that cannot be told)."""
    try:
        listed = await fetch_page(session.client, session.retrier, query)
    except ListFailed as failure:
        if failure.status is None or not 400 <= failure.status < 500 or failure.status in _NOT_OF_THE_FILTER:
            raise
        return Shown((), is_whole=False), 0
    ids = [row.get("Id") for row in listed.subscribers]
    if not all(type(each) is int for each in ids):
        raise ListFailed("The service listed a subscriber without a whole number as its Id: the list cannot be read.")
    return Shown(listed.subscribers, _is_whole(listed, len(set(ids)))), _count_pages(listed)


def _is_whole(listed: ListPage, distinct: int) -> bool:
    """Whether all that match came in this one answer: as many as TotalCount, each once, and fewer than fit."""
    if listed.total_count is None or listed.limit is None:
        return False
    return distinct == len(listed.subscribers) == listed.total_count < listed.limit


def _count_pages(listed: ListPage) -> int:
    total, limit = listed.total_count, listed.limit
    if total is None or limit is None or limit < 1 or total < len(listed.subscribers):
        return 0
    return math.ceil(total / limit) + (total % limit == 0)


async def _read_pages(session: Session, query: ListQuery) -> Shown:
    """All pages, certified as any reading is (architecture 7)."""
    rows = _Rows()
    certificate = await read_list(
        session.client, session.retrier, query, rows, now=session.clock.now, ahead=0, is_thorough=False
    )
    return Shown(rows.taken, certificate.is_complete)


@dataclass(slots=True)
class _Rows:
    """A sink that keeps the rows of every sweep: whoever is in one of them is there."""

    taken: list[dict[str, Any]] = field(default_factory=list)

    def start_sweep(self, number: int) -> None:
        """Presence counts in whichever sweep."""

    def take(self, wire_objects: Sequence[dict[str, Any]]) -> None:
        self.taken += wire_objects
