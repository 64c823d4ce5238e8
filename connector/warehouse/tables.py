"""The tables of an export as SQLAlchemy knows tables (the target, its stage, `_connector_runs`), and what a kind of
database has to do for them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import sqlalchemy as sa

from connector.databases import DatabaseUrl, build_engine
from connector.warehouse.columns import OF_RUN
from connector.warehouse.destination import Mode
from connector.warehouse.interruption import Interruption
from connector.warehouse.runs import COLUMNS_OF_MODE, ID, KEYS, RUN_COLUMNS, RUN_KEY, RUNS, ColumnKind, read_kinds
from connector.warehouse.stage import StagedRows

STAGE = "_connector_stage"

Options = Mapping[str, object]


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
        """A connection in a transaction, rolled back at the end unless `commit` came first."""

    def commit(self, connection: sa.Connection, interruption: Interruption) -> None:
        """Commit the transaction; raises Interrupted while that can still be taken back."""

    def load(self, connection: sa.Connection, table: sa.Table, rows: StagedRows, shared: Mapping[str, object]) -> int:
        """Put rows into a table; `shared` are values that all of them have. How many came to be there."""

    def differ(self, ours: sa.ColumnElement[Any], theirs: sa.ColumnElement[Any], kind: ColumnKind) -> Any:
        """Whether two values differ, to the byte; null equals null."""

    def find_referrers(self, connection: sa.Connection, table: sa.Table) -> Sequence[str]:
        """The other tables that refer to this one by a foreign key, as far as the user may see them."""

    def write_time(self, at: datetime) -> object:
        """A time as a value of a statement."""

    def is_passing(self, error: Exception) -> bool:
        """Whether the failure may be over by the next run: a connection, a lock."""


def open_server(
    url: DatabaseUrl,
    defaults: Mapping[str, object] | None = None,
    fixed: Mapping[str, object] | None = None,
    **more: Any,
) -> sa.Engine:
    """An engine; `defaults` are options of the driver unless the URL sets them, `fixed` whatever it says."""
    given = {name: value for name, value in (defaults or {}).items() if name not in url.query} | dict(fixed or {})
    return build_engine(url, hide_parameters=True, connect_args=given, **more)


def commit(connection: sa.Connection, interruption: Interruption) -> None:
    """Commit; from then on nothing is interrupted."""
    interruption.begin_commit()
    connection.commit()


@contextmanager
def open_driver(connection: sa.Connection) -> Iterator[Any]:
    """The driver's own connection, for what SQLAlchemy has no words for. SQLAlchemy is told that it was lost: its
    rollback would fail otherwise, and only that failure would be seen."""
    try:
        yield connection.connection.driver_connection
    except connection.dialect.loaded_dbapi.Error as error:
        if connection.dialect.is_disconnect(error, connection.connection.dbapi_connection, None):
            connection.invalidate(error)
        raise


def build_tables(schema: pa.Schema, table: str, schema_name: str | None, mode: Mode, database: Database) -> TableSet:
    """The tables of an export of `schema`."""
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
