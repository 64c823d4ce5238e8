"""Renews a listing in id order by reading on from its last known row: whoever came since stands behind that (4.7)."""

from dataclasses import dataclass

import numpy as np

from connector.listing import ListFailed, PageSink, fetch_page
from connector.load.session import Session
from connector.pages import IdArray
from connector.service import LARGEST_PAGE, ListPage, ListQuery

_OVERLAP = 16  # rows before the end that the first page repeats
_OVERLAP_SHARE = 20  # a page repeats 1/20 of the one before it (connector.pages)
_STEPS_BACK = 8  # of doubling length: a list of which more than 2,000 rows vanished meanwhile is listed again


@dataclass(frozen=True, slots=True)
class ListEnd:
    """Where a complete listing in ascending id order ended: the last id, and how many rows there were."""

    last_id: int
    rows: int


async def read_on(session: Session, end: ListEnd, sink: PageSink) -> ListEnd | None:
    """Hand to `sink` all from a little before the end, and return the new end.

    None when the pages do not join, are in no ascending order, or do not show the latest subscriber that this run
    created, and that should show by now: then this tells nothing. Raises RunAborted when the run is to stop, or
    ListFailed.
    """
    offset, page = await _find_joint(session, end)
    seen, last_id = set[int](), end.last_id
    while page is not None:
        ids = _read_ids(page)
        if ids is None or not len(ids) or ids[0] > last_id:
            return None
        sink.take(page.subscribers)
        seen.update(ids.tolist())
        is_full = len(ids) >= (page.limit or LARGEST_PAGE)
        if ids[-1] <= last_id and not is_full:
            is_whole = page.total_count is not None and page.total_count <= offset + len(ids)
            return ListEnd(last_id, offset + len(ids)) if is_whole and _shows_ours(session, end, seen) else None
        last_id = max(last_id, int(ids[-1]))
        offset += max(1, len(ids) - max(1, len(ids) // _OVERLAP_SHARE))
        page = await _fetch(session, offset)
    return None


async def _find_joint(session: Session, end: ListEnd) -> tuple[int, ListPage | None]:
    """An offset and its page, which begins with a known row (None: none does): rows before the end may have gone."""
    for number in range(_STEPS_BACK):
        offset = max(0, end.rows - (_OVERLAP << number))
        page = await _fetch(session, offset)
        ids = _read_ids(page)
        if ids is not None and len(ids) and ids[0] <= end.last_id:
            return offset, page
        if not offset:
            break
    return 0, None


def _shows_ours(session: Session, end: ListEnd, seen: set[int]) -> bool:
    """Whether it shows what this run created, as far as that should show by now."""
    old = session.clock.monotonic() - session.shown_after_s
    ours = [each.subscriber_id for each in session.witnesses if each.at < old and each.subscriber_id > end.last_id]
    return not ours or ours[-1] in seen


async def _fetch(session: Session, offset: int) -> ListPage | None:
    """None where the service refuses the offset, as some do past the end."""
    try:
        return await session.until_stopped(fetch_page(session.client, session.retrier, ListQuery(offset=offset)))
    except ListFailed as failure:
        if failure.says_no_more:
            return None
        raise


def _read_ids(page: ListPage | None) -> IdArray | None:
    """The ids of a page; None where they do not ascend, or are no ids."""
    ids = [] if page is None else [row.get("Id") for row in page.subscribers]
    if not all(type(each) is int for each in ids):
        return None
    numbers = np.array(ids, dtype=np.int64)
    return numbers if (np.diff(numbers) > 0).all() else None
