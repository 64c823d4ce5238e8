"""Renews a complete listing in id order: reads on from its last known row, if all new rows come after that row
(architecture 4.7)."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from connector.listing.access import ListAccess
from connector.listing.pages import ListFailed, PageSink, fetch_page
from connector.paging.overlap import IdArray
from connector.service.wire import LARGEST_PAGE, ListPage, ListQuery

_OVERLAP = 16  # rows before the end that the first page repeats
_OVERLAP_SHARE = 20  # a page repeats 1/20 of the page before (connector.paging)
_STEPS_BACK = 8  # steps of doubling length: if more than 2,000 rows vanished meanwhile, the whole list is read again


@dataclass(frozen=True, slots=True)
class ListEnd:
    """The end of a complete listing in ascending id order: the last id, and the number of rows."""

    last_id: int
    rows: int


async def list_on(accesses: Sequence[ListAccess], end: ListEnd, rows: PageSink) -> ListEnd | None:
    """Add to `rows` the subscribers that come after the end of a listing in ascending id order. Return the new end, or
    None if the new end is unknown. Raises as `list_account` does."""
    access = accesses[0]
    access.control.activity = "reading on for new subscribers"
    for each in accesses:
        await each.journal.flush()
    return await read_on(access, end, rows)


async def list_newest(access: ListAccess, end: ListEnd) -> Sequence[dict[str, Any]]:
    """Return the subscribers that one page shows after the end of a listing in ascending id order. Return none if the
    service returns no such page. Raises RunAborted if the run must stop."""
    access.control.activity = "looking for subscribers of other programs"
    page = None
    with suppress(ListFailed):
        page = await _fetch_offset(access, max(0, end.rows - _OVERLAP))
    ids = _read_ascending(page)
    is_joined = page is not None and ids is not None and len(ids) and ids[0] <= end.last_id
    return [row for row in page.subscribers if row["Id"] > end.last_id] if page is not None and is_joined else []


async def read_on(access: ListAccess, end: ListEnd, sink: PageSink) -> ListEnd | None:
    """Pass the rows from shortly before the end to `sink`, and return the new end, or None if the end is not certain.

    The end is not certain if the pages do not join, are not in ascending order, or lack the latest subscriber of this
    run that should show by now. Neither is it certain if the list has grown by more subscribers than come after its
    end: the others have smaller ids, and only a full reading shows them. Raises RunAborted if the run must stop, and
    ListFailed.
    """
    offset, page = await _find_joint(access, end)
    seen, last_id = set[int](), end.last_id
    while page is not None:
        ids = _read_ascending(page)
        if ids is None or (end.rows and (not len(ids) or ids[0] > last_id)):
            return None
        sink.take(page.subscribers)
        access.known_ids.add_shown(ids.tolist())
        seen.update(ids.tolist())
        is_full = len(ids) >= (page.limit or LARGEST_PAGE)
        if (not len(ids) or ids[-1] <= last_id) and not is_full:
            is_whole = page.total_count is not None and page.total_count <= offset + len(ids)
            newcomers, rows = sum(each > end.last_id for each in seen), offset + len(ids)
            is_all = rows - end.rows <= newcomers  # otherwise some were inserted before the end
            return ListEnd(last_id, rows) if is_whole and is_all and _shows_ours(access, end, seen) else None
        last_id = max(last_id, int(ids[-1]))
        offset += max(1, len(ids) - max(1, len(ids) // _OVERLAP_SHARE))
        page = await _fetch_offset(access, offset)
    return None


async def _find_joint(access: ListAccess, end: ListEnd) -> tuple[int, ListPage | None]:
    """Return an offset and its page that begins with a known row, or (0, None) if there is none: rows before the end
    may have vanished. The first page of a list that was empty always joins."""
    for number in range(_STEPS_BACK):
        offset = max(0, end.rows - (_OVERLAP << number))
        page = await _fetch_offset(access, offset)
        ids = _read_ascending(page)
        if not end.rows or (ids is not None and len(ids) and ids[0] <= end.last_id):
            return offset, page
        if not offset:
            break
    return 0, None


def _shows_ours(access: ListAccess, end: ListEnd, seen: set[int]) -> bool:
    """Return whether `seen` has the latest sentinel after the end that the list must show by now, if there is one."""
    shown_by = access.clock.monotonic() - access.shown_after_s
    ours = [
        each.subscriber_id
        for each in access.sentinels
        if each.confirmed_at < shown_by and each.subscriber_id > end.last_id
    ]
    return not ours or ours[-1] in seen


async def _fetch_offset(access: ListAccess, offset: int) -> ListPage | None:
    """Return the page, or None if the service refuses the offset, as some do past the end."""
    query = ListQuery(offset=offset, base_id=access.state.base_id)
    try:
        return await access.control.until_stopped(fetch_page(access.client, access.retrier, query))
    except ListFailed as failure:
        if failure.says_no_more:
            return None
        raise


def _read_ascending(page: ListPage | None) -> IdArray | None:
    """Return the ids of a page, or None if they do not ascend or are not whole numbers."""
    ids = [] if page is None else [row.get("Id") for row in page.subscribers]
    if not all(type(each) is int for each in ids):
        return None
    numbers = np.array(ids, dtype=np.int64)
    return numbers if (np.diff(numbers) > 0).all() else None
