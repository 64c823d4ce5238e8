"""A ledger in a SQLite file: the lock, the settings for durability, and a check of the pages if the file may be
damaged.

Only the connection of the lock's holder writes. SQLite up to 3.51.2 can corrupt a WAL that two connections write or
checkpoint at the same instant. The connection of a backup only reads, and neither writes nor checkpoints (see
copies.py).
"""

import os
import sqlite3
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from sqlalchemy import URL, Connection, Engine, ExceptionContext, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import StaticPool

from connector.atomic_file import create_private_file
from connector.driver_errors import describe_error
from connector.errors import ForeignLedgerError, LedgerError
from connector.ledger.schema import is_ledger
from connector.ledger.store import (
    build_error,
    describe_holder,
    describe_lock_time,
    digest_campaign,
    make_storable,
    translate_errors,
    wait_for_lock,
)

# This time is short, because the process handles no signals while it waits for the file. A wait is rare: the lock keeps
# other processes of the connector from writing the ledger.
_BUSY_TIMEOUT_S = 2.0

_PRAGMAS = (
    "page_size = 2048",  # for new files; a create takes 2 µs less than with 4096 (measured, also with 500,000 entries)
    "locking_mode = NORMAL",  # lets a backup read during a run; a commit takes 5 µs more than with EXCLUSIVE (measured)
    "journal_mode = WAL",
    "synchronous = FULL",  # each intent must be on the disk before its request leaves
    "secure_delete = ON",  # a body that is no longer needed is overwritten
    "temp_store = MEMORY",  # for the undo journal of a statement; with a file, a create takes 8 µs more (measured)
    "wal_autocheckpoint = 16000",  # pages (32 MB); a create takes 12 µs less than with 1000 (300,000 entries)
    "cache_size = -16000",  # 16 MB
    "foreign_keys = ON",
)


@contextmanager
def open_file(path: Path, wait_s: float, is_stopped: Callable[[], bool]) -> Iterator[Connection]:
    """Yield the only connection to the file, until the context ends. Create the file and its folder if they are
    missing.

    Raises LockedError if another run holds the lock for longer than `wait_s` seconds (or until `is_stopped` returns
    True), and LedgerError if the file cannot be used.
    """
    path = resolve_file(path)
    with hold_lock(find_lock_path(path), wait_s, is_stopped=is_stopped):
        # SQLite removes the WAL when the last connection closes. The WAL stays if the process was killed.
        wal_path = path.with_name(path.name + "-wal")
        has_old_wal = wal_path.exists() and wal_path.stat().st_size > 0
        ensure_private_file(path)
        with _connect_to_file(path, _PRAGMAS, _BUSY_TIMEOUT_S) as connection:
            _refuse_damaged_file(connection, path, has_old_wal)
            yield connection


@contextmanager
def _connect_to_file(path: Path, pragmas: Sequence[str], busy_timeout_s: float) -> Iterator[Connection]:
    engine = build_engine(path, pragmas, busy_timeout_s)
    try:
        with translate_errors(str(path)), refuse_foreign_file(path):
            connection = engine.connect()
        with closing(connection):
            yield connection
    finally:
        engine.dispose()


@contextmanager
def refuse_foreign_file(path: Path) -> Iterator[None]:
    """Raise ForeignLedgerError if the first access to the file shows that the file is not a database."""
    try:
        yield
    except DBAPIError as error:
        if getattr(error.orig, "sqlite_errorname", "") != "SQLITE_NOTADB":
            raise
        raise ForeignLedgerError(
            f"the ledger {path} cannot be used: the file is not a database. Nothing was sent. Name another file "
            "(CONNECTOR_STATE_DIR or CONNECTOR_LEDGER). If this file was a ledger, move the file away, and restore a "
            "backup: connector ledger restore FILE"
        ) from None


def find_lock_path(path: Path) -> Path:
    """Return the path of the file that the writer of a ledger locks. `path` is the path of the ledger without symbolic
    links."""
    return path.with_name(path.name + ".lock")


