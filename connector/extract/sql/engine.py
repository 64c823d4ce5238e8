"""A database's URL made an engine that only reads, and errors about it made fit for a person: no password in any.

`postgresql://` means psycopg 3, `mysql://` and `mariadb://` PyMySQL; any other URL is as SQLAlchemy takes it.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from connector.errors import ConfigurationError, SourceError

_DRIVERS = {
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
}
# A URL cut as SQLAlchemy cuts it: a user may hold an @, a password none, and what is left is host, database, options.
_PARTS = re.compile(r"(?P<scheme>[\w+]+)://(?P<user>[^:/]*(?::[^@]*)?@)?(?P<rest>.*)", re.DOTALL)

_SECRET_KEY = re.compile(r"pass|pwd|secret|token|key|credential", re.IGNORECASE)
_LEAST_MASKED = 4  # characters: a shorter option (user=u) is no secret, and would be masked within words

_MYSQL_BIT = 16  # the protocol's number of the type
_EXTRAS = {"postgresql": "postgres", "mysql": "mysql", "mariadb": "mysql"}


_ESCAPES = "in a password, and wherever else one is meant, write @ as %40 and / as %2F"


def parse_url(text: str) -> sa.URL:
    """Parse a database URL, the driver filled in. Raises ConfigurationError, without showing the URL."""
    _refuse_stray_at(text)
    try:
        url = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError):  # ValueError: a port that is no number
        raise ConfigurationError(
            "a SQL source's url is no database URL; it looks like postgresql://user:password@host/database "
            f"or sqlite:///file.db; {_ESCAPES}"
        ) from None
    return url.set(drivername=_DRIVERS.get(url.drivername, url.drivername))


def _refuse_stray_at(text: str) -> None:
    """An @ after the one that ends the password is most likely the password's own: what looks like the host is then
    a piece of it, and would be looked up and shown. A URL without user and host, of a file, may hold any."""
    parts = _PARTS.match(text)
    if parts is None or "@" not in parts["rest"]:
        return
    if parts["user"] is not None or not parts["rest"].startswith(("/", "?")):
        raise ConfigurationError(
            f"a SQL source's url, {parts['scheme']}://…, holds an @ in its host, database or options; {_ESCAPES}"
        )


def show_url(url: sa.URL) -> str:
    """The URL for people: no password, and no options, which may hold one too."""
    return url.set(query={}, drivername=url.drivername.partition("+")[0]).render_as_string(hide_password=True)


def describe_place(text: str) -> str:
    """Which database a URL means, whatever its password, its driver and its options: the same for the same one."""
    url = parse_url(text)
    return repr((url.get_backend_name(), url.username, url.host, url.port, url.database))


def build_engine(url: sa.URL) -> sa.Engine:
    """Make an engine; nothing is connected yet. Raises ConfigurationError naming the extra for a missing driver."""
    _refuse_missing_file(url)
    dialect = url.drivername.partition("+")[0]
    try:
        engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
    except (sa.exc.NoSuchModuleError, ModuleNotFoundError):
        extra = _EXTRAS.get(dialect)
        advice = f"pip install 'subscriber-connector[{extra}]'" if extra else "install SQLAlchemy's dialect and driver"
        raise ConfigurationError(f"{show_url(url)}: there is no driver for {url.drivername}; {advice}") from None
    except (sa.exc.ArgumentError, TypeError, ValueError) as error:
        raise ConfigurationError(f"{show_url(url)}: {explain(error, url)}") from None
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


def explain(error: BaseException, url: sa.URL) -> str:
    """The first line of what a driver says, the password and whatever else may be secret masked should it be there."""
    said = str(error.orig if isinstance(error, sa.exc.DBAPIError) else error).strip() or type(error).__name__
    line = said.splitlines()[0]
    options = [(key, value) for key, values in url.normalized_query.items() for value in values]
    secrets = {value for key, value in options if _SECRET_KEY.search(key) or len(value) >= _LEAST_MASKED}
    secrets.add(url.password or "")
    for secret in sorted(secrets - {""}, key=len, reverse=True):  # one may be a part of another
        line = line.replace(secret, "***")
    return line


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
