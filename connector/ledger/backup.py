"""Copies a ledger to one file, whole and as it is at one moment, also while a run writes it.

Why that is safe while another process holds the lock: the fault of SQLite up to 3.51.2 takes two connections that write
or checkpoint at the same instant, and a connection opened with `mode=ro` does neither. Its file is open for reading
alone, so that it can commit nothing; SQLite makes checkpoints at a commit, which it has none of, and at the closing of
the last connection, for which it would have to lock that file exclusively, and the kernel grants no such lock on a file
open for reading. That holds when the writer dies meanwhile, and when the next one opens the ledger. All it leaves to
the writer is a longer WAL: no page that the copy still needs is overwritten before it is done.

Where nobody holds the lock, the copy takes it, and its connection is the only one.
"""

import glob
import os
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from connector.driver_words import say_safely
from connector.errors import ConfigurationError, LedgerError, LockedError
from connector.ledger.faults import build_missing
from connector.ledger.lock import hold_lock
from connector.ledger.place import parse_place, show_place
from connector.ledger.sqlite_store import find_lock

BUSY_S = 10.0  # a writer that opens or closes the ledger keeps others out for as long as a checkpoint takes
_BESIDE = ("-wal", "-shm", "-journal")  # what SQLite keeps beside a file


def back_up_ledger(url: str, target: Path, *, is_replacing: bool = False) -> int:
    """Copy the ledger at `url` to the file `target`, readable by its owner alone; returns how many entries it holds.

    The copy can be opened as a ledger: what was being sent at its moment is unknown in it. Raises ConfigurationError
    when `url` is no file's, or `target` cannot be written or is there already and not `is_replacing`; LedgerError when
    the ledger cannot be read; nothing is at `target` then that was not there before.
    """
    place = parse_place(url)
    if not isinstance(place, Path):
        raise ConfigurationError(f"the ledger {show_place(place)} is in PostgreSQL: back it up with pg_dump")
    source = place.resolve()
    if not source.is_file():
        raise build_missing(str(place))
    target = target.absolute()
    try:
        _check_target(source, target, is_replacing)
    except OSError as error:
        raise ConfigurationError(f"{target} cannot be written: {error.strerror}") from None
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        _sweep(target)
        _make_file(partial)
        number = _copy(source, partial)
        _take_in_journal(source)
        _check_target(source, target, is_replacing)
        _publish(partial, target)
    finally:
        for suffix in ("", *_BESIDE):
            with suppress(OSError):
                Path(f"{partial}{suffix}").unlink()
    return number


def _check_target(source: Path, target: Path, is_replacing: bool) -> None:
    if target.resolve() in {source.with_name(source.name + suffix) for suffix in (*_BESIDE, ".lock")}:
        raise ConfigurationError(f"{target} belongs to the ledger itself: name another file")
    if target.exists() and target.samefile(source):
        raise ConfigurationError(f"{target} is the ledger itself: name another file")
    if target.is_dir():
        raise ConfigurationError(f"{target} is a folder: name a file in it")
    if os.path.lexists(target) and not is_replacing:
        raise ConfigurationError(f"{target} is there already: name another file, or say that it is to be replaced")
    for suffix in _BESIDE:  # SQLite would take it for part of the copy
        if Path(f"{target}{suffix}").exists():
            raise ConfigurationError(f"{target} is in use as a database, as {target}{suffix} shows: name another file")


def _sweep(target: Path) -> None:
    """Take away what a backup that was killed left beside this target: people's data, where nobody looks for it."""
    for path in target.parent.glob(f".{glob.escape(target.name)}.*.partial*"):
        pid = path.name.removeprefix(f".{target.name}.").partition(".")[0]
        if pid.isdigit() and (int(pid) == os.getpid() or not _is_alive(int(pid))):
            with suppress(OSError):
                path.unlink()


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        return True
    return True


def _take_in_journal(source: Path) -> None:
    """If the ledger's writer ended while it was copied, its journal stayed, since it was not the last to close."""
    with suppress(LockedError), hold_lock(find_lock(source)), closing(sqlite3.connect(source)) as ledger:
        ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _make_file(partial: Path) -> None:
    try:
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise ConfigurationError(f"nothing can be written beside {partial.parent}: {error.strerror}") from None


def _copy(source: Path, partial: Path) -> int:
    """Copy in one step, so in one read transaction; what comes out is checked, and needs no WAL to be read."""
    try:
        with _open_source(source) as ledger, closing(sqlite3.connect(partial, isolation_level=None)) as copy:
            ledger.backup(copy, pages=-1)
            copy.execute("PRAGMA journal_mode = DELETE")
            verdict = copy.execute("PRAGMA quick_check(1)").fetchone()[0].splitlines()[-1]
            if verdict != "ok":
                raise LedgerError(f"the ledger {source} is damaged ({verdict}): the copy was thrown away")
            copy.execute("SELECT value FROM meta WHERE name = 'schema_version'").fetchone()
            return int(copy.execute("SELECT count(*) FROM entry").fetchone()[0])
    except sqlite3.Error as error:
        raise LedgerError(f"the ledger {source} cannot be copied to {partial.parent}: {say_safely(error)}") from None


@contextmanager
def _open_source(path: Path) -> Iterator[sqlite3.Connection]:
    """Alone and under the lock where that is free, else as one who only reads beside the lock's holder."""
    with ExitStack() as stack:
        try:
            stack.enter_context(hold_lock(find_lock(path)))
            mode = "rw"
        except LockedError:
            mode = "ro"
        opened = sqlite3.connect(f"{path.as_uri()}?mode={mode}", uri=True, timeout=BUSY_S)
        yield stack.enter_context(closing(opened))


def _publish(partial: Path, target: Path) -> None:
    """On the disk before it has its name, and the name too before this returns."""
    try:
        _sync(partial)
        partial.replace(target)
        _sync(target.parent)
    except OSError as error:
        raise ConfigurationError(f"{target} cannot be written: {error.strerror}") from None


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
