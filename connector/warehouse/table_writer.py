"""Writes an export to a table. Rows are staged as Arrow while the list is read, and then written in one transaction.

While the list is read, nothing is locked and no row is written. All methods except `interrupt` block. Only one thread
at a time may call these methods.
"""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from connector.atomic_file import build_write_error
from connector.errors import ConfigurationError, ConnectorError, RunAborted
from connector.warehouse.columns import move_nuls_to_invalid
from connector.warehouse.database import Database, Interruption, StagedRows, StagingFile, TableName
from connector.warehouse.runs import (
    COLUMNS_OF_RUN,
    EXPORTED_AT,
    RUN_ID,
    RUNS_TABLE,
    CommitUnknown,
    ExportRun,
    ExportStart,
    FinishedRun,
    RowChanges,
    TargetState,
    WriteMode,
    build_run_row_values,
    build_start_values,
    check_filters,
    check_target,
    find_last_row_count,
    refuse_if_superseded,
)
from connector.warehouse.statements import TableStatements

T = TypeVar("T")

_MAX_ATTEMPTS = 3
"""The maximum number of attempts. Two exports that begin at the same moment may use the same run number, or create
the same table. Then the second export tries again."""

_MAX_RUNS_READ = 200
"""The maximum number of finished runs of a table that are read, the latest first."""


