"""Opens a ledger, wherever it is kept: to write it as the only process, or to read it beside the run that writes it.

A run sends nothing before lock, database and schema are in order.
"""

import logging
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from sqlalchemy import URL, Connection, case, create_engine, event, func, inspect, select, text
from sqlalchemy.pool import StaticPool

from connector.clock import Clock
from connector.control import Stop, call_in_thread
from connector.databases import parse_ledger_location, show_ledger_location
from connector.errors import ConfigurationError, ConnectorError, LedgerError
from connector.ledger import schema
from connector.ledger.emails import EmailLog
from connector.ledger.entries import NOT_FINAL, Ledger
from connector.ledger.postgres import compute_key, hold_campaigns, hold_lease, lease_metadata, open_session, read_server
from connector.ledger.records import read_found_limit, read_largest_lag
from connector.ledger.schema import create_or_check, create_tables, email_meta, emails_metadata, has_emails, meta
from connector.ledger.sqlite import find_emails, hold_campaign_file, open_emails_file, open_file, resolve_file
from connector.ledger.store import Store, build_missing, translated
from connector.pace.pace import Pace
from connector.settings import Settings
from connector.shards import WHOLE, Shard
from connector.states import State

_ALONE = text("SELECT pg_advisory_xact_lock(:key)")


@contextmanager
def open_ledger(
    url: str,
    *,
    shard: Shard = WHOLE,
    wait_s: float = 0.0,
    is_stopped: Callable[[], bool] = lambda: False,
    may_make: bool = True,
) -> Iterator[Ledger]:
    """Open the ledger at a SQLAlchemy URL (SQLite or PostgreSQL) for as long as the context lasts, as the only process
    that writes entries of the shard.

    A ledger that is missing is made if `may_make`. Its connection may be used from one thread at a time. Raises
    LockedError when another run holds it for longer than `wait_s` seconds (or until `is_stopped`), LedgerError when it
    cannot be used, or is not there and may not be made, ConfigurationError when the URL is invalid or its driver is
    missing.
    """
    place = parse_ledger_location(url)
    name = show_ledger_location(place)
    if isinstance(place, URL):
        with open_session(place) as (connection, schema):
            store, key = Store(connection, name), compute_key(schema)
            with store.transaction():  # one process makes the tables
                connection.execute(_ALONE, {"key": key})
                if not create_or_check(connection, name, may_make=may_make):
                    raise build_missing(name)
                lease_metadata.create_all(connection)
            with hold_lease(store, f"the ledger {name} (schema {schema})", key, shard, wait_s, is_stopped):
                yield Ledger(store, shard)
        return
    if not shard.is_whole:
        raise ConfigurationError(
            f"shard {shard}: the ledger {name} is a SQLite file, which only one process can write. Keep the ledger in "
            "PostgreSQL: set CONNECTOR_LEDGER=postgresql://… for every shard"
        )
    if not may_make and not place.exists():
        raise build_missing(name)
    with open_file(place, wait_s, is_stopped) as connection:
        yield wrap_connection(connection, name, may_make=may_make)


def wrap_connection(connection: Connection, name: str, *, may_make: bool = True) -> Ledger:
    """Return a ledger over a connection of the caller's own, say to `sqlite://` in memory: it takes no lock.

    The connection must be in no transaction, and alone. Tables are made where there are none, if it `may_make` them.
    Raises LedgerError, and leaves all as it was, when it cannot be used.
    """
    store = Store(connection, name)
    with store.transaction():
        if not create_or_check(connection, name, may_make=may_make):
            raise build_missing(name)
    return Ledger(store)


# The emails, which no lock keeps several processes from having open

_EMAIL_TABLES = (email_meta.name, meta.name)  # where the emails are, else where the ledger is that they belong to
_MAKING = compute_key("", b"connector emails")  # the whole database's, for a moment


