"""An export to a DuckDB file, by DuckDB's own package and Arrow. Tags are VARCHAR[], and times are TIMESTAMP WITH TIME
ZONE.

A row that `upsert` changes is deleted and inserted, because DuckDB is slow to update a table with a primary key and a
list column. Updating 100,000 rows took 146 s, and deleting and inserting the rows took 0.6 s (measured with 2.0.1).
"""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from connector.driver_errors import describe_error
from connector.errors import RunAborted
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

_CATALOG_NAME = "_connector_file"
"""The catalog name of the attached file. Names of tables begin with this catalog, so that a schema may have the same
name as the file."""

_ROWS_NAME = "_connector_rows"
"""The name by which a statement reads the rows to load."""

_DIALECT = Dialect(
    type_by_kind={kind: kind.value.duckdb for kind in ColumnKind},
    parameter_prefix="$",
    catalog=_CATALOG_NAME,
    default_schema="main",
    temporary_prefix="temp.",
    is_columnar=True,
)

MEMORY_LIMIT, MERGE_MEMORY_LIMIT = "128MB", "512MB"
"""DuckDB's memory limits, without and with a merge (`upsert`, `history`). DuckDB's own default is 80 % of the machine's
memory. DuckDB writes data beyond the limit to a folder next to the file. But the changes of a transaction stay in
memory until the transaction ends. With 128 MB, a history of a million changed rows ran out of memory."""

_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "threads": 2, "preserve_insertion_order": False, "autoinstall_known_extensions": False,
}  # fmt: skip
"""Without `autoinstall_known_extensions: False`, DuckDB would download an extension that a file of another program
needs."""

_ROW_GROUP_SIZE = 61_440
"""The number of rows that are compressed together, half of DuckDB's default. Each thread compresses its own full row
groups, but one thread compresses all incomplete row groups. With this number, 200,000 rows took 0.25 s; with the
default, 0.44 s. The file had the same size."""

_NO_ROOM_TEXT = os.strerror(errno.ENOSPC)
"""The last words of DuckDB's errors for a full disk. These errors have different types."""

_LOCK_ERROR_TEXTS = ("Could not set lock", "already attached")


