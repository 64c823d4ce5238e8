"""Failures on real sockets. A request counts as not sent only if no byte of the request was written."""

import asyncio
import gzip
import socket
import threading
import time

import pytest

from connector.service.transport import MAX_ANSWER_BYTES, open_transport
from connector.service.wire import (
    AmbiguousResult,
    NotSent,
    RawAnswer,
    Request,
    build_create_request,
)
from tests.service import faults
from tests.service.attempts import CREATE_REQUEST, LIST_REQUEST, OK, REQUESTS, build_service, make_attempt
from tests.service.faults import Connection, Fault, build_response, find_unused_port, serve

LOOPS = ("asyncio", "uvloop")  # the two event loops raise different errors


async def test_each_test_of_this_module_runs_on_both_event_loops(request: pytest.FixtureRequest) -> None:
    loop_name = request.node.callspec.id
    assert type(asyncio.get_running_loop()).__module__.partition(".")[0] == loop_name


# 1. A failure before the first byte of the request: NotSent.


async def test_a_request_with_a_refused_connection_is_not_sent() -> None:
    port = find_unused_port()
    answer = await make_attempt(f"http://127.0.0.1:{port}", CREATE_REQUEST)
    assert answer == NotSent(f"no connection to 127.0.0.1:{port}: Connection refused")


async def test_a_request_to_an_unknown_host_name_is_not_sent() -> None:
    answer = await make_attempt("https://no-such-host.invalid", CREATE_REQUEST)
    assert answer == NotSent("the host name no-such-host.invalid could not be resolved")


async def test_a_request_to_a_server_with_an_untrusted_certificate_is_not_sent() -> None:
    async with serve(faults.answer_with(OK), tls_context=faults.build_tls_context()) as server:
        answer = await make_attempt(server.base_url, CREATE_REQUEST)
        assert answer == NotSent("the certificate of localhost is not trusted: unable to get local issuer certificate")
        assert server.requests == []


@pytest.mark.parametrize(
    ("fault", "expected_text"),
    [
        (faults.answer_tls_in_plain_text, "no TLS connection to localhost: WRONG_VERSION_NUMBER"),
        (faults.cut_at_accept, "no connection to localhost:"),
        (faults.never_answer, "no connection within 0.5 s"),
    ],
    ids=["plain", "reset", "silent"],
)
async def test_a_request_whose_tls_handshake_fails_is_not_sent(fault: Fault, expected_text: str) -> None:
    async with serve(fault, scheme="https") as server:
        timeout_s = 1.0 if fault is faults.never_answer else 10.0
        answer = await make_attempt(server.base_url, CREATE_REQUEST, timeout_s=timeout_s)
        assert isinstance(answer, NotSent)
        assert answer.message.startswith(expected_text)
        assert not [request for request in server.requests if b"HTTP" in request]


async def test_a_request_is_not_sent_if_no_connection_opens_in_time() -> None:
    """The backlog of the listener is full, so the kernel does not finish further handshakes."""
    with (
        socket.socket() as listening_socket,
        socket.socket() as first_waiting_socket,
        socket.socket() as second_waiting_socket,
    ):
        listening_socket.bind(("127.0.0.1", 0))
        listening_socket.listen(0)
        for waiting_socket in (first_waiting_socket, second_waiting_socket):
            waiting_socket.setblocking(False)
            waiting_socket.connect_ex(listening_socket.getsockname())
        answer = await make_attempt(
            f"http://127.0.0.1:{listening_socket.getsockname()[1]}", CREATE_REQUEST, timeout_s=1.0
        )
    assert answer == NotSent("no connection within 0.5 s")


