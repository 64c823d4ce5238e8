"""Reads a query or a table of a database as a source, as a stream of chunks. Nothing is ever written to the database.

`open_sql` reads all rows, and `IncrementalSource` reads rows from the value of a cursor on. The ledger has this value
and is opened later. So an incremental source first reads only its columns, and connects again for its rows.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import sqlalchemy as sa

from connector import databases
from connector.databases import explain, parse_url, show_url
from connector.errors import ConfigurationError, ContentError, SourceError, UnreachableError
from connector.rows import Chunk, CloseableResource, Source
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
from connector.texts import agree, count

if TYPE_CHECKING:
    from connector.sources.duckdb import DuckdbSource

_UNREACHABLE = re.compile(
    "(?i)connection refused|timed? ?out|timeout|starting up|shutting down|too many (clients|connections)|is locked"
    "|closed the connection|connection reset|no route to host"
)
"""Texts in errors of drivers, if the database may answer later."""


_TYPE_ERRORS = ("operator does not exist", "Cannot compare values")
"""Texts in errors of databases that refuse to compare a column with the cursor."""
_CAST_ADVICE = "; compare :cursor with a column of its type, such as cast(updated_at as timestamp)"


class QuerySource(CloseableResource):
    """The result of a query, opened by `open_sql`. `watch` records the values of the cursor column."""

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
                    self._watch.record(values[self.columns.index(self._watch.column)], number)
                chunk = build_row_chunk(self.name, self.columns, values, number, used)
                yield (
                    replace(chunk, share=1.0) if len(rows) < CHUNK_ROWS else chunk
                )  # only the last chunk has fewer rows
                number += len(rows)
        except (sa.exc.SQLAlchemyError, UnicodeError) as error:
            # The next run would read the same value that the query cannot convert, or the same undecodable text.
            kind = ContentError if isinstance(error, sa.exc.DataError | UnicodeError) else SourceError
            raise kind(f"{self.name}: reading stopped after row {number - 1}: {explain(error, self._url)}") from None

    def find_type(self, column: str) -> ColumnType | None:
        """Return the type of a column of the result, or None if the driver does not report the type."""
        description: Any = self._result.cursor.description if self._result is not None else None
        return read_type(self._engine.dialect.name, description[self.columns.index(column)][1])

    def close(self) -> None:
        """Release the connection, whose transaction is rolled back; may be called more than once."""
        self._release()
        self._engine.dispose()

    def _execute(self) -> tuple[str, ...]:
        """Execute the statement, and return the names of the columns."""
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
            raise ConfigurationError(f"{self.name}: the query returns no rows; a source needs a SELECT")
        return name_columns([str(name) for name in self._result.keys()])  # noqa: SIM118 - no mapping

    def _release(self) -> None:
        """Close the connection without reading the remaining rows.

        PyMySQL would read all of them, because MySQL does not stop sending. So the connection is cut.
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
    """Open a query, or a table (`name` or `schema.name`), with each value as text. Read rows from the cursor's `bound`
    on; `watch` records the values of the cursor.

    NULL is missing, booleans are true and false, numbers are plain, dates and times ISO, lists and objects JSON. A row
    with bytes that are not UTF-8 is malformed. Other colons in the query than `:cursor` stay. Errors show no password.
    Raises ConfigurationError for a URL without a driver and for a query that is not a SELECT, and SourceError if the
    database cannot be reached or refuses the query.
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


class IncrementalSource(CloseableResource):
    """A query with `:cursor`, or a table, whose rows are read from a value of the cursor's `column` on.

    Rows of a table without a value in this column are always read. Call `begin_at`, then read the chunks one or more
    times.
    """

    def __init__(
        self, url: str, *, query: str | None = None, table: str | None = None, column: str, kind: CursorKind
    ) -> None:
        """Read the columns, and check that all values of the cursor's column can be compared with the cursor.

        The query is executed with NULL as its cursor, so it returns no rows. Raises the errors of `open_sql`, and
        ConfigurationError if the column is not in the result, or if a value cannot be compared.
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
            is_of_types = any(words in str(error) for words in _TYPE_ERRORS)
            raise SourceError(f"{error}{_CAST_ADVICE if is_of_types else ''}") from None
        if why := explain_type(column, kind, self._type, self._database, is_table=query is None):
            raise ConfigurationError(f"{self.name}: {why}")
        is_moment = self._type is ColumnType.MOMENT and kind is CursorKind.TIMESTAMP
        self.watch = CursorWatch(column, kind, is_moment=is_moment)
        self._offset = self._check_values()

    def begin_at(self, value: CursorValue, *, now: datetime | None = None, latest: CursorValue | None = None) -> None:
        """Set the value from which rows are read. The watch uses `now` and `latest` to recognise values in the future.
        Raises ConfigurationError if a column of MariaDB has UUIDs and the value is another text."""
        self._bound = convert_bound(value, self._database, self._type, self._offset)
        if self._database in MYSQL and self._query is None and self.watch.kind is CursorKind.TEXT:
            self._refuse_uuid(self._bound)
        self.watch = replace(self.watch, now=now, latest=latest)

    def convert_saved(self, value: CursorValue) -> CursorValue:
        """Return a saved cursor. An earlier version saved a TIMESTAMP of MySQL without a zone, in the unknown zone of a
        session. For such a cursor, return the earliest possible moment."""
        is_of_session = self._database in MYSQL and self.watch.is_moment
        if is_of_session and isinstance(value, datetime) and value.tzinfo is None:
            return convert_session_time(value)
        return value

    def chunks(self, used: Collection[str] | None = None) -> Iterator[Chunk]:
        """See `Source`. Each call resets the recorded values of the cursor.

        Raises ConfigurationError at the end if a value cannot be compared with the cursor.
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
        """Close the connection if it is open. May be called more than once."""
        if self._source is not None:
            self._source.close()

    def _open(self) -> "QuerySource | DuckdbSource":
        bound = CursorBound(self.watch.column, self.watch.kind, self._bound)
        watch = None if self._bound is None else self.watch
        return open_sql(self._url, query=self._query, table=self._table, bound=bound, watch=watch)

    def _refuse_column(self, column: str) -> None:
        if f"{column} (2)" in self.columns:  # the name of a second column with the same name
            raise ConfigurationError(f"{self.name}: more than one column is named {column}: rename the other columns")
        if column not in self.columns:
            similar = get_close_matches(column, self.columns, n=1)
            hint = f" (did you mean {similar[0]}?)" if similar else ""
            raise ConfigurationError(
                f"{self.name}: the cursor's column {column} is not in the result{hint}; select it, too. "
                f"Its columns: {', '.join(self.columns)}"
            )

    def _check_values(self) -> timedelta:
        """Raise ConfigurationError if values cannot be compared, because a comparison would leave out their rows.
        Return the smallest offset from UTC of texts with a zone."""
        if not compares_texts(self._database):  # the type of the column was checked before
            return timedelta()
        column, kind = self.watch.column, self.watch.kind
        if self._query is None:
            columns: tuple[str, ...] = (column,)
            rows = f"SELECT {self._quote(column)} FROM {self._quote_table()}"  # noqa: S608 - names, quoted
        else:
            columns, rows = self.columns, self._query.rstrip().rstrip(";")
            if self._database == "sqlite":  # compared with a column of texts, a number without a cast becomes text
                rows = mark_cursor(rows, self._database, f"CAST(:{CURSOR} AS REAL)")
        text = build_check(self._database, kind, self._type, rows, columns, column)
        if text is None:
            return timedelta()
        lowest = CursorBound(column, kind, choose_lowest(self._database)) if self._query is not None else None
        (row,) = self._fetch(build_query(text, lowest, self._database))
        value_count, example, quarters = tuple(row)
        if value_count:
            self._refuse_values(int(value_count), example)
        return read_quarters(quarters)

    def _refuse_uuid(self, value: object) -> None:
        """Raise ConfigurationError if the column has UUIDs and the value is another text. For MariaDB their comparison
        is NULL, so no row would be read."""
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
        try:
            with _build_engine(url).connect() as connection:  # the engine has no pool to dispose of
                return connection.execute(statement).fetchall()
        except (sa.exc.SQLAlchemyError, UnicodeError) as error:
            raise SourceError(f"{self.name}: {explain(error, url)}") from None

    def _refuse_values(self, value_count: int, example: object, record: str = "") -> NoReturn:
        column, kind = self.watch.column, self.watch.kind
        kind_name = "whole number" if kind is CursorKind.INTEGER else str(kind)
        raise ConfigurationError(
            f"{self.name}: {count(value_count, 'row')} {agree(value_count, 'has', 'have')} no {kind_name} in {column} "
            f"that can be compared with the cursor (for example {record}{show_example(example)}), so later runs would "
            f"not read {agree(value_count, 'it', 'them')}. Correct {agree(value_count, 'the row', 'the rows')}, "
            "convert the column in a query, or write start as the column's values are"
        )


_MYSQL_BIT = 16  # the number of the type in the protocol


def describe_place(text: str) -> str:
    """Return a text that identifies the database of a URL. Its password, driver and options are left out."""
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
        sa.event.listen(engine, "connect", partial(_prepare_mysql, is_in_utc=is_in_utc))
    elif engine.driver == "psycopg":
        sa.event.listen(engine, "connect", _prepare_psycopg)
    return engine


def _prepare_sqlite(connection: Any, _: object) -> None:
    """Return texts as bytes, and forbid writing. As bytes, a text that is not UTF-8 makes only its row malformed."""
    connection.text_factory = bytes
    connection.execute("PRAGMA query_only = ON")
    connection.create_function(OFFSET_FUNCTION, 1, read_offset, deterministic=True)


def _prepare_psycopg(connection: Any, _: object) -> None:
    """Load arrays of user-defined types (enums, domains, types of extensions) as lists. Load values that Python cannot
    represent as texts: intervals, whose months have no fixed length, and dates and times beyond Python's range. Load a
    composite value as `NoText`."""
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
    """Return a psycopg loader that returns a value as text if `base` cannot load the value, for example infinity."""

    class LenientLoader(base):  # type: ignore[misc] # the class is chosen at run time
        def load(self, data: Any) -> object:
            try:
                return super().load(data)
            except error:
                return bytes(data).decode()

    return LenientLoader


def _prepare_mysql(connection: Any, _: object, *, is_in_utc: bool) -> None:
    """Forbid writing for the session, because a statement such as CREATE TABLE would end a read-only transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION TRANSACTION READ ONLY")
        if is_in_utc:
            cursor.execute("SET SESSION time_zone = '+00:00'")
    if hasattr(connection, "decoders"):  # PyMySQL reads a BIT(1), which is a boolean, as the character U+0001
        connection.decoders[_MYSQL_BIT] = lambda value: int.from_bytes(value, "big")
