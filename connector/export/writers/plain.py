"""Columns in the forms of formats that have fewer types than Arrow: lists as JSON, times as ISO 8601."""

import orjson
import pyarrow as pa
import pyarrow.compute as pc

_ISO_TIME = "%Y-%m-%dT%H:%M:%S"  # Arrow's %S has the fraction of the unit: microseconds here


def write_lists_as_json(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Each list as the text of a JSON array; null stays null."""
    texts = [None if each is None else orjson.dumps(each).decode() for each in column.to_pylist()]
    return pa.chunked_array([pa.array(texts, pa.string())])


def write_times_as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Each time as ISO 8601 in UTC: 2026-11-21T09:00:00.000000+00:00, as Python and SQLite both read it."""
    return pc.binary_join_element_wise(pc.strftime(column, _ISO_TIME), "+00:00", "")


def flatten_table(table: pa.Table) -> pa.Table:
    """The table with lists and times as texts, all else as it was."""
    columns = [_flatten(column) for column in table.columns]
    return pa.table(columns, names=table.column_names)


def flatten_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of what `flatten_table` gives."""
    return flatten_table(schema.empty_table()).schema


def _flatten(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_list(column.type):
        return write_lists_as_json(column)
    return write_times_as_text(column) if pa.types.is_timestamp(column.type) else column
