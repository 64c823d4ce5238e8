"""What the transport does not do: follow, remember, open too much, mix up answers, or read without end."""

import asyncio
import gzip

import pytest

from connector.service.transport import LARGEST_ANSWER, open_transport
from connector.service.wire import Ambiguous, RawAnswer, Request
from tests.service import faults
from tests.service.attempts import CREATE, LIST, OK, REQUESTS, attempt, service
from tests.service.faults import Connection, Fault, response, serve

LOOPS = ("asyncio", "uvloop")  # whose failures differ in kind


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
@REQUESTS
async def test_a_redirect_is_an_answer_and_is_not_followed(request_: Request, status: str) -> None:
    async with serve(faults.answers(OK)) as other:
        moved = response(b"", status, Location=f"{other.base_url}/api")
        async with serve(faults.answers(moved)) as server:
            answer = await attempt(server.base_url, request_)
            assert isinstance(answer, RawAnswer)
            assert answer.status == int(status[:3])
            assert (len(server.requests), other.connections) == (1, 0)


async def test_no_cookie_is_kept() -> None:
    sets = response(b"{}", Set_Cookie="session=1; Path=/")
    async with serve(faults.answers(sets)) as server:
        by_name = service(f"http://localhost:{server.port}")  # of an address aiohttp keeps no cookie anyway
        async with open_transport(by_name) as transport:
            await transport.send(LIST)
            await transport.send(LIST)
        assert len(server.requests) == 2
        assert not [request for request in server.requests if b"cookie" in request.lower()]


async def test_no_more_connections_than_allowed_are_open() -> None:
    async with serve(faults.answers(OK)) as server, open_transport(service(server.base_url, 5.0, 3)) as transport:
        answers = await asyncio.gather(*(transport.send(CREATE) for _ in range(30)))
        assert all(isinstance(answer, RawAnswer) for answer in answers)
        assert (server.connections, len(server.requests)) == (3, 30)


async def test_a_cancelled_request_leaves_no_answer_behind_for_the_next() -> None:
    async def answers_late_then_at_once(connection: Connection) -> None:
        while await connection.read_request():
            number = len(connection.server.requests)
            if number == 1:
                arrived.set()
                await released.wait()
            await connection.write(response(f"answer {number}".encode()))

    arrived, released = asyncio.Event(), asyncio.Event()
    async with serve(answers_late_then_at_once) as server, open_transport(service(server.base_url)) as transport:
        first = asyncio.create_task(transport.send(CREATE))
        await arrived.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        released.set()
        answer = await transport.send(CREATE)
        assert isinstance(answer, RawAnswer)
        assert answer.body == b"answer 2"
        assert server.connections == 2


# The size of an answer is bounded, announced or not, compressed or not.


def endless(head: bytes, chunk: bytes) -> Fault:
    async def answer(connection: Connection) -> None:
        await connection.read_request()
        await connection.write(head)
        while chunk:
            await connection.write(chunk)
        await connection.reader.read()  # announced only: until the client closes

    return answer


MIB = b"x" * 2**20
TOO_LARGE = Ambiguous(200, f"the answer is larger than {LARGEST_ANSWER >> 20} MiB and was not read")


@pytest.mark.parametrize(
    "fault",
    [
        endless(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n", b""),
        endless(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"100000\r\n" + MIB + b"\r\n"),
        endless(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", MIB),
        faults.answers(response(gzip.compress(MIB * 65, 1), Content_Encoding="gzip")),
    ],
    ids=["announced", "chunked", "until-closed", "compressed"],
)
async def test_an_answer_past_the_bound_is_given_up(fault: Fault) -> None:
    async with serve(fault) as server:
        assert await attempt(server.base_url, LIST, timeout_s=20.0) == TOO_LARGE


@pytest.mark.parametrize("size", [0, 1, 300_000])
async def test_a_compressed_or_chunked_answer_is_read_whole(size: int) -> None:
    body = (b"0123456789" * size)[:size]
    chunk = b"%x\r\n" % size + body + b"\r\n" if size else b""
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk + b"0\r\n\r\n"
    packed = response(gzip.compress(body), Content_Encoding="gzip")
    async with (
        serve(faults.answers(response(body), chunked, packed)) as server,
        open_transport(service(server.base_url)) as transport,
    ):
        for _ in range(3):
            answer = await transport.send(LIST)
            assert isinstance(answer, RawAnswer)
            assert answer.body == body
        assert server.connections == 1
