"""The lines of a text, in batches, numbered; a line that is too long is told, and never held."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

_READ_BYTES = 1 << 22  # about 20,000 rows
MOST_LINE = 1 << 20  # bytes; a row is a few hundred, and a person with a megabyte of data is none
_KEPT_BYTES = 1 << 10  # of a line that is too long, for the rejects file


class Text(Protocol):
    """What gives the next bytes, about as many as asked for; none at the end."""

    def read(self, size: int) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its end, its `number` from 1; of one that `is_too_long` only the beginning."""

    number: int
    text: bytes
    is_too_long: bool = False


def read_lines(stream: Text) -> Iterator[list[Line]]:
    """Give all lines that are not blank, those of about four megabytes at a time, as the stream gives them.

    A SourceError of the stream comes after the lines before it.
    """
    number, rest, is_skipping = 0, b"", False
    while True:
        block = stream.read(_READ_BYTES)
        *ended, rest = (rest + block).split(b"\n") if block else [rest, b""]
        batch = []
        for text in ended:
            number += 1
            line = _build_line(number, text)
            if line is not None and not is_skipping:
                batch.append(line)
            is_skipping = False
        if len(rest) > MOST_LINE:
            if not is_skipping:
                batch.append(Line(number + 1, rest[:_KEPT_BYTES], is_too_long=True))
            is_skipping, rest = True, b""
        if batch:
            yield batch
        if not block:
            return


def _build_line(number: int, text: bytes) -> Line | None:
    if len(text) > MOST_LINE:
        return Line(number, text[:_KEPT_BYTES], is_too_long=True)
    stripped = text.strip()
    return Line(number, stripped) if stripped else None
