"""Describes the service's list after a few requests, for `connector check`: page size, order, filters, cut-off.

Each sentence reports one observation. Loads and exports do not rely on these: they observe the list themselves.
"""

import os
from collections.abc import AsyncIterator
from typing import TypeGuard

from connector.listing.controls import Ask, Control, try_made_up, try_sample
from connector.listing.pages import fetch_page, try_page
from connector.paging.certificate import is_window_size
from connector.service.client import Client
from connector.service.retry import Retrier
from connector.service.wire import ListPage, ListQuery, read_field

_FILTERS = ("email", "client_user_id")
_SHORTEST = 5  # characters of a value that is tried without its ends


async def describe_list(client: Client, retrier: Retrier) -> AsyncIterator[tuple[str, str]]:
    """Yield each trait of the list with its description, by about ten list requests. Raises ListFailed if the first
    request fails."""
    page = await fetch_page(client, retrier, ListQuery())
    of_total = f" of {page.total_count:,}" if page.total_count is not None else ""
    limit = f", the limit is {page.limit:,}" if page.limit is not None else ""
    yield "page size", f"a page held {len(page.subscribers):,}{of_total} subscribers{limit}"

    async def ask(query: ListQuery) -> ListPage | None:
        return await try_page(client, retrier, query)

    yield "order", _describe_order(page, await ask(ListQuery()))
    tried = [f"{name}: {await _try_filter(ask, name, page)}" for name in _FILTERS]
    yield "filters", "; ".join(tried)
    yield "cut off", await _look_for_window(ask, page.total_count)


def _describe_order(page: ListPage, again: ListPage | None) -> str:
    ids = _read_ids(page)
    if len(ids) < 3:
        return "not known, fewer than three subscribers are listed"
    if again is None or _read_ids(again) != ids:
        return "the same page, requested twice, came in two orders, or the list changed meanwhile"
    if ids == sorted(ids):
        return "by id, ascending"
    if ids == sorted(ids, reverse=True):
        return "by id, descending"
    return "not by id; the same page, requested twice, came in the same order"


async def _try_filter(ask: Ask, name: str, page: ListPage) -> str:
    """Try a made-up value, then a listed one, whole and without its first and last character."""
    samples = ((row.get("Id"), read_field(row, name)) for row in page.subscribers)
    known = next(((each, value) for each, value in samples if type(each) is int and _is_plain(value)), None)
    if known is None:
        return "not tried, no listed subscriber has a suitable value"
    made_up = await try_made_up(ask, name, os.urandom)
    if made_up is Control.INCONCLUSIVE:
        return "refused by the service"
    if made_up is Control.IGNORED:
        return "ignored, a made-up value was answered with subscribers"
    subscriber_id, value = known
    trial = await try_sample(ask, name, (subscriber_id, value))
    if trial.control not in (Control.EXACT, Control.PARTIAL):
        return "broken, a listed value did not find its subscriber"
    if trial.control is Control.PARTIAL:
        return "partial, a value found other subscribers, too"
    part = await try_sample(ask, name, (subscriber_id, value[1:-1]))
    if part.control is Control.PARTIAL:
        return "partial, a part of a value found the subscriber"
    return "exact"


def _is_plain(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and value.isascii() and value.islower() and len(value) >= _SHORTEST


async def _look_for_window(ask: Ask, total: int | None) -> str:
    """Compare the list's TotalCount with the counts of its active and inactive subscribers.

    A result window limits each count by itself, so two parts can exceed the whole.
    """
    if total is None:
        return "not known, the list has no TotalCount"
    parts = [await _count_part(ask, is_active=is_active) for is_active in (True, False)]
    counts = [count for count in parts if count is not None]
    if len(counts) == 2 and sum(counts) > total:
        return (
            f"the list may be cut off, or it may hide subscribers: its TotalCount is {total:,}, and its active and "
            f"inactive subscribers are {sum(counts):,}"
        )
    if len(counts) == 2 and sum(counts) == total and all(counts):
        return f"no: its active and inactive subscribers add up to its TotalCount, {total:,}"
    if is_window_size(total):
        return f"the list may be cut off: {total:,} is a typical limit, and nothing shows that the list goes on"
    return f"nothing suggests it: TotalCount is {total:,}"


async def _count_part(ask: Ask, *, is_active: bool) -> int | None:
    """Return the TotalCount of the active or inactive subscribers, or None if the filter does not work."""
    page = await ask(ListQuery(is_active=is_active))
    if page is None or any(row.get("IsActive") is not is_active for row in page.subscribers):
        return None
    return page.total_count


def _read_ids(page: ListPage) -> list[int]:
    return [row["Id"] for row in page.subscribers if isinstance(row.get("Id"), int)]
