"""The interface between an export and a database: the dialect of SQL, the operations, staged rows, and
interruptions."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO, NamedTuple, Protocol, TypeVar, cast

import pyarrow as pa
import pyarrow.ipc as ipc

from connector.atomic_file import build_write_error
from connector.errors import ConfigurationError

T = TypeVar("T")


class ColumnTypes(NamedTuple):
    """The types of a column: the type in Arrow, and the SQL type in each database that has its own dialect."""

    arrow: pa.DataType
    postgresql: str
    mysql: str
    sqlite: str
    duckdb: str


_UTF8_SQL = "CHARACTER SET utf8mb4"


class ColumnKind(Enum):
    """The kind of a column's values, with the types of the column. NAME is a text that is short enough for a key."""

    TEXT = ColumnTypes(pa.string(), "TEXT", f"LONGTEXT {_UTF8_SQL}", "TEXT", "VARCHAR")
    NAME = ColumnTypes(pa.string(), "TEXT", f"VARCHAR(64) {_UTF8_SQL} COLLATE utf8mb4_bin", "TEXT", "VARCHAR")
    WHOLE_NUMBER = ColumnTypes(pa.int64(), "BIGINT", "BIGINT", "INTEGER", "BIGINT")
    FLAG = ColumnTypes(pa.bool_(), "BOOLEAN", "BOOL", "BOOLEAN", "BOOLEAN")
    DATE = ColumnTypes(pa.date32(), "DATE", "DATE", "DATE", "DATE")
    TIME = ColumnTypes(
        pa.timestamp("us", "UTC"), "TIMESTAMP WITH TIME ZONE", "DATETIME(6)", "TEXT", "TIMESTAMP WITH TIME ZONE"
    )
    TAGS = ColumnTypes(pa.list_(pa.string()), "TEXT[]", "JSON", "TEXT", "VARCHAR[]")


