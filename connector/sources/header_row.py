"""Reads the first rows of a table: titles, names of columns, and the delimiter of a CSV. Pure."""

import csv
import io
import re
from collections.abc import Sequence
from contextlib import suppress
from itertools import takewhile

from connector.errors import ConfigurationError, SourceError

DELIMITERS = (",", ";", "\t", "|")
_NAMES = {"comma": ",", "semicolon": ";", "tab": "\t", "\\t": "\t", "pipe": "|"}
_SINGLE_QUOTED = re.compile(r"'[^']+'")
_LEAST_TAILED = 0.8  # some rows may be ragged for reasons of their own
_SNIFFED_RECORDS = 200  # enough to outvote ragged rows; more changed no decision


def parse_delimiter(delimiter: str) -> str | None:
    """Return the delimiter that an option names, None for `auto`. Raises ConfigurationError."""
    if delimiter == "auto":
        return None
    named = _NAMES.get(delimiter, delimiter)
    if len(named) != 1 or not named.isascii() or named in '"\r\n\0':
        raise ConfigurationError(
            f"delimiter {delimiter!r}: must be auto, comma, semicolon, tab, pipe or one ASCII character"
        )
    return named


def find_single_quotes(text: str) -> int | None:
    """Return the number (from 1) of the first filled line if all of its cells are in single quotes, or None."""
    number, line = next(((number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()), (0, ""))
    rows = (line.strip().split(sign) for sign in DELIMITERS)
    return number if any(all(_SINGLE_QUOTED.fullmatch(cell) for cell in cells) for cells in rows) else None


def decide_delimiter(text: str, *, is_whole: bool) -> str:
    """Choose the delimiter that cuts most records into most cells as its header does; a comma if none does.

    Where none cuts most of them so, the first lines are no header: most cells in most records decide. `text` is the
    file's beginning; unless it `is_whole`, its last record may be incomplete and is left out.
    """
    widths: dict[str, list[int]] = {}
    for sign in DELIMITERS:
        widths[sign] = [len(cells) for cells in _read_records(text, sign, is_whole=is_whole)] or [0]

    def rate(sign: str, width: int) -> float:
        return (width - 1) * widths[sign].count(width) / len(widths[sign])

    best = max(DELIMITERS, key=lambda sign: rate(sign, widths[sign][0]))
    if widths[best].count(widths[best][0]) > len(widths[best]) / 2 and widths[best][0] > 1:
        return best
    by_most = max(DELIMITERS, key=lambda sign: rate(sign, _find_most(widths[sign])))
    return by_most if _find_most(widths[by_most]) > 1 else best


def _find_most(widths: Sequence[int]) -> int:
    """The width that most records have, of two the larger."""
    return max(set(widths), key=lambda width: (widths.count(width), width))


def _read_records(text: str, delimiter: str, *, is_whole: bool) -> list[list[str]]:
    """Return the first records that are not blank lines, without an incomplete last one."""
    records = []
    with suppress(csv.Error):  # a cell longer than csv's limit under a wrong delimiter: what was read has to do
        for cells in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter):
            if len(cells) > 1 or "".join(cells).strip(" \t"):  # as csv_records.find_blank
                records.append(cells)
            if len(records) > _SNIFFED_RECORDS:
                return records
    return records if is_whole or len(records) < 2 else records[:-1]


def count_titles(text: str, delimiter: str) -> int:
    """Return how many records (blank lines apart) stand above the header: titles, each a single cell, in a file whose
    records mostly have more, the first of those being the header. 0 where that is not plain to see."""
    records = _read_records(text, delimiter, is_whole=True)[:_SNIFFED_RECORDS]
    most = _find_most([len(cells) for cells in records]) if records else 0
    titles = find_titles(records)
    return titles if most > 1 and titles < len(records) and len(records[titles]) == most else 0


def has_tails(text: str, width: int, delimiter: str, *, is_whole: bool) -> bool:
    """Return whether the rows of a text end with a delimiter that the header, of `width` cells, does not end with."""
    rows = _read_records(text, delimiter, is_whole=is_whole)
    tailed = sum(1 for cells in rows if len(cells) == width + 1 and not cells[-1])
    return bool(rows) and tailed > _LEAST_TAILED * len(rows)


def parse_header(record: str, delimiter: str, path: str) -> tuple[str, ...]:
    """Give the column names of a header record, each made unique. Raises SourceError if it is no header."""
    try:
        cells = next(csv.reader(io.StringIO(record, newline=""), delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise SourceError(f"{path}: its header cannot be read: {error}") from None
    if not any(cell.strip() for cell in cells):
        raise SourceError(f"{path}: its first line names no column; a header line is needed")
    if looks_like_row(cells):
        raise SourceError(
            f"{path}: has no header: its first line looks like a row. Put a line with the columns' names first"
        )
    return name_columns(cells)


_MOST_TITLES = 20  # above a header; more is another table
_ADDRESS = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
_NUMBER = re.compile(r"[+-]?[\d.,\s]*\d[\d.,\s]*")


def find_titles(rows: Sequence[Sequence[str]]) -> int:
    """Return how many of the first rows (blank ones apart) are titles: each of a single filled cell, above a row of
    several.

    0 where a title, or the row below them, looks like a subscriber's.
    """
    titles = list(takewhile(lambda cells: count_filled(cells) < 2, rows[:_MOST_TITLES]))
    header = rows[len(titles)] if len(titles) < len(rows) else []
    return 0 if not header or looks_like_row(header) or any(map(looks_like_row, titles)) else len(titles)


def looks_like_row(cells: Sequence[str]) -> bool:
    """It has an address in it, or numbers alone; no column is called so."""
    return any(_ADDRESS.fullmatch(cell.strip()) for cell in cells) or all(_NUMBER.fullmatch(cell) for cell in cells)


def count_filled(cells: Sequence[str]) -> int:
    """Return how many cells hold more than white space."""
    return sum(1 for cell in cells if cell.strip())


def name_columns(names: Sequence[str]) -> tuple[str, ...]:
    """Trim the names; an empty one becomes `column N` (from 1), a second `Email` becomes `Email (2)`."""
    trimmed = [name.strip() or f"column {place}" for place, name in enumerate(names, start=1)]
    taken, unique = set(trimmed), []
    seen: set[str] = set()
    for name in trimmed:
        free, count = name, 1
        while free in seen or (count > 1 and free in taken):
            count += 1
            free = f"{name} ({count})"
        seen.add(free)
        unique.append(free)
    return tuple(unique)
