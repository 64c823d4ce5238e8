"""What a spreadsheet would take for a formula. Pure: a text in, a text out."""

FORMULA_BEGINNINGS = frozenset("=+-@\t\r\n")
"""OWASP's list, "CSV Injection": with these a cell begins that Excel, LibreOffice or Google Sheets may carry out."""


def guard_formula(text: str) -> str:
    """The text for a cell of a CSV that people open: behind an apostrophe, if it begins as a formula does."""
    return f"'{text}" if text[:1] in FORMULA_BEGINNINGS else text
