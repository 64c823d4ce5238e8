"""Texts that a spreadsheet would run as a formula, made texts to it as well: with an apostrophe before them."""

import re

import pyarrow as pa
import pyarrow.compute as pc

_FORMULA = re.compile(r"^[=+\-@\t\r]")
"""The characters that OWASP's advice on CSV injection names."""


def guard_text(text: str) -> str:
    """The text; one that a spreadsheet would run has an apostrophe before it."""
    return f"'{text}" if _FORMULA.match(text) else text


def guard_formulas(table: pa.Table) -> pa.Table:
    """The table with every such text guarded; numbers and dates stay as they are."""
    columns = [_guard(column) if pa.types.is_string(column.type) else column for column in table.columns]
    return pa.table(columns, names=table.column_names)


def _guard(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.if_else(
        pc.fill_null(pc.match_substring_regex(column, _FORMULA.pattern), False),
        pc.binary_join_element_wise("'", column, ""),
        column,
    )
