"""Reads HTTP/1.1 requests out of the bytes of a connection: pure, bounded, strict (RFC 9112).

It knows neither sockets nor the API. What it does not understand it refuses; it never guesses where a request ends.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

_MAX_HEAD = 65_536  # nginx takes 32 KiB of headers, most servers less
_MAX_CHUNK_LINE = 256
_METHOD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NUMBER = re.compile(r"[0-9]{1,18}")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?")


class BadRequestError(Exception):
    """The bytes are no request that this server takes: answer `status` and close the connection."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Head:
    """The request line and headers; header names are lower case, `length` is None for a chunked body."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    length: int | None
    keep_alive: bool


@dataclass(slots=True)  # not frozen: one is made for each request, and freezing doubles the cost of making it
class Request:
    """A whole request."""

    head: Head
    body: bytes


def _parse_headers(lines: list[bytes]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        raw_name, colon, raw_value = line.partition(b":")
        if not colon or not _METHOD.fullmatch(raw_name):
            raise BadRequestError(400, "a header line cannot be read")
        name, value = raw_name.decode("latin-1").lower(), raw_value.strip(b" \t").decode("latin-1")
        if any(each in value for each in "\r\n\0"):
            raise BadRequestError(400, "a header value has a control character")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _parse_length(headers: Mapping[str, str]) -> int | None:
    coding, length = headers.get("transfer-encoding"), headers.get("content-length")
    if coding is not None:
        if length is not None or coding.lower() != "chunked":
            raise BadRequestError(400, "Transfer-Encoding must be chunked, without a Content-Length")
        return None
    if length is None:
        return 0
    if not _NUMBER.fullmatch(length):  # two of them are joined by a comma, and so refused too
        raise BadRequestError(400, "Content-Length must be one number")
    return int(length)


@lru_cache(maxsize=1024)  # a client sends the same few hundred heads, differing in Content-Length, again and again
def parse_head(head: bytes) -> Head:
    """The request line and headers without the empty line after them; raises BadRequestError."""
    first, *lines = head.split(b"\r\n")
    parts = first.split(b" ")
    if len(parts) != 3 or not _METHOD.fullmatch(parts[0]):
        raise BadRequestError(400, "the request line cannot be read")
    if parts[2] not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise BadRequestError(505, "only HTTP/1.1 and HTTP/1.0 are spoken here")
    if not parts[1].startswith(b"/") or not parts[1].isascii():
        raise BadRequestError(400, "the target must be a path in ASCII")
    headers = _parse_headers(lines)
    path, _, query = parts[1].decode("ascii").partition("?")
    wishes = headers.get("connection", "").lower()
    keep_alive = "keep-alive" in wishes if parts[2] == b"HTTP/1.0" else "close" not in wishes
    return Head(parts[0].decode("ascii"), path, query, headers, _parse_length(headers), keep_alive)


class RequestReader:
    """Takes bytes as they arrive (`feed`) and gives whole requests in order (`read_request`)."""

    def __init__(self, max_body: int) -> None:
        self._max_body = max_body
        self._buffer = bytearray()
        self._head: Head | None = None
        self._chunks: list[bytes] = []
        self._is_in_trailer = False

    @property
    def buffered(self) -> int:
        """How many bytes wait to be read."""
        return len(self._buffer)

    @property
    def wants_continue(self) -> bool:
        """Whether the client waits for `100 Continue` before it sends the body."""
        if self._head is None or self._buffer or self._chunks or self._is_in_trailer:
            return False
        return self._head.headers.get("expect", "").lower() == "100-continue"

    def feed(self, data: bytes) -> None:
        """Adds bytes of the connection."""
        self._buffer += data

    def read_request(self) -> Request | None:
        """The next whole request, or None until more bytes have come; raises BadRequestError."""
        if self._head is None:
            self._head = self._read_head()
        head = self._head
        if head is None:
            return None
        body = self._read_chunked() if head.length is None else self._read_counted(head.length)
        if body is None:
            return None
        self._head = None
        return Request(head, body)

    def _read_head(self) -> Head | None:
        while self._buffer[:2] == b"\r\n":  # RFC 9112, 2.2: empty lines before a request are skipped
            del self._buffer[:2]
        end = self._buffer.find(b"\r\n\r\n", 0, _MAX_HEAD)
        if end < 0:
            if len(self._buffer) >= _MAX_HEAD:
                raise BadRequestError(431, "the headers are too large")
            return None
        head = parse_head(bytes(self._buffer[:end]))
        del self._buffer[: end + 4]
        if head.length is not None and head.length > self._max_body:
            raise BadRequestError(413, "the body is too large")
        return head

    def _read_counted(self, length: int) -> bytes | None:
        if len(self._buffer) < length:
            return None
        body = bytes(self._buffer[:length])
        del self._buffer[:length]
        return body

    def _read_chunked(self) -> bytes | None:
        """The body of all chunks once the last one and its trailer have come (RFC 9112, 7.1)."""
        while not self._is_in_trailer:
            line_end = self._find_line()
            if line_end is None:
                return None
            size_match = _CHUNK.fullmatch(self._buffer, 0, line_end)
            if size_match is None:
                raise BadRequestError(400, "a chunk's size cannot be read")
            size = int(size_match[1], 16)
            if size + sum(map(len, self._chunks)) > self._max_body:
                raise BadRequestError(413, "the body is too large")
            if size == 0:
                del self._buffer[: line_end + 2]
                self._is_in_trailer = True
            elif not self._take_chunk(line_end + 2, size):
                return None
        return self._finish_chunked()

    def _find_line(self) -> int | None:
        end = self._buffer.find(b"\r\n", 0, _MAX_CHUNK_LINE)
        if end < 0 and len(self._buffer) >= _MAX_CHUNK_LINE:
            raise BadRequestError(400, "a line of the chunked body is too long")
        return None if end < 0 else end

    def _take_chunk(self, start: int, size: int) -> bool:
        if len(self._buffer) < start + size + 2:
            return False
        if self._buffer[start + size : start + size + 2] != b"\r\n":
            raise BadRequestError(400, "a chunk does not end where it says")
        self._chunks.append(bytes(self._buffer[start : start + size]))
        del self._buffer[: start + size + 2]
        return True

    def _finish_chunked(self) -> bytes | None:
        while (end := self._find_line()) is not None:  # trailer fields are read and left alone
            del self._buffer[: end + 2]
            if end == 0:
                body = b"".join(self._chunks)
                self._chunks, self._is_in_trailer = [], False
                return body
        return None
