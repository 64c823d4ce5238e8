"""Pages of the list as typed Arrow columns: the `RowForm` in which exports read the list.

Arrow's JSON parser reads the bytes of a page without a Python object for each value. `build_columns` reads a page value
by value if Arrow's parser might read the page differently. The column `_invalid` has the values that do not fit the
type of their field. The columns follow from the field table (connector/fields.py).
"""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import date, datetime
from functools import partial
from typing import Any, assert_never, cast

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json

from connector.arrow import EMPTY_TEXT, INVALID_COLUMN, PAGE_SCHEMA, build_null_scalar, find_arrow_type
from connector.fields import FIELDS, LARGEST_ID, Field, FieldKind
from connector.paging.overlap import IdArray, Mask
from connector.service.answers import NUMBER_KEYS_OF_PAGE, parse_list_answer, read_whole_number
from connector.service.wire import AmbiguousResult, ListPage, MaskMessage, Refused, find_sent_type

_DECODER_COUNT = 2  # number of threads; more threads would only wait for the service, or for each other

_TOO_LARGE_VALUE = object()
"""Stands for a number that is too large for a double. This object equals no requested value. The column `_invalid` has
null for such a number."""

_INT64_RANGE = range(-(2**63), 2**63)
_DATE_PATTERN = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_ARROW_ERRORS = (pa.ArrowException, OverflowError, UnicodeEncodeError)

_NULL_TEXT = build_null_scalar(pa.string())
_MAX_LEADING_BLANKS = 64  # a page that begins with this number of blanks is read value by value

_NAN_OR_INFINITY_PATTERN = re.compile(rb"[:,\[]\s*-?(?:NaN|Inf)")


_PARSED_KINDS = frozenset(
    kind for kind in FieldKind if find_sent_type(kind) is str and find_arrow_type(kind) != pa.string()
)
"""Kinds whose values the service lists as texts, and whose columns have another type than text. For these kinds, the
empty text means null."""


def _build_row_type() -> pa.StructType:
    fields_by_key: dict[str, list[pa.Field]] = {}
    for field in FIELDS:
        parsed_type = pa.string() if field.kind in _PARSED_KINDS else find_arrow_type(field.kind)
        fields_by_key.setdefault(field.path[0], []).append(pa.field(field.path[-1], parsed_type))
    nested_object_names = {field.path[0] for field in FIELDS if len(field.path) > 1}
    return pa.struct(
        [
            pa.field(key, pa.struct(fields)) if key in nested_object_names else fields[0]
            for key, fields in fields_by_key.items()
        ]
    )


_ROW_TYPE = _build_row_type()
_NESTED_OBJECT_NAMES = tuple(arrow_field.name for arrow_field in _ROW_TYPE if pa.types.is_struct(arrow_field.type))
_PAGE_TYPE = pa.struct(
    [*(pa.field(name, pa.int64()) for name in NUMBER_KEYS_OF_PAGE), pa.field("Subscribers", pa.list_(_ROW_TYPE))]
)
_ANSWER_SCHEMA = pa.schema([pa.field("success", pa.bool_()), pa.field("SubscribersList", _PAGE_TYPE)])

# A block of a gibibyte is larger than any answer, so the parser never divides an answer.
_READ_OPTIONS = arrow_json.ReadOptions(use_threads=False, block_size=2**30)
_PARSE_OPTIONS_FOR_ONE_LINE, _PARSE_OPTIONS_FOR_MANY_LINES = (
    arrow_json.ParseOptions(
        explicit_schema=_ANSWER_SCHEMA, unexpected_field_behavior="ignore", newlines_in_values=has_many_lines
    )
    for has_many_lines in (False, True)
)


def parse_columns(
    status: int, headers: Mapping[str, str], body: bytes, now: datetime, *, mask_message: MaskMessage = str
) -> ListPage[pa.RecordBatch] | Refused | AmbiguousResult:
    """Return the result of `parse_list_answer` as columns. Arrow's parser reads the page if the page is as in
    service-api.md. Otherwise Python reads the page value by value."""
    page = decode_page(body) if 200 <= status < 300 else None
    if page is not None:
        return page
    answer = parse_list_answer(status, headers, body, now, mask_message=mask_message)
    if not isinstance(answer, ListPage):
        return answer
    return ListPage(build_columns(answer.subscribers), answer.total_count, answer.offset, answer.limit)


