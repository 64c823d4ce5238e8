"""Texts that a terminal, a log or a page shows as they are: hidden characters become visible escapes.

A header, a file's name, a cell or the service's words may hold escape sequences (ANSI), other control characters or
marks that turn the direction of writing. Raw, such a character could recolour or overwrite what a person reads.
"""

import re

# Plurals


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Return the number with its noun: `1 row`, `2,000 rows`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def agree(number: int, singular: str, plural: str) -> str:
    """Return the form of a verb or another word for this number: `has` or `have`."""
    return singular if number == 1 else plural


# Controls (C0 and C1), line separators, marks of direction and invisible ones, halves of surrogate pairs, and tags. A
# joiner (U+200C, U+200D) is part of names and emoji, and stays.
_HIDDEN = (
    "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\xad\\u061c\\u180e\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f"
    "\\ufeff\\ufff9-\\ufffb\\ud800-\\udfff\\U000e0000-\\U000e007f"
)
_OF_LINES = re.compile(f"[{_HIDDEN}]")
_OF_A_LINE = re.compile(f"[{_HIDDEN}\\n\\t]")


def make_visible(text: str) -> str:
    """Return the text with each hidden character as an escape such as `\\x1b` or `\\u202e`; line ends and tabs stay."""
    return _OF_LINES.sub(_escape, text)


def is_unicode(text: str) -> bool:
    """Return whether UTF-8 can hold the text: in a file's name, bytes that are not UTF-8 are surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def make_line(text: str) -> str:
    """Return the text as one line: line ends and tabs become escapes, too."""
    return _OF_A_LINE.sub(_escape, text)


def escape_json(text: str) -> str:
    """Return JSON whose strings have each hidden character as an escape of JSON."""
    return _OF_LINES.sub(lambda found: "".join(f"\\u{unit:04x}" for unit in _list_units(found[0])), text)


def _escape(found: re.Match[str]) -> str:
    return ascii(found[0])[1:-1]


def _list_units(character: str) -> list[int]:
    """Return the UTF-16 units of a character: two if it is beyond U+FFFF."""
    data = character.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(data[start : start + 2], "big") for start in range(0, len(data), 2)]


# Cells of spreadsheets


FORMULA = "^'*[=+@\t\r\n-]"
"""A text that Excel, LibreOffice or Google Sheets may run: a character of OWASP's list "CSV Injection" is its first
character, or its first character after apostrophes. A text with an apostrophe gets a second one, so that removing one
apostrophe restores every text."""

GUARDED = f"^'({FORMULA[1:]})"
"""A result of `guard_formula`. The group is the beginning of the original text."""


def guard_formula(text: str) -> str:
    """Return the text for a cell of a CSV file, with an apostrophe before the text if a spreadsheet may run it."""
    return f"'{text}" if re.match(FORMULA, text) else text
