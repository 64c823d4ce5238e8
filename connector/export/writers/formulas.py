"""Texts of a table that a spreadsheet would run as a formula, made texts to it as well."""

import pyarrow as pa
import pyarrow.compute as pc

from connector.formulas import FORMULA_BEGINNINGS

_FORMULA = "^[" + "".join(f"\\x{ord(each):02x}" for each in sorted(FORMULA_BEGINNINGS)) + "]"


def guard_formulas(table: pa.Table) -> pa.Table:
    """The table with an apostrophe before every such text; numbers and dates stay as they are."""
    columns = [_guard(column) if pa.types.is_string(column.type) else column for column in table.columns]
    return pa.table(columns, names=table.column_names)


def _guard(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.if_else(
        pc.fill_null(pc.match_substring_regex(column, _FORMULA), False),
        pc.binary_join_element_wise("'", column, ""),
        column,
    )
