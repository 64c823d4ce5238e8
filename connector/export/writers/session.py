"""One connection to a database, as an export sees it: statements in, rows and counts out."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import sqlalchemy as sa

from connector.export.writers.dialect import Dialect
from connector.export.writers.fitting import FoundTable
from connector.export.writers.layout import Layout, TableName
from connector.export.writers.run import Run
from connector.export.writers.staged import Rows

Load = Callable[[sa.Table, Rows, Run], int]
"""Puts a run's rows into a table; how many came to be there."""


class Session(Protocol):
    """Nothing lasts before `commit`; leaving without it is as if nothing had been done."""

    @property
    def dialect(self) -> Dialect:
        """What the database differs in."""

    def begin(self) -> None:
        """Begin the transaction."""

    def commit(self) -> None:
        """Let what was done last, for everybody at once."""

    def rollback(self) -> None:
        """Undo all since `begin`."""

    def execute(self, statement: sa.Executable) -> int:
        """Carry it out; how many rows it touched."""

    def fetch(self, statement: sa.Executable) -> Sequence[Sequence[Any]]:
        """The rows that it gives."""

    def describe(self, name: TableName) -> FoundTable | None:
        """The table or view of that name; None where there is none."""

    def list_referrers(self, name: TableName) -> Sequence[str]:
        """The other tables that refer to this one by a foreign key, as far as the user may see them."""

    def make_schema(self, schema: str) -> None:
        """Make the schema if it is not there."""

    def quote(self, name: str) -> str:
        """A name as a statement has it."""

    def fill(self, stage: sa.Table, rows: Rows) -> None:
        """Make the stage and put the rows into it."""

    def find_loader(self, layout: Layout) -> Load | None:
        """What puts rows into the tables that an export fills, if that is the same as inserting them from a stage."""

    def prepare_turns(self, layout: Layout) -> None:
        """Make what exports to one table take turns by, should the database need anything and lack it; lasts."""

    def take_turn(self, layout: Layout) -> None:
        """Wait until no other export is publishing to this table."""

    def hold(self, layout: Layout) -> None:
        """Keep others from writing to the target until the transaction ends, where the database can."""


class Place(Protocol):
    """Where a database is, and how to speak to it."""

    @property
    def dialect(self) -> Dialect:
        """What it differs in from others."""

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What its driver raises."""

    @property
    def can_rehearse(self) -> bool:
        """Whether a transaction that is undone harms nobody."""

    def __str__(self) -> str:
        """The database, for people; nothing secret."""

    def connect(self, *, is_reading: bool = False) -> AbstractContextManager[Session]:
        """A connection, closed at the end. Raises what is in `errors`, and ConfigurationError for a missing driver."""

    def explain(self, error: Exception) -> str:
        """What the database said, in one line, and nothing secret or personal in it."""

    def is_passing(self, error: Exception) -> bool:
        """Whether the failure may be over by the next run: a connection, a lock."""
