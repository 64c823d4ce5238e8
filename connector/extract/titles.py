"""What the first rows of a table are: titles, a header, or somebody's row already. Pure."""

import re
from collections.abc import Sequence
from itertools import takewhile

_MOST_TITLES = 20  # above a header; more is another table
_ADDRESS = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
_NUMBER = re.compile(r"[+-]?[\d.,\s]*\d[\d.,\s]*")


def find_titles(rows: Sequence[Sequence[str]]) -> int:
    """How many of the first rows (blank ones apart) are titles: each of a single filled cell, above a row of several.

    0 where a title, or the row below them, looks like somebody's.
    """
    titles = list(takewhile(lambda cells: count_filled(cells) < 2, rows[:_MOST_TITLES]))
    header = rows[len(titles)] if len(titles) < len(rows) else []
    return 0 if not header or looks_like_row(header) or any(map(looks_like_row, titles)) else len(titles)


def looks_like_row(cells: Sequence[str]) -> bool:
    """It has an address in it, or numbers alone; no column is called so."""
    return any(_ADDRESS.fullmatch(cell.strip()) for cell in cells) or all(_NUMBER.fullmatch(cell) for cell in cells)


def count_filled(cells: Sequence[str]) -> int:
    """How many cells hold more than white space."""
    return sum(1 for cell in cells if cell.strip())
