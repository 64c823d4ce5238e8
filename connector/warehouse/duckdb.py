# ruff: noqa: S608 - what is put into statements are quoted names and constants; values are parameters
"""A DuckDB file, by DuckDB's own package, SQL and Arrow: tags are VARCHAR[], times TIMESTAMP WITH TIME ZONE.

The stage is no table but the staged Arrow stream itself, opened once for each statement that reads it. What is new or
changed is taken from it into a temporary table first, and a changed row is deleted and inserted: an UPDATE that sets a
list in a table with a primary key takes DuckDB minutes for 300,000 rows (189 s measured with 2.0; 1 s without the key).
"""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa

from connector.driver_words import say_safely
from connector.errors import RunAborted
from connector.warehouse.database_file import LOCK_S, create_empty, make_file, wait_for_lock
from connector.warehouse.interruption import Interruption
from connector.warehouse.runs import (
    COLUMNS_OF_MODE,
    EXPORTED_AT,
    FINISHED_COLUMNS,
    KEYS,
    OF_RUN,
    RUN_COLUMNS,
    RUN_ID,
    RUN_KEY,
    RUNS,
    ColumnKind,
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
from connector.warehouse.table_writer import TableName, Uncertain

_TYPES = {
    ColumnKind.TEXT: "VARCHAR",
    ColumnKind.NAME: "VARCHAR",
    ColumnKind.WHOLE: "BIGINT",
    ColumnKind.FLAG: "BOOLEAN",
    ColumnKind.DATE: "DATE",
    ColumnKind.TIME: "TIMESTAMP WITH TIME ZONE",
    ColumnKind.TAGS: "VARCHAR[]",
}

_MEMORY, _MEMORY_TO_MERGE = "128MB", "512MB"
"""What DuckDB may hold in memory; it takes 80 % of the machine's otherwise. More goes to a folder beside the file, but
not what a transaction has changed, which stays in memory until it ends: with 128 MB, a history in which each of a
million rows changed ran out of it."""

_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "threads": 2, "preserve_insertion_order": False, "autoinstall_known_extensions": False,
}  # fmt: skip
"""DuckDB would get code from the network for a file of another program's."""

_ROW_GROUP = 61_440
"""Rows that are compressed together, half of DuckDB's own number. Each thread compresses the whole row groups of its
rows by itself; what is left over one thread puts together. 200,000 rows took 0.25 s so, and 0.44 s by DuckDB's own
number, in a file of the same size."""

_FROM_ROWS = "auto_checkpoint_skip_wal_threshold"
"""The rows from which on a commit may do without the log: a setting of DuckDB 1.5 and later; before, it does at any
number."""

_NO_ROOM = os.strerror(errno.ENOSPC)
"""DuckDB ends with it what it says of a full disk, whatever the type of the error; before it stands the file's path."""

_LOCKED = ("Could not set lock", "already attached")

_FILE = "_connector_file"
"""The name under which the file is attached. Tables are named with it, so that a schema may be called as the file."""

_STAGE, _CHANGED = '"_connector_stage"', 'temp."_connector_changed"'


