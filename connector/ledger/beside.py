"""Reads a ledger beside the run that writes it: open entries, the lag on record, the limit that the last load found."""

import logging
import os
import sqlite3
from collections.abc import Callable, Collection
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from sqlalchemy import URL, Connection, bindparam, create_engine, event, func, inspect, select, text
from sqlalchemy.pool import StaticPool

from connector.clock import Clock
from connector.control import Stop, call_in_thread
from connector.databases import parse_place, show_place
from connector.errors import ConnectorError, LedgerError
from connector.ledger import schema
from connector.ledger.postgres import read_server
from connector.ledger.records import read_found_limit, read_largest_lag
from connector.ledger.store import build_missing, keep_text, translated
from connector.pace.pace import Pace
from connector.settings import Settings
from connector.shards import Shard
from connector.states import State
from connector.subscribers.identity import IDENTITY_BYTES, join_digests

logger = logging.getLogger(__name__)

T = TypeVar("T")

BUSY_S = 10.0  # a writer that opens or closes the ledger keeps others out for as long as a checkpoint takes


async def start_pace(
    settings: Settings, max_rate: float, clock: Clock, stop: Stop, *, max_concurrency: int = 1
) -> Pace:
    """Return a pace that begins at the limit that the account's last load found.

    `max_rate` (requests/s) and `max_concurrency` (requests in flight) are ceilings. The found limit is only a first
    guess, so a ledger that cannot be read is logged and does not fail the run.
    """

    def read() -> Pace:
        found = None
        try:
            read_limit = partial(read_found_limit, account=settings.account)
            found = _read_beside(parse_place(settings.ledger_url), read_limit)
        except ConnectorError as error:
            logger.debug("the ledger gives no first guess of the limit: %s", error)
        if found is None:
            return Pace(max_rate, max_concurrency)
        limit, found_at = found
        return Pace(max_rate, max_concurrency, limit, clock.now().timestamp() - found_at)

    return await call_in_thread(read, stop)


@dataclass(frozen=True, slots=True)
class OpenEntries:
    """So many entries of an account in this state, not CONFIRMED, that the run `run_id` sent last (None: not known)."""

    account: str
    run_id: str | None
    job: str | None
    state: State
    number: int


def count_open_entries(url: str, *, may_be_new: bool = True) -> list[OpenEntries]:
    """Count the entries that are not CONFIRMED, without a lock, also while a run goes on and after one was killed.

    A ledger that is not there has none. Raises LedgerError when it cannot be read, or is not there and
    not `may_be_new`, ConfigurationError when the URL is invalid or its driver is missing.
    """
    place = parse_place(url)
    open_entries = _read_beside(place, _count_open)
    if open_entries is None and not may_be_new:
        raise build_missing(show_place(place))
    return open_entries or []


def find_last_run_key(url: str) -> int:
    """Return the key of the latest run that the ledger knows, or 0. Raises as `count_open_entries` does."""
    return _read_beside(parse_place(url), _find_last_run_key) or 0


def _find_last_run_key(connection: Connection) -> int:
    return int(connection.execute(select(func.coalesce(func.max(schema.run.c.run_key), 0))).scalar_one())


@dataclass(frozen=True, slots=True)
class LostWork:
    """Creates of lost runs: the number of confirmed ones, and the number of creates whose outcome is not known."""

    created: int
    unresolved: int


def count_lost_work(
    url: str, job: str, last_key: int, reported: Collection[str], shards: Collection[Shard]
) -> dict[Shard, LostWork]:
    """Return the creates of lost runs by shard. A lost run is a run of the job that began after the run with the key
    `last_key`, and whose id is not among `reported`. Raises as `count_open_entries` does."""

    def read(connection: Connection) -> dict[Shard, LostWork]:
        values = {"job": keep_text(job), "last_key": last_key}
        runs = connection.execute(_LATER_RUNS, values).all()
        lost = [run_key for run_key, run_id in runs if run_id not in reported]
        if not lost:
            return {}  # without runs, the query would read all entries
        rows = connection.execute(_SENT, _SENT_STATES | {"runs": lost}).all()
        created = join_digests([row.identity for row in rows if row.state == State.CONFIRMED], IDENTITY_BYTES)
        unresolved = join_digests([row.identity for row in rows if row.state != State.CONFIRMED], IDENTITY_BYTES)
        return {
            shard: LostWork(int(shard.contains(created).sum()), int(shard.contains(unresolved).sum()))
            for shard in shards
        }

    lost = _read_beside(parse_place(url), read) or {}
    return {shard: lost.get(shard, LostWork(0, 0)) for shard in shards}


