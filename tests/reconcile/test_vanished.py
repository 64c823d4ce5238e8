"""Requests for vanished subscribers by Id, before a reconciliation forgets them."""

import asyncio
from collections.abc import Callable

import pytest

from connector.service.wire import ListPage, ListQuery
from pipelines.flows.reconciles import find_listed_by_id

Rows = list[dict[str, object]]


@pytest.mark.parametrize(
    ("build_rows", "expected"),
    [
        (lambda subscriber_id: [{"Id": subscriber_id}] if subscriber_id == 2 else [], (1, 3)),
        (lambda subscriber_id: [], (0, 3)),
        (lambda subscriber_id: [{"Id": 9}], (0, 0)),  # the service ignores the filter
        (lambda subscriber_id: None, (0, 0)),  # the service sends no answer
    ],
)
def test_vanished_subscribers_that_the_service_shows_by_id_are_counted(
    build_rows: Callable[[int], Rows | None], expected: tuple[int, int]
) -> None:
    async def request_page(query: ListQuery) -> ListPage | None:
        rows = build_rows(query.id or 0)
        return None if rows is None else ListPage(rows, len(rows), 0, 1)

    assert asyncio.run(find_listed_by_id(request_page, [1, 2, 3])) == expected
