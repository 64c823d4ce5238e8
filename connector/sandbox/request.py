"""Requests out of the bytes of a connection, by llhttp (the package httptools): strict, bounded, without a socket."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import httptools

_MAX_HEAD = 65_536  # nginx takes 32 KiB of headers, most servers less
_VERSIONS = ("1.1", "1.0")


class BadRequestError(Exception):
    """The bytes are no request that this server takes: answer `status` and close the connection."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(slots=True)  # not frozen: one is made for each request, and freezing doubles the cost of making it
class Request:
    """A whole request; header names are lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    keep_alive: bool = True


class RequestReader:
    """Takes bytes as they arrive (`feed`) and gives whole requests in order (`read_request`)."""

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
        """Adds bytes of the connection; what follows a request that cannot be read is left alone."""
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
        """The next whole request, or None until more bytes have come; raises BadRequestError."""
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
        """A part of the target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, whole."""
        self._raw_headers.append(name)
        self._raw_headers.append(value)

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._is_in_head = False
        if self._parser.get_http_version() not in _VERSIONS:
            raise BadRequestError(505, "only HTTP/1.1 and HTTP/1.0 are spoken here")
        self._headers = headers = _parse_headers(tuple(self._raw_headers))
        if int(headers.get("content-length", 0)) > self._max_body:
            raise BadRequestError(413, "the body is too large")
        self._is_continue_wanted = headers.get("expect", "").lower() == "100-continue"

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._is_continue_wanted = False
        self._body = self._body + body if self._body else body
        if len(self._body) > self._max_body:
            raise BadRequestError(413, "the body is too large")

    def on_message_complete(self) -> None:
        """The request is whole."""
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
    """The headers from name, value, name, value and so on; those given twice are joined by a comma."""
    headers: dict[str, str] = {}
    for name, value in zip(raw[::2], raw[1::2], strict=True):
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


@lru_cache(maxsize=1024)
def _parse_target(target: bytes) -> tuple[str, str]:
    """(path, query); raises BadRequestError."""
    if not target.startswith(b"/") or not target.isascii():
        raise BadRequestError(400, "the target must be a path in ASCII")
    path, _, query = target.decode("ascii").partition("?")
    return path, query
