"""A Writer of a table: rows are staged as Arrow while the list is read, then written in one transaction.

So nothing is locked while the list is read, and a reading that fails has written no row. Each method but `interrupt`
blocks, and runs in one thread at a time, which owns the connection while it has one.
"""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, cast

import pyarrow as pa

from connector.atomic_file import describe_unwritable
from connector.errors import ConfigurationError, ConnectorError, RunAborted
from connector.warehouse.interruption import Interruption
from connector.warehouse.runs import (
    OF_RUN,
    CommitUnknown,
    ExportRun,
    ExportStart,
    Mode,
    RowChanges,
    TargetState,
    check_filters,
    find_last_rows,
)
from connector.warehouse.stage import Stage, StagedRows


@dataclass(frozen=True, slots=True)
class TableName:
    """A table, and the schema that it is in where the database has any and one was given."""

    table: str
    schema: str | None = None

    def __str__(self) -> str:
        return ".".join(filter(None, (self.schema, self.table)))


class Uncertain(Exception):  # noqa: N818 - a state of knowledge, not a fault
    """A commit failed in such a way that it may have been done; `error` says how, `changes` what it would have done."""

    def __init__(self, error: Exception, changes: RowChanges) -> None:
        super().__init__(str(error))
        self.error = error
        self.changes = changes


class TableBackend(Protocol):
    """A table of one kind of database; its methods raise what is in `errors`, and Interrupted."""

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What its driver raises."""

    def __str__(self) -> str:
        """Return the table and the database, for messages; nothing secret."""

    def explain(self, error: Exception) -> str:
        """Return what the database said, in one line, with nothing secret or personal in it."""

    def is_passing(self, error: Exception) -> bool:
        """Return whether the failure may be over by the next run: a connection, a lock."""

    def prepare(self, beginning: ExportStart, interruption: Interruption) -> TargetState:
        """Go the whole way with no row, then take a number; what the target is like. Raises ConfigurationError."""

    def publish(self, rows: StagedRows, run: ExportRun, interruption: Interruption) -> RowChanges:
        """Write the rows in one transaction. Raises Uncertain, and RunAborted for rows that would be older."""

    def is_published(self, interruption: Interruption) -> bool:
        """Return whether this run's transaction was committed."""

    def clear(self, interruption: Interruption) -> None:
        """Undo what `prepare` made and did not roll back, after an export that wrote nothing."""


class TableWriter:
    """A Writer of the table of `backend`; rows on their way are in `folder`, or in the system's for such."""

    def __init__(self, backend: TableBackend, schema: pa.Schema, mode: Mode, folder: Path | None = None) -> None:
        self._backend, self._mode, self._folder = backend, mode, folder
        self._schema = pa.schema([field for field in schema if field.name not in OF_RUN])
        self._interruption = Interruption()
        self._found: TargetState | None = None
        self._stage: Stage | None = None
        self._is_open = False

    def __str__(self) -> str:
        return str(self._backend)

    @property
    def has_target(self) -> bool:
        """Whether the table had rows when the export began."""
        return self._found is not None and self._found.has_rows

    @property
    def is_committing(self) -> bool:
        """Whether the transaction is at its commit."""
        return self._interruption.is_committing

    def prepare(self, beginning: ExportStart) -> None:
        """Go the whole way with no row, and take a number. Raises ConfigurationError, RunAborted."""
        check_filters(beginning.filters, self._mode, self._schema.names)
        self._is_open = True
        backend = self._backend
        failures: tuple[type[Exception], ...] = (OSError, *backend.errors)
        try:
            self._found = backend.prepare(beginning, self._interruption)
        except ConnectorError:
            raise
        except failures as error:
            said = backend.explain(error)
            if backend.is_passing(error):
                raise RunAborted(f"{self} cannot be written now: {said}. It is as it was; run it again.") from None
            raise ConfigurationError(f"Cannot open or write {self}: {said}. It is as it was.") from None

    def start(self) -> None:
        """Begin a new stage."""
        self._drop_stage()
        try:
            file = cast(BinaryIO, tempfile.TemporaryFile(dir=self._folder))  # noqa: SIM115 - closed with the stage
        except OSError as error:
            raise describe_unwritable(self._folder or Path(tempfile.gettempdir()), error) from error
        with self._translate():
            self._stage = Stage(file, self._schema)

    def add(self, table: pa.Table) -> None:
        """Stage rows."""
        if self._stage is None:
            raise ValueError("start() comes before add()")
        with self._translate():
            self._stage.add(table.select(self._schema.names))  # what all rows share is known when they are published

    def count_last(self, filters: Mapping[str, object]) -> int | None:
        """Return the rows of the last certified export to this table with these filters."""
        return None if self._found is None else find_last_rows(self._found.runs, filters)

    def publish(self, run: ExportRun) -> RowChanges:
        """Write the staged rows in one transaction. Raises RunAborted."""
        if self._stage is None:
            raise ValueError("start() comes before publish()")
        with self._translate():
            rows = self._stage.close_rows()
            pa.default_memory_pool().release_unused()  # the list is read; what its pages took, the database may take
            try:
                changes = self._backend.publish(rows, run, self._interruption)
            except Uncertain as lost:
                changes = self._settle(run, lost)
        self._is_open = False
        self._drop_stage()
        return changes

    def interrupt(self) -> None:
        """End `prepare` or `publish` soon, and without a change; a commit that has begun ends by itself."""
        with suppress(*self._backend.errors, OSError):  # what was to be cancelled has ended
            self._interruption.interrupt()

    def discard(self) -> None:
        """Forget the stage, and what was made in vain."""
        self._drop_stage()
        if self._is_open:
            self._is_open = False
            with suppress(OSError, ConnectorError, *self._backend.errors):  # empty, and the next export uses it
                self._backend.clear(Interruption())

    def _drop_stage(self) -> None:
        stage, self._stage = self._stage, None
        if stage is not None:
            with suppress(OSError):  # bytes that no longer fit on the disk belong to a file that is gone next
                stage.discard()

    def _settle(self, run: ExportRun, lost: Uncertain) -> RowChanges:
        """The connection was lost while the transaction was being committed: ask again whether it was."""
        backend = self._backend
        try:
            is_published = backend.is_published(Interruption())
        except backend.errors as error:
            raise CommitUnknown(
                f"The connection was lost while {self} was being committed ({backend.explain(error)}): it is as after "
                f"if the line of the run {run.run_id} in _connector_runs has a finished_at, else as before."
            ) from None
        if not is_published:
            raise lost.error
        return lost.changes

    @contextmanager
    def _translate(self) -> Iterator[None]:
        """Turn a failure to write into RunAborted, which says that the target is as it was."""
        try:
            yield
        except ConfigurationError as error:  # found only now: it was changed while the list was read
            raise RunAborted(f"{error} What was there is as it was.") from None
        except (OSError, pa.ArrowException, *self._backend.errors) as error:
            said = self._backend.explain(error)
            raise RunAborted(f"Could not write {self}: {said}. What was there is as it was; run it again.") from None
