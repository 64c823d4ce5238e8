"""A DuckDB file, by DuckDB's own package and Arrow: tags are VARCHAR[], times TIMESTAMP WITH TIME ZONE.

A row that `upsert` changes is deleted and inserted: an UPDATE that sets a list in a table with a primary key takes
DuckDB 146 s for 100,000 rows, and deleting and inserting takes 0.6 s (measured with 2.0.1).
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
    LOCK_S,
    ColumnKind,
    Dialect,
    Interruption,
    StagedRows,
    Statement,
    TableName,
    create_empty,
    make_file,
    wait_for_lock,
)

_FILE = "_connector_file"
"""The name under which the file is attached. Tables are named with it, so that a schema may be called as the file."""

_ROWS = "_connector_rows"
"""The name under which DuckDB reads the rows that are loaded."""

_DIALECT = Dialect(
    types={
        ColumnKind.TEXT: "VARCHAR",
        ColumnKind.NAME: "VARCHAR",
        ColumnKind.WHOLE: "BIGINT",
        ColumnKind.FLAG: "BOOLEAN",
        ColumnKind.DATE: "DATE",
        ColumnKind.TIME: "TIMESTAMP WITH TIME ZONE",
        ColumnKind.TAGS: "VARCHAR[]",
    },
    mark="$",
    catalog=_FILE,
    default_schema="main",
    temporary="temp.",
    is_columnar=True,
)

MEMORY, MEMORY_TO_MERGE = "128MB", "512MB"
"""DuckDB's limits of memory; its default is 80 % of the machine's. Data beyond the limit goes to a folder beside the
file, but the changes of a transaction stay in memory until its end: a history in which each of a million rows changed
ran out of 128 MB."""

_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "threads": 2, "preserve_insertion_order": False, "autoinstall_known_extensions": False,
}  # fmt: skip
"""DuckDB would download an extension that a file of another program needs."""

_ROW_GROUP = 61_440
"""Rows that are compressed together, half of DuckDB's default. Each thread compresses its full row groups by itself,
and one thread compresses the remainders of all: 200,000 rows took 0.25 s, and 0.44 s with the default, in a file of the
same size."""

_NO_ROOM = os.strerror(errno.ENOSPC)
"""The last words of DuckDB's errors for a full disk. The type of the error differs."""

_LOCKED = ("Could not set lock", "already attached")


