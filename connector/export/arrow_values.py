"""Single values for Arrow's functions.

A bare Python value given to them, `pa.scalar` and `pa.array` import pandas, to see whether it is one of its: half a
second and 40 MB, in an export that may have no other use for it.
"""

import struct
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def build_text(value: str) -> pa.StringScalar:
    """A text."""
    data = value.encode()
    return _read_only(pa.string(), struct.pack("=ii", 0, len(data)), data)


def build_time(value: datetime) -> pa.TimestampScalar:
    """An aware time, in UTC to the microsecond."""
    return _read_only(pa.timestamp("us", "UTC"), struct.pack("=q", (value - _EPOCH) // timedelta(microseconds=1)))


def build_null(kind: pa.DataType) -> pa.Scalar:
    """Nothing, of that type."""
    return pa.nulls(1, kind)[0]


def build_numbers(*values: int) -> pa.Int32Array:
    """Whole numbers of up to 32 bits."""
    data = struct.pack(f"={len(values)}i", *values)
    return pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(data)])


def _read_only(kind: pa.DataType, *data: bytes) -> pa.Scalar:
    """The one value of the array that these buffers are."""
    return pa.Array.from_buffers(kind, 1, [None, *map(pa.py_buffer, data)])[0]


EMPTY: Final = build_text("")
"""No text, and what stands between texts that are joined."""
