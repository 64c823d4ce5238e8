"""The guard against formulas: an apostrophe that a CSV file has before a text, so that no spreadsheet runs the text."""

import re

FORMULA = "^'*[=+@\t\r\n-]"
"""A text that is guarded: it begins, also behind apostrophes, with a character of OWASP's list, "CSV Injection", so
that Excel, LibreOffice or Google Sheets may run it. Texts that already have an apostrophe there get another one, so
that removing one apostrophe restores every text."""

GUARDED = f"^'({FORMULA[1:]})"
"""A text that `guard_formula` gave; its group begins as the text did before."""


def guard_formula(text: str) -> str:
    """Return the text for a cell of a CSV: behind an apostrophe, if a spreadsheet would run it."""
    return f"'{text}" if re.match(FORMULA, text) else text
