"""A query or a table of a database as a source, streamed: rows in, chunks of texts out; nothing is ever written.

`open_sql` reads all of it, `IncrementalSource` only what is new: from a cursor's value on, and to its end or not. The
value is the ledger's, which is opened later, so the database is asked for no longer than it takes to learn the columns
until the rows are wanted.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from connector import databases
from connector.databases import explain, parse_url, show_url
from connector.errors import ConfigurationError, SourceError
from connector.rows import Chunk, Closing, Source
from connector.sources.cell_text import CHUNK_ROWS, build_row_chunk
from connector.sources.cursor import (
    CursorBound,
    CursorKind,
    CursorValue,
    CursorWatch,
    build_query,
    build_select,
    check_bound,
)
from connector.sources.header_row import name_columns


class QuerySource(Closing):
    """A query's result, opened by `open_sql`; `watch` sees the values of its cursor column."""

    def __init__(
        self,
        url: sa.URL,
        statement: sa.TextClause | sa.Select[tuple[object]],
        watch: CursorWatch | None = None,
    ) -> None:
        self.name = show_url(url)
        self._url, self._engine, self._watch, self._statement = url, _build_engine(url), watch, statement
        self._connection: sa.Connection | None = None
        self._result: sa.CursorResult[Any] | None = None
        self.columns = self._execute()
        self._is_fresh = True

    def chunks(self, used: Collection[str] | None = None) -> Iterator[Chunk]:
        """See `Source`."""
        if not self._is_fresh and self._execute() != self.columns:
            raise SourceError(f"{self.name}: its columns have changed since the run began; run again")
        self._is_fresh = False
        if self._result is None:
            return
        number = 1
        try:
            for rows in self._result.partitions(CHUNK_ROWS):
                values = list(zip(*rows, strict=True))
                if self._watch is not None:
                    self._watch.take(values[self.columns.index(self._watch.column)], number)
                chunk = build_row_chunk(self.name, self.columns, values, number, used)
                yield replace(chunk, share=1.0) if len(rows) < CHUNK_ROWS else chunk  # fewer are the last
                number += len(rows)
        except (sa.exc.SQLAlchemyError, UnicodeError) as error:
            raise SourceError(f"{self.name}: reading stopped after row {number - 1}: {self._explain(error)}") from None

    def close(self) -> None:
        """Release the connection, whose transaction is rolled back; may be called more than once."""
        self._release()
        self._engine.dispose()

    def _execute(self) -> tuple[str, ...]:
        """Ask for the rows, and return the names of their columns."""
        self._release()
        options: dict[str, object] = {"yield_per": CHUNK_ROWS}
        if self._engine.dialect.name == "postgresql":
            options["postgresql_readonly"] = True
        try:
            self._connection = self._engine.connect()
            self._connection = self._connection.execution_options(**options)
            self._result = self._connection.execute(self._statement)
        except (sa.exc.SQLAlchemyError, UnicodeError) as error:
            self.close()
            raise SourceError(f"{self.name}: {self._explain(error)}") from None
        if not self._result.returns_rows:
            self.close()
            raise ConfigurationError(f"{self.name}: the query gives no rows; a source needs a SELECT")
        return name_columns([str(name) for name in self._result.keys()])  # noqa: SIM118 - no mapping

    def _release(self) -> None:
        """Close the connection without reading what is left of the result.

        PyMySQL would read all of it, since MySQL cannot be asked to stop sending: a cut connection stops it.
        """
        if self._connection is None:
            return
        unread: Any = getattr(getattr(self._result, "cursor", None), "_result", None)  # only PyMySQL has it
        if getattr(unread, "unbuffered_active", False):
            unread.unbuffered_active = False
            self._connection.invalidate()
        if self._result is not None:
            self._result.close()  # PostgreSQL's cursor, before its connection
        self._connection.close()
        self._connection = self._result = None

    def _explain(self, error: Exception) -> str:
        is_strange = isinstance(error, sa.exc.DataError) and self._url.get_backend_name() == "postgresql"
        advice = "; select a date that Python does not have (infinity) as text" if is_strange else ""
        return explain(error, self._url) + advice


def open_sql(
    url: str,
    *,
    query: str | None = None,
    table: str | None = None,
    bound: CursorBound | None = None,
    watch: CursorWatch | None = None,
) -> Source:
    """Open a query, or a table (`name` or `schema.name`), of which every value comes as text; read from a cursor's
    `bound` on, whose values `watch` sees.

    NULL is missing, booleans are true and false, numbers plain, dates and times ISO, lists and objects JSON. Bytes
    that are not UTF-8 make their row malformed. A colon in the query stays what it is. Nothing is ever written, and no
    error shows a password. Raises ConfigurationError for a URL without a driver or a query without rows, SourceError
    for a database that cannot be reached or does not take the query.
    """
    if (query is None) == (table is None):
        raise ConfigurationError("a SQL source needs either a query or a table")
    parsed = parse_url(url)
    database = parsed.get_backend_name()
    if bound is not None:
        check_bound(bound, database)
    if database == "duckdb":
        from connector.sources.duckdb import open_duckdb  # here: other databases do not need it

        return open_duckdb(parsed, query, table, bound, watch)
    statement = build_select(table or "", bound, database) if query is None else build_query(query, bound, database)
    return QuerySource(parsed, statement, watch)


