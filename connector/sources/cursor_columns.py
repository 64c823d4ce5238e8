# ruff: noqa: S608 - names are quoted, and values are parameters
"""Decides whether a cursor can be compared with the values of a column, and converts a bound for the column. These
functions have no side effects.

A time without a zone is read as UTC, both in a bound and in a column. The type of the column decides whether its values
can be compared with the job's `start`.

In SQLite and MySQL, the type is not enough: SQLite has no types for columns, MySQL has zero dates, and both may compare
times as texts. Then the statement of a run would silently leave out some values, such as a date in another form. So a
first statement counts these values (`build_check_sql`).
"""

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta

from connector.sources.cursor import MYSQL_DATABASES, ColumnType, CursorKind, CursorValue, read_cursor_value
from connector.texts import escape_to_one_line

_TIME_TYPES = frozenset({ColumnType.DATE, ColumnType.TIMESTAMP, ColumnType.ZONED_TIMESTAMP})

COMPARABLE_TYPES_BY_KIND: dict[CursorKind, frozenset[ColumnType]] = {
    CursorKind.TIMESTAMP: _TIME_TYPES,
    CursorKind.DATE: _TIME_TYPES,
    CursorKind.INTEGER: frozenset({ColumnType.NUMBER}),
}
"""The types of columns that each kind of `start` can be compared with. If `can_compare_texts` is true, times can also
be compared with columns of texts."""

_START_ADVICE_BY_TYPE = {
    ColumnType.NUMBER: "write `start` as a whole number, such as 0",
    **dict.fromkeys(_TIME_TYPES, "write `start` as a timestamp, such as 1970-01-01T00:00:00"),
}
_OTHER_COLUMN_ADVICE = "choose a column of timestamps, dates or whole numbers"

_TYPE_BY_POSTGRESQL_OID = {  # by pg_type.oid; PostgreSQL never changes the oids of its own types
    **dict.fromkeys((20, 21, 23, 26, 700, 701, 1700), ColumnType.NUMBER),
    **dict.fromkeys((18, 19, 25, 1042, 1043), ColumnType.TEXT),
    1082: ColumnType.DATE, 1114: ColumnType.TIMESTAMP, 1184: ColumnType.ZONED_TIMESTAMP,
    16: ColumnType.BOOLEAN,
    **dict.fromkeys((17, 114, 790, 1083, 1186, 1266, 1560, 1562, 2950, 3802), ColumnType.OTHER),
}  # fmt: skip
_TYPE_BY_MYSQL_NUMBER = {  # by the number of the type in the protocol, which all drivers report
    **dict.fromkeys((0, 1, 2, 3, 4, 5, 8, 9, 13, 16, 246), ColumnType.NUMBER),
    **dict.fromkeys((15, 247, 249, 250, 251, 252, 253, 254), ColumnType.TEXT),
    7: ColumnType.ZONED_TIMESTAMP, 10: ColumnType.DATE, 14: ColumnType.DATE, 12: ColumnType.TIMESTAMP,
    **dict.fromkeys((11, 245, 248, 255), ColumnType.OTHER),
}  # fmt: skip


def read_type(backend_name: str, type_code: object) -> ColumnType | None:
    """Return the type of a column from the driver's type code, or None if the database or the code is unknown."""
    if not isinstance(type_code, int):
        return None
    if backend_name in MYSQL_DATABASES:
        return _TYPE_BY_MYSQL_NUMBER.get(type_code)
    return _TYPE_BY_POSTGRESQL_OID.get(type_code) if backend_name == "postgresql" else None


def can_compare_texts(backend_name: str) -> bool:
    """Return whether a column of texts can be compared with a time in this database. SQLite and MySQL compare the two
    as texts."""
    return backend_name == "sqlite" or backend_name in MYSQL_DATABASES


def explain_type(
    column: str, kind: CursorKind, column_type: ColumnType | None, backend_name: str, *, is_table: bool
) -> str:
    """Return the reason and the remedy if the column cannot be compared with a `start` of this kind, else "".

    A column of texts is refused only in a table, because a query may select a time as text and compare the time itself.
    """
    if column_type is None or column_type in COMPARABLE_TYPES_BY_KIND[kind]:
        return ""
    is_number = kind is CursorKind.INTEGER
    if column_type is ColumnType.TEXT:
        if not is_number and (can_compare_texts(backend_name) or not is_table):
            return ""
        advice = f"use a query with cast({column} as {'bigint' if is_number else 'timestamp'})"
    else:
        advice = _START_ADVICE_BY_TYPE.get(column_type, _OTHER_COLUMN_ADVICE)
    kind_text = f"{'an' if is_number else 'a'} {kind}"
    return (
        f"the cursor's column {column} has {column_type}, but `start` is {kind_text}, so they cannot be compared; "
        f"{advice}"
    )


def format_example(value: object) -> str:
    """Return a value as it is shown in a message. A text with an @ is not shown, because it may be a person's
    address."""
    text = bytes(value).decode(errors="replace") if isinstance(value, bytes | bytearray | memoryview) else str(value)
    if "@" in text:
        return "a text that is not shown"
    line = escape_to_one_line(text)
    return f'"{line}"' if len(line) <= _MAX_EXAMPLE_LENGTH else f'"{line[:_MAX_EXAMPLE_LENGTH]}…"'


