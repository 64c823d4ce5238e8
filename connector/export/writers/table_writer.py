"""An export to a table of a database file: rows are staged as Arrow, then written in one short transaction.

So the database is not locked while the list is read, and a reading that fails never touched it.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.ipc as ipc

from connector.errors import ConfigurationError, RunAborted
from connector.export.writers.staging import open_nameless_beside, open_room_beside, put_in_place, read_target, told_of

_BATCH = 16_384
"""Rows of a staged batch: a few MB in memory, and large enough that a batch costs nothing by itself."""


@dataclass(frozen=True, slots=True)
class TableName:
    """A table of a database file."""

    path: Path
    table: str
    schema: str | None = None

    def __str__(self) -> str:
        return f"the table {'.'.join(filter(None, (self.schema, self.table)))} in {self.path}"


@dataclass(frozen=True, slots=True)
class Database:
    """What a kind of database must be able to do; `errors` are those that its package raises."""

    has_table: Callable[[TableName], bool]
    replace: Callable[[TableName, pa.Schema, Iterator[pa.RecordBatch]], None]
    errors: tuple[type[Exception], ...]


class TableWriter:
    """A Writer of a table; a database that is new is readable by its owner only, one that was there keeps its mode."""

    def __init__(self, name: TableName, database: Database, schema: pa.Schema) -> None:
        self._name = TableName(read_target(name.path), name.table, name.schema)
        self._database = database
        self._schema = schema
        self._stage: BinaryIO | None = None
        self._batches: ipc.RecordBatchStreamWriter | None = None
        self._waiting: list[pa.Table] = []
        self._rows = 0

    @property
    def has_target(self) -> bool:
        """Whether the database has such a table; raises ConfigurationError if it cannot be opened."""
        try:
            return self._name.path.exists() and self._database.has_table(self._name)
        except self._database.errors as error:
            raise ConfigurationError(f"Cannot open {self._name}: {error}. Is it in use, or another file?") from error

    def start(self) -> None:
        """Begin a new stage."""
        self.discard()
        self._refuse_strays()
        self._stage = open_nameless_beside(self._name.path)
        with self._told():
            options = ipc.IpcWriteOptions(compression="lz4")
            self._batches = ipc.new_stream(self._stage, self._schema, options=options)

    def add(self, table: pa.Table) -> None:
        """Stage rows."""
        if self._batches is None:
            raise ValueError("start() comes before add()")
        self._waiting.append(table)
        self._rows += table.num_rows
        if self._rows >= _BATCH:
            self._flush()

    def publish(self) -> None:
        """Write the staged rows in one transaction; a database that is new appears whole."""
        if self._stage is None or self._batches is None:
            raise ValueError("start() comes before publish()")
        self._flush()
        with self._told():
            self._batches.close()
            self._stage.seek(0)
            staged = iter(ipc.open_stream(self._stage))
            if self._name.path.exists():
                self._database.replace(self._name, self._schema, staged)
            else:
                self._create(staged)
        self.discard()

    def discard(self) -> None:
        """Forget the stage, if there is one."""
        stage, self._stage, self._batches = self._stage, None, None
        self._waiting, self._rows = [], 0
        if stage is not None:
            stage.close()

    def _flush(self) -> None:
        waiting, self._waiting, self._rows = self._waiting, [], 0
        if waiting and self._batches is not None:
            with self._told():
                self._batches.write_table(pa.concat_tables(waiting).combine_chunks())

    def _create(self, staged: Iterator[pa.RecordBatch]) -> None:
        """A new database is made in a room of its own, with its journals, and moved out when whole."""
        target = self._name.path
        with open_room_beside(target) as room:
            new = room / target.name
            self._database.replace(TableName(new, self._name.table, self._name.schema), self._schema, staged)
            new.chmod(0o600)
            self._refuse_strays()
            if target.exists():
                raise RunAborted(f"{target} was made by another program meanwhile and was left as it is: run it again.")
            put_in_place(new, target)

    def _refuse_strays(self) -> None:
        """Beside a new database, the journal of one that is gone would be taken for its own, and undo it."""
        path = self._name.path
        strays = [path.with_name(path.name + suffix) for suffix in ("-journal", "-wal", ".wal")]
        found = [stray for stray in strays if stray.exists()]
        if found and not path.exists():
            raise ConfigurationError(
                f"{found[0]} is left of a database that is gone; a new {path.name} beside it would be spoilt: "
                "move it away, or export elsewhere"
            )

    def _told(self) -> AbstractContextManager[None]:
        return told_of(str(self._name), pa.ArrowException, *self._database.errors)
