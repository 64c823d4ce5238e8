"""A DuckDB file, by DuckDB's own package and Arrow: tags are VARCHAR[], times TIMESTAMP WITH TIME ZONE.

Statements are written as SQLAlchemy writes them for PostgreSQL, whose SQL DuckDB speaks; the stage is no table but
the staged Arrow stream itself, opened anew by each statement that reads it.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.sql.compiler import SQLCompiler

from connector.driver_words import say_safely
from connector.export.writers.dialect import is_table_in_any_letters
from connector.export.writers.duckdb_catalogue import describe_duckdb_table, find_referrers_in_duckdb
from connector.export.writers.fitting import FoundTable
from connector.export.writers.layout import Layout, TableName
from connector.export.writers.postgres_place import POSTGRESQL
from connector.export.writers.session import Session
from connector.export.writers.staged import Rows
from connector.export.writers.staging import open_room_beside

_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "threads": 2, "preserve_insertion_order": False, "autoinstall_known_extensions": False,
}  # fmt: skip
"""Two threads compress twice as fast, where rows need not stand in the order in which they came. And DuckDB would get
code from the network for whatever it takes a file to be."""

_MEMORY_MB = 80
"""It takes 80 % of the machine's otherwise."""

_MOST_JOINED = 250_000
"""Rows of which it joins the columns within that memory."""

_FROM_ROWS = "auto_checkpoint_skip_wal_threshold"
"""The rows from which on a commit may do without the log, in DuckDB 1.5 and later; before, it does at any number."""

_WRITER = postgresql.dialect(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call] # SQLAlchemy's own

DUCKDB = replace(
    POSTGRESQL,
    folds_case=True,
    is_table=is_table_in_any_letters,
    wants_index=False,
    holds_nul=True,
    most_joined=_MOST_JOINED,
    longest_name=None,
    replaces_to_update=True,  # of lists, such as the tags
)


class DuckdbPlace:
    """A file, which need not be there yet. Others cannot have it open while it is written to."""

    dialect = DUCKDB
    errors: tuple[type[Exception], ...] = (duckdb.Error,)
    can_rehearse = False  # to open it for writing would fail for the sake of somebody who reads it for a moment

    def __init__(self, path: Path, memory_mb: int = _MEMORY_MB) -> None:
        self._path = path
        self._memory_mb = memory_mb

    def __str__(self) -> str:
        return str(self._path)

    def allow(self, memory_mb: int) -> "DuckdbPlace":
        """The same file, where DuckDB may take so much memory."""
        return DuckdbPlace(self._path, memory_mb)

    @contextmanager
    def connect(self, *, is_reading: bool = False) -> Iterator[Session]:
        """A connection; what does not fit into its memory goes to a room beside the file, the owner's only."""
        with ExitStack() as stack:
            settings = _SETTINGS | {"memory_limit": f"{self._memory_mb}MB"}
            if not is_reading:
                settings = settings | {"temp_directory": str(stack.enter_context(open_room_beside(self._path)))}
            connection = stack.enter_context(duckdb.connect(str(self._path), read_only=is_reading, config=settings))
            if not is_reading:
                _go_without_log(connection)
            connection.execute("set timezone = 'UTC'")
            yield DuckdbSession(connection)

    def explain(self, error: Exception) -> str:
        """The first line of what DuckDB said, without values of rows."""
        return say_safely(error)

    def is_passing(self, error: Exception) -> bool:
        """Whether another process has the file open; nothing else of a file passes by itself, as far as can be told."""
        return isinstance(error, duckdb.IOException) and "Could not set lock" in str(error)


class DuckdbSession:
    """A Session of a DuckDB file; nobody else has it open."""

    dialect = DUCKDB

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._stages: dict[str, Rows] = {}

    def begin(self) -> None:
        """Begin the transaction."""
        self._connection.begin()

    def commit(self) -> None:
        """Let what was done last."""
        self._connection.commit()

    def rollback(self) -> None:
        """Undo all since `begin`."""
        self._connection.rollback()

    def execute(self, statement: sa.Executable) -> int:
        """Carry it out; how many rows it touched."""
        rows = self._run(statement)
        return int(rows[0][0]) if rows and isinstance(statement, sa.UpdateBase) else 0

    def fetch(self, statement: sa.Executable) -> Sequence[Sequence[Any]]:
        """The rows that it gives; none may hold a time, which DuckDB gives only where pytz is."""
        return self._run(statement)

    def describe(self, name: TableName) -> FoundTable | None:
        """The table or view of that name; None where there is none."""
        return describe_duckdb_table(self._connection, name)

    def list_referrers(self, name: TableName) -> Sequence[str]:
        """The other tables that refer to this one; they are in the same schema."""
        return find_referrers_in_duckdb(self._connection, name)

    def make_schema(self, schema: str) -> None:
        """Make the schema if it is not there."""
        self._connection.execute(f"create schema if not exists {self.quote(schema)}")

    def quote(self, name: str) -> str:
        """A name as a statement has it."""
        return _WRITER.identifier_preparer.quote_identifier(name)

    def fill(self, stage: sa.Table, rows: Rows) -> None:
        """Keep the rows for the statements that read the stage."""
        self._stages[stage.name] = rows

    def find_loader(self, layout: Layout) -> None:
        """Nothing does: the stage is no table, and so no detour."""

    def prepare_turns(self, layout: Layout) -> None:
        """Nobody else has the file open."""

    def take_turn(self, layout: Layout) -> None:
        """Nobody else has the file open."""

    def hold(self, layout: Layout) -> None:
        """Nobody else has the file open."""

    def _run(self, statement: sa.Executable) -> list[tuple[Any, ...]]:
        compiled = statement.compile(dialect=_WRITER)  # type: ignore[attr-defined] # every Executable has it
        text, values = str(compiled), []
        if isinstance(compiled, SQLCompiler):
            values = [compiled.params[name] for name in compiled.positiontup or ()]
        read = {name: rows for name, rows in self._stages.items() if name in text}
        for name, rows in read.items():
            self._connection.register(name, pa.RecordBatchReader.from_batches(rows.schema, rows.read()))
        result = self._connection.execute(text, values).fetchall()
        # Not after a failure: in an aborted transaction this fails as well, and would be all that is heard.
        for name in read:
            self._connection.unregister(name)
        return result


def _go_without_log(connection: duckdb.DuckDBPyConnection) -> None:
    """Let a commit go straight into the database file, as DuckDB does by itself with large ones.

    It takes what follows a `?` in a path, a folder's too, for options, and seeks its log in a folder that is not there.
    """
    connection.execute("set checkpoint_threshold = '0B'")
    if connection.execute("select 1 from duckdb_settings() where name = ?", [_FROM_ROWS]).fetchone():
        connection.execute(f"set {_FROM_ROWS} = 0")
