"""HTTP/1.1 on one connection: bytes in, responses out, one request at a time and in order (so pipelining is safe).

It reads requests by llhttp (the package httptools), strict and bounded, and knows how to break off; what a request
means is for the service to say.
"""

import asyncio
import html
import socket
import struct
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from http import HTTPStatus
from math import inf
from typing import cast

import httptools
import orjson

_JSON = b"application/json"
_MAX_HEAD = 65_536  # nginx takes 32 KiB of headers, most servers less
_MAX_WAITING = 262_144  # bytes read ahead of the request being served; beyond it the socket is left to fill up
_VERSIONS = ("1.1", "1.0")
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER on, for 0 s: closing sends a reset
_PHRASES = {status.value: status.phrase.encode() for status in HTTPStatus}


class Ending(StrEnum):
    """How a response leaves the connection."""

    WHOLE = "whole"  # the response is sent
    CUT = "cut"  # nothing is sent, the connection ends
    PART = "part"  # half of the response is sent, then the connection ends
    SILENT = "silent"  # nothing is sent, the connection stays


@dataclass(slots=True)  # neither is frozen: each request makes one, and freezing doubles the cost of making it
class Request:
    """A whole request; header names are lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    keep_alive: bool = True


@dataclass(slots=True)
class Response:
    """A status, a body, and headers beyond Content-Type and Content-Length.

    `wait_s` is what a Retry-After asks for, from the response on; `wait_until` (wall clock) where it names a date.
    """

    status: int
    body: bytes
    content_type: bytes = _JSON
    headers: tuple[tuple[str, str], ...] = ()
    wait_s: float = 0.0
    wait_until: float | None = None


NO_RESPONSE = Response(0, b"")
"""For the endings that send nothing."""


def build_error(shape: str, status: int, message: str, headers: tuple[tuple[str, str], ...] = ()) -> Response:
    """Return an error; its shape is `not shown` in service-api.md, so it is a switch (`error_shape`)."""
    if shape == "empty":
        return Response(status, b"", _JSON, headers)
    if shape == "html":
        page = f"<!doctype html><html><head><title>{status}</title></head><body><h1>{html.escape(message)}</h1></body>"
        return Response(status, page.encode() + b"</html>", b"text/html; charset=utf-8", headers)
    if shape == "nested":
        error = {"code": status, "details": [{"message": message}]}
        return Response(status, orjson.dumps({"success": False, "error": error}), _JSON, headers)
    return Response(status, orjson.dumps({"success": False, "message": message}), _JSON, headers)


def _encode_response(response: Response, *, keep_alive: bool) -> bytes:
    extra = b"".join(f"{name}: {value}\r\n".encode("latin-1", "replace") for name, value in response.headers)
    return b"HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n%s%s\r\n%s" % (
        response.status,
        _PHRASES.get(response.status, b"Unnamed"),
        response.content_type,
        len(response.body),
        extra,
        b"" if keep_alive else b"Connection: close\r\n",
        response.body,
    )


# requests


class BadRequestError(Exception):
    """The bytes are no request that this server takes: answer `status` and close the connection."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class RequestReader:
    """Takes bytes as they arrive (`feed`) and returns whole requests in order (`read_request`)."""

    def __init__(self, max_body: int) -> None:
        self._max_body = max_body
        self._parser = httptools.HttpRequestParser(self)
        self._requests: deque[Request] = deque()
        self._error: BadRequestError | None = None
        self._head_bytes = 0
        self._is_continue_wanted = False
        self._body = b""
        self._headers: Mapping[str, str] = {}
        self._begin()
        self.buffered = 0
        """About how many bytes wait in requests that were not read yet."""

    def feed(self, data: bytes) -> None:
        """Add bytes of the connection; what follows a request that cannot be read is left alone."""
        if self._error is not None:
            return
        self._head_bytes += len(data)  # back to 0 where a request ends in them
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # the request is served as it came, and its connection ends with the answer
        except httptools.HttpParserError as error:
            cause = error.__context__  # what a method below has raised
            unreadable = BadRequestError(400, f"the request cannot be read: {error}")
            self._error = cause if isinstance(cause, BadRequestError) else unreadable
        if self._is_in_head and self._head_bytes > _MAX_HEAD and self._error is None:
            self._error = BadRequestError(431, "the headers are too large")

    def read_request(self) -> Request | None:
        """Return the next whole request, or None until more bytes have come; raises BadRequestError."""
        if self._requests:
            request = self._requests.popleft()
            self.buffered -= len(request.body) + 1
            return request
        if self._error is not None:
            raise self._error
        return None

    def take_expectation(self) -> bool:
        """Whether the client waits for `100 Continue` before it sends the body; True once for a request."""
        is_wanted, self._is_continue_wanted = self._is_continue_wanted, False
        return is_wanted

    # called by the parser

    def on_url(self, url: bytes) -> None:
        """Take a part of the target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a whole header."""
        self._raw_headers.append(name)
        self._raw_headers.append(value)

    def on_headers_complete(self) -> None:
        """Check the head."""
        self._is_in_head = False
        if self._parser.get_http_version() not in _VERSIONS:
            raise BadRequestError(505, "only HTTP/1.1 and HTTP/1.0 are spoken here")
        self._headers = headers = _parse_headers(tuple(self._raw_headers))
        if int(headers.get("content-length", 0)) > self._max_body:
            raise BadRequestError(413, "the body is too large")
        self._is_continue_wanted = headers.get("expect", "").lower() == "100-continue"

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._is_continue_wanted = False
        self._body = self._body + body if self._body else body
        if len(self._body) > self._max_body:
            raise BadRequestError(413, "the body is too large")

    def on_message_complete(self) -> None:
        """Keep the whole request."""
        parser, body = self._parser, self._body
        keep_alive = parser.should_keep_alive() and not parser.should_upgrade()
        path, query = _parse_target(self._url)
        self._requests.append(
            Request(parser.get_method().decode("ascii"), path, query, self._headers, body, keep_alive)
        )
        self.buffered += len(body) + 1
        self._begin()

    def _begin(self) -> None:
        self._url, self._body = b"", b""
        self._raw_headers: list[bytes] = []
        self._is_in_head, self._head_bytes = True, 0
        self._is_continue_wanted = False


