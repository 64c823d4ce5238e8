"""Typed values as the texts of a CSV file, and rows of them as a chunk.

This module knows Python's types as drivers give them, and no database or file format.
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
"""Rows of Python objects in a chunk: they weigh about ten times what they do as text."""

TEXT = pd.StringDtype(na_value=np.nan)
"""The type of every column of every chunk."""

Text = tuple[pa.Array, dict[int, str]]
"""A column as large_string (null for None), and why some values, by index, are no text."""


def build_texts(values: Sequence[object]) -> Text:
    """Make a column of values texts. NaN is null, too: programs write it for a number that is not there."""
    try:
        return pa.array(values, pa.large_string()), {}  # texts, and bytes that are UTF-8, the fast way
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError):
        pass  # another type is among them, or a byte that is not UTF-8: one by one
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
    """Make a chunk of a column each of `texts`; `numbers` are those of all rows.

    A row with a value that is no text in a column of `used` (None: in any column) is malformed. `show` gives the row,
    by its index, as text. `advice` ends the message about the value.
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
    for column, of_column in zip(columns, problems, strict=True):
        for index, problem in of_column.items() if used is None or column in used else ():
            wrong.setdefault(index, f"column {column} {problem}{advice}")
    return wrong


def build_row_chunk(
    name: str,
    columns: tuple[str, ...],
    values: Sequence[Sequence[object]],
    first: int,
    used: Collection[str] | None,
) -> Chunk:
    """Make a chunk of `values`, a sequence a column, of a database's rows; `first` is the number of the first row.
    `used` is as for `build_chunk`."""
    return build_chunk(
        name,
        columns,
        [build_texts(column) for column in values],
        first + np.arange(len(values[0])),
        show=lambda index: show_record(columns, [column[index] for column in values]),
        used=used,
        advice="; if it is no text at all, read by a query without it",
    )


def build_frame(table: pa.Table) -> pd.DataFrame:
    """Return the frame of a table of large_string columns."""
    frame: pd.DataFrame = table.to_pandas(types_mapper=lambda _: TEXT)
    return frame


@dataclass(frozen=True, slots=True)
class NoText:
    """A value that has no text; `shown` is for the rejects file."""

    shown: str

    def __str__(self) -> str:
        return self.shown


def read_scalar(value: pa.Scalar) -> object:
    """Return one value of Arrow as Python's: bytes that are not UTF-8 as they are, and a date that Python does not have
    as its text, or as `NoText` if Arrow has no text for it either (infinity)."""
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
    """Return whether Arrow keeps the values of this type as texts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def read_values(column: pa.Array | pa.ChunkedArray) -> list[object]:
    """Return a column of Arrow as Python's values: a text as its bytes, a list of plain values as a list of texts, and
    a short float as the number that is written for it."""
    if pa.types.is_dictionary(column.type):
        return read_values(pc.dictionary_decode(column))
    if is_text_type(column.type):
        column = column.cast(pa.large_binary())
    try:
        values: list[object] = column.to_pylist()
    except (ValueError, OverflowError):
        values = [read_scalar(value) for value in column]
    if pa.types.is_nested(column.type):
        if _is_list(column.type) and _is_short_float(column.type.value_type):
            short = column.type.value_type.to_pandas_dtype()
            values = [
                [_lengthen(item, short) for item in value] if isinstance(value, list) else value for value in values
            ]
        return write_lists(values)
    if not _is_short_float(column.type):
        return values
    short = column.type.to_pandas_dtype()
    return [_lengthen(value, short) for value in values]


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_short_float(kind: pa.DataType) -> bool:
    return bool(pa.types.is_float32(kind) or pa.types.is_float16(kind))


def _lengthen(value: object, short: type[np.floating[Any]]) -> object:
    """Return the float of 64 bits that has the digits of one of 32 or 16 bits: 0.1 for 0.10000000149011612."""
    return float(str(short(value))) if isinstance(value, float) else value


def write_text(value: object) -> str:
    """One value: numbers plain, without exponent or a needless `.0`; dates ISO; lists and objects JSON.

    Raises ValueError (mostly a UnicodeError) for bytes that are not UTF-8, for text that cannot be written as such, and
    for a value of another type, whose text only its driver knows.
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
    """Return a record for the rejects file, as JSON; a value that is no text is shown as well as it can be."""
    return orjson.dumps(dict(zip(columns, map(_show, values), strict=True))).decode()


def write_lists(values: list[object]) -> list[object]:
    """Return lists of plain values as lists of texts, null left out, as tags are; other values stay as they are."""
    written: list[object] = []
    for value in values:
        if type(value) is list and not any(isinstance(item, list | dict | tuple) for item in value):
            with suppress(ValueError):  # build_texts says what is wrong with the list
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
    """Return a number in digits. A whole number with more digits than spreadsheets keep (15) comes in scientific
    notation: its last digits are an accident of the float, so it is no id or phone number."""
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
    """`04:05:06`, as MySQL writes a TIME, which comes as a duration."""
    seconds, micros = divmod(abs(value) // timedelta(microseconds=1), 1_000_000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{'-' if value < timedelta(0) else ''}{text}{f'.{micros:06}' if micros else ''}"


# In order: a bool is an int too, and a datetime is a date.
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
