"""Services that page in ways of their own, over a real connection: read as far as it goes, certified only by proof."""

import asyncio
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import orjson
import pytest

from connector.listing import read_list
from connector.paging import Certificate
from connector.service import ListQuery, Service, Token, open_client
from tests.export.exports import Collector, hurried, now

IDS = range(1, 251)
Page = dict[str, Any]
Filters = dict[str, str]
Serve = Callable[[int, int, Filters], Page]


def honest(offset: int, limit: int, filters: Filters) -> Page:
    rows = [{"Id": each, "FirstName": "Ann"} for each in IDS[offset : offset + limit]]
    return {"TotalCount": len(IDS), "Offset": offset, "Limit": limit, "Subscribers": rows}


def altered(**fields: Any) -> Serve:
    return lambda offset, limit, filters: {**honest(offset, limit, filters), **fields}


def without_total(offset: int, limit: int, filters: Filters) -> Page:
    page = honest(offset, limit, filters)
    del page["TotalCount"]
    return page


def with_total_by_page(offset: int, limit: int, filters: Filters) -> Page:
    return {**honest(offset, limit, filters), "TotalCount": 250 + offset % 7}


def without_limit(offset: int, limit: int, filters: Filters) -> Page:
    return {**honest(offset, 10_000, filters), "Limit": limit}


def without_offset(offset: int, limit: int, filters: Filters) -> Page:
    return {**honest(0, limit, filters), "Offset": offset}


def half(offset: int, limit: int, filters: Filters) -> Page:
    return {**honest(offset, max(1, limit // 2), filters), "Limit": limit}


def with_doubles(offset: int, limit: int, filters: Filters) -> Page:
    """The 31st is listed once more behind the 200th, with another name."""
    rows = [{"Id": each, "FirstName": "Ann"} for each in IDS]
    rows.insert(200, {"Id": 31, "FirstName": "Bob"})
    return {**honest(offset, limit, filters), "TotalCount": 251, "Subscribers": rows[offset : offset + limit]}


def read_from(page: Serve, query: ListQuery | None = None, **options: Any) -> tuple[Certificate, Collector]:
    collector = Collector()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        asked = dict(parse_qsl(urlsplit(head.split(" ")[1]).query))
        answer = {"success": True, "SubscribersList": page(int(asked.pop("offset")), int(asked.pop("limit")), asked)}
        body = orjson.dumps(answer)
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def run() -> Certificate:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            async with open_client(Service(f"http://127.0.0.1:{port}", Token("t0ken"))) as client:
                return await read_list(client, hurried(2), query or ListQuery(limit=100), collector, now=now, **options)

    return asyncio.run(run()), collector


@pytest.mark.parametrize(
    ("page", "reason", "rows"),
    [
        (honest, "id_order", 250),
        (without_limit, "id_order", 250),
        (half, "id_order", 250),
        (without_offset, "total_count", 100),
        (without_total, "total_count", 250),
        (altered(TotalCount=None), "total_count", 250),
        (altered(TotalCount="250"), "id_order", 250),
        (altered(TotalCount="250?"), "total_count", 250),
        (altered(TotalCount=249), "total_count", 250),
        (altered(TotalCount=251), "total_count", 250),
        (altered(TotalCount=0), "total_count", 250),
        (with_total_by_page, "total_count", 250),
        (altered(Limit=None), "id_order", 250),
        (altered(Limit=0), "id_order", 250),
        (altered(Offset=None), "id_order", 250),
        (with_doubles, "total_count", 250),
    ],
)
def test_an_odd_list_is_read_and_certified_only_by_proof(page: Serve, reason: str, rows: int) -> None:
    certificate, collector = read_from(page)

    assert (certificate.reason, len(collector.ids)) == (reason, rows)
    assert len(set(collector.ids)) == rows == certificate.distinct
    assert certificate.is_complete is (reason == "id_order")


@pytest.mark.parametrize("page", [without_total, altered(TotalCount=None), altered(TotalCount=249)])
def test_where_total_count_alone_is_odd_it_can_be_left_out_of_account(page: Serve) -> None:
    certificate, collector = read_from(page, ignore_total_count=True)

    assert (certificate.reason, certificate.total_count, len(collector.ids)) == ("id_order", "ignored", 250)


def test_a_list_whose_end_is_out_of_reach_is_not_complete_by_leaving_total_count_out() -> None:
    assert not read_from(without_offset, ignore_total_count=True)[0].is_complete


def test_an_id_that_comes_twice_with_other_values_is_kept_as_it_came_first() -> None:
    _, collector = read_from(with_doubles)

    assert [wire["FirstName"] for wire in collector.sweeps[collector.current] if wire["Id"] == 31] == ["Ann"]
