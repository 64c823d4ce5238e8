"""A Session by SQLAlchemy; what a database does in its own way comes in as functions."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from connector.export.writers.dialect import Dialect
from connector.export.writers.fitting import FoundTable
from connector.export.writers.layout import Layout, TableName
from connector.export.writers.referring import inspect_referrers
from connector.export.writers.reflecting import describe_table
from connector.export.writers.session import Load
from connector.export.writers.staged import Rows

Fill = Callable[[sa.Connection, sa.Table, Rows], None]
Wait = Callable[[sa.Connection, Layout], None]
Look = Callable[[sa.Connection, TableName], FoundTable | None]
Refer = Callable[[sa.Connection, TableName], Sequence[str]]
FindLoader = Callable[[sa.Connection, Layout], Load | None]


@contextmanager
def open_driver(connection: sa.Connection) -> Iterator[Any]:
    """The driver's own connection, for what SQLAlchemy has no words for; that it is lost is told to SQLAlchemy, whose
    rollback would fail otherwise, and that would be all that is heard."""
    try:
        yield connection.connection.driver_connection
    except connection.dialect.loaded_dbapi.Error as error:
        if connection.dialect.is_disconnect(error, connection.connection.dbapi_connection, None):
            connection.invalidate(error)
        raise


def _hold_nothing(_: sa.Connection, __: Layout) -> None:
    """For databases that a transaction protects as well as they can."""


class SqlSession:
    """One connection in one transaction. `starts`: the statement that begins it, where SQLAlchemy sends none."""

    def __init__(
        self,
        connection: sa.Connection,
        dialect: Dialect,
        fill: Fill,
        wait: Wait,
        hold: Wait = _hold_nothing,
        starts: str | None = None,
        look: Look = describe_table,
        refer: Refer = inspect_referrers,
        ready: Wait | None = None,
        find_loader: FindLoader | None = None,
    ) -> None:
        self.connection = connection
        self._dialect = dialect
        self._fill = fill
        self._wait = wait
        self._hold = hold
        self._starts = starts
        self._look = look
        self._refer = refer
        self._ready = ready
        self._find_loader = find_loader

    @property
    def dialect(self) -> Dialect:
        """What the database differs in."""
        return self._dialect

    def begin(self) -> None:
        """Begin the transaction."""
        if not self.connection.in_transaction():
            self.connection.begin()
        if self._starts is not None:
            self.connection.exec_driver_sql(self._starts)

    def commit(self) -> None:
        """Let what was done last."""
        self.connection.commit()

    def rollback(self) -> None:
        """Undo all since `begin`."""
        self.connection.rollback()

    def execute(self, statement: sa.Executable) -> int:
        """Carry it out; how many rows it touched."""
        return max(0, self.connection.execute(statement, execution_options={"preserve_rowcount": True}).rowcount)

    def fetch(self, statement: sa.Executable) -> Sequence[Sequence[Any]]:
        """The rows that it gives."""
        return self.connection.execute(statement).fetchall()

    def describe(self, name: TableName) -> FoundTable | None:
        """The table or view of that name; None where there is none."""
        return self._look(self.connection, name)

    def list_referrers(self, name: TableName) -> Sequence[str]:
        """The other tables that refer to this one by a foreign key, as far as the user may see them."""
        return sorted(set(self._refer(self.connection, name)))

    def make_schema(self, schema: str) -> None:
        """Make the schema if it is not there."""
        if not sa.inspect(self.connection).has_schema(schema):
            self.connection.execute(sa.schema.CreateSchema(sa.quoted_name(schema, True)))

    def quote(self, name: str) -> str:
        """A name as a statement has it."""
        return self.connection.dialect.identifier_preparer.quote_identifier(name)

    def fill(self, stage: sa.Table, rows: Rows) -> None:
        """Make the stage and put the rows into it."""
        self._fill(self.connection, stage, rows)

    def find_loader(self, layout: Layout) -> Load | None:
        """What puts rows into the tables that an export fills, if that is the same as inserting them from a stage."""
        return None if self._find_loader is None else self._find_loader(self.connection, layout)

    def prepare_turns(self, layout: Layout) -> None:
        """Make what exports to one table take turns by, should the database need anything and lack it; lasts."""
        if self._ready is not None:
            if layout.target.schema is not None:
                self.make_schema(layout.target.schema)
            self.commit()
            self._ready(self.connection, layout)

    def take_turn(self, layout: Layout) -> None:
        """Wait until no other export is publishing to this table."""
        self._wait(self.connection, layout)

    def hold(self, layout: Layout) -> None:
        """Keep others from writing to the target until the transaction ends, where the database can."""
        self._hold(self.connection, layout)
