"""An export to a SQLite file. Flags are 0 and 1, and tags are JSON arrays. Times are texts in UTC, in the form that
SQLite's own functions write, but with microseconds."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, assert_never

import numpy as np
import pyarrow as pa

from connector.driver_errors import describe_error
from connector.warehouse.columns import format_lists_as_json
from connector.warehouse.database import (
    MAX_LOCK_WAIT_S,
    ColumnKind,
    Dialect,
    Interruption,
    StagedRows,
    Statement,
    TableName,
    create_empty_file,
    ensure_database_file,
    retry_while_locked,
)
from connector.warehouse.statements import read_kinds

_SQLITE_WAIT_S = 0.5
"""Maximum time that SQLite itself waits for a lock. During this time, an interruption has no effect."""

_PAGE_BYTES = 16_384
"""The page size of a new file. Writing takes 7 % less time than with SQLite's default of 4,096."""

_TRANSIENT_CODES = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_NOMEM})

_REFERRERS_SQL = (
    "SELECT m.name FROM sqlite_master m JOIN pragma_foreign_key_list(m.name) f WHERE m.type = 'table' "
    'AND lower(f."table") = lower(:table) AND lower(m.name) <> lower(:table)'
)

_COLUMNS_SQL = (
    'SELECT m.name, c.name, c."notnull" AND c.dflt_value IS NULL AND NOT c.pk '
    "FROM sqlite_master m LEFT JOIN pragma_table_info(m.name) c "
    "WHERE m.type IN ('table', 'view') AND lower(m.name) = lower(:table) ORDER BY c.cid"
)

_DIALECT = Dialect(
    type_by_kind={kind: kind.value.sqlite for kind in ColumnKind},
    temporary_prefix="temp.",
    difference_template="{} IS NOT {}",
    can_cast_null=False,
)


class SqliteDatabase:
    """A SQLite file as a database. An export waits at most `max_lock_wait_s` seconds while another program holds the
    lock."""

    dialect = _DIALECT
    errors: tuple[type[Exception], ...] = (sqlite3.Error,)
    connection: sqlite3.Connection  # the connection of the last `connect`

    def __init__(self, path: Path, max_lock_wait_s: float = MAX_LOCK_WAIT_S) -> None:
        self._path, self._max_lock_wait_s = path, max_lock_wait_s

    def __str__(self) -> str:
        return str(self._path)

    @contextmanager
    def connect(self, interruption: Interruption) -> Iterator[None]:
        """Open a transaction that takes the write lock of the file when it begins."""
        ensure_database_file(self._path, create_empty_file)
        with closing(sqlite3.connect(self._path, timeout=_SQLITE_WAIT_S, isolation_level=None)) as connection:
            connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
            with interruption.register_cancel(connection.interrupt):
                retry_while_locked(
                    partial(connection.execute, "BEGIN IMMEDIATE"), _is_busy, self._max_lock_wait_s, interruption
                )
                self.connection = connection
                yield

    def commit(self, interruption: Interruption) -> None:
        """Commit as soon as no reader holds a lock. While this method waits, an interruption has effect."""
        retry_while_locked(partial(self.connection.execute, "COMMIT"), _is_busy, self._max_lock_wait_s, interruption)

    def run(self, statement: Statement) -> int:
        return max(0, self.connection.execute(statement.text, statement.values).rowcount)

    def fetch(self, statement: Statement, max_rows: int) -> Sequence[Sequence[Any]]:
        with closing(self.connection.execute(statement.text, statement.values)) as cursor:
            return cursor.fetchmany(max_rows)

    def load(self, table: str, rows: StagedRows, shared_values: Mapping[str, object]) -> int:
        """Load the rows by prepared statements."""
        column_names = [*rows.schema.names, *shared_values]
        insert_sql = (
            f"INSERT INTO {table} ({_DIALECT.format_names(column_names)}) VALUES ({', '.join('?' * len(column_names))})"  # noqa: S608 - names, quoted
        )
        row_end = tuple(shared_values.values())
        row_count = 0
        for batch in rows.read():
            self.connection.executemany(insert_sql, _read_rows(batch, row_end))
            row_count += batch.num_rows
        return row_count

    def has_schema(self, schema: str) -> bool:
        """Return True. SQLite has no schemas, and an export to SQLite cannot name a schema, so no schema is missing."""
        return True

    def find_table(self, name: TableName) -> tuple[str | None, Mapping[str, bool]]:
        rows = self.connection.execute(_COLUMNS_SQL, {"table": name.table}).fetchall()
        return (str(rows[0][0]) if rows else None), {str(column): bool(is_required) for _, column, is_required in rows}

    def find_referrers(self, name: TableName) -> Sequence[str]:
        """Return the tables that declare a foreign key to this table. This connection does not enforce foreign keys,
        but other connections may."""
        return [str(table) for (table,) in self.connection.execute(_REFERRERS_SQL, {"table": name.table})]

    def convert_time(self, time: datetime) -> str:
        return _format_time(time)

    def explain(self, error: Exception) -> str:
        return describe_error(error)

    def is_transient(self, error: Exception) -> bool:
        return _read_error_code(error) in _TRANSIENT_CODES

    def is_refusal(self, error: Exception) -> bool:
        return _read_error_code(error) in (sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH)

    def is_concurrency_error(self, error: Exception) -> bool:
        """Return False: another export cannot be the cause, because only one export at a time can write to the file."""
        return False


def _is_busy(error: Exception) -> bool:
    return _read_error_code(error) == sqlite3.SQLITE_BUSY


def _read_error_code(error: Exception) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _read_rows(batch: pa.RecordBatch, row_end: tuple[object, ...]) -> Iterator[tuple[object, ...]]:
    """Return the rows as Python values. `row_end` has the last values of each row."""
    kind_by_column = read_kinds(batch.schema)
    columns = [_read_column(batch[name], kind) for name, kind in kind_by_column.items()]
    return zip(*columns, *([value] * len(batch) for value in row_end), strict=True)


def _read_column(column: pa.Array, kind: ColumnKind) -> Sequence[object]:
    """Return the values as Python values. Lists are JSON, and dates and times are texts in ISO 8601."""
    match kind:
        case ColumnKind.TEXT | ColumnKind.NAME:
            return _read_texts(column)
        case ColumnKind.WHOLE_NUMBER | ColumnKind.FLAG:
            values: list[object] = column.to_pylist()
            return values
        case ColumnKind.DATE:
            return _read_texts(column.cast(pa.string()))
        case ColumnKind.TIME:
            return [None if time is None else _format_time(time) for time in column.to_pylist()]
        case ColumnKind.TAGS:
            return _read_texts(format_lists_as_json(pa.chunked_array([column])).combine_chunks())
    assert_never(kind)


def _format_time(time: datetime) -> str:
    """Return the time as `strftime('%Y-%m-%d %H:%M:%f', 'now')` writes it, but with microseconds. So the text can be
    compared with the texts of `strftime`."""
    return time.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")


def _read_texts(column: pa.StringArray) -> list[str | None]:
    """Return the texts. Equal texts are one Python object, because cities and tags recur, and making objects takes
    time."""
    encoded_column = column.dictionary_encode("encode")
    texts = encoded_column.dictionary.to_pylist()
    return [texts[index] for index in np.from_dlpack(encoded_column.indices).tolist()]