class Columns:
    """The `RowForm` in which the rows of a page are a record batch of `PAGE_SCHEMA`. `open_columns` creates the
    object."""

    def __init__(self, decoding_executor: Executor) -> None:
        self._decoding_executor = decoding_executor

    async def parse(
        self, status: int, headers: Mapping[str, str], body: bytes, now: datetime, *, mask_message: MaskMessage
    ) -> ListPage[pa.RecordBatch] | Refused | AmbiguousResult:
        """Run `parse_columns` in a thread. The parser releases the GIL, so the next page can be received meanwhile."""
        parse = partial(parse_columns, status, headers, body, now, mask_message=mask_message)
        return await asyncio.get_running_loop().run_in_executor(self._decoding_executor, parse)

    def read_ids(self, rows: pa.RecordBatch) -> IdArray | None:
        ids = rows.column("id")
        if ids.null_count:
            return None
        id_array = cast(IdArray, np.from_dlpack(ids))  # `to_numpy` imports pandas
        return None if (id_array < -LARGEST_ID).any() else id_array

    def select_rows(self, rows: pa.RecordBatch, row_mask: Mask) -> pa.RecordBatch:
        """Return the rows that the mask selects. Adjacent rows are not copied."""
        indexes = np.flatnonzero(row_mask)
        if len(indexes) and indexes[-1] - indexes[0] == len(indexes) - 1:
            return rows.slice(indexes[0], len(indexes))
        return rows.filter(pa.array(row_mask))

    def read_values(self, rows: pa.RecordBatch, field_name: str) -> Sequence[Any]:
        values: list[Any] = rows.column(field_name).to_pylist()
        invalid_column = rows.column(INVALID_COLUMN)
        if invalid_column.null_count == len(invalid_column):
            return values
        for row_index, invalid_text in enumerate(invalid_column.to_pylist()):
            invalid_values = {} if invalid_text is None else json.loads(invalid_text)
            if field_name in invalid_values:
                invalid_value = invalid_values[field_name]
                values[row_index] = _TOO_LARGE_VALUE if invalid_value is None else invalid_value
        return values

    def count_values(self, rows: pa.RecordBatch, field_name: str) -> Mapping[Any, int]:
        """Count the rows by value. A value that does not fit the type of its field counts as None."""
        return {group["values"]: group["counts"] for group in rows.column(field_name).value_counts().to_pylist()}


@contextmanager
def open_columns() -> Iterator[Columns]:
    """Yield a `Columns` with its own decoding threads. The end of the context waits for the threads."""
    with ThreadPoolExecutor(_DECODER_COUNT, thread_name_prefix="connector decodes") as decoding_executor:
        yield Columns(decoding_executor)


def decode_page(body: bytes) -> ListPage[pa.RecordBatch] | None:
    """Return the page (service-api.md 4.3) in the body of a 2xx answer, as columns of `PAGE_SCHEMA` with an empty
    `_invalid`.

    Return None if Python must read the body instead of Arrow's parser. This is the case if the answer does not report
    success, if the body is not a page, or if the JSON or UTF-8 is invalid. It is also the case if a value does not fit
    the type of its field, or if a key is repeated.
    """
    if not _is_safe_for_arrow(body):
        return None
    try:
        is_one_line = body.find(b"\n") in (-1, len(body) - 1)
        # The parser is faster if its options say that the body is one line.
        options = _PARSE_OPTIONS_FOR_ONE_LINE if is_one_line else _PARSE_OPTIONS_FOR_MANY_LINES
        answers = arrow_json.read_json(pa.py_buffer(body), _READ_OPTIONS, options)
        if (found_page := _find_page(answers)) is None:
            return None
        page, rows = found_page
        columns = _read_columns(rows)
        if columns is None:
            return None
        columns.validate(full=True)  # a lone surrogate is not valid text, and some versions of RapidJSON accept it
    except pa.ArrowException:
        return None
    return ListPage(columns, *(read_whole_number(page.field(name)[0].as_py()) for name in NUMBER_KEYS_OF_PAGE))