class IncrementalSource(Closing):
    """A query with a `:cursor` in it, or a table, whose rows from a value of the cursor's `column` on are read.

    Of a table, rows that have no value there are read each time. `begin_at` a value, then read the chunks, as often as
    is wanted.
    """

    def __init__(
        self, url: str, *, query: str | None = None, table: str | None = None, column: str, kind: CursorKind
    ) -> None:
        """Ask the database with NULL for the cursor, to which no value compares: it tells its columns, and no rows.

        Raises as `open_sql` does, and ConfigurationError if the column is not in the result.
        """
        self.watch = CursorWatch(column, kind)
        self.is_read_to_end = False
        self._url, self._query, self._table = url, query, table
        self._source: Source | None = None
        self._value: CursorValue | None = None
        with self._open(None) as empty:
            self.name, self.columns = empty.name, empty.columns
        if f"{column} (2)" in self.columns:  # so sources name a second one
            raise ConfigurationError(f"{self.name}: more than one column is named {column}: which is the cursor?")
        if column not in self.columns:
            meant = get_close_matches(column, self.columns, n=1)
            hint = f" (did you mean {meant[0]}?)" if meant else ""
            raise ConfigurationError(
                f"{self.name}: the cursor's column {column} is not in the result{hint}; select it, too. "
                f"Its columns: {', '.join(self.columns)}"
            )

    def begin_at(self, value: CursorValue, *, now: datetime | None = None, latest: CursorValue | None = None) -> None:
        """Read from this value on; `now` and `latest` tell the watch which values lie in the future. Raises
        ConfigurationError for a value that the database cannot compare."""
        bound = CursorBound(self.watch.column, self.watch.kind, value)
        check_bound(bound, parse_url(self._url).get_backend_name())
        self._value = value
        self.watch = CursorWatch(self.watch.column, self.watch.kind, now, latest)

    def chunks(self, used: Collection[str] | None = None) -> Iterator[Chunk]:
        """See `Source`. The values of the cursor that an earlier reading saw are forgotten."""
        self.close()
        self.is_read_to_end = False
        self.watch = CursorWatch(self.watch.column, self.watch.kind, self.watch.now, self.watch.latest)
        self._source = self._open(self._value)
        if self._source.columns != self.columns:
            raise SourceError(f"{self.name}: its columns have changed since the run began; run again")
        yield from self._source.chunks(used)
        self.is_read_to_end = True

    def close(self) -> None:
        """Release the connection, if there is one; may be called more than once."""
        if self._source is not None:
            self._source.close()

    def _open(self, value: CursorValue | None) -> Source:
        bound = CursorBound(self.watch.column, self.watch.kind, value)
        watch = None if value is None else self.watch
        return open_sql(self._url, query=self._query, table=self._table, bound=bound, watch=watch)


_MYSQL_BIT = 16  # the protocol's number of the type


def describe_place(text: str) -> str:
    """Name the database of a URL without its password, driver and options: the same text for the same database."""
    url = parse_url(text)
    return repr((url.get_backend_name(), url.username, url.host, url.port, url.database))


def _build_engine(url: sa.URL) -> sa.Engine:
    """Make an engine; nothing is connected yet.

    Raises ConfigurationError that names the extra for a missing driver, and SourceError for a missing SQLite file,
    which SQLite would create.
    """
    kind, database = url.get_backend_name(), url.database or ":memory:"
    if kind == "sqlite" and database != ":memory:" and not database.startswith("file:"):
        if Path(database).is_dir():
            raise SourceError(f"{database}: is a folder, not a SQLite database")
        if not Path(database).exists():
            raise SourceError(f"{database}: there is no such SQLite database; check the path")
    engine = databases.build_engine(url)
    if kind == "sqlite":
        sa.event.listen(engine, "connect", _prepare_sqlite)
    elif kind in ("mysql", "mariadb"):
        sa.event.listen(engine, "connect", _prepare_mysql)
    elif engine.driver == "psycopg":
        sa.event.listen(engine, "connect", _prepare_psycopg)
    return engine


def _prepare_sqlite(connection: Any, _: object) -> None:
    """Texts come as bytes, so that one that is not UTF-8 costs its row and not the query; and nothing is written."""
    connection.text_factory = bytes
    connection.execute("PRAGMA query_only = ON")


def _prepare_psycopg(connection: Any, _: object) -> None:
    """Let arrays of the database's own types (enums, domains, types of extensions) come as lists, not as text."""
    from psycopg.types import TypeInfo

    with connection.cursor() as cursor:
        cursor.execute("SELECT typname, oid, typarray FROM pg_catalog.pg_type WHERE typarray <> 0 AND oid >= 16384")
        for name, oid, array_oid in cursor.fetchall():  # oids below 16384 are PostgreSQL's own
            TypeInfo(name, oid, array_oid).register(connection)
    connection.rollback()


def _prepare_mysql(connection: Any, _: object) -> None:
    """Nothing is written; for the session, since a statement such as CREATE TABLE ends a transaction and its rules."""
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION TRANSACTION READ ONLY")
    if hasattr(connection, "decoders"):  # PyMySQL's: a BIT(1), which is a boolean, would come as the character U+0001
        connection.decoders[_MYSQL_BIT] = lambda value: int.from_bytes(value, "big")
