"""Parts that the ledgers of entries and of emails share: a connection with transactions, bases, locks of campaigns, and
compare-and-set over many rows.

A `Batch` is a statement over many rows, in as few calls as the database allows. Only there do the databases differ.
SQLite gets single values. Measured for 64 intents and 64 answers a commit: one call for all rows costs two thirds of a
call for each row. The number of rows is a power of two, so that few different statements are compiled (2 µs a row).
PostgreSQL gets each column as one array: 1 µs a row in this process and 2.5 µs in the server, instead of 10 and 6 µs
with single values (measured for look-ups among a million entries).
"""

import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from connector.errors import LedgerError, LockedError

_MOST_VALUES = 1800  # values of a statement in SQLite, which allows 32,766; longer statements are not faster
_MOST_ROWS = 512
"""Rows of a statement in PostgreSQL, a power of two. For far more rows PostgreSQL would read the whole table."""
_SHARED = re.compile(r":(\w+)")

_POLL_S = 0.2  # seconds between two tries to get a lock

LEASE_S = 30.0
"""Seconds for which a lease lasts after the last transaction of its run: a commit may take seconds."""

_LEASE_MARGIN_S = 5.0  # seconds between the last check of the clock and the first byte of a request

Rows = Sequence[tuple[Any, ...]]


Hold = Callable[[str, float, Callable[[], bool]], AbstractContextManager[None]]
"""Locks the campaigns of a name. Waits for the lock for this many seconds, or until the function returns True."""


@dataclass(frozen=True, slots=True)
class Base:
    """A base of an account: `key` is the number of the base in this ledger, and `service_id` its Id in the service
    (None: not known yet).

    `answered_id` and `answered_name` are those of another base, as which a create was answered (architecture 4.9)."""

    key: int
    account: str
    service_id: int | None
    name: str | None
    answered_id: int | None = None
    answered_name: str | None = None

    @property
    def is_misanswered(self) -> bool:
        """Whether a create in this base was answered as one in another base."""
        return self.answered_id is not None or self.answered_name is not None

    @property
    def is_known_whole(self) -> bool:
        """Whether Id and name are known. Then no other line of the ledger can be the same base."""
        return self.service_id is not None and self.name is not None


class StaleMoveError(LedgerError):
    """An entry was not in the state that a move leaves: another process wrote, or the code is wrong."""


@dataclass(frozen=True, slots=True)
class Batch:
    """SQL over rows, in both dialects: `{item}` stands for the rows, with the columns column1, column2… of these
    `types` (PostgreSQL's names, separated by blanks). `:name` is a value that all rows share."""

    sql: str
    types: str


class Lease:
    """The right of one process to write the entries of a shard, for as long as the lease is renewed.

    Each transaction of the process renews the lease first, and fails if another process has taken the lease. At `until`
    (monotonic) the process stops sending, unless a transaction has renewed the lease. `until` is earlier than the end
    on the server's clock, because `until` counts from the moment before the server was asked.
    """

    def __init__(self, lease_id: int, monotonic: Callable[[], float]) -> None:
        self.lease_id, self.until = lease_id, -inf
        self._monotonic = monotonic

    @contextmanager
    def renewed(self, connection: Connection) -> Iterator[None]:
        """Open a transaction, and renew the lease in it. Raises LedgerError if the lease is gone."""
        asked_at = self._monotonic()
        with connection.begin():
            if connection.execute(_RENEW, {"id": self.lease_id, "lease": LEASE_S}).rowcount != 1:
                raise LedgerError(
                    f"another run has taken over, since this run had not reached the ledger for {LEASE_S:g} s. Nothing "
                    "more was sent, and the other run looks up what was being sent. Run again"
                )
            yield
        self.extend(asked_at)

    def extend(self, asked_at: float) -> None:
        """Set `until` for a lease that was taken or renewed by a request to the server at `asked_at` (monotonic)."""
        self.until = asked_at + LEASE_S - _LEASE_MARGIN_S


_RENEW = text("UPDATE lease SET expires_at = clock_timestamp() + make_interval(secs => :lease) WHERE lease_id = :id")


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
        """Run the body in one transaction: at its end all changes are on the disk, or none.

        Raises LedgerError if the database fails. Once the connection is lost, every later call fails as well, because
        the lock went with the connection.
        """
        if self.connection.invalidated:
            raise build_error(self.name, "the connection to it was lost")
        with translated(self.name), self._begin():  # `begin` itself asks the database
            yield self.connection

    def _begin(self) -> AbstractContextManager[object]:
        return self.connection.begin() if self.lease is None else self.lease.renewed(self.connection)

    def select(self, batch: Batch, shared: Mapping[str, Any], rows: Rows) -> Iterator[Sequence[Any]]:
        """Yield all lines that the statement finds for these rows."""
        for sql, values in _split(self.connection, batch, shared, rows):
            yield from self.connection.exec_driver_sql(sql, values).all()

    def write(self, batch: Batch, shared: Mapping[str, Any], rows: Rows) -> int:
        """Execute the statement for every row, and return the number of changed lines."""
        return sum(
            self.connection.exec_driver_sql(sql, values).rowcount
            for sql, values in _split(self.connection, batch, shared, rows)
        )

    def change(self, batch: Batch, shared: Mapping[str, Any], rows: Rows) -> None:
        """Execute the statement for every row, each of which must change one line. Otherwise raise StaleMoveError,
        which rolls back the transaction."""
        refuse_stale(self.write(batch, shared, rows), len(rows))