def resolve_file(path: Path, *, may_create: bool = True) -> Path:
    """Return the path without symbolic links, because a file with two names would have two locks. With `may_create`,
    create the folder.

    Raises LedgerError if the path cannot be a file.
    """
    try:
        if may_create:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        real_path = path.resolve()
        # If links lead in a circle, `resolve` returns a link. Before Python 3.13, `resolve` raises RuntimeError.
        is_symlink_loop = real_path.is_symlink()
        is_folder = real_path.is_dir()
        has_hard_links = real_path.is_file() and real_path.stat().st_nlink > 1
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: links in a circle; ValueError: a NUL
        reason = getattr(error, "strerror", None) or "its links lead in a circle, or it is not a path"
        raise build_error(make_storable(str(path)), reason) from None
    if is_symlink_loop:
        raise build_error(str(path), "its links lead in a circle")
    if is_folder:
        raise build_error(str(path), "it is a folder, not a file")
    if has_hard_links:
        raise build_error(
            str(path), "it has a second name (a hard link), and a run that uses the other name would not see the lock"
        )
    return real_path


def ensure_private_file(path: Path) -> None:
    """Create the file. Only its owner can read the file. An existing file is not opened: if this process opened and
    closed the file, the process would also release the locks that SQLite holds on the file."""
    try:
        create_private_file(path).close()
    except FileExistsError:
        status = path.stat()
        if status.st_uid == os.getuid() and stat.S_IMODE(status.st_mode) & 0o077:
            # A person may have copied the file here, and the copy may be readable for other users.
            path.chmod(0o600)
    except OSError as error:
        raise build_error(str(path), error.strerror or "it cannot be created") from None


