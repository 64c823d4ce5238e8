"""An export to a table of a database: what each kind of database does for it, preflight, and publishing in one
transaction."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from connector.errors import ConfigurationError, RunAborted
from connector.warehouse.columns import move_nuls
from connector.warehouse.interruption import Interruption
from connector.warehouse.runs import (
    EXPORTED_AT,
    OF_RUN,
    RUN_ID,
    RUNS,
    ExportRun,
    ExportStart,
    FinishedRun,
    Mode,
    RowChanges,
    TargetState,
    check_referrers,
    check_target,
    describe_beginning,
    describe_end,
    read_kinds,
    refuse_now,
)
from connector.warehouse.stage import StagedRows, build_no_rows
from connector.warehouse.statements import Dialect, Statement, TableName, TableStatements

T = TypeVar("T")

_ATTEMPTS = 3
"""Two exports that begin at once may take the same number, or make the same table: the second tries again."""

_MOST_RUNS = 200
"""The last finished runs of a table that are looked at."""


class Database(Protocol):
    """One database. Within `connect` a transaction is open, and the other methods belong to it; they raise what is in
    `errors`, and Interrupted."""

    @property
    def dialect(self) -> Dialect:
        """How it writes SQL."""

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What its driver raises."""

    def __str__(self) -> str:
        """Return the database, for messages; nothing secret."""

    def make_file(self) -> bool:
        """Make the file if the database is one and it is missing; return whether it was made. Raises
        ConfigurationError."""

    def remove_file(self) -> None:
        """Remove the file that `make_file` made."""

    def connect(self, interruption: Interruption) -> AbstractContextManager[None]:
        """Open a transaction, which is rolled back at the end unless `commit` came first."""

    def commit(self, interruption: Interruption) -> None:
        """Commit the transaction; raises Interrupted while that can still be taken back."""

    def run(self, statement: Statement) -> int:
        """Carry out a statement; return how many rows it touched."""

    def fetch(self, statement: Statement, most: int) -> Sequence[Sequence[Any]]:
        """Return the first rows of a query, up to `most`."""

    def load(self, table: str, rows: StagedRows, shared: Mapping[str, object]) -> int:
        """Put rows into a table, given as SQL; `shared` are values that all of them have. Return their number."""

    def has_schema(self, schema: str) -> bool:
        """Return whether the schema is there."""

    def find_table(self, name: TableName) -> tuple[str | None, Sequence[str]]:
        """Return the database's own name of a table or a view, None if it is missing, and its columns."""

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


class Uncertain(Exception):  # noqa: N818 - a state of knowledge, not a fault
    """A commit failed in such a way that it may have been done; `error` says how, `changes` what it would have done."""

    def __init__(self, error: Exception, changes: RowChanges) -> None:
        super().__init__(str(error))
        self.error = error
        self.changes = changes


class ExportTable:
    """A table of `database`, and the line of this run."""

    def __init__(self, name: TableName, schema: pa.Schema, mode: Mode, database: Database, *, overwrite: bool) -> None:
        self._name, self._mode, self._database, self._overwrite = name, mode, database, overwrite
        self._schema, self._kinds = schema, read_kinds(schema)
        self._statements = TableStatements(database.dialect, name, self._kinds, mode)
        self._number = 0
        self._has_made_file = self._has_made_table = False

    def __str__(self) -> str:
        return f"the table {self._name} in {self._database}"

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What the database's driver raises."""
        return self._database.errors

    def explain(self, error: Exception) -> str:
        """Return what the database said, fit to show."""
        return self._database.explain(error)

    def is_passing(self, error: Exception) -> bool:
        """Return whether the failure may be over by the next run."""
        return self._database.is_passing(error) or self._database.is_race(error)

    def prepare(self, beginning: ExportStart, interruption: Interruption) -> TargetState:
        """Go the whole way with no row, then take a number; what the target is like. Raises ConfigurationError."""
        longest = self._database.dialect.longest_name
        if longest is not None and len(self._name.table.encode()) > longest:
            raise ConfigurationError(f"{self} cannot be made: its name has more than {longest} bytes.")
        self._has_made_file = self._database.make_file()
        found = self._try(lambda: self._rehearse(interruption))
        self._try(lambda: self._begin(beginning, interruption))
        return found

    def publish(self, rows: StagedRows, run: ExportRun, interruption: Interruption) -> RowChanges:
        """Write the rows in one transaction. Raises Uncertain, and RunAborted for rows that would be older."""
        database = self._database
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
            try:
                database.commit(interruption)
            except self.errors as error:
                raise Uncertain(error, changes) from error
        self._has_made_file = self._has_made_table = False
        return changes

    def is_published(self, interruption: Interruption) -> bool:
        """Return whether this run's transaction was committed; should its session live on, that is waited for."""
        with self._database.connect(interruption):
            self._lock()
            return bool(self._database.fetch(self._statements.select_finish(self._number), 1))

    def clear(self, interruption: Interruption) -> None:
        """Undo what `prepare` made and could not roll back, unless another export has used it meanwhile."""
        if not (self._has_made_file or self._has_made_table):
            return
        database, others = self._database, set[str]()
        with database.connect(interruption):
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
        self._has_made_file = self._has_made_table = False

    def _try(self, work: Callable[[], T]) -> T:
        for _ in range(1, _ATTEMPTS):
            try:
                return work()
            except self.errors as error:
                if not self._database.is_race(error):
                    raise
        return work()

    def _rehearse(self, interruption: Interruption) -> TargetState:
        database, statements = self._database, self._statements
        undoes_tables = database.dialect.undoes_tables
        with database.connect(interruption):
            found = self._look()
            self._check(found)
            self._check_referrers(found)
            self._has_made_table = not undoes_tables and not found.exists
            self._make_tables(with_target=True)
            if self._mode.is_by_id:
                database.run(statements.create_stage())
                staged = pa.schema([field for field in self._schema if field.name not in OF_RUN])
                database.load(statements.stage, build_no_rows(staged), {})
            for statement in statements.rehearse():
                database.run(statement)
            if not undoes_tables:
                database.commit(Interruption())  # only the commit of the rows forbids an interruption
        return found

    def _begin(self, beginning: ExportStart, interruption: Interruption) -> None:
        """The line of this run, under the table's next number."""
        database = self._database
        with database.connect(interruption):
            self._make_tables(with_target=False)
            ((last,),) = database.fetch(self._statements.select_last_number(), 1)
            self._number = int(last) + 1
            values = describe_beginning(self._name.table, self._number, beginning, self._mode)
            database.run(self._statements.insert_line(self._write_times(values)))
            database.commit(Interruption())

    def _make_tables(self, *, with_target: bool) -> None:
        """Make the schema, `_connector_runs` and the target, as far as they are missing."""
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
        check_target(found, self._name.table, self._kinds, self._mode, str(self), overwrite=self._overwrite)

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

    def _write_times(self, values: dict[str, Any]) -> dict[str, object]:
        times = ("started_at", "finished_at")
        return {name: self._database.write_time(value) if name in times else value for name, value in values.items()}


def _watch(rows: StagedRows, interruption: Interruption) -> StagedRows:
    """The rows, the reading of which ends where an interruption comes."""

    def check(batch: pa.RecordBatch) -> pa.RecordBatch:
        interruption.check()
        return batch

    return rows.map(check)
