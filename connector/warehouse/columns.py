"""The columns of every export: their names, their Arrow types, and the forms of their values in other formats."""

import json
from collections.abc import Callable, Collection
from datetime import datetime
from functools import lru_cache
from typing import Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from connector.arrow import (
    EMPTY_TEXT,
    INVALID_COLUMN,
    PAGE_SCHEMA,
    build_null_scalar,
    build_number_array,
    build_text_scalar,
    build_time_scalar,
)
from connector.fields import FIELDS
from connector.warehouse.runs import COLUMNS_OF_RUN, EXPORTED_AT, RUN_ID

TAG_SEPARATOR: Final = "|"
"""The separator of tags in files for people: in a workbook, and in CSV for Excel."""

SCHEMA = PAGE_SCHEMA.insert(len(FIELDS), pa.field(RUN_ID, pa.string())).insert(
    len(FIELDS) + 1, pa.field(EXPORTED_AT, pa.timestamp("us", "UTC"))
)
"""The columns of every export: all fields, the id of the run, the time of the run (UTC), and a JSON object. The JSON
object has the values that do not fit their column's type."""

RUN_COLUMN_DESCRIPTIONS: Final = {
    RUN_ID: "Id of the run that last wrote the row.",
    EXPORTED_AT: "Start of the export that last wrote the row. With `upsert` and `history`: start of the export that "
    "last changed the row.",
    INVALID_COLUMN: "JSON object with the values that do not fit the type of their column. The columns of these values "
    "are NULL in the row.",
}
"""A description of each column that is not a field, for the reference."""


def select_columns(names: Collection[str] | None, *, has_run_columns: bool = True) -> pa.Schema:
    """Return the schema of an export with these fields (None: all fields). If `has_run_columns`, the schema also has
    the columns of the run."""
    if names is None and has_run_columns:
        return SCHEMA
    chosen_names = {
        *(PAGE_SCHEMA.names if names is None else names),
        INVALID_COLUMN,
        *(COLUMNS_OF_RUN if has_run_columns else ()),
    }
    return pa.schema([field for field in SCHEMA if field.name in chosen_names])


