"""Values of cursors, and the statement that reads rows from a cursor on. Without side effects.

The job's `start` decides the kind of all values: a text or number of the database is read as this kind. Cursors are
saved as text. The statement is a query, or the SELECT of a table. Its `:cursor` is bound with the type of its kind, so
that PostgreSQL compares a timestamp and not a text. A `:cursor` in a text or comment of the query does not count.
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

CursorValue = datetime | date | int | str

CURSOR = "cursor"
"""The name of the cursor's value in a query: `:cursor`."""

MYSQL = ("mysql", "mariadb")
"""SQLAlchemy's names of databases with the dialect of MySQL."""


class CursorKind(StrEnum):
    """The kind of a cursor's values."""

    TIMESTAMP = "timestamp"
    DATE = "date"
    INTEGER = "integer"
    TEXT = "text"


class ColumnType(StrEnum):
    """The type of a column's values, as messages name the values."""

    NUMBER = "numbers"
    TEXT = "texts"
    DATE = "dates"
    TIMESTAMP = "timestamps without a zone"
    MOMENT = "timestamps with a zone"
    BOOLEAN = "booleans"
    UUID = "UUIDs"
    OTHER = "values that have no order in time"


@dataclass(frozen=True, slots=True)
class CursorBound:
    """A bound: rows whose `column` is at least `value` are read. If `value` is None, no rows are read, only the
    columns.

    `cursor_columns.convert_bound` has converted `value` for the column."""

    column: str
    kind: CursorKind
    value: object


_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_LARGEST = 2**63 - 1  # the largest bigint

_KINDS: dict[CursorKind, tuple[type, sa.types.TypeEngine[Any], str]] = {
    # kind: (Python type, SQL type of the bound value, description of a valid text)
    CursorKind.TIMESTAMP: (
        datetime, sa.DateTime(), "a timestamp, such as 2026-11-21T10:00:00 or 2026-11-21T10:00:00+01:00"
    ),
    CursorKind.DATE: (date, sa.Date(), "a date, such as 2026-11-21"),
    CursorKind.INTEGER: (int, sa.BigInteger(), "a whole number of at most 64 bits"),
    CursorKind.TEXT: (str, sa.types.NULLTYPE, "text"),  # the column decides the type: a text may be a UUID
}  # fmt: skip


def find_kind(text: str) -> CursorKind:
    """Return the kind of a job's `start`: `7`, `2026-11-21`, `2026-11-21T10:00:00`, or another text."""
    text = text.strip()
    if _INTEGER.fullmatch(text):
        return CursorKind.INTEGER
    if _DAY.fullmatch(text):
        return CursorKind.DATE
    return CursorKind.TIMESTAMP if _DAY.match(text) else CursorKind.TEXT


def parse_cursor(text: str, kind: CursorKind) -> CursorValue:
    """Return the value of a text from a person or from `write_cursor`. Raises ValueError with a description of valid
    texts."""
    value: CursorValue | None = text
    try:
        match kind:
            case CursorKind.TIMESTAMP:
                value = datetime.fromisoformat(text.strip())
            case CursorKind.DATE:
                value = date.fromisoformat(text.strip())
            case CursorKind.INTEGER:
                value = read_value(int(text), kind)
    except ValueError:
        value = None
    if value is None:
        raise ValueError(f"must be {_KINDS[kind][2]}")
    return value


def write_cursor(value: CursorValue) -> str:
    """Return the value as a text for `parse_cursor`."""
    return value.isoformat() if isinstance(value, date) else str(value)