def _is_safe_for_arrow(body: bytes) -> bool:
    """Return whether Arrow's parser can read the body. The parser ends the process at a `null` outside of any object
    (apache/arrow#47409), accepts NaN as a number, and does not check the encoding."""
    is_object = body[:_MAX_LEADING_BLANKS].lstrip(b" \t\r\n").startswith(b"{")
    return is_object and not _may_have_nan(body) and _is_utf8(body)


def _may_have_nan(body: bytes) -> bool:
    has_nan_or_infinity = (_contains_pair(body, b"aN") and b"NaN" in body) or (
        _contains_pair(body, b"In") and b"Inf" in body
    )
    return has_nan_or_infinity and _NAN_OR_INFINITY_PATTERN.search(body) is not None


def _contains_pair(body: bytes, byte_pair: bytes) -> bool:
    """Return whether the body contains this pair of bytes. The comparison with numpy takes a tenth of the time of
    `in`."""
    byte_pair_as_integer = np.frombuffer(byte_pair, np.uint16)
    even_pairs, odd_pairs = (np.frombuffer(body, np.uint16, (len(body) - start) // 2, start) for start in (0, 1))
    return bool((even_pairs == byte_pair_as_integer).any() or (odd_pairs == byte_pair_as_integer).any())


def _is_utf8(body: bytes) -> bool:
    if body.isascii():
        return True
    offsets = np.array([0, len(body)], np.int32)
    try:
        pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(body)]).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _find_page(answers: pa.Table) -> tuple[pa.StructArray, pa.StructArray] | None:
    """Return the page and its rows. Return None if `answers` is not a single successful answer with a list of
    objects."""
    if answers.num_rows != 1 or answers["success"][0].as_py() is not True:
        return None
    page = answers["SubscribersList"].chunk(0)
    subscriber_lists = page.field("Subscribers")
    if page.null_count or subscriber_lists.null_count:
        return None
    rows = subscriber_lists.flatten()
    return None if rows.null_count else (page, rows)


def _read_columns(rows: pa.StructArray) -> pa.RecordBatch | None:
    struct_arrays = {name: rows.field(name) for name in _NESTED_OBJECT_NAMES}
    nested_columns = {
        name: dict(zip([arrow_field.name for arrow_field in array.type], array.flatten(), strict=True))
        for name, array in struct_arrays.items()
    }
    columns = []
    for field in FIELDS:
        *parent_names, key = field.path
        column = nested_columns[parent_names[0]][key] if parent_names else rows.field(key)
        if field.kind is FieldKind.TAGS and column.flatten().null_count:
            return None
        if field.kind in _PARSED_KINDS:
            column = _parse_texts(field.kind, pc.if_else(pc.equal(column, EMPTY_TEXT), _NULL_TEXT, column))
            if column is None:
                return None
        columns.append(column)
    columns.append(pa.nulls(len(rows), pa.string()))
    return pa.RecordBatch.from_arrays(columns, schema=PAGE_SCHEMA)


