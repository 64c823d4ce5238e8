"""Shared parts of the ledgers of entries and of emails: a connection with transactions, bases, locks of campaigns, and
compare-and-set over many rows.

A `BatchStatement` is one SQL statement for many rows. A few calls execute the statement for all rows. SQLite and
PostgreSQL differ only in these calls:

- SQLite gets each value as a parameter. One call with all rows takes two thirds of the time of separate calls (measured
  for 64 intents and 64 answers in a commit). The number of rows in a call is a power of two, so that few different
  statements are compiled. Compiling takes 2 µs for each row.
- PostgreSQL gets each column as one array. A row then takes 1 µs in this process and 2.5 µs in the server. If each
  value were a parameter, a row would take 10 µs here and 6 µs there (measured for look-ups among a million entries).
"""

import os
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache
from hashlib import blake2b
from itertools import chain
from math import inf
from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

from connector.driver_errors import describe_error
from connector.errors import LedgerError, LockedError, MissingLedgerError

# Maximum number of values in a statement (SQLite allows 32,766, but longer statements are not faster).
_MAX_VALUES_PER_STATEMENT = 1800
_MAX_ROWS_PER_STATEMENT = 512
"""The maximum number of rows of a statement in PostgreSQL, a power of two. For a statement with far more rows,
PostgreSQL would read the whole table."""
_SHARED_VALUE_NAME_PATTERN = re.compile(r":(\w+)")  # the place of a shared value in the SQL of a `BatchStatement`

_POLL_S = 0.2  # seconds between two tries to get a lock

LEASE_S = 30.0
"""The seconds that a lease lasts after the last transaction of its run. The time is long, because a commit may take
seconds."""

# At most this many seconds pass between the last check of the clock and the first byte of a request.
_LEASE_MARGIN_S = 5.0

Rows = Sequence[tuple[Any, ...]]


CampaignLock = Callable[[str, float, Callable[[], bool]], AbstractContextManager[None]]
"""A function that locks a campaign by its name. Campaigns of different accounts with the same name share the lock. The
arguments are the name, the longest wait for the lock in seconds, and a function that returns True to end the wait."""


@dataclass(frozen=True, slots=True)
class Base:
    """A base of an account: `key` is the number of the base in this ledger, and `service_id` its Id in the service
    (None: not known yet).

    If the answer to a create in this base named another base, `answered_id` and `answered_name` are the id and the name
    of the other base (architecture 4.9)."""

    key: int
    account: str
    service_id: int | None
    name: str | None
    answered_id: int | None = None
    answered_name: str | None = None

    @property
    def has_wrong_answer(self) -> bool:
        """Whether the answer to a create in this base named another base."""
        return self.answered_id is not None or self.answered_name is not None


class StaleTransitionError(LedgerError):
    """An entry was not in the old state of a state transition. Either another process has changed the ledger, or the
    code has a bug."""


@dataclass(frozen=True, slots=True)
class BatchStatement:
    """A statement over rows, for both databases. In `sql`, `{item}` stands for the rows, and `:name` for a value that
    all rows share. The columns of the rows are column1, column2… `column_types_text` has PostgreSQL's names of the
    types of these columns, separated by blanks."""

    sql: str
    column_types_text: str


class Lease:
    """The right of one process to write the entries of a shard, for as long as the lease is renewed.

    Each transaction of the process renews the lease first, and fails if another process has taken the lease. At
    `valid_until` (monotonic) the process stops sending, unless a transaction has renewed the lease. `valid_until` is
    earlier than the end of the lease on the server's clock, because the process counts from the moment before its
    request to the server.
    """

    def __init__(self, lease_id: int, monotonic: Callable[[], float]) -> None:
        self.lease_id, self.valid_until = lease_id, -inf
        self._monotonic = monotonic

    @contextmanager
    def renew_in_transaction(self, connection: Connection) -> Iterator[None]:
        """Open a transaction, and renew the lease in it. Raises LedgerError if the lease is gone."""
        requested_at = self._monotonic()
        with connection.begin():
            if connection.execute(_RENEW_LEASE, {"id": self.lease_id, "lease": LEASE_S}).rowcount != 1:
                raise LedgerError(
                    f"another run has taken over, because this run did not reach the ledger for {LEASE_S:g} s. "
                    "Nothing more was sent, and the other run looks up the unanswered creates. Run again"
                )
            yield
        self.set_valid_until(requested_at)

    def set_valid_until(self, requested_at: float) -> None:
        """Set `valid_until` for a lease that was taken or renewed by a request to the server at `requested_at`
        (monotonic)."""
        self.valid_until = requested_at + LEASE_S - _LEASE_MARGIN_S

    def record_run(self, connection: Connection, run_key: int) -> None:
        """Record that this run has the lease. Call this method in the transaction that records the run."""
        connection.execute(_SET_RUN_OF_LEASE, {"id": self.lease_id, "run": run_key})


