"""A Writer of a table: rows are staged as Arrow while the list is read, then written in one transaction.

So nothing is locked while the list is read, and a reading that fails has written no row. Each method but `interrupt`
blocks, and runs in one thread at a time, which owns the connection while it has one.
"""

import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar, cast

import pyarrow as pa

from connector.atomic_file import describe_unwritable
from connector.errors import ConfigurationError, ConnectorError, RunAborted
from connector.warehouse.columns import move_nuls
from connector.warehouse.dialect import Dialect, Statement, TableName
from connector.warehouse.interruption import Interruption
from connector.warehouse.runs import (
    EXPORTED_AT,
    OF_RUN,
    RUN_ID,
    RUNS,
    CommitUnknown,
    ExportRun,
    ExportStart,
    FinishedRun,
    Mode,
    RowChanges,
    TargetState,
    check_filters,
    check_referrers,
    check_target,
    describe_beginning,
    describe_end,
    find_last_rows,
    refuse_now,
)
from connector.warehouse.stage import Stage, StagedRows, build_no_rows
from connector.warehouse.statements import TableStatements

T = TypeVar("T")

_ATTEMPTS = 3
"""Two exports that begin at once may take the same number, or make the same table: the second tries again."""

_MOST_RUNS = 200
"""The number of finished runs of a table that are read, the latest first."""


class Database(Protocol):
    """One database. `connect` opens a transaction, in which the other methods work. They raise the classes in `errors`,
    and Interrupted."""

    @property
    def dialect(self) -> Dialect:
        """The dialect of SQL."""

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """The classes of errors that the driver raises."""

    def __str__(self) -> str:
        """Return the name of the database for messages, without secrets."""

    def make_file(self) -> bool:
        """Create the file of the database if the database is a missing file; return whether a file was created. Raises
        ConfigurationError."""

    def remove_file(self) -> None:
        """Remove the file that `make_file` created."""

    def connect(self, interruption: Interruption) -> AbstractContextManager[None]:
        """Open a transaction, and roll it back at the end of the context unless `commit` was called."""

    def commit(self, interruption: Interruption) -> None:
        """Commit the transaction; raises Interrupted while that can still be taken back."""

    def run(self, statement: Statement) -> int:
        """Carry out a statement; return how many rows it touched."""

    def fetch(self, statement: Statement, most: int) -> Sequence[Sequence[Any]]:
        """Return the first rows of a query, up to `most`."""

    def load(self, table: str, rows: StagedRows, shared: Mapping[str, object]) -> int:
        """Insert rows into a table, whose name is given as SQL. All rows get the `shared` values. Return the number of
        rows."""

    def has_schema(self, schema: str) -> bool:
        """Return whether the schema is there."""

    def find_table(self, name: TableName) -> tuple[str | None, Sequence[str]]:
        """Return the name under which the database knows the table or view (None if it is missing), and its columns."""

    def list_tables(self) -> Collection[str]:
        """Return the names of all tables of a database that is a file."""

    def find_referrers(self, name: TableName) -> Sequence[str]:
        """Return the other tables that refer to this one by a foreign key, as far as the user may see them."""

    def write_time(self, at: datetime) -> object:
        """Return a time as a value of a statement."""

    def explain(self, error: Exception) -> str:
        """Return what the database said, in one line, with nothing secret or personal in it."""

    def is_passing(self, error: Exception) -> bool:
        """Return whether the failure may be over by the next run: a connection, a lock."""

    def is_race(self, error: Exception) -> bool:
        """Return whether another export made the same schema or table, or took the same number, at the same moment."""


