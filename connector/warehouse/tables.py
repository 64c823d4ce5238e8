"""The tables of an export in SQLAlchemy's words (the target, its stage, `_connector_runs`), what a kind of database has
to do for them, and the statements of `upsert` and `history`, the same for all databases.

Each statement names the stage once, since MySQL reads a temporary table only once in a statement. Texts are compared to
the byte. The run's own columns, which no stage has, are values here. A row that did not change is not touched; of a
row that did, `_run_id` and `_exported_at` say when.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Protocol

import pyarrow as pa
import sqlalchemy as sa

from connector.databases import DatabaseUrl, build_engine
from connector.warehouse.interruption import Interruption
from connector.warehouse.runs import (
    COLUMNS_OF_MODE,
    DELETED_AT,
    EXPORTED_AT,
    ID,
    IS_CURRENT,
    KEYS,
    OF_RUN,
    RUN_COLUMNS,
    RUN_ID,
    RUN_KEY,
    RUNS,
    VALID_FROM,
    VALID_TO,
    ColumnKind,
    ExportRun,
    Mode,
    read_kinds,
)
from connector.warehouse.stage import StagedRows

STAGE = "_connector_stage"

Options = Mapping[str, object]

Differ = Callable[[sa.ColumnElement[Any], sa.ColumnElement[Any], ColumnKind], Any]
WriteTime = Callable[[datetime], object]


@dataclass(frozen=True, slots=True)
class TableSet:
    """The tables of one export; `kinds` are those of the columns of its rows. The stage lacks the run's own."""

    mode: Mode
    kinds: Mapping[str, ColumnKind]
    target: sa.Table
    stage: sa.Table
    runs: sa.Table

    @property
    def compared(self) -> list[str]:
        """The columns that make a version of a row."""
        return [name for name in self.kinds if name not in (ID, *OF_RUN)]


Types = Mapping[ColumnKind, sa.types.TypeEngine[Any]]


class Database(Protocol):
    """One kind of database that SQLAlchemy reaches.

    `undoes_tables`: a rolled back transaction takes back tables too. `casts_null`: a null can be given a column's type,
    so that a clash shows without rows. `holds_nul`: texts may hold U+0000. `longest_name`: bytes of a table's name
    beyond which the database cuts it off without a word. `path`: the file, if the database is one and may have to be
    made.
    """

    types: Types
    table_options: Mapping[str, str]
    undoes_tables: bool
    casts_null: bool
    holds_nul: bool

    @property
    def engine(self) -> sa.Engine: ...

    @property
    def path(self) -> Path | None: ...

    @property
    def longest_name(self) -> int | None: ...

    def connect(self, interruption: Interruption) -> AbstractContextManager[sa.Connection]:
        """Return a connection in a transaction, rolled back at the end unless `commit` came first."""

    def commit(self, connection: sa.Connection, interruption: Interruption) -> None:
        """Commit the transaction; raises Interrupted while that can still be taken back."""

    def load(self, connection: sa.Connection, table: sa.Table, rows: StagedRows, shared: Mapping[str, object]) -> int:
        """Put rows into a table; `shared` are values that all of them have. How many came to be there."""

    def differ(self, ours: sa.ColumnElement[Any], theirs: sa.ColumnElement[Any], kind: ColumnKind) -> Any:
        """Return whether two values differ, to the byte; null equals null."""

    def find_referrers(self, connection: sa.Connection, table: sa.Table) -> Sequence[str]:
        """Return the other tables that refer to this one by a foreign key, as far as the user may see them."""

    def write_time(self, at: datetime) -> object:
        """Return a time as a value of a statement."""

    def is_passing(self, error: Exception) -> bool:
        """Return whether the failure may be over by the next run: a connection, a lock."""


def open_server(
    url: DatabaseUrl,
    defaults: Mapping[str, object] | None = None,
    fixed: Mapping[str, object] | None = None,
    **more: Any,
) -> sa.Engine:
    """Return an engine; `defaults` are options of the driver unless the URL sets them, `fixed` whatever it says."""
    given = {name: value for name, value in (defaults or {}).items() if name not in url.query} | dict(fixed or {})
    return build_engine(url, hide_parameters=True, connect_args=given, **more)


