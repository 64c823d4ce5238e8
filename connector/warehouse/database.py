"""What an export needs of a database: its dialect of SQL, its operations, staged rows, and interruptions."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO, Protocol, TypeVar, cast

import pyarrow as pa
import pyarrow.ipc as ipc

from connector.atomic_file import describe_unwritable
from connector.errors import ConfigurationError

T = TypeVar("T")


class ColumnKind(StrEnum):
    """The kind of a column's values. A name is a text that is short enough for a key."""

    TEXT = "text"
    NAME = "name"
    WHOLE = "whole number"
    FLAG = "flag"
    DATE = "date"
    TIME = "time"
    TAGS = "list of texts"


@dataclass(frozen=True, slots=True)
class TableName:
    """The name of a table, with its schema if the user gave one."""

    table: str
    schema: str | None = None

    def __str__(self) -> str:
        return ".".join(filter(None, (self.schema, self.table)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How one kind of database writes SQL, and what it can do.

    `types` has the type of each kind of column. `quotes` open and close a name. `mark` begins the name of a parameter.
    `catalog` and `default_schema` are written before the name of a table, and `temporary` before that of a temporary
    table. Three fields are templates: `differs` (whether two values differ, null included), `as_bytes` (the bytes of a
    text) and `first_row` (a query of one row).

    `undoes_tables`: a rollback also undoes the creation of tables. `casts_null`: null can be cast to the type of a
    column, so that a mismatch of types shows without rows. `holds_nul`: texts may contain U+0000. `longest_name`: the
    database truncates longer names of tables (in bytes) without an error. `joins_by_comma`: an UPDATE lists both
    tables, as in MySQL. `is_columnar`: joins need no index, and an UPDATE of a list is slow (see
    connector.warehouse.duckdb).
    """

    types: Mapping[ColumnKind, str]
    quotes: tuple[str, str] = ('"', '"')
    mark: str = ":"
    catalog: str | None = None
    default_schema: str | None = None
    temporary: str = ""
    table_options: str = ""
    stage_options: str = ""
    differs: str = "{} IS DISTINCT FROM {}"
    as_bytes: str = "{}"
    first_row: str = "SELECT 1 FROM {} LIMIT 1"
    undoes_tables: bool = True
    casts_null: bool = True
    holds_nul: bool = True
    longest_name: int | None = None
    joins_by_comma: bool = False
    is_columnar: bool = False

    def quote(self, name: str) -> str:
        """Return a name in quotes."""
        opening, closing = self.quotes
        return f"{opening}{name.replace(closing, closing * 2)}{closing}"

    def write_name(self, name: TableName) -> str:
        """Return a table's quoted name, with its catalog and schema."""
        parts = (self.catalog, name.schema or self.default_schema, name.table)
        return ".".join(self.quote(part) for part in parts if part is not None)

    def write_list(self, names: Sequence[str]) -> str:
        """Return the quoted names, separated by commas."""
        return ", ".join(map(self.quote, names))

    def write_differs(self, ours: str, theirs: str, kind: ColumnKind) -> str:
        """Return the condition that two values differ; texts are compared by bytes, and null equals null."""
        if kind in (ColumnKind.TEXT, ColumnKind.TAGS):
            ours, theirs = self.as_bytes.format(ours), self.as_bytes.format(theirs)
        return self.differs.format(ours, theirs)


Values = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement, and its values by the names that follow the dialect's mark in the text."""

    text: str
    values: Values = field(default_factory=dict)


class Interrupted(Exception):  # noqa: N818 - a requested stop, not an error
    """An interruption came before the commit: nothing was written."""


class Interruption:
    """Lets a second thread cancel the work of a database, until its commit begins."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._is_asked = False
        self._cancel: Callable[[], None] | None = None
        self.is_committing = False

    def interrupt(self) -> None:
        """Cancel the running statement, and let no commit begin. May block as long as the database's own cancel."""
        with self._lock:
            self._is_asked = True
            cancel = None if self.is_committing else self._cancel
        if cancel is not None:
            cancel()

    def check(self) -> None:
        """Raise Interrupted after `interrupt`."""
        if self._is_asked:
            raise Interrupted

    def begin_commit(self) -> None:
        """Record that the commit begins. Raises Interrupted after `interrupt`."""
        with self._lock:
            self.check()
            self.is_committing = True

    @contextmanager
    def cancel_by(self, cancel: Callable[[], None]) -> Iterator[None]:
        """Call `cancel` for an interruption within the context."""
        with self._lock:
            self.check()
            self._cancel = cancel
        try:
            yield
        finally:
            with self._lock:
                self._cancel = None


_STAGED_BATCH = 16_384
"""Rows of a staged batch: a few MB in memory, and enough rows that the overhead of a batch does not matter."""


@dataclass(frozen=True, slots=True)
class StagedRows:
    """Rows that can be read repeatedly, batch by batch."""

    schema: pa.Schema
    read: Callable[[], Iterator[pa.RecordBatch]]

    def map(self, change: Callable[[pa.RecordBatch], pa.RecordBatch]) -> "StagedRows":
        """Return the rows with a change that is applied to each batch as it is read."""
        return StagedRows(self.schema, lambda: map(change, self.read()))


class Stage:
    """Collects rows in a file until `close_rows`, which returns all rows. `discard` closes the file."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        self._file = file
        self._schema = schema
        self._writer = ipc.new_stream(file, schema, options=ipc.IpcWriteOptions(compression="lz4"))
        self._waiting: list[pa.Table] = []
        self._count = 0

    def add(self, table: pa.Table) -> None:
        """Add rows, and write them once there are enough for a batch."""
        self._waiting.append(table)
        self._count += table.num_rows
        if self._count >= _STAGED_BATCH:
            self._flush()

    def close_rows(self) -> StagedRows:
        """Write the last batch, and return all rows in their order."""
        self._flush()
        self._writer.close()
        return StagedRows(self._schema, self._read)

    def discard(self) -> None:
        """Delete the rows."""
        self._waiting.clear()
        self._file.close()

    def _read(self) -> Iterator[pa.RecordBatch]:
        self._file.seek(0)
        yield from ipc.open_stream(self._file)

    def _flush(self) -> None:
        waiting, self._waiting, self._count = self._waiting, [], 0
        if waiting:
            self._writer.write_table(pa.concat_tables(waiting).combine_chunks())


def open_stage(schema: pa.Schema, folder: Path | None = None) -> Stage:
    """Return a stage in a temporary file without a name, in this folder or in that of the system. Raises OSError."""
    return Stage(cast(BinaryIO, tempfile.TemporaryFile(dir=folder)), schema)


class Database(Protocol):
    """One database. `connect` opens a transaction, in which the other methods work. They raise the classes in `errors`,
    and Interrupted. `str()` gives its name for messages, without secrets."""

    dialect: Dialect

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """The classes of errors that the driver raises."""

    def connect(self, interruption: Interruption) -> AbstractContextManager[None]:
        """Open a transaction, and roll it back at the end of the context unless `commit` was called. Create the file of
        the database if the database is a missing file."""

    def commit(self, interruption: Interruption) -> None:
        """Commit the transaction. Raises Interrupted if an interruption came before."""

    def run(self, statement: Statement) -> int:
        """Execute a statement, and return the number of its rows."""

    def fetch(self, statement: Statement, most: int) -> Sequence[Sequence[Any]]:
        """Return the first rows of a query, up to `most`. No column may hold times."""

    def load(self, table: str, rows: StagedRows, shared: Mapping[str, object]) -> int:
        """Insert rows into a table, whose name is given as SQL. All rows get the `shared` values. Return the number of
        rows."""

    def has_schema(self, schema: str) -> bool:
        """Return whether the schema exists."""

    def find_table(self, name: TableName) -> tuple[str | None, Mapping[str, bool]]:
        """Return the name under which the database knows the table or view (None if it is missing), and its columns,
        each with whether every row needs a value for it."""

    def find_referrers(self, name: TableName) -> Sequence[str]:
        """Return the other tables that refer to this one by a foreign key, as far as the user may see them."""

    def write_time(self, at: datetime) -> object:
        """Return an aware time as a value of a statement."""

    def explain(self, error: Exception) -> str:
        """Return the message of the database in one line, without secrets and personal data."""

    def is_passing(self, error: Exception) -> bool:
        """Return whether the failure may be over by the next run: a connection, a lock, a full disk."""

    def is_refusal(self, error: Exception) -> bool:
        """Return whether the database refuses a value: by the type of a column, a constraint or a trigger."""

    def is_race(self, error: Exception) -> bool:
        """Return whether another export made the same schema or table, or took the same number, at the same moment."""


LOCK_S = 30.0
"""How long an export waits for the lock of a database file; readers hold a lock for moments."""

_PAUSE_S = 0.05


def make_file(path: Path, create: Callable[[Path], None]) -> None:
    """Make a database file by `create`, which raises OSError, if the file is missing.

    Raises ConfigurationError for a path that is no writable file, and for the journal of a database that is gone: it
    would spoil a new database.
    """
    if path.exists():
        if not path.is_file() or not os.access(path, os.W_OK):  # a pipe would wait for its reader
            raise ConfigurationError(f"{path} is not a file that may be written to: allow it, or name another place.")
        return
    for suffix in ("-journal", "-wal", ".wal"):
        stray = path.with_name(path.name + suffix)
        if stray.exists():
            raise ConfigurationError(
                f"{stray} belongs to a database that is gone, and would spoil a new {path.name}: move it away, or "
                "name another place."
            )
    try:
        create(path)
    except FileExistsError:  # another export was quicker
        pass
    except OSError as error:
        raise describe_unwritable(path.parent, error) from None


def create_empty(path: Path) -> None:
    """Make an empty file that only its owner may read. Raises OSError."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def wait_for_lock(
    attempt: Callable[[], T], is_busy: Callable[[Exception], bool], lock_s: float, interruption: Interruption
) -> T:
    """Repeat the attempt while another program holds the lock, and return its result; raise its error after `lock_s`
    seconds."""
    end = time.monotonic() + lock_s
    while True:
        interruption.check()
        try:
            return attempt()
        except Exception as error:
            if not is_busy(error) or time.monotonic() > end:
                raise
        time.sleep(_PAUSE_S)
