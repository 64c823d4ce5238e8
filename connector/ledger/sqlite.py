"""A ledger in a SQLite file: its lock, its settings for durability, and a check of its pages if the file may be
damaged.

Only the connection of the lock's holder writes. SQLite up to 3.51.2 can corrupt a WAL that two connections write or
checkpoint at the same instant. The connection of a backup reads only, and does neither (see copies.py).
"""

import os
import sqlite3
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from sqlalchemy import URL, Connection, Engine, ExceptionContext, create_engine, event, inspect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import StaticPool

from connector.atomic_file import create_private
from connector.driver_errors import describe_error
from connector.errors import LedgerError
from connector.ledger.store import (
    build_error,
    describe_holder,
    describe_since,
    digest_campaign,
    make_storable,
    translated,
    wait_for_lock,
)

_BUSY_S = 2.0  # no other process should write; the wait is short because signals wait as well

_PRAGMAS = (
    "page_size = 2048",  # of a new file; 2 µs a create less than 4096, among 500,000 entries too, measured
    "locking_mode = NORMAL",  # so that a backup can read meanwhile; 5 µs a commit more than EXCLUSIVE, measured
    "journal_mode = WAL",
    "synchronous = FULL",  # an intent is on the disk before its request leaves
    "secure_delete = ON",  # a body that has served its time is overwritten
    "temp_store = MEMORY",  # the undo journal of one statement; in a file it cost 8 µs a create, measured
    "wal_autocheckpoint = 16000",  # pages, 32 MB: 12 µs a create less than with SQLite's own 1000, among 300,000
    "cache_size = -16000",  # 16 MB
    "foreign_keys = ON",
)


@contextmanager
def open_file(path: Path, wait_s: float, is_stopped: Callable[[], bool]) -> Iterator[Connection]:
    """Yield the only connection to the file, until the context ends. Make the file and its folder if they are missing.

    Raises LockedError if another run holds the lock for longer than `wait_s` seconds (or until `is_stopped`), and
    LedgerError if the file cannot be used.
    """
    path = resolve_file(path)
    with hold_lock(find_lock(path), wait_s, is_stopped=is_stopped):
        # The last connection removes the WAL when it closes; after a kill the WAL stays.
        wal = path.with_name(path.name + "-wal")
        was_killed = wal.exists() and wal.stat().st_size > 0
        make_file(path)
        with _connected(path, _PRAGMAS, _BUSY_S) as connection:
            _refuse_damage(connection, path, was_killed)
            yield connection


@contextmanager
def _connected(path: Path, pragmas: Sequence[str], busy_s: float) -> Iterator[Connection]:
    engine = build_engine(path, pragmas, busy_s)
    try:
        with translated(str(path)):
            connection = engine.connect()
        with closing(connection):
            yield connection
    finally:
        engine.dispose()


def find_lock(path: Path) -> Path:
    """Return the file whose lock the ledger's writer holds; `path` is the ledger's own, symbolic links resolved."""
    return path.with_name(path.name + ".lock")


def resolve_file(path: Path, *, may_make: bool = True) -> Path:
    """Return the path without symbolic links, because a file with two names would have two locks. With `may_make`, make
    the folder.

    Raises LedgerError if the path cannot be a file.
    """
    try:
        if may_make:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        resolved = path.resolve()
        is_folder = resolved.is_dir()
        has_other_names = resolved.is_file() and resolved.stat().st_nlink > 1
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: links in a circle; ValueError: a NUL
        reason = getattr(error, "strerror", None) or "its links lead in a circle, or it is not a path"
        raise build_error(make_storable(str(path)), reason) from None
    if is_folder:
        raise build_error(str(path), "it is a folder, not a file")
    if has_other_names:
        raise build_error(
            str(path), "it has a second name (a hard link), and a run that uses that one would not see its lock"
        )
    return resolved


def make_file(path: Path) -> None:
    """Make the file, readable by its owner alone. An existing file is not opened, because closing it would release
    SQLite's own locks."""
    try:
        create_private(path).close()
    except FileExistsError:
        found = path.stat()
        if found.st_uid == os.getuid() and stat.S_IMODE(found.st_mode) & 0o077:  # copied here by hand, say
            path.chmod(0o600)
    except OSError as error:
        raise build_error(str(path), error.strerror or "it cannot be made") from None


