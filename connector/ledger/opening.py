"""Opens a ledger, wherever it is kept: nothing is sent before lock, database and schema have gone well."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from sqlalchemy import URL, Connection, text

from connector.databases import parse_place, show_place
from connector.errors import ConfigurationError
from connector.ledger.emails import EmailLog
from connector.ledger.entries import Ledger
from connector.ledger.lease import hold_lease, lease_metadata
from connector.ledger.postgres import compute_key, hold_campaigns, open_session
from connector.ledger.schema import create_or_check, create_tables, email_meta, emails_metadata, has_emails, meta
from connector.ledger.sqlite import find_emails, hold_campaign_file, open_emails_file, open_file, resolve_file
from connector.ledger.store import Store, build_missing
from connector.shards import WHOLE, Shard

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
    place = parse_place(url)
    name = show_place(place)
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
            raise build_missing(show_place(parse_place(url)))
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
    place = parse_place(url)
    with ExitStack() as stack:
        if isinstance(place, Path):
            file = resolve_file(find_emails(resolve_file(place, may_make=may_make)), may_make=may_make)
            if not may_make and not file.exists():
                yield None
                return
            connection = stack.enter_context(open_emails_file(file))
            log = EmailLog(Store(connection, str(file)), partial(hold_campaign_file, connection, file))
        else:
            name = show_place(place)
            connection, schema = stack.enter_context(open_session(place, _EMAIL_TABLES))
            log = EmailLog(Store(connection, name), hold_campaigns(connection, schema, name))
        with log.transaction():  # a second process finds what the first has made
            if may_make and not log.store.is_file:
                connection.execute(_ALONE, {"key": _MAKING})  # in SQLite the transaction itself keeps others out
            is_there = has_emails(connection, log.name)
            if may_make and not is_there:
                create_tables(connection, log.name, emails_metadata, email_meta)
        yield log if is_there or may_make else None
