"""Parts of a joint run: several runs at once over one ledger in PostgreSQL, each with its part of one source.

Theory of operation (architecture 4.16). The runs share one lock, which an ordinary run takes for itself alone, so the
ledger belongs to one joint run or to one other run. Four rules keep two runs from sending the same create:

1. A run holds its part by a lease on the server's clock. Every commit renews the lease, and fails once another run has
   taken the part: the run's key is the fencing token. No request leaves after the lease by this process's own clock.
2. A part is free when its run has ended, when its lease has expired, or when its process is known to be dead.
3. The first part that meets an identity claims it, chunk by chunk, before anything else is done with those rows. No
   other part reads, sends or settles its entry; to other parts the row is a duplicate.
4. What a part's earlier run was sending is unknown as soon as the part is taken again. What no part has claimed is
   claimed and settled by the part that is the last to have read its rows.

A joint run ends when all its parts have ended, or when none has been worked on for an hour. The next one begins with
no claims. One command may lead it, and then holds part 0 as long as it goes on: the joint run ends with that command,
and the runs of a part are attempts, of which the last one counts.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    DateTime,
    Integer,
    LargeBinary,
    MetaData,
    Row,
    SmallInteger,
    Table,
    Text,
    text,
)

from connector.databases import parse_place, show_place
from connector.errors import ConfigurationError, LockedError
from connector.ledger.entries import Ledger, Unfinished
from connector.ledger.postgres import compute_key, open_session, take_lock
from connector.ledger.schema import HOW, UNFINISHED, create_or_check
from connector.ledger.store import (
    LEASE_S,
    Base,
    Batch,
    Lease,
    Store,
    build_missing,
    describe_holder,
    translated,
    wait_for_lock,
)
from connector.plurals import count
from connector.states import ENTRY, Event, State
from connector.subscribers.identity import FINGERPRINT_BYTES, IDENTITY_BYTES

_PARTS_KEY = compute_key("", b"connector parts")  # the whole database's, for a moment
_IDLE_S = 3600.0  # a part that failed is run again within this time, or else the whole source is
_LED_WAIT_S = LEASE_S + 5.0  # an attempt on another machine may have died, and its lease goes on

joint_metadata = MetaData()

part_table = Table(
    "part",
    joint_metadata,
    Column("number", SmallInteger, primary_key=True),  # from 1
    Column("parts", SmallInteger, nullable=False),
    Column("account", Text, nullable=False),
    Column("job", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("run_key", Integer, nullable=False),  # of the run that holds it, or held it last
    Column("lease_until", DateTime(timezone=True), nullable=False),
    Column("holder", Text, nullable=False),  # the process, in words
    Column("process", Text, nullable=False),  # the same, as its own machine can look it up
    Column("beat", Text),  # what the run has said of its pace, as JSON
    Column("beat_at", DateTime(timezone=True)),
    Column("is_read", Boolean, nullable=False),  # its rows have all been read and claimed
    Column("is_ended", Boolean, nullable=False),  # well: it is not to be run again
)

attempt_table = Table(
    "joint_attempt",
    joint_metadata,
    Column("run_key", Integer, primary_key=True),
    Column("number", SmallInteger, nullable=False),  # of the part that this run took
)

claim_table = Table(
    "claim",
    joint_metadata,
    Column("base_key", Integer, primary_key=True),
    Column("identity", LargeBinary(IDENTITY_BYTES), primary_key=True),
    Column("part", SmallInteger, nullable=False),
    Column("fingerprint", LargeBinary(FINGERPRINT_BYTES), nullable=False),  # of the row that was met first
)

listing_table = Table(
    "joint_listing",
    joint_metadata,
    Column("base_key", Integer, primary_key=True),
    Column("began_at", DateTime(timezone=True), nullable=False),
    Column("rows", BigInteger, nullable=False),  # distinct ids
    Column("total_count", BigInteger),  # of a list that may be cut off; null: it is not suspected
)


@dataclass(frozen=True, slots=True)
class Part:
    """Part `number` (from 1) of `parts`, of the joint run of a job for an account; `source` digests what tells the
    job's source from another, so that all parts are of the same.

    `lead` is the run that leads the joint run, if one does: its own number is 0, and only it ends the parts.
    """

    number: int
    parts: int
    account: str
    job: str
    source: str = ""
    lead: str = ""

    def __str__(self) -> str:
        if self.number == 0:
            return f"a run of the job {self.job} in {count(self.parts, 'part')}"
        return f"part {self.number} of {self.parts} of the job {self.job}"

    @property
    def key(self) -> str:
        """What is the same for all parts of one joint run, and for no others."""
        return f"{self.source} {self.lead}".rstrip()

    @property
    def is_led(self) -> bool:
        """Whether it is a part that a command leads, and not that command itself."""
        return bool(self.lead) and self.number > 0


@contextmanager
def open_part(
    url: str, part: Part, *, wait_s: float = 0.0, is_stopped: Callable[[], bool] = lambda: False, may_make: bool = True
) -> Iterator[Ledger]:
    """Open the ledger at a SQLAlchemy URL (PostgreSQL) beside the runs of other parts, once the part is free.

    `take_part` must follow, in the transaction that records the run. Raises LockedError when another run holds the
    ledger or the part for longer than `wait_s` seconds (or until `is_stopped`); ConfigurationError for a ledger that
    has one writer alone; else as `open_ledger` does.
    """
    place = parse_place(url)
    if isinstance(place, Path):
        raise ConfigurationError(
            f"{part}: a ledger in SQLite has one writer, and the parts of a run write at the same time. Keep the "
            "ledger in PostgreSQL: set CONNECTOR_LEDGER=postgresql://… for every part"
        )
    name = show_place(place)
    with open_session(place) as (connection, schema):
        with translated(name):
            lock = compute_key(schema)
            take_lock(connection, lock, f"the ledger {name} (schema {schema})", wait_s, is_stopped, is_shared=True)
        store = Store(connection, name)
        with store.transaction():
            connection.execute(_ALONE, {"key": _PARTS_KEY})
            if not create_or_check(connection, name, may_make=may_make):
                raise build_missing(name)
            joint_metadata.create_all(connection)
        wait_for_lock(
            str(part),
            lambda: _find_holder(store, part) is None,
            lambda: _find_holder(store, part) or "another run",
            max(wait_s, _LED_WAIT_S) if part.is_led else wait_s,
            is_stopped=is_stopped,
        )
        yield Ledger(store)


def take_part(ledger: Ledger, part: Part, run_key: int, monotonic: Callable[[], float]) -> Lease:
    """Take the part for this run, inside the transaction that records the run; the lease is to be set as
    `ledger.store.lease` when that is durable.

    Whatever an earlier run of the part was sending is unknown from now on; in a new joint run, whatever any run was
    sending. Raises LockedError when another run has just taken the part, or the ledger; ConfigurationError when the
    command that leads the joint run is not at work in this ledger.
    """
    connection = ledger.connection
    connection.execute(_AWAIT_RENEWALS)  # a late one may be under way: its run keeps the part, and its intents count
    if (held_by := _describe_holder(connection, part)) is not None:
        raise LockedError(f"{part} is held by {held_by}: wait for that run, or use --wait")
    if part.is_led and not connection.execute(_FIND_LEAD, {"key": part.key}).scalar_one():
        raise ConfigurationError(
            f"{part}: the command that leads it has no run in the ledger {ledger.store.name}. Set CONNECTOR_LEDGER for "
            "every worker as for the command"
        )
    values = {"to": ENTRY.decide(State.SENDING, Event.DIED), "left": State.SENDING, "number": part.number}
    if _is_over(connection, part):
        connection.execute(_FORGET_PARTS)
        connection.execute(_ALL_DIED, values)
    else:
        connection.execute(_PART_DIED, values)
    holder = {"run": run_key, "lease": LEASE_S, "holder": describe_holder(), "process": _identify_process(os.getpid())}
    connection.execute(_TAKE, asdict(part) | {"key": part.key} | holder)
    connection.execute(_RECORD_ATTEMPT, {"run": run_key, "number": part.number})
    lease = Lease(part.number, run_key, monotonic)
    lease.first_key = connection.execute(_FIRST_ATTEMPT).scalar_one()
    return lease


def claim_identities(ledger: Ledger, base: Base, rows: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Claim the identities of these (identity, fingerprint) for the part, inside a transaction; return those that
    another part has claimed before, each with the fingerprint of that part's row.

    Ask for nothing else in that transaction: claims are made in the order of identities, so that two parts that meet
    the same ones wait for each other in turn.
    """
    lease, store = ledger.store.lease, ledger.store
    if lease is None:
        return {}
    items = sorted((base.key, *row) for row in rows)
    store.write(_CLAIM, {"part": lease.number}, items)
    foreign = store.select(_FIND_FOREIGN, {"part": lease.number}, [item[:2] for item in items])
    return dict(tuple(row) for row in foreign)