_LATER_RUNS = text("SELECT run_key, run_id FROM run WHERE run_key > :last_key AND job = :job")
# A confirmed entry has a fingerprint if the service has what the run sent; without one the subscriber is another's.
_SENT = text(
    "SELECT identity, state FROM entry WHERE run_key IN :runs AND (state IN (:sending, :unknown) "
    "OR (state = :confirmed AND fingerprint IS NOT NULL AND how <> :accepted))"
).bindparams(bindparam("runs", expanding=True))
_SENT_STATES: dict[str, object] = {
    "sending": State.SENDING,
    "unknown": State.UNKNOWN,
    "confirmed": State.CONFIRMED,
    "accepted": schema.HOW["accepted"],
}


def check_ledger_rights(url: str) -> None:
    """Raise LedgerError if this user may not write the ledger's file, or make files beside it; nothing is written.

    Of a server nothing is checked.
    """
    place = parse_place(url)
    if isinstance(place, URL):
        return
    ledger = place.resolve()
    folder = next(each for each in ledger.parents if each.exists())
    for path, rights in ((folder, os.R_OK | os.W_OK | os.X_OK), (ledger, os.R_OK | os.W_OK)):
        if path.exists() and not os.access(path, rights):
            raise LedgerError(f"the ledger {ledger}: {path} cannot be written by this user: allow it")


def read_lag(url: str, account: str) -> float:
    """Return the largest lag of the account's list on record, in seconds, without a lock; 0 if none is on record.

    Raises LedgerError when the ledger cannot be read, ConfigurationError when the URL is invalid.
    """
    return _read_beside(parse_place(url), partial(read_largest_lag, account=account)) or 0.0


def _read_beside(place: Path | URL, read: Callable[[Connection], T]) -> T | None:
    """Return the result of `read` on the ledger beside its writer, or None if there is no ledger."""
    if isinstance(place, URL):
        with read_server(place) as server:
            return _read_whole(server, show_place(place), read)
    if not place.exists():
        return None
    try:
        opened = sqlite3.connect(build_uri(place), uri=True, timeout=BUSY_S)
    except sqlite3.Error as error:
        raise LedgerError(f"the ledger {place} cannot be read: {error}") from None
    with translated(str(place)), closing(opened), closing(connect_file(opened)) as connection:
        return _read_whole(connection, str(place), read)


def _read_whole(connection: Connection, name: str, read: Callable[[Connection], T]) -> T | None:
    if not inspect(connection).has_table("meta"):  # a run makes it at this moment, or was killed doing so
        return None
    schema.check_version(connection, name)
    return read(connection)


def _count_open(connection: Connection) -> list[OpenEntries]:
    rows = connection.execute(_OPEN)
    return [OpenEntries(account, run_id, job, State(state), number) for account, run_id, job, state, number in rows]


_OPEN = (
    select(schema.base.c.account, schema.run.c.run_id, schema.run.c.job, schema.entry.c.state, func.count())
    .join_from(schema.entry, schema.base)
    .join(schema.run, isouter=True)
    .where(text(schema.UNFINISHED))
    .group_by(schema.base.c.account, schema.run.c.run_id, schema.run.c.job, schema.entry.c.state)
    .order_by(schema.base.c.account, schema.run.c.run_id, schema.entry.c.state)
)


def has_files_beside(path: Path) -> bool:
    """Return whether a process has the ledger's file open, or had it open when it was killed."""
    resolved = path.resolve()
    return any(resolved.with_name(resolved.name + suffix).exists() for suffix in ("-wal", "-shm"))


def build_uri(path: Path) -> str:
    """Return the URI by which SQLite reads a ledger's file without a lock, and without making a file beside it."""
    how = "mode=ro" if has_files_beside(path) else "mode=ro&immutable=1"
    return f"{path.resolve().as_uri()}?{how}"


def connect_file(opened: sqlite3.Connection) -> Connection:
    """Return SQLAlchemy's connection over an open file, with ordinary read transactions."""
    engine = create_engine("sqlite://", creator=lambda: opened, poolclass=StaticPool, hide_parameters=True)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    return engine.connect()
