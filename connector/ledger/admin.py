"""Backups of a ledger and of the emails beside it. Each file is copied whole, at one moment, while a run goes on.

A backup is safe while another process holds the ledger's lock. SQLite up to 3.51.2 corrupts a WAL only if two
connections write or checkpoint at the same instant, and a connection with `mode=ro` does neither: its file is open for
reading alone. SQLite makes checkpoints at a commit, and when the last connection closes. Such a connection commits
nothing, and the kernel refuses the exclusive lock that the closing would need. This holds when the writer dies
meanwhile, and when the next writer opens the ledger. Only the WAL grows, because the copy still needs its pages.

Where the lock is free, a backup takes the lock, and its connection is the only one. The emails have no WAL, and their
writers wait until the emails are copied.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from connector.atomic_file import PartialFile
from connector.databases import parse_place, show_place
from connector.driver_words import say_safely
from connector.errors import ConfigurationError, LedgerError, LockedError
from connector.ledger import schema
from connector.ledger.beside import BUSY_S
from connector.ledger.sqlite import find_emails, find_lock, hold_lock
from connector.ledger.store import build_missing

BESIDE = ("-wal", "-shm", "-journal")  # what SQLite keeps beside a file
_TRIES = 5  # reads of a file that changes meanwhile; a process that opens it leaves a journal beside it, which is seen
_ROWS_AT_ONCE = 10_000
_COPIED = (schema.run, schema.base, schema.entry, schema.account, schema.source_cursor)
_CACHE = "PRAGMA cache_size = -16000"  # 16 MB, as of a ledger's own; what is beyond it goes to the disk


@dataclass(frozen=True, slots=True)
class Backup:
    """How many entries of the ledger, and how many emails, are in the copies; None: there was nothing to copy."""

    entries: int | None
    emails: int | None


@dataclass(frozen=True, slots=True)
class _FileCopy:
    """One file to be copied: from where, to where, how its source is opened for reading, and the tables that must be
    in it, of which the last is counted."""

    source: Path
    target: Path
    open_source: Callable[[Path], AbstractContextManager[sqlite3.Connection]]
    tables: tuple[str, str]


def back_up_ledger(url: str, target: Path, *, is_replacing: bool = False) -> Backup:
    """Copy the ledger at `url` to the file `target`, and its emails to `find_emails(target)`, where that ledger looks
    for them; both readable by their owner alone. Of the two there may be one.

    The copy can be opened as a ledger: what was being sent at its moment is unknown in it. Raises ConfigurationError
    when `url` is no file's, or a target cannot be written, or is there already and not `is_replacing`, or there is
    nothing to take its place; LockedError while another backup writes it; LedgerError when the ledger cannot be read.
    Nothing is at a target then that was not there before, unless the disk failed between the one's publishing and the
    other's.
    """
    place = parse_place(url)
    if not isinstance(place, Path):
        raise ConfigurationError(f"the ledger {show_place(place)} is in PostgreSQL: back it up with pg_dump")
    ledger = place.resolve()
    target = target.absolute()
    files = (
        _FileCopy(ledger, target, _open_ledger_file, ("meta", "entry")),
        _FileCopy(find_emails(ledger).resolve(), find_emails(target), _open_emails_file, ("email_meta", "email")),
    )
    copies = [each for each in files if each.source.is_file()]
    if not copies:
        raise build_missing(str(place))
    try:
        for each in files:
            _check_target([file.source for file in files], each, is_replacing)
        with ExitStack() as stack:
            partials = {each: stack.enter_context(PartialFile(each.target)) for each in copies}
            numbers = {each.tables[-1]: _copy_pages(each, partials[each].path) for each in copies}
            _take_in_journal(ledger)
            for partial in reversed(partials.values()):  # the emails first: a reader finds them beside a ledger
                partial.put_in_place() if is_replacing else partial.put_in_free_place()
    except OSError as error:
        raise ConfigurationError(f"{target} cannot be written: {error.strerror}") from None
    return Backup(numbers.get("entry"), numbers.get("email"))


def _check_target(sources: list[Path], copy: _FileCopy, is_replacing: bool) -> None:
    target = copy.target
    if any(_belongs_to(source, target.resolve()) for source in sources):
        raise ConfigurationError(f"{target} is a part of the ledger itself: name another file")
    if target.exists() and not target.is_file():
        raise ConfigurationError(f"{target} is no file, and is left as it is: name a file")
    if os.path.lexists(target) and not copy.source.is_file():  # it would be taken for part of the copy
        raise ConfigurationError(
            f"{target} exists, and the file that it would be a copy of, {copy.source}, does not: move "
            "it away, or name another file"
        )
    if os.path.lexists(target) and not is_replacing:
        raise ConfigurationError(f"{target} is there already: name another file, or say that it is to be replaced")
    for suffix in BESIDE:  # SQLite would take it for part of the copy
        if Path(f"{target}{suffix}").exists():
            raise ConfigurationError(f"{target} is in use as a database, as {target}{suffix} shows: name another file")


def _belongs_to(source: Path, target: Path) -> bool:
    """Return whether it is the source, or a journal or a lock of it, there or not."""
    is_lock = target.parent == source.parent and target.name.startswith(f"{source.name}.") and target.suffix == ".lock"
    return is_lock or target in {source.with_name(source.name + suffix) for suffix in ("", *BESIDE)}


def _take_in_journal(source: Path) -> None:
    """If the ledger's writer ended while it was copied, its journal stayed, since it was not the last to close."""
    if source.is_file():
        with suppress(LockedError), hold_lock(find_lock(source)), closing(sqlite3.connect(source)) as ledger:
            ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")


@contextmanager
def _open_ledger_file(path: Path) -> Iterator[sqlite3.Connection]:
    """Alone and under the lock where that is free, else as one who only reads beside the lock's holder."""
    with ExitStack() as stack:
        try:
            stack.enter_context(hold_lock(find_lock(path)))
            mode = "rw"
        except LockedError:
            mode = "ro"
        opened = sqlite3.connect(f"{path.as_uri()}?mode={mode}", uri=True, timeout=BUSY_S)
        yield stack.enter_context(closing(opened))


@contextmanager
def _open_emails_file(path: Path) -> Iterator[sqlite3.Connection]:
    """Beside others; for writing, since what a killed process left half written is undone at once."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=BUSY_S)) as opened:
        yield opened


def _copy_pages(file: _FileCopy, partial: Path) -> int:
    """Copy in one step, so in one read transaction; what comes out is checked, and needs no WAL to be read. Returns how
    many lines the last of the tables has. A journal that a killed copy left is SQLite's own to take away.

    Raises LedgerError when the source cannot be read or is damaged.
    """
    try:
        with (
            file.open_source(file.source) as source,
            closing(sqlite3.connect(partial, isolation_level=None)) as copy,
        ):
            source.backup(copy, pages=-1)
            copy.execute("PRAGMA journal_mode = DELETE")
            verdict = copy.execute("PRAGMA quick_check(1)").fetchone()[0].splitlines()[-1]
            if verdict != "ok":
                raise LedgerError(
                    f"the ledger {file.source} is damaged ({verdict}), and its copy was deleted: restore an "
                    "earlier backup (connector ledger restore)"
                )
            numbers = [copy.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in file.tables]  # noqa: S608 - constants only
            return int(numbers[-1])
    except sqlite3.Error as error:
        said = say_safely(error)
        raise LedgerError(f"the ledger {file.source} cannot be copied to {file.target.parent}: {said}") from None
