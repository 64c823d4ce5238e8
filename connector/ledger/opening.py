"""Opens a ledger in SQLite or PostgreSQL. Only one process at a time can write a ledger in SQLite, or one shard of a
ledger in PostgreSQL. Other processes can read the ledger meanwhile.

A run sends nothing before it has the lock, and has checked the database and the schema.
"""

import logging
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from sqlalchemy import URL, Connection, case, create_engine, event, func, select, text
from sqlalchemy.pool import StaticPool

from connector.clock import Clock
from connector.control import Stop, call_in_thread
from connector.databases import format_ledger_location, parse_ledger_location
from connector.errors import ConfigurationError, ConnectorError, LedgerError
from connector.ledger import schema
from connector.ledger.emails import EmailLog
from connector.ledger.entries import NOT_FINAL_STATUSES, Ledger
from connector.ledger.postgres import (
    LOCK_TRANSACTION,
    build_campaign_lock,
    compute_key,
    connect_for_reading,
    has_overlapping_lease,
    hold_lease,
    lease_metadata,
    open_session,
    wait_for_lease,
)
from connector.ledger.records import read_largest_lag, read_last_rate_limit
from connector.ledger.schema import (
    create_or_check_tables,
    create_tables,
    email_meta,
    emails_metadata,
    has_email_tables,
    is_upgrade_due,
    meta,
)
from connector.ledger.sqlite import (
    find_emails_file,
    hold_campaign_file,
    open_emails_file,
    open_file,
    refuse_foreign_file,
    resolve_file,
)
from connector.ledger.store import Store, build_missing_ledger_error, translate_errors
from connector.pace.pace import Pace
from connector.settings import Settings
from connector.shards import SINGLE_SHARD, Shard
from connector.states import State


@contextmanager
def open_ledger(
    url: str,
    *,
    shard: Shard = SINGLE_SHARD,
    wait_s: float = 0.0,
    is_stopped: Callable[[], bool] = lambda: False,
    may_create: bool = True,
) -> Iterator[Ledger]:
    """Open the ledger at a SQLAlchemy URL (SQLite or PostgreSQL). Until the context ends, only this process can write
    entries of the shard.

    A missing ledger is created if `may_create`. Only one thread at a time may use the ledger. Raises LockedError if
    another run holds the ledger for longer than `wait_s` seconds (or until `is_stopped` returns True). Raises
    LedgerError if the ledger cannot be used, or is missing and may not be created. Raises ConfigurationError if the URL
    is invalid or its driver is missing.
    """
    location = parse_ledger_location(url)
    ledger_name = format_ledger_location(location)
    if isinstance(location, URL):
        with open_session(location) as (connection, schema):
            store, key = Store(connection, ledger_name), compute_key(schema)
            lock_name = f"the ledger {ledger_name} (schema {schema})"

            def try_prepare() -> bool:
                with store.transaction():  # only one process creates or upgrades the tables
                    connection.execute(LOCK_TRANSACTION, {"key": key})
                    lease_metadata.create_all(connection)
                    # The upgrade waits for other runs, because a run of an older version cannot read the new ledger.
                    if is_upgrade_due(connection) and has_overlapping_lease(connection, SINGLE_SHARD):
                        return False
                    if not create_or_check_tables(connection, ledger_name, may_create=may_create):
                        raise build_missing_ledger_error(ledger_name)
                return True

            upgrade_name = f"{lock_name}, which this version must upgrade first,"
            wait_for_lease(store, upgrade_name, SINGLE_SHARD, try_prepare, wait_s, is_stopped)
            with hold_lease(store, lock_name, key, shard, wait_s, is_stopped):
                yield Ledger(store, shard)
        return
    if not shard.is_whole:
        raise ConfigurationError(
            f"shard {shard}: the ledger {ledger_name} is a SQLite file, which only one process can write. Keep the "
            "ledger in PostgreSQL: set CONNECTOR_LEDGER=postgresql://… for every shard"
        )
    if not may_create and not location.exists():
        raise build_missing_ledger_error(ledger_name)
    with open_file(location, wait_s, is_stopped) as connection:
        yield wrap_connection(connection, ledger_name, may_create=may_create)


def wrap_connection(connection: Connection, name: str, *, may_create: bool = True) -> Ledger:
    """Return a ledger over the caller's connection, for example to a database in memory (`sqlite://`). The ledger
    takes no lock.

    The connection must be in no transaction, and must be the only connection to the database. Missing tables are
    created if `may_create`. Raises LedgerError, and changes nothing, if the database cannot be used.
    """
    store = Store(connection, name)
    with store.transaction():
        if not create_or_check_tables(connection, name, may_create=may_create):
            raise build_missing_ledger_error(name)
    return Ledger(store)


# The email log. Several processes can open the log at the same time, and each run locks only its campaign

# The email log is in the schema of the first of these tables that exists.
_EMAIL_MARKER_TABLES = (email_meta.name, meta.name)
# The number of the advisory lock that a process holds while the process creates the tables of emails.
_CREATION_LOCK_KEY = compute_key("", b"connector emails")