def refuse_stale(changed: int, number: int) -> None:
    """Raise StaleMoveError if the number of changed lines is not the expected number."""
    if changed != number:
        raise StaleMoveError(
            f"the ledger has changed under this run: {number - changed} of {number} entries were not in the state they "
            "were left in. Nothing of this step was recorded; run again, and report it if it recurs"
        )


@contextmanager
def translated(name: str) -> Iterator[None]:
    """Translate errors of the database into LedgerError; `name` is the name of the ledger, without a password."""
    try:
        yield
    except SQLAlchemyError as error:
        raise build_error(name, describe_error(error)) from None
    except (OverflowError, UnicodeEncodeError):  # errors of the driver, before the database gets the value
        raise build_error(name, "a number or a text does not fit into the database") from None


def build_error(name: str, reason: str) -> LedgerError:
    """Return the error for a ledger that cannot be read or written."""
    return LedgerError(
        f"the ledger {name} cannot be used: {reason}. Nothing more was sent; "
        "look at the file or the server, its disk and its permissions before you run again"
    )


def build_missing(name: str) -> LedgerError:
    """Return the error for a ledger that does not exist."""
    return LedgerError(
        f"there is no ledger at {name}: see CONNECTOR_LEDGER and CONNECTOR_STATE_DIR, or restore a "
        "backup by: connector ledger restore FILE"
    )


def make_storable(text: str) -> str:
    """Return the text; characters that no database can store are written as `\\x00` and `\\ud800`."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", r"\x00")


def make_storable_or_none(text: str | None) -> str | None:
    """Return the same for a text that may be None."""
    return None if text is None else make_storable(text)


def wait_for_lock(
    name: str,
    try_lock: Callable[[], bool],
    read_holder: Callable[[], str],
    wait_s: float,
    is_stopped: Callable[[], bool],
) -> None:
    """Call `try_lock` until it succeeds, for `wait_s` seconds or until `is_stopped`. Raises LockedError with the
    holder."""
    deadline = time.monotonic() + wait_s
    while not try_lock():
        if time.monotonic() >= deadline or is_stopped():
            raise LockedError(f"{name} is held by {read_holder()}: wait for that run, or use --wait")
        time.sleep(_POLL_S)


def describe_holder() -> str:
    """Return a description of this process, for processes that wait for its lock."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def describe_since(at: datetime) -> str:
    """Return the time since when a lock is held, for processes that wait for the lock, by the clock of its holder."""
    return f"since {at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _split(
    connection: Connection, batch: Batch, shared: Mapping[str, Any], rows: Rows
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the SQL and the values of each call."""
    is_file, width = connection.dialect.name == "sqlite", len(batch.types.split())
    most = _floor_to_power(_MOST_VALUES // width) if is_file else _MOST_ROWS
    start = 0
    while start < len(rows):
        part = rows[start : start + min(most, _floor_to_power(len(rows) - start) if is_file else most)]
        start += len(part)
        sql, before, after = _render_values(batch, len(part)) if is_file else _render_arrays(batch)
        items = chain(*part) if is_file else map(list, zip(*part, strict=True))
        yield sql, (*(shared[name] for name in before), *items, *(shared[name] for name in after))


def _floor_to_power(number: int) -> int:
    """Return the largest power of two that is not larger than the number."""
    return 1 << (number.bit_length() - 1)


_Rendered = tuple[str, tuple[str, ...], tuple[str, ...]]
"""The SQL, and the names of the shared values before and after those of the rows."""


@lru_cache(maxsize=256)  # each statement for each power of two
def _render_values(batch: Batch, number: int) -> _Rendered:
    """Return the statement for this number of rows, in the form of SQLite's driver."""
    row = f"({', '.join('?' for _ in batch.types.split())})"
    return _render(batch, "?", f"(VALUES {', '.join([row] * number)}) AS item")


@cache
def _render_arrays(batch: Batch) -> _Rendered:
    """Return the statement for any number of rows, in the form of psycopg. %b is a value in binary form, which the
    server does not have to parse."""
    types = batch.types.split()
    arrays = ", ".join(f"CAST(%b AS {type_name}[])" for type_name in types)
    columns = ", ".join(f"column{number}" for number, _ in enumerate(types, 1))
    return _render(batch, "%s", f"unnest({arrays}) AS item ({columns})")


def _render(batch: Batch, mark: str, items: str) -> _Rendered:
    before, after = batch.sql.split("{item}")
    sql = _SHARED.sub(mark, before) + items + _SHARED.sub(mark, after)
    return sql, tuple(_SHARED.findall(before)), tuple(_SHARED.findall(after))


def digest_campaign(name: str) -> bytes:
    """Return the digest of a campaign's name that its lock uses in every account: 16 bytes."""
    return blake2b(name.encode(errors="surrogatepass"), digest_size=16, person=b"campaign").digest()
