"""Writes typed values as texts, like the cells of a CSV file, and builds chunks from rows.

This module knows the Python types that drivers return. It knows no database and no file format.
"""

import math
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from connector.rows import Chunk, MalformedRow

CHUNK_ROWS = 20_000
"""Rows of Python objects in a chunk. They take about ten times as much memory as their texts."""

TEXT = pd.StringDtype(na_value=np.nan)
"""The type of every column of every chunk."""

Text = tuple[pa.Array, dict[int, str]]
"""A column as large_string (null for None), and the problems of values that are not text, by index."""


def build_texts(values: Sequence[object]) -> Text:
    """Return a column of values as texts. NaN is null, too, because programs write NaN for a missing number."""
    try:
        return pa.array(values, pa.large_string()), {}  # the fast way, for texts and UTF-8 bytes
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError):
        pass  # a value of another type, or bytes that are not UTF-8: write each value
    texts: list[str | None] = []
    wrong: dict[int, str] = {}
    for index, value in enumerate(values):
        is_missing = value is None or (isinstance(value, float | Decimal) and math.isnan(value))
        try:
            texts.append(None if is_missing else write_text(value))
        except UnicodeDecodeError as error:
            texts.append(None)
            wrong[index] = f"holds bytes that are not UTF-8 (0x{error.object[error.start]:02X})"
        except UnicodeEncodeError:
            texts.append(None)
            wrong[index] = "holds half a character (a surrogate alone)"
        except ValueError:
            texts.append(None)
            wrong[index] = "holds a value that cannot be written as text"
    return pa.array(texts, pa.large_string()), wrong


def build_chunk(
    name: str,
    columns: tuple[str, ...],
    texts: Sequence[Text],
    numbers: npt.NDArray[np.int64],
    show: Callable[[int], str],
    used: Collection[str] | None,
    *,
    advice: str = "",
) -> Chunk:
    """Return a chunk with the columns `texts`; `numbers` are the record numbers of all rows.

    A row is malformed if a value in a column of `used` (None: in any column) is not text. `show` returns a row as text
    by its index. `advice` is the end of the message about the value.
    """
    wrong = find_wrong(columns, [problems for _, problems in texts], used, advice)
    table = pa.table([array for array, _ in texts], names=list(columns))
    if not wrong:
        return Chunk(build_frame(table), numbers, (), name)
    is_good = np.isin(np.arange(table.num_rows), list(wrong), invert=True)
    malformed = tuple(
        MalformedRow(int(numbers[index]), None, show(index), "encoding", wrong[index]) for index in sorted(wrong)
    )
    return Chunk(build_frame(table.filter(pa.array(is_good))), numbers[is_good], malformed, name)


def find_wrong(
    columns: Sequence[str], problems: Sequence[Mapping[int, str]], used: Collection[str] | None, advice: str = ""
) -> dict[int, str]:
    """Return the first problem of each row, by its index, in the columns of `used` (None: in all columns)."""
    wrong: dict[int, str] = {}
    for column, column_problems in zip(columns, problems, strict=True):
        for index, problem in column_problems.items() if used is None or column in used else ():
            wrong.setdefault(index, f"column {column} {problem}{advice}")
    return wrong


def build_row_chunk(
    name: str,
    columns: tuple[str, ...],
    values: Sequence[Sequence[object]],
    first: int,
    used: Collection[str] | None,
) -> Chunk:
    """Return a chunk of a database's rows. `values` has a sequence for each column, and `first` is the number of the
    first row. `used` is as for `build_chunk`."""
    return build_chunk(
        name,
        columns,
        [build_texts(column) for column in values],
        first + np.arange(len(values[0])),
        show=lambda index: show_record(columns, [column[index] for column in values]),
        used=used,
        advice="; if the column is not text, read by a query without this column",
    )


def build_frame(table: pa.Table) -> pd.DataFrame:
    """Return the frame of a table of large_string columns."""
    frame: pd.DataFrame = table.to_pandas(types_mapper=lambda _: TEXT)
    return frame


@dataclass(frozen=True, slots=True)
class NoText:
    """A value without a text; `shown` is written to the rejects file."""

    shown: str

    def __str__(self) -> str:
        return self.shown


def read_scalar(value: pa.Scalar) -> object:
    """Return an Arrow value as a Python value. Bytes that are not UTF-8 stay bytes. A date that Python cannot represent
    is its text, or `NoText` if Arrow has no text either (infinity)."""
    try:
        return value.as_py()
    except UnicodeDecodeError as error:
        return error.object
    except (ValueError, OverflowError):
        try:
            text = value.cast(pa.string()).as_py()
        except pa.ArrowNotImplementedError:
            return NoText(f"<{value.type}>")  # a list with such a date
        return NoText(text) if text.startswith("<") else text  # <value out of range: 2147483647>


