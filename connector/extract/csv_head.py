"""What the beginning of a CSV file says of the rest: its delimiter, and the names of its columns. Pure."""

import csv
import io
import re
from collections.abc import Iterator
from itertools import islice

from connector.errors import ConfigurationError, SourceError
from connector.extract.names import name_columns

DELIMITERS = (",", ";", "\t", "|")
_NAMES = {"comma": ",", "semicolon": ";", "tab": "\t", "\\t": "\t", "pipe": "|"}
_SNIFFED_RECORDS = 200  # enough to outvote ragged rows; more changed no decision

_ADDRESS = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")


def parse_delimiter(delimiter: str) -> str | None:
    """The delimiter that a person named, None for `auto`. Raises ConfigurationError."""
    if delimiter == "auto":
        return None
    named = _NAMES.get(delimiter, delimiter)
    if len(named) != 1 or not named.isascii() or named in '"\r\n\0':
        raise ConfigurationError(
            f"delimiter {delimiter!r}: must be auto, comma, semicolon, tab, pipe or one ASCII character"
        )
    return named


def decide_delimiter(text: str, *, is_whole: bool) -> str:
    """Choose the delimiter that cuts most records into most cells as its header does; a comma if none does.

    `text` is the file's beginning; unless it `is_whole`, its last record may be incomplete and is left out.
    """
    return max(DELIMITERS, key=lambda delimiter: _rate(text, delimiter, is_whole=is_whole))


def _rate(text: str, delimiter: str, *, is_whole: bool) -> float:
    widths = list(islice(_read_widths(text, delimiter), _SNIFFED_RECORDS + 1))
    if not is_whole and len(widths) <= _SNIFFED_RECORDS and len(widths) > 1:
        widths.pop()
    if not widths or widths[0] < 2:
        return 0.0
    return (widths[0] - 1) * widths.count(widths[0]) / len(widths)


def _read_widths(text: str, delimiter: str) -> Iterator[int]:
    try:
        for record in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter):
            if len(record) > 1 or "".join(record).strip():  # no blank line
                yield len(record)
    except csv.Error:  # a cell longer than csv's limit under a wrong delimiter: what was read has to do
        return


def parse_header(record: str, delimiter: str, path: str) -> tuple[str, ...]:
    """Give the column names of a header record, each made unique. Raises SourceError if it is no header."""
    try:
        cells = next(csv.reader(io.StringIO(record, newline=""), delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise SourceError(f"{path}: its header cannot be read: {error}") from None
    if not any(cell.strip() for cell in cells):
        raise SourceError(f"{path}: its first line names no column; a header line is needed")
    if any(_ADDRESS.fullmatch(cell.strip()) for cell in cells) or all(_is_number(cell) for cell in cells):
        raise SourceError(
            f"{path}: has no header: its first line looks like a row. Put a line with the columns' names first"
        )
    return name_columns(cells)


def _is_number(cell: str) -> bool:
    return re.fullmatch(r"[+-]?[\d.,\s]*\d[\d.,\s]*", cell) is not None
