"""Leases of a ledger in PostgreSQL: which process may write the entries of which shard (architecture 4.3).

Theory of operation. Every process that writes holds a lease of its shard; an ordinary run holds a lease of all
identities. A process takes a lease in one transaction, under a lock, and only if no other lease overlaps. The id of a
lease is the fencing token: each transaction of the holder renews the lease first, and fails if the lease is gone. The
renewal locks the row of the lease until the commit, so another process cannot take the lease during a transaction.

A lease is free if its holder has released it, if it has expired on the server's clock, or if this machine knows that
the holder has ended. The holder sends no request after the end of the lease by the holder's own clock.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex

from sqlalchemy import BigInteger, Column, DateTime, Identity, Integer, MetaData, SmallInteger, Table, Text, text

from connector.clock import system_clock
from connector.errors import LedgerError
from connector.ledger.store import LEASE_S, Lease, Store, describe_holder, describe_since, wait_for_lock
from connector.shards import Shard

_ENDING_S = 1.0
"""A process that was just killed may have a transaction under way until the server has seen its end."""

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
    Column("process", Text, nullable=False),  # the process, as its own machine can identify it, and a token
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

    what = name if shard.is_whole else f"shard {shard} of {name}"
    wait_for_lock(what, try_take, lambda: _describe_holder(store, shard), max(wait_s, _ENDING_S), is_stopped=is_stopped)
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
            connection.execute(_RELEASE, {"id": lease.lease_id if lease is not None else None})


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
_RELEASE = text("DELETE FROM lease WHERE lease_id = :id")
