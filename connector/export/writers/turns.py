"""How exports to one table take turns in a database that only SQLAlchemy knows: each locks its tables' lines.

The lines of `_connector_runs` could not serve: before the first export of a table there is none to lock.
"""

from collections.abc import Callable
from functools import partial

import sqlalchemy as sa
from sqlalchemy.schema import CreateTable

from connector.errors import RunAborted
from connector.export.writers.layout import RUNS, TURNS, Layout

_LONGEST = 255
"""Characters of a key that every database takes; no name of a table is longer."""


def make_turns(connection: sa.Connection, layout: Layout) -> None:
    """Make the table of turns and this export's lines in it, should they be missing, for everybody to see at once."""
    turns = _build_turns(layout)
    _make(connection, CreateTable(turns), lambda: sa.inspect(connection).has_table(TURNS, schema=turns.schema))
    for name in (*layout.turns, RUNS):
        _make(connection, sa.insert(turns).values(table_name=name), partial(_has, connection, turns, name))


def wait_by_turns(connection: sa.Connection, layout: Layout) -> None:
    """Lock this export's lines, which changes none, until the transaction ends."""
    turns = _build_turns(layout)
    is_first = not sa.inspect(connection).has_table(RUNS, schema=turns.schema)  # of all: it makes what they share
    for name in (*layout.turns, *([RUNS] if is_first else [])):  # in the same order by everybody
        own = turns.c.table_name == name
        connection.execute(sa.update(turns).where(own).values(table_name=name))
        if not _has(connection, turns, name):
            raise RunAborted(f"The line {name} of {TURNS}, by which exports take turns, is gone: run it again.")


def _build_turns(layout: Layout) -> sa.Table:
    name = sa.Column("table_name", sa.String(_LONGEST), primary_key=True)
    return sa.Table(TURNS, sa.MetaData(), name, schema=layout.target.schema, quote=True, quote_schema=True)


def _make(connection: sa.Connection, statement: sa.Executable, is_there: Callable[[], bool]) -> None:
    """Carry it out, unless that was done; also by another export at the same moment, whose key or name came first."""
    if is_there():
        return
    try:
        connection.execute(statement)
        connection.commit()
    except sa.exc.DBAPIError:
        connection.rollback()
        if not is_there():
            raise


def _has(connection: sa.Connection, turns: sa.Table, name: str) -> bool:
    found = sa.select(sa.func.count()).select_from(turns).where(turns.c.table_name == name)
    return bool(connection.scalar(found))
