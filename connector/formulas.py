"""The apostrophe before a text in a CSV file that keeps spreadsheets from running the text as a formula."""

import re

FORMULA = "^'*[=+@\t\r\n-]"
"""A text that Excel, LibreOffice or Google Sheets may run: a character of OWASP's list "CSV Injection" is its first
character, or its first character after apostrophes. A text with an apostrophe gets a second one, so that removing one
apostrophe restores every text."""

GUARDED = f"^'({FORMULA[1:]})"
"""A result of `guard_formula`. The group is the beginning of the original text."""


def guard_formula(text: str) -> str:
    """Return the text for a cell of a CSV file, with an apostrophe before the text if a spreadsheet may run it."""
    return f"'{text}" if re.match(FORMULA, text) else text