def read_value(value: object, kind: CursorKind) -> CursorValue | None:
    """Return a database's value as this kind, rounded down if the value is finer. Return None for NULL and for another
    kind."""
    try:
        plain = bytes(value).decode() if isinstance(value, bytes | bytearray | memoryview) else value
        if plain is None:
            return None
        if kind is CursorKind.TEXT:
            return None if "\0" in str(plain) else str(plain)  # PostgreSQL cannot store a NUL
        if kind is CursorKind.INTEGER:
            if isinstance(plain, str) and _INTEGER.fullmatch(plain):
                number = int(plain)
            elif isinstance(plain, int | float | Decimal) and not isinstance(plain, bool):
                number = math.floor(plain)
            else:
                return None
            return number if abs(number) <= _LARGEST else None
        if isinstance(plain, datetime):  # pandas has a subclass of datetime with nanoseconds
            is_plain = type(plain) is datetime
            moment = plain if is_plain else datetime.fromisoformat(plain.isoformat(timespec="microseconds"))
        elif isinstance(plain, date):
            moment = datetime.combine(plain, time.min)
        elif isinstance(plain, str) and _DAY.match(plain.strip()):
            moment = datetime.fromisoformat(plain.strip())
        else:
            return None
    except (ValueError, OverflowError):
        return None
    return moment if kind is CursorKind.TIMESTAMP else moment.date()


def look_back(value: CursorValue, lookback_s: float) -> CursorValue:
    """Return the value minus `lookback_s`. For a date, the look-back is rounded up to days. Numbers and texts stay."""
    if not isinstance(value, date):
        return value
    is_moment = isinstance(value, datetime)
    back = timedelta(seconds=lookback_s) if is_moment else timedelta(days=math.ceil(lookback_s / 86_400))
    try:
        return value - back
    except OverflowError:  # before the year 1
        return value.replace(year=1, month=1, day=2)


def is_larger(value: CursorValue, other: CursorValue) -> bool:
    """Return whether `value` is larger than `other` of the same kind. A timestamp without a zone is in UTC."""
    return bool(_key(value) > _key(other))


def find_latest(value: CursorValue, now: datetime) -> CursorValue | None:
    """Return the latest time that a cursor of this value's form may move to: the end of tomorrow in UTC, because a
    timestamp without a zone may be a day ahead. Return None if the value is not known to be a time.

    A text is a time if it begins with the year and has months of two digits (`2026/11/21`). A whole number is a time if
    it reads as a Unix time (`find_latest_unix`), as `20261121` or as `20261121100000`.
    """
    tomorrow = _find_end_of_tomorrow(now)
    if isinstance(value, datetime):
        return tomorrow
    if isinstance(value, date):
        return tomorrow.date()
    if isinstance(value, str):
        match = _YEAR_FIRST.match(value)
        # "~" sorts after each separator and hour that can follow a day
        return None if match is None else f"{tomorrow:%Y}{match[1]}{tomorrow:%m}{match[1]}{tomorrow:%d}~"
    for form in _NUMBER_FORMS:
        with suppress(ValueError):
            if datetime.strptime(str(value), form).strftime(form) == str(value):  # noqa: DTZ007 - only its digits
                return int(tomorrow.strftime(form))
    return find_latest_unix(value, now)


def find_latest_unix(value: CursorValue | None, now: datetime) -> int | None:
    """Return the end of tomorrow as a Unix time in the unit of this whole number (seconds to nanoseconds), or None if
    the number is not a time between the year 2000 and that day."""
    if not isinstance(value, int):
        return None
    tomorrow_s = int(_find_end_of_tomorrow(now).timestamp())
    units = (unit for unit in _UNITS_PER_S if _YEAR_2000_S * unit <= value <= tomorrow_s * unit)
    unit = next(units, None)
    return None if unit is None else tomorrow_s * unit


def _find_end_of_tomorrow(now: datetime) -> datetime:
    return datetime.combine((now.astimezone(UTC) + timedelta(days=1)).date(), time.max, UTC)


_YEAR_FIRST = re.compile(r"(?:19|20)\d\d([-/. ])\d\d(?!\d)", re.ASCII)
_NUMBER_FORMS = ("%Y%m%d", "%Y%m%d%H%M%S")
_YEAR_2000_S = 946_684_800
_UNITS_PER_S = (1, 10**3, 10**6, 10**9)
_SAMPLE_SIZE = 100  # numbers of a chunk that decide whether the column has Unix times