@contextmanager
def open_email_log(url: str, *, may_create: bool = True) -> Iterator[EmailLog]:
    """Open the email log of the ledger at a SQLAlchemy URL (SQLite or PostgreSQL). Create a missing log if
    `may_create`.

    Only one thread at a time may use the log. Raises LedgerError if the log cannot be used. Without `may_create`,
    also raises LedgerError if the log is missing or has never recorded a campaign. Raises ConfigurationError if the URL
    is invalid or its driver is missing.
    """
    with _open_email_log(url, may_create=may_create) as email_log:
        if email_log is None:
            raise build_missing_ledger_error(format_ledger_location(parse_ledger_location(url)))
        if not may_create:
            with email_log.transaction():
                is_history_missing = not email_log.has_campaign_history()
            if is_history_missing:  # `connector send` of version 0.2.0 created the log without a campaign
                raise build_missing_ledger_error(f"{email_log.name} with a recorded campaign")
        yield email_log


def open_existing_email_log(url: str) -> AbstractContextManager[EmailLog | None]:
    """Return a context with the email log for reading only, or with None if no email log exists."""
    return _open_email_log(url, may_create=False)


@contextmanager
def _open_email_log(url: str, *, may_create: bool) -> Iterator[EmailLog | None]:
    location = parse_ledger_location(url)
    with ExitStack() as stack:
        if isinstance(location, Path):
            ledger_path = resolve_file(location, may_create=may_create)
            emails_path = resolve_file(find_emails_file(ledger_path), may_create=may_create)
            if not may_create and not emails_path.exists():
                yield None
                return
            connection = stack.enter_context(open_emails_file(emails_path))
            hold_campaign = partial(hold_campaign_file, connection, emails_path)
            email_log = EmailLog(Store(connection, str(emails_path)), hold_campaign)
        else:
            ledger_name = format_ledger_location(location)
            connection, schema = stack.enter_context(open_session(location, _EMAIL_MARKER_TABLES))
            email_log = EmailLog(Store(connection, ledger_name), build_campaign_lock(connection, schema, ledger_name))
        with email_log.transaction():  # only one process at a time may look for the tables and create them
            if may_create and not email_log.store.is_file:
                # Only PostgreSQL needs this lock. In SQLite, the transaction blocks other processes.
                connection.execute(LOCK_TRANSACTION, {"key": _CREATION_LOCK_KEY})
            has_tables = has_email_tables(connection, email_log.name)
            if may_create and not has_tables:
                create_tables(connection, email_log.name, emails_metadata, email_meta)
        yield email_log if has_tables or may_create else None


logger = logging.getLogger(__name__)

T = TypeVar("T")

_MAX_READ_ATTEMPTS = 5  # maximum number of attempts to read a file that changes during the reading
READ_BUSY_TIMEOUT_S = 10.0  # a writer that opens or closes the ledger blocks other connections during a checkpoint


async def start_pace(
    settings: Settings, max_rate: float, clock: Clock, stop: Stop, *, max_concurrency: int = 1
) -> Pace:
    """Return a pace that begins at the rate limit that the account's last load has found.

    `max_rate` (requests/s) and `max_concurrency` (requests in flight) are upper limits. If the ledger cannot be read,
    the run does not fail: the reason is logged, and the run searches for the rate limit again.
    """

    def build_pace() -> Pace:
        found_limit = None
        try:
            found_limit = read_ledger(
                settings.ledger_url, lambda ledger: read_last_rate_limit(ledger.connection, settings.account)
            )
        except ConnectorError as error:
            logger.debug(
                "the rate limit of the last load cannot be read from the ledger, so this run searches for the limit "
                "again: %s",
                error,
            )
        if found_limit is None:
            return Pace(max_rate, max_concurrency)
        limit, limit_measured_at = found_limit
        return Pace(max_rate, max_concurrency, limit, clock.now().timestamp() - limit_measured_at)

    return await call_in_thread(build_pace, stop)


@dataclass(frozen=True, slots=True)
class OpenEntryCount:
    """The number of an account's entries with the same state and the same last run. `state` is never CONFIRMED or
    DROPPED. `run_id` is the run that sent the entries last, or None if this run is not known. An entry whose refusal is
    not final counts as UNKNOWN, because the next run moves the entry to UNKNOWN."""

    account: str
    run_id: str | None
    job: str | None
    state: State
    entry_count: int


def count_open_entries(url: str, *, may_be_new: bool = True) -> list[OpenEntryCount]:
    """Count the entries that are neither CONFIRMED nor DROPPED. The function takes no lock, so it also works while a
    run holds the ledger.

    A missing ledger has no entries. Raises LedgerError if the ledger cannot be read, or if the ledger is missing and
    `may_be_new` is false. Raises ConfigurationError if the URL is invalid or its driver is missing.
    """
    rows = read_ledger(url, lambda ledger: ledger.connection.execute(_COUNT_OPEN_ENTRIES).all())
    if rows is None and not may_be_new:
        raise build_missing_ledger_error(format_ledger_location(parse_ledger_location(url)))
    return [
        OpenEntryCount(account, run_id, job, State(state), entry_count)
        for account, run_id, job, state, entry_count in rows or []
    ]


