"""A query or a table of a database as a source, streamed: rows in, chunks of texts out; nothing is ever written.

`open_sql` reads all of it, `IncrementalSource` only what is new: from a cursor's value on, and to its end or not. The
value is the ledger's, which is opened later, so the database is asked for no longer than it takes to learn the columns
until the rows are wanted.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import sqlalchemy as sa

from connector import databases
from connector.databases import explain, parse_url, show_url
from connector.errors import ConfigurationError, ContentError, SourceError, UnreachableError
from connector.plurals import agree, count
from connector.rows import Chunk, Closing, Source
from connector.sources.cell_text import CHUNK_ROWS, NoText, build_row_chunk
from connector.sources.cursor import (
    CURSOR,
    MYSQL,
    ColumnType,
    CursorBound,
    CursorKind,
    CursorValue,
    CursorWatch,
    build_query,
    build_select,
    explain_write,
    mark_cursor,
)
from connector.sources.cursor_columns import (
    OFFSET_FUNCTION,
    build_check,
    choose_lowest,
    compares_texts,
    convert_bound,
    convert_session_time,
    explain_type,
    read_offset,
    read_quarters,
    read_type,
    show_example,
)
from connector.sources.header_row import name_columns

if TYPE_CHECKING:
    from connector.sources.duckdb import DuckdbSource

_UNREACHABLE = re.compile(
    "(?i)connection refused|timed? ?out|timeout|starting up|shutting down|too many (clients|connections)|is locked"
    "|closed the connection|connection reset|no route to host"
)
"""What drivers say of a database that may answer later."""


class QuerySource(Closing):
    """A query's result, opened by `open_sql`; `watch` sees the values of its cursor column."""

    def __init__(
        self,
        url: sa.URL,
        statement: sa.TextClause | sa.Select[tuple[object]],
        watch: CursorWatch | None = None,
    ) -> None:
        self.name = show_url(url)
        is_in_utc = watch is not None and watch.is_moment
        self._url, self._engine, self._watch = url, _build_engine(url, is_in_utc=is_in_utc), watch
        self._statement = statement
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
            # A value that the query cannot convert, or text that is not in its encoding, is there in the next run, too.
            kind = ContentError if isinstance(error, sa.exc.DataError | UnicodeError) else SourceError
            raise kind(f"{self.name}: reading stopped after row {number - 1}: {explain(error, self._url)}") from None

    def find_type(self, column: str) -> ColumnType | None:
        """Return the type of a column of the result; None if the driver does not say it."""
        description: Any = self._result.cursor.description if self._result is not None else None
        return read_type(self._engine.dialect.name, description[self.columns.index(column)][1])

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
            kind = UnreachableError if _UNREACHABLE.search(str(getattr(error, "orig", ""))) else SourceError
            raise kind(f"{self.name}: {explain(error, self._url)}") from None
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


