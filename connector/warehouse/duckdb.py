"""A DuckDB file, by DuckDB's own package and Arrow: tags are VARCHAR[], times TIMESTAMP WITH TIME ZONE.

A row that `upsert` changes is deleted and inserted: an UPDATE that sets a list in a table with a primary key takes
DuckDB 146 s for 100,000 rows, and deleting and inserting takes 0.6 s (measured with 2.0.1).
"""

import errno
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from connector.driver_words import say_safely
from connector.errors import RunAborted
from connector.warehouse.database_file import LOCK_S, create_empty, make_file, wait_for_lock
from connector.warehouse.dialect import ColumnKind, Dialect, Statement, TableName
from connector.warehouse.interruption import Interruption
from connector.warehouse.stage import StagedRows

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
"""What DuckDB may hold in memory; it takes 80 % of the machine's otherwise. More goes to a folder beside the file, but
not what a transaction has changed, which stays in memory until it ends: with 128 MB, a history in which each of a
million rows changed ran out of it."""

_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "threads": 2, "preserve_insertion_order": False, "autoinstall_known_extensions": False,
}  # fmt: skip
"""DuckDB would get code from the network for a file of another program's."""

_ROW_GROUP = 61_440
"""Rows that are compressed together, half of DuckDB's own number. Each thread compresses the whole row groups of its
rows by itself; what is left over one thread puts together. 200,000 rows took 0.25 s so, and 0.44 s by DuckDB's own
number, in a file of the same size."""

_FROM_ROWS = "auto_checkpoint_skip_wal_threshold"
"""The rows from which on a commit may do without the log: a setting of DuckDB 1.5 and later; before, it does at any
number."""

