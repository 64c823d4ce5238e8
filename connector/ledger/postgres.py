"""A ledger in PostgreSQL: one session whose commits are on the server's disk, leases of shards, and locks of campaigns.

A session that is lost is not opened again, since a campaign's lock went with it. It must be a session of its own: a
pooler that shares sessions between transactions would share the lock too. A body that is no longer needed goes with the
next vacuum.

Leases (architecture 4.3). Every process that writes holds a lease of its shard; an ordinary run holds a lease of all
identities. A process takes a lease in one transaction, under a lock, and only if no other lease overlaps. The id of a
lease is the fencing token: each transaction of the holder renews the lease first, and fails if the lease is gone. The
renewal locks the row of the lease until the commit, so another process cannot take the lease during a transaction.

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
from connector.databases import mask_secrets, show_ledger_location
from connector.driver_errors import describe_error
from connector.errors import ConfigurationError, LedgerError, LockedError
from connector.ledger.store import (
    LEASE_S,
    Hold,
    Lease,
    Store,
    build_error,
    describe_holder,
    describe_since,
    digest_campaign,
    translated,
    wait_for_lock,
)
from connector.shards import Shard

_CONNECT_TIMEOUT_S = 10  # libpq's own is the kernel's, two minutes and more
_PREPARE_THRESHOLD = None  # never: PostgreSQL would keep a plan for empty tables when the tables are large
_APPLICATION = "connector: "

_LEDGER = ("meta",)
# The schema in which the search path finds the first of these tables that there is; where there are none, the one they
# will be made in.
_ABOUT = text(
    "SELECT coalesce((SELECT nspname FROM unnest(CAST(:tables AS text[])) WITH ORDINALITY AS sought (name, rank) "
    "JOIN pg_class ON pg_class.oid = to_regclass(sought.name) JOIN pg_namespace ON pg_namespace.oid = relnamespace "
    "ORDER BY rank LIMIT 1), current_schema()), current_setting('server_encoding')"
)
# The session then reaches this schema alone, because the lock is that of the schema.
_STAY = text("SELECT set_config('search_path', quote_ident(:schema), false)")
_SETTINGS = (
    "SET SESSION synchronous_commit = on",  # an intent is on the disk before its request leaves
    "SET SESSION idle_in_transaction_session_timeout = '60s'",  # a process that stands still keeps no lease for good
    "SET SESSION lock_timeout = '30s'",  # a lock of another client on a table ends the run instead of blocking it
)
_ALIVE = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3, "tcp_user_timeout": 60_000}
"""Settings of libpq: a connection to a server that no longer answers fails within about a minute."""
_TRY_LOCK = text("SELECT pg_try_advisory_lock(:key)")
_RELEASE = text("SELECT pg_advisory_unlock(:key)")
_ENDING_S = 1.0
"""Seconds for which a session that was just closed, or whose process was killed, may keep its locks and its
transaction: until the server has seen the end of the session."""

_HOLDER = text(
    "SELECT application_name, pid, backend_start FROM pg_locks JOIN pg_stat_activity USING (pid) "
    "WHERE locktype = 'advisory' AND granted AND objsubid = 1 "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND CAST(classid AS bigint) = :high AND CAST(objid AS bigint) = :low"  # the key's halves, as PostgreSQL shows it
)


@contextmanager
def open_session(url: URL, tables: Sequence[str] = _LEDGER) -> Iterator[tuple[Connection, str]]:
    """Yield a connection without a lock, and the only schema that the connection reaches: the schema of the first of
    these tables, or the schema in which they will be made. Raises LedgerError if the server cannot be used, and
    ConfigurationError if no driver is installed."""
    name = show_ledger_location(url)
    with closing(_connect(url, name)) as connection:
        with translated(name):
            with connection.begin():
                schema, encoding = connection.execute(_ABOUT, {"tables": list(tables)}).one()
                for setting in _SETTINGS:
                    connection.exec_driver_sql(setting)
            _check_place(name, schema, encoding)
            with connection.begin():
                connection.execute(_STAY, {"schema": schema})
        yield connection, schema


@contextmanager
def read_server(url: URL) -> Iterator[Connection]:
    """Yield a read-only connection to the ledger at `url`, in one transaction with one snapshot and without a lock.
    Raises as `open_session` does."""
    name = show_ledger_location(url)
    with closing(_connect(url, name)) as connection:
        connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        with translated(name), connection.begin():
            schema, encoding = connection.execute(_ABOUT, {"tables": list(_LEDGER)}).one()
            _check_place(name, schema, encoding)
            connection.execute(_STAY, {"schema": schema})
            yield connection


def _connect(url: URL, name: str) -> Connection:
    defaults = {"connect_timeout": _CONNECT_TIMEOUT_S} | _ALIVE
    defaults = {name: value for name, value in defaults.items() if name not in url.query}
    options = {
        "application_name": _APPLICATION + describe_holder(),
        "client_encoding": "utf8",  # of a server without one SQLAlchemy could not even read the version
        "prepare_threshold": _PREPARE_THRESHOLD,
    }
    try:
        engine = create_engine(url, poolclass=NullPool, hide_parameters=True, connect_args=options | defaults)
        return engine.connect()
    except ImportError:
        raise ConfigurationError(
            "a ledger in PostgreSQL needs a driver that is not installed: pip install 'subscriber-connector[postgres]'"
        ) from None
    except SQLAlchemyError as error:
        raise build_error(name, mask_secrets(describe_error(error), url)) from None


def _check_place(name: str, schema: str | None, encoding: str) -> None:
    if schema is None:
        raise LedgerError(f"the ledger {name} has no schema: create one that the user's search_path names")
    if encoding != "UTF8":
        raise LedgerError(f"the ledger {name} is in a database whose encoding is {encoding}: use one in UTF8")


def compute_key(schema: str, purpose: bytes = b"connector ledger", lock_name: bytes = b"") -> int:
    """Return the number of an advisory lock in this schema. PostgreSQL has one set of numbers for each database.

    `purpose` (at most 16 bytes) is the kind of the lock, and `lock_name` (at most 64 bytes) the lock of this kind.
    """
    digest = blake2b(schema.encode(), key=lock_name, digest_size=8, person=purpose).digest()
    return int.from_bytes(digest, "big", signed=True)


# The emails


def hold_campaigns(connection: Connection, schema: str, ledger: str) -> Hold:
    """Return a function that locks campaigns by advisory locks of the writing session, so that a lost session loses its
    locks. `ledger` is the name of the ledger in messages."""
    held: set[int] = set()

    @contextmanager
    def hold(name: str, wait_s: float, is_stopped: Callable[[], bool]) -> Iterator[None]:
        key = compute_key(schema, b"connector mail", digest_campaign(name))
        if key in held:  # PostgreSQL gives a lock to the same session a second time
            raise LockedError(f"the campaign {name} is held by this very run")

        def try_lock() -> bool:
            with connection.begin():
                return bool(connection.execute(_TRY_LOCK, {"key": key}).scalar_one())

        def read_holder() -> str:
            high, low = divmod(key % 2**64, 2**32)
            with connection.begin():
                holder = connection.execute(_HOLDER, {"high": high, "low": low}).first()
            if holder is None:  # it has ended in this very moment
                return "another run"
            process = holder.application_name.removeprefix(_APPLICATION) or "another session"
            return f"{process}, {describe_since(holder.backend_start)} (PostgreSQL's process {holder.pid})"

        with translated(ledger):
            wait_for_lock(f"the campaign {name}", try_lock, read_holder, max(wait_s, _ENDING_S), is_stopped)
        held.add(key)
        try:
            yield
        finally:
            held.remove(key)
            if not connection.invalidated:  # SQLAlchemy would open a new session, which has no lock to release
                with suppress(SQLAlchemyError), connection.begin():  # lost in this very moment, the lock is, too
                    connection.execute(_RELEASE, {"key": key})

    return hold


_ended = set[str]()
"""The tokens of leases that this process no longer needs, whether or not the server could be told."""

lease_metadata = MetaData()

Table(
    "lease",
    lease_metadata,
    Column("lease_id", BigInteger, Identity(), primary_key=True),
    Column("shard_index", SmallInteger, nullable=False),
    Column("shard_count", SmallInteger, nullable=False),
    Column("run_key", Integer),  # the key of the holder's run; null: the holder has no run
    Column("holder", Text, nullable=False),  # the process, for people
    Column("process", Text, nullable=False),  # the identification of the process on its machine, and a token
    Column("expires_at", DateTime(timezone=True), nullable=False),
)


@contextmanager
def hold_lease(
    store: Store, name: str, key: int, shard: Shard, wait_s: float, is_stopped: Callable[[], bool]
) -> Iterator[None]:
    """Hold the lease of a shard during the context; every transaction of the store renews the lease.

    `name` is the name of the ledger in messages. `key` is the number of the advisory lock under which leases are taken.
    Raises LockedError if an overlapping lease is still held after `wait_s` seconds, or once `is_stopped` returns True.
    """
    lease: Lease | None = None
    token = token_hex(8)

    def try_take() -> bool:
        nonlocal lease
        lease = _try_take(store, key, shard, token)
        return lease is not None

    lock_name = name if shard.is_whole else f"shard {shard} of {name}"
    wait_for_lock(
        lock_name, try_take, lambda: _describe_holder(store, shard), max(wait_s, _ENDING_S), is_stopped=is_stopped
    )
    store.lease = lease
    try:
        yield
    finally:
        _ended.add(token)
        store.lease = None
        with (
            suppress(LedgerError),
            store.transaction() as connection,
        ):  # if the server cannot be reached, the lease expires
            connection.execute(_RELEASE_LEASE, {"id": lease.lease_id if lease is not None else None})


def name_run(store: Store, run_key: int) -> None:
    """Record the run in the store's lease, inside the transaction that records the run. Do nothing without a lease."""
    if store.lease is not None:
        store.connection.execute(_NAME_RUN, {"id": store.lease.lease_id, "run": run_key})