_MAX_EXAMPLE_LENGTH = 40  # largest number of characters of an example in a message


# The bound of a cursor


def convert_bound(
    value: CursorValue, backend_name: str, column_type: ColumnType | None, offset: timedelta
) -> CursorValue | str:
    """Convert the lower bound of a cursor to the form of the column's values, so that the database can compare the two.
    If the values are texts, `offset` is the smallest offset from UTC among the texts."""
    if not isinstance(value, date):
        return value
    if backend_name == "sqlite" or (backend_name in MYSQL_DATABASES and column_type is ColumnType.TEXT):
        return _format_moment(value, offset)
    if not isinstance(value, datetime):
        return value
    timestamp = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    if backend_name in ("postgresql", "duckdb"):
        if column_type is ColumnType.ZONED_TIMESTAMP:
            return timestamp
        if column_type not in (ColumnType.DATE, ColumnType.TIMESTAMP):
            # The type is not known, because the query may compare a column that it does not select.
            return value
    return timestamp.replace(tzinfo=None)


def _format_moment(value: date, offset: timedelta) -> str:
    """Return the text of a moment that sorts before all other texts of this moment. For example, `2026-11-21 10:00`
    sorts before `2026-11-21T10:00`, `2026-11-21 10:00:00` and `2026-11-21 10:00Z`."""
    if not isinstance(value, datetime):
        return value.isoformat()
    timestamp = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
    try:
        timestamp += offset
    except OverflowError:  # the result is before the year 1
        timestamp = datetime.min  # noqa: DTZ901 - compared as text
    text = timestamp.isoformat(" ")
    text = text.rstrip("0") if "." in text else text.removesuffix(":00")
    return text.removesuffix(" 00:00")


# The values that cannot be compared

OFFSET_FUNCTION = "connector_offset"
"""The SQL function that reads the times that SQLite's own functions cannot read. `read_offset` implements the
function."""

_QUARTERS_PER_DAY = 96  # quarters of an hour; the offset of every zone is a multiple of a quarter
_DATE_AND_TIME_PATTERN = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}", re.ASCII)

_SQLITE_OFFSET_SQL = (
    "CASE WHEN typeof(c) = 'text' AND date(substr(c, 1, 10)) = substr(c, 1, 10) THEN "
    f"coalesce(round((julianday(substr(c, 1, 16)) - julianday(c)) * {_QUARTERS_PER_DAY}), "
    f"{OFFSET_FUNCTION}(CAST(c AS BLOB))) END"
)
_SQLITE_ZERO_IF_NUMBER_SQL = "CASE WHEN typeof(c) IN ('integer', 'real') THEN 0 END"
_MYSQL_ISO_PATTERN = (
    "^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
    "([ Tt]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.,][0-9]+)?)?([Zz]|[+-]00(:?00)?)?)?$"
)


def build_check_sql(
    backend_name: str,
    kind: CursorKind,
    column_type: ColumnType | None,
    rows_sql: str,
    columns: Sequence[str],
    column: str,
) -> str | None:
    """Return the statement that counts the values of `column` that cannot be compared with a cursor. `rows_sql` is a
    SELECT whose result has the `columns`.

    The row of the result has the number of the values that cannot be compared, and one of these values as an example.
    For SQLite, the row also has the smallest offset from UTC among the texts, in quarters of an hour. Return None if
    the type of the column shows that all values can be compared.
    """
    if backend_name == "sqlite":
        offset_sql = _SQLITE_ZERO_IF_NUMBER_SQL if kind is CursorKind.INTEGER else _SQLITE_OFFSET_SQL
        # Without the LIMIT, SQLite would merge the two SELECTs, and compute the offset (o) more than once for each row.
        # LIMIT -1 returns all rows.
        offsets_sql = f"SELECT c, {offset_sql} AS o FROM connector_rows WHERE c IS NOT NULL LIMIT -1"
        select_sql = (
            f"SELECT total(o IS NULL), min(CASE WHEN o IS NULL THEN c END), min(o) FROM ({offsets_sql}) AS found"
        )
    elif (
        backend_name in MYSQL_DATABASES
        and column_type in (*_TIME_TYPES, ColumnType.TEXT)
        and kind in (CursorKind.TIMESTAMP, CursorKind.DATE)
    ):
        condition_sql = f"c NOT REGEXP '{_MYSQL_ISO_PATTERN}'" if column_type is ColumnType.TEXT else "c < '0001-01-01'"
        select_sql = f"SELECT count(*), min(c), 0 FROM connector_rows WHERE {condition_sql}"
    else:
        return None
    names_sql = ", ".join("c" if name == column else f"c{column_index}" for column_index, name in enumerate(columns))
    return f"WITH connector_rows ({names_sql}) AS (\n{rows_sql}\n) {select_sql}"


def read_offset(text_bytes: bytes) -> int | None:
    """Return the offset from UTC of a text, in quarters of an hour, rounded down. Return None if the text is not a
    time."""
    text = text_bytes.decode(errors="replace")
    timestamp = read_cursor_value(text, CursorKind.TIMESTAMP) if _DATE_AND_TIME_PATTERN.match(text) else None
    if not isinstance(timestamp, datetime):
        return None
    return (timestamp.utcoffset() or timedelta()) // timedelta(minutes=15)