@dataclass(slots=True)
class CursorWatch:
    """Records the values of a cursor column: the `largest` value up to `latest`, and the numbers of values that are
    `missing`, that are not of the kind (`strays`), and that are beyond `latest` (`ahead`).

    With `now` and without `latest`, whole numbers are recognised as Unix times. With `is_moment` the column has
    moments, and `largest` without a zone gets UTC.
    """

    column: str
    kind: CursorKind
    now: datetime | None = None
    latest: CursorValue | None = None
    is_moment: bool = False
    largest: CursorValue | None = None
    missing: int = 0
    strays: int = 0
    first_stray: tuple[int, object] | None = None  # record number, from 1, and value
    ahead: int = 0
    first_ahead: tuple[int, CursorValue] | None = None  # record number, from 1, and value

    def record(self, values: Sequence[object], first: int) -> None:
        """Record the values of consecutive rows; `first` is the record number of the first row."""
        largest: CursorValue | None = None
        self.missing += sum(value is None for value in values)
        if {*map(type, values)} - {type(None)} == {_KINDS[self.kind][0]} and self.kind is not CursorKind.TEXT:
            with suppress(TypeError):  # some moments have a zone and others have none
                largest = max(value for value in values if value is not None)  # type: ignore[type-var, assignment]
        if self.latest is None and self.now is not None and self.kind is CursorKind.INTEGER:
            self.latest = self._find_unix_limit(values, self.now)
        is_beyond = isinstance(largest, int) and largest > _LARGEST
        if largest is None or is_beyond or self._is_ahead(largest):  # the slow way: read each value
            read = [read_value(value, self.kind) for value in values]
            strays = [index for index, value in enumerate(values) if value is not None and read[index] is None]
            self.strays += len(strays)
            if strays and self.first_stray is None:
                self.first_stray = first + strays[0], values[strays[0]]
            ahead = [(first + index, value) for index, value in enumerate(read) if self._is_ahead(value)]
            self.ahead += len(ahead)
            if self.first_ahead is None:
                self.first_ahead = next(iter(ahead), None)
            usable = (value for value in read if value is not None and not self._is_ahead(value))
            largest = max(usable, key=_key, default=None)
        if self.is_moment and isinstance(largest, datetime) and largest.tzinfo is None:
            largest = largest.replace(tzinfo=UTC)
        if largest is not None and (self.largest is None or is_larger(largest, self.largest)):
            self.largest = largest

    def _is_ahead(self, value: CursorValue | None) -> TypeGuard[CursorValue]:
        return value is not None and self.latest is not None and is_larger(value, self.latest)

    def _find_unix_limit(self, values: Sequence[object], now: datetime) -> int | None:
        """Return the limit as a Unix time if most of the first values are Unix times of one unit, else None."""
        sample = [read_value(value, self.kind) for value in values[:_SAMPLE_SIZE]]
        limits = Counter(find_latest_unix(value, now) for value in sample if value is not None)
        limit, limit_count = limits.most_common(1)[0] if limits else (None, 0)
        return limit if limit_count * 2 > limits.total() else None


def _key(value: CursorValue) -> Any:
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value


def uses_cursor(query: str, database: str) -> bool:
    """Return whether a query has a `:cursor` outside texts and comments. `database` is SQLAlchemy's name."""
    return any(found["name"] == CURSOR for found in _choose_tokens(database).finditer(query))


def build_query(query: str, bound: CursorBound | None, database: str) -> sa.TextClause:
    """Return the query with a bound `:cursor`, if there is a bound. Other colons ('… :draft') stay."""

    def escape(found: re.Match[str]) -> str:
        if bound is not None and found["name"] == CURSOR:
            return f":{CURSOR}" + (r"\:\:" if found["cast"] else "")
        return _ANY_NAME.sub(r"\\\g<0>", found[0])

    text = sa.text(_choose_tokens(database).sub(escape, query))
    return text if bound is None else text.bindparams(_build_bind(bound, database))


