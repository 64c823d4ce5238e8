"""Backs up and restores a ledger in SQLite and its emails, and copies a ledger to PostgreSQL.

A backup contains the state of the ledger at one moment, even if a run writes the ledger meanwhile. If the ledger's lock
is free, the backup takes the lock. If another process holds the lock, the backup opens the ledger with `mode=ro`, so
that the backup cannot damage the ledger. SQLite up to 3.51.2 corrupts a WAL (write-ahead log) only if two connections
write or checkpoint at the same instant. The backup's connection does not write. SQLite makes a checkpoint at a commit,
and when the last connection closes. The backup's connection makes no commit. When the backup's connection closes, the
kernel refuses the exclusive lock that a checkpoint needs. The file of the emails has no WAL. Processes that write
emails wait until the file is copied.

Neither a backup nor a restore overwrites a file. A run may have sent emails after the backup was made. So a restore
closes all campaigns, also campaigns that the backup does not have. `EmailLog.find_campaign` refuses a closed campaign
until a person reopens the campaign.
"""

import os
import sqlite3
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sqlalchemy import URL, Connection, MetaData, Table, func, insert, inspect, select, text

from connector.atomic_file import PartialFile
from connector.databases import format_ledger_location, parse_ledger_location
from connector.driver_errors import describe_error
from connector.errors import ConfigurationError, LedgerError, LockedError
from connector.ledger.opening import READ_BUSY_TIMEOUT_S, open_email_log, open_existing_email_log, open_ledger
from connector.ledger.schema import (
    MOVED_TO_KEY,
    create_tables,
    email,
    email_meta,
    emails_metadata,
    entry,
    has_email_tables,
    is_current,
    is_upgradable_version,
    meta,
    metadata,
)
from connector.ledger.sqlite import find_emails_file, find_lock_path, hold_lock, resolve_file
from connector.ledger.store import build_missing_ledger_error

# Suffixes of a database, and of the files that SQLite creates for the database.
_FILE_SUFFIXES = ("", "-wal", "-shm", "-journal")


@dataclass(frozen=True, slots=True)
class Backup:
    """The number of copied entries, and the number of copied emails. A number is None if the source lacks the file of
    the entries or of the emails."""

    entry_count: int | None
    email_count: int | None


def back_up_ledger(url: str, target: Path) -> Backup:
    """Copy the ledger at `url` to the new file `target`, and its emails to `find_emails_file(target)`. Only the owner
    can read the copies. Either the ledger or the emails may be missing.

    The copy can be opened as a ledger. Creates that were in flight are unknown in the copy. Raises ConfigurationError
    if the ledger is not a file, or a target exists or cannot be written. Raises LedgerError if the ledger cannot be
    read.
    """
    location = parse_ledger_location(url)
    if not isinstance(location, Path):
        raise ConfigurationError(
            f"the ledger {format_ledger_location(location)} is in PostgreSQL: back it up with pg_dump"
        )
    ledger_path, target = location.resolve(), target.absolute()
    source_paths = (ledger_path, find_emails_file(ledger_path).resolve())
    target_paths = (target, find_emails_file(target))
    if not any(source.is_file() for source in source_paths):
        raise build_missing_ledger_error(str(location))
    if target.resolve() in source_paths:
        raise ConfigurationError(f"{target} is the ledger itself: name another file")
    _refuse_existing_files(target_paths)
    row_counts, partial_files = list[int | None](), list[PartialFile]()
    with ExitStack() as stack:
        for source, path, table in zip(source_paths, target_paths, (meta, email_meta), strict=True):
            if not source.is_file():
                row_counts.append(None)
                continue
            partial_files.append(stack.enter_context(PartialFile(path)))
            sqlite_mode = "rw"  # with this mode, SQLite rolls back the unfinished transaction of a killed process
            if table is meta:
                try:
                    stack.enter_context(hold_lock(find_lock_path(source)))
                except LockedError:
                    sqlite_mode = "ro"
            row_counts.append(_copy_pages(source, partial_files[-1].path, sqlite_mode, table))
        for partial_file in reversed(partial_files):
            # The file of the emails is published before the ledger, so that a kill leaves no ledger without its emails.
            partial_file.publish(must_be_new=True)
    return Backup(*row_counts)


def _refuse_existing_files(target_paths: tuple[Path, Path]) -> None:
    """Raise ConfigurationError if a target exists. Also raise the error if a file such as `TARGET-wal` exists, because
    SQLite would read that file as a part of the target."""
    for path in (target.with_name(target.name + suffix) for target in target_paths for suffix in _FILE_SUFFIXES):
        if os.path.lexists(path):
            raise ConfigurationError(f"{path} exists already, and was not overwritten: move the file away")


