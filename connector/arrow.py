"""The Arrow types of the fields, the columns of a page, and constants for Arrow's functions.

If `pa.scalar`, `pa.array` and Arrow's functions get a plain Python value, they import pandas, which costs half a second
and 40 MB. So this module builds values from bytes.
"""

import struct
from datetime import UTC, datetime, timedelta
from typing import Final, assert_never

import pyarrow as pa

from connector.fields import FIELDS, FieldKind

INVALID_COLUMN: Final = "_invalid"
"""The column with a JSON object of the values that do not fit the type of their column."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def find_arrow_type(field_kind: FieldKind) -> pa.DataType:
    """Return the type of a column of this kind. A zip is a string, as in the service's answers (service-api.md 2.1)."""
    match field_kind:
        case FieldKind.NUMBER:
            return pa.int64()
        case FieldKind.FLAG:
            return pa.bool_()
        case FieldKind.TAGS:
            return pa.list_(pa.string())
        case FieldKind.DATE:
            return pa.date32()
        case (
            FieldKind.TEXT
            | FieldKind.NULLABLE_TEXT
            | FieldKind.EMAIL
            | FieldKind.GENDER
            | FieldKind.COUNTRY
            | FieldKind.ZIP
        ):
            return pa.string()
        case _:
            assert_never(field_kind)


PAGE_SCHEMA: Final = pa.schema(
    [*(pa.field(field.name, find_arrow_type(field.kind)) for field in FIELDS), pa.field(INVALID_COLUMN, pa.string())]
)
"""The columns of a page: one for each field, and the column `_invalid`."""


def build_text_scalar(text: str) -> pa.StringScalar:
    """Return a text as an Arrow scalar."""
    encoded_text = text.encode()
    return _build_scalar(pa.string(), struct.pack("=ii", 0, len(encoded_text)), encoded_text)


def build_time_scalar(moment: datetime) -> pa.TimestampScalar:
    """Return a datetime with a time zone as an Arrow scalar, in UTC and rounded down to the microsecond."""
    return _build_scalar(pa.timestamp("us", "UTC"), struct.pack("=q", (moment - _EPOCH) // timedelta(microseconds=1)))


def build_null_scalar(arrow_type: pa.DataType) -> pa.Scalar:
    """Return the null of this Arrow type."""
    return pa.nulls(1, arrow_type)[0]


def build_number_array(*values: int) -> pa.Int32Array:
    """Return an Arrow array of whole numbers of up to 32 bits."""
    packed_numbers = struct.pack(f"={len(values)}i", *values)
    return pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(packed_numbers)])


def _build_scalar(arrow_type: pa.DataType, *buffers: bytes) -> pa.Scalar:
    return pa.Array.from_buffers(arrow_type, 1, [None, *map(pa.py_buffer, buffers)])[0]


EMPTY_TEXT: Final = build_text_scalar("")
"""The empty text, for example as the separator for Arrow's functions that join texts."""