class TableWriter:
    """A writer of the table `name` of a database. Staged rows are in `folder`, or in the system's temporary folder."""

    def __init__(
        self,
        name: TableName,
        schema: pa.Schema,
        mode: WriteMode,
        database: Database,
        *,
        overwrite: bool = False,
        folder: Path | None = None,
    ) -> None:
        self._name, self._mode, self._database = name, mode, database
        self._overwrite, self._folder = overwrite, folder
        self._schema = pa.schema([field for field in schema if field.name not in COLUMNS_OF_RUN])
        self._statements = TableStatements(database.dialect, name, schema, mode)
        self._interruption = Interruption()
        self._target_state = TargetState()
        self._staging_file: StagingFile | None = None
        self._run_number = 0

    def __str__(self) -> str:
        return f"the table {self._name} in {self._database}"

    @property
    def has_target(self) -> bool:
        return self._target_state.has_rows

    @property
    def is_committing(self) -> bool:
        return self._interruption.is_committing

    def prepare(self, export_start: ExportStart) -> None:
        """Check that the export can write to the table, insert the row of the run into `_connector_runs`, and begin to
        stage rows."""
        check_filters(export_start.filters, self._mode, self._schema.names)
        database, max_name_bytes = self._database, self._database.dialect.max_name_bytes
        if max_name_bytes is not None and len(self._name.table.encode()) > max_name_bytes:
            raise ConfigurationError(
                f"{self} cannot be created: its name has more than {max_name_bytes} bytes. Choose a shorter name."
            )
        error_classes: tuple[type[Exception], ...] = (OSError, *database.errors)
        try:
            self._target_state = self._retry_concurrency_errors(self._rehearse_merge)
            self._retry_concurrency_errors(lambda: self._insert_run_row(export_start))
        except ConnectorError:
            raise
        except error_classes as error:
            message = database.explain(error)
            if database.is_transient(error) or database.is_concurrency_error(error):
                raise RunAborted(
                    f"{self} cannot be written now: {message}. The table is unchanged. Run again."
                ) from None
            raise ConfigurationError(f"Cannot open or write {self}: {message}. The table is unchanged.") from None
        self.start()

    def start(self) -> None:
        self.discard()
        try:
            self._staging_file = StagingFile(self._schema, self._folder)
        except OSError as error:
            raise build_write_error(self._folder or Path(tempfile.gettempdir()), error) from error

    def add(self, table: pa.Table) -> None:
        if self._staging_file is None:
            raise ValueError("prepare() comes before add()")
        with self._translate_errors():
            self._staging_file.add(table.select(self._schema.names))  # the database adds the columns of the run

    def find_last_row_count(self, filters: Mapping[str, object]) -> int | None:
        return find_last_row_count(self._target_state.runs, filters)

    def publish(self, run: ExportRun) -> RowChanges:
        """Write the staged rows in one transaction. Raises RunAborted, for example if the table has newer rows. Raises
        ConfigurationError if the table refuses a row.
        """
        if self._staging_file is None:
            raise ValueError("prepare() comes before publish()")
        with self._translate_errors():
            rows = self._staging_file.finish_staging()
            pa.default_memory_pool().release_unused()  # free the memory of the pages for the database
            changes = self._publish_rows(rows, run)
        self.discard()
        return changes

    def interrupt(self) -> None:
        with suppress(*self._database.errors, OSError):  # the statement may have ended
            self._interruption.interrupt()

    def discard(self) -> None:
        staging_file, self._staging_file = self._staging_file, None
        if staging_file is not None:
            with suppress(OSError):  # closing writes the last bytes, which fails if the disk is full
                staging_file.discard()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise RunAborted instead of an error of the database, or ConfigurationError if the table refuses a value. The
        messages say that the target has not changed."""
        try:
            yield
        except ConfigurationError as error:  # another program has changed the target while the list was read
            raise RunAborted(f"{error} The table is unchanged.") from None
        except (OSError, pa.ArrowException, *self._database.errors) as error:
            message = self._database.explain(error)
            if self._database.is_refusal(error):
                raise ConfigurationError(
                    f"{self} refused a row: {message}. The table is unchanged. Change the column or the "
                    "rule of the table, leave the column out by --columns (in a job: `columns`), or export to another "
                    "table."
                ) from None
            raise RunAborted(f"Could not write {self}: {message}. The table is unchanged. Run again.") from None

    def _retry_concurrency_errors(self, attempt: Callable[[], T]) -> T:
        """Call `attempt`. Call `attempt` again if another export created the same table or used the same run number at
        the same moment."""
        for _ in range(1, _MAX_ATTEMPTS):
            try:
                return attempt()
            except self._database.errors as error:
                if not self._database.is_concurrency_error(error):
                    raise
        return attempt()

    def _rehearse_merge(self) -> TargetState:
        """Execute each kind of statement that `publish` needs, but without rows. Return the state of the target."""
        database, statements = self._database, self._statements
        with database.connect(self._interruption):
            target_state = self._read_target()
            self._make_tables()
            if self._mode.merges_by_id:
                database.run(statements.build_stage_creation())
                database.load(statements.stage_table, StagedRows(self._schema, lambda: iter(())), {})
            for statement in statements.build_rehearsal_statements():
                database.run(statement)
            if not database.dialect.can_roll_back_tables:
                # This commit gets a new `Interruption`, because the export can still be interrupted after this commit.
                database.commit(Interruption())
        return target_state

    def _insert_run_row(self, export_start: ExportStart) -> None:
        database = self._database
        with database.connect(self._interruption):
            self._make_tables(includes_target=False)
            ((last_run_number,),) = database.fetch(self._statements.build_last_run_number_query(), 1)
            self._run_number = int(last_run_number) + 1
            row_values = build_start_values(self._name.table, self._run_number, export_start, self._mode)
            row_values["started_at"] = database.convert_time(export_start.started_at)
            database.run(self._statements.build_run_row_insert(row_values))
            database.commit(Interruption())

    def _make_tables(self, *, includes_target: bool = True) -> None:
        """Create the schema, `_connector_runs` and the target if they are missing."""
        database, schema = self._database, self._name.schema
        if schema is not None and not database.has_schema(schema):
            database.run(self._statements.build_schema_creation(schema))
        if not self._has_table(RUNS_TABLE):
            database.run(self._statements.build_runs_table_creation())
        if includes_target and not self._has_table(self._name.table):
            database.run(self._statements.build_target_creation())

    def _has_table(self, table: str) -> bool:
        return self._database.find_table(TableName(table, self._name.schema))[0] is not None

    def _read_target(self) -> TargetState:
        """Return the state of the target. Raises ConfigurationError if the export must not write to the target."""
        database, statements = self._database, self._statements
        stored_name, needs_value_by_column = database.find_table(self._name)
        has_table, run_rows = stored_name is not None, list[Sequence[Any]]()
        has_rows = has_table and bool(database.fetch(statements.build_first_row_query(), 1))
        if self._has_table(RUNS_TABLE):
            run_rows += database.fetch(statements.build_finished_runs_query(), _MAX_RUNS_READ)
        referrers = sorted(database.find_referrers(self._name)) if has_table and statements.deletes_rows else ()
        runs = [FinishedRun(*row) for row in run_rows]
        target_state = TargetState(stored_name, needs_value_by_column, has_rows, runs, referrers)
        check_target(
            target_state, self._name.table, statements.columns, self._mode, str(self), overwrite=self._overwrite
        )
        return target_state

    def _lock_runs(self) -> None:
        """Wait until no other export publishes to this table. Each export locks the first row of the table in
        `_connector_runs`.
        """
        if self._database.run(self._statements.build_run_row_lock(1)) == 0:  # a user has deleted the first row
            ((lowest_run_number,),) = self._database.fetch(self._statements.build_lowest_run_number_query(), 1)
            if lowest_run_number is not None:
                self._database.run(self._statements.build_run_row_lock(int(lowest_run_number)))

    def _publish_rows(self, rows: StagedRows, run: ExportRun) -> RowChanges:
        database, interruption = self._database, self._interruption

        def check_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
            interruption.raise_if_interrupted()
            return batch if database.dialect.can_store_nul else move_nuls_to_invalid(batch)

        with database.connect(interruption):
            self._lock_runs()
            refuse_if_superseded(self._read_target(), self._run_number, run, self._mode, str(self))
            if database.dialect.can_roll_back_tables:
                self._make_tables()
            changes = self._write_rows(rows.map(check_batch), run)
            run_row_values = build_run_row_values(run, changes)
            run_row_values["finished_at"] = database.convert_time(run.finished_at)
            if database.run(self._statements.build_run_row_update(self._run_number, run_row_values)) == 0:
                raise RunAborted(f"The row of this run in {RUNS_TABLE} was deleted. Nothing was written. Run again.")
            commit_error: Exception | None = None
            try:
                database.commit(interruption)
            except database.errors as error:
                commit_error = error
        if commit_error is not None and not self._is_published(run):
            raise commit_error
        return changes

    def _write_rows(self, rows: StagedRows, run: ExportRun) -> RowChanges:
        database, statements = self._database, self._statements
        exported_at = database.convert_time(run.exported_at)
        if not self._mode.merges_by_id:
            closed_row_count = (
                database.run(statements.build_delete_of_all_rows()) if self._mode is WriteMode.REPLACE else 0
            )
            shared_values = {RUN_ID: run.run_id, EXPORTED_AT: exported_at}
            return RowChanges(database.load(statements.target, rows, shared_values), 0, closed_row_count)
        database.run(statements.build_stage_creation())
        database.load(statements.stage_table, rows, {})
        row_counts: Counter[str] = Counter()
        for count_name, statement in statements.build_merge_steps(run, exported_at):
            changed_count = database.run(statement)
            if count_name is not None:
                row_counts[count_name] += changed_count
        return RowChanges(row_counts["inserted"], row_counts["updated"], row_counts["closed"])

    def _is_published(self, run: ExportRun) -> bool:
        """Return whether the transaction of this run was committed before the connection was lost. Wait while the lost
        session still holds the lock. Raises CommitUnknown."""
        database = self._database
        try:
            with database.connect(Interruption()):
                self._lock_runs()
                return bool(database.fetch(self._statements.build_finished_run_query(self._run_number), 1))
        except database.errors as error:
            raise CommitUnknown(
                f"The connection was lost while {self} was being committed ({database.explain(error)}). The table has "
                f"the new rows if the row of the run {run.run_id} in _connector_runs has a finished_at; otherwise the "
                "table is unchanged."
            ) from None
