"""The columns of every export: their names and Arrow types, and the forms of their values in simpler formats.

`pa.scalar`, `pa.array` and Arrow's functions import pandas when they get a bare Python value, which costs half a second
and 40 MB. This module builds values from bytes instead.
"""

import json
import struct
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, assert_never

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from connector.fields import FIELDS, Kind
from connector.warehouse.runs import EXPORTED_AT, INVALID, OF_RUN, RUN_ID

TAG_SEPARATOR: Final = "|"
"""Separates tags where a person reads them: in a workbook, and in CSV for Excel."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def find_type(kind: Kind) -> pa.DataType:
    """Return the type of a column of this kind. The service returns a zip as a string (service-api.md 2.1)."""
    match kind:
        case Kind.NUMBER:
            return pa.int64()
        case Kind.FLAG:
            return pa.bool_()
        case Kind.TAGS:
            return pa.list_(pa.string())
        case Kind.DATE:
            return pa.date32()
        case Kind.TEXT | Kind.NULLABLE_TEXT | Kind.EMAIL | Kind.GENDER | Kind.COUNTRY | Kind.ZIP:
            return pa.string()
        case _:
            assert_never(kind)


SCHEMA = pa.schema(
    [pa.field(field.name, find_type(field.kind)) for field in FIELDS]
    + [pa.field(RUN_ID, pa.string()), pa.field(EXPORTED_AT, pa.timestamp("us", "UTC")), pa.field(INVALID, pa.string())]
)
"""The columns of every export: all fields, the run, its time (UTC) and, as JSON, the values that broke their type."""

RUN_MEANINGS: Final = {
    RUN_ID: "Id of the run that last wrote the row.",
    EXPORTED_AT: "Start of the export that last wrote the row. With `upsert` and `history`, of its last change.",
    INVALID: "JSON object with the values of the row that broke their column's type. The column is NULL then.",
}
"""The meaning of each column that is not a field, for the reference."""

PAGE_SCHEMA = pa.schema([field for field in SCHEMA if field.name not in OF_RUN])
"""The columns of a page: those of an export without the run's."""


def select_columns(names: Collection[str] | None, *, has_run: bool = True) -> pa.Schema:
    """Return the schema of an export with these fields (None: all), and with the columns of the run if it `has_run`."""
    if names is None and has_run:
        return SCHEMA
    chosen = {*(PAGE_SCHEMA.names if names is None else names), INVALID, *(OF_RUN if has_run else ())}
    return pa.schema([field for field in SCHEMA if field.name in chosen])


