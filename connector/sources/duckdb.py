"""Reads a query or a table of a DuckDB file as a source, as a stream of Arrow batches."""

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import sqlalchemy as sa

from connector.driver_errors import describe_error
from connector.errors import ConfigurationError, ContentError, SourceError
from connector.rows import Chunk, CloseableResource, closed_on_error
from connector.sources.cell_text import CHUNK_ROWS, UnreadableValue, build_row_chunk, read_values
from connector.sources.cursor import (
    CURSOR_PARAMETER,
    ColumnType,
    CursorBound,
    CursorKind,
    CursorWatch,
    replace_cursor,
    uses_cursor,
)
from connector.sources.header_row import build_column_names

_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "memory_limit": "256MB", "threads": 1, "autoinstall_known_extensions": False,
}  # fmt: skip
"""By default, DuckDB uses 80 % of the memory, and downloads extensions. If DuckDB needs more memory than the limit, it
writes temporary files."""

_COLUMN_TYPES: tuple[tuple[Callable[[pa.DataType], bool], ColumnType], ...] = (
    (pa.types.is_integer, ColumnType.NUMBER), (pa.types.is_floating, ColumnType.NUMBER),
    (pa.types.is_decimal, ColumnType.NUMBER), (pa.types.is_date, ColumnType.DATE),
    (pa.types.is_string, ColumnType.TEXT), (pa.types.is_boolean, ColumnType.BOOLEAN),
    (pa.types.is_time, ColumnType.OTHER), (pa.types.is_interval, ColumnType.OTHER),
    (pa.types.is_binary, ColumnType.OTHER), (pa.types.is_nested, ColumnType.OTHER),
)  # fmt: skip


_TYPES_CHANGED_BY_ARROW = frozenset({"time with time zone", "time", "bit", "interval", "uhugeint", "bignum"})
"""Types with values that Arrow changes (24:00, a time zone, the largest numbers) or cannot write as text. DuckDB casts
columns of these types to texts."""

_SQL_TYPE_BY_KIND = {CursorKind.TIMESTAMP: "TIMESTAMP", CursorKind.DATE: "DATE", CursorKind.INTEGER: "BIGINT"}
"""The SQL type of a bound that is null. Without a type, DuckDB would compare the null with a column of any type, and
would not refuse a column of a wrong type."""


class DuckdbSource(CloseableResource):
    """The result of a query, opened by `open_duckdb`. `cursor_watch` records the values of the cursor column."""

    def __init__(
        self, path: Path, query: str, query_parameters: Mapping[str, object], cursor_watch: CursorWatch | None
    ) -> None:
        self.name = f"duckdb:///{path}"
        self._query, self._query_parameters, self._watch = query, query_parameters, cursor_watch
        try:
            self._connection = duckdb.connect(str(path), read_only=True, config=_SETTINGS)
        except duckdb.Error as error:
            raise SourceError(f"{self.name}: {describe_error(error)}") from None
        with closed_on_error(self):
            try:
                # Only a SELECT is allowed, because a read-only connection can still write other files (COPY, ATTACH).
                statements = self._connection.extract_statements(self._query)
                if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                    raise ConfigurationError(f"{self.name}: the query is not a SELECT, and a source only reads")
                self._reader = self._execute_query()
            except duckdb.Error as error:
                raise SourceError(f"{self.name}: {describe_error(error)}") from None
        self._is_unread = True

    def read_chunks(self, used_columns: Collection[str] | None = None) -> Iterator[Chunk]:
        """See `Source`."""
        first_row_number = 1
        try:
            if not self._is_unread:
                self._reader.close()  # a connection can have only one open result
                # The columns stay the same, because no other process can write to the open file.
                self._reader = self._execute_query()
            self._is_unread = False
            for batch in self._reader:
                column_values = [read_values(column) for column in batch.columns]
                for index in self._lossy_indices:
                    column_values[index] = [
                        None if value is None else UnreadableValue(str(value)) for value in column_values[index]
                    ]
                if batch.num_rows and self._watch is not None:
                    self._watch.record(column_values[self.columns.index(self._watch.column)], first_row_number)
                if batch.num_rows:
                    yield build_row_chunk(self.name, self.columns, column_values, first_row_number, used_columns)
                first_row_number += batch.num_rows
        except (duckdb.Error, pa.ArrowException, OSError) as error:  # Arrow raises OSError for an error of DuckDB
            error_type = ContentError if isinstance(error, duckdb.DataError) else SourceError
            raise error_type(
                f"{self.name}: reading stopped after row {first_row_number - 1}: {describe_error(error)}"
            ) from None

    def find_type(self, column: str) -> ColumnType | None:
        """Return the type of a column of the result, or None if `ColumnType` does not have the type."""
        index = self.columns.index(column)
        if index in self._cast_indices:
            return ColumnType.OTHER
        arrow_type = self._reader.schema.field(index).type
        if pa.types.is_timestamp(arrow_type):
            return ColumnType.TIMESTAMP if arrow_type.tz is None else ColumnType.ZONED_TIMESTAMP
        return next((column_type for is_type, column_type in _COLUMN_TYPES if is_type(arrow_type)), None)

    def close(self) -> None:
        """Release the connection. A second call does nothing."""
        self._connection.close()

    def _execute_query(self) -> pa.RecordBatchReader:
        """Execute the query, and set the names of the columns. Return a reader of Arrow batches, because DuckDB would
        need pytz to return times with a zone as Python values."""
        relation: Any = self._connection.sql(self._query, params=dict(self._query_parameters) or None)
        self.columns = build_column_names(relation.columns)
        cursor_column = None if self._watch is None else self._watch.column
        column_sqls = [
            f"#{column_number}" if name == cursor_column else _build_column_sql(column_number, duckdb_type)
            for column_number, (name, duckdb_type) in enumerate(zip(self.columns, relation.types, strict=True), 1)
        ]
        self._cast_indices = [index for index, column in enumerate(column_sqls) if not column.startswith("#")]
        self._lossy_indices = [
            index
            for index, duckdb_type in enumerate(relation.types)
            if index not in self._cast_indices and _is_changed_by_arrow(duckdb_type)
        ]
        if self._cast_indices:
            relation = relation.project(", ".join(column_sqls))
        # Before version 2, DuckDB has only `fetch_record_batch`.
        open_reader = getattr(relation, "to_arrow_reader", None) or relation.fetch_record_batch
        return open_reader(CHUNK_ROWS)


