"""A ledger of emails in a SQLite file that several processes write: a rollback journal, and short transactions.

No WAL: SQLite up to 3.51.2 can corrupt one that two connections write at the same instant. Each transaction takes the
file's write lock as it begins, so that it never has to be given up half-way, and waits for the others'.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sqlalchemy import Connection

from connector.errors import LedgerError
from connector.ledger.emails.place import find_campaign_lock
from connector.ledger.emails.store import Hold
from connector.ledger.sqlite import build_engine, check_pages, hold_lock, make_file
from connector.ledger.store import translated

BUSY_S = 30.0  # a backup of millions of emails keeps writers out for as long as it copies: seconds

_PRAGMAS = (
    "journal_mode = DELETE",
    "synchronous = EXTRA",  # FULL leaves the journal's removal, and that is the commit, to the file system's leisure
    "secure_delete = ON",  # an address that has served its time is overwritten
    "temp_store = MEMORY",
    "foreign_keys = ON",
)


@contextmanager
def open_emails_file(path: Path) -> Iterator[Connection]:
    """A connection to the file, made when there is none, beside others' that may be open; `path` is without symbolic
    links. Raises LedgerError when it cannot be used."""
    make_file(path)
    engine = build_engine(path, _PRAGMAS, BUSY_S)
    try:
        with translated(str(path)):
            connection = engine.connect()
        with closing(connection):
            yield connection
    finally:
        engine.dispose()


def hold_in_file(connection: Connection, path: Path) -> Hold:
    """Campaigns held by locks on files beside the emails'; whoever takes one has every page checked first.

    Among damaged pages an email that was sent would not be found, and be sent again. It takes a second for a million
    emails, which nobody sends in less than minutes.
    """

    @contextmanager
    def hold(account: str, name: str, wait_s: float, is_stopped: Callable[[], bool]) -> Iterator[None]:
        lock = find_campaign_lock(path, account, name)
        with hold_lock(lock, wait_s, name=f"the campaign {name}", is_stopped=is_stopped):
            _refuse_damage(connection, path)
            yield

    return hold


def _refuse_damage(connection: Connection, path: Path) -> None:
    with translated(str(path)), connection.begin():
        found = check_pages(connection)
    if found != "ok":
        raise LedgerError(
            f"the ledger of emails {path} is damaged ({found}). Nothing was sent; put a backup in its place, and mail "
            "only whom you know to have had nothing since: without it nobody can tell who was mailed"
        )
