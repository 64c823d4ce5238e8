"""An engine that only reads, and connections that let go at once."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from connector import databases
from connector.databases import parse_url
from connector.errors import SourceError

_MYSQL_BIT = 16  # the protocol's number of the type


def describe_place(text: str) -> str:
    """Which database a URL means, whatever its password, its driver and its options: the same for the same one."""
    url = parse_url(text)
    return repr((url.get_backend_name(), url.username, url.host, url.port, url.database))


def build_engine(url: sa.URL) -> sa.Engine:
    """Make an engine; nothing is connected yet. Raises ConfigurationError naming the extra for a missing driver."""
    _refuse_missing_file(url)
    engine = databases.build_engine(url)
    dialect = url.drivername.partition("+")[0]
    if dialect in _PREPARE:
        sa.event.listen(engine, "connect", _PREPARE[dialect])
    return engine


def let_go(connection: sa.Connection, result: sa.CursorResult[Any] | None) -> None:
    """Close the connection without reading what is left of the result.

    PyMySQL would read all of it, since MySQL cannot be told to stop sending: it is told by a cut connection.
    """
    cursor = getattr(result, "cursor", None)
    unread: Any = getattr(cursor, "_result", None)  # PyMySQL's own; of another driver there is none
    if getattr(unread, "unbuffered_active", False):
        unread.unbuffered_active = False
        connection.invalidate()
    if result is not None:
        result.close()  # PostgreSQL's cursor, before its connection
    connection.close()


def _refuse_missing_file(url: sa.URL) -> None:
    """SQLite would create an empty database where there is none."""
    database = url.database or ":memory:"
    if url.get_backend_name() == "sqlite" and database != ":memory:" and not database.startswith("file:"):
        if Path(database).is_dir():
            raise SourceError(f"{database}: is a folder, not a SQLite database")
        if not Path(database).exists():
            raise SourceError(f"{database}: there is no such SQLite database; check the path")


def _prepare_sqlite(connection: Any, _: object) -> None:
    """Texts come as bytes, so that one that is not UTF-8 costs its row and not the query; and nothing is written."""
    connection.text_factory = bytes
    connection.execute("PRAGMA query_only = ON")


def _prepare_mysql(connection: Any, _: object) -> None:
    """Nothing is written; for the session, since a statement such as CREATE TABLE ends a transaction and its rules."""
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION TRANSACTION READ ONLY")
    if hasattr(connection, "decoders"):  # PyMySQL's: a BIT(1), which is a boolean, would come as the character U+0001
        connection.decoders[_MYSQL_BIT] = lambda value: int.from_bytes(value, "big")


def _prepare_postgres(connection: Any, _: object) -> None:
    if type(connection).__module__.partition(".")[0] == "psycopg":  # the driver that comes with our extra
        from connector.extract.sql.postgres import keep_strange_dates

        keep_strange_dates(connection)


_PREPARE: Mapping[str, Callable[[Any, object], None]] = {
    "sqlite": _prepare_sqlite,
    "postgresql": _prepare_postgres,
    "mysql": _prepare_mysql,
    "mariadb": _prepare_mysql,
}
