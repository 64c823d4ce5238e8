"""A Writer of a table: rows are staged as Arrow while the list is read, then written in one transaction.

So nothing is locked while the list is read, and a reading that fails has written no row. Each method but `interrupt`
blocks, and runs in one thread at a time, which owns the connection while it has one.
"""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa

from connector.atomic_file import describe_unwritable
from connector.errors import ConfigurationError, ConnectorError, RunAborted
from connector.warehouse.export_table import ExportTable, Uncertain
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
from connector.warehouse.stage import Stage


class TableWriter:
    """A Writer of `export_table`; rows on their way are in `folder`, or in the system's for such."""

    def __init__(self, export_table: ExportTable, schema: pa.Schema, mode: Mode, folder: Path | None = None) -> None:
        self._table, self._mode, self._folder = export_table, mode, folder
        self._schema = pa.schema([field for field in schema if field.name not in OF_RUN])
        self._interruption = Interruption()
        self._found: TargetState | None = None
        self._stage: Stage | None = None
        self._is_open = False

    def __str__(self) -> str:
        return str(self._table)

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
        export_table = self._table
        failures: tuple[type[Exception], ...] = (OSError, *export_table.errors)
        try:
            self._found = export_table.prepare(beginning, self._interruption)
        except ConnectorError:
            raise
        except failures as error:
            said = export_table.explain(error)
            if export_table.is_passing(error):
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
                changes = self._table.publish(rows, run, self._interruption)
            except Uncertain as lost:
                changes = self._settle(run, lost)
        self._is_open = False
        self._drop_stage()
        return changes

    def interrupt(self) -> None:
        """End `prepare` or `publish` soon, and without a change; a commit that has begun ends by itself."""
        with suppress(*self._table.errors, OSError):  # what was to be cancelled has ended
            self._interruption.interrupt()

    def discard(self) -> None:
        """Forget the stage, and what was made in vain."""
        self._drop_stage()
        if self._is_open:
            self._is_open = False
            with suppress(OSError, ConnectorError, *self._table.errors):  # empty, and the next export uses it
                self._table.clear(Interruption())

    def _drop_stage(self) -> None:
        stage, self._stage = self._stage, None
        if stage is not None:
            with suppress(OSError):  # bytes that no longer fit on the disk belong to a file that is gone next
                stage.discard()

    def _settle(self, run: ExportRun, lost: Uncertain) -> RowChanges:
        """The connection was lost while the transaction was being committed: ask again whether it was."""
        export_table = self._table
        try:
            is_published = export_table.is_published(Interruption())
        except export_table.errors as error:
            raise CommitUnknown(
                f"The connection was lost while {self} was being committed ({export_table.explain(error)}): it is as "
                f"after if the line of the run {run.run_id} in _connector_runs has a finished_at, else as before."
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
        except (OSError, pa.ArrowException, *self._table.errors) as error:
            said = self._table.explain(error)
            raise RunAborted(f"Could not write {self}: {said}. What was there is as it was; run it again.") from None