@dataclass(frozen=True, slots=True)
class TableName:
    """The name of a table, with its schema if the user has named a schema."""

    table: str
    schema: str | None = None

    def __str__(self) -> str:
        return ".".join(filter(None, (self.schema, self.table)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The SQL of one kind of database, and the abilities of this kind.

    `type_by_kind` has the SQL type of each kind of column. `quotes` open and close a name. `parameter_prefix` begins
    the name of a parameter. `catalog` and `default_schema` are written before the name of a table, and
    `temporary_prefix` before the name of a temporary table. Three fields are templates: `difference_template` (the
    condition that two values differ, even if one is null), `text_to_bytes_template` (the bytes of a text) and
    `first_row_template` (a query for one row).

    - `can_roll_back_tables`: a rollback also undoes the creation of tables.
    - `can_cast_null`: null can be cast to the type of a column, so that a wrong type is found without rows.
    - `can_store_nul`: texts may contain U+0000.
    - `max_name_bytes`: the maximum length of a table's name in bytes. The database truncates a longer name without an
      error.
    - `has_comma_join_in_update`: an UPDATE with a join begins with `UPDATE target t, stage s SET`, as in MySQL.
    - `is_columnar`: a join needs no index. A changed row is deleted and inserted, because an UPDATE of a column of tags
      is slow (see connector.warehouse.duckdb).
    """

    type_by_kind: Mapping[ColumnKind, str]
    quotes: tuple[str, str] = ('"', '"')
    parameter_prefix: str = ":"
    catalog: str | None = None
    default_schema: str | None = None
    temporary_prefix: str = ""
    table_options: str = ""
    stage_table_options: str = ""
    difference_template: str = "{} IS DISTINCT FROM {}"
    text_to_bytes_template: str = "{}"
    first_row_template: str = "SELECT 1 FROM {} LIMIT 1"
    can_roll_back_tables: bool = True
    can_cast_null: bool = True
    can_store_nul: bool = True
    max_name_bytes: int | None = None
    has_comma_join_in_update: bool = False
    is_columnar: bool = False

    def quote(self, name: str) -> str:
        """Return a name in quotes."""
        opening_quote, closing_quote = self.quotes
        return f"{opening_quote}{name.replace(closing_quote, closing_quote * 2)}{closing_quote}"

    def format_name(self, name: TableName) -> str:
        """Return a table's quoted name, with its catalog and schema."""
        name_parts = (self.catalog, name.schema or self.default_schema, name.table)
        return ".".join(self.quote(part) for part in name_parts if part is not None)

    def format_names(self, names: Sequence[str]) -> str:
        """Return the quoted names, separated by commas."""
        return ", ".join(map(self.quote, names))

    def format_difference_condition(self, left_sql: str, right_sql: str, kind: ColumnKind) -> str:
        """Return the condition that two values differ. Texts are compared by bytes, and null is equal to null."""
        if kind in (ColumnKind.TEXT, ColumnKind.TAGS):
            template = self.text_to_bytes_template
            left_sql, right_sql = template.format(left_sql), template.format(right_sql)
        return self.difference_template.format(left_sql, right_sql)


ParameterValues = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Statement:
    """The text of a statement, and the values of its parameters by name. In the text, each name of a parameter follows
    `Dialect.parameter_prefix`."""

    text: str
    values: ParameterValues = field(default_factory=dict)


class ExportInterrupted(Exception):  # noqa: N818 - a requested stop, not an error
    """The error of an export that was interrupted before its commit. Nothing was written."""


class Interruption:
    """Lets a second thread cancel the work in a database. A cancellation has no effect after the commit has begun."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._is_interrupted = False
        self._cancel: Callable[[], None] | None = None
        self.is_committing = False

    def interrupt(self) -> None:
        """Cancel the running statement, and prevent the commit. This method may block until the database has cancelled
        the statement."""
        with self._lock:
            self._is_interrupted = True
            cancel = None if self.is_committing else self._cancel
        if cancel is not None:
            cancel()

    def raise_if_interrupted(self) -> None:
        """Raise ExportInterrupted if `interrupt` was called."""
        if self._is_interrupted:
            raise ExportInterrupted

    def begin_commit(self) -> None:
        """Record that the commit begins. Raises ExportInterrupted if `interrupt` was called."""
        with self._lock:
            self.raise_if_interrupted()
            self.is_committing = True

    @contextmanager
    def register_cancel(self, cancel: Callable[[], None]) -> Iterator[None]:
        """Within the context, make `interrupt` call `cancel`."""
        with self._lock:
            self.raise_if_interrupted()
            self._cancel = cancel
        try:
            yield
        finally:
            with self._lock:
                self._cancel = None


_MIN_BATCH_ROWS = 16_384
"""A batch is written when it has at least this number of rows. A batch of this size takes a few MB of memory, and the
fixed cost of a batch is small."""


@dataclass(frozen=True, slots=True)
class StagedRows:
    """Rows that can be read repeatedly, batch by batch."""

    schema: pa.Schema
    read: Callable[[], Iterator[pa.RecordBatch]]

    def map(self, convert_batch: Callable[[pa.RecordBatch], pa.RecordBatch]) -> "StagedRows":
        """Return rows with the function `convert_batch` applied to each batch when the batch is read."""
        return StagedRows(self.schema, lambda: map(convert_batch, self.read()))


class StagingFile:
    """A temporary file that collects rows. `finish_staging` returns all rows, and `discard` closes the file.

    The file has no name. It is in `folder`, or in the temporary folder of the system. The constructor raises OSError.
    """

    def __init__(self, schema: pa.Schema, folder: Path | None = None) -> None:
        self._file = cast(BinaryIO, tempfile.TemporaryFile(dir=folder))  # noqa: SIM115 - closed by discard()
        self._schema = schema
        self._writer = ipc.new_stream(self._file, schema, options=ipc.IpcWriteOptions(compression="lz4"))
        self._unwritten_tables: list[pa.Table] = []
        self._unwritten_row_count = 0

    def add(self, table: pa.Table) -> None:
        """Add rows. Write the unwritten rows if they are enough for a batch."""
        self._unwritten_tables.append(table)
        self._unwritten_row_count += table.num_rows
        if self._unwritten_row_count >= _MIN_BATCH_ROWS:
            self._write_batch()

    def finish_staging(self) -> StagedRows:
        """Write the last batch, and return all rows in their order."""
        self._write_batch()
        self._writer.close()
        return StagedRows(self._schema, self._read_batches)

    def discard(self) -> None:
        """Delete the rows."""
        self._unwritten_tables.clear()
        self._file.close()

    def _read_batches(self) -> Iterator[pa.RecordBatch]:
        self._file.seek(0)
        yield from ipc.open_stream(self._file)

    def _write_batch(self) -> None:
        tables, self._unwritten_tables, self._unwritten_row_count = self._unwritten_tables, [], 0
        if tables:
            self._writer.write_table(pa.concat_tables(tables).combine_chunks())


class Database(Protocol):
    """One database. `connect` opens a transaction, and the other methods work in this transaction. The methods raise
    the classes in `errors`, and ExportInterrupted. `str()` returns a name for messages, without secrets."""

    dialect: Dialect

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """The classes of errors that the driver raises."""

    def connect(self, interruption: Interruption) -> AbstractContextManager[None]:
        """Open a transaction. At the end of the context, roll the transaction back unless `commit` was called. If the
        database is a file and the file is missing, create the file."""

    def commit(self, interruption: Interruption) -> None:
        """Commit the transaction. Raises ExportInterrupted if the interruption was requested before the commit."""

    def run(self, statement: Statement) -> int:
        """Execute a statement, and return the number of rows that the statement has changed."""

    def fetch(self, statement: Statement, max_rows: int) -> Sequence[Sequence[Any]]:
        """Return the first rows of a query, up to `max_rows`. The query must not select columns with times."""

    def load(self, table: str, rows: StagedRows, shared_values: Mapping[str, object]) -> int:
        """Insert rows into a table, and return their number. `table` is the name of the table as SQL. All rows get the
        `shared_values`."""

    def has_schema(self, schema: str) -> bool:
        """Return whether the schema exists."""

    def find_table(self, name: TableName) -> tuple[str | None, Mapping[str, bool]]:
        """Return the name that the database has for the table or view, or None if the table does not exist. Also
        return, for each column, whether every row needs a value in the column."""

    def find_referrers(self, name: TableName) -> Sequence[str]:
        """Return the tables with a foreign key to this table. Tables that the user may not see are not included."""

    def convert_time(self, time: datetime) -> object:
        """Return a time with a time zone as a value for a statement."""

    def explain(self, error: Exception) -> str:
        """Return the message of the database in one line, without secrets and personal data."""

    def is_transient(self, error: Exception) -> bool:
        """Return whether the cause of the failure may be gone in the next run, such as a lost connection, a lock, or a
        full disk."""

    def is_refusal(self, error: Exception) -> bool:
        """Return whether the database refused a value because of a column's type, a constraint or a trigger."""

    def is_concurrency_error(self, error: Exception) -> bool:
        """Return whether another export caused the error: at the same moment, the other export created the same schema
        or table, or used the same run number."""


MAX_LOCK_WAIT_S = 30.0
"""Maximum time that an export waits for the lock of a database file. Readers hold a lock only for moments."""

_LOCK_PAUSE_S = 0.05


def ensure_database_file(path: Path, create_file: Callable[[Path], None]) -> None:
    """Create a missing database file by calling `create_file`. `create_file` may raise OSError.

    Raises ConfigurationError for a path that is not a writable file. Also raises ConfigurationError if the folder has
    the journal of a deleted database, because the journal would damage a new database.
    """
    if path.exists():
        if not path.is_file():  # opening a pipe would wait for a reader
            raise ConfigurationError(f"{path} is not a file. Name another path.")
        if not os.access(path, os.W_OK):
            raise ConfigurationError(
                f"{path} cannot be written by this user: change the permissions, or name another path."
            )
        return
    for suffix in ("-journal", "-wal", ".wal"):
        journal_path = path.with_name(path.name + suffix)
        if journal_path.exists():
            raise ConfigurationError(
                f"{journal_path} belongs to a deleted database, and would damage a new {path.name}: move the journal "
                "away, or name another path."
            )
    try:
        create_file(path)
    except FileExistsError:  # another export has created the file
        pass
    except OSError as error:
        raise build_write_error(path.parent, error) from None


def create_empty_file(path: Path) -> None:
    """Create an empty file that only its owner may read. Raises OSError."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def retry_while_locked(
    attempt: Callable[[], T], is_busy: Callable[[Exception], bool], max_lock_wait_s: float, interruption: Interruption
) -> T:
    """Call `attempt` again while another program holds the lock, and return its result. After `max_lock_wait_s`
    seconds, raise the error of the last attempt."""
    deadline = time.monotonic() + max_lock_wait_s
    while True:
        interruption.raise_if_interrupted()
        try:
            return attempt()
        except Exception as error:
            if not is_busy(error) or time.monotonic() > deadline:
                raise
        time.sleep(_LOCK_PAUSE_S)
