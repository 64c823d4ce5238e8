"""A real ledger in memory, by SQLite and SQLAlchemy. The ledger outlives the processes that write it.

Each process has its own connection. When a process is killed, its open transaction is rolled back, and the process
writes nothing more.
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
from connector.shards import SINGLE_SHARD, Shard
from connector.states import State
from tests.simulation.process import KilledError, ProcessState

_ENTRIES_SQL = "SELECT identity, state, subscriber_id, fingerprint, attempts FROM entry ORDER BY identity"

# Triggers that record each change of an entry's state in the same transaction, so that a rollback removes the record.
# An entry that does not exist is in state 0.
_RECORD_STATE_CHANGES_SQL = """
CREATE TEMP TABLE move (identity BLOB, earlier INTEGER, later INTEGER);
CREATE TEMP TRIGGER added AFTER INSERT ON main.entry BEGIN
  INSERT INTO move VALUES (NEW.identity, 0, NEW.state); END;
CREATE TEMP TRIGGER moved AFTER UPDATE ON main.entry WHEN OLD.state <> NEW.state BEGIN
  INSERT INTO move VALUES (NEW.identity, OLD.state, NEW.state); END;
CREATE TEMP TRIGGER dropped AFTER DELETE ON main.entry BEGIN
  INSERT INTO move VALUES (OLD.identity, OLD.state, 0); END;
"""


@dataclass(frozen=True, slots=True)
class StateChange:
    """The change of an entry from one state to another."""

    identity: bytes
    earlier_state: State
    later_state: State


class LedgerDatabase:
    """One ledger's database."""

    def __init__(self, stored_bytes: bytes) -> None:
        self.database = sqlite3.connect(":memory:", isolation_level=None)
        self.database.deserialize(stored_bytes)
        self.database.executescript("PRAGMA foreign_keys = ON;" + _RECORD_STATE_CHANGES_SQL)

    def copy(self) -> bytes:
        """Return the content of the database, as in a backup."""
        return self.database.serialize()

    def read_entries(self) -> list[tuple[bytes, int, int | None, bytes | None, int]]:
        """Return (identity, state, subscriber_id, fingerprint, attempts) of every entry."""
        return self.database.execute(_ENTRIES_SQL).fetchall()

    def pop_state_changes(self) -> list[StateChange]:
        """Return the changes of state since the last call, and delete their record."""
        rows = self.database.execute("SELECT identity, earlier, later FROM move ORDER BY rowid").fetchall()
        self.database.execute("DELETE FROM move")
        return [StateChange(identity, State(old_state), State(new_state)) for identity, old_state, new_state in rows]

    def read_largest_lag(self) -> float:
        """Return the largest lag of the list that the ledger has recorded, in seconds."""
        return float(self.database.execute("SELECT coalesce(max(largest_lag_s), 0) FROM account").fetchone()[0])

    def close(self) -> None:
        """Close the database."""
        self.database.close()


class ProcessConnection:
    """The connection of one process to the database, with the methods of Python's DB-API. A killed process
    cannot use the connection."""

    def __init__(self, database: sqlite3.Connection, process_state: ProcessState) -> None:
        self._database = database
        self._process_state = process_state

    def cursor(self) -> sqlite3.Cursor:
        """Return a cursor."""
        return self._get_database().cursor()

    def commit(self) -> None:
        """Commit. The process may be killed just before or just after the commit."""
        database = self._get_database()
        if not database.in_transaction:  # the first queries of SQLAlchemy are outside of a transaction
            return
        try:
            self._process_state.record_commit(is_committed=False)
        except KilledError:
            database.rollback()
            raise
        database.commit()
        self._process_state.record_commit(is_committed=True)

    def rollback(self) -> None:
        """Roll back the open transaction. Do nothing after a kill, because `Ledgers.open` then rolls back."""
        if not self._process_state.has_ended:
            self._database.rollback()

    def close(self) -> None:
        """Do nothing, because the database outlives the process."""

    def create_function(self, *_: Any, **__: Any) -> None:
        """Do nothing: SQLAlchemy registers functions that no statement of the ledger uses."""

    def _get_database(self) -> sqlite3.Connection:
        if self._process_state.has_ended:
            raise KilledError
        return self._database


class Ledgers:
    """Opens ledgers for processes. All ledgers share one SQLAlchemy engine, so that each statement is compiled once."""

    def __init__(self) -> None:
        self._next_connection: ProcessConnection | None = None
        self._engine = self._build_engine()
        self._empty_database_bytes = self._build_empty_database()

    def create(self, stored_bytes: bytes | None = None) -> LedgerDatabase:
        """Return a ledger with the content of a backup, or an empty ledger."""
        return LedgerDatabase(stored_bytes or self._empty_database_bytes)

    @contextmanager
    def open(
        self, ledger_database: LedgerDatabase, process_state: ProcessState, shard: Shard = SINGLE_SHARD
    ) -> Iterator[Ledger]:
        """Yield the ledger for one process. At the end of the process, its open transaction is rolled back."""
        try:
            with self._connect(ledger_database, process_state) as connection:
                yield Ledger(LedgerStore(connection, "memory"), shard)
        finally:
            process_state.has_ended = True
            ledger_database.database.rollback()

    def _connect(self, ledger_database: LedgerDatabase, process_state: ProcessState) -> Connection:
        self._next_connection = ProcessConnection(ledger_database.database, process_state)
        return self._engine.connect()

    def _build_engine(self) -> Engine:
        engine = create_engine(
            "sqlite://", poolclass=NullPool, creator=lambda: self._next_connection, hide_parameters=True
        )

        @event.listens_for(engine, "begin")
        def begin_immediately(connection: Connection) -> None:
            connection.exec_driver_sql("BEGIN IMMEDIATE")

        return engine

    def _build_empty_database(self) -> bytes:
        database = sqlite3.connect(":memory:", isolation_level=None)
        self._next_connection = ProcessConnection(database, ProcessState())
        with self._engine.connect() as connection:
            wrap_connection(connection, "memory")
        stored_bytes = database.serialize()
        database.close()
        return stored_bytes
