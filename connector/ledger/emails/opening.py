"""Opens the ledger of emails, wherever the ledger is kept; it takes no lock, and several processes may have it open."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from sqlalchemy import URL

from connector.ledger.emails import schema
from connector.ledger.emails.place import find_emails
from connector.ledger.emails.postgres_emails import hold_in_session
from connector.ledger.emails.preparing import has_emails, prepare_emails
from connector.ledger.emails.sqlite_emails import hold_in_file, open_emails_file
from connector.ledger.emails.store import EmailLog
from connector.ledger.place import parse_place, show_place
from connector.ledger.postgres import open_session
from connector.ledger.schema import meta as ledger_meta
from connector.ledger.sqlite import refuse_old_sqlite, resolve_file
from connector.ledger.store import Store

_TABLES = (schema.meta.name, ledger_meta.name)  # where the emails are, else where the ledger is that they belong to


@contextmanager
def open_emails(url: str) -> Iterator[EmailLog]:
    """The emails of the ledger at a SQLAlchemy URL (SQLite or PostgreSQL), made where there are none.

    Its connection may be used from one thread at a time. Raises LedgerError when it cannot be used, ConfigurationError
    when the URL is none or its driver is missing.
    """
    with _open_place(_find_place(url, may_make=True)) as log:
        prepare_emails(log.connection, log.name)
        yield log


@contextmanager
def open_existing_emails(url: str) -> Iterator[EmailLog | None]:
    """The same for whoever only wants to know: None where there are none, and none are made."""
    place = _find_place(url, may_make=False)
    if isinstance(place, Path) and not place.exists():
        yield None
        return
    with _open_place(place) as log:
        yield log if has_emails(log.connection, log.name) else None


def _find_place(url: str, *, may_make: bool) -> Path | URL:
    """The emails' own file, without symbolic links, or the ledger's database."""
    place = parse_place(url)
    if isinstance(place, URL):
        return place
    return resolve_file(find_emails(resolve_file(place, may_make=may_make)), may_make=may_make)


def _open_place(place: Path | URL) -> AbstractContextManager[EmailLog]:
    return _open_file(place) if isinstance(place, Path) else _open_server(place)


@contextmanager
def _open_file(path: Path) -> Iterator[EmailLog]:
    refuse_old_sqlite()
    with open_emails_file(path) as connection:
        yield EmailLog(Store(connection, str(path)), hold_in_file(connection, path))


@contextmanager
def _open_server(url: URL) -> Iterator[EmailLog]:
    name = show_place(url)
    with open_session(url, _TABLES) as (connection, place):
        yield EmailLog(Store(connection, name), hold_in_session(connection, place, name))