def is_text_type(kind: pa.DataType) -> bool:
    """Return whether this Arrow type is a text type."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def read_values(column: pa.Array | pa.ChunkedArray) -> list[object]:
    """Return an Arrow column as Python values: a text as its bytes, a list of plain values as a list of texts, and a
    float of 16 or 32 bits as the float with the same digits."""
    if pa.types.is_dictionary(column.type):
        return read_values(pc.dictionary_decode(column))
    if is_text_type(column.type):
        column = column.cast(pa.large_binary())
    try:
        values: list[object] = column.to_pylist()
    except (ValueError, OverflowError):
        values = [read_scalar(value) for value in column]
    item_type = getattr(column.type, "value_type", column.type)  # of a list, or of the column
    if pa.types.is_float32(item_type) or pa.types.is_float16(item_type):
        values = [_lengthen(value, item_type.to_pandas_dtype()) for value in values]
    return write_lists(values) if pa.types.is_nested(column.type) else values


def _lengthen(value: object, short: type[np.floating[Any]]) -> object:
    """Return the float of 64 bits with the digits of a float of 16 or 32 bits: 0.1 for 0.10000000149011612. Also
    convert the floats of a list."""
    if isinstance(value, list):
        return [_lengthen(item, short) for item in value]
    return float(str(short(value))) if isinstance(value, float) else value


def write_text(value: object) -> str:
    """Return a value as text: a number without exponent or needless `.0`, a date in ISO form, a list or object as JSON.

    Raises ValueError for a value of another type, and UnicodeError for bytes and texts that cannot be UTF-8.
    """
    write = _WRITERS.get(type(value)) or next(
        (write for kind, write in _WRITERS.items() if isinstance(value, kind)), None
    )
    if write is None:
        raise ValueError(f"holds a value of the type {type(value).__name__}")
    text = write(value)
    text.encode("utf-8")  # a surrogate alone is refused here
    return text


def show_record(columns: Sequence[str], values: Sequence[object]) -> str:
    """Return a record for the rejects file as JSON. A value that is not text is shown with escaped bytes."""
    return orjson.dumps(dict(zip(columns, map(_show, values), strict=True))).decode()


def write_lists(values: list[object]) -> list[object]:
    """Return lists of plain values as lists of texts without nulls. Other values stay."""
    written: list[object] = []
    for value in values:
        if type(value) is list and not any(isinstance(item, list | dict | tuple) for item in value):
            with suppress(ValueError):  # build_texts reports the problem of the list
                value = [write_text(item) for item in value if item is not None]
        written.append(value)
    return written


def _show(value: object) -> str | None:
    if value is None:
        return None
    try:
        return write_text(value)
    except ValueError:
        shown = (
            bytes(value) if isinstance(value, bytes | bytearray | memoryview) else str(value).encode("utf-8", "replace")
        )
        return shown.decode("utf-8", "backslashreplace")


def _write_float(value: float) -> str:
    """Return a number in digits. A whole number with more digits than a float keeps (15) is written in scientific
    notation, because its last digits may be wrong. So the number is not taken for an id or a phone number."""
    if value.is_integer() and abs(value) >= 2.0**53 and float(f"{value:.15g}") != value:
        return repr(value)
    return _write_decimal(Decimal(repr(value)))


def _write_decimal(value: Decimal) -> str:
    """Return a number without needless zeros: 42 for 42.0000000000. Raises ValueError for infinity."""
    if not value.is_finite():
        raise ValueError("infinity")
    text = f"{value or 0:f}"  # 0 for -0
    return text.rstrip("0").rstrip(".") if "." in text else text


def _write_json(value: object) -> str:
    try:
        return orjson.dumps(value, default=write_text, option=orjson.OPT_PASSTHROUGH_DATACLASS).decode()
    except orjson.JSONEncodeError as error:
        raise ValueError(str(error)) from None


def _write_duration(value: timedelta) -> str:
    """Return a duration as `04:05:06`: drivers return a TIME of MySQL as a duration."""
    seconds, micros = divmod(abs(value) // timedelta(microseconds=1), 1_000_000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{'-' if value < timedelta(0) else ''}{text}{f'.{micros:06}' if micros else ''}"


# The order matters: a bool is also an int, and a datetime is also a date.
_WRITERS: dict[type, Callable[..., str]] = {
    str: str,
    bool: lambda value: str(value).lower(),
    int: str,
    float: _write_float,
    Decimal: _write_decimal,
    datetime: lambda value: value.isoformat(),
    date: lambda value: value.isoformat(),
    time: lambda value: value.isoformat(),
    timedelta: _write_duration,
    bytes: lambda value: bytes(value).decode(),
    bytearray: lambda value: bytes(value).decode(),
    memoryview: lambda value: bytes(value).decode(),
    list: _write_json,
    tuple: _write_json,
    dict: _write_json,
    uuid.UUID: str,
    **dict.fromkeys((IPv4Address, IPv6Address, IPv4Interface, IPv6Interface, IPv4Network, IPv6Network), str),
}
