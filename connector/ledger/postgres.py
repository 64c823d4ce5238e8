"""A ledger in PostgreSQL: its session, the leases of shards, and the locks of campaigns. A commit of the session ends
when the transaction is on the server's disk.

A lost session is not opened again, because the lock of its campaign is lost, too. A pooler must not share the session
between transactions, because the pooler would also share the lock. A deleted request body stays in PostgreSQL's files
until the next vacuum.

Leases (architecture 4.3). Every process that writes holds a lease of its shard. An ordinary run holds a lease of all
identities. A process takes a lease in one transaction, under a lock, and only if no other lease overlaps. The id of a
lease is the fencing token: each transaction of the holder renews the lease first, and fails if the lease is gone. The
renewal locks the row of the lease until the commit. So another process cannot take the lease during a transaction.

A lease is free if its holder has released it, if it has expired on the server's clock, or if this machine knows that
the holder has ended. The holder sends no request after the end of the lease by the holder's own clock.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from secrets import token_hex

from sqlalchemy import (
    URL,
    BigInteger,
    Column,
    Connection,
    DateTime,
    Identity,
    Integer,
    MetaData,
    SmallInteger,
    Table,
    Text,
    create_engine,
    text,
)
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from connector.clock import system_clock
from connector.databases import format_ledger_location, mask_secrets
from connector.driver_errors import describe_error
from connector.errors import ConfigurationError, LedgerError, LockedError
from connector.ledger.store import (
    LEASE_S,
    CampaignLock,
    Lease,
    Store,
    build_error,
    describe_holder,
    describe_lock_time,
    digest_campaign,
    translate_errors,
    wait_for_lock,
)
from connector.shards import Shard

_APPLICATION_PREFIX = "connector: "

_LEDGER_MARKER_TABLES = ("meta",)  # the ledger is in the schema that has this table

_FIND_SCHEMA = text(
    "SELECT coalesce((SELECT nspname FROM unnest(CAST(:tables AS text[])) WITH ORDINALITY AS sought (name, rank) "
    "JOIN pg_class ON pg_class.oid = to_regclass(sought.name) JOIN pg_namespace ON pg_namespace.oid = relnamespace "
    "ORDER BY rank LIMIT 1), current_schema()), current_setting('server_encoding')"
)
"""Finds the schema of the first table of `tables` that exists in the search path. If no table exists, finds the schema
in which the tables will be created."""

_SET_SEARCH_PATH = text("SELECT set_config('search_path', quote_ident(:schema), false)")
_SESSION_SETTINGS = (
    "SET SESSION synchronous_commit = on",  # each intent must be on the disk before its request leaves
    "SET SESSION idle_in_transaction_session_timeout = '60s'",  # a process that hangs cannot keep its lease forever
    "SET SESSION lock_timeout = '30s'",  # if another client locks a table, the run ends instead of waiting longer
)
_DEFAULT_OPTIONS = {
    "connect_timeout": 10,  # seconds; by default, libpq waits for the time-out of the kernel, two minutes or more
    # With these options, a connection to a server that no longer answers fails after about a minute.
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
"""Options of libpq for a connection, unless the URL of the ledger has other values."""
_TRY_LOCK = text("SELECT pg_try_advisory_lock(:key)")
_RELEASE_LOCK = text("SELECT pg_advisory_unlock(:key)")
_SESSION_END_WAIT_S = 1.0
"""The seconds for which an ended session may still keep its locks and its transaction. The server needs some time to
notice that a session was closed or its process was killed.
"""

_FIND_HOLDER = text(
    "SELECT application_name, pid, backend_start FROM pg_locks JOIN pg_stat_activity USING (pid) "
    "WHERE locktype = 'advisory' AND granted AND objsubid = 1 "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND CAST(classid AS bigint) = :high AND CAST(objid AS bigint) = :low"  # PostgreSQL shows the two halves of the key
)


@contextmanager
def open_session(url: URL, marker_tables: Sequence[str] = _LEDGER_MARKER_TABLES) -> Iterator[tuple[Connection, str]]:
    """Yield a connection without a lock, and the only schema that the connection uses. The schema is where the first
    existing table of `marker_tables` is, or where the tables will be created. Raises LedgerError if the server cannot
    be used, and ConfigurationError if no driver is installed."""
    ledger_name = format_ledger_location(url)
    with closing(_connect_to_server(url, ledger_name)) as connection:
        with translate_errors(ledger_name), connection.begin():
            for setting in _SESSION_SETTINGS:
                connection.exec_driver_sql(setting)
            schema = _limit_to_schema(connection, ledger_name, marker_tables)
        yield connection, schema


@contextmanager
def connect_for_reading(url: URL) -> Iterator[Connection]:
    """Yield a read-only connection to the ledger at `url`, in one transaction with one snapshot and without a lock.
    Raises the errors of `open_session`."""
    ledger_name = format_ledger_location(url)
    with closing(_connect_to_server(url, ledger_name)) as connection:
        connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        with translate_errors(ledger_name), connection.begin():
            _limit_to_schema(connection, ledger_name, _LEDGER_MARKER_TABLES)
            yield connection


def _connect_to_server(url: URL, ledger_name: str) -> Connection:
    options = {
        **{option_name: value for option_name, value in _DEFAULT_OPTIONS.items() if option_name not in url.query},
        "application_name": _APPLICATION_PREFIX + describe_holder(),
        # Without this option, SQLAlchemy cannot read the version of a server whose encoding is SQL_ASCII.
        "client_encoding": "utf8",
        # The driver prepares no statement. PostgreSQL would plan a prepared statement while the tables are empty, and
        # would still use this plan when the tables are large.
        "prepare_threshold": None,
    }
    try:
        return create_engine(url, poolclass=NullPool, hide_parameters=True, connect_args=options).connect()
    except ImportError:
        raise ConfigurationError(
            "a ledger in PostgreSQL needs a driver that is not installed: pip install 'subscriber-connector[postgres]'"
        ) from None
    except SQLAlchemyError as error:
        raise build_error(ledger_name, mask_secrets(describe_error(error), url)) from None


def _limit_to_schema(connection: Connection, name: str, marker_tables: Sequence[str]) -> str:
    """Limit the session to one schema, because the lock is for one schema. Return the schema."""
    schema, encoding = connection.execute(_FIND_SCHEMA, {"tables": list(marker_tables)}).one()
    if schema is None:
        raise LedgerError(f"the ledger {name} has no schema: create a schema that is in the user's search_path")
    if encoding != "UTF8":
        raise LedgerError(f"the ledger {name} is in a database whose encoding is {encoding}: use a database in UTF8")
    connection.execute(_SET_SEARCH_PATH, {"schema": schema})
    return str(schema)


def compute_key(schema: str, purpose: bytes = b"connector ledger", lock_name: bytes = b"") -> int:
    """Return the number of an advisory lock. All schemas of a database share the numbers of locks, so the number is a
    digest of the schema and the lock.

    `purpose` (at most 16 bytes) is the kind of the lock, and `lock_name` (at most 64 bytes) the name of the lock within
    this kind.
    """
    digest = blake2b(schema.encode(), key=lock_name, digest_size=8, person=purpose).digest()
    return int.from_bytes(digest, "big", signed=True)


# Code for the locks of campaigns


def build_campaign_lock(connection: Connection, schema: str, ledger_name: str) -> CampaignLock:
    """Return a function that locks campaigns by advisory locks of the session that writes. PostgreSQL releases the
    locks when the session ends."""
    keys_of_held_locks: set[int] = set()

    @contextmanager
    def hold_campaign(name: str, wait_s: float, is_stopped: Callable[[], bool]) -> Iterator[None]:
        key = compute_key(schema, b"connector mail", digest_campaign(name))
        if key in keys_of_held_locks:  # PostgreSQL would give the lock to the same session again
            raise LockedError(f"the campaign {name} is held by this run")

        def try_lock() -> bool:
            with connection.begin():
                return bool(connection.execute(_TRY_LOCK, {"key": key}).scalar_one())

        def read_holder() -> str:
            high_bits, low_bits = divmod(key % 2**64, 2**32)
            with connection.begin():
                holder = connection.execute(_FIND_HOLDER, {"high": high_bits, "low": low_bits}).first()
            if holder is None:  # the holder has released the lock meanwhile
                return "another run"
            process_name = holder.application_name.removeprefix(_APPLICATION_PREFIX) or "another session"
            return f"{process_name}, {describe_lock_time(holder.backend_start)} (PostgreSQL's process {holder.pid})"

        with translate_errors(ledger_name):
            wait_for_lock(f"the campaign {name}", try_lock, read_holder, max(wait_s, _SESSION_END_WAIT_S), is_stopped)
        keys_of_held_locks.add(key)
        try:
            yield
        finally:
            keys_of_held_locks.remove(key)
            if not connection.invalidated:
                # After a lost connection, there is nothing to release: SQLAlchemy would open a new session without a
                # lock. If the connection is lost during the release, the server releases the lock.
                with suppress(SQLAlchemyError), connection.begin():
                    connection.execute(_RELEASE_LOCK, {"key": key})

    return hold_campaign


_tokens_of_ended_leases = set[str]()
"""The tokens of leases that this process no longer needs. The release of such a lease may not have reached the
server."""

lease_metadata = MetaData()

Table(
    "lease",
    lease_metadata,
    Column("lease_id", BigInteger, Identity(), primary_key=True),
    Column("shard_index", SmallInteger, nullable=False),
    Column("shard_count", SmallInteger, nullable=False),
    Column("run_key", Integer),  # the key of the holder's run; null: the holder has no run
    Column("holder", Text, nullable=False),  # a description of the process for people
    # The id of the process that `_identify_process` returns, and the token of the lease.
    Column("process", Text, nullable=False),
    Column("expires_at", DateTime(timezone=True), nullable=False),
)


@contextmanager
def hold_lease(
    store: Store, name: str, lock_key: int, shard: Shard, wait_s: float, is_stopped: Callable[[], bool]
) -> Iterator[None]:
    """Hold the lease of a shard during the context. Every transaction of the store renews the lease.

    `name` is the name of the ledger in messages. `lock_key` is the number of the advisory lock under which leases are
    taken. Raises LockedError if an overlapping lease is still held after `wait_s` seconds, or when `is_stopped` returns
    True.
    """
    lease: Lease | None = None
    token = token_hex(8)

    def try_acquire() -> bool:
        nonlocal lease
        lease = _try_acquire_lease(store, lock_key, shard, token)
        return lease is not None

    lock_name = name if shard.is_whole else f"shard {shard} of {name}"
    wait_for_lease(store, lock_name, shard, try_acquire, wait_s, is_stopped)
    store.lease = lease
    try:
        yield
    finally:
        _tokens_of_ended_leases.add(token)
        store.lease = None
        # An error is ignored here, because a lease that is not released expires.
        with suppress(LedgerError), store.transaction() as connection:
            connection.execute(_DELETE_LEASE, {"id": lease.lease_id if lease is not None else None})


def wait_for_lease(
    store: Store, name: str, shard: Shard, try_lock: Callable[[], bool], wait_s: float, is_stopped: Callable[[], bool]
) -> None:
    """Call `try_lock` as `wait_for_lock` does. Raises LockedError with the holder of a lease that overlaps with the
    shard."""
    wait_s = max(wait_s, _SESSION_END_WAIT_S)
    wait_for_lock(name, try_lock, lambda: _describe_lease_holder(store, shard), wait_s, is_stopped)


def _try_acquire_lease(store: Store, lock_key: int, shard: Shard, token: str) -> Lease | None:
    """Return a new lease, or None while an overlapping lease is held."""
    monotonic = system_clock().monotonic
    requested_at = monotonic()
    with store.transaction() as connection:
        connection.execute(LOCK_TRANSACTION, {"key": lock_key})
        if has_overlapping_lease(connection, shard):
            return None
        parameters = {
            "index": shard.index,
            "count": shard.count,
            "holder": f"{describe_holder()}, {describe_lock_time(datetime.now(UTC))}",
            "process": f"{_identify_process(os.getpid())} {token}".strip(),
            "lease": LEASE_S,
        }
        lease = Lease(connection.execute(_INSERT_LEASE, parameters).scalar_one(), monotonic)
    lease.set_valid_until(requested_at)
    return lease


def has_overlapping_lease(connection: Connection, shard: Shard) -> bool:
    """Delete the leases that overlap with the shard and have ended. Return whether an overlapping lease remains. Call
    this function inside a transaction that holds the lock for taking leases."""
    other_leases = [
        row for row in connection.execute(_LIST_LEASES) if shard.overlaps(Shard(row.shard_index, row.shard_count))
    ]
    lease_ids = [row.lease_id for row in other_leases]
    dead_lease_ids = [row.lease_id for row in other_leases if _has_ended(row.process)]
    freed_count = connection.execute(_DELETE_FREE_LEASES, {"ids": lease_ids, "dead": dead_lease_ids}).rowcount
    return bool(freed_count < len(lease_ids))


def _describe_lease_holder(store: Store, shard: Shard) -> str:
    with store.transaction() as connection:
        for row in connection.execute(_LIST_LEASES):
            other_shard = Shard(row.shard_index, row.shard_count)
            if shard.overlaps(other_shard):
                return str(row.holder) if other_shard.is_whole else f"a run of shard {other_shard} ({row.holder})"
    return "another run"  # the holder has released its lease meanwhile


def _identify_process(pid: int) -> str:
    """Return a text that identifies the process among all processes of all machines, or "" if /proc cannot be read."""
    with suppress(OSError, ValueError, IndexError):
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        start_time = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
        return f"{boot_id} {Path('/proc/self/ns/pid').stat().st_ino} {pid} {start_time}"
    return ""


def _has_ended(lease_process: str) -> bool:
    """Return whether this machine knows that the holder of a lease has ended. The holder may be another process of this
    machine, or an earlier call of `hold_lease` in this process that could not release the lease."""
    holder_process, _, token = lease_process.rpartition(" ")
    own_process = _identify_process(os.getpid())
    if token in _tokens_of_ended_leases:
        return True
    if not own_process or not holder_process or own_process.split()[:2] != holder_process.split()[:2]:
        return False
    pid = int(holder_process.split()[2])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # the process exists, and belongs to another user
    # A process with another start time is not the holder. "" means that the start time cannot be read.
    return _identify_process(pid) not in ("", holder_process)


LOCK_TRANSACTION = text("SELECT pg_advisory_xact_lock(:key)")
_LIST_LEASES = text("SELECT lease_id, shard_index, shard_count, holder, process FROM lease ORDER BY lease_id")
# The statement skips locked rows, because a locked row is a lease that its holder is renewing.
_DELETE_FREE_LEASES = text(
    "DELETE FROM lease WHERE lease_id IN (SELECT lease_id FROM lease WHERE lease_id = ANY(:ids) "
    "AND (expires_at < clock_timestamp() OR lease_id = ANY(:dead)) FOR UPDATE SKIP LOCKED)"
)
_INSERT_LEASE = text(
    "INSERT INTO lease (shard_index, shard_count, holder, process, expires_at) VALUES (:index, :count, "
    ":holder || ' (PostgreSQL''s process ' || pg_backend_pid() || ')', :process, "
    "clock_timestamp() + make_interval(secs => :lease)) RETURNING lease_id"
)
_DELETE_LEASE = text("DELETE FROM lease WHERE lease_id = :id")