@contextmanager
def open_emails(url: str, *, may_make: bool = True) -> Iterator[EmailLog]:
    """Open the emails of the ledger at a SQLAlchemy URL (SQLite or PostgreSQL); where there are none, they are made if
    it `may_make` them.

    Its connection may be used from one thread at a time. Raises LedgerError when it cannot be used, or may not be made
    and is not there or knows no campaign, ConfigurationError when the URL is invalid or its driver is missing.
    """
    with _open_emails(url, may_make=may_make) as log:
        if log is None:
            raise build_missing(show_ledger_location(parse_ledger_location(url)))
        if not may_make:
            with log.transaction():
                is_history_missing = not log.has_campaign_history()
            if is_history_missing:  # a single email makes a ledger, too
                raise build_missing(f"{log.name} that has ever recorded a campaign")
        yield log


@contextmanager
def open_existing_emails(url: str) -> Iterator[EmailLog | None]:
    """Yield the emails' ledger for reading only; None if it does not exist, and none is made."""
    with _open_emails(url, may_make=False) as log:
        yield log


@contextmanager
def _open_emails(url: str, *, may_make: bool) -> Iterator[EmailLog | None]:
    place = parse_ledger_location(url)
    with ExitStack() as stack:
        if isinstance(place, Path):
            file = resolve_file(find_emails(resolve_file(place, may_make=may_make)), may_make=may_make)
            if not may_make and not file.exists():
                yield None
                return
            connection = stack.enter_context(open_emails_file(file))
            log = EmailLog(Store(connection, str(file)), partial(hold_campaign_file, connection, file))
        else:
            name = show_ledger_location(place)
            connection, schema = stack.enter_context(open_session(place, _EMAIL_TABLES))
            log = EmailLog(Store(connection, name), hold_campaigns(connection, schema, name))
        with log.transaction():  # a second process finds what the first has made
            if may_make and not log.store.is_file:
                connection.execute(_ALONE, {"key": _MAKING})  # in SQLite the transaction itself keeps others out
            is_there = has_emails(connection, log.name)
            if may_make and not is_there:
                create_tables(connection, log.name, emails_metadata, email_meta)
        yield log if is_there or may_make else None


logger = logging.getLogger(__name__)

T = TypeVar("T")

_TRIES = 5  # reads of a file that changes meanwhile
BUSY_S = 10.0  # a writer that opens or closes the ledger keeps others out for as long as a checkpoint takes


async def start_pace(
    settings: Settings, max_rate: float, clock: Clock, stop: Stop, *, max_concurrency: int = 1
) -> Pace:
    """Return a pace that begins at the limit that the account's last load found.

    `max_rate` (requests/s) and `max_concurrency` (requests in flight) are ceilings. The found limit is only a first
    guess, so a ledger that cannot be read is logged and does not fail the run.
    """

    def read() -> Pace:
        found = None
        try:
            found = read_ledger(
                settings.ledger_url, lambda ledger: read_found_limit(ledger.connection, settings.account)
            )
        except ConnectorError as error:
            logger.debug("the ledger gives no first guess of the limit: %s", error)
        if found is None:
            return Pace(max_rate, max_concurrency)
        limit, found_at = found
        return Pace(max_rate, max_concurrency, limit, clock.now().timestamp() - found_at)

    return await call_in_thread(read, stop)


@dataclass(frozen=True, slots=True)
class OpenEntries:
    """The number of entries of an account in a state other than CONFIRMED, that the run `run_id` sent last (None: no
    run is known). An entry whose refusal is not final counts as UNKNOWN, because the next run makes it so."""

    account: str
    run_id: str | None
    job: str | None
    state: State
    number: int


def count_open_entries(url: str, *, may_be_new: bool = True) -> list[OpenEntries]:
    """Count the entries that are not CONFIRMED, without a lock, also while a run goes on and after one was killed.

    A ledger that is not there has none. Raises LedgerError when it cannot be read, or is not there and
    not `may_be_new`, ConfigurationError when the URL is invalid or its driver is missing.
    """

    def read(ledger: Ledger) -> list[OpenEntries]:
        rows = ledger.connection.execute(_OPEN)
        return [OpenEntries(account, run_id, job, State(state), number) for account, run_id, job, state, number in rows]

    open_entries = read_ledger(url, read)
    if open_entries is None and not may_be_new:
        raise build_missing(show_ledger_location(parse_ledger_location(url)))
    return open_entries or []