def find_own_unknown(ledger: Ledger, base: Base) -> list[Unfinished]:
    """Return the unknown entries of the base, inside a transaction; for a part of a joint run, those that it has
    claimed. The last one claims what no part has."""
    lease = ledger.store.lease
    if lease is None:
        return ledger.find_unfinished(base, State.UNKNOWN)
    if lease.is_last:
        values = {"base": base.key, "state": State.UNKNOWN, "part": lease.number}
        ledger.connection.execute(_CLAIM_UNKNOWN, values)
    return ledger.find_unfinished(base, State.UNKNOWN, part=lease.number)


def mark_read(ledger: Ledger) -> None:
    """Record, inside a transaction, that the part has read and claimed all its rows; its lease says from then on
    whether it is the last one."""
    lease, connection = ledger.store.lease, ledger.connection
    if lease is None:
        return
    connection.execute(_ALONE, {"key": _PARTS_KEY})
    connection.execute(_MARK_READ, {"number": lease.number})
    lease.is_last = not connection.execute(_COUNT_UNREAD).scalar_one()


def end_part(ledger: Ledger, *, is_well: bool) -> None:
    """Record, inside the transaction that ends the run, that the part is free again; `is_well`: and need not be run
    again."""
    if (lease := ledger.store.lease) is not None:
        ledger.connection.execute(_END, {"number": lease.number, "is_well": is_well})