@lru_cache(maxsize=1024)  # a client sends the same few hundred heads, differing in Content-Length, again and again
def _parse_headers(raw: tuple[bytes, ...]) -> dict[str, str]:
    """Return the headers from name, value, name, value and so on; those given twice are joined by a comma."""
    headers: dict[str, str] = {}
    for name, value in zip(raw[::2], raw[1::2], strict=True):
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


@lru_cache(maxsize=1024)
def _parse_target(target: bytes) -> tuple[str, str]:
    """Return (path, query); raises BadRequestError."""
    if not target.startswith(b"/") or not target.isascii():
        raise BadRequestError(400, "the target must be a path in ASCII")
    path, _, query = target.decode("ascii").partition("?")
    return path, query


# connections


class Connection(asyncio.Protocol):
    """Serves one connection; `receive` gets each whole request and must call `finish` once for it."""

    def __init__(
        self,
        receive: Callable[[Request, "Connection"], None],
        connections: "set[Connection]",
        *,
        max_body: int,
        keep_alive_s: float,
    ) -> None:
        self._receive = receive
        self._connections = connections
        self.quiet_until = -inf
        """Until when (seconds of the service's clock) a Retry-After asked this client to stay away."""
        self._reader = RequestReader(max_body)
        self._keep_alive_s = keep_alive_s
        self._transport: asyncio.Transport | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._request: Request | None = None
        self._is_advancing = False
        self._is_paused = False
        self._is_held = False

    @property
    def is_gone(self) -> bool:
        """Whether the client has closed, so that no response can reach it."""
        return self._transport is None or self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin: the client has connected."""
        self._transport = cast("asyncio.Transport", transport)
        self._connections.add(self)
        self._watch_idle()

    def connection_lost(self, exc: Exception | None) -> None:
        """End: one of the two sides has closed."""
        self._connections.discard(self)
        self._transport = None
        self._stop_watching()

    def data_received(self, data: bytes) -> None:
        """Take bytes, and serve the requests that are whole."""
        self._reader.feed(data)
        if self._reader.buffered > _MAX_WAITING and self._request is not None and self._transport is not None:
            self._is_held = True
            self._transport.pause_reading()
        self._advance()

    def pause_writing(self) -> None:
        """Serve nothing new: the client reads too slowly."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Go on: the client has caught up."""
        self._is_paused = False
        self._advance()

    def finish(self, response: Response, ending: Ending = Ending.WHOLE, cut_by: str = "close") -> None:
        """End the request being served; a client that is gone is no error."""
        request, transport = self._request, self._transport
        if transport is None or transport.is_closing() or request is None:
            self._request = None
            return
        if ending is Ending.SILENT:
            return  # `_request` stays, so that nothing behind it is served either
        self._request = None
        if ending is Ending.CUT:
            self._cut(transport, cut_by)
        elif ending is Ending.PART:
            encoded = _encode_response(response, keep_alive=True)
            transport.write(encoded[: len(encoded) - len(response.body) // 2 - 1])
            transport.close()  # what was written still leaves; a reset could overtake it
        else:
            transport.write(_encode_response(response, keep_alive=request.keep_alive))
            self._continue(transport, request)

    def close(self) -> None:
        """End the connection at once, whatever is being served."""
        if self._transport is not None:
            self._transport.abort()

    def _continue(self, transport: asyncio.Transport, request: Request) -> None:
        if not request.keep_alive:
            transport.close()
            return
        if self._is_held:
            self._is_held = False
            transport.resume_reading()
        self._watch_idle()
        self._advance()

    def _advance(self) -> None:
        """Serve whole requests until one has to wait; `finish` calls back into it, the outer call goes on."""
        if self._is_advancing:
            return
        self._is_advancing = True
        try:
            while self._request is None and not self._is_paused and not self.is_gone:
                request = self._reader.read_request()
                if request is None:
                    self._invite_body()
                    break
                self._stop_watching()
                self._request = request
                self._receive(request, self)
        except BadRequestError as error:
            self._refuse(error)
        finally:
            self._is_advancing = False

    def _invite_body(self) -> None:
        if self._transport is not None and self._reader.take_expectation():
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _refuse(self, error: BadRequestError) -> None:
        if self._transport is not None:
            self._transport.write(_encode_response(build_error("plain", error.status, str(error)), keep_alive=False))
            self._transport.close()

    def _cut(self, transport: asyncio.Transport, cut_by: str) -> None:
        if cut_by == "reset":
            sock = transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            transport.abort()
        else:
            transport.close()

    def _watch_idle(self) -> None:
        if self._keep_alive_s and self._idle is None:
            self._idle = asyncio.get_running_loop().call_later(self._keep_alive_s, self._end_idle)

    def _stop_watching(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _end_idle(self) -> None:
        if self._transport is not None:
            self._transport.close()
