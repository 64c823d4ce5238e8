"""What a template's own work may come to: how long a text, how many steps, how large a number."""

from datetime import date, time
from decimal import Decimal

LONGEST = 1_000_000
"""Characters of a template, of one text of a row, and of all that a template makes of it. Mail programs cut an HTML
body off long before (Gmail: after 102 kB)."""

MOST_STEPS = 10_000
"""Steps of all loops together, for one row."""

ROW = "row"
"""The name by which a column is had whose own name is no word: `row["First Name"]`."""

_LARGEST = 10**30


class BoundError(Exception):
    """Something of a row would be larger than it may; says which bound, and nothing of the row."""


class Steps:
    """Counts the steps of one rendering."""

    def __init__(self) -> None:
        self._left = MOST_STEPS

    def take(self, steps: int) -> None:
        """Raises BoundError once there are too many."""
        self._left -= steps
        if self._left < 0:
            raise BoundError(f"it goes through more than {MOST_STEPS:,} steps of loops")


def check_length(length: int) -> None:
    """Raises BoundError for more characters than a text may have."""
    if length > LONGEST:
        raise BoundError(f"it makes more than {LONGEST:,} characters of this row")


def check_number(value: object) -> None:
    """Raises TypeError for what is no number, BoundError for one with which arithmetic would grow without end."""
    if not isinstance(value, int | float | Decimal):
        raise TypeError("arithmetic is for numbers")
    if isinstance(value, int | Decimal) and not -_LARGEST <= value <= _LARGEST:
        raise BoundError("it reckons with numbers of more than 30 digits")


def to_text(value: object) -> object:
    """A value as it stands in an email: None is empty, dates are ISO; what Jinja knows better passes as it is.

    Raises TypeError for what is no text, such as a list.
    """
    if value is None:
        return ""
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, str | int | float | Decimal):
        return value
    raise TypeError("only texts, numbers and dates can be written")
