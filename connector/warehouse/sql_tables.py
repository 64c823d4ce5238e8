"""An export to a table of a database that SQLAlchemy reaches: preflight, and publishing in one transaction."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.schema import CreateSchema, CreateTable, DropTable

from connector.databases import explain, list_errors, show_url
from connector.errors import ConfigurationError, RunAborted
from connector.warehouse.columns import move_nuls
from connector.warehouse.database_file import create_empty, make_file
from connector.warehouse.interruption import Interruption
from connector.warehouse.runs import (
    EXPORTED_AT,
    FINISHED_COLUMNS,
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
    refuse_now,
)
from connector.warehouse.stage import StagedRows, build_no_rows
from connector.warehouse.table_writer import TableName, Uncertain
from connector.warehouse.tables import Database, build_rehearsal, build_steps, build_tables

T = TypeVar("T")

_ATTEMPTS = 3
"""Two exports that begin at once may take the same number, or make the same table: the second tries again."""


class SqlTables:
    """A table of `database`, and the line of this run."""

    def __init__(
        self,
        name: TableName,
        schema: pa.Schema,
        mode: Mode,
        database: Database,
        *,
        overwrite: bool,
    ) -> None:
        self._name, self._mode, self._database, self._overwrite = name, mode, database, overwrite
        self._schema = schema
        self._tables = build_tables(schema, name.table, name.schema, mode, database)
        self._number = 0
        self._has_made_file = self._has_made_table = False

    def __str__(self) -> str:
        return f"the table {self._name} in {self._database.path or show_url(self._database.engine.url)}"

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What the database's driver raises."""
        return list_errors(self._database.engine)

    def explain(self, error: Exception) -> str:
        """Return what the database said, fit to show."""
        return explain(error, self._database.engine.url)

    def is_passing(self, error: Exception) -> bool:
        """Return whether the failure may be over by the next run."""
        return self._database.is_passing(error) or _is_race(error)

    def prepare(self, beginning: ExportStart, interruption: Interruption) -> TargetState:
        """Go the whole way with no row, then take a number; what the target is like."""
        longest = self._database.longest_name
        if longest is not None and len(self._name.table.encode()) > longest:
            raise ConfigurationError(f"{self} cannot be made: its name has more than {longest} bytes.")
        if self._database.path is not None:
            self._has_made_file = make_file(self._database.path, create_empty)
        found = self._try(lambda: self._rehearse(interruption))
        self._try(lambda: self._begin(beginning, interruption))
        return found

    def publish(self, rows: StagedRows, run: ExportRun, interruption: Interruption) -> RowChanges:
        """Write the rows in one transaction; raises Uncertain when a commit failed that may have been done."""
        database, tables = self._database, self._tables
        rows = _watch(rows if database.holds_nul else rows.map(move_nuls), interruption)
        with database.connect(interruption) as connection:
            self._lock(connection)
            found = self._look(connection)
            self._check(found)
            refuse_now(found, self._number, run, self._mode, str(self))
            self._check_referrers(connection, found)
            if database.undoes_tables:
                self._make_tables(connection, tables.target)
            changes = self._write(connection, rows, run)
            ended = connection.execute(
                sa.update(tables.runs).where(*self._is_line()).values(self._write_times(describe_end(run, changes)))
            )
            if ended.rowcount == 0:
                raise RunAborted(f"The line of this run is gone from {RUNS}: nothing was written. Run it again.")
            try:
                database.commit(connection, interruption)
            except self.errors as error:
                raise Uncertain(error, changes) from error
        self._has_made_file = self._has_made_table = False
        return changes

    def is_published(self, interruption: Interruption) -> bool:
        """Return whether this run's transaction was committed; should its session live on, that is waited for."""
        with self._database.connect(interruption) as connection:
            self._lock(connection)
            finished_at = self._tables.runs.c["finished_at"]
            found = (
                sa.select(sa.func.count())
                .select_from(self._tables.runs)
                .where(*self._is_line(), finished_at.is_not(None))
            )
            return bool(connection.scalar(found))

    def clear(self, interruption: Interruption) -> None:
        """Undo what `prepare` made and could not roll back, unless another export has used it meanwhile."""
        if not (self._has_made_file or self._has_made_table):
            return
        with self._database.connect(interruption) as connection:
            others = set[str]()
            if sa.inspect(connection).has_table(RUNS, schema=self._tables.runs.schema):  # else it was made in vain
                self._lock(connection)
                others = set(connection.scalars(self._select_others()))
            found = self._look(connection)
            is_free = not found.runs and not found.has_rows and self._name.table not in others
            if is_free and self._has_made_table and found.exists:
                connection.execute(DropTable(self._tables.target))
                connection.commit()
            if self._has_made_file:
                others |= set(sa.inspect(connection).get_table_names()) - {RUNS}
        if is_free and self._has_made_file and self._database.path is not None and not others:
            self._database.path.unlink(missing_ok=True)
        self._has_made_file = self._has_made_table = False

    def _try(self, work: Callable[[], T]) -> T:
        for _ in range(1, _ATTEMPTS):
            try:
                return work()
            except self.errors as error:
                if not _is_race(error):
                    raise
        return work()

    def _rehearse(self, interruption: Interruption) -> TargetState:
        database, tables = self._database, self._tables
        with database.connect(interruption) as connection:
            found = self._look(connection)
            self._check(found)
            self._check_referrers(connection, found)
            self._has_made_table = not database.undoes_tables and not found.exists
            self._make_tables(connection, tables.target)
            if self._mode.is_by_id:
                connection.execute(CreateTable(tables.stage))
                database.load(connection, tables.stage, build_no_rows(_staged(self._schema)), {})
            statements = build_rehearsal(tables, is_staged=self._mode.is_by_id, casts_null=database.casts_null)
            of_runs = sa.update(tables.runs).where(sa.false()).values(job=tables.runs.c["job"])
            for statement in (*statements, of_runs):
                connection.execute(statement)
            if database.undoes_tables:
                connection.rollback()
            else:
                connection.commit()
        return found

    def _begin(self, beginning: ExportStart, interruption: Interruption) -> None:
        """The line of this run, under the table's next number."""
        runs = self._tables.runs
        with self._database.connect(interruption) as connection:
            self._make_tables(connection)
            last = sa.select(sa.func.coalesce(sa.func.max(runs.c["number"]), 0)).where(self._is_of_table())
            self._number = int(connection.scalar(last) or 0) + 1
            values = describe_beginning(self._name.table, self._number, beginning, self._mode)
            connection.execute(sa.insert(runs).values(self._write_times(values)))
            connection.commit()

    def _make_tables(self, connection: sa.Connection, *others: sa.Table) -> None:
        """The schema, `_connector_runs` and the others, as far as they are not there."""
        inspector = sa.inspect(connection)
        if self._name.schema is not None and not inspector.has_schema(self._name.schema):
            connection.execute(CreateSchema(sa.quoted_name(self._name.schema, True)))
        for table in (self._tables.runs, *others):
            if not sa.inspect(connection).has_table(table.name, schema=table.schema):
                connection.execute(CreateTable(table))

    def _look(self, connection: sa.Connection) -> TargetState:
        target, runs = self._tables.target, self._tables.runs
        inspector = sa.inspect(connection)
        stored_as: str | None = None
        columns, has_rows = list[str](), False
        if inspector.has_table(target.name, schema=target.schema):
            asked = self._name.table
            like = [name for name in inspector.get_table_names(target.schema) if name.lower() == asked.lower()]
            stored_as = like[0] if like and asked not in like else asked
            columns = [column["name"] for column in inspector.get_columns(target.name, target.schema)]
            has_rows = connection.execute(sa.select(sa.literal(1)).select_from(target).limit(1)).first() is not None
        lines: Sequence[Any] = ()
        if inspector.has_table(runs.name, schema=runs.schema):
            finished = sa.select(*(runs.c[name] for name in FINISHED_COLUMNS))
            finished = finished.where(self._is_of_table(), runs.c["finished_at"].is_not(None))
            lines = connection.execute(finished.order_by(runs.c["number"].desc()).limit(200)).all()
        return TargetState(stored_as, columns, has_rows, [FinishedRun(*line) for line in lines])

    def _check(self, found: TargetState) -> None:
        check_target(found, self._name.table, self._tables.kinds, self._mode, str(self), overwrite=self._overwrite)

    def _lock(self, connection: sa.Connection) -> None:
        """Wait until no other export publishes to this table: each locks the first line of it."""
        runs = self._tables.runs
        first = sa.update(runs).where(self._is_of_table(), runs.c["number"] == 1).values(job=runs.c["job"])
        if connection.execute(first).rowcount == 0:  # the line was deleted: the lowest that is there does
            lowest = connection.scalar(sa.select(sa.func.min(runs.c["number"])).where(self._is_of_table()))
            other = sa.update(runs).where(self._is_of_table(), runs.c["number"] == lowest).values(job=runs.c["job"])
            connection.execute(other)

    def _check_referrers(self, connection: sa.Connection, found: TargetState) -> None:
        if self._mode is Mode.REPLACE and found.exists:
            referrers = self._database.find_referrers(connection, self._tables.target)
            check_referrers(referrers, self._mode, str(self))

    def _write(self, connection: sa.Connection, rows: StagedRows, run: ExportRun) -> RowChanges:
        database, tables = self._database, self._tables
        if not self._mode.is_by_id:
            shared = {RUN_ID: run.run_id, EXPORTED_AT: database.write_time(run.exported_at)}
            closed = connection.execute(sa.delete(tables.target)).rowcount if self._mode is Mode.REPLACE else 0
            return RowChanges(database.load(connection, tables.target, rows, shared), 0, closed)
        connection.execute(CreateTable(tables.stage))
        database.load(connection, tables.stage, rows, {})
        counts: Counter[str] = Counter()
        for step in build_steps(tables, run, database.differ, database.write_time):
            done = connection.execute(step.statement, execution_options={"preserve_rowcount": True})
            counts[step.counted] += max(0, done.rowcount)
        return RowChanges(counts["inserted"], counts["updated"], counts["closed"])

    def _select_others(self) -> sa.Select[Any]:
        """The tables of other runs' lines; one without an end may be of an export that goes on."""
        return sa.select(self._tables.runs.c["table_name"]).where(~sa.and_(*self._is_line()))

    def _is_of_table(self) -> sa.ColumnElement[bool]:
        return self._tables.runs.c["table_name"] == self._name.table

    def _is_line(self) -> tuple[sa.ColumnElement[bool], ...]:
        return self._is_of_table(), self._tables.runs.c["number"] == self._number

    def _write_times(self, values: dict[str, object]) -> dict[str, object]:
        times = ("started_at", "finished_at")
        return {name: self._database.write_time(value) if name in times else value for name, value in values.items()}  # type: ignore[arg-type] # those are times


def _staged(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field for field in schema if field.name not in OF_RUN])


def _watch(rows: StagedRows, interruption: Interruption) -> StagedRows:
    """The rows, the reading of which ends where an interruption comes."""

    def check(batch: pa.RecordBatch) -> pa.RecordBatch:
        interruption.check()
        return batch

    return rows.map(check)


def _is_race(error: Exception) -> bool:
    """Return whether another export made the same schema or table (with its row type), or took the same number, at the
    same moment."""
    orig = getattr(error, "orig", error)
    first = next(iter(getattr(orig, "args", ())), None)
    state = first.get("C") if isinstance(first, dict) else getattr(orig, "sqlstate", None)  # pg8000 gives a dict
    return isinstance(error, sa.exc.IntegrityError) or state in ("42P06", "42P07", "42710") or first in (1050, 1684)
