"""What both sets of a ledger's statements (entries, emails) share: a connection, its transactions, a base, locks of
campaigns, and compare-and-set over many rows.

A `Batch` speaks of many rows at once, in as few calls as the databases allow; that is the one place where they differ.
SQLite gets each value by itself. Measured for 64 intents and 64 answers a commit: one call for all rows costs it two
thirds of a call for each. Rows go in powers of two, so that the same few statements come again: to compile a new one
takes 2 µs a row. PostgreSQL gets each column as one array: 1 µs a row here and 2.5 there, where single values cost 10
and 6, measured for look-ups among a million entries.
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

_MOST_VALUES = 1800  # of a statement in SQLite, far below what it allows (32,766); longer ones are no faster
_MOST_ROWS = 512  # of a statement in PostgreSQL, a power of two; of far more it would read the whole table
_SHARED = re.compile(r":(\w+)")

_POLL_S = 0.2  # between two tries for a lock

LEASE_S = 30.0
"""Seconds for which a lease lasts after the last transaction of its run: a commit may take seconds."""

_LEASE_MARGIN_S = 5.0  # seconds between the last check of the clock and the first byte of a request

Rows = Sequence[tuple[Any, ...]]


Hold = Callable[[str, float, Callable[[], bool]], AbstractContextManager[None]]
"""Holds the campaigns of a name, waiting for them so many seconds or until it is to stop."""


@dataclass(frozen=True, slots=True)
class Base:
    """A base of an account: `key` is the ledger's own, `service_id` the service's, None until it is known.

    `answered_id` and `answered_name` are those of another base, as which a create was answered (architecture 4.9)."""

    key: int
    account: str
    service_id: int | None
    name: str | None
    answered_id: int | None = None
    answered_name: str | None = None

    @property
    def is_misanswered(self) -> bool:
        """Whether a create in it was answered as one in another base."""
        return self.answered_id is not None or self.answered_name is not None

    @property
    def is_known_whole(self) -> bool:
        """Whether Id and name are known: then no other line can turn out to be this base."""
        return self.service_id is not None and self.name is not None


class StaleMoveError(LedgerError):
    """An entry was not in the state that a move leaves: another process wrote, or the code is wrong."""


@dataclass(frozen=True, slots=True)
class Batch:
    """SQL over rows, in both dialects: `{item}` stands for the rows, whose columns are column1, column2… and have these
    `types` (PostgreSQL's names, with a blank between); `:name` is a value that all of them share."""

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
    """A connection to a ledger; use it from one thread at a time, inside `transaction`.

    `name` is the name of the ledger in messages, without a password. `lease` is the lease of this process on a ledger
    in PostgreSQL, or None.
    """

    def __init__(self, connection: Connection, name: str) -> None:
        self.connection = connection
        self.name = name
        self.lease: Lease | None = None

    @property
    def is_file(self) -> bool:
        """Whether it is a file on this machine, not at a server."""
        return self.connection.dialect.name == "sqlite"

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """One durable unit: all that is done inside is on the disk when it ends, or none of it.

        Raises LedgerError when the database fails, and from then on if the connection is lost: there is no second one,
        since the lock went with the first.
        """
        if self.connection.invalidated:
            raise build_error(self.name, "the connection to it was lost")
        with translated(self.name), self._begin():  # `begin` itself asks the database
            yield self.connection

    def _begin(self) -> AbstractContextManager[object]:
        return self.connection.begin() if self.lease is None else self.lease.renewed(self.connection)

    def select(self, batch: Batch, shared: Mapping[str, Any], rows: Rows) -> Iterator[Sequence[Any]]:
        """Yield all that the statement finds for these rows."""
        for sql, values in _split(self.connection, batch, shared, rows):
            yield from self.connection.exec_driver_sql(sql, values).all()

    def write(self, batch: Batch, shared: Mapping[str, Any], rows: Rows) -> int:
        """Carry the statement out for every row; returns how many lines were changed."""
        return sum(
            self.connection.exec_driver_sql(sql, values).rowcount
            for sql, values in _split(self.connection, batch, shared, rows)
        )

    def change(self, batch: Batch, shared: Mapping[str, Any], rows: Rows) -> None:
        """Carry the statement out for every row, each of which must change one line: any other number raises
        StaleMoveError, and undoes all."""
        refuse_stale(self.write(batch, shared, rows), len(rows))


def refuse_stale(changed: int, number: int) -> None:
    """Raise StaleMoveError unless as many lines were changed as were to be."""
    if changed != number:
        raise StaleMoveError(
            f"the ledger has changed under this run: {number - changed} of {number} entries were not in the state they "
            "were left in. Nothing of this step was recorded; run again, and report it if it recurs"
        )


@contextmanager
def translated(name: str) -> Iterator[None]:
    """Raise LedgerError in place of what the database raised; `name` says which ledger, without a password."""
    try:
        yield
    except SQLAlchemyError as error:
        raise build_error(name, describe_error(error)) from None
    except (OverflowError, UnicodeEncodeError):  # the driver's own, before the database sees the value
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


def keep_text(text: str) -> str:
    """Return the text with what cannot be kept written out, as `\\x00` and `\\ud800`; every other text as it is."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", r"\x00")


def keep_optional(text: str | None) -> str | None:
    """Return the same; None stays None."""
    return None if text is None else keep_text(text)


def wait_for_lock(
    name: str,
    try_lock: Callable[[], bool],
    read_holder: Callable[[], str],
    wait_s: float,
    is_stopped: Callable[[], bool],
) -> None:
    """Try until `try_lock` succeeds, for `wait_s` seconds or until `is_stopped`. Raises LockedError with the holder."""
    deadline = time.monotonic() + wait_s
    while not try_lock():
        if time.monotonic() >= deadline or is_stopped():
            raise LockedError(f"{name} is held by {read_holder()}: wait for that run, or use --wait")
        time.sleep(_POLL_S)


def describe_holder() -> str:
    """Return a description of this process, for processes that wait for its lock."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def describe_since(at: datetime) -> str:
    """Return since when a lock is held, for the same processes; by the clock of the machine that holds it."""
    return f"since {at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _split(
    connection: Connection, batch: Batch, shared: Mapping[str, Any], rows: Rows
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """SQL and values of each call."""
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
    """The largest power of two that is no larger."""
    return 1 << (number.bit_length() - 1)


_Rendered = tuple[str, tuple[str, ...], tuple[str, ...]]
"""The SQL, and the names of the shared values before and after those of the rows."""


@lru_cache(maxsize=256)  # each statement for each power of two
def _render_values(batch: Batch, number: int) -> _Rendered:
    """For so many rows, as SQLite's driver takes them."""
    row = f"({', '.join('?' for _ in batch.types.split())})"
    return _render(batch, "?", f"(VALUES {', '.join([row] * number)}) AS item")


@cache
def _render_arrays(batch: Batch) -> _Rendered:
    """For any number of rows, as psycopg takes them: %b is a value in binary form, which spares the server parsing."""
    types = batch.types.split()
    arrays = ", ".join(f"CAST(%b AS {type_name}[])" for type_name in types)
    columns = ", ".join(f"column{number}" for number, _ in enumerate(types, 1))
    return _render(batch, "%s", f"unnest({arrays}) AS item ({columns})")


def _render(batch: Batch, mark: str, items: str) -> _Rendered:
    before, after = batch.sql.split("{item}")
    sql = _SHARED.sub(mark, before) + items + _SHARED.sub(mark, after)
    return sql, tuple(_SHARED.findall(before)), tuple(_SHARED.findall(after))


def digest_campaign(name: str) -> bytes:
    """Return what the lock of a campaign's name is known by, of whichever account: 16 bytes."""
    return blake2b(name.encode(errors="surrogatepass"), digest_size=16, person=b"campaign").digest()
