"""A real ledger in memory, by SQLite and SQLAlchemy. The ledger outlives the processes that write it.

Each process has its own connection. When a process dies, its open transaction is rolled back, and it writes no more.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import NullPool

from connector.ledger.entries import Ledger
from connector.ledger.opening import wrap_connection
from connector.ledger.store import Store as LedgerStore
from connector.shards import WHOLE, Shard
from connector.states import State
from tests.simulation.process import DiedError, Life

_ENTRIES_SQL = "SELECT identity, state, subscriber_id, fingerprint, attempts FROM entry ORDER BY identity"

# Triggers that record each move of an entry in the transaction of the move, so that a rollback removes the record. An
# entry that does not exist is in state 0.
_RECORD_MOVES_SQL = """
CREATE TEMP TABLE move (identity BLOB, earlier INTEGER, later INTEGER);
CREATE TEMP TRIGGER added AFTER INSERT ON main.entry BEGIN
  INSERT INTO move VALUES (NEW.identity, 0, NEW.state); END;
CREATE TEMP TRIGGER moved AFTER UPDATE ON main.entry WHEN OLD.state <> NEW.state BEGIN
  INSERT INTO move VALUES (NEW.identity, OLD.state, NEW.state); END;
CREATE TEMP TRIGGER dropped AFTER DELETE ON main.entry BEGIN
  INSERT INTO move VALUES (OLD.identity, OLD.state, 0); END;
"""


@dataclass(frozen=True, slots=True)
class Move:
    """A move of an entry from one state to another."""

    identity: bytes
    earlier_state: State
    later_state: State


class Store:
    """One ledger's database."""

    def __init__(self, image: bytes) -> None:
        self.database = sqlite3.connect(":memory:", isolation_level=None)
        self.database.deserialize(image)
        self.database.executescript("PRAGMA foreign_keys = ON;" + _RECORD_MOVES_SQL)

    def copy(self) -> bytes:
        """Return the content of the database as a backup has it."""
        return self.database.serialize()

    def read_entries(self) -> list[tuple[bytes, int, int | None, bytes | None, int]]:
        """Return (identity, state, subscriber_id, fingerprint, attempts) of every entry."""
        return self.database.execute(_ENTRIES_SQL).fetchall()

    def pop_moves(self) -> list[Move]:
        """Return the moves since the last call, and forget them."""
        rows = self.database.execute("SELECT identity, earlier, later FROM move ORDER BY rowid").fetchall()
        self.database.execute("DELETE FROM move")
        return [Move(identity, State(earlier), State(later)) for identity, earlier, later in rows]

    def read_largest_lag(self) -> float:
        """Return the largest lag of the list that the ledger has recorded, in seconds."""
        return float(self.database.execute("SELECT coalesce(max(largest_lag_s), 0) FROM account").fetchone()[0])

    def close(self) -> None:
        """Close the database."""
        self.database.close()


class ProcessConnection:
    """The connection of one process to the database, with the methods of Python's DB-API. A dead process cannot use
    it."""

    def __init__(self, database: sqlite3.Connection, life: Life) -> None:
        self._database = database
        self._life = life

    def cursor(self) -> sqlite3.Cursor:
        """Return a cursor."""
        return self._require_life().cursor()

    def commit(self) -> None:
        """Commit. A process may die just before or just after the commit."""
        database = self._require_life()
        if not database.in_transaction:  # SQLAlchemy asks its first questions outside of a transaction
            return
        try:
            self._life.record_commit(is_done=False)
        except DiedError:
            database.rollback()
            raise
        database.commit()
        self._life.record_commit(is_done=True)

    def rollback(self) -> None:
        """Roll back. The transaction of a dead process has been rolled back already."""
        if not self._life.is_over:
            self._database.rollback()

    def close(self) -> None:
        """Do nothing, because the database outlives the process."""

    def create_function(self, *_: Any, **__: Any) -> None:
        """Do nothing: SQLAlchemy registers functions that no statement of the ledger uses."""

    def _require_life(self) -> sqlite3.Connection:
        if self._life.is_over:
            raise DiedError
        return self._database


class Ledgers:
    """Opens ledgers for processes. All share one SQLAlchemy engine, so that each statement is compiled once."""

    def __init__(self) -> None:
        self._next_connection: ProcessConnection | None = None
        self._engine = self._build_engine()
        self._empty_image = self._build_empty_image()

    def create(self, image: bytes | None = None) -> Store:
        """Return a ledger with the content of a backup, or an empty ledger."""
        return Store(image or self._empty_image)

    @contextmanager
    def open(self, store: Store, life: Life, shard: Shard = WHOLE) -> Iterator[Ledger]:
        """Yield the ledger for one process. At the end of the process, its open transaction is rolled back."""
        try:
            with self._connect(store, life) as connection:
                yield Ledger(LedgerStore(connection, "memory"), shard)
        finally:
            life.is_over = True
            store.database.rollback()

    def _connect(self, store: Store, life: Life) -> Connection:
        self._next_connection = ProcessConnection(store.database, life)
        return self._engine.connect()

    def _build_engine(self) -> Engine:
        engine = create_engine(
            "sqlite://", poolclass=NullPool, creator=lambda: self._next_connection, hide_parameters=True
        )

        @event.listens_for(engine, "begin")
        def begin_immediately(connection: Connection) -> None:
            connection.exec_driver_sql("BEGIN IMMEDIATE")

        return engine

    def _build_empty_image(self) -> bytes:
        database = sqlite3.connect(":memory:", isolation_level=None)
        self._next_connection = ProcessConnection(database, Life())
        with self._engine.connect() as connection:
            wrap_connection(connection, "memory")
        image = database.serialize()
        database.close()
        return image
