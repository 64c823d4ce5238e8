"""Any other database that SQLAlchemy reaches, with what nearly all of them have: temporary tables and rows in batches.

A database without CREATE TEMPORARY TABLE is refused by its own word for that, before anything is read. Texts are
compared to the byte in PostgreSQL, by whatever driver, and elsewhere as the database compares them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.schema import CreateTable

from connector.databases import DatabaseUrl, build_engine, explain, list_errors, show_url
from connector.export.writers.dialect import COARSE, Dialect, differ_in_bytes, is_table_to_the_letter
from connector.export.writers.kinds import ColumnKind
from connector.export.writers.plain_rows import read_typed_rows
from connector.export.writers.session import Session
from connector.export.writers.sql_session import SqlSession
from connector.export.writers.staged import Rows
from connector.export.writers.turns import make_turns, wait_by_turns

_BATCH = 1000
"""Rows of one call to the driver."""


def differ_somehow(ours: sa.ColumnElement[Any], theirs: sa.ColumnElement[Any], _: ColumnKind) -> sa.ColumnElement[bool]:
    """Null-safe in the words that every database knows."""
    one_is_null = sa.or_(
        sa.and_(ours.is_(None), theirs.is_not(None)),
        sa.and_(ours.is_not(None), theirs.is_(None)),
    )
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
        ColumnKind.TIME: frozenset({COARSE}),  # in some, a new column is so, too
        ColumnKind.TAGS: frozenset({ColumnKind.TEXT}),
    },
    differs=differ_somehow,
    can_update_from=False,
    holds_nul=False,  # some do not, and none needs to
    undoes_tables=False,  # and a new one may end the transaction
)


def _differ_in_postgresql(
    ours: sa.ColumnElement[Any], theirs: sa.ColumnElement[Any], kind: ColumnKind
) -> sa.ColumnElement[bool]:
    return differ_in_bytes(ours, theirs, ColumnKind.TEXT if kind is ColumnKind.TAGS else kind)  # tags are a text here


POSTGRESQL_SOMEHOW = replace(
    GENERIC,
    also={kind: families - {COARSE} for kind, families in GENERIC.also.items()},
    differs=_differ_in_postgresql,
    folds_case=False,
    is_table=is_table_to_the_letter,
    counts_bytes=True,
)
"""PostgreSQL by another driver than psycopg 3: what is known of the server itself."""


class GenericPlace:
    """A database by a dialect of SQLAlchemy's."""

    can_rehearse = True

    def __init__(self, url: DatabaseUrl) -> None:
        self._url = url
        self._engine = build_engine(url, hide_parameters=True)
        its = self._engine.dialect
        known = POSTGRESQL_SOMEHOW if its.name == "postgresql" else GENERIC
        self.dialect = replace(known, longest_name=its.max_identifier_length)
        self.errors = list_errors(self._engine)

    def __str__(self) -> str:
        return show_url(self._url)

    @contextmanager
    def connect(self, *, is_reading: bool = False) -> Iterator[Session]:
        """A connection of its own."""
        with self._engine.connect() as connection:
            yield SqlSession(connection, self.dialect, _fill, wait_by_turns, ready=make_turns)

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
