"""Any other database that SQLAlchemy reaches, with what nearly all of them have: temporary tables and rows in batches.

A database without CREATE TEMPORARY TABLE is refused by its own word for that, before anything is read. Texts are
compared to the byte in PostgreSQL, by whatever driver, and elsewhere as the database compares them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateTable
from sqlalchemy.sql.functions import FunctionElement

from connector.databases import DatabaseUrl, build_engine, explain, show_url
from connector.export.writers.dialect import Dialect
from connector.export.writers.kinds import ColumnKind
from connector.export.writers.plain_rows import read_typed_rows
from connector.export.writers.session import Session
from connector.export.writers.sql_session import SqlSession
from connector.export.writers.staged import Rows

_BATCH = 1000
"""Rows of one call to the driver."""


class _Bytes(FunctionElement[Any]):
    """A text to be compared by its bytes, whatever its column's collation; as it is where no word for that is known."""

    inherit_cache = True


@compiles(_Bytes)
def _write_text(element: _Bytes, compiler: Any, **options: Any) -> str:
    return str(compiler.process(element.clauses, **options))


@compiles(_Bytes, "postgresql")
def _write_text_of_postgresql(element: _Bytes, compiler: Any, **options: Any) -> str:
    return f'CAST({compiler.process(element.clauses, **options)} AS TEXT) COLLATE "C"'


def differ_somehow(
    ours: sa.ColumnElement[Any], theirs: sa.ColumnElement[Any], kind: ColumnKind
) -> sa.ColumnElement[bool]:
    """Null-safe in the words that every database knows."""
    one_is_null = sa.or_(
        sa.and_(ours.is_(None), theirs.is_not(None)),
        sa.and_(ours.is_not(None), theirs.is_(None)),
    )
    if kind in (ColumnKind.TEXT, ColumnKind.TAGS):
        return sa.or_(_Bytes(ours) != _Bytes(theirs), one_is_null)
    return sa.or_(ours != theirs, one_is_null)


GENERIC = Dialect(
    types={
        ColumnKind.TEXT: sa.Text(),
        ColumnKind.WHOLE: sa.BigInteger(),
        ColumnKind.FLAG: sa.Boolean(),
        ColumnKind.DATE: sa.Date(),
        ColumnKind.TIME: sa.DateTime(timezone=True),
        ColumnKind.TAGS: sa.Text(),
    },
    mend="ALTER TABLE {table} RENAME COLUMN {column} TO {old}",  # a new column is added then
    also={
        ColumnKind.FLAG: frozenset({ColumnKind.WHOLE}),  # where there are no booleans
        ColumnKind.TAGS: frozenset({ColumnKind.TEXT}),
    },
    differs=differ_somehow,
    can_update_from=False,
    holds_nul=False,  # some do not, and none needs to
    undoes_tables=False,
)


class GenericPlace:
    """A database by a dialect of SQLAlchemy's."""

    dialect = GENERIC
    can_rehearse = True

    def __init__(self, url: DatabaseUrl) -> None:
        self._url = url
        self._engine = build_engine(url, hide_parameters=True)
        self.errors: tuple[type[Exception], ...] = (sa.exc.SQLAlchemyError, self._engine.dialect.loaded_dbapi.Error)

    def __str__(self) -> str:
        return show_url(self._url)

    @contextmanager
    def connect(self, *, is_reading: bool = False) -> Iterator[Session]:
        """A connection of its own."""
        with self._engine.connect() as connection:
            yield SqlSession(connection, GENERIC, _fill)

    def explain(self, error: Exception) -> str:
        """The first line of what the driver said, without values of rows."""
        return explain(error, self._url)

    def is_passing(self, error: Exception) -> bool:
        """Whether it is a failure of the connection rather than of a statement."""
        return isinstance(error, sa.exc.DBAPIError) and error.connection_invalidated


def _fill(connection: sa.Connection, stage: sa.Table, rows: Rows) -> None:
    connection.execute(CreateTable(stage))
    insert, names = sa.insert(stage), stage.c.keys()
    for batch in rows.read():
        for begin in range(0, batch.num_rows, _BATCH):
            connection.execute(insert, read_typed_rows(batch.slice(begin, _BATCH), names))
