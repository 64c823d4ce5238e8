"""A private copy of a ledger, for whoever plans: nothing is written to the ledger, and no lock of it is taken.

The copy is a temporary database of SQLite's own. It has no name, and goes with its process, however that ends.

A file that somebody has open, or had when he was killed, is read as a backup reads it beside the lock's holder
(backup.py says why that is safe). Of any other nothing but the file itself is there, and it is read as one that nobody
changes: SQLite would make files of its own beside it otherwise. Whether somebody did change it meanwhile, shows.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sqlalchemy import URL, Connection, Select, Table, create_engine, event, insert, inspect, select
from sqlalchemy.pool import StaticPool

from connector.errors import LedgerError, RunAborted
from connector.ledger import schema
from connector.ledger.backup import BUSY_S
from connector.ledger.opening import wrap_connection
from connector.ledger.place import parse_place, show_place
from connector.ledger.postgres_store import read_server
from connector.ledger.preparing import check_version
from connector.ledger.store import Ledger
from connector.ledger.texts import keep_text

_TRIES = 5  # of a file that changes while it is read: whoever opens it leaves a journal beside it, and is met there
_ROWS_AT_ONCE = 10_000
_COPIED = (schema.run, schema.base, schema.mapping, schema.entry, schema.refusal, schema.source_cursor)
_CACHE = "PRAGMA cache_size = -16000"  # 16 MB, as of a ledger's own; what is beyond it goes to the disk


@contextmanager
def open_private_copy(url: str, account: str, is_stopped: Callable[[], bool] = lambda: False) -> Iterator[Ledger]:
    """A ledger that holds what the one at `url` knows of `account` at this moment; an empty one if there is none.

    It may be written like any other: all that is written is lost when the context ends. The file or server at `url` is
    only read. Raises LedgerError when that cannot be read, ConfigurationError when the URL is none or its driver is
    missing, RunAborted when `is_stopped` meanwhile.
    """
    place = parse_place(url)
    name = show_place(place)
    with closing(sqlite3.connect("", check_same_thread=False, isolation_level=None)) as nameless:
        nameless.execute(_CACHE)
        if isinstance(place, Path):
            _copy_file(place, nameless)
        with closing(_connect(nameless)) as connection:
            ledger = wrap_connection(connection, f"a copy of {name}")
            if isinstance(place, URL):
                _copy_server(place, name, account, ledger, is_stopped)
            yield ledger


def _connect(nameless: sqlite3.Connection) -> Connection:
    engine = create_engine("sqlite://", creator=lambda: nameless, poolclass=StaticPool, hide_parameters=True)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    return engine.connect()


def _copy_file(path: Path, copy: sqlite3.Connection) -> None:
    if not path.exists():
        return
    try:
        for _ in range(_TRIES):
            if _has_files_beside(path):
                _copy_pages(path, "mode=ro", copy)
                return
            before = _describe(path)
            _copy_pages(path, "mode=ro&immutable=1", copy)
            if _describe(path) == before:
                return
    except (sqlite3.Error, OSError) as error:
        raise LedgerError(f"the ledger {path} cannot be read: {error}") from None
    raise LedgerError(f"the ledger {path} changes each time that it is read: see who writes it, and try again")


def _has_files_beside(path: Path) -> bool:
    """Whether somebody has it open, or had when he was killed."""
    resolved = path.resolve()
    return any(resolved.with_name(resolved.name + suffix).exists() for suffix in ("-wal", "-shm"))


def _describe(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _copy_pages(path: Path, how: str, copy: sqlite3.Connection) -> None:
    """All in one step, so in one read transaction."""
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?{how}", uri=True, timeout=BUSY_S)) as ledger:
        ledger.backup(copy, pages=-1)


def _copy_server(url: URL, name: str, account: str, ledger: Ledger, is_stopped: Callable[[], bool]) -> None:
    """Copy the account's lines, and all runs, mappings and cursors."""
    of_account = select(schema.base.c.base_key).where(schema.base.c.account == keep_text(account))
    with read_server(url) as server:
        if not inspect(server).has_table("meta"):
            return
        check_version(server, name)
        with ledger.transaction() as copy:
            for table in _COPIED:
                for rows in _read_table(server, table, of_account):
                    if is_stopped():
                        raise RunAborted("the run was stopped while the ledger was being read")
                    copy.execute(insert(table), rows)


def _read_table(server: Connection, table: Table, of_account: Select[tuple[int]]) -> Iterator[list[dict[str, object]]]:
    """Read the lines of a table, some at a time."""
    statement = select(table)
    if "base_key" in table.c:
        statement = statement.where(table.c.base_key.in_(of_account))
    result = server.execute(statement, execution_options={"yield_per": _ROWS_AT_ONCE})
    for rows in result.mappings().partitions():
        yield [{str(name): value for name, value in row.items()} for row in rows]
