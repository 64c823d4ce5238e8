"""Copies a ledger, and the emails beside it, to a file each: whole, of one moment, also while a run goes on.

Why that is safe while another process holds the ledger's lock: the fault of SQLite up to 3.51.2 takes two connections
that write or checkpoint at the same instant, and a connection opened with `mode=ro` does neither. Its file is open for
reading alone, so that it can commit nothing; SQLite makes checkpoints at a commit, which it has none of, and at the
closing of the last connection, for which it would have to lock that file exclusively, and the kernel grants no such
lock on a file open for reading. That holds when the writer dies meanwhile, and when the next one opens the ledger. All
it leaves to the writer is a longer WAL: no page that the copy still needs is overwritten before it is done.

Where nobody holds the lock, the copy takes it, and its connection is the only one. The emails have no WAL, and their
writers wait until they are copied.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from connector.errors import ConfigurationError, LockedError
from connector.ledger.copying import BESIDE, FileCopy, drop_copy, make_copy, publish_copy
from connector.ledger.emails.place import find_emails
from connector.ledger.faults import build_missing
from connector.ledger.lock import hold_lock
from connector.ledger.place import parse_place, show_place
from connector.ledger.sqlite_store import find_lock

BUSY_S = 10.0  # a writer that opens or closes the ledger keeps others out for as long as a checkpoint takes


@dataclass(frozen=True, slots=True)
class Backup:
    """How many entries of the ledger, and how many emails, are in the copies; None: there was nothing to copy."""

    entries: int | None
    emails: int | None


def back_up_ledger(url: str, target: Path, *, is_replacing: bool = False) -> Backup:
    """Copy the ledger at `url` to the file `target`, and its emails to `find_emails(target)`, where that ledger looks
    for them; both readable by their owner alone. Of the two there may be one.

    The copy can be opened as a ledger: what was being sent at its moment is unknown in it. Raises ConfigurationError
    when `url` is no file's, or a target cannot be written, or is there already and not `is_replacing`, or there is
    nothing to take its place; LedgerError when the ledger cannot be read; nothing is at a target then that was not
    there before, unless the disk failed between the one's publishing and the other's.
    """
    place = parse_place(url)
    if not isinstance(place, Path):
        raise ConfigurationError(f"the ledger {show_place(place)} is in PostgreSQL: back it up with pg_dump")
    ledger = place.resolve()
    target = target.absolute()
    files = (
        FileCopy(ledger, target, _open_ledger, ("meta", "entry")),
        FileCopy(find_emails(ledger).resolve(), find_emails(target), _open_emails, ("email_meta", "email")),
    )
    copies = [each for each in files if each.source.is_file()]
    if not copies:
        raise build_missing(str(place))
    _check_targets(files, is_replacing)
    try:
        numbers = {each.tables[-1]: make_copy(each) for each in copies}
        _take_in_journal(ledger)
        _check_targets(files, is_replacing)
        for each in reversed(copies):  # the emails first: who looks for them finds them beside a ledger
            publish_copy(each)
    finally:
        for each in copies:
            drop_copy(each)
    return Backup(numbers.get("entry"), numbers.get("email"))


def _check_targets(files: tuple[FileCopy, ...], is_replacing: bool) -> None:
    for each in files:
        try:
            _check_target([file.source for file in files], each, is_replacing)
        except OSError as error:
            raise ConfigurationError(f"{each.target} cannot be written: {error.strerror}") from None


def _check_target(sources: list[Path], copy: FileCopy, is_replacing: bool) -> None:
    target = copy.target
    for source in sources:
        is_source = target.exists() and source.exists() and target.samefile(source)  # also under another name
        if is_source or _belongs_to(source, target.resolve()):
            raise ConfigurationError(f"{target} is of the ledger itself: name another file")
    if target.is_dir():
        raise ConfigurationError(f"{target} is a folder: name a file in it")
    if os.path.lexists(target) and not copy.source.is_file():  # it would be taken for part of the copy
        raise ConfigurationError(
            f"{target} is there, and {copy.source}, whose copy it would seem, is not: take it away"
        )
    if os.path.lexists(target) and not is_replacing:
        raise ConfigurationError(f"{target} is there already: name another file, or say that it is to be replaced")
    for suffix in BESIDE:  # SQLite would take it for part of the copy
        if Path(f"{target}{suffix}").exists():
            raise ConfigurationError(f"{target} is in use as a database, as {target}{suffix} shows: name another file")


def _belongs_to(source: Path, target: Path) -> bool:
    """Whether it is the source, or a journal or a lock of it, there or not."""
    is_lock = target.parent == source.parent and target.name.startswith(f"{source.name}.") and target.suffix == ".lock"
    return is_lock or target in {source.with_name(source.name + suffix) for suffix in ("", *BESIDE)}


def _take_in_journal(source: Path) -> None:
    """If the ledger's writer ended while it was copied, its journal stayed, since it was not the last to close."""
    if source.is_file():
        with suppress(LockedError), hold_lock(find_lock(source)), closing(sqlite3.connect(source)) as ledger:
            ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")


@contextmanager
def _open_ledger(path: Path) -> Iterator[sqlite3.Connection]:
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
def _open_emails(path: Path) -> Iterator[sqlite3.Connection]:
    """Beside others; for writing, since what a killed process left half written is undone at once."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=BUSY_S)) as opened:
        yield opened