def mark_cursor(query: str, database: str, mark: str) -> str:
    """Return the query with `mark` instead of `:cursor`, for example `$cursor`."""

    def replace_name(found: re.Match[str]) -> str:
        return f"{mark}{found['cast'] or ''}" if found["name"] == CURSOR else found[0]

    return _choose_tokens(database).sub(replace_name, query)


def build_select(table: str, bound: CursorBound | None, database: str) -> sa.Select[tuple[object]]:
    """Return the SELECT of all rows of a table (`name` or `schema.name`), or of the rows from the bound on and the rows
    without a cursor value. A bound without a value selects no row."""
    schema, _, name = table.rpartition(".")
    select: sa.Select[tuple[object]] = sa.select(sa.text("*")).select_from(sa.table(name, schema=schema or None))
    if bound is None:
        return select
    if bound.value is None:
        return select.where(sa.text("1 = 0"))
    column: sa.ColumnClause[object] = sa.column(bound.column)
    return select.where(sa.or_(column >= _build_bind(bound, database), column.is_(None)))


def _build_bind(bound: CursorBound, database: str) -> sa.BindParameter[Any]:
    value, (python_type, sql_type, _) = bound.value, _KINDS[bound.kind]
    if isinstance(value, datetime) and value.tzinfo is not None:
        sql_type = sa.DateTime(timezone=True)
    is_of_kind = value is None or isinstance(value, python_type)
    return sa.bindparam(CURSOR, value, sql_type if is_of_kind and database != "sqlite" else sa.types.NULLTYPE)


# A text or comment that is never closed is not skipped.
_TEXTS = r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`|--[^\n]*|/\*.*?\*/|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$"
_TEXTS_OF_MYSQL = r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|`[^`]*`|--\s[^\n]*|#[^\n]*|/\*.*?\*/"
_COLON_NAME = r"(?<![:\w\\]):(?P<name>\w+)(?!\w)(?:(?P<cast>::)|(?!:))"
_TOKENS = re.compile(f"{_TEXTS}|{_COLON_NAME}", re.DOTALL)
_TOKENS_OF_MYSQL = re.compile(f"{_TEXTS_OF_MYSQL}|{_COLON_NAME}", re.DOTALL)
_ANY_NAME = re.compile(_COLON_NAME)


def _choose_tokens(database: str) -> re.Pattern[str]:
    return _TOKENS_OF_MYSQL if database in MYSQL else _TOKENS


_READING = frozenset({"select", "with", "values", "table"})
_WRITING = frozenset({"insert", "update", "delete", "merge", "into"})
_WORD = r"(?P<word>\w+|;)"
_WORDS, _WORDS_OF_MYSQL = (re.compile(f"{texts}|{_WORD}", re.DOTALL) for texts in (_TEXTS, _TEXTS_OF_MYSQL))
_WORDS_OF_OTHERS = re.compile(rf"{_TEXTS}|\[[^\]]*\]|{_WORD}", re.DOTALL)  # SQL Server quotes names in brackets
_READ_ONLY = ("postgresql", "sqlite", *MYSQL)


def explain_write(query: str, database: str) -> str:
    """Return why a query may write, or "" if the query only reads.

    If the database has no read-only session, words of writing statements are refused, too: the `into` of SELECT … INTO,
    or the `delete` of a WITH.
    """
    is_read_only = database in _READ_ONLY
    pattern = _WORDS_OF_MYSQL if database in MYSQL else _WORDS if is_read_only else _WORDS_OF_OTHERS
    words = [found["word"].lower() for found in pattern.finditer(query) if found["word"]]
    while words and words[-1] == ";":
        words.pop()
    if not words or words[0] not in _READING:
        return f"the query begins with {words[0].upper() if words else 'nothing'}"
    if ";" in words:
        return "the query has more than one statement"
    writing = next((word for word in words if word in _WRITING and not is_read_only), None)
    return "" if writing is None else f"the query has the word {writing.upper()}"