_NOT_FINAL_REFUSAL_CONDITION = schema.entry.c.status.in_(sorted(NOT_FINAL_STATUSES)) & schema.entry.c.body.is_not(None)
_OPEN_STATE = case((_NOT_FINAL_REFUSAL_CONDITION, State.UNKNOWN.value), else_=schema.entry.c.state).label("open_state")
_COUNT_OPEN_ENTRIES = (
    select(schema.base.c.account, schema.run.c.run_id, schema.run.c.job, _OPEN_STATE, func.count())
    .join_from(schema.entry, schema.base)
    .join(schema.run, isouter=True)
    .where(text(schema.IS_UNFINISHED_SQL), schema.entry.c.state != State.DROPPED.value)
    .group_by(schema.base.c.account, schema.run.c.run_id, schema.run.c.job, _OPEN_STATE)
    .order_by(schema.base.c.account, schema.run.c.run_id, _OPEN_STATE)
)


def check_ledger_rights(url: str) -> None:
    """Raise LedgerError if this user may not write the ledger's file, or create files in its folder. Nothing is
    written. For a ledger on a server, nothing is checked."""
    location = parse_ledger_location(url)
    if isinstance(location, URL):
        return
    ledger_path = location.resolve()
    folder = next(folder for folder in ledger_path.parents if folder.exists())
    for path, access_mode in ((folder, os.R_OK | os.W_OK | os.X_OK), (ledger_path, os.R_OK | os.W_OK)):
        if path.exists() and not os.access(path, access_mode):
            raise LedgerError(f"the ledger {ledger_path}: this user cannot write {path}: change the permissions")


def read_lag(url: str, account: str) -> float:
    """Return the largest recorded lag of the account's list in seconds, or 0 if no lag is recorded. Take no lock.

    Raises LedgerError if the ledger cannot be read, and ConfigurationError if the URL is invalid.
    """
    return read_ledger(url, lambda ledger: read_largest_lag(ledger.connection, account)) or 0.0


def read_ledger(url: str, read_function: Callable[[Ledger], T]) -> T | None:
    """Return the result of `read_function` on the ledger at `url`, or None if there is no ledger. `read_ledger` takes
    no lock and writes nothing. A run may write the ledger meanwhile.

    If no other process has the file open, `read_ledger` opens the file as immutable, so that SQLite creates no files
    beside the ledger. If a process opens the file meanwhile, `read_function` is called again. Raises LedgerError if the
    ledger cannot be read. Raises ConfigurationError if the ledger has another version, the URL is invalid, or its
    driver is missing.
    """
    location = parse_ledger_location(url)
    if isinstance(location, URL):
        with connect_for_reading(location) as server_connection:
            return _read_existing_ledger(server_connection, format_ledger_location(location), read_function)
    for _ in range(_MAX_READ_ATTEMPTS):
        if not location.exists():
            return None
        file_state_before = _describe_file_state(location)
        try:
            open_mode = "mode=ro" if file_state_before is None else "mode=ro&immutable=1"
            file_url = f"{location.resolve().as_uri()}?{open_mode}"
            with (
                translate_errors(str(location)),
                refuse_foreign_file(location),
                closing(sqlite3.connect(file_url, uri=True, timeout=READ_BUSY_TIMEOUT_S)) as file_connection,
                closing(connect_file(file_connection)) as connection,
            ):
                result = _read_existing_ledger(connection, str(location), read_function)
        except sqlite3.Error as error:
            raise LedgerError(f"the ledger {location} cannot be read: {error}") from None
        except LedgerError:
            if file_state_before == _describe_file_state(location):
                raise
        else:
            if file_state_before in (None, _describe_file_state(location)):
                return result
    raise LedgerError(f"the ledger {location} changes each time that it is read: run again")


def _describe_file_state(path: Path) -> tuple[int, int, int] | None:
    """Return the inode, the size and the modification time of the file. Return None if a process has the file open, or
    if a process was killed while it had the file open."""
    ledger_path = path.resolve()
    if any(ledger_path.with_name(ledger_path.name + suffix).exists() for suffix in ("-wal", "-shm")):
        return None
    status = ledger_path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def _read_existing_ledger(connection: Connection, name: str, read_function: Callable[[Ledger], T]) -> T | None:
    if not schema.is_ledger(connection):
        # If the database has no other tables, a run is creating the ledger now, or was killed before it had created
        # the ledger.
        schema.refuse_foreign_tables(connection, name)
        return None
    schema.check_version(connection, name)
    return read_function(Ledger(Store(connection, name)))


def connect_file(file_connection: sqlite3.Connection) -> Connection:
    """Return SQLAlchemy's connection over an open file, with ordinary read transactions."""
    engine = create_engine("sqlite://", creator=lambda: file_connection, poolclass=StaticPool, hide_parameters=True)

    @event.listens_for(engine, "begin")
    def begin_transaction(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    return engine.connect()
