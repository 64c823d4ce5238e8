"""Functions for texts: the singular or plural of words, visible forms of hidden characters, and cells of spreadsheets.

Headers, names of files, cells and messages of the service may contain escape sequences (ANSI), other control
characters, or marks that change the direction of writing. These hidden characters could recolour or overwrite the text
that a person reads. So an escape replaces each hidden character.
"""

import json
import re
from textwrap import TextWrapper

# Functions for the singular or plural of words


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Return the number with its noun: `1 row`, `2,000 rows`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def choose_form(number: int, singular: str, plural: str) -> str:
    """Return `singular` if the number is 1, and `plural` otherwise. Example: `has` or `have`."""
    return singular if number == 1 else plural


# Control characters (C0 and C1), line separators, direction marks, invisible characters, lone surrogates, and tags.
# Joiners (U+200C, U+200D) are not hidden characters, because names and emoji need them.
_HIDDEN_CHARACTER_RANGES = (
    "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\xad\\u061c\\u180e\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f"
    "\\ufeff\\ufff9-\\ufffb\\ud800-\\udfff\\U000e0000-\\U000e007f"
)
_HIDDEN_CHARACTER_PATTERN = re.compile(f"[{_HIDDEN_CHARACTER_RANGES}]")
_HIDDEN_OR_LINE_END_PATTERN = re.compile(f"[{_HIDDEN_CHARACTER_RANGES}\\n\\t]")


def make_visible(text: str) -> str:
    """Replace each hidden character by an escape such as `\\x1b` or `\\u202e`. Line ends and tabs do not change."""
    return _HIDDEN_CHARACTER_PATTERN.sub(_escape_match, text)


def is_unicode(text: str) -> bool:
    """Return whether the text can be encoded as UTF-8. If the name of a file has bytes that are not UTF-8, Python reads
    the bytes as surrogates, which UTF-8 cannot encode."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def escape_to_one_line(text: str) -> str:
    """Return the text as one line. Escapes replace hidden characters, and also line ends and tabs."""
    return _HIDDEN_OR_LINE_END_PATTERN.sub(_escape_match, text)


def escape_json(text: str) -> str:
    """Replace each hidden character in a JSON text by a JSON escape."""
    return _HIDDEN_CHARACTER_PATTERN.sub(lambda match: json.dumps(match[0])[1:-1], text)


def _escape_match(match: re.Match[str]) -> str:
    return ascii(match[0])[1:-1]


# Functions for cells of spreadsheets

FORMULA_PATTERN = "^'*[=+@\t\r\n-]"
"""The pattern of a text that Excel, LibreOffice or Google Sheets may run. The characters are from OWASP's list "CSV
Injection". Leading apostrophes also match. So `escape_formula` also escapes the text `'=1`, and removing one
apostrophe always returns the original text."""

ESCAPED_FORMULA_PATTERN = f"^'({FORMULA_PATTERN[1:]})"
"""The pattern of a text that `escape_formula` has changed. The group is the beginning of the original text."""


def escape_formula(text: str) -> str:
    """Return the text for a cell of a CSV file. If a spreadsheet program may run the text as a formula, put an
    apostrophe before the text."""
    return f"'{text}" if re.match(FORMULA_PATTERN, text) else text


def wrap_words(text: str, width: int, indent: int = 0) -> str:
    """Return the text in lines of at most `width` characters. All lines except the first begin with `indent` blanks.
    Lines end between words. A word that is longer than a line, such as a path, is not divided."""
    wrapper = TextWrapper(width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(wrapper.fill(line) for line in text.split("\n"))
