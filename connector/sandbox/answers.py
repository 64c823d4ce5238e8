"""What the sandbox answers with: values, their bytes in HTTP/1.1, and the shapes an error may have."""

import html
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus

import orjson

JSON = b"application/json"


class Ending(StrEnum):
    """How an answer leaves the connection."""

    WHOLE = "whole"  # the answer is sent
    CUT = "cut"  # nothing is sent, the connection ends
    PART = "part"  # half of the answer is sent, then the connection ends
    SILENT = "silent"  # nothing is sent, the connection stays


@dataclass(frozen=True, slots=True)
class Answer:
    """A status, a body, and headers beyond Content-Type and Content-Length.

    `wait_s` is what a Retry-After asks for, from the answer on; `wait_until` (wall clock) where it names a date.
    """

    status: int
    body: bytes
    content_type: bytes = JSON
    headers: tuple[tuple[str, str], ...] = ()
    wait_s: float = 0.0
    wait_until: float | None = None


def quote_ids(wire: bytes) -> bytes:
    """A subscriber, JSON, with its Id and that of its base as texts."""
    subscriber = orjson.loads(wire)
    subscriber["Id"], subscriber["Base"]["Id"] = str(subscriber["Id"]), str(subscriber["Base"]["Id"])
    return orjson.dumps(subscriber)


NO_ANSWER = Answer(0, b"")
"""For the endings that send nothing."""


def encode_answer(answer: Answer, *, keep_alive: bool) -> bytes:
    """The answer as HTTP/1.1 bytes."""
    extra = b"".join(f"{name}: {value}\r\n".encode("latin-1", "replace") for name, value in answer.headers)
    return b"HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n%s%s\r\n%s" % (
        answer.status,
        _PHRASES.get(answer.status, b"Unnamed"),
        answer.content_type,
        len(answer.body),
        extra,
        b"" if keep_alive else b"Connection: close\r\n",
        answer.body,
    )


_PHRASES = {status.value: status.phrase.encode() for status in HTTPStatus}


def build_error(shape: str, status: int, message: str, headers: tuple[tuple[str, str], ...] = ()) -> Answer:
    """An error answer; its shape is `not shown` in api.md, so it is a switch (`error_shape`)."""
    if shape == "empty":
        return Answer(status, b"", JSON, headers)
    if shape == "html":
        page = f"<!doctype html><html><head><title>{status}</title></head><body><h1>{html.escape(message)}</h1></body>"
        return Answer(status, page.encode() + b"</html>", b"text/html; charset=utf-8", headers)
    if shape == "nested":
        error = {"code": status, "details": [{"message": message}]}
        return Answer(status, orjson.dumps({"success": False, "error": error}), JSON, headers)
    return Answer(status, orjson.dumps({"success": False, "message": message}), JSON, headers)
