"""Reads the values of the cursor column, and builds the statement of a run. The statement selects the rows whose value
in the cursor column is at least a bound. These functions have no side effects.

The job's `start` decides the kind of all values: each value of the database is read as this kind. Cursors are saved as
text.

The statement is the job's query, or a SELECT from the job's table. Its `:cursor` is bound with the SQL type of the
kind, so that PostgreSQL compares a timestamp and not a text. A `:cursor` in a text or comment of the query is not a
parameter.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, TypeGuard

import sqlalchemy as sa

CursorValue = datetime | date | int

CURSOR_PARAMETER = "cursor"
"""The name of the query parameter whose value is the bound of the cursor: `:cursor`."""

MYSQL_DATABASES = ("mysql", "mariadb")
"""SQLAlchemy's names of databases with the dialect of MySQL."""


class CursorKind(StrEnum):
    """The kind of a cursor's values."""

    TIMESTAMP = "timestamp"
    DATE = "date"
    INTEGER = "integer"


class ColumnType(StrEnum):
    """The type of a column. The value of each member is its name in messages."""

    NUMBER = "numbers"
    TEXT = "texts"
    DATE = "dates"
    TIMESTAMP = "timestamps without a zone"
    ZONED_TIMESTAMP = "timestamps with a zone"
    BOOLEAN = "booleans"
    OTHER = "values that have no order in time"


@dataclass(frozen=True, slots=True)
class CursorBound:
    """A lower bound: rows whose value in `column` is at least `value` are read. If `value` is None, no rows are read,
    and only the columns are known.

    `cursor_columns.convert_bound` has converted the `value`."""

    column: str
    kind: CursorKind
    value: object


_INTEGER_PATTERN = re.compile(r"[+-]?\d+", re.ASCII)
_DAY_PATTERN = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_LARGEST_INTEGER = 2**63 - 1  # the largest bigint

_PYTHON_AND_SQL_TYPE_BY_KIND: dict[CursorKind, tuple[type, sa.types.TypeEngine[Any]]] = {
    CursorKind.TIMESTAMP: (datetime, sa.DateTime()),
    CursorKind.DATE: (date, sa.Date()),
    CursorKind.INTEGER: (int, sa.BigInteger()),
}
_VALID_TEXT_BY_KIND = {
    CursorKind.TIMESTAMP: "a timestamp, such as 2026-11-21T10:00:00 or 2026-11-21T10:00:00+01:00",
    CursorKind.DATE: "a date, such as 2026-11-21",
    CursorKind.INTEGER: "a whole number of at most 64 bits",
}


def find_cursor_kind(text: str) -> CursorKind:
    """Return the kind of a job's `start`, such as `7`, `2026-11-21` or `2026-11-21T10:00:00`. Raises ValueError for
    another text."""
    text = text.strip()
    if _INTEGER_PATTERN.fullmatch(text):
        return CursorKind.INTEGER
    if _DAY_PATTERN.fullmatch(text):
        return CursorKind.DATE
    if _DAY_PATTERN.match(text):
        return CursorKind.TIMESTAMP
    raise ValueError("must be a timestamp, a date or a whole number. A query can cast a text to one of these types")


def parse_cursor(text: str, kind: CursorKind) -> CursorValue:
    """Return the value of a text that a person or `format_cursor` has written. Raises ValueError with a description of
    valid texts."""
    value: CursorValue | None
    try:
        match kind:
            case CursorKind.TIMESTAMP:
                value = datetime.fromisoformat(text.strip())
            case CursorKind.DATE:
                value = date.fromisoformat(text.strip())
            case CursorKind.INTEGER:
                value = read_cursor_value(int(text), kind)
    except ValueError:
        value = None
    if value is None:
        raise ValueError(f"must be {_VALID_TEXT_BY_KIND[kind]}")
    return value


def format_cursor(value: CursorValue) -> str:
    """Return the value as a text that `parse_cursor` can read."""
    return value.isoformat() if isinstance(value, date) else str(value)