def _build_column_sql(column_number: int, duckdb_type: Any) -> str:
    """Return the SQL of the column with this number (from 1). Cast the column to text if Arrow would change its
    values."""
    if duckdb_type.id in _TYPES_CHANGED_BY_ARROW:
        return f"cast(#{column_number} as varchar)"
    if duckdb_type.id == "list" and duckdb_type.children[0][1].id in _TYPES_CHANGED_BY_ARROW:
        return f"cast(#{column_number} as varchar[])"
    return f"#{column_number}"


def _is_changed_by_arrow(duckdb_type: Any) -> bool:
    """Return whether Arrow would change values of this type, or of a type inside it."""
    inner_types = duckdb_type.children if duckdb_type.id in ("list", "array", "struct", "map", "union") else ()
    return duckdb_type.id in _TYPES_CHANGED_BY_ARROW or any(
        _is_changed_by_arrow(inner_type) for _, inner_type in inner_types if not isinstance(inner_type, int)
    )


def open_duckdb(
    url: sa.URL,
    query: str | None,
    table: str | None,
    cursor_bound: CursorBound | None,
    cursor_watch: CursorWatch | None,
) -> DuckdbSource:
    """Open a query or a table (`name` or `schema.name`) of a DuckDB file, like `open_sql`.

    Raises ConfigurationError for a URL without a file and for a query that is not a SELECT. Raises SourceError if the
    file does not exist, is not a database, or is open for writing in another process.
    """
    if url.host or not url.database or url.database == ":memory:" or url.query:
        raise ConfigurationError("a DuckDB source needs a file: write duckdb:///crm.duckdb, without any options")
    path = Path(url.database)
    if not path.is_file():
        raise SourceError(f"{path}: there is no such DuckDB database; check the path")
    if query is None:
        schema, _, table_name = (table or "").rpartition(".")
        query = f"select * from {'.'.join(_quote_name(part) for part in (schema, table_name) if part)}"  # noqa: S608 - quoted
        if cursor_bound is not None:
            column = _quote_name(cursor_bound.column)
            query += (
                " where 1 = 0"
                if cursor_bound.value is None
                else f" where {column} >= :{CURSOR_PARAMETER} or {column} is null"
            )
    if cursor_bound is None:
        return DuckdbSource(path, query, {}, cursor_watch)
    cursor_sql = f"${CURSOR_PARAMETER}"
    if cursor_bound.value is None:
        cursor_sql = f"CAST({cursor_sql} AS {_SQL_TYPE_BY_KIND[cursor_bound.kind]})"
    query_parameters = {CURSOR_PARAMETER: cursor_bound.value} if uses_cursor(query, "duckdb") else {}
    return DuckdbSource(path, replace_cursor(query, "duckdb", cursor_sql), query_parameters, cursor_watch)


def _quote_name(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'