def count_created_before(ledger: Ledger, ended: Sequence[str]) -> dict[int, int]:
    """Return, by the numbers of parts, how many subscribers the attempts of this joint run have created that are not
    among the runs `ended` (their ids), whose reports count them."""
    values = {"confirmed": State.CONFIRMED, "accepted": HOW["accepted"], "ended": list(ended)}
    if not ledger.connection.execute(_HAS_OTHER_ATTEMPTS, {"ended": list(ended)}).scalar_one():
        return {}  # else all entries are read
    rows = ledger.connection.execute(_COUNT_CREATED_BEFORE, values)
    return {row.number: row.created for row in rows}


def count_unresolved_before(ledger: Ledger, ended: Sequence[str]) -> dict[int, int]:
    """Return the same for creates that those attempts have sent and whose outcome is not known."""
    values = {"sending": State.SENDING, "unknown": State.UNKNOWN, "ended": list(ended)}
    rows = ledger.connection.execute(_COUNT_UNRESOLVED_BEFORE, values)
    return {row.number: row.unresolved for row in rows}


def exchange_beats(ledger: Ledger, beat: str) -> dict[int, tuple[str, float]]:
    """Record what this part says of its pace; return what the other parts that go on have said, by their numbers, each
    with its age (s)."""
    lease = ledger.store.lease
    if lease is None:
        return {}
    ledger.connection.execute(_RECORD_BEAT, {"number": lease.number, "beat": beat})
    rows = ledger.connection.execute(_FIND_BEATS, {"number": lease.number})
    return {number: (said, age_s) for number, said, age_s in rows}


# What a listing has taught one part, for the others


@dataclass(frozen=True, slots=True)
class JointListing:
    """A complete listing of a base by a run of this joint run: `age_s` since it began, how many distinct ids it had,
    and TotalCount where the list may be cut off."""

    age_s: float
    rows: int
    total_count: int | None


def find_listing(ledger: Ledger, base: Base) -> JointListing | None:
    """Return the last complete listing of the base in this joint run; None without one."""
    row = ledger.connection.execute(_FIND_LISTING, {"base": base.key}).first()
    return None if row is None else JointListing(*row)