class DuckdbDatabase:
    """A DuckDB file as a database. Only one program at a time can write to the file. An export waits at most
    `max_lock_wait_s` seconds for another program. DuckDB uses at most `memory` (for example "128MB")."""

    dialect = _DIALECT
    errors: tuple[type[Exception], ...] = (duckdb.Error,)

    def __init__(self, path: Path, max_lock_wait_s: float = MAX_LOCK_WAIT_S, memory: str = MEMORY_LIMIT) -> None:
        self._path, self._max_lock_wait_s, self._memory = path, max_lock_wait_s, memory
        self._spill_folder = path.with_name(f".{path.name}.spill")
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._is_in_transaction = False

    def __str__(self) -> str:
        return str(self._path)

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        if self._connection is None:
            raise ValueError("connect() comes first")
        return self._connection

    @contextmanager
    def connect(self, interruption: Interruption) -> Iterator[None]:
        """Open a transaction. No other program can open the file until the end of the transaction.

        DuckDB writes data that exceeds the memory to a folder next to the file. Only the owner can read this folder. If
        an export is killed, the next export empties the folder.
        """
        ensure_database_file(self._path, _create_empty_database)
        connection = self._connection = self._connection or self._open_memory_database()
        path = str(self._path).replace("'", "''")
        attach_sql = f"ATTACH '{path}' AS {_CATALOG_NAME} (TYPE duckdb, ROW_GROUP_SIZE {_ROW_GROUP_SIZE})"
        try:
            retry_while_locked(partial(connection.execute, attach_sql), _is_locked, self._max_lock_wait_s, interruption)
            with _open_empty_folder(self._spill_folder), interruption.register_cancel(connection.interrupt):
                connection.begin()
                self._is_in_transaction = True
                yield
                if self._is_in_transaction:
                    connection.rollback()
        except BaseException as error:
            self._disconnect()
            if isinstance(error, duckdb.OutOfMemoryException):
                # The message does not advise to run again, because the next run would need the same memory.
                raise RunAborted(
                    f"{self} is unchanged: DuckDB may use {self._memory}, and the changes of this export need more "
                    f"({describe_error(error)}). Export base by base (--base-id), or to PostgreSQL."
                ) from None
            raise
        try:
            connection.execute(f"DETACH {_CATALOG_NAME}")
        except duckdb.Error:  # the error is ignored, because the rows are already committed
            self._disconnect()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _open_memory_database(self) -> duckdb.DuckDBPyConnection:
        """Open a database in memory. `connect` attaches the file to this database, and later detaches the file. The
        database stays open, because opening a database takes ten times as long as attaching a file."""
        config = {**_SETTINGS, "memory_limit": self._memory, "temp_directory": str(self._spill_folder)}
        connection = duckdb.connect(config=config)
        connection.execute("SET timezone = 'UTC'")
        # Commit to the file at once.
        # A write-ahead log would contain subscribers, and other users could read the log.
        connection.execute("SET checkpoint_threshold = '0B'")
        with suppress(duckdb.CatalogException):
            # With 0, DuckDB never writes rows to the log. DuckDB before 1.5 lacks this setting, and never
            # writes rows to the log either.
            connection.execute("SET auto_checkpoint_skip_wal_threshold = 0")
        return connection

    def commit(self, interruption: Interruption) -> None:
        interruption.begin_commit()
        self._is_in_transaction = False
        self.connection.commit()

    def run(self, statement: Statement) -> int:
        rows = self.connection.execute(statement.text, dict(statement.values)).fetchall()
        return int(rows[0][0]) if rows else 0

    def fetch(self, statement: Statement, max_rows: int) -> Sequence[Sequence[Any]]:
        return self.connection.execute(statement.text, dict(statement.values)).fetchmany(max_rows)

    def load(self, table: str, rows: StagedRows, shared_values: Mapping[str, object]) -> int:
        """Load the rows as an Arrow stream."""
        columns_sql = _DIALECT.format_names([*rows.schema.names, *shared_values])
        parameter_placeholders = (f"${name}" for name in shared_values)
        selected_sql = ", ".join([_DIALECT.format_names(rows.schema.names), *parameter_placeholders])
        insert_sql = f"INSERT INTO {table} ({columns_sql}) SELECT {selected_sql} FROM {_ROWS_NAME}"  # noqa: S608 - names, quoted
        self.connection.register(_ROWS_NAME, pa.RecordBatchReader.from_batches(rows.schema, rows.read()))
        row_count = self.run(Statement(insert_sql, shared_values))
        # There is no `finally`: in an aborted transaction, this statement would also fail, and hide the first error.
        self.connection.unregister(_ROWS_NAME)
        return row_count

    def has_schema(self, schema: str) -> bool:
        select_sql = "SELECT 1 FROM duckdb_schemas() WHERE database_name = $1 AND lower(schema_name) = lower($2)"
        return bool(self.connection.execute(select_sql, [_CATALOG_NAME, schema]).fetchall())

    def find_table(self, name: TableName) -> tuple[str | None, Mapping[str, bool]]:
        select_sql = (
            "SELECT table_name, column_name, NOT is_nullable AND column_default IS NULL "
            "FROM duckdb_columns() WHERE database_name = $1 "
            "AND lower(schema_name) = lower($2) AND lower(table_name) = lower($3)"
        )
        rows = self.connection.execute(select_sql, [_CATALOG_NAME, name.schema or "main", name.table]).fetchall()
        return (str(rows[0][0]) if rows else None), {str(column): bool(is_required) for _, column, is_required in rows}

    def find_referrers(self, name: TableName) -> Sequence[str]:
        select_sql = (
            "SELECT table_name FROM duckdb_constraints() WHERE constraint_type = 'FOREIGN KEY' AND database_name = $1 "
            "AND lower(schema_name) = lower($2) AND lower(referenced_table) = lower($3) "
            "AND lower(table_name) <> lower($3)"
        )
        rows = self.connection.execute(select_sql, [_CATALOG_NAME, name.schema or "main", name.table]).fetchall()
        return [str(table) for (table,) in rows]

    def convert_time(self, time: datetime) -> datetime:
        return time.astimezone(UTC)

    def explain(self, error: Exception) -> str:
        return _NO_ROOM_TEXT.lower() if _NO_ROOM_TEXT in str(error) else describe_error(error)

    def is_transient(self, error: Exception) -> bool:
        return _is_locked(error) or _NO_ROOM_TEXT in str(error)

    def is_refusal(self, error: Exception) -> bool:
        # DuckDB 1 notices some duplicate keys only at the commit, and then raises TransactionException.
        is_duplicate = isinstance(error, duckdb.TransactionException) and "constraint violation" in str(error)
        return is_duplicate or isinstance(error, duckdb.ConstraintException | duckdb.ConversionException)

    def is_concurrency_error(self, error: Exception) -> bool:
        """Return False: another export cannot be the cause, because only one export at a time can open the file."""
        return False


def _create_empty_database(path: Path) -> None:
    """Create an empty database that only its owner may read. DuckDB itself refuses an empty file, and would let other
    users read a new file."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        new_path = Path(folder) / path.name
        duckdb.connect(str(new_path), config=_SETTINGS).close()
        new_path.chmod(0o600)
        try:
            os.link(new_path, path)
        except PermissionError:  # the file system has no hard links
            create_empty_file(path)
            new_path.replace(path)


@contextmanager
def _open_empty_folder(folder: Path) -> Iterator[None]:
    """Create an empty folder that only its owner may read. Remove the folder at the end of the context."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _is_locked(error: Exception) -> bool:
    """Return whether another program, or another connection of this program, has the file open."""
    return isinstance(error, duckdb.Error) and any(error_text in str(error) for error_text in _LOCK_ERROR_TEXTS)