def _copy_pages(source: Path, copy_path: Path, sqlite_mode: str, version_table: Table) -> int:
    """Copy a database in one read transaction, check the copy, and return the number of entries (if `version_table` is
    `meta`) or emails. The copy has no WAL.

    Raises LedgerError if the source cannot be read, is damaged, or lacks `version_table` or the counted table.
    """
    try:
        with (
            closing(
                sqlite3.connect(f"{source.as_uri()}?mode={sqlite_mode}", uri=True, timeout=READ_BUSY_TIMEOUT_S)
            ) as source_connection,
            closing(sqlite3.connect(copy_path, isolation_level=None)) as copy_connection,
        ):
            source_connection.backup(copy_connection, pages=-1)
            copy_connection.execute("PRAGMA journal_mode = DELETE")
            check_result = copy_connection.execute("PRAGMA quick_check(1)").fetchone()[0].splitlines()[-1]
            if check_result != "ok":
                raise LedgerError(f"the ledger {source} is damaged ({check_result}), and its copy was deleted")
            copy_connection.execute(f"SELECT value FROM {version_table.name}")  # noqa: S608 - fails without the table
            count_sql = f"SELECT count(*) FROM {(entry if version_table is meta else email).name}"  # noqa: S608
            return int(copy_connection.execute(count_sql).fetchone()[0])
    except sqlite3.Error as error:
        reason = describe_error(error)
        raise LedgerError(f"the ledger {source} cannot be copied to {copy_path.parent}: {reason}") from None


def restore_ledger(url: str, source: Path, *, restored_at: datetime) -> Backup:
    """Copy the backup `source` and its emails to a new ledger at `url`. In the new ledger, all campaigns are closed.
    `restored_at` is a time with a time zone.

    Raises ConfigurationError if the ledger is not a file, if the ledger exists, or if `source` is not a ledger
    that this version can read or upgrade. Raises LedgerError if the ledger cannot be written.
    """
    location = parse_ledger_location(url)
    if not isinstance(location, Path):
        raise ConfigurationError(
            f"the ledger {format_ledger_location(location)} is in PostgreSQL: restore it with pg_restore. The restored "
            "ledger does not have the emails that were sent after the backup. Before you send a campaign again, "
            "check who got these emails"
        )
    source, ledger_path = source.absolute(), resolve_file(location)
    source_paths, target_paths = (source, find_emails_file(source)), (ledger_path, find_emails_file(ledger_path))
    if not any(path.is_file() for path in source_paths):  # reading a pipe could wait without end
        raise ConfigurationError(f"{source} is not a file: name the file that `connector ledger backup` wrote")
    _refuse_existing_files(target_paths)
    row_counts, partial_files = list[int | None](), list[PartialFile]()
    with ExitStack() as stack:
        for path, target, table in zip(source_paths, target_paths, (meta, email_meta), strict=True):
            if not path.is_file():
                row_counts.append(None)
                continue
            partial_files.append(stack.enter_context(PartialFile(target)))
            try:
                row_counts.append(_copy_pages(path, partial_files[-1].path, "ro", table))
            except LedgerError as error:
                raise ConfigurationError(f"{path} is not a backup that can be restored: {error}") from None
            with closing(sqlite3.connect(partial_files[-1].path)) as copy_connection, copy_connection:
                stored_version = dict(copy_connection.execute(f"SELECT name, value FROM {table.name}"))  # noqa: S608
                if not is_current(stored_version, table) and not (
                    table is meta and is_upgradable_version(stored_version)
                ):
                    raise ConfigurationError(
                        f"{path} was written by another version of the connector: restore it with that version"
                    )
                if table is email_meta:
                    copy_connection.execute("UPDATE campaign SET is_closed = 1")
                    copy_connection.execute(_MARK_RESTORED_SQL, (restored_at.isoformat(timespec="seconds"),))
        if row_counts[1] is None:  # without a file of emails in the backup, every campaign counts as closed
            with open_email_log(url) as email_log, email_log.transaction() as connection:
                connection.exec_driver_sql(_MARK_RESTORED_SQL, (restored_at.isoformat(timespec="seconds"),))
        for partial_file in reversed(partial_files):
            # The file of the emails is published before the ledger, so that a kill leaves no ledger without its emails.
            partial_file.publish(must_be_new=True)
    return Backup(*row_counts)


_MARK_RESTORED_SQL = "INSERT OR REPLACE INTO email_meta (name, value) VALUES ('restored_at', ?)"


# Code that copies a ledger to PostgreSQL