def record_listing(ledger: Ledger, base: Base, listing: JointListing) -> None:
    """Record a complete listing, whose subscribers are in the ledger by now."""
    values = {"base": base.key, "age": listing.age_s, "rows": listing.rows, "total": listing.total_count}
    ledger.connection.execute(_RECORD_LISTING, values)


def try_list_alone(ledger: Ledger, base: Base) -> bool:
    """Return whether this run is the one that lists the base now; `stop_listing` must follow."""
    return bool(ledger.connection.execute(_TRY_ALONE, {"key": _listing_key(base)}).scalar_one())


def stop_listing(ledger: Ledger, base: Base) -> None:
    """Let another run list the base."""
    ledger.connection.execute(_RELEASE, {"key": _listing_key(base)})


def _listing_key(base: Base) -> int:
    return compute_key(f"{base.account}\0{base.key}", b"connector lists")


# Whether a part is free


def _find_holder(store: Store, part: Part) -> str | None:
    with store.transaction():
        return _describe_holder(store.connection, part)


def _describe_holder(connection: Connection, part: Part) -> str | None:
    """Return, in words, what keeps the part from being taken; None: it is free."""
    rows = connection.execute(_PARTS).all()
    if _is_over(connection, part):
        return None
    for row in rows:
        if not _is_same(row, part):
            is_of_other_files = row.source.partition(" ")[0] != part.source  # what follows is the run that leads it
            other = " over other files" if row.job == part.job and is_of_other_files else ""
            return f"a joint run of the job {row.job} in {count(row.parts, 'part')}{other}, {row.holder}"
    mine = next((row for row in rows if row.number == part.number), None)
    if mine is None or not (mine.is_ended or (mine.is_live and not _is_dead(mine.process))):
        return None
    if mine.is_ended:
        others = ", ".join(str(row.number) for row in rows if not row.is_ended)
        return (
            f"its own joint run: the part has ended well, and others have not yet (of those begun: {others or 'none'})"
        )
    return str(mine.holder)


def _is_over(connection: Connection, part: Part) -> bool:
    """Whether the joint run that the ledger knows has ended, so that the part begins a new one."""
    rows = connection.execute(_PARTS).all()
    if any(row.is_live and not row.is_ended and not _is_dead(row.process) for row in rows):
        return False
    is_whole = len(rows) == (rows[0].parts if rows else 0)
    is_another = any(not _is_same(row, part) for row in rows)
    return is_another or (is_whole and all(row.is_ended for row in rows)) or all(row.is_idle for row in rows)


def _is_same(row: Row[Any], part: Part) -> bool:
    """Whether a line of the table is of the same joint run."""
    return (row.parts, row.account, row.job, row.source) == (part.parts, part.account, part.job, part.key)