def commit(connection: sa.Connection, interruption: Interruption) -> None:
    """Commit; from then on nothing is interrupted."""
    interruption.begin_commit()
    connection.commit()


@contextmanager
def open_driver(connection: sa.Connection) -> Iterator[Any]:
    """Yield the driver's own connection, for what SQLAlchemy cannot say. If the connection was lost, SQLAlchemy learns
    it here: its rollback would fail otherwise, and hide the first failure."""
    try:
        yield connection.connection.driver_connection
    except connection.dialect.loaded_dbapi.Error as error:
        if connection.dialect.is_disconnect(error, connection.connection.dbapi_connection, None):
            connection.invalidate(error)
        raise


def build_tables(schema: pa.Schema, table: str, schema_name: str | None, mode: Mode, database: Database) -> TableSet:
    """Return the tables of an export of `schema`."""
    kinds, types, options = read_kinds(schema), database.types, database.table_options
    # In PostgreSQL the stage ends with the transaction, since behind a pooler the connection goes on. Only to be named,
    # the option would import that dialect.
    is_postgresql = database.engine.dialect.name == "postgresql"
    of_stage = {"postgresql_on_commit": "DROP"} if is_postgresql else {}
    staged = {name: kind for name, kind in kinds.items() if name not in OF_RUN}
    return TableSet(
        mode,
        kinds,
        _build(table, schema_name, {**kinds, **COLUMNS_OF_MODE[mode]}, KEYS[mode], types, **options),
        _build(STAGE, None, staged, (ID,), types, prefixes=["TEMPORARY"], **of_stage, **options),
        _build(RUNS, schema_name, RUN_COLUMNS, RUN_KEY, types, **options),
    )


def _build(
    name: str,
    schema: str | None,
    kinds: Mapping[str, ColumnKind],
    key: Sequence[str],
    types: Types,
    **options: Any,
) -> sa.Table:
    columns = [
        sa.Column(
            column,
            types[kind],
            # Without a default of its own, MySQL may set the first time of a table at every update.
            server_default=_NOW if kind is ColumnKind.TIME and column in key and "mysql_engine" in options else None,
            quote=True,
            autoincrement=False,
        )
        for column, kind in kinds.items()
    ]
    constraint = sa.PrimaryKeyConstraint(*key)
    return sa.Table(name, sa.MetaData(), *columns, constraint, schema=schema, quote=True, quote_schema=True, **options)


_NOW = sa.text("CURRENT_TIMESTAMP(6)")


@dataclass(frozen=True, slots=True)
class MergeStep:
    """One statement, and as what the rows that it touches are counted."""

    counted: Literal["inserted", "updated", "closed"]
    statement: sa.Executable


def build_steps(tables: TableSet, run: ExportRun, differ: Differ, write_time: WriteTime) -> list[MergeStep]:
    """Return what brings the staged rows into the target, in this order.

    A row that the stage lacks has gone, if the run is whole and the row is one that its filters would list.
    """
    merge = _Merge(tables, run, differ, write_time)
    return merge.upsert() if tables.mode is Mode.UPSERT else merge.keep_history()


def build_rehearsal(tables: TableSet, *, is_staged: bool, casts_null: bool) -> list[sa.Executable]:
    """Return the same kinds of statements upon no row: what is missing, clashes or is not allowed shows here as
    well."""
    target, names = tables.target, list(tables.kinds)
    values: dict[str, Any] = {name: target.c[name] for name in names}
    source: sa.FromClause = target
    if is_staged:
        source = tables.stage
        values = {name: tables.stage.c[name] if name in tables.stage.c else sa.null() for name in names}
    elif casts_null:
        values = {name: sa.cast(sa.null(), target.c[name].type) for name in names}
    nothing = sa.false()
    insert = sa.insert(target).from_select(names, sa.select(*values.values()).select_from(source).where(nothing))
    changed = {Mode.UPSERT: DELETED_AT, Mode.HISTORY: VALID_TO}.get(tables.mode)
    if changed is not None:
        return [insert, sa.update(target).where(nothing).values({changed: target.c[changed]})]
    return [insert] if tables.mode is Mode.APPEND else [sa.delete(target).where(nothing), insert]


