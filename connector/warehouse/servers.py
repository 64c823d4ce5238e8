"""A database that SQLAlchemy connects to: transactions, statements, the existing tables, and errors."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from connector.databases import DatabaseUrl, build_engine, explain, list_errors, show_url
from connector.warehouse.dialect import Statement, TableName
from connector.warehouse.interruption import Interruption

_TYPES: Mapping[type, sa.types.TypeEngine[Any]] = {
    bool: sa.Boolean(),
    int: sa.BigInteger(),
    str: sa.String(),
    datetime: sa.DateTime(timezone=True),
}
"""Types of values, which some drivers cannot infer."""

_QUOTED = re.compile(r'"[^"]*"|`[^`]*`|\[[^\]]*\]')
"""Quoted names in a statement. SQLAlchemy would read a colon in such a name as the beginning of a parameter."""

_RACES = ("42P06", "42P07", "42710", 1050, 1684)
"""Codes for a schema or table that exists already: SQLSTATE of PostgreSQL (also for the row type), and of MySQL for
tables."""


class ServerDatabase:
    """The database of an engine. A kind of database adds its dialect, `load`, `find_referrers`, `write_time` and
    `is_passing`."""

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine
        self._connection: sa.Connection | None = None

    def __str__(self) -> str:
        return show_url(self.engine.url)

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """The classes of errors that SQLAlchemy and the driver raise."""
        return list_errors(self.engine)

    @property
    def connection(self) -> sa.Connection:
        """The connection of the open transaction."""
        if self._connection is None:
            raise ValueError("connect() comes first")
        return self._connection

    def make_file(self) -> bool:
        """Return False: if the database is a file, its driver creates the file."""
        return False

    def remove_file(self) -> None:
        """Do nothing: `make_file` creates no file."""

    @contextmanager
    def connect(self, interruption: Interruption) -> Iterator[None]:
        """Open a transaction on a new connection. An interruption cancels the running statement."""
        with self.engine.connect() as connection, interruption.cancel_by(self.build_cancel(connection)):
            self._connection = connection
            try:
                self.begin(connection)
                yield
            finally:
                self._connection = None

    def build_cancel(self, connection: sa.Connection) -> Callable[[], None]:
        """Return a function that cancels the running statement. By default it does nothing: rows are watched between
        batches."""
        return lambda: None

    def begin(self, connection: sa.Connection) -> None:
        """Set up the transaction."""

    def commit(self, interruption: Interruption) -> None:
        """Commit; from then on nothing is interrupted."""
        interruption.begin_commit()
        self.connection.commit()

    def run(self, statement: Statement) -> int:
        """Carry out a statement; return how many rows it touched."""
        done = self.connection.execute(_build_text(statement), execution_options={"preserve_rowcount": True})
        return max(0, done.rowcount)

    def fetch(self, statement: Statement, most: int) -> Sequence[Sequence[Any]]:
        """Return the first rows of a query."""
        result = self.connection.execute(_build_text(statement))
        rows = result.fetchmany(most)
        result.close()
        return rows

    def has_schema(self, schema: str) -> bool:
        """Return whether the schema is there."""
        return sa.inspect(self.connection).has_schema(schema)

    def find_table(self, name: TableName) -> tuple[str | None, Sequence[str]]:
        """Return the database's own name of a table or a view, None if it is missing, and its columns."""
        inspector = sa.inspect(self.connection)
        if not inspector.has_table(name.table, schema=name.schema):
            return None, ()
        names = inspector.get_table_names(name.schema)
        like = [each for each in names if each.lower() == name.table.lower()]
        stored_as = like[0] if like and name.table not in like else name.table
        return stored_as, [column["name"] for column in inspector.get_columns(name.table, name.schema)]

    def list_tables(self) -> Collection[str]:
        """Return the tables of the default schema."""
        return sa.inspect(self.connection).get_table_names()

    def explain(self, error: Exception) -> str:
        """Return the driver's message without secrets and personal data."""
        return explain(error, self.engine.url)

    def is_race(self, error: Exception) -> bool:
        """Return whether another export made the same schema or table (with its row type), or took the same number, at
        the same moment."""
        orig = getattr(error, "orig", error)
        first = next(iter(getattr(orig, "args", ())), None)
        state = first.get("C") if isinstance(first, dict) else getattr(orig, "sqlstate", None)  # pg8000 gives a dict
        return isinstance(error, sa.exc.IntegrityError) or state in _RACES or (type(first) is int and first in _RACES)


def escape_names(text: str) -> str:
    """Return the SQL with colons in quoted names escaped, so that SQLAlchemy reads no parameter in them."""
    return _QUOTED.sub(lambda quoted: quoted[0].replace(":", "\\:"), text)


def _build_text(statement: Statement) -> sa.TextClause:
    values = [sa.bindparam(name, value, _TYPES.get(type(value))) for name, value in statement.values.items()]
    return sa.text(escape_names(statement.text)).bindparams(*values)


def open_server(
    url: DatabaseUrl,
    defaults: Mapping[str, object] | None = None,
    fixed: Mapping[str, object] | None = None,
    **more: Any,
) -> sa.Engine:
    """Return an engine; `defaults` are options of the driver unless the URL sets them, `fixed` whatever it says."""
    given = {name: value for name, value in (defaults or {}).items() if name not in url.query} | dict(fixed or {})
    return build_engine(url, hide_parameters=True, connect_args=given, **more)


@contextmanager
def open_driver(connection: sa.Connection) -> Iterator[Any]:
    """Yield the driver's own connection, for what SQLAlchemy cannot say. If the connection was lost, SQLAlchemy learns
    it here: its rollback would fail otherwise, and hide the first failure."""
    try:
        yield connection.connection.driver_connection
    except connection.dialect.loaded_dbapi.Error as error:
        if connection.dialect.is_disconnect(error, connection.connection.dbapi_connection, None):
            connection.invalidate(error)
        raise
