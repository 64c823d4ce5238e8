"""A page of the list straight from its bytes into columns, by Arrow's own JSON parser, without an object per value.

What it gives is what `build_columns` makes of the same page; where it could be anything else, it gives nothing, and
the page is read value by value.
"""

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json

from connector.export.arrow_values import EMPTY, build_null
from connector.export.columns import PAGE_SCHEMA, TYPES, read_dates
from connector.fields import FIELDS, Field, Kind
from connector.service import ECHOES, ListPage, read_whole_number

_NOTHING = build_null(pa.string())
_LARGEST_BLOCK = 2**30  # more than any answer: it is never cut in two

_DEEPEST = 900
"""Levels that the other reader follows with certainty (it stops at 1,024): what lies deeper is its to refuse."""

_BLANKS_BEFORE = 64  # more of them, and the page is read value by value

_OPENINGS, _CLOSINGS = np.frombuffer(b"[{", np.uint8), np.frombuffer(b"]}", np.uint8)
_NO_NUMBER = re.compile(rb"[:,\[]\s*-?(?:NaN|Inf)")
_QUOTE = ord('"')
_TO_OPENING = 0xDF  # the one bit in which [ and { differ, taken away


def _read_type(field: Field) -> pa.DataType:
    """What the parser is to look for: a date is a text to it."""
    return pa.string() if field.kind is Kind.DATE else TYPES.get(field.kind, pa.string())


def _build_row_type() -> pa.StructType:
    children: dict[str, list[pa.Field]] = {}
    for field in FIELDS:
        children.setdefault(field.path[0], []).append(pa.field(field.path[-1], _read_type(field)))
    parents = {field.path[0] for field in FIELDS if len(field.path) > 1}
    return pa.struct(
        [pa.field(key, pa.struct(inner)) if key in parents else inner[0] for key, inner in children.items()]
    )


_ROW = _build_row_type()
_PARENTS = tuple(each.name for each in _ROW if pa.types.is_struct(each.type))
_LISTS = tuple(each.name for each in _ROW if pa.types.is_list(each.type))
_PAGE = pa.struct([*(pa.field(each, pa.int64()) for each in ECHOES), pa.field("Subscribers", pa.list_(_ROW))])
_ANSWER = pa.schema([pa.field("success", pa.bool_()), pa.field("SubscribersList", _PAGE)])

_READ = arrow_json.ReadOptions(use_threads=False, block_size=_LARGEST_BLOCK)
_ONE_LINE, _MANY_LINES = (
    arrow_json.ParseOptions(
        explicit_schema=_ANSWER, unexpected_field_behavior="ignore", newlines_in_values=has_many_lines
    )
    for has_many_lines in (False, True)
)


def decode_page(body: bytes) -> ListPage[pa.RecordBatch] | None:
    """The page of api.md 4.3 in the body of a 2xx answer, as columns of `PAGE_SCHEMA` with nothing in `_invalid`.

    None where that is not certain to be what the other reader makes of it: no success, no page, a value of another type
    than its field's, a key twice, what is no JSON, or no UTF-8.
    """
    if not _is_safe(body):
        return None
    try:
        answers = arrow_json.read_json(pa.py_buffer(body), _READ, _choose_options(body))
        found = _find_page(answers)
        if found is None:
            return None
        page, rows = found
        columns = _read_columns(rows)
        if columns is None or _is_deep(body, rows):
            return None
        if b"\\" in body and b"\\u" in body:  # half a character is no text; not every RapidJSON refuses it
            columns.validate(full=True)
    except pa.ArrowException:
        return None
    return ListPage(columns, *(read_whole_number(page.field(each)[0].as_py()) for each in ECHOES))


def _is_safe(body: bytes) -> bool:
    """Whether Arrow's parser can be asked: it ends the process at a `null` outside of any object (apache/arrow#47409),
    takes NaN for a number, and does not look at the encoding."""
    is_object = body[:_BLANKS_BEFORE].lstrip(b" \t\r\n").startswith(b"{")
    return is_object and not _has_no_numbers(body) and _is_utf8(body)


