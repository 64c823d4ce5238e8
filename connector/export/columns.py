"""Subscribers as the service lists them, turned into typed Arrow columns; what breaks its type is kept beside them.

The columns derive from the field table, kind by kind; no field is known here by name.
"""

import json
import re
from collections.abc import Callable, Collection, Sequence
from datetime import date, datetime
from functools import lru_cache
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from connector.export.arrow_values import build_text, build_time
from connector.export.names import EXPORTED_AT, INVALID, OF_RUN, RUN_ID
from connector.fields import FIELDS, Field, Kind

_INT64 = range(-(2**63), 2**63)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_ARROW_ERRORS = (pa.ArrowException, OverflowError, UnicodeEncodeError)

TYPES: dict[Kind, pa.DataType] = {
    Kind.NUMBER: pa.int64(),
    Kind.FLAG: pa.bool_(),
    Kind.TAGS: pa.list_(pa.string()),
    Kind.DATE: pa.date32(),
}
"""All other kinds are texts, a zip too: it is returned as a string (api.md 2.1)."""

_PYTHON_TYPES: dict[Kind, type] = {Kind.NUMBER: int, Kind.FLAG: bool, Kind.TAGS: list}
_PARENTS = tuple(dict.fromkeys(field.path[0] for field in FIELDS if len(field.path) > 1))

SCHEMA = pa.schema(
    [pa.field(field.name, TYPES.get(field.kind, pa.string())) for field in FIELDS]
    + [pa.field(RUN_ID, pa.string()), pa.field(EXPORTED_AT, pa.timestamp("us", "UTC")), pa.field(INVALID, pa.string())]
)
"""The columns of every export: all fields, then the run, its time (UTC) and, as JSON, values that broke their type."""


PAGE_SCHEMA = pa.schema([field for field in SCHEMA if field.name not in OF_RUN])
"""The columns of a page: those of an export without the run's."""


def select_columns(names: Collection[str] | None) -> pa.Schema:
    """The schema of an export that has of the fields only these (None: all)."""
    if names is None:
        return SCHEMA
    return pa.schema([field for field in SCHEMA if field.name in names or field.name in (*OF_RUN, INVALID)])


