"""Backups of a ledger in SQLite and of the emails beside it, and their restore.

Each file is copied whole, as it is at one moment, while a run goes on. That is safe while another process holds the
ledger's lock: SQLite up to 3.51.2 corrupts a WAL only if two connections write or checkpoint at the same instant, and a
connection with `mode=ro` does neither. SQLite makes checkpoints at a commit, and when the last connection closes. The
reading connection commits nothing, and the kernel refuses it the exclusive lock that the closing would need. Where the
lock is free, a backup takes the lock. The emails have no WAL, and their writers wait until the emails are copied.

Neither a backup nor a restore overwrites a file. A backup may be older than the emails that were sent since. So a
restore closes the campaigns, and `EmailLog.find_campaign` refuses them, and campaigns that the backup does not know,
until a person reopens them.
"""

import os
import sqlite3
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sqlalchemy import URL, Connection, MetaData, Table, func, insert, inspect, select, text

from connector.atomic_file import PartialFile
from connector.databases import parse_ledger_location, show_ledger_location
from connector.driver_errors import describe_error
from connector.errors import ConfigurationError, LedgerError, LockedError
from connector.ledger.opening import BUSY_S, open_emails, open_existing_emails, open_ledger
from connector.ledger.schema import (
    MOVED_TO,
    create_tables,
    email,
    email_meta,
    emails_metadata,
    entry,
    has_emails,
    is_current,
    is_upgradable,
    meta,
    metadata,
)
from connector.ledger.sqlite import find_emails, find_lock, hold_lock, resolve_file
from connector.ledger.store import build_missing

_BESIDE = ("", "-wal", "-shm", "-journal")  # suffixes of a database, and of the files that SQLite keeps beside it


@dataclass(frozen=True, slots=True)
class Backup:
    """The number of copied entries and of copied emails (None: the file does not exist)."""

    entries: int | None
    emails: int | None


def back_up_ledger(url: str, target: Path) -> Backup:
    """Copy the ledger at `url` to the new file `target`, and its emails to `find_emails(target)`, readable by their
    owner alone. One of the two may be missing.

    The copy can be opened as a ledger; creates that were in flight are unknown in it. Raises ConfigurationError if the
    ledger is not a file, or a target exists or cannot be written; LedgerError if the ledger cannot be read.
    """
    place = parse_ledger_location(url)
    if not isinstance(place, Path):
        raise ConfigurationError(f"the ledger {show_ledger_location(place)} is in PostgreSQL: back it up with pg_dump")
    ledger, target = place.resolve(), target.absolute()
    sources, targets = (ledger, find_emails(ledger).resolve()), (target, find_emails(target))
    if not any(source.is_file() for source in sources):
        raise build_missing(str(place))
    if target.resolve() in sources:
        raise ConfigurationError(f"{target} is the ledger itself: name another file")
    _refuse_existing(targets)
    counts, partials = list[int | None](), list[PartialFile]()
    with ExitStack() as stack:
        mode = "rw"  # the emails: SQLite rolls back at once what a killed process has half written
        for source, path in zip(sources, targets, strict=True):
            if source.is_file():
                partials.append(stack.enter_context(PartialFile(path)))
                if source == ledger:
                    try:
                        stack.enter_context(hold_lock(find_lock(source)))
                    except LockedError:
                        mode = "ro"
                counts.append(_copy_pages(source, partials[-1].path, mode if source == ledger else "rw"))
            else:
                counts.append(None)
        for partial in reversed(partials):  # the emails first: a reader finds them beside a ledger
            partial.publish(is_new=True)
    return Backup(*counts)


def _refuse_existing(targets: tuple[Path, Path]) -> None:
    """Raise ConfigurationError if a target exists, or a file beside it that SQLite would read as a part of it."""
    for path in (target.with_name(target.name + suffix) for target in targets for suffix in _BESIDE):
        if os.path.lexists(path):
            raise ConfigurationError(f"{path} is there already, and no file is overwritten: move it away")


