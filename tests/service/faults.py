"""Small HTTP servers on 127.0.0.1, each with one fault. The servers record the requests."""

import asyncio
import contextlib
import functools
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable

import trustme

Fault = Callable[["Connection"], Awaitable[None]]


class Connection:
    """One connection of the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, server: "Server") -> None:
        self.reader = reader
        self.writer = writer
        self.server = server

    async def read_request(self) -> bool:
        """Read and record a whole request. Return False if the client has closed the connection."""
        try:
            request_head = await self.reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return False
        body_length = 0
        for line in request_head.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                body_length = int(value)
        self.server.requests.append(request_head + await self.reader.readexactly(body_length))
        return True

    async def write(self, content: bytes) -> None:
        self.writer.write(content)
        await self.writer.drain()

    def reset(self) -> None:
        """Close with a RST instead of a FIN."""
        server_socket = self.writer.get_extra_info("socket")
        server_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


class Server:
    """A server with a fault: its address, the number of its connections, and the requests that it has read."""

    def __init__(self, scheme: str) -> None:
        self.scheme = scheme
        self.port = 0
        self.connection_count = 0
        self.requests: list[bytes] = []

    @property
    def base_url(self) -> str:
        return f"{self.scheme}://localhost:{self.port}" if self.scheme == "https" else f"http://127.0.0.1:{self.port}"


@contextlib.asynccontextmanager
async def serve(
    fault: Fault, *, tls_context: ssl.SSLContext | None = None, scheme: str = "http", port: int = 0
) -> AsyncIterator[Server]:
    server = Server("https" if tls_context else scheme)
    tasks: set[asyncio.Task[None]] = set()

    async def handle_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connection_count += 1
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await fault(Connection(reader, writer, server))
        except (OSError, asyncio.CancelledError):
            pass  # the client has closed the connection, or the test has ended
        finally:
            tasks.discard(task)
            writer.close()

    asyncio_server = await asyncio.start_server(handle_connection, "127.0.0.1", port, ssl=tls_context)
    server.port = asyncio_server.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        asyncio_server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@functools.cache  # the key is made once for all tests, and stays in memory
def make_authority() -> trustme.CA:
    """Return the authority that signs the certificate of `build_tls_context`. Only test_tls.py trusts the authority."""
    return trustme.CA()


@functools.cache
def build_tls_context() -> ssl.SSLContext:
    """Return a TLS context of a server with a certificate for `localhost`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    make_authority().issue_cert("localhost").configure_cert(context)
    return context


def build_response(body: bytes, status: str = "200 OK", **headers: str) -> bytes:
    head_lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}"]
    head_lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(head_lines).encode() + b"\r\n\r\n" + body


def answer_with(*responses: bytes) -> Fault:
    """Answer the requests with these responses in turn, and all further requests with the last response."""
    remaining_responses = list(responses)

    async def answer(connection: Connection) -> None:
        while await connection.read_request():
            await connection.write(
                remaining_responses.pop(0) if len(remaining_responses) > 1 else remaining_responses[0]
            )

    return answer


def answer_once(first_answer: bytes, *, reads_second_request: bool) -> Fault:
    """Answer the first request of a connection, and close the connection without `Connection: close` in the answer. The
    server may read a second request before it closes the connection."""

    async def answer(connection: Connection) -> None:
        if await connection.read_request():
            await connection.write(first_answer)
            if reads_second_request:
                await connection.read_request()

    return answer


async def cut_before_answer(connection: Connection) -> None:
    await connection.read_request()


async def reset_before_answer(connection: Connection) -> None:
    await connection.read_request()
    connection.reset()


async def cut_while_reading(connection: Connection) -> None:
    """Reset the connection after the first bytes of a request."""
    connection.server.requests.append(await connection.reader.read(16))
    connection.reset()


async def cut_at_accept(connection: Connection) -> None:
    connection.reset()


async def cut_answer_in_head(connection: Connection) -> None:
    await connection.read_request()
    await connection.write(b"HTTP/1.1 200 OK\r\nContent-Le")


async def cut_answer_in_body(connection: Connection) -> None:
    await connection.read_request()
    await connection.write(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"success": true, "Subs')


async def reset_answer_in_body(connection: Connection) -> None:
    await cut_answer_in_body(connection)
    await asyncio.sleep(0.05)  # the first part must arrive before the RST, which discards unread bytes
    connection.reset()


async def cut_answer_without_length(connection: Connection) -> None:
    """Answer without Content-Length: the client cannot know whether the answer is complete."""
    await connection.read_request()
    await connection.write(b'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{"success": true, "Subs')


async def never_answer(connection: Connection) -> None:
    """Read and never answer. A TLS client gets no handshake."""
    while received_bytes := await connection.reader.read(65536):
        connection.server.requests.append(received_bytes)


async def answer_byte_by_byte(connection: Connection) -> None:
    """Send an answer byte by byte without end."""
    await connection.read_request()
    await connection.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    while True:
        await connection.write(b" ")
        await asyncio.sleep(0.02)


async def answer_with_garbage(connection: Connection) -> None:
    await connection.read_request()
    await connection.write(b"\x16\x03\x01 this is no HTTP\r\n\r\n")


async def answer_tls_in_plain_text(connection: Connection) -> None:
    """Answer a TLS handshake in plain text."""
    await connection.reader.read(65536)
    await connection.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def find_unused_port() -> int:
    with socket.socket() as test_socket:
        test_socket.bind(("127.0.0.1", 0))
        port: int = test_socket.getsockname()[1]
        return port