_NO_ROOM = os.strerror(errno.ENOSPC)
"""DuckDB ends with it what it says of a full disk, whatever the type of the error; before it stands the file's path."""

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
        """The connection of the open transaction."""
        if self._connection is None:
            raise ValueError("connect() comes first")
        return self._connection

    def make_file(self) -> bool:
        """Make an empty database if there is none."""
        return make_file(self._path, _create)

    def remove_file(self) -> None:
        """Remove the file."""
        self._path.unlink()

    @contextmanager
    def connect(self, interruption: Interruption) -> Iterator[None]:
        """Open a transaction. No other program can open the file until the end of the transaction.

        Data that exceeds the memory goes to a folder beside the file, which only its owner can read. If this export is
        killed, the next export empties the folder; only one export at a time has the file open.
        """
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
                    f"more ({say_safely(error)}). Export base by base (--base-id), or to PostgreSQL."
                ) from None
            raise
        try:
            connection.execute(f"DETACH {_FILE}")
        except duckdb.Error:  # what was to be written is written
            self._disconnect()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _open(self) -> duckdb.DuckDBPyConnection:
        """A database in memory, for the life of this object: opening one takes DuckDB ten times as long as a file."""
        config = {**_SETTINGS, "memory_limit": self._memory, "temp_directory": str(self._spill)}
        connection = duckdb.connect(config=config)
        connection.execute("SET timezone = 'UTC'")
        _go_without_log(connection)
        return connection

    def commit(self, interruption: Interruption) -> None:
        """Commit; from then on nothing is interrupted."""
        interruption.begin_commit()
        self._is_in_transaction = False
        self.connection.commit()

    def run(self, statement: Statement) -> int:
        """Carry out a statement; return how many rows it touched."""
        rows = self.connection.execute(statement.text, dict(statement.values)).fetchall()
        return int(rows[0][0]) if rows else 0

    def fetch(self, statement: Statement, most: int) -> Sequence[Sequence[Any]]:
        """Return the first rows of a query without columns of times: DuckDB returns times only if pytz is installed."""
        return self.connection.execute(statement.text, dict(statement.values)).fetchmany(most)

    def load(self, table: str, rows: StagedRows, shared: Mapping[str, object]) -> int:
        """Load by reading the rows as a stream of Arrow."""
        columns, marks = _DIALECT.write_list([*rows.schema.names, *shared]), (f"${name}" for name in shared)
        selected = ", ".join([_DIALECT.write_list(rows.schema.names), *marks])
        insert = Statement(f"INSERT INTO {table} ({columns}) SELECT {selected} FROM {_ROWS}", shared)  # noqa: S608 - names, quoted
        self.connection.register(_ROWS, pa.RecordBatchReader.from_batches(rows.schema, rows.read()))
        count = self.run(insert)
        # Not after a failure: in an aborted transaction this fails as well, and only that failure would be seen.
        self.connection.unregister(_ROWS)
        return count

    def has_schema(self, schema: str) -> bool:
        """Return whether the schema is there."""
        select = "SELECT 1 FROM duckdb_schemas() WHERE database_name = $1 AND lower(schema_name) = lower($2)"
        return bool(self.connection.execute(select, [_FILE, schema]).fetchall())

    def find_table(self, name: TableName) -> tuple[str | None, Sequence[str]]:
        """Return DuckDB's own name of a table or a view, None if it is missing, and its columns."""
        select = (
            "SELECT table_name, column_name FROM duckdb_columns() WHERE database_name = $1 "
            "AND lower(schema_name) = lower($2) AND lower(table_name) = lower($3)"
        )
        found = self.connection.execute(select, [_FILE, name.schema or "main", name.table]).fetchall()
        return (str(found[0][0]) if found else None), [str(column) for _, column in found]

    def list_tables(self) -> Collection[str]:
        """Return the names of all tables."""
        select = "SELECT table_name FROM duckdb_tables() WHERE database_name = $1"
        return [str(name) for (name,) in self.connection.execute(select, [_FILE]).fetchall()]

    def find_referrers(self, name: TableName) -> Sequence[str]:
        """Read the catalogue; foreign keys are within a schema here."""
        select = (
            "SELECT table_name FROM duckdb_constraints() WHERE constraint_type = 'FOREIGN KEY' AND database_name = $1 "
            "AND lower(schema_name) = lower($2) AND lower(referenced_table) = lower($3) "
            "AND lower(table_name) <> lower($3)"
        )
        found = self.connection.execute(select, [_FILE, name.schema or "main", name.table]).fetchall()
        return [str(table) for (table,) in found]

    def write_time(self, at: datetime) -> datetime:
        """Return the time in UTC."""
        return at.astimezone(UTC)

    def explain(self, error: Exception) -> str:
        """Return the first line of what DuckDB said, without values of rows."""
        return _NO_ROOM.lower() if _NO_ROOM in str(error) else say_safely(error)

    def is_passing(self, error: Exception) -> bool:
        """Return whether another program has the file open, or the disk is full."""
        return _is_locked(error) or _NO_ROOM in str(error)

    def is_race(self, error: Exception) -> bool:
        """Return False: only one export at a time has the file open."""
        return False


def _create(path: Path) -> None:
    """Make a database for its owner only: DuckDB takes no empty file, and lets others read those that it makes."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        new = Path(folder) / path.name
        duckdb.connect(str(new), config=_SETTINGS).close()
        new.chmod(0o600)
        try:
            os.link(new, path)
        except PermissionError:  # a file system without second names for files
            create_empty(path)
            new.replace(path)


@contextmanager
def _emptied(folder: Path) -> Iterator[None]:
    """Within the context, the folder is there; it is its owner's only, and empty at the beginning."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _is_locked(error: Exception) -> bool:
    """Return whether another program, or another connection of this one, has the file."""
    return isinstance(error, duckdb.Error) and any(words in str(error) for words in _LOCKED)


def _go_without_log(connection: duckdb.DuckDBPyConnection) -> None:
    """Let a commit go straight into the database file, as DuckDB does by itself with large ones.

    The log would hold subscribers, readable by every user that may read the folder. The one that DuckDB 2.0.1 makes for
    the moment of such a commit holds none.
    """
    connection.execute("SET checkpoint_threshold = '0B'")
    with suppress(duckdb.CatalogException):
        connection.execute(f"SET {_FROM_ROWS} = 0")
