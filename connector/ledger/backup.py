"""Backups of a ledger in SQLite and of the emails beside it, and their restore.

Each file is copied whole, as it is at one moment, while a run goes on. That is safe while another process holds the
ledger's lock: SQLite up to 3.51.2 corrupts a WAL only if two connections write or checkpoint at the same instant, and a
connection with `mode=ro` does neither. SQLite makes checkpoints at a commit, and when the last connection closes. The
reading connection commits nothing, and the kernel refuses it the exclusive lock that the closing would need. Where the
lock is free, a backup takes the lock. The emails have no WAL, and their writers wait until the emails are copied.

A restore writes each file in one transaction, so that a kill leaves the old content or the new. A backup may be older
than the emails that were sent since. So a restore closes the campaigns, and `EmailLog.find_campaign` refuses them, and
campaigns that the backup does not know, until a person reopens them.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from glob import escape
from pathlib import Path

from connector.atomic_file import PartialFile
from connector.databases import parse_place, show_place
from connector.driver_errors import describe_error
from connector.errors import ConfigurationError, LedgerError, LockedError
from connector.ledger.opening import BUSY_S, open_emails
from connector.ledger.schema import campaign, email, email_meta, is_current, is_upgradable, meta
from connector.ledger.sqlite import find_emails, find_lock, hold_lock, make_file, resolve_file
from connector.ledger.store import build_missing

_BESIDE = ("-wal", "-shm", "-journal")  # suffixes of the files that SQLite keeps beside a database


@dataclass(frozen=True, slots=True)
class Backup:
    """The number of copied entries and of copied emails (None: the file does not exist), and of closed campaigns."""

    entries: int | None
    emails: int | None
    campaigns: int = 0


def back_up_ledger(url: str, target: Path, *, is_replacing: bool = False) -> Backup:
    """Copy the ledger at `url` to the file `target`, and its emails to `find_emails(target)`, readable by their owner
    alone. One of the two may be missing.

    The copy can be opened as a ledger; creates that were in flight are unknown in it. Raises ConfigurationError if the
    ledger is not a file, or a target cannot be written, or exists and not `is_replacing`; LockedError while another
    backup writes the target; LedgerError if the ledger cannot be read. After an error the targets are as they were,
    unless the disk failed between the publishing of the two.
    """
    place = parse_place(url)
    if not isinstance(place, Path):
        raise ConfigurationError(f"the ledger {show_place(place)} is in PostgreSQL: back it up with pg_dump")
    ledger, target = place.resolve(), target.absolute()
    sources, targets = (ledger, find_emails(ledger).resolve()), (target, find_emails(target))
    if not any(source.is_file() for source in sources):
        raise build_missing(str(place))
    counts, partials = list[int | None](), list[PartialFile]()
    try:
        for source, path in zip(sources, targets, strict=True):
            _check_target(sources, path, is_replacing=is_replacing, is_copied=source.is_file())
        with ExitStack() as stack:
            for source, path in zip(sources, targets, strict=True):
                if source.is_file():
                    partials.append(stack.enter_context(PartialFile(path)))
                    counts.append(_copy_pages(source, partials[-1].path, is_ledger=source == ledger))
                else:
                    counts.append(None)
            for partial in reversed(partials):  # the emails first: a reader finds them beside a ledger
                partial.publish(is_new=not is_replacing)
    except OSError as error:
        raise ConfigurationError(f"{target} cannot be written: {error.strerror}") from None
    return Backup(counts[0], counts[1])


def _check_target(sources: tuple[Path, ...], target: Path, *, is_replacing: bool, is_copied: bool) -> None:
    resolved = target.resolve()
    for source in sources:
        is_lock = resolved.name.startswith(f"{source.name}.") and resolved.suffix == ".lock"  # of a campaign, too
        is_beside = resolved in {source.with_name(source.name + suffix) for suffix in ("", *_BESIDE)}
        if is_beside or (is_lock and resolved.parent == source.parent):
            raise ConfigurationError(f"{target} is a part of the ledger itself: name another file")
    if target.exists() and not target.is_file():
        raise ConfigurationError(f"{target} is no file, and is left as it is: name a file")
    if os.path.lexists(target) and not is_copied:  # SQLite would read the file as a part of the copy
        raise ConfigurationError(f"{target} exists, and there is nothing to replace it: move it away")
    if os.path.lexists(target) and not is_replacing:
        raise ConfigurationError(f"{target} is there already: name another file, or say that it is to be replaced")
    for suffix in _BESIDE:  # SQLite would read the old file as a part of the copy
        if Path(f"{target}{suffix}").exists():
            raise ConfigurationError(f"{target} is in use as a database, as {target}{suffix} shows: name another file")


def _copy_pages(source: Path, partial: Path, *, is_ledger: bool) -> int:
    """Copy a database in one read transaction, check the copy, and return the number of its entries or emails. The copy
    needs no WAL.

    Raises LedgerError if the source cannot be read or is damaged.
    """
    mode = "rw"  # the emails: SQLite rolls back at once what a killed process has half written
    try:
        with ExitStack() as stack:
            if is_ledger:
                try:
                    stack.enter_context(hold_lock(find_lock(source)))
                except LockedError:
                    mode = "ro"
            opened = sqlite3.connect(f"{source.as_uri()}?mode={mode}", uri=True, timeout=BUSY_S)
            original = stack.enter_context(closing(opened))
            copy = stack.enter_context(closing(sqlite3.connect(partial, isolation_level=None)))
            original.backup(copy, pages=-1)
            copy.execute("PRAGMA journal_mode = DELETE")
            verdict = copy.execute("PRAGMA quick_check(1)").fetchone()[0].splitlines()[-1]
            if verdict != "ok":
                raise LedgerError(
                    f"the ledger {source} is damaged ({verdict}), and its copy was deleted: restore an "
                    "earlier backup (connector ledger restore)"
                )
            return _count_rows(copy, is_ledger=is_ledger)
    except sqlite3.Error as error:
        said = describe_error(error)
        raise LedgerError(f"the ledger {source} cannot be copied to {partial.parent}: {said}") from None


def _count_rows(database: sqlite3.Connection, *, is_ledger: bool) -> int:
    meta, table = ("meta", "entry") if is_ledger else ("email_meta", "email")
    database.execute(f"SELECT count(*) FROM {meta}")  # noqa: S608 - constants only
    return int(database.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608


def restore_ledger(url: str, source: Path, *, at: datetime) -> Backup:
    """Overwrite the ledger at `url` with the backup `source`, and its emails with those beside the backup. `at` is an
    aware time.

    Raises ConfigurationError if the ledger is not a file, or `source` is not a ledger of
    this version; LockedError while a run has the ledger, or a campaign whose emails are overwritten; LedgerError if the
    ledger cannot be written. After an error the ledger is as it was. Without emails in the backup, the present emails
    stay as they are, and a campaign goes on.
    """
    place = parse_place(url)
    if not isinstance(place, Path):
        raise ConfigurationError(
            f"the ledger {show_place(place)} is in PostgreSQL: restore it with pg_restore. It does "
            "not know then which emails were sent since: check that before you send a campaign again"
        )
    ledger = resolve_file(place)
    source = source.absolute()
    if ledger.exists() and source.exists() and source.samefile(ledger):
        raise ConfigurationError(f"{source} is the ledger itself: name a backup of it")
    emails_source = find_emails(source)
    if not source.exists() and not emails_source.exists():
        raise ConfigurationError(f"{source} does not exist: name the file that `connector ledger backup` wrote")
    entries = _check_backup(source, is_ledger=True) if source.exists() else None
    emails = _check_backup(emails_source, is_ledger=False) if emails_source.exists() else None
    with hold_lock(find_lock(ledger)):
        campaigns = _restore_emails(url, emails_source if emails is not None else None, at)
        if entries is not None:
            make_file(ledger)
            with (
                _explained(ledger),
                closing(sqlite3.connect(f"{source.as_uri()}?mode=ro", uri=True)) as backup,
                closing(sqlite3.connect(ledger, timeout=BUSY_S)) as copy,
            ):
                backup.backup(copy, pages=-1)  # in one transaction
    return Backup(entries, emails, campaigns)


def _check_backup(path: Path, *, is_ledger: bool) -> int:
    """Return the number of entries or emails. Raises ConfigurationError if the file is not a backup of this version."""
    if not path.is_file():  # a pipe would be waited for without end
        raise ConfigurationError(f"{path} is no file: name the one that `connector ledger backup` wrote")
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as backup:
            if backup.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
                raise ConfigurationError(f"{path} is damaged: restore another backup. Nothing was changed")
            number = _count_rows(backup, is_ledger=is_ledger)
            table = meta if is_ledger else email_meta
            stored = dict(backup.execute(f"SELECT name, value FROM {table.name}"))  # noqa: S608
    except sqlite3.Error as error:
        raise ConfigurationError(
            f"{path} is no backup of a ledger ({describe_error(error)}). Nothing was changed"
        ) from None
    if not is_current(stored, table) and not (is_ledger and is_upgradable(stored)):
        raise ConfigurationError(
            f"{path} was written by another version of the connector: restore it with that one. Nothing was changed"
        )
    return number


def _restore_emails(url: str, source: Path | None, at: datetime) -> int:
    """Overwrite the emails with those of the backup, close the campaigns, and return their number.

    Without emails in the backup, the present emails stay, because they are newer. If there are no emails at all, a mark
    records that campaigns may have been sent.
    """
    with open_emails(url) as log, _explained(Path(log.name)):
        raw = log.connection.connection.dbapi_connection
        assert isinstance(raw, sqlite3.Connection)  # noqa: S101 - the URL is a file's
        is_knowing = source is None and bool(raw.execute("SELECT count(*) FROM campaign").fetchone()[0])
        if is_knowing:
            return 0
        if source is not None:
            raw.execute("ATTACH ? AS backup", (str(source),))
        raw.execute("BEGIN IMMEDIATE")  # a campaign that begins now is refused before it writes
        try:
            with ExitStack() as held:
                for lock in sorted(Path(log.name).parent.glob(f"{escape(Path(log.name).name)}.*.lock")):
                    held.enter_context(hold_lock(lock, name="a campaign of this ledger"))
                if source is not None:
                    raw.execute("DELETE FROM email")
                    raw.execute("DELETE FROM campaign")
                    for table in (campaign, email):
                        names = ", ".join(column.name for column in table.c)
                        raw.execute(f"INSERT INTO {table.name} ({names}) SELECT {names} FROM backup.{table.name}")  # noqa: S608
                    raw.execute("UPDATE campaign SET is_closed = 1")
                raw.execute(
                    "INSERT OR REPLACE INTO email_meta (name, value) VALUES ('restored_at', ?)",
                    (at.isoformat(timespec="seconds"),),
                )
                number = int(raw.execute("SELECT count(*) FROM campaign").fetchone()[0])
            raw.execute("COMMIT")
        except BaseException:
            raw.execute("ROLLBACK")
            raise
        return number


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise LedgerError(
            f"the ledger {path} cannot be written over ({describe_error(error)}): move it and the files beside it "
            "(-wal, -shm, -journal) away, and restore again"
        ) from None
