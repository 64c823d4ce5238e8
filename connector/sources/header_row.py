"""Reads the first rows of a table: titles, names of columns, and the delimiter of a CSV. Without side effects."""

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
_MIN_TAILED_SHARE = 0.8  # of the rows: other rows may be ragged
_SNIFFED_RECORDS = 200  # enough to outvote ragged rows; more records changed no decision


def parse_delimiter(delimiter: str) -> str | None:
    """Return the delimiter that an option names, or None for `auto`. Raises ConfigurationError for another name."""
    if delimiter == "auto":
        return None
    named = _NAMES.get(delimiter, delimiter)
    if len(named) != 1 or not named.isascii() or named in '"\r\n\0':
        raise ConfigurationError(
            f"delimiter {delimiter!r}: must be auto, comma, semicolon, tab, pipe or one ASCII character"
        )
    return named


def find_single_quotes(text: str) -> int | None:
    """Return the number (from 1) of the first filled line if all its cells are in single quotes, else None."""
    number, line = next(((number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()), (0, ""))
    rows = (line.strip().split(sign) for sign in DELIMITERS)
    return number if any(all(_SINGLE_QUOTED.fullmatch(cell) for cell in cells) for cells in rows) else None


def decide_delimiter(text: str, *, is_whole: bool) -> str:
    """Return the delimiter that cuts the most records into as many cells as the first record; a comma if none does.

    If no delimiter fits more than half of the records, the first lines are titles. Then the delimiter with the most
    cells in the most records is returned. `text` is the beginning of the file. Unless `is_whole`, the last record may
    be incomplete and is left out.
    """
    widths: dict[str, list[int]] = {}
    for sign in DELIMITERS:
        widths[sign] = [len(cells) for cells in _read_records(text, sign, is_whole=is_whole)] or [0]

    def rate(sign: str, width: int) -> float:
        return (width - 1) * widths[sign].count(width) / len(widths[sign])

    best = max(DELIMITERS, key=lambda sign: rate(sign, widths[sign][0]))
    if widths[best].count(widths[best][0]) > len(widths[best]) / 2 and widths[best][0] > 1:
        return best
    best_without_header = max(DELIMITERS, key=lambda sign: rate(sign, _find_common_width(widths[sign])))
    return best_without_header if _find_common_width(widths[best_without_header]) > 1 else best


def _find_common_width(widths: Sequence[int]) -> int:
    """Return the most frequent width. If two widths are equally frequent, return the larger one."""
    return max(set(widths), key=lambda width: (widths.count(width), width))


def _read_records(text: str, delimiter: str, *, is_whole: bool) -> list[list[str]]:
    """Return the first records that are not blank lines, without an incomplete last one."""
    records = []
    with suppress(csv.Error):  # under a wrong delimiter a cell may exceed csv's limit: the records before it are enough
        for cells in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter):
            if len(cells) > 1 or "".join(cells).strip(" \t"):  # as csv_records.find_blank
                records.append(cells)
            if len(records) > _SNIFFED_RECORDS:
                return records
    return records if is_whole or len(records) < 2 else records[:-1]


def count_titles(text: str, delimiter: str) -> int:
    """Return the number of titles above the header: records of a single cell before a record of the most frequent
    width. Return 0 if this is not certain. Blank lines do not count."""
    records = _read_records(text, delimiter, is_whole=True)[:_SNIFFED_RECORDS]
    width = _find_common_width([len(cells) for cells in records]) if records else 0
    titles = find_titles(records)
    return titles if width > 1 and titles < len(records) and len(records[titles]) == width else 0


def has_tails(text: str, width: int, delimiter: str, *, is_whole: bool) -> bool:
    """Return whether most rows end with a delimiter after the last cell, and the header of `width` cells does not."""
    rows = _read_records(text, delimiter, is_whole=is_whole)
    tailed_count = sum(1 for cells in rows if len(cells) == width + 1 and not cells[-1])
    return bool(rows) and tailed_count > _MIN_TAILED_SHARE * len(rows)


def parse_header(record: str, delimiter: str, path: str) -> tuple[str, ...]:
    """Return the unique column names of a header record. Raises SourceError if the record is not a header."""
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


_MAX_TITLES = 20  # above a header; more lines are another table
_ADDRESS = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
_NUMBER = re.compile(r"[+-]?[\d.,\s]*\d[\d.,\s]*")


def find_titles(rows: Sequence[Sequence[str]]) -> int:
    """Return the number of titles: the first rows with a single filled cell, above a row with several filled cells.

    Return 0 if a title or the row below the titles looks like a subscriber.
    """
    titles = list(takewhile(lambda cells: count_filled(cells) < 2, rows[:_MAX_TITLES]))
    header = rows[len(titles)] if len(titles) < len(rows) else []
    return 0 if not header or looks_like_row(header) or any(map(looks_like_row, titles)) else len(titles)


def looks_like_row(cells: Sequence[str]) -> bool:
    """Return whether a row has an address or only numbers, which are not names of columns."""
    return any(_ADDRESS.fullmatch(cell.strip()) for cell in cells) or all(_NUMBER.fullmatch(cell) for cell in cells)


def count_filled(cells: Sequence[str]) -> int:
    """Return the number of cells with more than white space."""
    return sum(1 for cell in cells if cell.strip())


def name_columns(names: Sequence[str]) -> tuple[str, ...]:
    """Return the trimmed names. An empty name becomes `column N` (from 1), and a second `Email` becomes `Email (2)`."""
    trimmed = [name.strip() or f"column {number}" for number, name in enumerate(names, start=1)]
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
