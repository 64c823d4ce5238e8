"""Problems of jobs: rows that need a person, until a later run reads them in order.

A problem is known by its job, the digest of its identity (or of its cells if no identity can be read), the base that
its row names, and its kind. Every function runs inside a transaction of its caller.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, text

from connector.ledger.entries import Ledger
from connector.ledger.store import Batch, make_storable
from connector.states import State

OPTED_OUT = "opted_out"
KINDS = ("invalid", "rejected", "held", "unknown", OPTED_OUT)


class ProblemKey(NamedTuple):
    """The key of a problem among the problems of its job. `base` is "" unless a column names the base of each row."""

    digest: bytes
    base: str
    kind: str


class SeenProblem(NamedTuple):
    """A problem as a run has seen it. `place` is a digest of the run, the file and the number of the row."""

    is_identity: bool
    field: str
    place: bytes


@dataclass(frozen=True, slots=True)
class Backlog:
    """The open problems of a job of one kind and field that the run `run_id` has seen last: their number, and the first
    and the last time that a run has seen one (Unix seconds)."""

    account: str
    job: str
    kind: str
    field: str
    number: int
    first_seen: float
    last_seen: float
    run_id: str


@dataclass(frozen=True, slots=True)
class KnownProblem:
    """A problem of one identity."""

    account: str
    job: str
    base: str
    kind: str
    field: str
    first_seen: float
    last_seen: float
    run_id: str


def find_problems(ledger: Ledger, account: str, job: str) -> set[ProblemKey]:
    """Return the open problems of the job within the ledger's shard."""
    values = {"account": make_storable(account), "job": make_storable(job), "start": ledger.shard.start}
    rows = ledger.connection.execute(_FIND, values | {"end": ledger.shard.end})
    return {ProblemKey(bytes(digest), base, kind) for digest, base, kind in rows}


def record_problems(
    ledger: Ledger, account: str, job: str, seen: Mapping[ProblemKey, SeenProblem], run_id: str, at: float
) -> None:
    """Record that the run has seen these problems of the job at `at` (Unix seconds)."""
    shared = {"account": make_storable(account), "job": make_storable(job), "run_id": run_id, "at": float(at)}
    rows = [
        (key.digest, key.base, key.kind, problem.is_identity, problem.field, problem.place)
        for key, problem in seen.items()
    ]
    ledger.store.write(_RECORD, shared, rows)


def end_problems(ledger: Ledger, account: str, job: str, ended: Collection[ProblemKey]) -> None:
    """Delete these problems of the job."""
    ledger.store.write(_END, {"account": make_storable(account), "job": make_storable(job)}, list(ended))


def end_problems_at(ledger: Ledger, places: Collection[bytes]) -> None:
    """Delete the problems, of any job, whose rows were last seen at these places."""
    ledger.store.write(_END_AT, {}, [(place,) for place in places])


def end_settled_problems(connection: Connection) -> None:
    """Delete the problems whose creates have been confirmed since, for example by a retry."""
    connection.execute(_END_SETTLED, {"confirmed": State.CONFIRMED})


def end_problems_of(ledger: Ledger, account: str, identities: Sequence[bytes]) -> None:
    """Delete the problems of these identities (digests), of any job of the account."""
    ledger.store.write(_END_OF, {"account": make_storable(account)}, [(identity,) for identity in identities])


def end_problems_of_job(connection: Connection, job: str) -> int:
    """Delete all problems of a job, in every account, and return their number."""
    return connection.execute(_END_OF_JOB, {"job": make_storable(job)}).rowcount


def count_problems(ledger: Ledger, account: str, job: str) -> dict[str, int]:
    """Return the number of open problems of the job by kind, within the ledger's shard."""
    values = {"account": make_storable(account), "job": make_storable(job), "start": ledger.shard.start}
    rows = ledger.connection.execute(_COUNT, values | {"end": ledger.shard.end})
    return dict(rows.all())


def read_backlog(connection: Connection) -> list[Backlog]:
    """Return the open problems of all jobs, by job, kind, field and run, the latest run first."""
    return [Backlog(*row) for row in connection.execute(_BACKLOG)]


def find_identity_problems(connection: Connection, identities: Sequence[bytes]) -> list[KnownProblem]:
    """Return the open problems of these identities (digests)."""
    return [KnownProblem(*row) for row in connection.execute(_OF_IDENTITY, {"identities": list(identities)})]


_OF_JOB = "account = :account AND job = :job AND digest >= :start AND digest < :end"
_FIND = text(f"SELECT digest, base, kind FROM problem WHERE {_OF_JOB}")
_COUNT = text(f"SELECT kind, count(*) FROM problem WHERE {_OF_JOB} GROUP BY kind")
_RECORD = Batch(
    "INSERT INTO problem (account, job, run_id, first_seen, last_seen, digest, base, kind, is_identity, field, place) "
    "SELECT :account, :job, :run_id, CAST(:at AS double precision), CAST(:at AS double precision), "
    "column1, column2, column3, column4, column5, column6 FROM {item} WHERE true "
    "ON CONFLICT (account, job, digest, base, kind) DO UPDATE SET field = excluded.field, place = excluded.place, "
    "run_id = excluded.run_id, last_seen = excluded.last_seen",
    "bytea text text boolean text bytea",
)
_END = Batch(
    "DELETE FROM problem WHERE account = :account AND job = :job AND (digest, base, kind) IN "
    "(SELECT column1, column2, column3 FROM {item})",
    "bytea text text",
)
_END_AT = Batch("DELETE FROM problem WHERE place IN (SELECT column1 FROM {item})", "bytea")
_END_OF = Batch(
    "DELETE FROM problem WHERE account = :account AND is_identity AND digest IN (SELECT column1 FROM {item})", "bytea"
)
_END_OF_JOB = text("DELETE FROM problem WHERE job = :job")
# In one statement for all bases, because a problem does not know its base in the ledger.
_ENTRIES = (
    "SELECT 1 FROM base JOIN entry ON entry.base_key = base.base_key AND entry.identity = problem.digest "
    "WHERE base.account = problem.account AND state"
)
_END_SETTLED = text(
    f"DELETE FROM problem WHERE kind IN ('rejected', 'held', 'unknown') AND EXISTS ({_ENTRIES} = :confirmed) "
    f"AND NOT EXISTS ({_ENTRIES} <> :confirmed)"
)
_BACKLOG = text(
    "SELECT account, job, kind, field, count(*), min(first_seen), max(last_seen), run_id FROM problem "
    "GROUP BY account, job, kind, field, run_id ORDER BY account, job, run_id DESC, count(*) DESC, kind, field"
)
_OF_IDENTITY = text(
    "SELECT account, job, base, kind, field, first_seen, last_seen, run_id FROM problem "
    "WHERE is_identity AND digest IN :identities ORDER BY account, job, base, kind"
).bindparams(bindparam("identities", expanding=True))