class DuckdbDatabase:
    """A DuckDB file. Only one program at a time can write to the file; others wait up to `lock_s` seconds. DuckDB uses
    at most `memory` (for example "128MB")."""

    dialect = _DIALECT
    errors: tuple[type[Exception], ...] = (duckdb.Error,)

    def __init__(self, path: Path, lock_s: float = LOCK_S, memory: str = MEMORY) -> None:
        self._path, self._lock_s, self._memory = path, lock_s, memory
        self._spill = path.with_name(f".{path.name}.spill")
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

        Data that exceeds the memory goes to a folder beside the file, which only its owner can read. The next export
        empties the folder of a killed export.
        """
        make_file(self._path, _create)
        connection = self._connection = self._connection or self._open()
        path = str(self._path).replace("'", "''")
        attach = f"ATTACH '{path}' AS {_FILE} (TYPE duckdb, ROW_GROUP_SIZE {_ROW_GROUP})"
        try:
            wait_for_lock(partial(connection.execute, attach), _is_locked, self._lock_s, interruption)
            with _emptied(self._spill), interruption.cancel_by(connection.interrupt):
                connection.begin()
                self._is_in_transaction = True
                yield
                if self._is_in_transaction:
                    connection.rollback()
        except BaseException as error:
            self._disconnect()
            if isinstance(error, duckdb.OutOfMemoryException):  # the next run would fare no better
                raise RunAborted(
                    f"{self} was left as it was: DuckDB may use {self._memory}, and what this export changes takes "
                    f"more ({describe_error(error)}). Export base by base (--base-id), or to PostgreSQL."
                ) from None
            raise
        try:
            connection.execute(f"DETACH {_FILE}")
        except duckdb.Error:  # the rows are committed already
            self._disconnect()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _open(self) -> duckdb.DuckDBPyConnection:
        """Open a database in memory, which stays open: opening it takes ten times as long as attaching a file."""
        config = {**_SETTINGS, "memory_limit": self._memory, "temp_directory": str(self._spill)}
        connection = duckdb.connect(config=config)
        connection.execute("SET timezone = 'UTC'")
        # The write-ahead log would hold subscribers, and other users could read it: commit to the file at once.
        connection.execute("SET checkpoint_threshold = '0B'")
        with suppress(duckdb.CatalogException):  # DuckDB before 1.5 skips the log for any number of rows
            connection.execute("SET auto_checkpoint_skip_wal_threshold = 0")
        return connection

    def commit(self, interruption: Interruption) -> None:
        interruption.begin_commit()
        self._is_in_transaction = False
        self.connection.commit()

    def run(self, statement: Statement) -> int:
        rows = self.connection.execute(statement.text, dict(statement.values)).fetchall()
        return int(rows[0][0]) if rows else 0

    def fetch(self, statement: Statement, most: int) -> Sequence[Sequence[Any]]:
        return self.connection.execute(statement.text, dict(statement.values)).fetchmany(most)

    def load(self, table: str, rows: StagedRows, shared: Mapping[str, object]) -> int:
        """Load the rows as a stream of Arrow."""
        columns, marks = _DIALECT.write_list([*rows.schema.names, *shared]), (f"${name}" for name in shared)
        selected = ", ".join([_DIALECT.write_list(rows.schema.names), *marks])
        insert = Statement(f"INSERT INTO {table} ({columns}) SELECT {selected} FROM {_ROWS}", shared)  # noqa: S608 - names, quoted
        self.connection.register(_ROWS, pa.RecordBatchReader.from_batches(rows.schema, rows.read()))
        count = self.run(insert)
        # Not after a failure: in an aborted transaction this would fail too, and hide the first failure.
        self.connection.unregister(_ROWS)
        return count

    def has_schema(self, schema: str) -> bool:
        select = "SELECT 1 FROM duckdb_schemas() WHERE database_name = $1 AND lower(schema_name) = lower($2)"
        return bool(self.connection.execute(select, [_FILE, schema]).fetchall())

    def find_table(self, name: TableName) -> tuple[str | None, Mapping[str, bool]]:
        select = (
            "SELECT table_name, column_name, NOT is_nullable AND column_default IS NULL "
            "FROM duckdb_columns() WHERE database_name = $1 "
            "AND lower(schema_name) = lower($2) AND lower(table_name) = lower($3)"
        )
        found = self.connection.execute(select, [_FILE, name.schema or "main", name.table]).fetchall()
        return (str(found[0][0]) if found else None), {str(column): bool(is_needed) for _, column, is_needed in found}

    def find_referrers(self, name: TableName) -> Sequence[str]:
        select = (
            "SELECT table_name FROM duckdb_constraints() WHERE constraint_type = 'FOREIGN KEY' AND database_name = $1 "
            "AND lower(schema_name) = lower($2) AND lower(referenced_table) = lower($3) "
            "AND lower(table_name) <> lower($3)"
        )
        found = self.connection.execute(select, [_FILE, name.schema or "main", name.table]).fetchall()
        return [str(table) for (table,) in found]

    def write_time(self, at: datetime) -> datetime:
        return at.astimezone(UTC)

    def explain(self, error: Exception) -> str:
        return _NO_ROOM.lower() if _NO_ROOM in str(error) else describe_error(error)

    def is_passing(self, error: Exception) -> bool:
        return _is_locked(error) or _NO_ROOM in str(error)

    def is_refusal(self, error: Exception) -> bool:
        return isinstance(error, duckdb.ConstraintException | duckdb.ConversionException)

    def is_race(self, error: Exception) -> bool:
        """Return False: only one export at a time has the file open."""
        return False


def _create(path: Path) -> None:
    """Make an empty database that only its owner may read: DuckDB refuses an empty file, and lets others read a new
    one."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        new = Path(folder) / path.name
        duckdb.connect(str(new), config=_SETTINGS).close()
        new.chmod(0o600)
        try:
            os.link(new, path)
        except PermissionError:  # a file system without hard links
            create_empty(path)
            new.replace(path)


@contextmanager
def _emptied(folder: Path) -> Iterator[None]:
    """Make an empty folder that only its owner may read, and remove it at the end of the context."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _is_locked(error: Exception) -> bool:
    """Return whether another program, or another connection of this program, has the file open."""
    return isinstance(error, duckdb.Error) and any(words in str(error) for words in _LOCKED)