def _try_take(store: Store, key: int, shard: Shard, token: str) -> Lease | None:
    """Return a new lease, or None while an overlapping lease is held."""
    monotonic = system_clock().monotonic
    asked_at = monotonic()
    with store.transaction() as connection:
        connection.execute(_ALONE, {"key": key})
        others = [row for row in connection.execute(_ALL) if shard.overlaps(Shard(row.shard_index, row.shard_count))]
        dead = [row.lease_id for row in others if _has_ended(row.process)]
        ids = [row.lease_id for row in others]
        freed = connection.execute(_FREE, {"ids": ids, "dead": dead}).scalars().all()
        if len(freed) < len(ids):
            return None
        values = {
            "index": shard.index,
            "count": shard.count,
            "holder": f"{describe_holder()}, {describe_since(datetime.now(UTC))}",
            "process": f"{_identify_process(os.getpid())} {token}".strip(),
            "lease": LEASE_S,
        }
        lease = Lease(connection.execute(_TAKE, values).scalar_one(), monotonic)
    lease.extend(asked_at)
    return lease


def _describe_holder(store: Store, shard: Shard) -> str:
    with store.transaction() as connection:
        for row in connection.execute(_ALL):
            other = Shard(row.shard_index, row.shard_count)
            if shard.overlaps(other):
                return str(row.holder) if other.is_whole else f"a run of shard {other} ({row.holder})"
    return "another run"  # it has ended in this very moment


