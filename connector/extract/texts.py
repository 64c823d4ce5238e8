"""A database's values as the texts that a person would write in a CSV; what cannot be text is said to be none.

It knows Python's types as drivers give them, and no database.
"""

import math
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal

import orjson
import pyarrow as pa


def build_texts(values: Sequence[object]) -> tuple[pa.Array, dict[int, str]]:
    """Make a column of values a large_string array (null for None), and tell, by place, which are no text and why.

    NaN is null, too: what programs write for a number that is not there.
    """
    try:
        return pa.array(values, pa.large_string()), {}  # texts, and bytes that are UTF-8, the fast way
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError):
        pass  # something else is among them, or a byte that is not UTF-8: one by one
    texts: list[str | None] = []
    wrong: dict[int, str] = {}
    for place, value in enumerate(values):
        try:
            texts.append(None if value is None or _is_not_a_number(value) else write_text(value))
        except ValueError as error:  # UnicodeError is one
            texts.append(None)
            wrong[place] = _explain(error)
    return pa.array(texts, pa.large_string()), wrong


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
    """A record for a person and the rejects file, as JSON; what is no text is shown as well as it can be."""
    return orjson.dumps(dict(zip(columns, map(_show, values), strict=True))).decode()


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


def _write_bool(value: bool) -> str:
    return "true" if value else "false"


def _write_float(value: float) -> str:
    return f"{int(value)}" if value.is_integer() else _write_decimal(Decimal(repr(value)))


def _write_decimal(value: Decimal) -> str:
    return f"{value:f}"


def _write_bytes(value: bytes | bytearray | memoryview) -> str:
    return bytes(value).decode("utf-8")


def _write_json(value: object) -> str:
    try:
        return orjson.dumps(value, default=write_text).decode()
    except orjson.JSONEncodeError as error:
        raise ValueError(str(error)) from None


def _is_not_a_number(value: object) -> bool:
    return isinstance(value, float | Decimal) and math.isnan(value)


def _write_iso(value: date | time) -> str:
    return value.isoformat()


def _write_duration(value: timedelta) -> str:
    """`04:05:06`, as MySQL writes a TIME, which comes as a duration."""
    seconds, micros = divmod(abs(value) // timedelta(microseconds=1), 1_000_000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{'-' if value < timedelta(0) else ''}{text}{f'.{micros:06}' if micros else ''}"


# In order: a bool is an int too, and a datetime is a date.
_WRITERS: dict[type, Callable[..., str]] = {
    str: str,
    bool: _write_bool,
    int: str,
    float: _write_float,
    Decimal: _write_decimal,
    datetime: _write_iso,
    date: _write_iso,
    time: _write_iso,
    timedelta: _write_duration,
    bytes: _write_bytes,
    bytearray: _write_bytes,
    memoryview: _write_bytes,
    list: _write_json,
    tuple: _write_json,
    dict: _write_json,
}
