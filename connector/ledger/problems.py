"""Problems of jobs. A problem is a row that a person must look at, until a later run reads the row without a fault.

The key of a problem consists of the job, a digest, the base that the row names, and the kind of the problem. The digest
is of the identity, or of the cells if no identity can be read. Call every function inside a transaction.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, text

from connector.ledger.entries import Ledger
from connector.ledger.store import BatchStatement, make_storable
from connector.outcomes import ProblemKind, find_problem_traits
from connector.states import State


class ProblemKey(NamedTuple):
    """The key of a problem among the problems of its job. `identity_or_row_digest` is the digest of the identity, or of
    the row if no identity can be read. `base` is "" unless a column names the base of each row."""

    identity_or_row_digest: bytes
    base: str
    kind: str


class SeenProblem(NamedTuple):
    """A problem as a run has seen it. `has_identity` is false if no identity can be read in the row.
    `row_position_digest` is a digest of the run, the file and the number of the row."""

    has_identity: bool
    field: str
    row_position_digest: bytes


@dataclass(frozen=True, slots=True)
class ProblemGroup:
    """A group of open problems that share the job, the kind, the field, and the run that has seen them last (`run_id`).
    `first_seen` and `last_seen` are the first and the last time that a run has seen a problem of the group (Unix
    seconds)."""

    account: str
    job: str
    kind: str
    field: str
    problem_count: int
    first_seen: float
    last_seen: float
    run_id: str


def find_problems(ledger: Ledger, account: str, job: str) -> set[ProblemKey]:
    """Return the open problems of the job within the ledger's shard."""
    parameters = {"account": make_storable(account), "job": make_storable(job), "start": ledger.shard.smallest_digest}
    rows = ledger.connection.execute(_FIND_PROBLEMS, parameters | {"end": ledger.shard.end_digest})
    return {ProblemKey(bytes(digest), base, kind) for digest, base, kind in rows}


def record_problems(
    ledger: Ledger, account: str, job: str, seen_problems: Mapping[ProblemKey, SeenProblem], run_id: str, seen_at: float
) -> None:
    """Record that the run has seen these problems of the job at `seen_at` (Unix seconds)."""
    shared_values = {"account": make_storable(account), "job": make_storable(job), "run_id": run_id, "at": seen_at}
    rows = [
        (
            key.identity_or_row_digest,
            key.base,
            key.kind,
            problem.has_identity,
            problem.field,
            problem.row_position_digest,
        )
        for key, problem in seen_problems.items()
    ]
    ledger.store.write(_INSERT_PROBLEMS, shared_values, rows)


def end_problems(ledger: Ledger, account: str, job: str, problem_keys: Collection[ProblemKey]) -> None:
    """Delete these problems of the job."""
    shared_values = {"account": make_storable(account), "job": make_storable(job)}
    ledger.store.write(_DELETE_PROBLEMS, shared_values, list(problem_keys))


def end_row_problems(ledger: Ledger, row_position_digests: Collection[bytes]) -> None:
    """Delete each problem whose row has one of these positions, in any job. A position is a digest of the run, the file
    and the number of the row."""
    ledger.store.write(_DELETE_PROBLEMS_OF_ROWS, {}, [(digest,) for digest in row_position_digests])


def end_settled_problems(connection: Connection) -> None:
    """Delete the problems whose creates are now confirmed, for example by a retry."""
    connection.execute(_DELETE_SETTLED_PROBLEMS, {"confirmed": State.CONFIRMED})


def end_identity_problems(ledger: Ledger, account: str, identities: Sequence[bytes]) -> None:
    """Delete the problems of these identities (digests), in all jobs of the account."""
    rows = [(identity,) for identity in identities]
    ledger.store.write(_DELETE_PROBLEMS_OF_IDENTITIES, {"account": make_storable(account)}, rows)


def end_problems_of_job(connection: Connection, job: str) -> int:
    """Delete all problems of a job, in every account, and return their number."""
    return connection.execute(_DELETE_PROBLEMS_OF_JOB, {"job": make_storable(job)}).rowcount


def read_problem_groups(connection: Connection) -> list[ProblemGroup]:
    """Return the open problems of all jobs, by job, run, kind and field. The latest run of a job comes first."""
    return [ProblemGroup(*row) for row in connection.execute(_READ_PROBLEM_GROUPS)]


def find_identity_problems(connection: Connection, identities: Sequence[bytes]) -> list[dict[str, Any]]:
    """Return the open problems of these identities (digests). The keys are account, job, base, kind, field, run_id,
    first_seen and last_seen. The values of the last two keys are in Unix seconds."""
    rows = connection.execute(_FIND_PROBLEMS_OF_IDENTITIES, {"identities": list(identities)})
    return [dict(row) for row in rows.mappings()]


_FIND_PROBLEMS = text(
    "SELECT digest, base, kind FROM problem "
    "WHERE account = :account AND job = :job AND digest >= :start AND digest < :end"
)
_INSERT_PROBLEMS = BatchStatement(
    "INSERT INTO problem (account, job, run_id, first_seen, last_seen, digest, base, kind, is_identity, field, place) "
    "SELECT :account, :job, :run_id, CAST(:at AS double precision), CAST(:at AS double precision), "
    "column1, column2, column3, column4, column5, column6 FROM {item} WHERE true "
    "ON CONFLICT (account, job, digest, base, kind) DO UPDATE SET field = excluded.field, place = excluded.place, "
    "run_id = excluded.run_id, last_seen = excluded.last_seen",
    "bytea text text boolean text bytea",
)
_DELETE_PROBLEMS = BatchStatement(
    "DELETE FROM problem WHERE account = :account AND job = :job AND (digest, base, kind) IN "
    "(SELECT column1, column2, column3 FROM {item})",
    "bytea text text",
)
_DELETE_PROBLEMS_OF_ROWS = BatchStatement("DELETE FROM problem WHERE place IN (SELECT column1 FROM {item})", "bytea")
_DELETE_PROBLEMS_OF_IDENTITIES = BatchStatement(
    "DELETE FROM problem WHERE account = :account AND is_identity AND digest IN (SELECT column1 FROM {item})", "bytea"
)
_DELETE_PROBLEMS_OF_JOB = text("DELETE FROM problem WHERE job = :job")
# The entries of all bases are joined, because the table of problems does not have the key of a base.
_JOIN_ENTRIES_SQL = (
    "SELECT 1 FROM base JOIN entry ON entry.base_key = base.base_key AND entry.identity = problem.digest "
    "WHERE base.account = problem.account AND state"
)
_ENDING_KINDS_SQL = ", ".join(f"'{kind}'" for kind in ProblemKind if find_problem_traits(kind).ends_if_confirmed)
_DELETE_SETTLED_PROBLEMS = text(
    f"DELETE FROM problem WHERE kind IN ({_ENDING_KINDS_SQL}) AND EXISTS ({_JOIN_ENTRIES_SQL} = :confirmed) "
    f"AND NOT EXISTS ({_JOIN_ENTRIES_SQL} <> :confirmed)"
)
_READ_PROBLEM_GROUPS = text(
    "SELECT account, job, kind, field, count(*), min(first_seen), max(last_seen), run_id FROM problem "
    "GROUP BY account, job, kind, field, run_id ORDER BY account, job, run_id DESC, count(*) DESC, kind, field"
)
_FIND_PROBLEMS_OF_IDENTITIES = text(
    "SELECT account, job, base, kind, field, first_seen, last_seen, run_id FROM problem "
    "WHERE is_identity AND digest IN :identities ORDER BY account, job, base, kind"
).bindparams(bindparam("identities", expanding=True))
