"""Puts a backup of a ledger in its place: each file in one transaction, so that a kill leaves it as it was or as it is
to be, and while no run has it.

A backup may be older than what was mailed since. So its campaigns are closed, and one that it does not know is refused
as well (`EmailLog.find_campaign`), until a person reopens it.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from connector.databases import parse_place, show_place
from connector.driver_words import say_safely
from connector.errors import ConfigurationError, LedgerError
from connector.fields import IDENTITY_RULE
from connector.ledger.opening import open_emails
from connector.ledger.schema import SCHEMA_VERSION, campaign, email
from connector.ledger.sqlite import find_emails, find_lock, hold_lock, make_file, resolve_file

_BUSY_S = 10.0


@dataclass(frozen=True, slots=True)
class Restored:
    """How many entries, emails and campaigns came from the backup; None: it has no such file."""

    entries: int | None
    emails: int | None
    campaigns: int


def restore_ledger(url: str, source: Path, *, at: datetime) -> Restored:
    """Put the backup `source`, and the emails beside it, in the place of the ledger at `url`; `at` is aware.

    What is there is overwritten. Raises ConfigurationError when `url` is no file's or `source` is no ledger of this
    version, LockedError while a run has the ledger or a campaign, and LedgerError when it cannot be written: what was
    there is there still.
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
    entries = _count(source, "meta", "entry") if source.exists() else None
    emails = _count(emails_source, "email_meta", "email") if emails_source.exists() else None
    with hold_lock(find_lock(ledger)):
        campaigns = _restore_emails(url, emails_source if emails is not None else None, at)
        if entries is not None:
            _restore_entries(source, ledger)
    return Restored(entries, emails, campaigns)


def _count(path: Path, meta: str, table: str) -> int:
    """Count the lines of a backup's table. Raises ConfigurationError when it is no ledger of this version."""
    if not path.is_file():  # a pipe would be waited for without end
        raise ConfigurationError(f"{path} is no file: name the one that `connector ledger backup` wrote")
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as backup:
            if backup.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
                raise ConfigurationError(f"{path} is damaged: restore another backup. Nothing was changed")
            stored = dict(backup.execute(f"SELECT name, value FROM {meta}"))  # noqa: S608 - constants only
            number = int(backup.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608
    except sqlite3.Error as error:
        raise ConfigurationError(
            f"{path} is no backup of a ledger ({say_safely(error)}). Nothing was changed"
        ) from None
    if (stored.get("schema_version"), stored.get("identity_rule")) != (str(SCHEMA_VERSION), str(IDENTITY_RULE)):
        raise ConfigurationError(
            f"{path} was written by another version of the connector: restore it with that one. Nothing was changed"
        )
    return number


def _restore_entries(source: Path, ledger: Path) -> None:
    """SQLite's own copying writes all pages in one transaction, also where a journal was left."""
    make_file(ledger)
    with (
        _explained(ledger),
        closing(sqlite3.connect(f"{source.as_uri()}?mode=ro", uri=True)) as backup,
        closing(sqlite3.connect(ledger, timeout=_BUSY_S)) as copy,
    ):
        backup.backup(copy, pages=-1)


def _restore_emails(url: str, source: Path | None, at: datetime) -> int:
    """Write the backup's emails over those that are there, its campaigns closed; returns how many.

    Without a backup those that are there stay, since they know more; where there are none either, the mark alone says
    that campaigns may have been sent.
    """
    with open_emails(url) as log, _explained(Path(log.name)):
        raw = log.connection.connection.dbapi_connection
        assert isinstance(raw, sqlite3.Connection)  # noqa: S101 - the URL is a file's
        is_knowing = source is None and bool(raw.execute("SELECT count(*) FROM campaign").fetchone()[0])
        if is_knowing:
            return 0
        if source is not None:
            raw.execute("ATTACH ? AS backup", (str(source),))
        raw.execute("BEGIN IMMEDIATE")  # no campaign that begins now writes before it is refused
        try:
            with ExitStack() as held:
                for lock in sorted(Path(log.name).parent.glob(f"{Path(log.name).name}.*.lock")):
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
            f"the ledger {path} cannot be written over ({say_safely(error)}): move it and the files beside it (-wal, "
            "-shm, -journal) away, and restore again"
        ) from None
