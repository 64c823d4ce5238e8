"""Columns in the forms of formats that have fewer types than Arrow: lists as JSON, times as ISO 8601."""

import pyarrow as pa
import pyarrow.compute as pc

from connector.export.arrow_values import EMPTY, build_text
from connector.export.writers.lists import write_lists_as_json

_IN_UTC = build_text("+00:00")
_ISO_TIME = "%Y-%m-%dT%H:%M:%S"  # Arrow's %S has the fraction of the unit: microseconds here


def write_times_as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Each time as ISO 8601 in UTC: 2026-11-21T09:00:00.000000+00:00, as Python and SQLite both read it."""
    return pc.binary_join_element_wise(pc.strftime(column, _ISO_TIME), _IN_UTC, EMPTY)


def flatten_table(table: pa.Table, *, is_list_kept: bool = False) -> pa.Table:
    """The table with times, and lists unless they are kept, as texts, all else as it was."""
    columns = [_flatten(column, is_list_kept) for column in table.columns]
    return pa.Table.from_arrays(columns, names=table.column_names)


def flatten_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of what `flatten_table` gives."""
    return flatten_table(pa.Table.from_batches([], schema)).schema


def _flatten(column: pa.ChunkedArray, is_list_kept: bool) -> pa.ChunkedArray:
    if pa.types.is_list(column.type):
        return column if is_list_kept else write_lists_as_json(column)
    return write_times_as_text(column) if pa.types.is_timestamp(column.type) else column
