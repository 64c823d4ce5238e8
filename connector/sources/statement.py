"""The statement that a SQL source reads by: a query with its `:names` bound, or a table's SELECT. Pure.

`:cursor` is bound as the kind that it is of, so that PostgreSQL sees a timestamp and not a text, and SQLite a text that
sorts before every other way to write the same moment. A name is looked for in the statement only, not in its texts and
comments.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime
from typing import Any

import sqlalchemy as sa

from connector.errors import ConfigurationError
from connector.sources.cursor import CursorBound, CursorKind, CursorValue

CURSOR = "cursor"
"""The name under which a query has its cursor's value: `:cursor`."""

_WITHOUT_ZONES = ("mysql", "mariadb")

_TYPES: Mapping[CursorKind, sa.types.TypeEngine[Any]] = {
    CursorKind.TIMESTAMP: sa.DateTime(),
    CursorKind.DATE: sa.Date(),
    CursorKind.INTEGER: sa.BigInteger(),
    CursorKind.TEXT: sa.types.NULLTYPE,  # the column says what its texts are: a UUID is one
}


def uses_cursor(query: str, database: str) -> bool:
    """Whether the query of a database (SQLAlchemy's name of it) has a `:cursor`, texts and comments apart."""
    return CURSOR in find_names(query, database)


def check_bound(bound: CursorBound, database: str) -> None:
    """Refuse a value that the database (SQLAlchemy's name of it) cannot compare. Raises ConfigurationError."""
    value = bound.value
    if database in _WITHOUT_ZONES and isinstance(value, datetime) and value.tzinfo is not None:
        raise ConfigurationError(
            f"the cursor {bound.column} cannot begin at {value.isoformat()}: timestamps of {database} have no zone; "
            "write it as the database shows it, such as 2026-11-21T10:00:00"
        )


def build_query(
    query: str, parameters: Mapping[str, object], bound: CursorBound | None, database: str
) -> sa.TextClause:
    """Bind the names that have a value; a colon elsewhere, as in '… :draft' within quotes, stays one."""
    binds: list[sa.BindParameter[Any]] = [sa.bindparam(name, value) for name, value in parameters.items()]
    if bound is not None:
        binds.append(_build_bind(bound, database))
    names = [str(each.key) for each in binds]
    check_names(query, names, database)
    return sa.text(escape_others(query, names, database)).bindparams(*binds)


def check_names(query: str, names: Sequence[str], database: str) -> None:
    """Refuse values for names that the query does not have. Raises ConfigurationError."""
    if missing := sorted(set(names) - find_names(query, database)):
        raise ConfigurationError(f"the query does not use :{missing[0]}")


def build_select(table: str, bound: CursorBound | None, database: str) -> sa.Select[tuple[object]]:
    """All of a table (`name` or `schema.name`), or what is new in it; rows without a cursor's value always are."""
    schema, _, name = table.rpartition(".")
    select: sa.Select[tuple[object]] = sa.select(sa.text("*")).select_from(sa.table(name, schema=schema or None))
    if bound is None:
        return select
    column: sa.ColumnClause[object] = sa.column(bound.column)
    return select.where(sa.or_(column >= _build_bind(bound, database), column.is_(None)))


def _build_bind(bound: CursorBound, database: str) -> sa.BindParameter[Any]:
    value = bound.value
    if database == "sqlite":  # it has no type for dates: its own binding would write one as no program else does
        return sa.bindparam(CURSOR, None if value is None else _write_plainly(value), sa.types.NULLTYPE)
    has_zone = isinstance(value, datetime) and value.tzinfo is not None
    return sa.bindparam(CURSOR, value, sa.DateTime(timezone=True) if has_zone else _TYPES[bound.kind])


def _write_plainly(value: CursorValue) -> int | str:
    """`2026-11-21 10:00:00.5`: texts of the same moment with a T, with more digits or with a zone are all larger."""
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None).isoformat(" ")
        return text.rstrip("0") if "." in text else text
    return value.isoformat() if isinstance(value, date) else value


_WITH_BACKSLASHES = ("mysql", "mariadb")

# A text or comment that is never closed is none, and what follows is looked at.
_TEXTS = r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`|--[^\n]*|/\*.*?\*/|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$"
_TEXTS_OF_MYSQL = r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|`[^`]*`|--\s[^\n]*|#[^\n]*|/\*.*?\*/"
_COLON_NAME = r"(?<![:\w\\]):(?P<name>\w+)(?!\w)(?:(?P<cast>::)|(?!:))"
_TOKENS = re.compile(f"{_TEXTS}|{_COLON_NAME}", re.DOTALL)
_TOKENS_OF_MYSQL = re.compile(f"{_TEXTS_OF_MYSQL}|{_COLON_NAME}", re.DOTALL)
_ANY_NAME = re.compile(_COLON_NAME)


def find_names(query: str, database: str) -> set[str]:
    """The names that a query of this database (SQLAlchemy's word for it) has values for."""
    return {found["name"] for found in _choose(database).finditer(query) if found["name"]}


def mark_names(query: str, names: Collection[str], mark: str, database: str) -> str:
    """The query with another mark in place of the colon of each of these names."""

    def write(found: re.Match[str]) -> str:
        return f"{mark}{found['name']}{found['cast'] or ''}" if found["name"] in names else found[0]

    return _choose(database).sub(write, query)


def escape_others(query: str, names: Collection[str], database: str) -> str:
    """The query for SQLAlchemy's `text`: with backslashes before the colons of whatever else it would take for a name,
    and of a cast that follows one of these names."""

    def write(found: re.Match[str]) -> str:
        if found["name"] in names:
            return f":{found['name']}" + (r"\:\:" if found["cast"] else "")
        return _ANY_NAME.sub(r"\\\g<0>", found[0])

    return _choose(database).sub(write, query)


def _choose(database: str) -> re.Pattern[str]:
    return _TOKENS_OF_MYSQL if database in _WITH_BACKSLASHES else _TOKENS