def _choose_options(body: bytes) -> arrow_json.ParseOptions:
    end = body.find(b"\n")
    return _ONE_LINE if end in (-1, len(body) - 1) else _MANY_LINES  # the latter takes longer


def _has_no_numbers(body: bytes) -> bool:
    """Whether NaN or Infinity may stand for a value."""
    may_be = (_holds_pair(body, b"aN") and b"NaN" in body) or (_holds_pair(body, b"In") and b"Inf" in body)
    return may_be and _NO_NUMBER.search(body) is not None


def _holds_pair(body: bytes, pair: bytes) -> bool:
    """Whether two bytes stand next to each other: what `in` says, in a tenth of the time."""
    wanted = np.frombuffer(pair, np.uint16)
    even, odd = (np.frombuffer(body, np.uint16, (len(body) - start) // 2, start) for start in (0, 1))
    return bool((even == wanted).any() or (odd == wanted).any())


def _is_utf8(body: bytes) -> bool:
    if body.isascii():
        return True
    ends = np.array([0, len(body)], np.int32)
    try:
        pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(ends), pa.py_buffer(body)]).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _find_page(answers: pa.Table) -> tuple[pa.StructArray, pa.StructArray] | None:
    """(the page, its rows) of what must be one answer, successful, with a list of nothing but objects."""
    if answers.num_rows != 1 or answers["success"][0].as_py() is not True:
        return None
    page = answers["SubscribersList"].chunk(0)
    lists = page.field("Subscribers")
    if page.null_count or lists.null_count:
        return None
    rows = lists.flatten()
    return None if rows.null_count else (page, rows)


def _read_columns(rows: pa.StructArray) -> pa.RecordBatch | None:
    inner = {name: rows.field(name) for name in _PARENTS}
    parents = {name: dict(zip(_names(array.type), array.flatten(), strict=True)) for name, array in inner.items()}
    columns = []
    for field in FIELDS:
        *parent, key = field.path
        column = parents[parent[0]][key] if parent else rows.field(key)
        if field.kind is Kind.TAGS and column.flatten().null_count:
            return None
        if field.kind is Kind.DATE:
            column = read_dates(pc.if_else(pc.equal(column, EMPTY), _NOTHING, column))
            if column is None:
                return None
        columns.append(column)
    columns.append(pa.nulls(len(rows), pa.string()))
    return pa.RecordBatch.from_arrays(columns, schema=PAGE_SCHEMA)


def _names(kind: pa.StructType) -> list[str]:
    return [each.name for each in kind]


def _is_deep(body: bytes, rows: pa.StructArray) -> bool:
    """Whether anything in the answer may lie deeper than `_DEEPEST`; Arrow's parser follows to any depth.

    What was read is five levels deep. So many brackets as it has are accounted for; the others, of what was passed over
    and of texts, are nearly always too few.
    """
    marks = np.frombuffer(body, np.uint8)
    brackets = np.count_nonzero((marks & _TO_OPENING) == _OPENINGS[0])
    inner = sum(len(rows) - rows.field(name).null_count for name in (*_PARENTS, *_LISTS))
    return bool(brackets - (3 + len(rows) + inner) > _DEEPEST) and _measure_depth(body) > _DEEPEST


def _measure_depth(body: bytes) -> int:
    """The deepest level of what is JSON."""
    plain = body.replace(rb"\\", b"").replace(rb"\"", b"")  # so that each quote left opens or closes a text
    marks = np.frombuffer(plain, np.uint8)
    is_outside = np.logical_xor.accumulate(marks == _QUOTE) ^ True
    steps = np.isin(marks, _OPENINGS).astype(np.int32) - np.isin(marks, _CLOSINGS)
    return int(np.cumsum(steps * is_outside).max(initial=0))