def _identify_process(pid: int) -> str:
    """Return an identification of the process that no other process on any machine has, or "" if /proc is not
    readable."""
    with suppress(OSError, ValueError, IndexError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        began = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
        return f"{boot} {Path('/proc/self/ns/pid').stat().st_ino} {pid} {began}"
    return ""


def _has_ended(holder: str) -> bool:
    """Return whether this machine knows that the holder has ended: another process of this machine, or a block of this
    process that could not release its lease."""
    theirs, _, token = holder.rpartition(" ")
    ours = _identify_process(os.getpid())
    if token in _ended:
        return True
    if not ours or not theirs or ours.split()[:2] != theirs.split()[:2]:
        return False
    pid = int(theirs.split()[2])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # a process of another user has this number
    return _identify_process(pid) not in ("", theirs)  # "": the system hides the process, and the process is alive


_ALONE = text("SELECT pg_advisory_xact_lock(:key)")
_ALL = text("SELECT lease_id, shard_index, shard_count, holder, process FROM lease ORDER BY lease_id")
# A row that is locked is being renewed at this moment.
_FREE = text(
    "DELETE FROM lease WHERE lease_id IN (SELECT lease_id FROM lease WHERE lease_id = ANY(:ids) "
    "AND (expires_at < clock_timestamp() OR lease_id = ANY(:dead)) FOR UPDATE SKIP LOCKED) RETURNING lease_id"
)
_TAKE = text(
    "INSERT INTO lease (shard_index, shard_count, holder, process, expires_at) VALUES (:index, :count, "
    ":holder || ' (PostgreSQL''s process ' || pg_backend_pid() || ')', :process, "
    "clock_timestamp() + make_interval(secs => :lease)) RETURNING lease_id"
)
_NAME_RUN = text("UPDATE lease SET run_key = :run WHERE lease_id = :id")
_RELEASE_LEASE = text("DELETE FROM lease WHERE lease_id = :id")
