"""A SQLite file: flags are 0 and 1, tags a JSON array, dates and times ISO 8601 texts."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.schema import CreateTable

from connector.driver_words import say_safely
from connector.export.writers.dialect import PADDED, Dialect
from connector.export.writers.kinds import ColumnKind
from connector.export.writers.plain_rows import read_flat_rows
from connector.export.writers.referring import find_referrers_in_sqlite
from connector.export.writers.session import Session
from connector.export.writers.sql_session import SqlSession
from connector.export.writers.staged import Rows

_WAIT_S = 30.0
"""For a lock that another connection holds: a reader's lasts moments."""


def _write_time(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds")


SQLITE = Dialect(
    types={
        ColumnKind.TEXT: sa.Text(),
        ColumnKind.WHOLE: sa.Integer(),
        ColumnKind.FLAG: sa.Boolean(),
        ColumnKind.DATE: sa.Date(),
        ColumnKind.TIME: sa.Text(),
        ColumnKind.TAGS: sa.Text(),
    },
    mend="ALTER TABLE {table} RENAME COLUMN {column} TO {old}",  # a type cannot be changed; a new column is added
    also={
        ColumnKind.TEXT: frozenset({PADDED}),  # which nothing is here
        ColumnKind.FLAG: frozenset({ColumnKind.WHOLE}),
        ColumnKind.DATE: frozenset({ColumnKind.TEXT, PADDED}),
        ColumnKind.TIME: frozenset({ColumnKind.TEXT, PADDED}),
        ColumnKind.TAGS: frozenset({ColumnKind.TEXT, PADDED, "json"}),
    },
    write_time=_write_time,
)


class SqlitePlace:
    """A file, which need not be there yet."""

    dialect = SQLITE
    errors: tuple[type[Exception], ...] = (sqlite3.Error, sa.exc.SQLAlchemyError)
    can_rehearse = True

    def __init__(self, path: Path) -> None:
        self._path = path

    def __str__(self) -> str:
        return str(self._path)

    @contextmanager
    def connect(self, *, is_reading: bool = False) -> Iterator[Session]:
        """A connection that begins by taking the only right to write, and waits for it."""
        make = partial(sqlite3.connect, self._path, timeout=_WAIT_S, isolation_level=None)
        engine = sa.create_engine("sqlite://", creator=make, poolclass=sa.pool.NullPool, hide_parameters=True)
        with engine.connect() as connection:
            yield SqlSession(
                connection,
                SQLITE,
                _fill,
                wait=lambda _, __: None,  # the right to write is the file's, and taken at the beginning
                starts=None if is_reading else "BEGIN IMMEDIATE",
                refer=find_referrers_in_sqlite,
            )

    def explain(self, error: Exception) -> str:
        """What SQLite said, without values of rows."""
        return say_safely(error)

    def is_passing(self, error: Exception) -> bool:
        """Nothing of a file passes by itself, as far as can be told."""
        return False


def _fill(connection: sa.Connection, stage: sa.Table, rows: Rows) -> None:
    connection.execute(CreateTable(stage))
    insert = f"insert into temp.{stage.name} values ({', '.join('?' * len(stage.c))})"  # noqa: S608 - our own name
    driver = connection.connection.driver_connection
    if not isinstance(driver, sqlite3.Connection):
        raise TypeError("a connection to SQLite is the standard library's")
    for batch in rows.read():
        driver.executemany(insert, read_flat_rows(batch))
