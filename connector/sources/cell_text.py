"""Writes typed values as texts, like the cells of a CSV file, and builds chunks from rows.

This module handles the Python types that drivers return. It does not depend on a database or a file format.
"""

import math
import uuid
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from typing import Any

import numpy as np
import orjson
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from connector.rows import Chunk, MalformedRow

CHUNK_ROWS = 20_000
"""The number of rows in a chunk if the values are Python objects. A row of objects takes about ten times as much memory
as its text."""

TEXT = pd.StringDtype(na_value=np.nan)
"""The type of every column of every chunk."""

TextColumn = tuple[pa.Array, dict[int, str]]
"""A column of texts (large_string, null for None), and a message for each value that cannot be a text. The key of a
message is the index of the value."""


def build_texts(values: Sequence[object]) -> TextColumn:
    """Return a column of values as texts. NaN becomes null, because programs write NaN for a missing number."""
    try:
        return pa.array(values, pa.large_string()), {}  # fast: all values are texts or UTF-8 bytes
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError):
        pass  # a value has another type or is not UTF-8: convert each value alone
    texts: list[str | None] = []
    problem_by_index: dict[int, str] = {}
    for index, value in enumerate(values):
        is_missing = value is None or (isinstance(value, float | Decimal) and math.isnan(value))
        try:
            texts.append(None if is_missing else format_value(value))
        except UnicodeDecodeError as error:
            texts.append(None)
            problem_by_index[index] = f"holds bytes that are not UTF-8 (0x{error.object[error.start]:02X})"
        except UnicodeEncodeError:
            texts.append(None)
            problem_by_index[index] = "contains a lone surrogate (half of a character)"
        except ValueError:
            texts.append(None)
            problem_by_index[index] = "holds a value that cannot be written as text"
    return pa.array(texts, pa.large_string()), problem_by_index


def build_chunk(
    name: str,
    columns: tuple[str, ...],
    text_columns: Sequence[TextColumn],
    first_row_number: int,
    format_row: Callable[[int], str],
    used_columns: Collection[str] | None,
    *,
    advice: str = "",
) -> Chunk:
    """Return a chunk with the columns `text_columns`. `first_row_number` is the number of the first row.

    A row is malformed if a value in a used column cannot be text. If `used_columns` is None, all columns are used.
    `format_row` returns the row at an index as text. `advice` is the end of each message.
    """
    problem_by_row = find_problems(columns, text_columns, used_columns, advice)
    table = pa.table([array for array, _ in text_columns], names=list(columns))
    row_numbers = first_row_number + np.arange(table.num_rows)
    if not problem_by_row:
        return Chunk(build_frame(table), row_numbers, (), name)
    readable_mask = np.isin(np.arange(table.num_rows), list(problem_by_row), invert=True)
    malformed_rows = tuple(
        MalformedRow(int(row_numbers[index]), None, format_row(index), "encoding", problem_by_row[index])
        for index in sorted(problem_by_row)
    )
    return Chunk(build_frame(table.filter(pa.array(readable_mask))), row_numbers[readable_mask], malformed_rows, name)


def find_problems(
    columns: Sequence[str], text_columns: Sequence[TextColumn], used_columns: Collection[str] | None, advice: str = ""
) -> dict[int, str]:
    """Return the first problem of each row in the used columns, by the index of the row. If `used_columns` is None, all
    columns are used."""
    problem_by_row: dict[int, str] = {}
    for column, (_, column_problems) in zip(columns, text_columns, strict=True):
        for index, problem in column_problems.items() if used_columns is None or column in used_columns else ():
            problem_by_row.setdefault(index, f"column {column} {problem}{advice}")
    return problem_by_row


def build_row_chunk(
    name: str,
    columns: tuple[str, ...],
    values_by_column: Sequence[Sequence[object]],
    first_row_number: int,
    used_columns: Collection[str] | None,
) -> Chunk:
    """Return a chunk of a database's rows. `values_by_column` has a sequence for each column, and `first_row_number` is
    the number of the first row. See `build_chunk` for `used_columns`."""
    return build_chunk(
        name,
        columns,
        [build_texts(column) for column in values_by_column],
        first_row_number,
        format_row=lambda index: format_record(columns, [column[index] for column in values_by_column]),
        used_columns=used_columns,
        advice="; if the column is not text, use a query that does not select this column",
    )


def build_frame(table: pa.Table) -> pd.DataFrame:
    """Return the frame of a table of large_string columns."""
    frame: pd.DataFrame = table.to_pandas(types_mapper=lambda _: TEXT)
    return frame


@dataclass(frozen=True, slots=True)
class UnreadableValue:
    """A value that cannot be sent as text. The rejects file shows `display_text` instead of the value."""

    display_text: str

    def __str__(self) -> str:
        return self.display_text


def read_scalar(value: pa.Scalar) -> object:
    """Return an Arrow value as a Python value. Bytes that are not UTF-8 stay bytes. A date that Python cannot represent
    is returned as text, or as `UnreadableValue` if Arrow has no text for the date (infinity)."""
    try:
        return value.as_py()
    except UnicodeDecodeError as error:
        return error.object
    except (ValueError, OverflowError):
        try:
            text = value.cast(pa.string()).as_py()
        except pa.ArrowNotImplementedError:
            return UnreadableValue(f"<{value.type}>")  # a list with a date that Python cannot represent
        # Arrow writes a date that has no text as <value out of range: 2147483647>.
        return UnreadableValue(text) if text.startswith("<") else text


