"""A real ledger in memory: SQLite behind SQLAlchemy. The ledger outlives the processes that write it.

A process reaches it by a connection of its own, which death cuts: what was not committed is gone, nothing more gets in.
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

_ENTRIES = "SELECT identity, state, subscriber_id, fingerprint, attempts FROM entry ORDER BY identity"

# Every move of every entry, noted in the same transaction, so that what is undone is not told. A missing entry is
# state 0.
_WATCH = """
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
    """An entry of the ledger has gone from one state to another."""

    identity: bytes
    earlier: State
    later: State


class Store:
    """One ledger's database."""

    def __init__(self, image: bytes) -> None:
        self.database = sqlite3.connect(":memory:", isolation_level=None)
        self.database.deserialize(image)
        self.database.executescript("PRAGMA foreign_keys = ON;" + _WATCH)

    def copy(self) -> bytes:
        """Its content now, as a backup would have it."""
        return self.database.serialize()

    def read_entries(self) -> list[tuple[bytes, int, int | None, bytes | None, int]]:
        """Every entry: (identity, state, subscriber_id, fingerprint, attempts)."""
        return self.database.execute(_ENTRIES).fetchall()

    def take_moves(self) -> list[Move]:
        """What has moved since this was asked last."""
        rows = self.database.execute("SELECT identity, earlier, later FROM move ORDER BY rowid").fetchall()
        self.database.execute("DELETE FROM move")
        return [Move(identity, State(earlier), State(later)) for identity, earlier, later in rows]

    def read_largest_lag(self) -> float:
        """How late the list has shown a create, as far as the ledger knows; in seconds."""
        return float(self.database.execute("SELECT coalesce(max(largest_lag_s), 0) FROM account").fetchone()[0])

    def close(self) -> None:
        """It is not needed any more."""
        self.database.close()


class ProcessConnection:
    """What one process sees of the database, by the names of Python's DB-API; of a dead process it takes nothing."""

    def __init__(self, database: sqlite3.Connection, life: Life) -> None:
        self._database = database
        self._life = life

    def cursor(self) -> sqlite3.Cursor:
        """For one statement."""
        return self._reach().cursor()

    def commit(self) -> None:
        """Make it durable; either side of it is a moment to die."""
        database = self._reach()
        if not database.in_transaction:  # as SQLAlchemy's own first questions are not
            return
        try:
            self._life.note_commit(is_done=False)
        except DiedError:
            database.rollback()
            raise
        database.commit()
        self._life.note_commit(is_done=True)

    def rollback(self) -> None:
        """Undo; the dead have been undone already."""
        if not self._life.is_over:
            self._database.rollback()

    def close(self) -> None:
        """The database stays."""

    def create_function(self, *_: Any, **__: Any) -> None:
        """SQLAlchemy brings functions of its own, which no statement of the ledger uses."""

    def _reach(self) -> sqlite3.Connection:
        if self._life.is_over:
            raise DiedError
        return self._database


class Ledgers:
    """Opens ledgers for processes: one SQLAlchemy engine for all of them, so that a statement is compiled once."""

    def __init__(self) -> None:
        self._next: ProcessConnection | None = None
        self._engine = self._build_engine()
        self._empty = self._build_empty()

    def create(self, image: bytes | None = None) -> Store:
        """A ledger with the content of a backup, or an empty one."""
        return Store(image or self._empty)

    @contextmanager
    def open(self, store: Store, life: Life, shard: Shard = WHOLE) -> Iterator[Ledger]:
        """The ledger as one process has it, until that ends; what it leaves unfinished is rolled back."""
        try:
            with self._connect(store, life) as connection:
                yield Ledger(LedgerStore(connection, "memory"), shard)
        finally:
            life.is_over = True
            store.database.rollback()

    def _connect(self, store: Store, life: Life) -> Connection:
        self._next = ProcessConnection(store.database, life)
        return self._engine.connect()

    def _build_engine(self) -> Engine:
        engine = create_engine("sqlite://", poolclass=NullPool, creator=lambda: self._next, hide_parameters=True)

        @event.listens_for(engine, "begin")
        def begin_immediately(connection: Connection) -> None:
            connection.exec_driver_sql("BEGIN IMMEDIATE")

        return engine

    def _build_empty(self) -> bytes:
        database = sqlite3.connect(":memory:", isolation_level=None)
        self._next = ProcessConnection(database, Life())
        with self._engine.connect() as connection:
            wrap_connection(connection, "memory")
        image = database.serialize()
        database.close()
        return image
