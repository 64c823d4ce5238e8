"""Answers that no honest service gives: each told in words, none taken for a list."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest

from connector.listing import ListFailed, read_list
from connector.paging import Certificate
from connector.service import ListQuery, Service, Token, open_client
from tests.export.exports import Collector, hurried, now

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def answering(*subscribers: Any) -> Serve:
    """A service that answers each request with these subscribers."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        page = {"TotalCount": len(subscribers), "Offset": 0, "Limit": 1000, "Subscribers": subscribers}
        body = orjson.dumps({"success": True, "SubscribersList": page})
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    return serve


def failing(status: str, *headers: str) -> Serve:
    """A service that answers each request with this status."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = [f"HTTP/1.1 {status}", "Connection: close", "Content-Length: 0", *headers]
        writer.write("\r\n".join(head).encode() + b"\r\n\r\n")
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    return serve


def read_from(serve: Serve) -> Certificate:
    async def run() -> Certificate:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            async with open_client(Service(f"http://127.0.0.1:{port}", Token("t0ken"))) as client:
                return await read_list(client, hurried(2), ListQuery(), Collector(), now=now)

    return asyncio.run(run())


@pytest.mark.parametrize("subscriber", [{}, {"Id": None}, {"Id": "5th"}, {"Id": True}, {"Id": 1.5}, {"Id": 2**63}])
def test_a_subscriber_without_a_usable_id_ends_the_reading(subscriber: dict[str, Any]) -> None:
    with pytest.raises(ListFailed, match="without a whole number as its Id"):
        read_from(answering({"Id": 1}, subscriber))


def test_a_service_that_gives_the_same_page_at_every_offset_is_incomplete() -> None:
    certificate = read_from(answering(*({"Id": number} for number in range(1, 50))))

    assert not certificate.is_complete


@pytest.mark.parametrize(
    ("status", "hint"),
    [
        ("301 Moved Permanently", "Check the base URL."),
        ("302 Found", "Check the base URL."),
        ("307 Temporary Redirect", "Check the base URL."),
        ("308 Permanent Redirect", "Check the base URL."),
        ("401 Unauthorized", "Check the token."),
        ("403 Forbidden", "Check the token."),
        ("404 Not Found", "Check the base URL, or run it again later."),
        ("429 Too Many Requests", "Run it again later."),
        ("408 Request Timeout", "Run it again later."),
        ("500 Internal Server Error", "Run it again later."),
    ],
)
def test_a_list_that_is_not_given_says_what_to_do_next(status: str, hint: str) -> None:
    with pytest.raises(ListFailed) as failure:
        read_from(failing(status, "Location: https://elsewhere.example/login"))

    assert failure.value.status == int(status[:3])
    assert str(failure.value).endswith(f". {hint}")
    assert ("redirect to https://elsewhere.example/login" in str(failure.value)) == status.startswith("3")
