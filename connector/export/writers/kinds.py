"""The kinds of columns that an export has, whatever a database calls their types, and the names of what modes add."""

from enum import StrEnum

import pyarrow as pa

ID, TAGS = "id", "tags"
DELETED_AT = "deleted_at"
VALID_FROM, VALID_TO, IS_CURRENT = "valid_from", "valid_to", "is_current"


class ColumnKind(StrEnum):
    """What the values of a column are, in words for people."""

    TEXT = "text"
    WHOLE = "whole number"
    FLAG = "flag"
    DATE = "date"
    TIME = "time"
    TAGS = "list of texts"


def read_kind(kind: pa.DataType) -> ColumnKind:
    """The kind of an Arrow column of an export. Raises ValueError for one that no export has."""
    for is_such, found in _KINDS:
        if is_such(kind):
            return found
    raise ValueError(f"no export has a column of {kind}")


_KINDS = (
    (pa.types.is_string, ColumnKind.TEXT),
    (pa.types.is_integer, ColumnKind.WHOLE),
    (pa.types.is_boolean, ColumnKind.FLAG),
    (pa.types.is_date, ColumnKind.DATE),
    (pa.types.is_timestamp, ColumnKind.TIME),
    (pa.types.is_list, ColumnKind.TAGS),
)