def read_cursor_value(value: object, kind: CursorKind) -> CursorValue | None:
    """Return a value of the database as a value of this kind. Round down a value that is more precise than the kind.
    Return None for NULL and for a value of another kind."""
    try:
        decoded_value = bytes(value).decode() if isinstance(value, bytes | bytearray | memoryview) else value
        if decoded_value is None:
            return None
        if kind is CursorKind.INTEGER:
            if isinstance(decoded_value, str) and _INTEGER_PATTERN.fullmatch(decoded_value):
                whole_number = int(decoded_value)
            elif isinstance(decoded_value, int | float | Decimal) and not isinstance(decoded_value, bool):
                whole_number = math.floor(decoded_value)
            else:
                return None
            return whole_number if abs(whole_number) <= _LARGEST_INTEGER else None
        if isinstance(decoded_value, datetime):
            timestamp = decoded_value
            if type(decoded_value) is not datetime:  # pandas has a subclass with nanoseconds, which are dropped here
                timestamp = datetime.fromisoformat(decoded_value.isoformat(timespec="microseconds"))
        elif isinstance(decoded_value, date):
            timestamp = datetime.combine(decoded_value, time.min)
        elif isinstance(decoded_value, str) and _DAY_PATTERN.match(decoded_value.strip()):
            timestamp = datetime.fromisoformat(decoded_value.strip())
        else:
            return None
    except (ValueError, OverflowError):
        return None
    return timestamp if kind is CursorKind.TIMESTAMP else timestamp.date()


def subtract_lookback(value: CursorValue, lookback_s: float) -> CursorValue:
    """Return the value minus `lookback_s`. For a date, the look-back is rounded up to days. Numbers do not change."""
    if not isinstance(value, date):
        return value
    is_timestamp = isinstance(value, datetime)
    lookback = timedelta(seconds=lookback_s) if is_timestamp else timedelta(days=math.ceil(lookback_s / 86_400))
    try:
        return value - lookback
    except OverflowError:  # the result is before the year 1
        return value.replace(year=1, month=1, day=2)


def is_larger(value: CursorValue, other_value: CursorValue) -> bool:
    """Return whether `value` is larger than `other_value` of the same kind. A timestamp without a zone is in UTC."""
    return bool(_convert_to_comparable(value) > _convert_to_comparable(other_value))


def find_latest_allowed_value(value: CursorValue, now: datetime) -> CursorValue | None:
    """Return the end of tomorrow in UTC, in the same form as `value`. Return None if `value` is not a time.

    A cursor must not move beyond this limit. The limit is not the end of today, because a timestamp without a zone may
    be a day ahead.

    A whole number is a time if it is a Unix time (`find_latest_allowed_unix_time`), or has the form `20261121` or
    `20261121100000`.
    """
    end_of_tomorrow = _find_end_of_tomorrow(now)
    if isinstance(value, datetime):
        return end_of_tomorrow
    if isinstance(value, date):
        return end_of_tomorrow.date()
    for date_format in _DATE_NUMBER_FORMATS:
        with suppress(ValueError):
            if datetime.strptime(str(value), date_format).strftime(date_format) == str(value):  # noqa: DTZ007 - only digits are compared
                return int(end_of_tomorrow.strftime(date_format))
    return find_latest_allowed_unix_time(value, now)


def find_latest_allowed_unix_time(value: CursorValue | None, now: datetime) -> int | None:
    """If `value` is a Unix time between the year 2000 and the end of tomorrow, return the end of tomorrow as a Unix
    time in the unit of `value` (seconds to nanoseconds). Otherwise return None."""
    if not isinstance(value, int):
        return None
    end_of_tomorrow_s = int(_find_end_of_tomorrow(now).timestamp())
    for units_per_s in _UNITS_PER_S:
        if _YEAR_2000_S * units_per_s <= value <= end_of_tomorrow_s * units_per_s:
            return end_of_tomorrow_s * units_per_s
    return None


def _find_end_of_tomorrow(now: datetime) -> datetime:
    return datetime.combine((now.astimezone(UTC) + timedelta(days=1)).date(), time.max, UTC)


_DATE_NUMBER_FORMATS = ("%Y%m%d", "%Y%m%d%H%M%S")
_YEAR_2000_S = 946_684_800
_UNITS_PER_S = (1, 10**3, 10**6, 10**9)
_SAMPLE_SIZE = 100  # number of values at the beginning of a chunk that show whether the column has Unix times