async def test_a_cancelled_connect_closes_its_socket() -> None:
    """aiohttp passes its own sockets to the loop. uvloop before 0.23 closed the descriptor, but the socket object kept
    its number. A new file got this number, and the socket object closed the new file later."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listening_socket, socket.socket() as client_socket:
        client_socket.setblocking(False)
        await loop.sock_connect(client_socket, listening_socket.getsockname())
        connecting_task = asyncio.ensure_future(loop.create_connection(asyncio.Protocol, sock=client_socket))
        await asyncio.sleep(0)
        connecting_task.cancel()
        await asyncio.wait([connecting_task])
        assert (connecting_task.cancelled(), client_socket.fileno()) == (True, -1)


async def test_a_request_without_a_free_connection_is_not_sent() -> None:
    async with (
        serve(faults.never_answer) as server,
        open_transport(build_service(server.base_url, 1.0, 1)) as transport,
    ):
        first_answer, second_answer = await asyncio.gather(
            transport.send(CREATE_REQUEST), transport.send(CREATE_REQUEST)
        )
        assert isinstance(first_answer, AmbiguousResult)
        assert isinstance(second_answer, NotSent)
        assert b"".join(server.requests).count(b"POST") == 1


# 2. A failure after the first byte: AmbiguousResult, and the transport sends no second request.


@pytest.mark.parametrize(
    ("fault", "expected_text"),
    [
        (faults.cut_before_answer, "the connection was cut before the answer"),
        (faults.reset_before_answer, "the connection was cut before the answer"),
        (faults.cut_while_reading, "the connection was cut before the answer"),
        (faults.cut_answer_in_head, "the connection was cut before the answer"),
        (faults.cut_answer_in_body, "the connection was cut in the middle of the answer"),
        (faults.reset_answer_in_body, "the connection was cut in the middle of the answer"),
        (faults.never_answer, "no complete answer within 0.5 s"),
        (faults.answer_byte_by_byte, "no complete answer within 0.5 s"),
        (faults.answer_with_garbage, "the answer was not valid HTTP"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_a_failure_after_the_first_byte_makes_the_request_ambiguous(fault: Fault, expected_text: str) -> None:
    async with serve(fault) as server:
        answer = await make_attempt(
            server.base_url, CREATE_REQUEST, timeout_s=0.5 if expected_text.endswith("0.5 s") else 10.0
        )
        assert answer == AmbiguousResult(None, expected_text)
        assert (server.connection_count, len(server.requests)) == (1, 1)


async def test_a_connection_cut_at_accept_makes_the_request_ambiguous() -> None:
    async with serve(faults.cut_at_accept) as server:
        assert isinstance(await make_attempt(server.base_url, CREATE_REQUEST), AmbiguousResult)
        assert server.connection_count == 1


async def test_a_connection_cut_inside_the_body_makes_the_request_ambiguous() -> None:
    async with serve(faults.cut_while_reading) as server:
        assert isinstance(await make_attempt(server.base_url, build_create_request(b"x" * 5_000_000)), AmbiguousResult)
        assert server.connection_count == 1


async def test_an_answer_without_a_length_is_read_until_the_connection_ends() -> None:
    """The transport cannot see whether the body is complete. The parser refuses an incomplete JSON object."""
    async with serve(faults.cut_answer_without_length) as server:
        answer = await make_attempt(server.base_url, CREATE_REQUEST)
        assert isinstance(answer, RawAnswer)
        assert answer.body == b'{"success": true, "Subs'


# 3. Stale keep-alive connections. This version of aiohttp retries a GET by itself. The transport must retry nothing.


@REQUESTS
async def test_a_cut_of_an_open_connection_makes_its_request_ambiguous(
    request_: Request,
) -> None:
    async with (
        serve(faults.answer_once(OK, reads_second_request=True)) as server,
        open_transport(build_service(server.base_url)) as transport,
    ):
        assert isinstance(await transport.send(request_), RawAnswer)
        assert isinstance(await transport.send(request_), AmbiguousResult)
        assert (server.connection_count, len(server.requests)) == (1, 2)


@REQUESTS
async def test_an_unnoticed_close_of_a_connection_makes_its_request_ambiguous(request_: Request) -> None:
    """The server closes the connection while the event loop of the client is busy. Then the client writes to the closed
    connection."""
    requests: list[bytes] = []
    with socket.socket() as listening_socket:
        listening_socket.bind(("127.0.0.1", 0))
        listening_socket.listen()

        def serve_one_request_and_close() -> None:
            accepted_socket, _ = listening_socket.accept()
            with accepted_socket:
                requests.append(accepted_socket.recv(65536))
                accepted_socket.sendall(OK)

        thread = threading.Thread(target=serve_one_request_and_close)
        thread.start()
        async with open_transport(build_service(f"http://127.0.0.1:{listening_socket.getsockname()[1]}")) as transport:
            assert isinstance(await transport.send(request_), RawAnswer)
            thread.join()  # blocks the event loop on purpose, so that the loop does not notice the close
            assert isinstance(await transport.send(request_), AmbiguousResult)
    assert len(requests) == 1


@REQUESTS
async def test_the_client_does_not_use_a_closed_connection(request_: Request) -> None:
    async with (
        serve(faults.answer_once(OK, reads_second_request=False)) as server,
        open_transport(build_service(server.base_url)) as transport,
    ):
        for _ in range(3):
            assert isinstance(await transport.send(request_), RawAnswer)
            await asyncio.sleep(0.02)  # in this time, the event loop notices that the server has closed the connection
        assert (server.connection_count, len(server.requests)) == (3, 3)


@pytest.mark.parametrize(("idle_s", "connection_count"), [(0.05, 2), (30.0, 1)])
async def test_the_client_closes_a_connection_after_the_idle_time(idle_s: float, connection_count: int) -> None:
    async with (
        serve(faults.answer_with(OK)) as server,
        open_transport(build_service(server.base_url), idle_s=idle_s) as transport,
    ):
        await transport.send(CREATE_REQUEST)
        time.sleep(0.1)  # noqa: ASYNC251 - blocks the event loop, so that only the age of the connection counts
        await transport.send(CREATE_REQUEST)
        assert server.connection_count == connection_count


# 4. The transport follows no redirect, keeps no cookie, limits its connections, and mixes up no answers.


async def test_a_redirect_is_not_followed() -> None:
    async with serve(faults.answer_with(OK)) as other_server:
        for status in ("301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"):
            redirection = build_response(b"", status, Location=f"{other_server.base_url}/api")
            async with serve(faults.answer_with(redirection)) as server:
                answer = await make_attempt(server.base_url, CREATE_REQUEST)
                assert isinstance(answer, RawAnswer)
                assert answer.status == int(status[:3])
                assert (len(server.requests), other_server.connection_count) == (1, 0)


async def test_a_cookie_is_not_sent_back() -> None:
    cookie_answer = build_response(b"{}", Set_Cookie="session=1; Path=/")
    async with serve(faults.answer_with(cookie_answer)) as server:
        # The service has a host name, because aiohttp never keeps cookies of an IP address.
        service_with_host_name = build_service(f"http://localhost:{server.port}")
        async with open_transport(service_with_host_name) as transport:
            await transport.send(LIST_REQUEST)
            await transport.send(LIST_REQUEST)
        assert len(server.requests) == 2
        assert not [request for request in server.requests if b"cookie" in request.lower()]


async def test_the_client_opens_at_most_the_allowed_number_of_connections() -> None:
    async with (
        serve(faults.answer_with(OK)) as server,
        open_transport(build_service(server.base_url, 5.0, 3)) as transport,
    ):
        answers = await asyncio.gather(*(transport.send(CREATE_REQUEST) for _ in range(30)))
        assert all(isinstance(answer, RawAnswer) for answer in answers)
        assert (server.connection_count, len(server.requests)) == (3, 30)


async def test_a_cancelled_request_leaves_no_answer_for_the_next_request() -> None:
    async def answer_first_request_late(connection: Connection) -> None:
        while await connection.read_request():
            request_count = len(connection.server.requests)
            if request_count == 1:
                request_arrived_event.set()
                await may_answer_event.wait()
            await connection.write(build_response(f"answer {request_count}".encode()))

    request_arrived_event, may_answer_event = asyncio.Event(), asyncio.Event()
    async with serve(answer_first_request_late) as server, open_transport(build_service(server.base_url)) as transport:
        first_task = asyncio.create_task(transport.send(CREATE_REQUEST))
        await request_arrived_event.wait()
        first_task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first_task
        may_answer_event.set()
        answer = await transport.send(CREATE_REQUEST)
        assert isinstance(answer, RawAnswer)
        assert answer.body == b"answer 2"
        assert server.connection_count == 2


# 5. The size of an answer is limited, even without Content-Length and with compression.


def answer_without_end(head: bytes, chunk: bytes) -> Fault:
    async def answer(connection: Connection) -> None:
        await connection.read_request()
        await connection.write(head)
        while chunk:
            await connection.write(chunk)
        await connection.reader.read()  # without a chunk: wait until the client closes the connection

    return answer


ONE_MEBIBYTE_CHUNK = b"x" * 2**20
TOO_LARGE_ANSWER = AmbiguousResult(200, f"the answer is larger than {MAX_ANSWER_BYTES >> 20} MiB and was not read")


async def test_an_answer_that_is_too_large_is_ambiguous() -> None:
    cases: list[Fault] = [
        answer_without_end(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n", b""),
        answer_without_end(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"100000\r\n" + ONE_MEBIBYTE_CHUNK + b"\r\n"
        ),
        answer_without_end(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", ONE_MEBIBYTE_CHUNK),
        faults.answer_with(build_response(gzip.compress(ONE_MEBIBYTE_CHUNK * 65, 1), Content_Encoding="gzip")),
    ]
    for fault in cases:
        async with serve(fault) as server:
            assert await make_attempt(server.base_url, LIST_REQUEST, timeout_s=20.0) == TOO_LARGE_ANSWER


@pytest.mark.parametrize("body_length", [0, 300_000])
async def test_a_compressed_or_chunked_answer_is_read_whole(body_length: int) -> None:
    body = (b"0123456789" * body_length)[:body_length]
    chunk = b"%x\r\n" % body_length + body + b"\r\n" if body_length else b""
    chunked_answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk + b"0\r\n\r\n"
    compressed_answer = build_response(gzip.compress(body), Content_Encoding="gzip")
    async with (
        serve(faults.answer_with(build_response(body), chunked_answer, compressed_answer)) as server,
        open_transport(build_service(server.base_url)) as transport,
    ):
        for _ in range(3):
            answer = await transport.send(LIST_REQUEST)
            assert isinstance(answer, RawAnswer)
            assert answer.body == body
        assert server.connection_count == 1
