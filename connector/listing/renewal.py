"""Renews a complete listing in id order. If all new rows come after the last row of the listing, only the end of the
list is read (architecture 4.7)."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from connector.listing.access import ListAccess
from connector.listing.pages import ListFailed, PageSink, fetch_page
from connector.paging.overlap import IdArray, compute_overlap_rows
from connector.service.wire import MAX_LIMIT, ListPage, ListQuery

_OVERLAP_ROW_COUNT = 16  # the number of known rows that the first page repeats
# The first step goes back 16 rows, and each later step is twice as long. After a step of 2,048 rows, the whole list is
# read again.
_MAX_BACKWARD_STEP_COUNT = 8


@dataclass(frozen=True, slots=True)
class ListEnd:
    """The end of a complete listing in ascending id order: the last id, and the number of all listed rows."""

    last_id: int
    listed_row_count: int


async def list_newcomers(access: ListAccess, list_end: ListEnd) -> Sequence[dict[str, Any]]:
    """Return the subscribers that one page shows after the end of a listing in ascending id order. Return no subscriber
    if the service does not return the page. Raises RunAborted if the run must stop."""
    access.stop.activity = "looking for subscribers of other programs"
    page = None
    with suppress(ListFailed):
        page = await _fetch_page_at(access, max(0, list_end.listed_row_count - _OVERLAP_ROW_COUNT))
    ids = _read_ascending_ids(page)
    overlaps_old_rows = page is not None and ids is not None and len(ids) and ids[0] <= list_end.last_id
    return (
        [row for row in page.subscribers if row["Id"] > list_end.last_id]
        if page is not None and overlaps_old_rows
        else []
    )


async def extend_listing(accesses: Sequence[ListAccess], list_end: ListEnd, sink: PageSink) -> ListEnd | None:
    """Continue a listing in ascending id order from shortly before its end, and add the subscribers to `sink`. Return
    the new end, or None if the new end is not certain.

    The new end is not certain in these cases:

    - The pages do not overlap, or are not in ascending order.
    - The pages lack the latest subscriber of this run that the list should show by now.
    - The list has grown by more subscribers than the pages show after the old end. Then some new subscribers have
      smaller ids, and only a full reading shows them.

    Raises ListFailed if the service does not return a page, and RunAborted if the run must stop.
    """
    access = accesses[0]
    access.stop.activity = "reading the end of the list for new subscribers"
    for other_access in accesses:
        await other_access.ledger_writer.flush()
    offset, page = await _find_overlapping_page(access, list_end)
    seen_ids, last_id = set[int](), list_end.last_id
    while page is not None:
        ids = _read_ascending_ids(page)
        if ids is None or (list_end.listed_row_count and (not len(ids) or ids[0] > last_id)):
            return None
        sink.receive_rows(page.subscribers)
        access.record_shown_ids(ids.tolist())
        seen_ids.update(ids.tolist())
        is_page_full = len(ids) >= (page.limit or MAX_LIMIT)
        if (not len(ids) or ids[-1] <= last_id) and not is_page_full:
            reaches_list_end = page.total_count is not None and page.total_count <= offset + len(ids)
            newcomer_count = sum(subscriber_id > list_end.last_id for subscriber_id in seen_ids)
            row_count = offset + len(ids)
            is_end_certain = (
                reaches_list_end
                # If the list has grown by more rows, some newcomers are before the old end.
                and row_count - list_end.listed_row_count <= newcomer_count
                and _shows_latest_confirmed_create(access, list_end, seen_ids)
            )
            return ListEnd(last_id, row_count) if is_end_certain else None
        last_id = max(last_id, int(ids[-1]))
        offset += max(1, len(ids) - compute_overlap_rows(len(ids)))
        page = await _fetch_page_at(access, offset)
    return None


async def _find_overlapping_page(access: ListAccess, list_end: ListEnd) -> tuple[int, ListPage | None]:
    """Return a page that begins with a known row, and its offset. Return (0, None) if no page begins with a known row.
    The search steps back, because rows before the end may have vanished. If the list was empty, its first page always
    counts as overlapping."""
    for doubling_count in range(_MAX_BACKWARD_STEP_COUNT):
        offset = max(0, list_end.listed_row_count - (_OVERLAP_ROW_COUNT << doubling_count))
        page = await _fetch_page_at(access, offset)
        ids = _read_ascending_ids(page)
        if not list_end.listed_row_count or (ids is not None and len(ids) and ids[0] <= list_end.last_id):
            return offset, page
        if not offset:
            break
    return 0, None


def _shows_latest_confirmed_create(access: ListAccess, list_end: ListEnd, seen_ids: set[int]) -> bool:
    """Return whether the new pages show this run's latest confirmed create. Only a create counts whose id is after the
    old end of the list, and whose subscriber the list should show by now. Return True if no create counts. `seen_ids`
    are the ids on the new pages."""
    max_confirmed_at = access.clock.monotonic() - access.expected_lag_s
    confirmed_create_ids = [
        create.subscriber_id
        for create in access.confirmed_creates
        if create.confirmed_at < max_confirmed_at and create.subscriber_id > list_end.last_id
    ]
    return not confirmed_create_ids or confirmed_create_ids[-1] in seen_ids


async def _fetch_page_at(access: ListAccess, offset: int) -> ListPage | None:
    """Return the page at this offset, or None if the service refuses the offset, as some services do past the end."""
    query = ListQuery(offset=offset, base_id=access.state.base_id)
    try:
        return await access.stop.wait_until_stopped(fetch_page(access.client, access.retrier, query))
    except ListFailed as failure:
        if failure.is_query_refused:
            return None
        raise


def _read_ascending_ids(page: ListPage | None) -> IdArray | None:
    """Return the ids of a page, or None if the ids are not in ascending order or not whole numbers."""
    ids = [] if page is None else [row.get("Id") for row in page.subscribers]
    if not all(type(subscriber_id) is int for subscriber_id in ids):
        return None
    id_array = np.array(ids, dtype=np.int64)
    return id_array if (np.diff(id_array) > 0).all() else None
