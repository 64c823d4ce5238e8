"""Reads the first rows of a table: titles, names of columns, and the delimiter of a CSV. Pure."""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from itertools import islice, takewhile

from connector.errors import ConfigurationError, SourceError

DELIMITERS = (",", ";", "\t", "|")
_NAMES = {"comma": ",", "semicolon": ";", "tab": "\t", "\\t": "\t", "pipe": "|"}
_MOST_TAILED = 0.8  # some rows may be ragged for reasons of their own
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
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            is_single = any(all(map(_is_in_single_quotes, line.strip().split(sign))) for sign in DELIMITERS)
            return number if is_single else None
    return None


def _is_in_single_quotes(cell: str) -> bool:
    return len(cell) > 2 and cell[0] == cell[-1] == "'" and "'" not in cell[1:-1]


def decide_delimiter(text: str, *, is_whole: bool) -> str:
    """Choose the delimiter that cuts most records into most cells as its header does; a comma if none does.

    Where none cuts most of them so, the first lines are no header: most cells in most records decide. `text` is the
    file's beginning; unless it `is_whole`, its last record may be incomplete and is left out.
    """
    widths = {each: _read_widths(text, each, is_whole=is_whole) for each in DELIMITERS}
    best = max(DELIMITERS, key=lambda each: _rate(widths[each], widths[each][0]))
    if widths[best].count(widths[best][0]) > len(widths[best]) / 2 and widths[best][0] > 1:
        return best
    by_most = max(DELIMITERS, key=lambda each: _rate(widths[each], _find_most(widths[each])))
    return by_most if _find_most(widths[by_most]) > 1 else best


def _rate(widths: Sequence[int], width: int) -> float:
    return (width - 1) * widths.count(width) / len(widths)


def _find_most(widths: Sequence[int]) -> int:
    """The width that most records have, of two the larger."""
    return max(set(widths), key=lambda width: (widths.count(width), width))


def _read_widths(text: str, delimiter: str, *, is_whole: bool) -> list[int]:
    widths = [len(cells) for cells in islice(_read_records(text, delimiter), _SNIFFED_RECORDS + 1)]
    if not is_whole and 1 < len(widths) <= _SNIFFED_RECORDS:
        widths.pop()
    return widths or [0]


def _read_records(text: str, delimiter: str) -> Iterator[list[str]]:
    """The records that are no blank lines."""
    try:
        for cells in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter):
            if len(cells) > 1 or "".join(cells).strip(" \t"):  # as records.find_blank
                yield cells
    except csv.Error:  # a cell longer than csv's limit under a wrong delimiter: what was read has to do
        return


def count_titles(text: str, delimiter: str) -> int:
    """Return how many records (blank lines apart) stand above the header: titles, each a single cell, in a file whose
    records mostly have more, the first of those being the header. 0 where that is not plain to see."""
    records = list(islice(_read_records(text, delimiter), _SNIFFED_RECORDS))
    most = _find_most([len(cells) for cells in records]) if records else 0
    titles = find_titles(records)
    return titles if most > 1 and titles < len(records) and len(records[titles]) == most else 0


def has_tails(text: str, width: int, delimiter: str, *, is_whole: bool) -> bool:
    """Return whether the rows of a text end with a delimiter that the header, of so many cells, does not end with."""
    rows = list(islice(_read_records(text, delimiter), _SNIFFED_RECORDS + 1))
    if not is_whole and 1 < len(rows) <= _SNIFFED_RECORDS:
        rows.pop()
    tailed = sum(1 for cells in rows if len(cells) == width + 1 and not cells[-1])
    return bool(rows) and tailed > _MOST_TAILED * len(rows)


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