_SET_RUN_OF_LEASE = text("UPDATE lease SET run_key = :run WHERE lease_id = :id")
_RENEW_LEASE = text(
    "UPDATE lease SET expires_at = clock_timestamp() + make_interval(secs => :lease) WHERE lease_id = :id"
)


class Store:
    """A connection to a ledger. Use the connection from one thread at a time, inside `transaction`.

    `name` is the name of the ledger in messages, without a password. `lease` is the lease of this process on a ledger
    in PostgreSQL, or None.
    """

    def __init__(self, connection: Connection, name: str) -> None:
        self.connection = connection
        self.name = name
        self.lease: Lease | None = None

    @property
    def is_file(self) -> bool:
        """Whether the ledger is a file on this machine, and not on a server."""
        return self.connection.dialect.name == "sqlite"

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Run the body of `with` in one transaction. At its end, either all changes are on the disk, or none.

        Raises LedgerError if the database fails. After the connection is lost, every later call also fails, because the
        lock is lost with the connection.
        """
        if self.connection.invalidated:
            raise build_error(self.name, "the connection to the ledger was lost")
        with (
            translate_errors(self.name),  # `begin` may also fail in the database
            self.connection.begin() if self.lease is None else self.lease.renew_in_transaction(self.connection),
        ):
            yield self.connection

    def select(
        self, statement: BatchStatement, shared_values: Mapping[str, Any], rows: Rows
    ) -> Iterator[Sequence[Any]]:
        """Yield all rows of the database that the statement finds for the given `rows`."""
        for sql, values in _build_database_calls(self.connection, statement, shared_values, rows):
            yield from self.connection.exec_driver_sql(sql, values).all()

    def write(self, statement: BatchStatement, shared_values: Mapping[str, Any], rows: Rows) -> int:
        """Execute the statement for every row, and return the number of changed rows of the database."""
        return sum(
            self.connection.exec_driver_sql(sql, values).rowcount
            for sql, values in _build_database_calls(self.connection, statement, shared_values, rows)
        )

    def change(self, statement: BatchStatement, shared_values: Mapping[str, Any], rows: Rows) -> None:
        """Execute the statement for every row of `rows`. Raises StaleTransitionError, which rolls back the transaction,
        if the number of changed rows in the database is not the number of `rows`."""
        changed_count = self.write(statement, shared_values, rows)
        if changed_count != len(rows):
            raise StaleTransitionError(
                f"another program changed the ledger during this run: {len(rows) - changed_count} of {len(rows)} "
                "entries were not in the expected state. This change was not recorded. Run again, and report the error "
                "if it recurs"
            )


@contextmanager
def translate_errors(name: str) -> Iterator[None]:
    """Translate errors of the database into LedgerError. `name` is the name of the ledger, without a password."""
    try:
        yield
    except SQLAlchemyError as error:
        raise build_error(name, describe_error(error)) from None
    except (OverflowError, UnicodeEncodeError):  # errors of the driver, before the database gets the value
        raise build_error(name, "a number or a text does not fit into the database") from None


def build_error(name: str, reason: str) -> LedgerError:
    """Return the error for a ledger that cannot be read or written."""
    return LedgerError(
        f"the ledger {name} cannot be used: {reason}. Nothing more was sent. Check the file or the server, its disk "
        "and its permissions before you run again"
    )


def build_missing_ledger_error(name: str) -> MissingLedgerError:
    """Return the error for a ledger that does not exist."""
    return MissingLedgerError(
        f"there is no ledger at {name}, so nothing is recorded. Before the first import, no ledger exists. "
        "Otherwise check CONNECTOR_LEDGER and CONNECTOR_STATE_DIR. If the ledger is lost, restore a backup: connector "
        "ledger restore FILE"
    )


def make_storable(text: str) -> str:
    """Return the text. Characters that no database can store are replaced by escapes such as `\\x00` and `\\ud800`."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", r"\x00")