def narrow_table(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A table of `SCHEMA` with the columns of `schema` alone, which speaks of no value of another."""
    if schema is SCHEMA:
        return table
    narrowed = table.select(schema.names)
    if narrowed[INVALID].null_count == len(narrowed):
        return narrowed
    kept = {*schema.names, *(field.path[0] for field in FIELDS if field.name in schema.names)}
    texts = [None if text is None else _drop_others(text, kept) for text in narrowed[INVALID].to_pylist()]
    place = schema.get_field_index(INVALID)
    return narrowed.set_column(place, schema.field(place), pa.array(texts, pa.string()))


def _drop_others(text: str, kept: Collection[str]) -> str | None:
    values = {name: value for name, value in json.loads(text).items() if name in kept}
    return json.dumps(values) if values else None


def build_table(wire_objects: Sequence[dict[str, Any]], *, run_id: str, exported_at: datetime) -> pa.Table:
    """Wire objects (api.md 2.1) as a table of `SCHEMA`; `exported_at` is aware.

    A value of another type than its field's becomes null and is kept as it came in `_invalid`, a JSON object by
    field name (`Base` or `Address` where that is no object); null where there is none. A birthday "" is null.
    """
    return stamp_columns(build_columns(wire_objects), run_id=run_id, exported_at=exported_at)


def stamp_columns(columns: pa.RecordBatch, *, run_id: str, exported_at: datetime) -> pa.Table:
    """Columns of `PAGE_SCHEMA` as a table of `SCHEMA`, with the run and its time (aware) in every row."""
    stamps = _write_stamps(run_id, exported_at, len(columns))
    given = dict(zip(PAGE_SCHEMA.names, columns.columns, strict=True)) | stamps
    return pa.Table.from_arrays([given[name] for name in SCHEMA.names], schema=SCHEMA)


@lru_cache(maxsize=4)  # nearly all pages are of one length
def _write_stamps(run_id: str, exported_at: datetime, rows: int) -> dict[str, pa.Array]:
    values = {RUN_ID: build_text(run_id), EXPORTED_AT: build_time(exported_at)}
    return {name: pa.repeat(value, rows) for name, value in values.items()}


def build_columns(wire_objects: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    """Wire objects as columns of `PAGE_SCHEMA`, value by value: what any faster way must come to."""
    broken: dict[int, dict[str, object]] = {}
    parents = {"": wire_objects} | {name: _read_parents(wire_objects, name, broken) for name in _PARENTS}
    columns = [_build_column(field, parents, broken) for field in FIELDS]
    columns.append(_write_invalid(broken, len(wire_objects)))
    return pa.RecordBatch.from_arrays(columns, schema=PAGE_SCHEMA)


def _read_parents(
    wire_objects: Sequence[dict[str, Any]], name: str, broken: dict[int, dict[str, object]]
) -> list[dict[str, Any]]:
    """The object `name` of each subscriber, empty where absent or null, or no object at all."""
    parents = [wire.get(name) for wire in wire_objects]
    for row, parent in enumerate(parents):
        if type(parent) is not dict:
            parents[row] = {}
            if parent is not None:
                broken.setdefault(row, {})[name] = parent
    return parents  # type: ignore[return-value] # the loop leaves only objects


def _build_column(
    field: Field, parents: dict[str, Sequence[dict[str, Any]]], broken: dict[int, dict[str, object]]
) -> pa.Array:
    *parent, key = field.path
    values = [each.get(key) for each in parents["".join(parent)]]
    column = _read_at_once(field.kind, values)
    if column is not None:
        return column
    typed: list[object] = []
    for row, value in enumerate(values):
        read = _read_one(field.kind, value)
        typed.append(read)
        if read is None and value is not None and not (field.kind is Kind.DATE and value == ""):
            broken.setdefault(row, {})[field.name] = value
    return pa.array(typed, TYPES.get(field.kind, pa.string()))


def _read_at_once(kind: Kind, values: list[Any]) -> pa.Array | None:
    """The whole column, if every value is of its type: nearly always, and ten times faster than one by one."""
    if not set(map(type, values)) <= {_PYTHON_TYPES.get(kind, str), type(None)}:
        return None
    try:
        if kind is Kind.DATE:
            return _read_dates_at_once(values)
        column = pa.array(values, TYPES.get(kind, pa.string()))
    except _ARROW_ERRORS:
        return None
    return None if kind is Kind.TAGS and column.flatten().null_count else column


def _read_dates_at_once(values: list[Any]) -> pa.Array | None:
    return read_dates(pa.array([value or None for value in values], pa.string()))


def read_dates(texts: pa.Array) -> pa.Array | None:
    """Texts as dates, if every one of them is a date, YYYY-MM-DD; raises ArrowInvalid for most that are none."""
    dates = texts.cast(pa.date32())
    if dates.null_count == len(dates):
        return dates
    return dates if pc.min(texts).as_py() >= "0001" else None  # Arrow knows a year 0, and nothing else does


def _read_one(kind: Kind, value: Any) -> object:
    """The value as its kind's type; None where it is not of that type."""
    reader = _READERS.get(kind, _read_text)
    return reader(value)


def _read_number(value: Any) -> int | None:
    return value if type(value) is int and value in _INT64 else None


def _read_flag(value: Any) -> bool | None:
    return value if type(value) is bool else None


def _read_text(value: Any) -> str | None:
    if type(value) is not str:
        return None
    try:
        value.encode()
    except UnicodeEncodeError:  # a lone surrogate is no text
        return None
    return value


def _read_zip(value: Any) -> str | None:
    return str(value) if type(value) is int else _read_text(value)


def _read_tags(value: Any) -> list[str] | None:
    is_list = type(value) is list and all(_read_text(each) is not None for each in value)
    return value if is_list else None


def _read_date(value: Any) -> date | None:
    if type(value) is not str or not _DATE.fullmatch(value):
        return None
    try:
        return date.fromisoformat(value)
    except ValueError:
        return None


_READERS: dict[Kind, Callable[[Any], object]] = {
    Kind.NUMBER: _read_number,
    Kind.FLAG: _read_flag,
    Kind.ZIP: _read_zip,
    Kind.TAGS: _read_tags,
    Kind.DATE: _read_date,
}


def _write_invalid(broken: dict[int, dict[str, object]], rows: int) -> pa.Array:
    if not broken:
        return pa.nulls(rows, pa.string())
    return pa.array([_write_json(broken[row]) if row in broken else None for row in range(rows)], pa.string())


def _write_json(value: object) -> str:
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError:  # a lone surrogate, or a number beyond 64 bits: json can write both
        return json.dumps(value)