def open_sql(
    url: str,
    *,
    query: str | None = None,
    table: str | None = None,
    bound: CursorBound | None = None,
    watch: CursorWatch | None = None,
) -> "QuerySource | DuckdbSource":
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
    if database == "duckdb":
        from connector.sources.duckdb import open_duckdb  # here: other databases do not need it

        return open_duckdb(parsed, query, table, bound, watch)
    if query is not None and (why := explain_write(query, database)):
        raise ConfigurationError(
            f"{show_url(parsed)}: {why}, and a source only reads; write one SELECT, or one WITH that writes nothing"
        )
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
        """Ask the database for the columns, and for values of the column that cannot be compared with the cursor.

        A query has NULL for its cursor then, to which no value compares, so it gives no rows. Raises as `open_sql`
        does, and ConfigurationError if the column is not in the result, or if rows cannot be compared.
        """
        self.watch = CursorWatch(column, kind)
        self.is_read_to_end = False
        self._url, self._query, self._table = url, query, table
        self._database = parse_url(url).get_backend_name()
        self._source: Source | None = None
        self._bound: object = None
        try:
            with self._open() as empty:
                self.name, self.columns = empty.name, empty.columns
                self._refuse_column(column)
                self._type = empty.find_type(column)
        except SourceError as error:
            raise SourceError(f"{error}{_advise(error)}") from None
        if why := explain_type(column, kind, self._type, self._database, is_table=query is None):
            raise ConfigurationError(f"{self.name}: {why}")
        is_moment = self._type is ColumnType.MOMENT and kind is CursorKind.TIMESTAMP
        self.watch = CursorWatch(column, kind, is_moment=is_moment)
        self._offset = self._check_values()

    def begin_at(self, value: CursorValue, *, now: datetime | None = None, latest: CursorValue | None = None) -> None:
        """Read from this value on; `now` and `latest` tell the watch which values lie in the future. Raises
        ConfigurationError for a text that a UUID of MariaDB cannot be compared with."""
        self._bound = convert_bound(value, self._database, self._type, self._offset)
        if self._database in MYSQL and self._query is None and self.watch.kind is CursorKind.TEXT:
            self._refuse_uuid(self._bound)
        self.watch = replace(self.watch, now=now, latest=latest)

    def convert_saved(self, value: CursorValue) -> CursorValue:
        """Return a cursor that was kept. An earlier version kept a TIMESTAMP of MySQL without a zone, as a session of
        an unknown zone had shown it: return the earliest moment that this can be."""
        is_of_session = self._database in MYSQL and self.watch.is_moment
        if is_of_session and isinstance(value, datetime) and value.tzinfo is None:
            return convert_session_time(value)
        return value

    def chunks(self, used: Collection[str] | None = None) -> Iterator[Chunk]:
        """See `Source`. The values of the cursor that an earlier reading saw are forgotten.

        Raises ConfigurationError at the end if rows had a value that cannot be compared.
        """
        self.close()
        self.is_read_to_end = False
        self.watch = replace(self.watch, largest=None, missing=0, strays=0, first_stray=None, ahead=0, first_ahead=None)
        self._source = self._open()
        if self._source.columns != self.columns:
            raise SourceError(f"{self.name}: its columns have changed since the run began; run again")
        yield from self._source.chunks(used)
        if self.watch.first_stray is not None:
            record, value = self.watch.first_stray
            self._refuse_values(self.watch.strays, value, f"record {record}: ")
        self.is_read_to_end = True

    def close(self) -> None:
        """Release the connection, if there is one; may be called more than once."""
        if self._source is not None:
            self._source.close()

    def _open(self) -> "QuerySource | DuckdbSource":
        bound = CursorBound(self.watch.column, self.watch.kind, self._bound)
        watch = None if self._bound is None else self.watch
        return open_sql(self._url, query=self._query, table=self._table, bound=bound, watch=watch)

    def _refuse_column(self, column: str) -> None:
        if f"{column} (2)" in self.columns:  # so sources name a second one
            raise ConfigurationError(f"{self.name}: more than one column is named {column}: which is the cursor?")
        if column not in self.columns:
            meant = get_close_matches(column, self.columns, n=1)
            hint = f" (did you mean {meant[0]}?)" if meant else ""
            raise ConfigurationError(
                f"{self.name}: the cursor's column {column} is not in the result{hint}; select it, too. "
                f"Its columns: {', '.join(self.columns)}"
            )

    def _check_values(self) -> timedelta:
        """Refuse rows that a comparison would leave out, by one statement. Return the smallest offset from UTC of texts
        with a zone."""
        if not compares_texts(self._database):  # the types of the columns have decided
            return timedelta()
        column, kind = self.watch.column, self.watch.kind
        if self._query is None:
            columns: tuple[str, ...] = (column,)
            rows = f"SELECT {self._quote(column)} FROM {self._quote_table()}"  # noqa: S608 - names, quoted
        else:
            columns, rows = self.columns, self._query.rstrip().rstrip(";")
            if self._database == "sqlite":  # a column of texts would turn a plain number into text
                rows = mark_cursor(rows, self._database, f"CAST(:{CURSOR} AS REAL)")
        text = build_check(self._database, kind, self._type, rows, columns, column)
        if text is None:
            return timedelta()
        lowest = CursorBound(column, kind, choose_lowest(self._database)) if self._query is not None else None
        (row,) = self._fetch(build_query(text, lowest, self._database))
        number, example, quarters = tuple(row)
        if number:
            self._refuse_values(int(number), example)
        return read_quarters(quarters)

    def _refuse_uuid(self, value: object) -> None:
        """MariaDB compares a UUID with a text that is not a UUID to NULL, which would leave out every row."""
        column = self._quote(self.watch.column)
        text = f"SELECT {column} >= :{CURSOR} FROM {self._quote_table()} WHERE {column} IS NOT NULL LIMIT 1"  # noqa: S608 - names, quoted
        bound = CursorBound(self.watch.column, self.watch.kind, value)
        if [tuple(row) for row in self._fetch(build_query(text, bound, self._database))] == [(None,)]:
            raise ConfigurationError(
                f"{self.name}: the cursor's column {self.watch.column} has UUIDs, and the text where reading begins is "
                "not a UUID: they cannot be compared; write start as 00000000-0000-0000-0000-000000000000"
            )

    def _quote(self, name: str) -> str:
        quote = "`" if self._database in MYSQL else '"'
        return f"{quote}{name.replace(quote, quote * 2)}{quote}"

    def _quote_table(self) -> str:
        return ".".join(self._quote(part) for part in (self._table or "").rpartition(".")[::2] if part)

    def _fetch(self, statement: sa.TextClause) -> Sequence[sa.Row[Any]]:
        url = parse_url(self._url)
        engine = _build_engine(url)
        try:
            with engine.connect() as connection:
                return connection.execute(statement).fetchall()
        except (sa.exc.SQLAlchemyError, UnicodeError) as error:
            raise SourceError(f"{self.name}: {explain(error, url)}") from None
        finally:
            engine.dispose()

    def _refuse_values(self, number: int, example: object, where: str = "") -> NoReturn:
        column, kind = self.watch.column, self.watch.kind
        what = "whole number" if kind is CursorKind.INTEGER else str(kind)
        raise ConfigurationError(
            f"{self.name}: {count(number, 'row')} {agree(number, 'has', 'have')} no {what} in {column} that can be "
            f"compared with the cursor (for example {where}{show_example(example)}), so later runs would not read "
            f"{agree(number, 'it', 'them')}. Correct {agree(number, 'the row', 'the rows')}, convert the column in a "
            "query, or write start as the column's values are"
        )