_IS_NOT_FINAL = schema.entry.c.status.in_(sorted(NOT_FINAL)) & schema.entry.c.body.is_not(None)
_OPEN_STATE = case((_IS_NOT_FINAL, State.UNKNOWN.value), else_=schema.entry.c.state).label("open_state")
_OPEN = (
    select(schema.base.c.account, schema.run.c.run_id, schema.run.c.job, _OPEN_STATE, func.count())
    .join_from(schema.entry, schema.base)
    .join(schema.run, isouter=True)
    .where(text(schema.UNFINISHED))
    .group_by(schema.base.c.account, schema.run.c.run_id, schema.run.c.job, _OPEN_STATE)
    .order_by(schema.base.c.account, schema.run.c.run_id, _OPEN_STATE)
)


def check_ledger_rights(url: str) -> None:
    """Raise LedgerError if this user may not write the ledger's file, or make files beside it; nothing is written.

    Of a server nothing is checked.
    """
    place = parse_ledger_location(url)
    if isinstance(place, URL):
        return
    ledger = place.resolve()
    folder = next(folder for folder in ledger.parents if folder.exists())
    for path, rights in ((folder, os.R_OK | os.W_OK | os.X_OK), (ledger, os.R_OK | os.W_OK)):
        if path.exists() and not os.access(path, rights):
            raise LedgerError(f"the ledger {ledger}: {path} cannot be written by this user: allow it")


def read_lag(url: str, account: str) -> float:
    """Return the largest lag of the account's list on record, in seconds, without a lock; 0 if none is on record.

    Raises LedgerError when the ledger cannot be read, ConfigurationError when the URL is invalid.
    """
    return read_ledger(url, lambda ledger: read_largest_lag(ledger.connection, account)) or 0.0


def read_ledger(url: str, read: Callable[[Ledger], T]) -> T | None:
    """Return the result of `read` on the ledger at `url`, or None if there is no ledger. No lock is taken, nothing is
    written, and a run may write the ledger meanwhile.

    A file that no process has open is read as one that nobody changes, because SQLite would create files beside the
    ledger otherwise. If a process opens the file meanwhile, `read` is called again. Raises LedgerError when the ledger
    cannot be read, ConfigurationError when the ledger is of another version, the URL is invalid or its driver is
    missing.
    """
    place = parse_ledger_location(url)
    if isinstance(place, URL):
        with read_server(place) as server:
            return _read_whole(server, show_ledger_location(place), read)
    for _ in range(_TRIES):
        if not place.exists():
            return None
        before = _describe_file(place)
        try:
            how = "mode=ro" if before is None else "mode=ro&immutable=1"
            with (
                translated(str(place)),
                closing(sqlite3.connect(f"{place.resolve().as_uri()}?{how}", uri=True, timeout=BUSY_S)) as opened,
                closing(connect_file(opened)) as connection,
            ):
                result = _read_whole(connection, str(place), read)
        except sqlite3.Error as error:
            raise LedgerError(f"the ledger {place} cannot be read: {error}") from None
        except LedgerError:
            if before == _describe_file(place):
                raise
        else:
            if before in (None, _describe_file(place)):
                return result
    raise LedgerError(f"the ledger {place} changes each time that it is read: run again")


def _describe_file(path: Path) -> tuple[int, int, int] | None:
    """Return what shows a change of the file, or None if a process has the file open, or had it open when it was
    killed."""
    resolved = path.resolve()
    if any(resolved.with_name(resolved.name + suffix).exists() for suffix in ("-wal", "-shm")):
        return None
    found = resolved.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _read_whole(connection: Connection, name: str, read: Callable[[Ledger], T]) -> T | None:
    if not inspect(connection).has_table("meta"):  # a run makes it at this moment, or was killed doing so
        return None
    schema.check_version(connection, name)
    return read(Ledger(Store(connection, name)))


def connect_file(opened: sqlite3.Connection) -> Connection:
    """Return SQLAlchemy's connection over an open file, with ordinary read transactions."""
    engine = create_engine("sqlite://", creator=lambda: opened, poolclass=StaticPool, hide_parameters=True)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    return engine.connect()
