"""Reads a query or a table of a database as a source, as a stream of chunks. Nothing is ever written to the database.

`open_sql` reads all rows. `IncrementalSource` reads the rows whose value in the cursor column is at least a bound. The
bound depends on the cursor in the ledger, and the ledger is opened after the source. So an incremental source first
reads only its columns, and connects again to read its rows.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import sqlalchemy as sa

from connector import databases
from connector.databases import explain, format_url, parse_url
from connector.errors import ConfigurationError, ContentError, SourceError, UnreachableError
from connector.rows import Chunk, CloseableResource, Source
from connector.sources.cell_text import CHUNK_ROWS, UnreadableValue, build_row_chunk
from connector.sources.cursor import (
    CURSOR_PARAMETER,
    MYSQL_DATABASES,
    ColumnType,
    CursorBound,
    CursorKind,
    CursorValue,
    CursorWatch,
    build_query,
    build_select,
    explain_why_query_may_write,
    replace_cursor,
)
from connector.sources.cursor_columns import (
    OFFSET_FUNCTION,
    build_check_sql,
    can_compare_texts,
    convert_bound,
    explain_type,
    format_example,
    read_offset,
    read_type,
)
from connector.sources.header_row import build_column_names
from connector.texts import choose_form, count

if TYPE_CHECKING:
    from connector.sources.duckdb import DuckdbSource

_UNREACHABLE_ERROR_PATTERN = re.compile(
    "(?i)connection refused|timed? ?out|timeout|starting up|shutting down|too many (clients|connections)|is locked"
    "|closed the connection|connection reset|no route to host"
)
"""Texts in errors of drivers. These errors mean that the database may answer later."""

_TYPE_ERROR_TEXTS = ("operator does not exist", "Cannot compare values")
"""Texts in errors of databases that cannot compare a column with the cursor."""
_LARGEST_UTC_OFFSET = timedelta(hours=14)  # the zone that is furthest ahead of UTC (Kiribati)
_CAST_ADVICE = "; compare :cursor with a column of its type, such as cast(updated_at as timestamp)"


class QuerySource(CloseableResource):
    """The result of a query, opened by `open_sql`. `cursor_watch` records the values of the cursor column."""

    def __init__(
        self,
        url: sa.URL,
        statement: sa.TextClause | sa.Select[tuple[object]],
        cursor_watch: CursorWatch | None = None,
    ) -> None:
        self.name = format_url(url)
        is_in_utc = cursor_watch is not None and cursor_watch.is_zoned
        self._url, self._engine, self._watch = url, _build_engine(url, is_in_utc=is_in_utc), cursor_watch
        self._statement = statement
        self._connection: sa.Connection | None = None
        self._result: sa.CursorResult[Any] | None = None
        self.columns = self._execute_query()
        self._is_unread = True

    def read_chunks(self, used_columns: Collection[str] | None = None) -> Iterator[Chunk]:
        """See `Source`."""
        if not self._is_unread and self._execute_query() != self.columns:
            raise SourceError(f"{self.name}: its columns have changed since the run began; run again")
        self._is_unread = False
        if self._result is None:
            return
        first_row_number = 1
        try:
            for rows in self._result.partitions(CHUNK_ROWS):
                column_values = list(zip(*rows, strict=True))
                if self._watch is not None:
                    self._watch.record(column_values[self.columns.index(self._watch.column)], first_row_number)
                chunk = build_row_chunk(self.name, self.columns, column_values, first_row_number, used_columns)
                # Only the last chunk has fewer rows.
                yield replace(chunk, read_share=1.0) if len(rows) < CHUNK_ROWS else chunk
                first_row_number += len(rows)
        except (sa.exc.SQLAlchemyError, UnicodeError) as error:
            # A new run does not help: it would fail at the same value or the same undecodable text. So the error is a
            # ContentError.
            error_type = ContentError if isinstance(error, sa.exc.DataError | UnicodeError) else SourceError
            raise error_type(
                f"{self.name}: reading stopped after row {first_row_number - 1}: {explain(error, self._url)}"
            ) from None

    def find_type(self, column: str) -> ColumnType | None:
        """Return the type of a column of the result, or None if the driver does not report the type."""
        description: Any = self._result.cursor.description if self._result is not None else None
        return read_type(self._engine.dialect.name, description[self.columns.index(column)][1])

    def close(self) -> None:
        """Release the connection, and roll back its transaction. A second call does nothing."""
        self._close_without_reading()
        self._engine.dispose()

    def _execute_query(self) -> tuple[str, ...]:
        """Execute the statement, and return the names of the columns."""
        self._close_without_reading()
        options: dict[str, object] = {"yield_per": CHUNK_ROWS}
        if self._engine.dialect.name == "postgresql":
            options["postgresql_readonly"] = True
        try:
            self._connection = self._engine.connect()
            self._connection = self._connection.execution_options(**options)
            self._result = self._connection.execute(self._statement)
        except (sa.exc.SQLAlchemyError, UnicodeError) as error:
            self.close()
            is_unreachable = _UNREACHABLE_ERROR_PATTERN.search(str(getattr(error, "orig", "")))
            error_type = UnreachableError if is_unreachable else SourceError
            raise error_type(f"{self.name}: {explain(error, self._url)}") from None
        if not self._result.returns_rows:
            self.close()
            raise ConfigurationError(f"{self.name}: the query is a statement without a result; write a SELECT")
        return build_column_names([str(name) for name in self._result.keys()])  # noqa: SIM118 - no mapping

    def _close_without_reading(self) -> None:
        """Close the connection without reading the remaining rows.

        PyMySQL would read all remaining rows, because MySQL does not stop sending. So this function cuts the
        connection.
        """
        if self._connection is None:
            return
        # Only PyMySQL has the attribute `_result`.
        driver_result: Any = getattr(getattr(self._result, "cursor", None), "_result", None)
        if getattr(driver_result, "unbuffered_active", False):
            driver_result.unbuffered_active = False
            self._connection.invalidate()
        if self._result is not None:
            self._result.close()  # PostgreSQL's cursor on the server must be closed before the connection
        self._connection.close()
        self._connection = self._result = None


def open_sql(
    url: str,
    *,
    query: str | None = None,
    table: str | None = None,
    cursor_bound: CursorBound | None = None,
    cursor_watch: CursorWatch | None = None,
) -> "QuerySource | DuckdbSource":
    """Open a query, or a table (`name` or `schema.name`). Each value is read as text. With `cursor_bound`, only rows
    whose value in the cursor column is at least the bound are read. `cursor_watch` records the values of this column.

    NULL is a missing value. Booleans are `true` and `false`, numbers of at most 15 digits have no exponent, dates and
    times are in ISO form, and lists and objects are JSON. A row with bytes that are not UTF-8 is malformed. In the
    query, only the colon of `:cursor` has a meaning. Errors show no password.

    Raises ConfigurationError for a URL without a driver and for a query that is not a SELECT. Raises SourceError if the
    database cannot be reached or refuses the query.
    """
    if (query is None) == (table is None):
        raise ConfigurationError("a SQL source needs either a query or a table")
    parsed_url = parse_url(url)
    backend_name = parsed_url.get_backend_name()
    if backend_name == "duckdb":
        from connector.sources.duckdb import open_duckdb  # imported here, because other databases do not need DuckDB

        return open_duckdb(parsed_url, query, table, cursor_bound, cursor_watch)
    if query is None:
        return QuerySource(parsed_url, build_select(table or "", cursor_bound, backend_name), cursor_watch)
    if reason := explain_why_query_may_write(query, backend_name):
        raise ConfigurationError(
            f"{format_url(parsed_url)}: {reason}, and a source only reads; write one SELECT, or one WITH that writes "
            "nothing"
        )
    return QuerySource(parsed_url, build_query(query, cursor_bound, backend_name), cursor_watch)


class IncrementalSource(CloseableResource):
    """A query with `:cursor`, or a table. `set_start` sets a bound. The chunks have only rows whose value in `column`
    is at least the bound.

    Rows of a table that have no value in this column are always read. Call `set_start` first. Then the chunks can be
    read once or several times.
    """

    def __init__(
        self, url: str, *, query: str | None = None, table: str | None = None, column: str, kind: CursorKind
    ) -> None:
        """Read the columns, and check that all values of the cursor's column can be compared with the cursor.

        The query is executed with NULL in place of `:cursor`, so that it returns no rows. Raises the errors of
        `open_sql`. Raises ConfigurationError if the column is not in the result, or if a value cannot be compared.
        """
        self.watch = CursorWatch(column, kind)
        self.is_read_to_end = False
        self._url, self._query, self._table = url, query, table
        self._database = parse_url(url).get_backend_name()
        self._source: Source | None = None
        self._bound: object = None
        try:
            with self._open_query() as empty_source:
                self.name, self.columns = empty_source.name, empty_source.columns
                self._refuse_missing_column(column)
                self._type = empty_source.find_type(column)
        except SourceError as error:
            is_type_error = any(text in str(error) for text in _TYPE_ERROR_TEXTS)
            raise SourceError(f"{error}{_CAST_ADVICE if is_type_error else ''}") from None
        if reason := explain_type(column, kind, self._type, self._database, is_table=query is None):
            raise ConfigurationError(f"{self.name}: {reason}")
        is_zoned = self._type is ColumnType.ZONED_TIMESTAMP and kind is CursorKind.TIMESTAMP
        self.watch = CursorWatch(column, kind, is_zoned=is_zoned)
        self._smallest_offset = self._check_values_and_find_smallest_offset()

    def set_start(
        self, value: CursorValue, *, now: datetime | None = None, latest_allowed_value: CursorValue | None = None
    ) -> None:
        """Set the bound: rows whose value in the cursor column is at least `value` are read. `now` and
        `latest_allowed_value` are attributes of the `CursorWatch`, which recognises values in the future."""
        self._bound = convert_bound(value, self._database, self._type, self._smallest_offset)
        self.watch = replace(self.watch, now=now, latest_allowed_value=latest_allowed_value)

    def convert_saved_value(self, value: CursorValue) -> CursorValue:
        """Return a saved cursor unchanged. Exception: for a TIMESTAMP of MySQL without a zone, return the earliest
        moment that the cursor can mean. An earlier version of the connector saved these cursors in the time
        zone of the session, which is unknown."""
        is_mysql_timestamp = self._database in MYSQL_DATABASES and self.watch.is_zoned
        if is_mysql_timestamp and isinstance(value, datetime) and value.tzinfo is None:
            return value.replace(tzinfo=timezone(_LARGEST_UTC_OFFSET)).astimezone(UTC)
        return value

    def read_chunks(self, used_columns: Collection[str] | None = None) -> Iterator[Chunk]:
        """See `Source`. Each call resets `watch`, which records the values of the cursor column.

        After the last chunk, raises ConfigurationError if any value cannot be compared with the cursor.
        """
        self.close()
        self.is_read_to_end = False
        watch = self.watch
        self.watch = CursorWatch(watch.column, watch.kind, watch.now, watch.latest_allowed_value, watch.is_zoned)
        self._source = self._open_query()
        if self._source.columns != self.columns:
            raise SourceError(f"{self.name}: its columns have changed since the run began; run again")
        yield from self._source.read_chunks(used_columns)
        if self.watch.wrong_kind_example is not None:
            row_number, example_value = self.watch.wrong_kind_example
            self._refuse_incomparable_values(self.watch.wrong_kind_count, example_value, f"row {row_number}: ")
        self.is_read_to_end = True

    def close(self) -> None:
        """Close the connection if it is open. A second call does nothing."""
        if self._source is not None:
            self._source.close()

    def _open_query(self) -> "QuerySource | DuckdbSource":
        cursor_bound = CursorBound(self.watch.column, self.watch.kind, self._bound)
        cursor_watch = None if self._bound is None else self.watch
        return open_sql(
            self._url, query=self._query, table=self._table, cursor_bound=cursor_bound, cursor_watch=cursor_watch
        )

    def _refuse_missing_column(self, column: str) -> None:
        if f"{column} (2)" in self.columns:  # `build_column_names` has renamed a second column with this name
            raise ConfigurationError(
                f"{self.name}: several columns have the name {column}: give all columns different names"
            )
        if column not in self.columns:
            similar_columns = get_close_matches(column, self.columns, n=1)
            hint = f" (did you mean {similar_columns[0]}?)" if similar_columns else ""
            raise ConfigurationError(
                f"{self.name}: the cursor's column {column} is not in the result{hint}; select it, too. "
                f"Its columns: {', '.join(self.columns)}"
            )

    def _check_values_and_find_smallest_offset(self) -> timedelta:
        """Raise ConfigurationError if some values cannot be compared with the cursor. The statement of a run would
        leave out the rows of these values. Return the smallest offset from UTC among texts with a time zone."""
        if not can_compare_texts(self._database):  # in other databases, the check by `explain_type` is enough
            return timedelta()
        column, kind = self.watch.column, self.watch.kind
        if self._query is None:
            columns: tuple[str, ...] = (column,)
            schema, _, table_name = (self._table or "").rpartition(".")
            table_sql = ".".join(self._quote_name(part) for part in (schema, table_name) if part)
            rows_sql = f"SELECT {self._quote_name(column)} FROM {table_sql}"  # noqa: S608 - names, quoted
        else:
            columns, rows_sql = self.columns, self._query.rstrip().rstrip(";")
            if self._database == "sqlite":
                # The bound is the number -Infinity. Without the cast, SQLite would compare a column of texts with the
                # text `-Inf`, and leave out the texts that sort before `-Inf`.
                rows_sql = replace_cursor(rows_sql, self._database, f"CAST(:{CURSOR_PARAMETER} AS REAL)")
        check_sql = build_check_sql(self._database, kind, self._type, rows_sql, columns, column)
        if check_sql is None:
            return timedelta()
        # The lowest bound is smaller than every value, so the query returns all rows that have a value.
        # In SQLite, numbers are smaller than texts. MySQL compares 0 with a value as a number or as a zero date.
        lowest_bound = CursorBound(column, kind, float("-inf") if self._database == "sqlite" else 0)
        statement = build_query(check_sql, None if self._query is None else lowest_bound, self._database)
        url = parse_url(self._url)
        try:
            with _build_engine(url).connect() as connection:  # the engine has no pool to dispose of
                value_count, example, smallest_offset_quarters = connection.execute(statement).one()
        except (sa.exc.SQLAlchemyError, UnicodeError) as error:
            raise SourceError(f"{self.name}: {explain(error, url)}") from None
        if value_count:
            self._refuse_incomparable_values(int(value_count), example)
        return timedelta(minutes=15) * (smallest_offset_quarters or 0)

    def _quote_name(self, name: str) -> str:
        quote_character = "`" if self._database in MYSQL_DATABASES else '"'
        return f"{quote_character}{name.replace(quote_character, quote_character * 2)}{quote_character}"

    def _refuse_incomparable_values(self, value_count: int, example: object, row_text: str = "") -> NoReturn:
        column, kind = self.watch.column, self.watch.kind
        kind_name = "whole number" if kind is CursorKind.INTEGER else str(kind)
        raise ConfigurationError(
            f"{self.name}: {count(value_count, 'row')} {choose_form(value_count, 'has', 'have')} no {kind_name} in "
            f"the column {column} that can be compared with the cursor (for example "
            f"{row_text}{format_example(example)}), so later runs would not read "
            f"{choose_form(value_count, 'the row', 'these rows')}. Correct "
            f"{choose_form(value_count, 'the row', 'the rows')}, or convert the column in a query"
        )


_MYSQL_BIT_TYPE = 16  # the number of the type BIT in the protocol


def identify_database(url_text: str) -> str:
    """Return a text that identifies the database of a URL. The password, the driver and the options are left out."""
    url = parse_url(url_text)
    return repr((url.get_backend_name(), url.username, url.host, url.port, url.database))


def _build_engine(url: sa.URL, *, is_in_utc: bool = False) -> sa.Engine:
    """Return an engine that is not connected yet. With `is_in_utc`, a MySQL session shows each TIMESTAMP in UTC.

    Raises ConfigurationError for a missing driver. The message names the extra with the driver. Raises SourceError for
    a missing SQLite file, because SQLite would create the file.
    """
    backend, database = url.get_backend_name(), url.database or ":memory:"
    if backend == "sqlite" and database != ":memory:" and not database.startswith("file:"):
        if Path(database).is_dir():
            raise SourceError(f"{database}: is a folder, not a SQLite database")
        if not Path(database).exists():
            raise SourceError(f"{database}: there is no such SQLite database; check the path")
    engine = databases.build_engine(url)
    if backend == "sqlite":
        sa.event.listen(engine, "connect", _prepare_sqlite)
    elif backend in MYSQL_DATABASES:
        sa.event.listen(engine, "connect", partial(_prepare_mysql, is_in_utc=is_in_utc))
    elif engine.driver == "psycopg":
        sa.event.listen(engine, "connect", _prepare_psycopg)
    return engine


def _prepare_sqlite(connection: Any, _: object) -> None:
    """Forbid writing, and return texts as bytes, so that a text that is not UTF-8 makes only its own row
    malformed."""
    connection.text_factory = bytes
    connection.execute("PRAGMA query_only = ON")
    connection.create_function(OFFSET_FUNCTION, 1, read_offset, deterministic=True)


def _prepare_psycopg(connection: Any, _: object) -> None:
    """Set how psycopg loads values. Arrays of user-defined types (enums, domains, types of extensions) are loaded as
    lists, and composite values as `UnreadableValue`. Values that Python cannot represent are loaded as texts:
    intervals, whose months have no fixed length, and dates and times beyond Python's range."""
    import psycopg
    from psycopg.adapt import Loader
    from psycopg.types import TypeInfo, datetime as types

    class CompositeLoader(Loader):
        def load(self, data: Any) -> object:
            return UnreadableValue(bytes(data).decode("utf-8", "replace"))

    for type_name, loader_class in (
        ("date", types.DateLoader),
        ("time", types.TimeLoader),
        ("timetz", types.TimetzLoader),
        ("timestamp", types.TimestampLoader),
        ("timestamptz", types.TimestamptzLoader),
    ):
        connection.adapters.register_loader(type_name, _build_lenient_loader(loader_class, psycopg.DataError))
    connection.adapters.register_loader("interval", psycopg.types.string.TextLoader)
    with connection.cursor() as cursor:
        cursor.execute("SELECT typname, oid, typarray, typtype FROM pg_catalog.pg_type WHERE oid >= 16384")
        for type_name, oid, array_oid, type_kind in cursor.fetchall():  # PostgreSQL's own types have oids below 16384
            if array_oid:
                TypeInfo(type_name, oid, array_oid).register(connection)
            if type_kind == "c":
                connection.adapters.register_loader(oid, CompositeLoader)
    connection.rollback()


def _build_lenient_loader(loader_class: Any, error_class: type[Exception]) -> Any:
    """Return a psycopg loader that returns a value as text if `loader_class` cannot load the value, for example
    infinity."""

    class LenientLoader(loader_class):  # type: ignore[misc] # the class is chosen at run time
        def load(self, data: Any) -> object:
            try:
                return super().load(data)
            except error_class:
                return bytes(data).decode()

    return LenientLoader


def _prepare_mysql(connection: Any, _: object, *, is_in_utc: bool) -> None:
    """Make the whole session read-only, because a statement such as CREATE TABLE would end a read-only transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION TRANSACTION READ ONLY")
        if is_in_utc:
            cursor.execute("SET SESSION time_zone = '+00:00'")
    if hasattr(connection, "decoders"):  # PyMySQL would read a boolean (BIT(1)) as the character U+0000 or U+0001
        connection.decoders[_MYSQL_BIT_TYPE] = lambda value: int.from_bytes(value, "big")