class TableWriter:
    """Writes the table `name` of a database. Staged rows wait in `folder`, or in the system's temporary folder."""

    def __init__(
        self,
        name: TableName,
        schema: pa.Schema,
        mode: Mode,
        database: Database,
        *,
        overwrite: bool = False,
        folder: Path | None = None,
    ) -> None:
        self._name, self._mode, self._database = name, mode, database
        self._overwrite, self._folder = overwrite, folder
        self._schema = pa.schema([field for field in schema if field.name not in OF_RUN])
        self._statements = TableStatements(database.dialect, name, schema, mode)
        self._interruption = Interruption()
        self._found: TargetState | None = None
        self._stage: Stage | None = None
        self._number = 0
        self._is_open = self._has_made_file = self._has_made_table = False

    def __str__(self) -> str:
        return f"the table {self._name} in {self._database}"

    @property
    def has_target(self) -> bool:
        """Whether the table had rows when the export began."""
        return self._found is not None and self._found.has_rows

    @property
    def is_committing(self) -> bool:
        """Whether the transaction is at its commit."""
        return self._interruption.is_committing

    def prepare(self, beginning: ExportStart) -> None:
        """Rehearse the export without rows, then take a number for the run. Raises ConfigurationError, RunAborted."""
        check_filters(beginning.filters, self._mode, self._schema.names)
        database, longest = self._database, self._database.dialect.longest_name
        if longest is not None and len(self._name.table.encode()) > longest:
            raise ConfigurationError(f"{self} cannot be made: its name has more than {longest} bytes.")
        self._is_open = True
        failures: tuple[type[Exception], ...] = (OSError, *database.errors)
        try:
            self._has_made_file = database.make_file()
            self._found = self._try(self._rehearse)
            self._try(lambda: self._begin(beginning))
        except ConnectorError:
            raise
        except failures as error:
            said = database.explain(error)
            if database.is_passing(error) or database.is_race(error):
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
        """Write the staged rows in one transaction. Raises RunAborted, also for rows that would be older."""
        if self._stage is None:
            raise ValueError("start() comes before publish()")
        with self._translate():
            rows = self._stage.close_rows()
            pa.default_memory_pool().release_unused()  # the list is read; what its pages took, the database may take
            changes = self._publish(rows, run)
        self._is_open = False
        self._drop_stage()
        return changes

    def interrupt(self) -> None:
        """End `prepare` or `publish` soon, and without a change; a commit that has begun ends by itself."""
        with suppress(*self._database.errors, OSError):  # what was to be cancelled has ended
            self._interruption.interrupt()

    def discard(self) -> None:
        """Forget the stage, and what was made in vain."""
        self._drop_stage()
        if self._is_open:
            self._is_open = False
            with suppress(OSError, ConnectorError, *self._database.errors):  # empty, and the next export uses it
                self._clear()

    def _drop_stage(self) -> None:
        stage, self._stage = self._stage, None
        if stage is not None:
            with suppress(OSError):  # bytes that no longer fit on the disk belong to a file that is gone next
                stage.discard()

    @contextmanager
    def _translate(self) -> Iterator[None]:
        """Turn a failure to write into RunAborted, which says that the target is as it was."""
        try:
            yield
        except ConfigurationError as error:  # found only now: it was changed while the list was read
            raise RunAborted(f"{error} What was there is as it was.") from None
        except (OSError, pa.ArrowException, *self._database.errors) as error:
            said = self._database.explain(error)
            raise RunAborted(f"Could not write {self}: {said}. What was there is as it was; run it again.") from None

    def _try(self, work: Callable[[], T]) -> T:
        """Do the work, and repeat it if another export made the same table or took the same number at the same time."""
        for _ in range(1, _ATTEMPTS):
            try:
                return work()
            except self._database.errors as error:
                if not self._database.is_race(error):
                    raise
        return work()

    def _rehearse(self) -> TargetState:
        """Run every kind of statement without rows, and return the state of the target."""
        database, statements = self._database, self._statements
        undoes_tables = database.dialect.undoes_tables
        with database.connect(self._interruption):
            found = self._look()
            self._check(found)
            self._check_referrers(found)
            self._has_made_table = not undoes_tables and not found.exists
            self._make_tables(with_target=True)
            if self._mode.is_by_id:
                database.run(statements.create_stage())
                database.load(statements.stage, build_no_rows(self._schema), {})
            for statement in statements.rehearse():
                database.run(statement)
            if not undoes_tables:
                database.commit(Interruption())  # an interruption is refused only while the rows are committed
        return found

    def _begin(self, beginning: ExportStart) -> None:
        """Insert the line of this run, under the table's next number."""
        database = self._database
        with database.connect(self._interruption):
            self._make_tables(with_target=False)
            ((last,),) = database.fetch(self._statements.select_last_number(), 1)
            self._number = int(last) + 1
            values = describe_beginning(self._name.table, self._number, beginning, self._mode)
            database.run(self._statements.insert_line(self._write_times(values)))
            database.commit(Interruption())

    def _make_tables(self, *, with_target: bool) -> None:
        """Create the schema, `_connector_runs` and the target if they are missing."""
        database, schema = self._database, self._name.schema
        if schema is not None and not database.has_schema(schema):
            database.run(self._statements.create_schema(schema))
        if not self._has(RUNS):
            database.run(self._statements.create_runs())
        if with_target and not self._has(self._name.table):
            database.run(self._statements.create_target())

    def _has(self, table: str) -> bool:
        return self._database.find_table(TableName(table, self._name.schema))[0] is not None

    def _look(self) -> TargetState:
        database = self._database
        stored_as, columns = database.find_table(self._name)
        has_rows = stored_as is not None and bool(database.fetch(self._statements.select_first_row(), 1))
        lines: Sequence[Sequence[Any]] = ()
        if self._has(RUNS):
            lines = database.fetch(self._statements.select_finished(), _MOST_RUNS)
        return TargetState(stored_as, columns, has_rows, [FinishedRun(*line) for line in lines])

    def _check(self, found: TargetState) -> None:
        check_target(
            found, self._name.table, self._statements.columns, self._mode, str(self), overwrite=self._overwrite
        )

    def _check_referrers(self, found: TargetState) -> None:
        if found.exists and self._statements.deletes_rows:
            check_referrers(self._database.find_referrers(self._name), self._mode, str(self))

    def _lock(self) -> None:
        """Wait until no other export publishes to this table: each locks the first line of it."""
        if self._database.run(self._statements.lock_line(1)) == 0:  # it was deleted: the lowest that is there does
            ((lowest,),) = self._database.fetch(self._statements.select_lowest_number(), 1)
            if lowest is not None:
                self._database.run(self._statements.lock_line(int(lowest)))

    def _write(self, rows: StagedRows, run: ExportRun) -> RowChanges:
        database, statements = self._database, self._statements
        exported_at = database.write_time(run.exported_at)
        if not self._mode.is_by_id:
            closed = database.run(statements.delete_all()) if self._mode is Mode.REPLACE else 0
            shared = {RUN_ID: run.run_id, EXPORTED_AT: exported_at}
            return RowChanges(database.load(statements.target, rows, shared), 0, closed)
        database.run(statements.create_stage())
        database.load(statements.stage, rows, {})
        counts: Counter[str] = Counter()
        for step in statements.merge(run, exported_at):
            touched = database.run(step.statement)
            if step.counted is not None:
                counts[step.counted] += touched
        return RowChanges(counts["inserted"], counts["updated"], counts["closed"])

    def _publish(self, rows: StagedRows, run: ExportRun) -> RowChanges:
        database, interruption = self._database, self._interruption
        rows = _watch(rows if database.dialect.holds_nul else rows.map(move_nuls), interruption)
        with database.connect(interruption):
            self._lock()
            found = self._look()
            self._check(found)
            refuse_now(found, self._number, run, self._mode, str(self))
            self._check_referrers(found)
            if database.dialect.undoes_tables:
                self._make_tables(with_target=True)
            changes = self._write(rows, run)
            end = self._statements.update_line(self._number, self._write_times(describe_end(run, changes)))
            if database.run(end) == 0:
                raise RunAborted(f"The line of this run is gone from {RUNS}: nothing was written. Run it again.")
            failure: Exception | None = None
            try:
                database.commit(interruption)
            except database.errors as error:
                failure = error
        if failure is not None and not self._is_published(run):
            raise failure
        return changes

    def _is_published(self, run: ExportRun) -> bool:
        """Return whether this run's transaction was committed, whose connection was lost; should its session live on,
        that is waited for. Raises CommitUnknown."""
        database = self._database
        try:
            with database.connect(Interruption()):
                self._lock()
                return bool(database.fetch(self._statements.select_finish(self._number), 1))
        except database.errors as error:
            raise CommitUnknown(
                f"The connection was lost while {self} was being committed ({database.explain(error)}). The table has "
                f"the new rows if the line of the run {run.run_id} in _connector_runs has a finished_at; otherwise the "
                "table is unchanged."
            ) from None

    def _clear(self) -> None:
        """Undo what `prepare` made and could not roll back, unless another export has used it meanwhile."""
        if not (self._has_made_file or self._has_made_table):
            return
        database, others = self._database, set[str]()
        with database.connect(Interruption()):
            if self._has(RUNS):  # else it was made in vain
                self._lock()
                lines = database.fetch(self._statements.select_other_tables(self._number), _MOST_RUNS)
                others = {str(table) for (table,) in lines}  # one without an end may be of an export that goes on
            found = self._look()
            is_free = not found.runs and not found.has_rows and self._name.table not in others
            if is_free and self._has_made_table and found.exists:
                database.run(Statement(f"DROP TABLE {self._statements.target}"))
                database.commit(Interruption())
            if self._has_made_file:
                others |= set(database.list_tables()) - {RUNS}
        if is_free and self._has_made_file and not others:
            database.remove_file()

    def _write_times(self, values: dict[str, Any]) -> dict[str, object]:
        times = ("started_at", "finished_at")
        return {name: self._database.write_time(value) if name in times else value for name, value in values.items()}


def _watch(rows: StagedRows, interruption: Interruption) -> StagedRows:
    """Return the rows; an interruption ends the reading of them."""

    def check(batch: pa.RecordBatch) -> pa.RecordBatch:
        interruption.check()
        return batch

    return rows.map(check)