class DuckdbTables:
    """A table of a DuckDB file; one program at a time has the file open for writing, and others wait."""

    errors: tuple[type[Exception], ...] = (duckdb.Error,)

    def __init__(
        self,
        path: Path,
        name: TableName,
        schema: pa.Schema,
        mode: Mode,
        *,
        overwrite: bool,
        lock_s: float = LOCK_S,
        memory: str | None = None,
    ) -> None:
        self._path, self._name, self._mode, self._overwrite, self._lock_s = path, name, mode, overwrite, lock_s
        self._schema = pa.schema([field for field in schema if field.name not in OF_RUN])
        self._kinds = read_kinds(schema)
        self._target, self._runs = (_write_name(TableName(table, name.schema)) for table in (name.table, RUNS))
        self._memory = memory or (_MEMORY_TO_MERGE if mode.is_by_id else _MEMORY)
        self._spill = path.with_name(f".{path.name}.spill")
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._number = 0
        self._has_made_file = False

    def __str__(self) -> str:
        return f"the table {self._name} in {self._path}"

    def explain(self, error: Exception) -> str:
        """Return the first line of what DuckDB said, without values of rows."""
        return _NO_ROOM.lower() if _NO_ROOM in str(error) else say_safely(error)

    def is_passing(self, error: Exception) -> bool:
        """Return whether another program has the file open, or the disk is full."""
        return _is_locked(error) or _NO_ROOM in str(error)

    def prepare(self, beginning: ExportStart, interruption: Interruption) -> TargetState:
        """Go the whole way with no row, then take a number; what the target is like."""
        self._has_made_file = make_file(self._path, _create)
        with self._attach(interruption) as connection:
            found = self._look(connection)
            self._check(found)
            self._check_referrers(connection)
            connection.begin()
            self._make_tables(connection, with_target=True)
            nothing = build_no_rows(self._schema)
            if self._mode.is_by_id:
                with _staged(connection, nothing):
                    connection.execute(self._select_changed(self._list_others(found)))
            self._insert_staged(connection, nothing, [beginning.run_id, beginning.started_at])
            connection.rollback()
            connection.begin()
            self._make_tables(connection, with_target=False)
            last = f"SELECT coalesce(max(number), 0) FROM {self._runs} WHERE table_name = $1"
            self._number = _count(connection, last, [self._name.table]) + 1
            line = describe_beginning(self._name.table, self._number, beginning, self._mode)
            marks = ", ".join(f"${number}" for number in range(1, len(line) + 1))
            insert = f"INSERT INTO {self._runs} ({', '.join(map(_quote, line))}) VALUES ({marks})"
            connection.execute(insert, list(line.values()))
            connection.commit()
        return found

    def publish(self, rows: StagedRows, run: ExportRun, interruption: Interruption) -> RowChanges:
        """Write the rows in one transaction; raises Uncertain when a commit failed that may have been done."""
        with self._attach(interruption) as connection:
            found = self._look(connection)
            self._check(found)
            refuse_now(found, self._number, run, self._mode, str(self))
            self._check_referrers(connection)
            connection.begin()
            self._make_tables(connection, with_target=True)
            changes = self._write(connection, rows, run, self._list_others(found))
            end = describe_end(run, changes)
            values = ", ".join(f"{_quote(name)} = ${number}" for number, name in enumerate(end, 3))
            update = f"UPDATE {self._runs} SET {values} WHERE table_name = $1 AND number = $2"
            if _count(connection, update, [self._name.table, self._number, *end.values()]) == 0:
                raise RunAborted(f"The line of this run is gone from {RUNS}: nothing was written. Run it again.")
            interruption.begin_commit()
            try:
                connection.commit()
            except duckdb.Error as error:
                raise Uncertain(error, changes) from error
        self._has_made_file = False
        return changes

    def is_published(self, interruption: Interruption) -> bool:
        """Return whether this run's transaction was committed."""
        with self._attach(interruption) as connection:
            return any(run.number == self._number for run in self._look(connection).runs)

    def clear(self, interruption: Interruption) -> None:
        """Remove the file that `prepare` made, unless another export has used it meanwhile."""
        if not self._has_made_file:
            return
        self._has_made_file = False
        with self._attach(interruption) as connection:
            others = _fetch(connection, "SELECT count(*) FROM duckdb_tables() WHERE table_name <> $1", [RUNS])[0][0]
            lines = f"SELECT count(*) FROM {self._runs} WHERE table_name <> $1 OR number <> $2"
            if (
                not others and self._find_table(connection, RUNS)[0]
            ):  # one without an end may be of an export that goes on
                others = _fetch(connection, lines, [self._name.table, self._number])[0][0]
            is_free = not others
        if is_free:
            self._path.unlink()

    @contextmanager
    def _attach(self, interruption: Interruption) -> Iterator[duckdb.DuckDBPyConnection]:
        """Within the context, the file is open and no other program's; what does not fit into memory goes to a folder
        beside it, its owner's only.

        The folder has one name, and is emptied by the next export if this one is killed: one has the file at a time.
        """
        connection = self._connection = self._connection or self._open()
        options = f"TYPE duckdb, ROW_GROUP_SIZE {_ROW_GROUP}"
        attach = f"ATTACH {_write_text(str(self._path))} AS {_quote(_FILE)} ({options})"
        try:
            wait_for_lock(partial(connection.execute, attach), _is_locked, self._lock_s, interruption)
            with _emptied(self._spill), interruption.cancel_by(connection.interrupt):
                yield connection
        except BaseException as error:
            self._disconnect()
            if isinstance(error, duckdb.OutOfMemoryException):  # the next run would fare no better
                raise RunAborted(
                    f"{self} was left as it was: DuckDB may use {self._memory}, and what this export changes takes "
                    f"more ({say_safely(error)}). Export base by base (--base-id), or to PostgreSQL."
                ) from None
            raise
        try:
            connection.execute(f"DETACH {_quote(_FILE)}")
        except duckdb.Error:  # what was to be written is written
            self._disconnect()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _open(self) -> duckdb.DuckDBPyConnection:
        """A database in memory, for the life of this object: opening one takes DuckDB ten times as long as a file."""
        config = {**_SETTINGS, "memory_limit": self._memory, "temp_directory": str(self._spill)}
        connection = duckdb.connect(config=config)
        connection.execute("SET timezone = 'UTC'")
        _go_without_log(connection)
        return connection

    def _make_tables(self, connection: duckdb.DuckDBPyConnection, *, with_target: bool) -> None:
        if self._name.schema is not None:
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_quote(_FILE)}.{_quote(self._name.schema)}")
        tables: list[tuple[str, Mapping[str, ColumnKind], tuple[str, ...]]] = [(self._runs, RUN_COLUMNS, RUN_KEY)]
        if with_target:
            tables.append((self._target, {**self._kinds, **COLUMNS_OF_MODE[self._mode]}, KEYS[self._mode]))
        for name, kinds, key in tables:
            columns = ", ".join(f"{_quote(column)} {_TYPES[kind]}" for column, kind in kinds.items())
            primary = ", ".join(map(_quote, key))
            connection.execute(f"CREATE TABLE IF NOT EXISTS {name} ({columns}, PRIMARY KEY ({primary}))")

    def _look(self, connection: duckdb.DuckDBPyConnection) -> TargetState:
        stored_as, columns = self._find_table(connection, self._name.table)
        has_rows = stored_as is not None and bool(_fetch(connection, f"SELECT 1 FROM {self._target} LIMIT 1"))
        lines: Sequence[tuple[object, ...]] = ()
        if self._find_table(connection, RUNS)[0]:
            select = f"SELECT {', '.join(FINISHED_COLUMNS)} FROM {self._runs}"
            where = "WHERE table_name = $1 AND finished_at IS NOT NULL ORDER BY number DESC LIMIT 200"
            lines = _fetch(connection, f"{select} {where}", [self._name.table])
        return TargetState(stored_as, columns, has_rows, [FinishedRun(*line) for line in lines])  # type: ignore[arg-type] # as declared

    def _find_table(self, connection: duckdb.DuckDBPyConnection, table: str) -> tuple[str | None, list[str]]:
        """Return DuckDB's name of a table or a view, None if it is missing, and its columns."""
        select = (
            "SELECT table_name, column_name FROM duckdb_columns() WHERE database_name = $3 "
            "AND lower(schema_name) = lower($1) AND lower(table_name) = lower($2)"
        )
        found = _fetch(connection, select, [self._name.schema or "main", table, _FILE])
        return (str(found[0][0]) if found else None), [str(column) for _, column in found]

    def _check(self, found: TargetState) -> None:
        check_target(found, self._name.table, self._kinds, self._mode, str(self), overwrite=self._overwrite)

    def _check_referrers(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Foreign keys are within a schema here. `upsert` deletes rows too, to change them."""
        if self._mode in (Mode.REPLACE, Mode.UPSERT):
            select = (
                "SELECT table_name FROM duckdb_constraints() WHERE constraint_type = 'FOREIGN KEY' "
                "AND lower(schema_name) = lower($1) AND lower(referenced_table) = lower($2) "
                "AND lower(table_name) <> lower($2)"
            )
            found = _fetch(connection, select, [self._name.schema or "main", self._name.table])
            check_referrers([str(name) for (name,) in found], self._mode, str(self))

    def _list_others(self, found: TargetState) -> list[str]:
        """The target's columns that this export does not write; a row keeps them when `upsert` changes it."""
        written = {*self._kinds, *COLUMNS_OF_MODE[self._mode]}
        return [name for name in found.columns if self._mode is Mode.UPSERT and name.lower() not in written]

    def _write(
        self, connection: duckdb.DuckDBPyConnection, rows: StagedRows, run: ExportRun, others: Sequence[str]
    ) -> RowChanges:
        stamps = [run.run_id, run.exported_at]
        stamp = f"{RUN_ID} = $1, {EXPORTED_AT} = $2::TIMESTAMPTZ"
        if not self._mode.is_by_id:
            closed = _count(connection, f"DELETE FROM {self._target}") if self._mode is Mode.REPLACE else 0
            return RowChanges(self._insert_staged(connection, rows, stamps), 0, closed)
        with _staged(connection, rows):
            connection.execute(self._select_changed(others))
        of_changed = f"id IN (SELECT id FROM {_CHANGED})"
        updated = 0
        if self._mode is Mode.UPSERT:
            _count(connection, f"DELETE FROM {self._target} WHERE {of_changed}")
            updated = self._insert(connection, f"{_CHANGED} WHERE is_known", stamps, others)
            gone = f"deleted_at = $2::TIMESTAMPTZ, {stamp}"
            closed = self._close(connection, rows, run, gone, "deleted_at IS NULL")
        else:
            ended = f"valid_to = $2::TIMESTAMPTZ, is_current = false, {stamp}"
            of_current = f"UPDATE {self._target} SET {ended} WHERE is_current AND {of_changed}"
            closed = _count(connection, of_current, stamps) + self._close(connection, rows, run, ended, "is_current")
        is_left = "NOT is_known" if self._mode is Mode.UPSERT else "true"
        return RowChanges(self._insert(connection, f"{_CHANGED} WHERE {is_left}", stamps), updated, closed)

    def _select_changed(self, others: Sequence[str]) -> str:
        """What takes the staged rows that are new or changed into a table of their own, with what they keep."""
        condition = "AND t.is_current" if self._mode is Mode.HISTORY else ""
        returned = "OR t.deleted_at IS NOT NULL " if self._mode is Mode.UPSERT else ""
        compared = (_quote(name) for name in self._schema.names if name != "id")
        differs = "".join(f" OR s.{name} IS DISTINCT FROM t.{name}" for name in compared)
        kept = "".join(f", t.{_quote(name)}" for name in others)
        return (
            f"CREATE OR REPLACE TEMP TABLE {_CHANGED} AS SELECT s.*, t.id IS NOT NULL AS is_known{kept} "
            f"FROM {_STAGE} s LEFT JOIN {self._target} t ON t.id = s.id {condition} "
            f"WHERE t.id IS NULL {returned}{differs}"
        )

    def _close(
        self, connection: duckdb.DuckDBPyConnection, rows: StagedRows, run: ExportRun, values: str, condition: str
    ) -> int:
        """Mark the target's rows that meet the condition and have gone from the list, as far as that is known."""
        if not run.is_whole:
            return 0
        asked = dict(run.certificate.filters.get("asked", {}))
        listed = "".join(f" AND t.{_quote(name)} = ${number}" for number, name in enumerate(asked, 3))
        is_staged = f"EXISTS (SELECT 1 FROM {_STAGE} s WHERE s.id = t.id)"
        update = f"UPDATE {self._target} t SET {values} WHERE t.{condition}{listed} AND NOT {is_staged}"
        with _staged(connection, rows):
            return _count(connection, update, [run.run_id, run.exported_at, *asked.values()])

    def _insert_staged(self, connection: duckdb.DuckDBPyConnection, rows: StagedRows, stamps: list[object]) -> int:
        with _staged(connection, rows):
            return self._insert(connection, _STAGE, stamps)

    def _insert(
        self, connection: duckdb.DuckDBPyConnection, source: str, stamps: list[object], others: Sequence[str] = ()
    ) -> int:
        """Put the rows of `source` into the target, with `others` beside the export's own columns."""
        values = {_quote(name): _quote(name) for name in (*self._schema.names, *others)}
        values |= {RUN_ID: "$1", EXPORTED_AT: "$2::TIMESTAMPTZ"}
        if self._mode is Mode.HISTORY:
            values |= {"valid_from": "$2::TIMESTAMPTZ", "is_current": "true"}
        into = f"INSERT INTO {self._target} ({', '.join(values)}) SELECT {', '.join(values.values())}"
        return _count(connection, f"{into} FROM {source}", stamps)


@contextmanager
def _staged(connection: duckdb.DuckDBPyConnection, rows: StagedRows) -> Iterator[None]:
    """Within the context, one statement can read the rows as the stage."""
    name = _STAGE.strip('"')
    connection.register(name, pa.RecordBatchReader.from_batches(rows.schema, rows.read()))
    yield
    # Not after a failure: in an aborted transaction this fails as well, and only that failure would be seen.
    connection.unregister(name)


def _create(path: Path) -> None:
    """Make a database for its owner only: DuckDB takes no empty file, and lets others read those that it makes."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        new = Path(folder) / path.name
        duckdb.connect(str(new), config=_SETTINGS).close()
        new.chmod(0o600)
        try:
            os.link(new, path)
        except PermissionError:  # a file system without second names for files
            create_empty(path)
            new.replace(path)


@contextmanager
def _emptied(folder: Path) -> Iterator[None]:
    """Within the context, the folder is there; it is its owner's only, and empty at the beginning."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _fetch(
    connection: duckdb.DuckDBPyConnection, statement: str, values: Sequence[object] = ()
) -> list[tuple[object, ...]]:
    """Its rows; none may hold a time, which DuckDB gives only where pytz is installed."""
    return connection.execute(statement, list(values)).fetchall()


def _count(connection: duckdb.DuckDBPyConnection, statement: str, values: Sequence[object] = ()) -> int:
    """Carry it out; how many rows it touched."""
    return int(str(_fetch(connection, statement, values)[0][0]))


def _is_locked(error: Exception) -> bool:
    """Return whether another program, or another connection of this one, has the file."""
    return isinstance(error, duckdb.Error) and any(words in str(error) for words in _LOCKED)


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _write_name(name: TableName) -> str:
    return ".".join(map(_quote, (_FILE, name.schema or "main", name.table)))


def _write_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _go_without_log(connection: duckdb.DuckDBPyConnection) -> None:
    """Let a commit go straight into the database file, as DuckDB does by itself with large ones.

    The log would hold subscribers, readable by every user that may read the folder. The one that DuckDB 2.0.1 makes for
    the moment of such a commit holds none.
    """
    connection.execute("SET checkpoint_threshold = '0B'")
    with suppress(duckdb.CatalogException):
        connection.execute(f"SET {_FROM_ROWS} = 0")