_BATCH_ROW_COUNT = 5000


def copy_ledger(url: str, target_url: str, *, copied_at: datetime) -> tuple[int, int]:
    """Copy the ledger at `url`, a SQLite file, to the empty ledger at `target_url` in PostgreSQL. Return the number of
    entries and of emails. `copied_at` is a time with a time zone.

    All rows are copied in one transaction. Then the ledger at `url` is closed, so that no run can use it. If the
    process is killed before the ledger at `url` is closed, a person can delete the copy and copy again. Raises
    ConfigurationError if `url` is not a file, if `target_url` is not in PostgreSQL, or if the target is not empty.
    Raises LockedError if a run holds one of the ledgers, and LedgerError if one of the ledgers cannot be used.
    """
    source_location, target_location = parse_ledger_location(url), parse_ledger_location(target_url)
    if not isinstance(source_location, Path):
        raise ConfigurationError(
            f"the ledger {format_ledger_location(source_location)} is in PostgreSQL already: copy it with pg_dump and "
            "pg_restore"
        )
    if not isinstance(target_location, URL):
        raise ConfigurationError(
            f"{target_url} is a file: write a URL such as postgresql://user@host/database. To copy a ledger to a file, "
            "use connector ledger backup"
        )
    if target_location.password:
        raise ConfigurationError(
            "the target URL has a password, and arguments are visible in process lists: put the password into "
            "PGPASSWORD or ~/.pgpass, and remove the password from the URL"
        )
    if not source_location.exists():
        raise build_missing_ledger_error(str(source_location))
    ledger_name = format_ledger_location(target_location)
    with (
        open_ledger(url, may_create=False) as source_ledger,
        open_existing_email_log(url) as email_log,
        open_ledger(target_url) as target_ledger,
    ):
        source_stores = [source_ledger.store] if email_log is None else [source_ledger.store, email_log.store]
        with target_ledger.transaction() as connection:
            if not has_email_tables(connection, ledger_name):
                create_tables(connection, ledger_name, emails_metadata, email_meta)
            _refuse_filled_tables(connection, ledger_name)
            for store, tables in zip(source_stores, (metadata, emails_metadata), strict=False):
                with store.transaction() as source_connection:
                    _copy_tables(source_connection, connection, tables)
            entry_count = connection.execute(select(func.count()).select_from(entry)).scalar_one()
            email_count = connection.execute(select(func.count()).select_from(email)).scalar_one()
        copy_description = f"{ledger_name}, on {copied_at:%Y-%m-%d}"
        for store, table in zip(source_stores, (meta, email_meta), strict=False):
            with store.transaction() as source_connection:
                source_connection.execute(insert(table).values(name=MOVED_TO_KEY, value=copy_description))
    return entry_count, email_count


def _refuse_filled_tables(connection: Connection, ledger_name: str) -> None:
    for table in (*metadata.sorted_tables, *emails_metadata.sorted_tables):
        if table not in (meta, email_meta) and connection.execute(select(table).limit(1)).first() is not None:
            raise ConfigurationError(
                f"the ledger {ledger_name} has rows in the table {table.name}. Nothing was copied. Name an empty "
                "database or schema (postgresql://user@host/database?options=-csearch_path%3Dschema)"
            )


def _copy_tables(source_connection: Connection, target_connection: Connection, tables: MetaData) -> None:
    """Copy all rows of these tables. The keys of later rows in the target then continue after the copied keys."""
    existing_table_names = set(inspect(source_connection).get_table_names())
    for table in tables.sorted_tables:
        if table in (meta, email_meta) or table.name not in existing_table_names:
            continue
        rows = source_connection.execution_options(yield_per=_BATCH_ROW_COUNT).execute(select(table)).mappings()
        for batch in rows.partitions(_BATCH_ROW_COUNT):
            target_connection.execute(insert(table), [dict(row) for row in batch])
        key_column = table.autoincrement_column
        if key_column is not None:
            last_key = target_connection.execute(select(func.max(key_column))).scalar_one()
            next_key_values = {"table": table.name, "column": key_column.name, "next": (last_key or 0) + 1}
            target_connection.execute(_SET_NEXT_KEY, next_key_values)
    if tables is emails_metadata:  # messages about a closed campaign show the time of the restore (`restored_at`)
        restored_at_query = select(email_meta).where(email_meta.c.name == "restored_at")
        for row in source_connection.execute(restored_at_query).mappings():
            target_connection.execute(insert(email_meta).values(**row))


_SET_NEXT_KEY = text("SELECT setval(pg_get_serial_sequence(:table, :column), :next, false)")
