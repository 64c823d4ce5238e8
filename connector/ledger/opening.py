"""Opens a ledger, wherever it is kept: nothing is sent before lock, database and schema have gone well."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from sqlalchemy import URL, Connection

from connector.ledger.entries import Ledger
from connector.ledger.place import parse_place, show_place
from connector.ledger.postgres import open_server
from connector.ledger.schema import create_or_check
from connector.ledger.sqlite import open_file
from connector.ledger.store import Store, build_missing


@contextmanager
def open_ledger(
    url: str, *, wait_s: float = 0.0, is_stopped: Callable[[], bool] = lambda: False, may_make: bool = True
) -> Iterator[Ledger]:
    """Open the ledger at a SQLAlchemy URL (SQLite or PostgreSQL), alone, for as long as the context lasts.

    Where there is none, one is made if it `may_make` one. Its connection may be used from one thread at a time. Raises
    LockedError when another run holds it for longer than `wait_s` seconds (or until `is_stopped`), LedgerError when it
    cannot be used, or is not there and may not be made, ConfigurationError when the URL is none or its driver is
    missing.
    """
    place = parse_place(url)
    if not may_make and isinstance(place, Path) and not place.exists():
        raise build_missing(show_place(place))
    with _open_place(place, wait_s, is_stopped) as connection:
        yield wrap_connection(connection, show_place(place), may_make=may_make)


def _open_place(place: Path | URL, wait_s: float, is_stopped: Callable[[], bool]) -> AbstractContextManager[Connection]:
    if isinstance(place, Path):
        return open_file(place, wait_s, is_stopped)
    return open_server(place, wait_s, is_stopped)


def wrap_connection(connection: Connection, name: str, *, may_make: bool = True) -> Ledger:
    """A ledger over a connection of the caller's own, say to `sqlite://` in memory: it takes no lock.

    The connection must be in no transaction, and alone. Tables are made where there are none, if it `may_make` them.
    Raises LedgerError, and leaves all as it was, when it cannot be used.
    """
    store = Store(connection, name)
    with store.transaction():
        if not create_or_check(connection, name, may_make=may_make):
            raise build_missing(name)
    return Ledger(store)