def narrow_table(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the table with only the columns of `schema`. The column `_invalid` also loses the values of the removed
    columns."""
    if schema is SCHEMA:
        return table
    narrow_rows = table.select(schema.names)
    if narrow_rows[INVALID_COLUMN].null_count == len(narrow_rows):
        return narrow_rows
    selected_names = {*schema.names, *(field.path[0] for field in FIELDS if field.name in schema.names)}
    texts = []
    for text in narrow_rows[INVALID_COLUMN].to_pylist():
        invalid_values = {name: value for name, value in json.loads(text or "{}").items() if name in selected_names}
        texts.append(json.dumps(invalid_values) if invalid_values else None)
    index = schema.get_field_index(INVALID_COLUMN)
    return narrow_rows.set_column(index, schema.field(index), pa.array(texts, pa.string()))


def add_run_columns(columns: pa.RecordBatch, *, run_id: str, exported_at: datetime) -> pa.Table:
    """Return columns of `PAGE_SCHEMA` as a table of `SCHEMA`. Every row gets the id and the time (aware) of the run."""
    run_columns = _build_run_columns(run_id, exported_at, len(columns))
    column_by_name = dict(zip(PAGE_SCHEMA.names, columns.columns, strict=True)) | run_columns
    return pa.Table.from_arrays([column_by_name[name] for name in SCHEMA.names], schema=SCHEMA)


@lru_cache(maxsize=4)  # nearly all pages have the same number of rows
def _build_run_columns(run_id: str, exported_at: datetime, row_count: int) -> dict[str, pa.Array]:
    scalar_by_column = {RUN_ID: build_text_scalar(run_id), EXPORTED_AT: build_time_scalar(exported_at)}
    return {name: pa.repeat(value, row_count) for name, value in scalar_by_column.items()}


_QUOTE, _COMMA = build_text_scalar('"'), build_text_scalar(",")
_NULL_TEXT, _ZERO_NUMBER = build_null_scalar(pa.string()), build_number_array(0)[0]
_SPACE_CODE = ord(" ")  # JSON must escape every character with a smaller code


def format_lists_as_json(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return each list as a JSON array. Null stays null."""
    chunks = []
    for list_array in column.chunks:
        text_buffer = list_array.flatten().buffers()[2]
        if text_buffer is not None and bool((np.frombuffer(text_buffer, np.uint8) < _SPACE_CODE).any()):
            texts = [None if tags is None else orjson.dumps(tags).decode() for tags in list_array.to_pylist()]
            chunks.append(pa.array(texts, pa.string()))
        else:
            chunks.append(quote_lists(list_array, "[", "]"))
    return pa.chunked_array(chunks, pa.string())


def quote_lists(lists: pa.ListArray, opening_quote: str, closing_quote: str) -> pa.StringArray:
    r"""Return each list with its texts in quotes, as in {"a","say \"hi\""}. Null stays null."""
    texts = lists.flatten()
    for special_character in ("\\", '"'):
        texts = pc.replace_substring(texts, special_character, f"\\{special_character}")
    quoted_texts = pc.binary_join_element_wise(_QUOTE, texts, _QUOTE, EMPTY_TEXT)
    lengths = pc.fill_null(pc.list_value_length(lists), _ZERO_NUMBER)
    offsets = pa.concat_arrays([build_number_array(0), pc.cumulative_sum(lengths).cast(pa.int32())])
    inner_texts = pc.binary_join(pa.ListArray.from_arrays(offsets, quoted_texts), _COMMA)
    bracketed_texts = pc.binary_join_element_wise(
        build_text_scalar(opening_quote), inner_texts, build_text_scalar(closing_quote), EMPTY_TEXT
    )
    return pc.if_else(lists.is_valid(), bracketed_texts, _NULL_TEXT)


_UTC_SUFFIX = build_text_scalar("+00:00")
_ISO_TIME_FORMAT = "%Y-%m-%dT%H:%M:%S"  # Arrow's %S includes the fraction: here microseconds


def join_tags(tags: list[str] | None) -> str | None:
    """Return a list of tags as `vip|news`, or as a JSON array if `vip|news` could also be a single tag."""
    if tags is None:
        return None
    joined_tags = TAG_SEPARATOR.join(tags)
    is_ambiguous = any(not tag or TAG_SEPARATOR in tag for tag in tags) or joined_tags.startswith(("[", "{", '"'))
    return orjson.dumps(tags).decode() if is_ambiguous else joined_tags


def join_lists(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the result of `join_tags` for each list of tags."""
    return pa.chunked_array([pa.array(map(join_tags, column.to_pylist()), pa.string())], pa.string())


def flatten_table(
    table: pa.Table, *, format_lists: Callable[[pa.ChunkedArray], pa.ChunkedArray] | None = format_lists_as_json
) -> pa.Table:
    """Return the table with times as texts in ISO 8601 and UTC (2026-11-21T09:00:00.000000+00:00). `format_lists`
    returns lists as texts. If `format_lists` is None, lists stay lists."""
    columns = []
    for column in table.columns:
        if pa.types.is_list(column.type) and format_lists is not None:
            column = format_lists(column)
        elif pa.types.is_timestamp(column.type):
            column = pc.binary_join_element_wise(pc.strftime(column, _ISO_TIME_FORMAT), _UTC_SUFFIX, EMPTY_TEXT)
        columns.append(column)
    return pa.Table.from_arrays(columns, names=table.column_names)


def move_nuls_to_invalid(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch without U+0000, which some databases refuse. A value with U+0000 is replaced by null, and
    `_invalid` gets the value as JSON. A batch without U+0000 is returned unchanged."""
    column_by_name = dict(zip(batch.schema.names, batch.columns, strict=True))
    nul_values_by_row: dict[int, dict[str, object]] = {}
    for name in [name for name, column in column_by_name.items() if _may_have_nul(column)]:
        column_values = column_by_name[name].to_pylist()
        for row_index, value in enumerate(column_values):
            if value is not None and _has_nul(value):
                nul_values_by_row.setdefault(row_index, {})[name] = value
                column_values[row_index] = None
        column_by_name[name] = pa.array(column_values, column_by_name[name].type)
    if not nul_values_by_row:
        return batch
    invalid_texts = column_by_name[INVALID_COLUMN].to_pylist()
    for row_index, nul_values in nul_values_by_row.items():
        invalid_texts[row_index] = json.dumps(json.loads(invalid_texts[row_index] or "{}") | nul_values)
    column_by_name[INVALID_COLUMN] = pa.array(invalid_texts, pa.string())
    return pa.record_batch(list(column_by_name.values()), schema=batch.schema)


def _may_have_nul(column: pa.Array) -> bool:
    texts = column.values if pa.types.is_list(column.type) else column
    if not pa.types.is_string(texts.type):
        return False
    text_buffer = texts.buffers()[2]
    return text_buffer is not None and b"\0" in text_buffer.to_pybytes()


def _has_nul(value: str | list[str]) -> bool:
    return "\0" in value if isinstance(value, str) else any("\0" in text for text in value)