def _identify_process(pid: int) -> str:
    """Return what tells the process from every other on any machine; "" where the system does not say."""
    with suppress(OSError, ValueError, IndexError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        began = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
        return f"{boot} {Path('/proc/self/ns/pid').stat().st_ino} {pid} {began}"
    return ""


def _is_dead(process: str) -> bool:
    """Whether a process of this very machine has ended; False where this machine does not know it."""
    ours = _identify_process(os.getpid()).split()
    theirs = process.split()
    if not ours or not theirs or ours[:2] != theirs[:2]:
        return False
    return _identify_process(int(theirs[2])) != process


_ALONE = text("SELECT pg_advisory_xact_lock(:key)")
_AWAIT_RENEWALS = text("LOCK TABLE part IN SHARE ROW EXCLUSIVE MODE")
_TRY_ALONE = text("SELECT pg_try_advisory_lock(:key)")
_RELEASE = text("SELECT pg_advisory_unlock(:key)")
_PARTS = text(
    "SELECT number, parts, account, job, source, holder, process, is_ended, "
    "lease_until > clock_timestamp() AS is_live, "
    f"lease_until < clock_timestamp() - make_interval(secs => {_IDLE_S}) AS is_idle FROM part ORDER BY number"
)
_FORGET_PARTS = text("TRUNCATE part, claim, joint_listing, joint_attempt")
_FIND_LEAD = text("SELECT EXISTS (SELECT 1 FROM part WHERE number = 0 AND source = :key AND NOT is_ended)")
_ALL_DIED = text(f"UPDATE entry SET state = :to WHERE state = :left AND {UNFINISHED}")
_PART_DIED = text(
    f"UPDATE entry SET state = :to FROM claim WHERE state = :left AND {UNFINISHED} AND part = :number "
    "AND claim.base_key = entry.base_key AND claim.identity = entry.identity"
)
_TAKE = text(
    "INSERT INTO part (number, parts, account, job, source, run_key, lease_until, holder, process, is_read, is_ended) "
    "VALUES (:number, :parts, :account, :job, :key, :run, clock_timestamp() + make_interval(secs => :lease), "
    ":holder, :process, false, false) ON CONFLICT (number) DO UPDATE SET run_key = excluded.run_key, "
    "lease_until = excluded.lease_until, holder = excluded.holder, process = excluded.process, is_read = false, "
    "beat = NULL, beat_at = NULL"
)
_RECORD_ATTEMPT = text("INSERT INTO joint_attempt (run_key, number) VALUES (:run, :number)")
_FIRST_ATTEMPT = text("SELECT min(run_key) FROM joint_attempt")
_HAS_OTHER_ATTEMPTS = text(
    "SELECT EXISTS (SELECT 1 FROM joint_attempt JOIN run USING (run_key) WHERE run_id <> ALL (:ended))"
)
# What a run has sent and the service has: the row has a fingerprint, or else it was compared, and another's.
_COUNT_CREATED_BEFORE = text(
    "SELECT number, count(*) AS created FROM entry JOIN joint_attempt USING (run_key) JOIN run USING (run_key) "
    "WHERE state = :confirmed AND fingerprint IS NOT NULL AND how <> :accepted AND run_id <> ALL (:ended) "
    "GROUP BY number"
)
_COUNT_UNRESOLVED_BEFORE = text(
    "SELECT number, count(*) AS unresolved FROM entry JOIN joint_attempt USING (run_key) JOIN run USING (run_key) "
    f"WHERE state IN (:sending, :unknown) AND {UNFINISHED} AND run_id <> ALL (:ended) GROUP BY number"
)
_CLAIM = Batch(
    "INSERT INTO claim (base_key, identity, part, fingerprint) "
    "SELECT item.column1, item.column2, :part, item.column3 FROM {item} ON CONFLICT DO NOTHING",
    "integer bytea bytea",
)
_JOIN_CLAIM = "claim.base_key = item.column1 AND claim.identity = item.column2"
_FIND_FOREIGN = Batch(
    f"SELECT claim.identity, claim.fingerprint FROM {{item}} JOIN claim ON {_JOIN_CLAIM} WHERE part <> :part",
    "integer bytea",
)
_CLAIM_UNKNOWN = text(
    "INSERT INTO claim (base_key, identity, part, fingerprint) "
    "SELECT base_key, identity, :part, fingerprint FROM entry "
    f"WHERE base_key = :base AND state = :state AND {UNFINISHED} ORDER BY identity ON CONFLICT DO NOTHING"
)
_MARK_READ = text("UPDATE part SET is_read = true WHERE number = :number")
_COUNT_UNREAD = text("SELECT max(parts) - count(*) FILTER (WHERE is_read) FROM part")
_END = text("UPDATE part SET is_ended = :is_well, lease_until = clock_timestamp() WHERE number = :number")
_RECORD_BEAT = text("UPDATE part SET beat = :beat, beat_at = clock_timestamp() WHERE number = :number")
_FIND_BEATS = text(
    "SELECT number, beat, CAST(extract(epoch FROM clock_timestamp() - beat_at) AS double precision) FROM part "
    "WHERE number <> :number AND beat IS NOT NULL AND NOT is_ended AND lease_until > clock_timestamp()"
)
_FIND_LISTING = text(
    "SELECT CAST(extract(epoch FROM clock_timestamp() - began_at) AS double precision), rows, total_count "
    "FROM joint_listing WHERE base_key = :base"
)
_RECORD_LISTING = text(
    "INSERT INTO joint_listing (base_key, began_at, rows, total_count) "
    "VALUES (:base, clock_timestamp() - make_interval(secs => :age), :rows, :total) "
    "ON CONFLICT (base_key) DO UPDATE SET began_at = excluded.began_at, rows = excluded.rows, "
    "total_count = excluded.total_count"
)