def narrow_table(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table of `SCHEMA` with the columns of `schema` only; `_invalid` keeps no value of another column."""
    if schema is SCHEMA:
        return table
    narrowed = table.select(schema.names)
    if narrowed[INVALID].null_count == len(narrowed):
        return narrowed
    kept_names = {*schema.names, *(field.path[0] for field in FIELDS if field.name in schema.names)}
    texts = []
    for text in narrowed[INVALID].to_pylist():
        values = {name: value for name, value in json.loads(text or "{}").items() if name in kept_names}
        texts.append(json.dumps(values) if values else None)
    index = schema.get_field_index(INVALID)
    return narrowed.set_column(index, schema.field(index), pa.array(texts, pa.string()))


def stamp_columns(columns: pa.RecordBatch, *, run_id: str, exported_at: datetime) -> pa.Table:
    """Return columns of `PAGE_SCHEMA` as a table of `SCHEMA`, with the run and its time (aware) in every row."""
    stamps = _write_stamps(run_id, exported_at, len(columns))
    by_name = dict(zip(PAGE_SCHEMA.names, columns.columns, strict=True)) | stamps
    return pa.Table.from_arrays([by_name[name] for name in SCHEMA.names], schema=SCHEMA)


@lru_cache(maxsize=4)  # nearly all pages are of one length
def _write_stamps(run_id: str, exported_at: datetime, rows: int) -> dict[str, pa.Array]:
    values = {RUN_ID: build_text(run_id), EXPORTED_AT: build_time(exported_at)}
    return {name: pa.repeat(value, rows) for name, value in values.items()}


def build_text(value: str) -> pa.StringScalar:
    """Return a text."""
    data = value.encode()
    return _read_only(pa.string(), struct.pack("=ii", 0, len(data)), data)


def build_time(value: datetime) -> pa.TimestampScalar:
    """Return an aware time, in UTC to the microsecond."""
    return _read_only(pa.timestamp("us", "UTC"), struct.pack("=q", (value - _EPOCH) // timedelta(microseconds=1)))


def build_null(kind: pa.DataType) -> pa.Scalar:
    """Return null of that type."""
    return pa.nulls(1, kind)[0]


def build_numbers(*values: int) -> pa.Int32Array:
    """Return whole numbers of up to 32 bits."""
    data = struct.pack(f"={len(values)}i", *values)
    return pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(data)])


def _read_only(kind: pa.DataType, *data: bytes) -> pa.Scalar:
    """Return the first value of the array with these buffers."""
    return pa.Array.from_buffers(kind, 1, [None, *map(pa.py_buffer, data)])[0]


EMPTY: Final = build_text("")
"""The empty text, also as the separator of joined texts."""

_QUOTE, _COMMA = build_text('"'), build_text(",")
_NO_TEXT, _ZERO = build_null(pa.string()), build_numbers(0)[0]
_BLANK = ord(" ")  # JSON escapes the characters before the blank in its own way


def write_lists_as_json(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return each list as a JSON array; null stays null."""
    chunks = []
    for lists in column.chunks:
        data = lists.flatten().buffers()[2]
        if data is not None and bool((np.frombuffer(data, np.uint8) < _BLANK).any()):
            texts = [None if tags is None else orjson.dumps(tags).decode() for tags in lists.to_pylist()]
            chunks.append(pa.array(texts, pa.string()))
        else:
            chunks.append(quote_lists(lists, "[", "]"))
    return pa.chunked_array(chunks, pa.string())


def quote_lists(lists: pa.ListArray, opening: str, closing: str) -> pa.StringArray:
    r"""Return each list with its texts in quotes, as in {"a","say \"hi\""}; null stays null."""
    texts = lists.flatten()
    for special in ("\\", '"'):
        texts = pc.replace_substring(texts, special, f"\\{special}")
    quoted = pc.binary_join_element_wise(_QUOTE, texts, _QUOTE, EMPTY)
    lengths = pc.fill_null(pc.list_value_length(lists), _ZERO)
    offsets = pa.concat_arrays([build_numbers(0), pc.cumulative_sum(lengths).cast(pa.int32())])
    inner = pc.binary_join(pa.ListArray.from_arrays(offsets, quoted), _COMMA)
    whole = pc.binary_join_element_wise(build_text(opening), inner, build_text(closing), EMPTY)
    return pc.if_else(lists.is_valid(), whole, _NO_TEXT)


_IN_UTC = build_text("+00:00")
_ISO_TIME = "%Y-%m-%dT%H:%M:%S"  # Arrow's %S has the fraction of the unit: microseconds here


def join_tags(tags: list[str] | None) -> str | None:
    """Return a list of tags as a person writes it, `vip|news`: as a JSON array if that could be read otherwise."""
    if tags is None:
        return None
    joined = TAG_SEPARATOR.join(tags)
    is_ambiguous = any(not tag or TAG_SEPARATOR in tag for tag in tags) or joined.startswith(("[", "{", '"'))
    return orjson.dumps(tags).decode() if is_ambiguous else joined


def join_lists(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return each list of tags as `join_tags` writes it."""
    return pa.chunked_array([pa.array(map(join_tags, column.to_pylist()), pa.string())], pa.string())


def flatten_table(
    table: pa.Table, *, write_lists: Callable[[pa.ChunkedArray], pa.ChunkedArray] | None = write_lists_as_json
) -> pa.Table:
    """Return the table with times as ISO 8601 in UTC (2026-11-21T09:00:00.000000+00:00) and lists as texts by
    `write_lists` (None: as they are)."""
    columns = []
    for column in table.columns:
        if pa.types.is_list(column.type) and write_lists is not None:
            column = write_lists(column)
        elif pa.types.is_timestamp(column.type):
            column = pc.binary_join_element_wise(pc.strftime(column, _ISO_TIME), _IN_UTC, EMPTY)
        columns.append(column)
    return pa.Table.from_arrays(columns, names=table.column_names)


def move_nuls(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch without U+0000, which some databases refuse: a value with U+0000 becomes null, and `_invalid`
    keeps it as JSON. A batch without U+0000 is returned unchanged."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    broken: dict[int, dict[str, object]] = {}
    for name in [name for name, column in columns.items() if _may_hold_nul(column)]:
        values = columns[name].to_pylist()
        rows = [row for row, value in enumerate(values) if value is not None and _has_nul(value)]
        for row in rows:
            broken.setdefault(row, {})[name] = values[row]
            values[row] = None
        columns[name] = pa.array(values, columns[name].type)
    if not broken:
        return batch
    texts = columns[INVALID].to_pylist()
    for row, broken_values in broken.items():
        texts[row] = json.dumps(json.loads(texts[row] or "{}") | broken_values)
    columns[INVALID] = pa.array(texts, pa.string())
    return pa.record_batch(list(columns.values()), schema=batch.schema)


def _may_hold_nul(column: pa.Array) -> bool:
    texts = column.values if pa.types.is_list(column.type) else column
    if not pa.types.is_string(texts.type):
        return False
    data = texts.buffers()[2]
    return data is not None and b"\0" in data.to_pybytes()


def _has_nul(value: str | list[str]) -> bool:
    return "\0" in value if isinstance(value, str) else any("\0" in text for text in value)