def build_engine(path: Path, pragmas: Sequence[str], busy_timeout_s: float) -> Engine:
    """Return an engine with one connection. Each transaction takes the write lock at its beginning. The connection
    waits up to `busy_timeout_s` seconds for other writers."""
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        poolclass=StaticPool,
        connect_args={"check_same_thread": False, "timeout": busy_timeout_s},
        hide_parameters=True,
    )

    @event.listens_for(engine, "connect")
    def set_pragmas(dbapi_connection: Any, _record: object) -> None:
        dbapi_connection.isolation_level = None  # the driver begins no transactions; `begin_immediately` begins them
        for pragma in pragmas:
            dbapi_connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin_immediately(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    @event.listens_for(engine, "handle_error")
    def roll_back_failed_commit(context: ExceptionContext) -> None:
        """Roll back a commit that other connections have blocked. Otherwise the transaction would stay open and block
        the other connections."""
        if context.statement is None and context.connection is not None:
            with suppress(sqlite3.Error):  # only the first error is reported
                context.connection.connection.rollback()

    return engine


_FIND_LAST_RUN_END_SQL = "SELECT finished_at FROM run ORDER BY run_key DESC LIMIT 1"


def _refuse_damaged_file(connection: Connection, path: Path, has_old_wal: bool) -> None:
    """Check every page of the file if the last run was killed or has no recorded end. Raises LedgerError if a page is
    damaged.

    The check takes 0.6 s of CPU time for a million entries (measured), so it is skipped in other cases. If a page is
    damaged between two good runs, the run that reads the page ends with an error.
    """
    with translate_errors(str(path)), connection.begin():
        has_open_run = is_ledger(connection) and (connection.exec_driver_sql(_FIND_LAST_RUN_END_SQL).all() == [(None,)])
        if not has_old_wal and not has_open_run:
            return
        check_result = check_pages(connection)
    if check_result != "ok":
        raise LedgerError(
            f"the ledger {path} is damaged ({check_result}). Nothing was sent. Move the ledger and its files -wal "
            "and -shm away. Then restore a backup, or start without a ledger: a load finds existing subscribers in "
            "the service before it creates subscribers"
        )


def check_pages(connection: Connection) -> str:
    """Return `ok`, or the fault of the first damaged page."""
    try:
        return str(connection.exec_driver_sql("PRAGMA quick_check(1)").scalars().all()[0].splitlines()[-1])
    except DBAPIError as error:  # some kinds of damage end the check with an error
        return describe_error(error)


# The lock file is beside the ledger, and names the holder. The kernel releases the lock when the process ends.


@contextmanager
def hold_lock(
    path: Path, wait_s: float = 0.0, *, name: str | None = None, is_stopped: Callable[[], bool] = lambda: False
) -> Iterator[None]:
    """Hold the lock of the file `path` during the context. Wait for the lock up to `wait_s` seconds, or until
    `is_stopped` returns True.

    Raises LockedError with `name` (by default the path) and the holder, and LedgerError if no lock is possible.
    """
    file_lock = FileLock(
        path,
        timeout=0,
        mode=0o600,
        thread_local=False,  # a thread may release the lock that another thread has taken
        fallback_to_soft=False,  # a soft lock stays after its holder was killed
        on_acquired=_write_holder,
    )

    def try_lock() -> bool:
        try:
            file_lock.acquire()
        except Timeout:
            return False
        except OSError as error:
            raise LedgerError(
                f"the ledger's lock {path} cannot be taken: {error.strerror}. Nothing was sent. Check the disk and "
                "the permissions: this user must be able to write the file and its folder"
            ) from None
        return True

    wait_for_lock(
        name or str(path), try_lock, lambda: path.read_text("utf-8", "replace") or "another run", wait_s, is_stopped
    )
    try:
        yield
    finally:
        file_lock.release()


def _write_holder(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{describe_holder()}, {describe_lock_time(datetime.now(UTC))}".encode(), 0)


# The file of the emails. Several processes write this file, so it has a rollback journal and no WAL


_EMAILS_BUSY_TIMEOUT_S = 30.0  # a backup of millions of emails may block the other connections for this long

_EMAILS_PRAGMAS = (
    "journal_mode = DELETE",  # two connections that write at the same instant can corrupt a WAL
    "synchronous = EXTRA",  # a commit removes the journal; with FULL, the removal may reach the disk after the commit
    "secure_delete = ON",  # an address that is no longer needed is overwritten
    "temp_store = MEMORY",
    "foreign_keys = ON",
)


def open_emails_file(path: Path) -> AbstractContextManager[Connection]:
    """Return a context with a connection to the file of the emails, and create the file if it is missing. Other
    connections may be open.

    `path` has no symbolic links. Raises LedgerError if the file cannot be used.
    """
    ensure_private_file(path)
    return _connect_to_file(path, _EMAILS_PRAGMAS, _EMAILS_BUSY_TIMEOUT_S)


@contextmanager
def hold_campaign_file(
    connection: Connection, path: Path, name: str, wait_s: float, is_stopped: Callable[[], bool]
) -> Iterator[None]:
    """Hold a campaign during the context by a lock on a file in the folder of the emails. Then check every page of the
    file of the emails.

    Without the check, the run would not find an email on a damaged page, and would send the email again. The check
    takes a second for a million emails.
    """
    lock_path = path.with_name(f"{path.name}.{digest_campaign(name).hex()}.lock")
    with hold_lock(lock_path, wait_s, name=f"the campaign {name}", is_stopped=is_stopped):
        with translate_errors(str(path)), connection.begin():
            check_result = check_pages(connection)
        if check_result != "ok":
            raise LedgerError(
                f"the file of the emails, {path}, is damaged ({check_result}). Nothing was sent. Move this file and "
                "the file of the ledger away, and restore a backup (connector ledger restore). A backup does not have "
                "emails that were sent after the backup was made"
            )
        yield


def find_emails_file(ledger_path: Path) -> Path:
    """Return the file of a ledger's emails: `ledger-emails.db` for `ledger.db`. `ledger_path` is the path without
    symbolic links. A load does not lock this file."""
    return ledger_path.with_name(f"{ledger_path.stem}-emails{ledger_path.suffix}")