def build_columns(wire_objects: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    """Convert wire objects to columns of `PAGE_SCHEMA`, value by value. Arrow's parser must return the same columns."""
    invalid_values_by_row: dict[int, dict[str, object]] = {}
    objects_by_name = {"": wire_objects} | {
        name: _read_nested_objects(wire_objects, name, invalid_values_by_row) for name in _NESTED_OBJECT_NAMES
    }
    columns = [_build_column(field, objects_by_name, invalid_values_by_row) for field in FIELDS]
    invalid_texts = [
        _format_json(invalid_values_by_row[row_index]) if row_index in invalid_values_by_row else None
        for row_index in range(len(wire_objects))
    ]
    columns.append(pa.array(invalid_texts, pa.string()))
    return pa.RecordBatch.from_arrays(columns, schema=PAGE_SCHEMA)


def _read_nested_objects(
    wire_objects: Sequence[dict[str, Any]], name: str, invalid_values_by_row: dict[int, dict[str, object]]
) -> list[dict[str, Any]]:
    """Return the nested object `name` (such as Base) of each subscriber, or an empty dict if the object is absent, null
    or of another type."""
    nested_objects = [wire_object.get(name) for wire_object in wire_objects]
    for row_index, nested_object in enumerate(nested_objects):
        if type(nested_object) is not dict:
            nested_objects[row_index] = {}
            if nested_object is not None:
                invalid_values_by_row.setdefault(row_index, {})[name] = nested_object
    return nested_objects  # type: ignore[return-value] # the loop leaves only objects


def _build_column(
    field: Field,
    objects_by_name: dict[str, Sequence[dict[str, Any]]],
    invalid_values_by_row: dict[int, dict[str, object]],
) -> pa.Array:
    """Return the column of a field. `objects_by_name` has the nested objects of the rows by name, and the rows
    themselves under the name ""."""
    *parent_names, key = field.path
    values = [parent_object.get(key) for parent_object in objects_by_name["".join(parent_names)]]
    column = _read_column(field.kind, values)
    if column is not None:
        return column
    typed_values = list[object]()
    for row_index, value in enumerate(values):
        typed_value = _read_value(field.kind, value)
        typed_values.append(typed_value)
        if typed_value is None and value is not None and not (field.kind in _PARSED_KINDS and value == ""):
            invalid_values_by_row.setdefault(row_index, {})[field.name] = value
    return pa.array(typed_values, find_arrow_type(field.kind))


def _read_column(kind: FieldKind, values: list[Any]) -> pa.Array | None:
    """Return the whole column if every value fits its type, else None. Reading the whole column at once is ten times
    faster than reading value by value."""
    listed_type = str if kind is FieldKind.ZIP else find_sent_type(kind)
    if not set(map(type, values)) <= {listed_type, type(None)}:
        return None
    try:
        if kind in _PARSED_KINDS:
            return _parse_texts(kind, pa.array([value or None for value in values], pa.string()))
        column = pa.array(values, find_arrow_type(kind))
    except _ARROW_ERRORS:
        return None
    return None if kind is FieldKind.TAGS and column.flatten().null_count else column


def read_dates(texts: pa.Array) -> pa.Array | None:
    """Return texts as dates if every text is a date YYYY-MM-DD. Otherwise return None or raise ArrowInvalid."""
    dates = texts.cast(pa.date32())
    if dates.null_count == len(dates):
        return dates
    return dates if pc.min(texts).as_py() >= "0001" else None  # Arrow accepts the year 0, and Python does not


def _read_text(value: Any) -> str | None:
    if type(value) is not str:
        return None
    try:
        value.encode()
    except UnicodeEncodeError:  # a lone surrogate is not valid text
        return None
    return value


def _parse_texts(kind: FieldKind, texts: pa.Array) -> pa.Array | None:
    """Return the values of the texts of a kind in `_PARSED_KINDS`, or None if a text is not valid."""
    match kind:
        case FieldKind.DATE:
            return read_dates(texts)
        case FieldKind.NUMBER | FieldKind.FLAG | FieldKind.ZIP | FieldKind.TAGS | FieldKind.COUNTRY | FieldKind.GENDER:
            raise ValueError(f"the kind {kind.name} is not listed as a text that must be parsed")
        case FieldKind.TEXT | FieldKind.NULLABLE_TEXT | FieldKind.EMAIL:
            raise ValueError(f"the kind {kind.name} is a text")
        case _:
            assert_never(kind)


def _read_date(value: Any) -> date | None:
    if type(value) is not str or not _DATE_PATTERN.fullmatch(value):
        return None
    try:
        return date.fromisoformat(value)
    except ValueError:
        return None


def _read_value(kind: FieldKind, value: Any) -> object:
    """Return a value of the list in the type of its column, or None if the value does not fit this type."""
    match kind:
        case FieldKind.NUMBER:
            return value if type(value) is int and value in _INT64_RANGE else None
        case FieldKind.FLAG:
            return value if type(value) is bool else None
        case FieldKind.ZIP:
            return str(value) if type(value) is int else _read_text(value)
        case FieldKind.TAGS:
            is_text_list = type(value) is list and all(_read_text(item) is not None for item in value)
            return value if is_text_list else None
        case FieldKind.DATE:
            return _read_date(value)
        case FieldKind.TEXT | FieldKind.NULLABLE_TEXT | FieldKind.EMAIL | FieldKind.GENDER | FieldKind.COUNTRY:
            return _read_text(value)
        case _:
            assert_never(kind)


def _format_json(value: object) -> str:
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError:  # the value has a lone surrogate or a number beyond 64 bits, which json can write
        return json.dumps(value)
