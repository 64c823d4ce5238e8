"""Typed values as the texts of a CSV file, and rows of them as a chunk.

This module knows Python's types as drivers give them, and no database or file format.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import orjson
import pandas as pd
import pyarrow as pa

from connector.rows import Chunk, MalformedRow

CHUNK_ROWS = 20_000
"""Rows of Python objects in a chunk: they weigh about ten times what they do as text."""

TEXT = pd.StringDtype(na_value=np.nan)
"""The type of every column of every chunk."""

_DEEPEST = 20  # objects within objects; exports of subscribers are two or three deep
_NO_OBJECT = 'is JSON, and no object: a row looks like {"email": "ann@example.com"}'
_EXACT = 2.0**53  # from here on a float no longer holds every whole number

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
        try:
            texts.append(None if value is None or _is_not_a_number(value) else write_text(value))
        except ValueError as error:  # UnicodeError is one
            texts.append(None)
            wrong[index] = _explain(error)
    return pa.array(texts, pa.large_string()), wrong


def build_chunk(
    name: str,
    columns: tuple[str, ...],
    texts: Sequence[Text],
    numbers: npt.NDArray[np.int64],
    show: Callable[[int], str],
    *,
    advice: str = "",
) -> Chunk:
    """Make a chunk of a column each of `texts`; `numbers` are those of all rows.

    A row with a value that is no text is malformed, and `show` gives it, by its index, as text. `advice` ends the
    message about it.
    """
    wrong: dict[int, str] = {}
    for column, (_, wrong_here) in zip(columns, texts, strict=True):
        for index, why in wrong_here.items():
            wrong.setdefault(index, f"column {column} {why}{advice}")
    table = pa.table([array for array, _ in texts], names=list(columns))
    if wrong:
        is_good = np.ones(table.num_rows, dtype=bool)
        is_good[list(wrong)] = False
        table = table.filter(pa.array(is_good))
        malformed = tuple(
            MalformedRow(int(numbers[index]), None, show(index), "encoding", wrong[index]) for index in sorted(wrong)
        )
        numbers = numbers[is_good]
    else:
        malformed = ()
    return Chunk(build_frame(table), numbers, malformed, name)


def build_row_chunk(name: str, columns: tuple[str, ...], values: Sequence[Sequence[object]], first: int) -> Chunk:
    """Make a chunk of `values`, a sequence a column, of a database's rows; `first` is the number of the first row."""

    def show(index: int) -> str:
        return show_record(columns, [each[index] for each in values])

    texts = [build_texts(given) for given in values]
    numbers = first + np.arange(len(values[0]))
    return build_chunk(
        name, columns, texts, numbers, show, advice="; if it is no text at all, read by a query without it"
    )


def build_frame(table: pa.Table) -> pd.DataFrame:
    """Return the frame of a table of large_string columns."""
    frame: pd.DataFrame = table.to_pandas(types_mapper=lambda _: TEXT)
    return frame


def write_text(value: object) -> str:
    """One value: numbers plain, without exponent or a needless `.0`; dates ISO; lists and objects JSON.

    Raises ValueError (mostly a UnicodeError) for bytes that are not UTF-8, and for text that cannot be written as such.
    """
    write = _WRITERS.get(type(value)) or next(
        (write for kind, write in _WRITERS.items() if isinstance(value, kind)), str
    )
    text = write(value)
    text.encode("utf-8")  # a surrogate alone is refused here
    return text


def show_record(columns: Sequence[str], values: Sequence[object]) -> str:
    """Return a record for the rejects file, as JSON; a value that is no text is shown as well as it can be."""
    return orjson.dumps(dict(zip(columns, map(_show, values), strict=True))).decode()


def parse_object(text: bytes) -> dict[str, object]:
    """Return the keys and values of a line of JSON, nested objects flattened to `address.city`.

    Numbers are exact: one that a float cannot hold comes as a Decimal. Raises ValueError for a line that is no object.
    """
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"is no JSON: {str(error).partition(': line')[0]}") from None
    if not isinstance(found, dict):
        raise ValueError(_NO_OBJECT)  # noqa: TRY004 - a line's fault, as the others are
    row = _flatten(found)
    inexact = [key for key, value in row.items() if type(value) is float and abs(value) >= _EXACT]
    if inexact:
        exact = _flatten(json.loads(text, parse_float=Decimal))
        row |= {key: exact[key] for key in inexact}
    return row


def write_lists(values: list[object]) -> list[object]:
    """Return lists of plain values as lists of texts, null left out, as tags are; other values stay as they are."""
    return [_write_list(value) if type(value) is list else value for value in values]


def _write_list(items: list[object]) -> list[object]:
    if any(isinstance(item, list | dict | tuple) for item in items):
        return items
    try:
        return [write_text(item) for item in items if item is not None]
    except ValueError:
        return items  # build_texts says what is wrong with it


def _flatten(found: Mapping[str, object]) -> dict[str, object]:
    """Every value by its path; a list is a value. Raises ValueError for a path that is there twice, or too deep."""
    if dict not in map(type, found.values()):
        return dict(found)
    row: dict[str, object] = {}
    _add(row, "", found, 1)
    return row


def _add(row: dict[str, object], prefix: str, found: Mapping[str, object], depth: int) -> None:
    if depth > _DEEPEST:
        raise ValueError(f"holds objects nested more than {_DEEPEST} deep")
    for key, value in found.items():
        path = prefix + key
        if isinstance(value, dict):
            _add(row, f"{path}.", value, depth + 1)
        elif path in row:
            raise ValueError(f"has {path} twice, as a key and as a key within another")
        else:
            row[path] = value


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


def _explain(error: ValueError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"holds bytes that are not UTF-8 (0x{error.object[error.start]:02X})"
    if isinstance(error, UnicodeEncodeError):
        return "holds half a character (a surrogate alone)"
    return "holds a value that cannot be written as text"


def _is_not_a_number(value: object) -> bool:
    return isinstance(value, float | Decimal) and math.isnan(value)


def _write_float(value: float) -> str:
    return f"{int(value)}" if value.is_integer() else f"{Decimal(repr(value)):f}"


def _write_json(value: object) -> str:
    try:
        return orjson.dumps(value, default=write_text).decode()
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
    Decimal: lambda value: f"{value:f}",
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
}