def build_engine(path: Path, pragmas: Sequence[str], busy_s: float) -> Engine:
    """Return an engine with one connection, whose transactions get the write lock at their beginning. The connection
    waits up to `busy_s` seconds for other writers."""
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        poolclass=StaticPool,
        connect_args={"check_same_thread": False, "timeout": busy_s},
        hide_parameters=True,
    )

    @event.listens_for(engine, "connect")
    def set_pragmas(dbapi_connection: Any, _record: object) -> None:
        dbapi_connection.isolation_level = None  # SQLAlchemy begins transactions, below; the driver never does
        for pragma in pragmas:
            dbapi_connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin_immediately(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    @event.listens_for(engine, "handle_error")
    def roll_back_failed_commit(context: ExceptionContext) -> None:
        """Roll back a commit that other connections blocked. Otherwise its transaction would stay open and block
        them."""
        if context.statement is None and context.connection is not None:
            with suppress(sqlite3.Error):  # the first error is the one that is reported
                context.connection.connection.rollback()

    return engine


_LAST_END = "SELECT finished_at FROM run ORDER BY run_key DESC LIMIT 1"


def _refuse_damage(connection: Connection, path: Path, was_killed: bool) -> None:
    """Check every page if the last run did not end in order. Raises LedgerError if a page is damaged.

    The check takes 0.6 s of CPU per million entries (measured), so an ordinary opening skips it. A page that breaks
    between two good runs ends the run that reads the page.
    """
    with translated(str(path)), connection.begin():
        is_open = inspect(connection).has_table("run") and connection.exec_driver_sql(_LAST_END).all() == [(None,)]
        if not was_killed and not is_open:
            return
        found = check_pages(connection)
    if found != "ok":
        raise LedgerError(
            f"the ledger {path} is damaged ({found}). Nothing was sent; move it and the files beside "
            "it (-wal, -shm) away, and put a backup in its place or none: a load finds existing "
            "subscribers in the service before it creates any"
        )


def check_pages(connection: Connection) -> str:
    """Return `ok`, or the fault of the first damaged page."""
    try:
        return str(connection.exec_driver_sql("PRAGMA quick_check(1)").scalars().all()[0].splitlines()[-1])
    except DBAPIError as error:  # SQLite cannot read past some damage
        return describe_error(error)


# The lock on a file beside the ledger, which contains its holder. The kernel releases the lock when the process ends.


@contextmanager
def hold_lock(
    path: Path,
    wait_s: float = 0.0,
    *,
    name: str | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Iterator[None]:
    """Hold the lock at `path`. Wait for the lock up to `wait_s` seconds, or until `is_stopped`.

    Raises LockedError with `name` (by default the path) and the holder, and LedgerError if no lock is possible.
    """
    lock = FileLock(
        path,
        timeout=0,
        mode=0o600,
        thread_local=False,  # another thread than the one that locked may release the lock
        fallback_to_soft=False,  # a soft lock outlives a holder that was killed
        on_acquired=_write_holder,
    )

    def try_lock() -> bool:
        try:
            lock.acquire()
        except Timeout:
            return False
        except OSError as error:
            raise LedgerError(
                f"the ledger's lock {path} cannot be taken: {error.strerror}. Nothing was sent; look at its disk "
                "and its permissions: this user must be able to write it and its folder"
            ) from None
        return True

    def read_holder() -> str:
        return path.read_text(encoding="utf-8", errors="replace") or "another run"

    wait_for_lock(name or str(path), try_lock, read_holder, wait_s, is_stopped)
    try:
        yield
    finally:
        lock.release()


def _write_holder(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{describe_holder()}, {describe_since(datetime.now(UTC))}".encode(), 0)


# The emails: a rollback journal and short transactions, since several processes write them


_EMAILS_BUSY_S = 30.0  # seconds for which a backup of millions of emails blocks writers

_EMAILS_PRAGMAS = (
    "journal_mode = DELETE",  # two connections that write at the same instant can corrupt a WAL
    "synchronous = EXTRA",  # FULL leaves the journal's removal, and that is the commit, to the file system's leisure
    "secure_delete = ON",  # an address that has served its time is overwritten
    "temp_store = MEMORY",
    "foreign_keys = ON",
)


@contextmanager
def open_emails_file(path: Path) -> Iterator[Connection]:
    """Yield a connection to the file, and make the file if it is missing. Other connections may be open.

    `path` is without symbolic links. Raises LedgerError when the file cannot be used.
    """
    make_file(path)
    with _connected(path, _EMAILS_PRAGMAS, _EMAILS_BUSY_S) as connection:
        yield connection


@contextmanager
def hold_campaign_file(
    connection: Connection, path: Path, name: str, wait_s: float, is_stopped: Callable[[], bool]
) -> Iterator[None]:
    """Hold a campaign by a lock on a file beside the emails', every page of which is checked first.

    Among damaged pages an email that was sent would not be found, and be sent again. It takes a second for a million
    emails, which no run sends in less than minutes.
    """
    lock = path.with_name(f"{path.name}.{digest_campaign(name).hex()}.lock")
    with hold_lock(lock, wait_s, name=f"the campaign {name}", is_stopped=is_stopped):
        with translated(str(path)), connection.begin():
            found = check_pages(connection)
        if found != "ok":
            raise LedgerError(
                f"the ledger of emails {path} is damaged ({found}). Nothing was sent. Move it and the "
                "ledger away, and restore a backup (connector ledger restore). A backup does not know later emails"
            )
        yield


def find_emails(ledger: Path) -> Path:
    """Return the file of a ledger's emails: `ledger-emails.db` for `ledger.db`, whose symbolic links are resolved. A
    load does not lock it."""
    return ledger.with_name(f"{ledger.stem}-emails{ledger.suffix}")