def make_storable_or_none(text: str | None) -> str | None:
    """Return the result of `make_storable`, or None if `text` is None."""
    return None if text is None else make_storable(text)


def wait_for_lock(
    name: str,
    try_lock: Callable[[], bool],
    read_holder: Callable[[], str],
    wait_s: float,
    is_stopped: Callable[[], bool],
) -> None:
    """Call `try_lock` until it succeeds. Raises LockedError with the holder after `wait_s` seconds, or when
    `is_stopped` returns True."""
    deadline = time.monotonic() + wait_s
    while not try_lock():
        if time.monotonic() >= deadline or is_stopped():
            raise LockedError(f"{name} is held by {read_holder()}: wait for that run, or use --wait")
        time.sleep(_POLL_S)


def describe_holder() -> str:
    """Return a description of this process, for processes that wait for its lock."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def describe_lock_time(locked_at: datetime) -> str:
    """Return a text with the time `locked_at` at which a lock was taken, for processes that wait for the lock. The time
    is from the clock of the process that holds the lock."""
    return f"since {locked_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _build_database_calls(
    connection: Connection, statement: BatchStatement, shared_values: Mapping[str, Any], rows: Rows
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Split the rows into calls, and yield the SQL and the values of each call."""
    is_sqlite = connection.dialect.name == "sqlite"
    max_rows = (
        _MAX_VALUES_PER_STATEMENT // len(statement.column_types_text.split()) if is_sqlite else _MAX_ROWS_PER_STATEMENT
    )
    first_index = 0
    while first_index < len(rows):
        row_count = min(max_rows, len(rows) - first_index)
        if is_sqlite:
            row_count = 1 << (row_count.bit_length() - 1)  # the largest power of two up to this number
        rows_of_call = rows[first_index : first_index + row_count]
        first_index += row_count
        row_values: Iterable[Any]
        if is_sqlite:
            sql, names_before_rows, names_after_rows = _render_values(statement, row_count)
            row_values = chain(*rows_of_call)
        else:
            sql, names_before_rows, names_after_rows = _render_arrays(statement)
            row_values = map(list, zip(*rows_of_call, strict=True))
        values_before_rows = [shared_values[name] for name in names_before_rows]
        yield sql, (*values_before_rows, *row_values, *(shared_values[name] for name in names_after_rows))


_RenderedSql = tuple[str, tuple[str, ...], tuple[str, ...]]
"""The SQL, the names of the shared values before the rows in the SQL, and the names of the shared values after the
rows."""


@lru_cache(maxsize=256)  # one cached text for each statement and each number of rows (a power of two)
def _render_values(statement: BatchStatement, row_count: int) -> _RenderedSql:
    """Return the statement for this number of rows, in the form of SQLite's driver."""
    row_placeholders_sql = f"({', '.join('?' for _ in statement.column_types_text.split())})"
    return _render_sql(statement, "?", f"(VALUES {', '.join([row_placeholders_sql] * row_count)}) AS item")


@cache
def _render_arrays(statement: BatchStatement) -> _RenderedSql:
    """Return the statement for any number of rows, in the form of psycopg. `%b` is the placeholder for a value in
    binary form, which the server does not have to parse."""
    type_names = statement.column_types_text.split()
    arrays_sql = ", ".join(f"CAST(%b AS {type_name}[])" for type_name in type_names)
    columns_sql = ", ".join(f"column{column_number}" for column_number, _ in enumerate(type_names, 1))
    return _render_sql(statement, "%s", f"unnest({arrays_sql}) AS item ({columns_sql})")


def _render_sql(statement: BatchStatement, placeholder: str, items_sql: str) -> _RenderedSql:
    sql_before_items, sql_after_items = statement.sql.split("{item}")
    sql = (
        _SHARED_VALUE_NAME_PATTERN.sub(placeholder, sql_before_items)
        + items_sql
        + _SHARED_VALUE_NAME_PATTERN.sub(placeholder, sql_after_items)
    )
    return (
        sql,
        tuple(_SHARED_VALUE_NAME_PATTERN.findall(sql_before_items)),
        tuple(_SHARED_VALUE_NAME_PATTERN.findall(sql_after_items)),
    )


def digest_campaign(name: str) -> bytes:
    """Return the digest (16 bytes) of a campaign's name. The digest identifies the lock of the campaign. Campaigns with
    the same name share a lock, even in different accounts."""
    return blake2b(name.encode(errors="surrogatepass"), digest_size=16, person=b"campaign").digest()
