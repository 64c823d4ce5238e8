"""Whether the first row of a sheet is a header, or already somebody."""

import re
from collections.abc import Sequence

from connector.errors import SourceError

_ADDRESS = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
_NUMBER = re.compile(r"[+-]?[\d.,\s]*\d[\d.,\s]*")


def refuse_row(cells: Sequence[str], where: str) -> None:
    """Raise SourceError for cells that cannot be the names of columns: one is an address, or all are numbers."""
    has_address = any(_ADDRESS.fullmatch(cell.strip()) for cell in cells)
    if has_address or all(_NUMBER.fullmatch(cell) for cell in cells):
        raise SourceError(
            f"{where}: has no header: its first row looks like a person's. Put a row with the columns' names first"
        )