@dataclass(slots=True)
class CursorWatch:
    """A recorder of the values of a cursor column. `largest_value` is the largest value that is at most
    `latest_allowed_value`.

    `missing_value_count` is the number of rows without a value. `wrong_kind_count` is the number of values of another
    kind. `future_value_count` is the number of values that are larger than `latest_allowed_value`.

    If `now` is set and `latest_allowed_value` is None, whole numbers are recognised as Unix times. If `is_zoned`, the
    column has timestamps with a zone, and a `largest_value` without a zone gets UTC.
    """

    column: str
    kind: CursorKind
    now: datetime | None = None
    latest_allowed_value: CursorValue | None = None
    is_zoned: bool = False
    largest_value: CursorValue | None = None
    missing_value_count: int = 0
    wrong_kind_count: int = 0
    wrong_kind_example: tuple[int, object] | None = None  # row number, from 1, and value
    future_value_count: int = 0
    future_value_example: tuple[int, CursorValue] | None = None  # row number, from 1, and value

    def record(self, values: Sequence[object], first_row_number: int) -> None:
        """Record the values of consecutive rows. `first_row_number` is the number of the first row."""
        largest_value: CursorValue | None = None
        self.missing_value_count += sum(value is None for value in values)
        if {*map(type, values)} - {type(None)} == {_PYTHON_AND_SQL_TYPE_BY_KIND[self.kind][0]}:
            with suppress(TypeError):  # timestamps with and without a zone cannot be compared
                largest_value = max(value for value in values if value is not None)  # type: ignore[type-var, assignment]
        if self.latest_allowed_value is None and self.now is not None and self.kind is CursorKind.INTEGER:
            self.latest_allowed_value = self._find_unix_end_of_tomorrow(values, self.now)
        exceeds_bigint = isinstance(largest_value, int) and largest_value > _LARGEST_INTEGER
        if largest_value is None or exceeds_bigint or self._is_in_future(largest_value):
            # Each value is read only if the largest value is unknown or not usable, because reading is slow.
            parsed_values = [read_cursor_value(value, self.kind) for value in values]
            wrong_kind_indices = [
                index for index, value in enumerate(values) if value is not None and parsed_values[index] is None
            ]
            self.wrong_kind_count += len(wrong_kind_indices)
            if wrong_kind_indices and self.wrong_kind_example is None:
                self.wrong_kind_example = first_row_number + wrong_kind_indices[0], values[wrong_kind_indices[0]]
            numbered_future_values = [
                (first_row_number + index, value)
                for index, value in enumerate(parsed_values)
                if self._is_in_future(value)
            ]
            self.future_value_count += len(numbered_future_values)
            if self.future_value_example is None:
                self.future_value_example = next(iter(numbered_future_values), None)
            usable_values = (value for value in parsed_values if value is not None and not self._is_in_future(value))
            largest_value = max(usable_values, key=_convert_to_comparable, default=None)
        if self.is_zoned and isinstance(largest_value, datetime) and largest_value.tzinfo is None:
            largest_value = largest_value.replace(tzinfo=UTC)
        if largest_value is not None and (self.largest_value is None or is_larger(largest_value, self.largest_value)):
            self.largest_value = largest_value

    def _is_in_future(self, value: CursorValue | None) -> TypeGuard[CursorValue]:
        return (
            value is not None and self.latest_allowed_value is not None and is_larger(value, self.latest_allowed_value)
        )

    def _find_unix_end_of_tomorrow(self, values: Sequence[object], now: datetime) -> int | None:
        """Return the end of tomorrow as a Unix time in the unit of the column. Return None if the first values of the
        column are not Unix times, or if no unit fits most of these values."""
        sample_values = [read_cursor_value(value, self.kind) for value in values[:_SAMPLE_SIZE]]
        sample_count_by_unix_end = Counter(
            find_latest_allowed_unix_time(value, now) for value in sample_values if value is not None
        )
        unix_end_of_tomorrow, agreeing_value_count = (
            sample_count_by_unix_end.most_common(1)[0] if sample_count_by_unix_end else (None, 0)
        )
        return unix_end_of_tomorrow if agreeing_value_count * 2 > sample_count_by_unix_end.total() else None


def _convert_to_comparable(value: CursorValue) -> Any:
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value


def uses_cursor(query: str, backend_name: str) -> bool:
    """Return whether a query has a `:cursor` outside texts and comments. `backend_name` is SQLAlchemy's name of
    the database system."""
    return any(
        token["name"] == CURSOR_PARAMETER
        for token in _compile_sql_pattern(_COLON_NAME_PATTERN, backend_name).finditer(query)
    )


def build_query(query: str, cursor_bound: CursorBound | None, backend_name: str) -> sa.TextClause:
    """Return the query. With a bound, `:cursor` is a parameter with the value of the bound. Other colons (`:draft` in a
    text) do not change."""

    def escape_token(token: re.Match[str]) -> str:
        if cursor_bound is not None and token["name"] == CURSOR_PARAMETER:
            return f":{CURSOR_PARAMETER}" + (r"\:\:" if token["cast"] else "")
        return re.sub(_COLON_NAME_PATTERN, r"\\\g<0>", token[0])

    text_clause = sa.text(_compile_sql_pattern(_COLON_NAME_PATTERN, backend_name).sub(escape_token, query))
    return text_clause if cursor_bound is None else text_clause.bindparams(_build_bind(cursor_bound, backend_name))