class _Merge:
    """The parts that the statements of both modes share."""

    def __init__(self, tables: TableSet, run: ExportRun, differ: Differ, write_time: WriteTime) -> None:
        self._tables, self._run, self._differ = tables, run, differ
        self._target, self._stage = tables.target, tables.stage
        at = write_time(run.exported_at)
        self._at = sa.bindparam(None, at, self._target.c[EXPORTED_AT].type)
        self._stamps = {RUN_ID: sa.bindparam(None, run.run_id, self._target.c[RUN_ID].type), EXPORTED_AT: self._at}
        staged = {name: self._stage.c[name] for name in tables.kinds if name not in OF_RUN}
        self._values: dict[str, Any] = {**staged, **self._stamps}

    def upsert(self) -> list[MergeStep]:
        is_gone = self._target.c[DELETED_AT]
        changed = {name: value for name, value in self._values.items() if name != ID} | {DELETED_AT: sa.null()}
        steps = [
            MergeStep("updated", self._update(changed, sa.or_(self._is_changed(), is_gone.is_not(None)))),
            MergeStep("inserted", self._insert(self._values, sa.true())),
        ]
        return [*steps, *self._close({DELETED_AT: self._at, **self._stamps}, is_gone.is_(None))]

    def keep_history(self) -> list[MergeStep]:
        is_current = self._target.c[IS_CURRENT] == sa.true()
        ended: dict[str, Any] = {VALID_TO: self._at, IS_CURRENT: sa.false(), **self._stamps}
        version = self._values | {VALID_FROM: self._at, IS_CURRENT: sa.true()}
        return [
            MergeStep("closed", self._update(ended, sa.and_(is_current, self._is_changed()))),
            *self._close(ended, is_current),
            MergeStep("inserted", self._insert(version, is_current)),
        ]

    def _is_changed(self) -> sa.ColumnElement[bool]:
        kinds = self._tables.kinds
        pairs = ((self._stage.c[name], self._target.c[name], kinds[name]) for name in self._tables.compared)
        return sa.or_(*(self._differ(*pair) for pair in pairs))

    def _update(self, values: dict[str, Any], condition: sa.ColumnElement[bool]) -> sa.Update:
        """The target's rows that are staged too and meet the condition, which may name both tables."""
        return sa.update(self._target).where(self._target.c[ID] == self._stage.c[ID], condition).values(values)

    def _insert(self, values: dict[str, Any], condition: sa.ColumnElement[bool]) -> sa.Insert:
        """The staged rows of which the target has none that meets the condition."""
        is_same = (self._target.c[ID] == self._stage.c[ID], condition)
        is_there = sa.exists().where(*is_same).select_from(self._target).correlate(self._stage)
        rows = sa.select(*values.values()).select_from(self._stage).where(~is_there)
        return sa.insert(self._target).from_select(list(values), rows)

    def _close(self, values: dict[str, Any], condition: sa.ColumnElement[bool]) -> list[MergeStep]:
        """The target's rows that meet the condition and have gone from the list, as far as that is known."""
        if not self._run.is_whole:
            return []
        target, kinds = self._target, self._tables.kinds
        asked = self._run.certificate.filters.get("asked", {})
        listed = [
            ~self._differ(target.c[name], sa.bindparam(None, value, target.c[name].type), kinds[name])
            for name, value in asked.items()
        ]
        is_staged = sa.exists().where(self._stage.c[ID] == target.c[ID]).select_from(self._stage).correlate(target)
        return [MergeStep("closed", sa.update(target).where(condition, *listed, ~is_staged).values(values))]
