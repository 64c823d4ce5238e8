"""A copy of one SQLite file on its way to its place: made under a name of its own, checked, and published whole.

What a copy that was killed left behind is people's data where nobody looks for it; the next one takes it away.
"""

import glob
import os
import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass
from pathlib import Path

from connector.driver_words import say_safely
from connector.errors import ConfigurationError, LedgerError

BESIDE = ("-wal", "-shm", "-journal")  # what SQLite keeps beside a file


@dataclass(frozen=True, slots=True)
class FileCopy:
    """One file to be copied: from where, to where, how its source is opened for reading, and the tables that must be
    in it, of which the last is counted."""

    source: Path
    target: Path
    open_source: Callable[[Path], AbstractContextManager[sqlite3.Connection]]
    tables: tuple[str, str]

    @property
    def partial(self) -> Path:
        """Where the copy is until it is whole."""
        return self.target.with_name(f".{self.target.name}.{os.getpid()}.partial")


def make_copy(copy: FileCopy) -> int:
    """Make the copy at `copy.partial`, of its owner alone; returns how many lines its last table has.

    Raises ConfigurationError when nothing can be written there, LedgerError when the source cannot be read or is
    damaged.
    """
    _sweep(copy.target)
    _make_file(copy.partial)
    return _copy_pages(copy)


def publish_copy(copy: FileCopy) -> None:
    """On the disk before it has its name, and the name too before this returns."""
    try:
        _sync(copy.partial)
        copy.partial.replace(copy.target)
        _sync(copy.target.parent)
    except OSError as error:
        raise ConfigurationError(f"{copy.target} cannot be written: {error.strerror}") from None


def drop_copy(copy: FileCopy) -> None:
    """Take away what is left under the copy's own name; nothing is when it was published."""
    for suffix in ("", *BESIDE):
        with suppress(OSError):
            Path(f"{copy.partial}{suffix}").unlink()


def _sweep(target: Path) -> None:
    """Take away what a copy that was killed left beside this target."""
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


def _make_file(partial: Path) -> None:
    try:
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise ConfigurationError(f"nothing can be written beside {partial.parent}: {error.strerror}") from None


def _copy_pages(file: FileCopy) -> int:
    """Copy in one step, so in one read transaction; what comes out is checked, and needs no WAL to be read."""
    try:
        with (
            file.open_source(file.source) as source,
            closing(sqlite3.connect(file.partial, isolation_level=None)) as copy,
        ):
            source.backup(copy, pages=-1)
            copy.execute("PRAGMA journal_mode = DELETE")
            verdict = copy.execute("PRAGMA quick_check(1)").fetchone()[0].splitlines()[-1]
            if verdict != "ok":
                raise LedgerError(f"the ledger {file.source} is damaged ({verdict}): the copy was thrown away")
            numbers = [copy.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in file.tables]  # noqa: S608 - constants only
            return int(numbers[-1])
    except sqlite3.Error as error:
        said = say_safely(error)
        raise LedgerError(f"the ledger {file.source} cannot be copied to {file.target.parent}: {said}") from None


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
