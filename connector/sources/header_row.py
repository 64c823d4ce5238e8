"""Finds the titles, the header and the delimiter in the first rows of a table. These functions have no side effects."""

import csv
import io
import re
from collections.abc import Sequence
from contextlib import suppress
from itertools import takewhile

from connector.errors import ConfigurationError, SourceError

DELIMITERS = (",", ";", "\t", "|")
_DELIMITER_BY_NAME = {"comma": ",", "semicolon": ";", "tab": "\t", "\\t": "\t", "pipe": "|"}
_CELL_IN_SINGLE_QUOTES_PATTERN = re.compile(r"'[^']+'")
_MIN_EXTRA_CELL_SHARE = 0.8  # share of the rows that must end with a delimiter
# Number of records that are examined. With this number, a few rows with a wrong number of cells do not change the
# decision (measured).
_MAX_SAMPLE_RECORDS = 200


def parse_delimiter(delimiter: str) -> str | None:
    """Return the delimiter that an option names, or None for `auto`. Raises ConfigurationError for another name."""
    if delimiter == "auto":
        return None
    character = _DELIMITER_BY_NAME.get(delimiter, delimiter)
    if len(character) != 1 or not character.isascii() or character in '"\r\n\0':
        raise ConfigurationError(
            f"delimiter {delimiter!r}: must be `auto`, `comma`, `semicolon`, `tab`, `pipe` or one ASCII character"
        )
    return character


def find_line_in_single_quotes(text: str) -> int | None:
    """Return the number (from 1) of the first filled line if all cells of this line are in single quotes, else None."""
    for line_number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            rows = [line.strip().split(delimiter) for delimiter in DELIMITERS]
            is_quoted = any(all(_CELL_IN_SINGLE_QUOTES_PATTERN.fullmatch(cell) for cell in cells) for cells in rows)
            return line_number if is_quoted else None
    return None


def decide_delimiter(text: str, *, is_whole_file: bool) -> str:
    """Return the likeliest delimiter of a CSV file. `text` is the beginning of the file. If `is_whole_file` is false,
    the last record may be incomplete and is left out.

    The rating of a delimiter is the number of these delimiters in the first record, multiplied by the share of records
    that have the same number. The delimiter with the highest rating is returned if more than half of the records have
    this number.

    Otherwise the first lines are probably titles. So the rating uses the most frequent number in a record, instead of
    the number in the first record. If no record has a delimiter, return a comma.
    """
    widths_by_delimiter = {
        delimiter: [len(cells) for cells in _read_records(text, delimiter, is_whole_file=is_whole_file)] or [0]
        for delimiter in DELIMITERS
    }

    def compute_rating(widths: Sequence[int], width: int) -> float:
        return (width - 1) * widths.count(width) / len(widths)

    header_delimiter, record_widths = max(
        widths_by_delimiter.items(), key=lambda item: compute_rating(item[1], item[1][0])
    )
    if record_widths.count(record_widths[0]) > len(record_widths) / 2 and record_widths[0] > 1:
        return header_delimiter
    row_delimiter, record_widths = max(
        widths_by_delimiter.items(), key=lambda item: compute_rating(item[1], _find_common_width(item[1]))
    )
    return row_delimiter if _find_common_width(record_widths) > 1 else header_delimiter


def _find_common_width(widths: Sequence[int]) -> int:
    """Return the most frequent number of cells. If two numbers are equally frequent, return the larger number."""
    return max(set(widths), key=lambda width: (widths.count(width), width))


def _read_records(text: str, delimiter: str, *, is_whole_file: bool) -> list[list[str]]:
    """Return the first records that are not blank lines. If `is_whole_file` is false, leave out the last record, which
    may be incomplete."""
    records = []
    with suppress(csv.Error):
        # With a wrong delimiter, a cell may exceed the limit of the module `csv`.
        # The records before this cell are enough to compare the delimiters.
        for cells in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter):
            if len(cells) > 1 or "".join(cells).strip(" \t"):  # the same rule as in csv_records.find_blank_records
                records.append(cells)
            if len(records) > _MAX_SAMPLE_RECORDS:
                return records
    return records if is_whole_file or len(records) < 2 else records[:-1]


def count_titles(text: str, delimiter: str) -> int:
    """Return the number of titles above the header. Titles are records of a single cell. The record after the titles
    has the most frequent number of cells. Return 0 if the titles are not certain. Blank lines do not count."""
    records = _read_records(text, delimiter, is_whole_file=True)[:_MAX_SAMPLE_RECORDS]
    width = _find_common_width([len(cells) for cells in records]) if records else 0
    title_count = count_title_rows(records)
    return title_count if width > 1 and title_count < len(records) and len(records[title_count]) == width else 0


def has_trailing_delimiters(text: str, width: int, delimiter: str, *, is_whole_file: bool) -> bool:
    """Return whether a delimiter follows the last cell of most rows. The header has `width` cells and does not end with
    a delimiter."""
    rows = _read_records(text, delimiter, is_whole_file=is_whole_file)
    trailing_delimiter_row_count = sum(1 for cells in rows if len(cells) == width + 1 and not cells[-1])
    return bool(rows) and trailing_delimiter_row_count > _MIN_EXTRA_CELL_SHARE * len(rows)


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
            f"{path}: has no header: its first line looks like a subscriber. Insert a first line with the names of the "
            "columns"
        )
    return build_column_names(cells)


_MAX_TITLE_ROWS = 20  # largest number of titles above a header; more rows belong to another table
_EMAIL_ADDRESS_PATTERN = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
_NUMBER_PATTERN = re.compile(r"[+-]?[\d.,\s]*\d[\d.,\s]*")


def count_title_rows(rows: Sequence[Sequence[str]]) -> int:
    """Return the number of title rows. Title rows are the first rows with a single filled cell, if the row below the
    title rows has several filled cells.

    Return 0 if a title or the row below the titles looks like a subscriber.
    """
    title_rows = list(takewhile(lambda cells: count_filled_cells(cells) < 2, rows[:_MAX_TITLE_ROWS]))
    header = rows[len(title_rows)] if len(title_rows) < len(rows) else []
    return 0 if not header or looks_like_row(header) or any(map(looks_like_row, title_rows)) else len(title_rows)


def looks_like_row(cells: Sequence[str]) -> bool:
    """Return whether a row looks like the row of a subscriber and not like a header: a cell is an email address, or all
    cells are numbers."""
    return any(_EMAIL_ADDRESS_PATTERN.fullmatch(cell.strip()) for cell in cells) or all(
        _NUMBER_PATTERN.fullmatch(cell) for cell in cells
    )


def count_filled_cells(cells: Sequence[str]) -> int:
    """Return the number of cells with more than white space."""
    return sum(1 for cell in cells if cell.strip())


def build_column_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names, trimmed and unique. An empty name is replaced by `column N` (from 1), and a second `Email` by
    `Email (2)`."""
    trimmed_names = [name.strip() or f"column {column_number}" for column_number, name in enumerate(names, start=1)]
    trimmed_name_set, unique_names = set(trimmed_names), dict[str, None]()
    for name in trimmed_names:
        unique_name, suffix_number = name, 1
        while unique_name in unique_names or (suffix_number > 1 and unique_name in trimmed_name_set):
            suffix_number += 1
            unique_name = f"{name} ({suffix_number})"
        unique_names[unique_name] = None
    return tuple(unique_names)