def replace_cursor(query: str, backend_name: str, replacement: str) -> str:
    """Return the query with `replacement` in place of `:cursor`, for example `$cursor`."""

    def replace_name(token: re.Match[str]) -> str:
        return f"{replacement}{token['cast'] or ''}" if token["name"] == CURSOR_PARAMETER else token[0]

    return _compile_sql_pattern(_COLON_NAME_PATTERN, backend_name).sub(replace_name, query)


def build_select(table: str, cursor_bound: CursorBound | None, backend_name: str) -> sa.Select[tuple[object]]:
    """Return the SELECT of a table (`name` or `schema.name`). With a bound, the SELECT returns the rows whose value in
    the cursor column is NULL or at least the bound. If the bound has no value, the SELECT returns no rows."""
    schema, _, table_name = table.rpartition(".")
    select_statement: sa.Select[tuple[object]] = sa.select(sa.text("*")).select_from(
        sa.table(table_name, schema=schema or None)
    )
    if cursor_bound is None:
        return select_statement
    if cursor_bound.value is None:
        return select_statement.where(sa.text("1 = 0"))
    column: sa.ColumnClause[object] = sa.column(cursor_bound.column)
    return select_statement.where(sa.or_(column >= _build_bind(cursor_bound, backend_name), column.is_(None)))


def _build_bind(cursor_bound: CursorBound, backend_name: str) -> sa.BindParameter[Any]:
    value, (python_type, sql_type) = cursor_bound.value, _PYTHON_AND_SQL_TYPE_BY_KIND[cursor_bound.kind]
    if isinstance(value, datetime) and value.tzinfo is not None:
        sql_type = sa.DateTime(timezone=True)
    has_expected_type = value is None or isinstance(value, python_type)
    return sa.bindparam(
        CURSOR_PARAMETER, value, sql_type if has_expected_type and backend_name != "sqlite" else sa.types.NULLTYPE
    )


# A text or comment that is never closed does not match.
_TEXT_OR_COMMENT_PATTERN = (
    r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`|--[^\n]*|/\*.*?\*/|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$"
)
_MYSQL_TEXT_OR_COMMENT_PATTERN = r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|`[^`]*`|--\s[^\n]*|#[^\n]*|/\*.*?\*/"
_COLON_NAME_PATTERN = r"(?<![:\w\\]):(?P<name>\w+)(?!\w)(?:(?P<cast>::)|(?!:))"


def _compile_sql_pattern(token_pattern: str, backend_name: str) -> re.Pattern[str]:
    """Return a pattern for the SQL of this database. The pattern matches a text, a comment, or `token_pattern` outside
    texts and comments."""
    is_mysql = backend_name in MYSQL_DATABASES
    text_or_comment_pattern = _MYSQL_TEXT_OR_COMMENT_PATTERN if is_mysql else _TEXT_OR_COMMENT_PATTERN
    return re.compile(f"{text_or_comment_pattern}|{token_pattern}", re.DOTALL)


_READING_KEYWORDS = frozenset({"select", "with", "values", "table"})
_WRITING_KEYWORDS = frozenset({"insert", "update", "delete", "merge", "into"})
_WORD_PATTERN = r"(?P<word>\w+|;)"
_BRACKETED_NAME_PATTERN = r"\[[^\]]*\]"  # SQL Server quotes names in brackets
_DATABASES_WITH_READ_ONLY_SESSION = ("postgresql", "sqlite", *MYSQL_DATABASES)


def explain_why_query_may_write(query: str, backend_name: str) -> str:
    """Return a message that explains why a query may write, or "" if the query only reads.

    If the database has no read-only session, the words of writing statements are also refused. Examples are the `into`
    of SELECT … INTO, and a `delete` in a WITH.
    """
    is_read_only = backend_name in _DATABASES_WITH_READ_ONLY_SESSION
    token_pattern = _WORD_PATTERN if is_read_only else f"{_BRACKETED_NAME_PATTERN}|{_WORD_PATTERN}"
    tokens = _compile_sql_pattern(token_pattern, backend_name).finditer(query)
    words = [token["word"].lower() for token in tokens if token["word"]]
    while words and words[-1] == ";":
        words.pop()
    if not words or words[0] not in _READING_KEYWORDS:
        return f"the query begins with {words[0].upper() if words else 'nothing'}"
    if ";" in words:
        return "the query has more than one statement"
    writing_keyword = next((word for word in words if word in _WRITING_KEYWORDS and not is_read_only), None)
    return "" if writing_keyword is None else f"the query has the word {writing_keyword.upper()}"