def _advise(error: SourceError) -> str:
    """Return what to do if the database refuses to compare a column with the cursor."""
    is_of_types = any(words in str(error) for words in ("operator does not exist", "Cannot compare values"))
    return "; compare :cursor with a column of its type, such as cast(updated_at as timestamp)" if is_of_types else ""


_MYSQL_BIT = 16  # the protocol's number of the type


def describe_place(text: str) -> str:
    """Name the database of a URL without its password, driver and options: the same text for the same database."""
    url = parse_url(text)
    return repr((url.get_backend_name(), url.username, url.host, url.port, url.database))


def _build_engine(url: sa.URL, *, is_in_utc: bool = False) -> sa.Engine:
    """Make an engine; nothing is connected yet. With `is_in_utc` a session of MySQL shows each TIMESTAMP in UTC.

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
        if is_in_utc:
            sa.event.listen(engine, "connect", _set_utc)
    elif engine.driver == "psycopg":
        sa.event.listen(engine, "connect", _prepare_psycopg)
    return engine


def _prepare_sqlite(connection: Any, _: object) -> None:
    """Texts come as bytes, so that one that is not UTF-8 costs its row and not the query; and nothing is written."""
    connection.text_factory = bytes
    connection.execute("PRAGMA query_only = ON")
    connection.create_function(OFFSET_FUNCTION, 1, read_offset, deterministic=True)


def _prepare_psycopg(connection: Any, _: object) -> None:
    """Let arrays of the database's own types (enums, domains, types of extensions) come as lists, and as texts what has
    no like in Python: intervals, whose months have no fixed length, and dates and times beyond Python's. A composite
    value comes as `NoText`."""
    import psycopg
    from psycopg.adapt import Loader
    from psycopg.types import TypeInfo, datetime as types

    class CompositeLoader(Loader):
        def load(self, data: Any) -> object:
            return NoText(bytes(data).decode("utf-8", "replace"))

    for name, base in (
        ("date", types.DateLoader),
        ("time", types.TimeLoader),
        ("timetz", types.TimetzLoader),
        ("timestamp", types.TimestampLoader),
        ("timestamptz", types.TimestamptzLoader),
    ):
        connection.adapters.register_loader(name, _build_lenient_loader(base, psycopg.DataError))
    connection.adapters.register_loader("interval", psycopg.types.string.TextLoader)
    with connection.cursor() as cursor:
        cursor.execute("SELECT typname, oid, typarray, typtype FROM pg_catalog.pg_type WHERE oid >= 16384")
        for name, oid, array_oid, kind in cursor.fetchall():  # oids below 16384 are PostgreSQL's own
            if array_oid:
                TypeInfo(name, oid, array_oid).register(connection)
            if kind == "c":
                connection.adapters.register_loader(oid, CompositeLoader)
    connection.rollback()


def _build_lenient_loader(base: Any, error: type[Exception]) -> Any:
    """Return a psycopg loader that gives the text of a value that `base` cannot load, such as infinity."""

    class LenientLoader(base):  # type: ignore[misc] # the class is chosen at run time
        def load(self, data: Any) -> object:
            try:
                return super().load(data)
            except error:
                return bytes(data).decode()

    return LenientLoader


def _prepare_mysql(connection: Any, _: object) -> None:
    """Nothing is written; for the session, since a statement such as CREATE TABLE ends a transaction and its rules."""
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION TRANSACTION READ ONLY")
    if hasattr(connection, "decoders"):  # PyMySQL's: a BIT(1), which is a boolean, would come as the character U+0001
        connection.decoders[_MYSQL_BIT] = lambda value: int.from_bytes(value, "big")


def _set_utc(connection: Any, _: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION time_zone = '+00:00'")
