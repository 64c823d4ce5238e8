"""Copies a ledger in SQLite, with its emails, to an empty ledger in PostgreSQL, and closes the copied ledger.

Two ledgers of one account would create subscribers twice. So every command refuses a ledger that was copied.
"""

from datetime import datetime
from pathlib import Path

from sqlalchemy import URL, Connection, MetaData, Table, func, insert, inspect, select, text

from connector.databases import parse_place, show_place
from connector.errors import ConfigurationError
from connector.ledger.opening import open_existing_emails, open_ledger
from connector.ledger.schema import (
    MOVED_TO,
    create_tables,
    email,
    email_meta,
    emails_metadata,
    entry,
    has_emails,
    meta,
    metadata,
)
from connector.ledger.store import build_missing

_BATCH_ROWS = 5000


def copy_ledger(url: str, target_url: str, *, at: datetime) -> tuple[int, int]:
    """Copy the ledger at `url`, a SQLite file, to the empty ledger at `target_url` in PostgreSQL; `at` is aware. Return
    the number of entries and of emails.

    All rows are copied in one transaction. Only then is the copied ledger closed. If a kill comes between, the copy can
    be deleted and made again. Raises ConfigurationError if a URL is of another kind or the target is not empty,
    LockedError while a run holds one of the two, and LedgerError if one of the two cannot be used.
    """
    source_place, target_place = parse_place(url), parse_place(target_url)
    if not isinstance(source_place, Path):
        raise ConfigurationError(
            f"the ledger {show_place(source_place)} is in PostgreSQL already: copy it with pg_dump and pg_restore"
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
    name = show_place(target_place)
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