def _copy_pages(source: Path, partial: Path, mode: str) -> int:
    """Copy a database in one read transaction, check the copy, and return the number of its entries or emails. The copy
    needs no WAL.

    Raises LedgerError if the source cannot be read or is damaged.
    """
    try:
        with (
            closing(sqlite3.connect(f"{source.as_uri()}?mode={mode}", uri=True, timeout=BUSY_S)) as original,
            closing(sqlite3.connect(partial, isolation_level=None)) as copy,
        ):
            original.backup(copy, pages=-1)
            copy.execute("PRAGMA journal_mode = DELETE")
            found = copy.execute("PRAGMA quick_check(1)").fetchone()[0].splitlines()[-1]
            if found != "ok":
                raise LedgerError(f"the ledger {source} is damaged ({found}), and its copy was deleted")
            is_ledger = copy.execute("SELECT 1 FROM sqlite_master WHERE name = 'entry'").fetchone() is not None
            query = "SELECT count(*) FROM entry, meta" if is_ledger else "SELECT count(*) FROM email, email_meta"
            copy.execute(query)  # each table is there
            return int(copy.execute(f"SELECT count(*) FROM {'entry' if is_ledger else 'email'}").fetchone()[0])  # noqa: S608
    except sqlite3.Error as error:
        words = describe_error(error)
        raise LedgerError(f"the ledger {source} cannot be copied to {partial.parent}: {words}") from None


def restore_ledger(url: str, source: Path, *, at: datetime) -> Backup:
    """Copy the backup `source` to the ledger at `url`, which must not exist, and the emails beside the backup. `at` is
    an aware time. All campaigns are closed.

    Raises ConfigurationError if the ledger is not a file or exists, or `source` is not a ledger of this version, and
    LedgerError if the ledger cannot be written.
    """
    place = parse_ledger_location(url)
    if not isinstance(place, Path):
        raise ConfigurationError(
            f"the ledger {show_ledger_location(place)} is in PostgreSQL: restore it with pg_restore. It does "
            "not know then which emails were sent since: check that before you send a campaign again"
        )
    source, ledger = source.absolute(), resolve_file(place)
    sources, targets = (source, find_emails(source)), (ledger, find_emails(ledger))
    if not any(path.is_file() for path in sources):  # a pipe would be waited for without end
        raise ConfigurationError(f"{source} is not a file: name the file that `connector ledger backup` wrote")
    _refuse_existing(targets)
    counts, partials = list[int | None](), list[PartialFile]()
    with ExitStack() as stack:
        for path, target, table in zip(sources, targets, (meta, email_meta), strict=True):
            if not path.is_file():
                counts.append(None)
                continue
            partials.append(stack.enter_context(PartialFile(target)))
            try:
                counts.append(_copy_pages(path, partials[-1].path, "ro"))
            except LedgerError as error:
                raise ConfigurationError(f"{path} is not a backup that can be restored: {error}") from None
            with closing(sqlite3.connect(partials[-1].path)) as copy, copy:
                stored = dict(copy.execute(f"SELECT name, value FROM {table.name}"))  # noqa: S608
                if not is_current(stored, table) and not (table is meta and is_upgradable(stored)):
                    raise ConfigurationError(
                        f"{path} was written by another version of the connector: restore it with that version"
                    )
                if table is email_meta:
                    copy.execute("UPDATE campaign SET is_closed = 1")
                    copy.execute(_MARK_RESTORED, (at.isoformat(timespec="seconds"),))
        if counts[1] is None:  # campaigns may have been sent that the backup does not know
            with open_emails(url) as log, log.transaction():
                log.connection.exec_driver_sql(_MARK_RESTORED, (at.isoformat(timespec="seconds"),))
        for partial in reversed(partials):  # the emails first, so that no campaign is open beside the ledger
            partial.publish(is_new=True)
    return Backup(*counts)


_MARK_RESTORED = "INSERT OR REPLACE INTO email_meta (name, value) VALUES ('restored_at', ?)"


# A ledger that moves to PostgreSQL