def is_text_type(arrow_type: pa.DataType) -> bool:
    """Return whether this Arrow type is a text type."""
    return bool(pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type))


def read_values(column: pa.Array | pa.ChunkedArray) -> list[object]:
    """Return an Arrow column as Python values. A text is returned as bytes, and a list of plain values as a list of
    texts. A float of 16 or 32 bits is returned as the 64-bit float with the same decimal digits."""
    if pa.types.is_dictionary(column.type):
        return read_values(pc.dictionary_decode(column))
    if is_text_type(column.type):
        column = column.cast(pa.large_binary())
    try:
        cell_values: list[object] = column.to_pylist()
    except (ValueError, OverflowError):
        cell_values = [read_scalar(value) for value in column]
    item_type = getattr(column.type, "value_type", column.type)  # the type of a list's items, or of the column's values
    if pa.types.is_float32(item_type) or pa.types.is_float16(item_type):
        cell_values = [_widen_float(value, item_type.to_pandas_dtype()) for value in cell_values]
    return format_list_items(cell_values) if pa.types.is_nested(column.type) else cell_values


def _widen_float(value: object, float_type: type[np.floating[Any]]) -> object:
    """Return the 64-bit float with the decimal digits of a shorter float: 0.1 for 0.10000000149011612. Also convert the
    floats of a list."""
    if isinstance(value, list):
        return [_widen_float(item, float_type) for item in value]
    return float(str(float_type(value))) if isinstance(value, float) else value


def format_value(value: object) -> str:
    """Return a value as text. A number of at most 15 digits has no exponent and no needless `.0`, a date is in ISO
    form, and a list or object is JSON.

    Raises ValueError for a value of an unknown type, and UnicodeError for bytes and texts that cannot be UTF-8.
    """
    formatter = _FORMATTER_BY_TYPE.get(type(value)) or next(
        (formatter for value_type, formatter in _FORMATTER_BY_TYPE.items() if isinstance(value, value_type)), None
    )
    if formatter is None:
        raise ValueError(f"holds a value of the type {type(value).__name__}")
    text = formatter(value)
    text.encode("utf-8")  # raises UnicodeEncodeError for a lone surrogate
    return text


def format_record(columns: Sequence[str], values: Sequence[object]) -> str:
    """Return a record for the rejects file as JSON. A value that is not text is shown with escaped bytes."""
    return orjson.dumps(dict(zip(columns, map(_format_cell_value, values), strict=True))).decode()


def format_list_items(values: list[object]) -> list[object]:
    """Return each list of plain values as a list of texts without nulls. Other values do not change."""
    texts: list[object] = []
    for value in values:
        if type(value) is list and not any(isinstance(item, list | dict | tuple) for item in value):
            with suppress(ValueError):  # build_texts will report the problem of this list
                value = [format_value(item) for item in value if item is not None]
        texts.append(value)
    return texts


def _format_cell_value(value: object) -> str | None:
    if value is None:
        return None
    try:
        return format_value(value)
    except ValueError:
        value_bytes = (
            bytes(value) if isinstance(value, bytes | bytearray | memoryview) else str(value).encode("utf-8", "replace")
        )
        return value_bytes.decode("utf-8", "backslashreplace")


def _format_float(value: float) -> str:
    """Return a number in digits, without an exponent.

    Exception: a whole number of 2**53 or more may have wrong last digits if it has more than 15 significant digits.
    This number keeps Python's form with `.0` or an exponent, so that nobody reads it as an id or a phone number.
    """
    if value.is_integer() and abs(value) >= 2.0**53 and float(f"{value:.15g}") != value:
        return repr(value)
    return _format_decimal(Decimal(repr(value)))


def _format_decimal(value: Decimal) -> str:
    """Return a number without needless zeros: 42 for 42.0000000000. Raises ValueError for infinity."""
    if not value.is_finite():
        raise ValueError("infinity")
    text = f"{value or 0:f}"  # 0 for -0
    return text.rstrip("0").rstrip(".") if "." in text else text


def _format_json(value: object) -> str:
    try:
        return orjson.dumps(value, default=format_value, option=orjson.OPT_PASSTHROUGH_DATACLASS).decode()
    except orjson.JSONEncodeError as error:
        raise ValueError(str(error)) from None


def _format_duration(value: timedelta) -> str:
    """Return a duration as `04:05:06`. Drivers return a TIME of MySQL as a duration."""
    seconds, microseconds = divmod(abs(value) // timedelta(microseconds=1), 1_000_000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{'-' if value < timedelta(0) else ''}{text}{f'.{microseconds:06}' if microseconds else ''}"


# The order matters, because a bool is also an int.
_FORMATTER_BY_TYPE: dict[type, Callable[..., str]] = {
    str: str,
    bool: lambda value: str(value).lower(),
    int: str,
    float: _format_float,
    Decimal: _format_decimal,
    **dict.fromkeys((datetime, date, time), lambda value: value.isoformat()),
    timedelta: _format_duration,
    **dict.fromkeys((bytes, bytearray, memoryview), lambda value: bytes(value).decode()),
    **dict.fromkeys((list, tuple, dict), _format_json),
    **dict.fromkeys((uuid.UUID, IPv4Address, IPv6Address, IPv4Interface, IPv6Interface, IPv4Network, IPv6Network), str),
}
