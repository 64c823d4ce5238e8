"""The outbox of receipts: subscribers that a run has dealt with, until their receipts are at the destination.

A subscriber gets into the outbox in the transaction that makes its create durable, so a killed run leaves its receipts
to the next one. The outcome of a receipt is read from the entry when the receipt is delivered. Every function runs
inside a transaction of its caller.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import Connection, text

from connector.ledger.entries import Ledger
from connector.ledger.schema import HOW
from connector.ledger.store import Batch, make_storable, make_storable_or_none
from connector.states import State


class ReceiptKind(StrEnum):
    """Why a subscriber is in the outbox of a run."""

    SENT = "sent"  # the run sent its create
    KNOWN = "known"  # an earlier run sent its create, and this run has read its row or looked its subscriber up
    CREATED = "created"  # the service refused the create of this run, and its list shows the new subscriber
    EXISTED = "existed"  # the create met a subscriber that existed before, or that may have
    CHANGED = "changed"  # its row differs from the subscriber


@dataclass(frozen=True, slots=True)
class PendingReceipt:
    """A subscriber of a run in the outbox. `evidence` and `message` are set for a changed row."""

    identity: bytes
    kind: ReceiptKind
    name: str
    evidence: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a run knows of one subscriber. `evidence` is `answer`, `lookup`, `sweep` or `ledger`."""

    identity: str
    outcome: str
    service_id: int | None
    evidence: str
    message: str | None


@dataclass(frozen=True, slots=True)
class PendingRun:
    """A run whose receipts are not at the destination yet."""

    run_key: int
    run_id: str


ReceiptPlace = tuple[int, bytes]
"""The key of the base, and the identity: the order of a run's receipts."""

FIRST_PLACE: ReceiptPlace = (0, b"")


def record_pending(ledger: Ledger, run_key: int, base_key: int, receipts: Sequence[PendingReceipt]) -> None:
    """Put these subscribers of a base into the outbox of the run."""
    rows = [
        (
            base_key,
            receipt.identity,
            receipt.kind,
            make_storable(receipt.name),
            receipt.evidence,
            make_storable_or_none(receipt.message),
        )
        for receipt in receipts
    ]
    ledger.store.write(_RECORD, {"run": run_key}, rows)


def find_pending_runs(ledger: Ledger, account: str, job: str, run_key: int) -> list[PendingRun]:
    """Return the job's runs with receipts in the outbox: the run `run_key`, and runs that have ended or died. A run of
    a shard leaves out the runs of other shards."""
    values = {"account": make_storable(account), "job": make_storable(job), "own": run_key}
    values |= {"start": ledger.shard.start, "end": ledger.shard.end}
    return [PendingRun(*row) for row in ledger.connection.execute(_PENDING_RUNS, values)]


def read_receipts(
    connection: Connection, run_key: int, after: ReceiptPlace, number: int
) -> tuple[list[Receipt], ReceiptPlace | None]:
    """Return the receipts of at most `number` subscribers of the run behind `after`, and the place of the last one, or
    None after the last place of all. A subscriber without an entry has no receipt: its create was not sent."""
    values = {"run": run_key, "base": after[0], "identity": after[1], "number": number}
    rows = connection.execute(_READ, values).all()
    receipts = [receipt for row in rows if (receipt := _build(run_key, *row[2:])) is not None]
    return receipts, (rows[-1][0], bytes(rows[-1][1])) if rows else None


def find_runs_in_outbox(connection: Connection) -> set[int]:
    """Return the keys of all runs with receipts in the outbox."""
    return set(connection.scalars(_RUNS_IN_OUTBOX))


def delete_pending(connection: Connection, run_key: int) -> None:
    """Take the run out of the outbox, because its receipts are at the destination."""
    connection.execute(_DELETE, {"run": run_key})


def delete_pending_of_job(connection: Connection, job: str) -> int:
    """Take all runs of a job out of the outbox, in every account, and return the number of receipts."""
    return connection.execute(_DELETE_OF_JOB, {"job": make_storable(job)}).rowcount


def _build(
    run_key: int,
    kind: str,
    name: str,
    evidence: str | None,
    words: str | None,
    state: int | None,
    how: int | None,
    subscriber_id: int | None,
    status: int | None,
    message: str | None,
    sent_by: int | None,
    reported_at: float | None,
) -> Receipt | None:
    """Return the receipt that the entry supports, or None."""
    is_own = sent_by == run_key
    if state is None or (kind == ReceiptKind.SENT and not is_own and status is None):
        return None  # not sent, or sent again by a later run
    if kind == ReceiptKind.EXISTED:
        return Receipt(name, "exists", subscriber_id, evidence or "lookup", None)
    if kind == ReceiptKind.CHANGED:
        return Receipt(name, "changed", subscriber_id, evidence or "ledger", words)
    match State(state):
        case State.CONFIRMED if how == HOW["found"] and kind != ReceiptKind.CREATED:
            return Receipt(name, "exists", subscriber_id, "lookup", None)  # perhaps not by a create of ours
        case State.CONFIRMED:
            return Receipt(name, "created", subscriber_id, "answer" if how == HOW["created"] else "lookup", None)
        case State.REJECTED if not is_own or not status:
            return Receipt(name, "rejected", None, "ledger", message)
        case State.REJECTED:
            return Receipt(name, "rejected", None, "answer" if reported_at is None else "lookup", message)
        case State.HELD if subscriber_id is not None:
            return Receipt(name, "held", subscriber_id, "answer", message)
        case State.HELD:
            return Receipt(name, "held", None, "lookup" if message is None else "ledger", message)
    return Receipt(name, "unknown", None, "ledger", None)


_RECORD = Batch(
    "INSERT INTO receipt (run_key, base_key, identity, kind, name, evidence, message) "
    "SELECT :run, column1, column2, column3, column4, column5, column6 FROM {item} WHERE true "
    "ON CONFLICT (run_key, base_key, identity) DO UPDATE SET kind = excluded.kind, evidence = excluded.evidence, "
    f"message = excluded.message WHERE excluded.kind <> '{ReceiptKind.KNOWN}'",
    "integer bytea text text text text",
)
_PENDING_RUNS = text(
    "SELECT run_key, run_id FROM run WHERE job = :job AND for_account = :account "
    "AND (run_key = :own OR finished_at IS NOT NULL) AND EXISTS (SELECT 1 FROM receipt WHERE run_key = run.run_key) "
    "AND NOT EXISTS (SELECT 1 FROM receipt WHERE run_key = run.run_key AND (identity < :start OR identity >= :end)) "
    "ORDER BY run_key"
)
_READ = text(
    "SELECT receipt.base_key, receipt.identity, kind, name, evidence, receipt.message, state, how, subscriber_id, "
    "status, entry.message, entry.run_key, reported_at FROM receipt LEFT JOIN entry "
    "ON entry.base_key = receipt.base_key AND entry.identity = receipt.identity WHERE receipt.run_key = :run "
    "AND (receipt.base_key > :base OR (receipt.base_key = :base AND receipt.identity > :identity)) "
    "ORDER BY receipt.base_key, receipt.identity LIMIT :number"
)
_RUNS_IN_OUTBOX = text("SELECT run_key FROM run WHERE EXISTS (SELECT 1 FROM receipt WHERE run_key = run.run_key)")
_DELETE = text("DELETE FROM receipt WHERE run_key = :run")
_DELETE_OF_JOB = text("DELETE FROM receipt WHERE run_key IN (SELECT run_key FROM run WHERE job = :job)")