_BATCH_ROWS = 5000


def copy_ledger(url: str, target_url: str, *, at: datetime) -> tuple[int, int]:
    """Copy the ledger at `url`, a SQLite file, to the empty ledger at `target_url` in PostgreSQL; `at` is aware. Return
    the number of entries and of emails.

    All rows are copied in one transaction. Only then is the copied ledger closed. If a kill comes between, the copy can
    be deleted and made again. Raises ConfigurationError if a URL is of another kind or the target is not empty,
    LockedError while a run holds one of the two, and LedgerError if one of the two cannot be used.
    """
    source_place, target_place = parse_ledger_location(url), parse_ledger_location(target_url)
    if not isinstance(source_place, Path):
        raise ConfigurationError(
            f"the ledger {show_ledger_location(source_place)} is in PostgreSQL already: copy it with pg_dump and "
            "pg_restore"
        )
    if not isinstance(target_place, URL):
        raise ConfigurationError(
            f"{target_url} is a file: write a URL such as postgresql://user@host/database. To copy a ledger to a file, "
            "use connector ledger backup"
        )
    if target_place.password:
        raise ConfigurationError(
            "URL has a password, and arguments are visible in process lists: put the password into PGPASSWORD or "
            "~/.pgpass, and remove it from URL"
        )
    if not source_place.exists():
        raise build_missing(str(source_place))
    name = show_ledger_location(target_place)
    with (
        open_ledger(url, may_make=False) as source,
        open_existing_emails(url) as log,
        open_ledger(target_url) as target,
    ):
        sources = [source.store] if log is None else [source.store, log.store]
        with target.store.transaction():
            connection = target.store.connection
            if not has_emails(connection, name):
                create_tables(connection, name, emails_metadata, email_meta)
            _refuse_rows(connection, name)
            for store, tables in zip(sources, (metadata, emails_metadata), strict=False):
                with store.transaction():
                    _copy_tables(store.connection, connection, tables)
            entries = connection.execute(select(func.count()).select_from(entry)).scalar_one()
            emails = connection.execute(select(func.count()).select_from(email)).scalar_one()
        moved = f"{name}, on {at:%Y-%m-%d}"
        for store, table in zip(sources, (meta, email_meta), strict=False):
            with store.transaction():
                store.connection.execute(insert(table).values(name=MOVED_TO, value=moved))
    return entries, emails


def _refuse_rows(connection: Connection, name: str) -> None:
    for table in (*metadata.sorted_tables, *emails_metadata.sorted_tables):
        if table not in (meta, email_meta) and connection.execute(select(table).limit(1)).first() is not None:
            raise ConfigurationError(
                f"the ledger {name} has rows in the table {table.name}. Nothing was copied. Name an empty database or "
                "schema (postgresql://user@host/database?options=-csearch_path%3Dschema)"
            )


def _copy_tables(source: Connection, target: Connection, tables: MetaData) -> None:
    """Copy all rows, and let the target's keys continue after the copied keys."""
    existing = set(inspect(source).get_table_names())
    for table in tables.sorted_tables:
        if table in (meta, email_meta) or table.name not in existing:
            continue
        rows = source.execution_options(yield_per=_BATCH_ROWS).execute(select(table)).mappings()
        for batch in rows.partitions(_BATCH_ROWS):
            target.execute(insert(table), [dict(row) for row in batch])
        _continue_keys(target, table)
    if tables is emails_metadata:  # a restore has closed campaigns at this time
        copied = select(email_meta).where(email_meta.c.name == "restored_at")
        for row in source.execute(copied).mappings():
            target.execute(insert(email_meta).values(**row))


def _continue_keys(target: Connection, table: Table) -> None:
    column = table.autoincrement_column
    if column is not None:
        last = target.execute(select(func.max(column))).scalar_one()
        sequence = {"table": table.name, "column": column.name, "next": (last or 0) + 1}
        target.execute(text("SELECT setval(pg_get_serial_sequence(:table, :column), :next, false)"), sequence)
