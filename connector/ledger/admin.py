"""Copies of a ledger: in a file (`back_up_ledger`, with the emails beside it), or a private one for a plan. Each is
whole, of one moment, and made while a run goes on.

Why that is safe while another process holds the ledger's lock: the fault of SQLite up to 3.51.2 takes two connections
that write or checkpoint at the same instant, and a connection opened with `mode=ro` does neither. Its file is open for
reading alone, so that it can commit nothing; SQLite makes checkpoints at a commit, which it has none of, and at the
closing of the last connection, for which it would have to lock that file exclusively, and the kernel grants no such
lock on a file open for reading. That holds when the writer dies meanwhile, and when the next one opens the ledger. All
it leaves to the writer is a longer WAL: no page that the copy still needs is overwritten before it is done.

Where the lock is free, a backup takes it, and its connection is the only one. The emails have no WAL, and their writers
wait until they are copied. A private copy takes no lock: of a file that no process has open nothing but the file itself
is there, and it is read as one that no process changes, since SQLite would make files of its own beside it otherwise;
whether a process did change it meanwhile, shows.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL, Connection, Select, Table, insert, inspect, select

from connector.atomic_file import PartialFile
from connector.databases import parse_place, show_place
from connector.driver_words import say_safely
from connector.errors import ConfigurationError, LedgerError, LockedError, RunAborted
from connector.ledger import schema
from connector.ledger.beside import BUSY_S, connect_file, has_files_beside
from connector.ledger.entries import Ledger
from connector.ledger.opening import wrap_connection
from connector.ledger.postgres import read_server
from connector.ledger.sqlite import find_emails, find_lock, hold_lock
from connector.ledger.store import build_missing, keep_text

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


# A private copy, for a plan: a temporary database of SQLite's own, without a name; it goes with its process


@contextmanager
def open_private_copy(url: str, account: str, is_stopped: Callable[[], bool] = lambda: False) -> Iterator[Ledger]:
    """Yield a private ledger with what the ledger at `url` now knows of `account`; empty if `url` has no ledger.

    It may be written like any other: all that is written is lost when the context ends. The file or server at `url` is
    only read. Raises LedgerError when that cannot be read, ConfigurationError when the URL is invalid or its driver is
    missing, RunAborted when `is_stopped` meanwhile.
    """
    place = parse_place(url)
    name = show_place(place)
    with closing(sqlite3.connect("", check_same_thread=False, isolation_level=None)) as nameless:
        nameless.execute(_CACHE)
        if isinstance(place, Path):
            _copy_file(place, nameless)
        with closing(connect_file(nameless)) as connection:
            ledger = wrap_connection(connection, f"a copy of {name}")
            if isinstance(place, URL):
                _copy_server(place, name, account, ledger, is_stopped)
            yield ledger


def _copy_file(path: Path, copy: sqlite3.Connection) -> None:
    if not path.exists():
        return
    try:
        for _ in range(_TRIES):
            if has_files_beside(path):
                _copy_into(path, "mode=ro", copy)
                return
            before = _describe_file(path)
            _copy_into(path, "mode=ro&immutable=1", copy)
            if _describe_file(path) == before:
                return
    except (sqlite3.Error, OSError) as error:
        raise LedgerError(f"the ledger {path} cannot be read: {error}") from None
    raise LedgerError(
        f"the ledger {path} changes each time that it is read: wait until the process that writes "
        "it has ended, and run again"
    )


def _describe_file(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _copy_into(path: Path, how: str, copy: sqlite3.Connection) -> None:
    """All in one step, so in one read transaction."""
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?{how}", uri=True, timeout=BUSY_S)) as ledger:
        ledger.backup(copy, pages=-1)


def _copy_server(url: URL, name: str, account: str, ledger: Ledger, is_stopped: Callable[[], bool]) -> None:
    """Copy the account's lines, and all runs and cursors."""
    of_account = select(schema.base.c.base_key).where(schema.base.c.account == keep_text(account))
    with read_server(url) as server:
        if not inspect(server).has_table("meta"):
            return
        schema.check_version(server, name)
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
