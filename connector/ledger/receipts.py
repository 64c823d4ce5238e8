"""The outbox of receipts, which contains the subscribers of a run until their receipts are at the destination. The
transaction that records the intent of a create also adds the subscriber to the outbox. If a run is killed, the next run
delivers the receipts. The outcome of a receipt is read from the entry when the receipt is delivered. Call
every function inside a transaction.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, assert_never, get_args

from sqlalchemy import Connection, text

from connector.ledger.entries import Ledger
from connector.ledger.schema import CONFIRMATION_CODES
from connector.ledger.store import BatchStatement, make_storable, make_storable_or_none
from connector.states import State, find_traits


class ReceiptKind(StrEnum):
    """The reason why a subscriber is in the outbox of a run."""

    SENT = "sent"  # this run has sent the create, or was about to send the create
    KNOWN = "known"  # an earlier run sent the create, and this run has read the row or looked up the subscriber
    # The service refused or did not answer the create of this run, but the list shows the new subscriber.
    PROVED_CREATED = "created"
    EXISTED = "existed"  # the subscriber existed, or may have existed, before the create
    CHANGED = "changed"  # the row differs from the subscriber in the service


@dataclass(frozen=True, slots=True)
class PendingReceipt:
    """The data for a receipt that the run must write. `evidence` and `message` are set for a changed row."""

    identity: bytes
    kind: ReceiptKind
    identity_text: str
    evidence: str | None = None
    message: str | None = None


ReceiptOutcome = Literal["created", "changed", "rejected", "held", "unknown", "exists"]
RECEIPT_OUTCOMES: tuple[ReceiptOutcome, ...] = get_args(ReceiptOutcome)


@dataclass(frozen=True, slots=True)
class Receipt:
    """The receipt of one subscriber. `identity` is the identity as a text. `evidence` is the source of the outcome:
    `answer`, `lookup`, `sweep` or `ledger`."""

    identity: str
    outcome: ReceiptOutcome
    service_id: int | None
    evidence: str
    message: str | None


@dataclass(frozen=True, slots=True)
class PendingRun:
    """A run whose receipts are not at the destination yet."""

    run_key: int
    run_id: str


ReceiptPosition = tuple[int, bytes]
"""The key of the base, and the identity. The receipts of a run are in this order."""

FIRST_POSITION: ReceiptPosition = (0, b"")


def record_pending_receipts(ledger: Ledger, run_key: int, base_key: int, receipts: Sequence[PendingReceipt]) -> None:
    """Put these subscribers of a base into the outbox of the run."""
    rows = [
        (
            base_key,
            receipt.identity,
            receipt.kind,
            make_storable(receipt.identity_text),
            receipt.evidence,
            make_storable_or_none(receipt.message),
        )
        for receipt in receipts
    ]
    ledger.store.write(_INSERT_RECEIPTS, {"run": run_key}, rows)


def find_pending_runs(ledger: Ledger, account: str, job: str, run_key: int) -> list[PendingRun]:
    """Return the job's runs with receipts in the outbox: the run `run_key`, and runs that have ended or died. A run of
    a shard leaves out the runs of other shards."""
    parameters = {"account": make_storable(account), "job": make_storable(job), "own": run_key}
    parameters |= {"start": ledger.shard.smallest_digest, "end": ledger.shard.end_digest}
    return [PendingRun(*row) for row in ledger.connection.execute(_FIND_PENDING_RUNS, parameters)]


def read_receipts(
    ledger: Ledger, run_key: int, after_position: ReceiptPosition, max_count: int
) -> tuple[list[Receipt], ReceiptPosition | None]:
    """Return the receipts of at most `max_count` subscribers of the run after `after_position`. Also return the
    position of the last of these subscribers, or None if there are no more subscribers. A subscriber without an entry
    has no receipt, because its create was not sent."""
    parameters = {"run": run_key, "base": after_position[0], "identity": after_position[1], "number": max_count}
    rows = ledger.connection.execute(_READ_RECEIPTS, parameters).all()
    receipts = [receipt for row in rows if (receipt := _build_receipt(run_key, *row[2:])) is not None]
    return receipts, (rows[-1][0], bytes(rows[-1][1])) if rows else None


def find_runs_in_outbox(connection: Connection) -> set[int]:
    """Return the keys of all runs with receipts in the outbox."""
    return set(connection.scalars(_FIND_RUNS_IN_OUTBOX))


def delete_pending_receipts(connection: Connection, run_key: int) -> None:
    """Delete the run's receipts from the outbox, because they are at the destination."""
    connection.execute(_DELETE_RECEIPTS, {"run": run_key})


def delete_pending_receipts_of_job(connection: Connection, job: str) -> int:
    """Delete the receipts of all runs of a job from the outbox, in every account, and return the number of receipts."""
    return connection.execute(_DELETE_RECEIPTS_OF_JOB, {"job": make_storable(job)}).rowcount


def _build_receipt(
    run_key: int,
    kind: str,
    identity_text: str,
    evidence: str | None,
    receipt_message: str | None,
    state: int | None,
    confirmation_code: int | None,
    subscriber_id: int | None,
    status: int | None,
    entry_message: str | None,
    sender_run_key: int | None,
    reported_or_checked_at: float | None,
) -> Receipt | None:
    """Return the receipt that follows from the state of the entry, or None if the subscriber gets no receipt from this
    run. `confirmation_code` is one of the codes in CONFIRMATION_CODES, or None if the entry is not confirmed."""
    is_sent_by_run = sender_run_key == run_key
    if state is None or (
        kind == ReceiptKind.SENT and not is_sent_by_run and not find_traits(State(state)).counts_as_rejected
    ):
        return None  # the create was not sent, or a later run has sent the create again
    if kind == ReceiptKind.EXISTED:
        return Receipt(identity_text, "exists", subscriber_id, evidence or "lookup", None)
    if kind == ReceiptKind.CHANGED:
        return Receipt(identity_text, "changed", subscriber_id, evidence or "ledger", receipt_message)
    entry_state = State(state)
    match entry_state:
        case State.CONFIRMED if confirmation_code == CONFIRMATION_CODES["found"] and kind != ReceiptKind.PROVED_CREATED:
            # Nothing proves that this run has created the subscriber. Another program may have created the subscriber.
            return Receipt(identity_text, "exists", subscriber_id, "lookup", None)
        case State.CONFIRMED:
            created_evidence = "answer" if confirmation_code == CONFIRMATION_CODES["created"] else "lookup"
            return Receipt(identity_text, "created", subscriber_id, created_evidence, None)
        case State.DROPPED:
            return Receipt(identity_text, "rejected", None, "ledger", entry_message)
        case State.REJECTED if not is_sent_by_run:
            return Receipt(identity_text, "rejected", None, "ledger", entry_message)
        case State.REJECTED:
            refusal_evidence = "answer" if reported_or_checked_at is None else "lookup"
            return Receipt(identity_text, "rejected", None, refusal_evidence, entry_message)
        case State.HELD if subscriber_id is not None:
            return Receipt(identity_text, "held", subscriber_id, "answer", entry_message)
        case State.HELD:
            return Receipt(identity_text, "held", None, "lookup" if entry_message is None else "ledger", entry_message)
        case State.SENDING | State.UNKNOWN:
            return Receipt(identity_text, "unknown", None, "ledger", None)
        case State.NONE:
            raise ValueError("the ledger stores no entry in the state NONE")
    assert_never(entry_state)


_INSERT_RECEIPTS = BatchStatement(
    "INSERT INTO receipt (run_key, base_key, identity, kind, name, evidence, message) "
    "SELECT :run, column1, column2, column3, column4, column5, column6 FROM {item} WHERE true "
    "ON CONFLICT (run_key, base_key, identity) DO UPDATE SET kind = excluded.kind, evidence = excluded.evidence, "
    f"message = excluded.message WHERE excluded.kind <> '{ReceiptKind.KNOWN}'",
    "integer bytea text text text text",
)
_FIND_PENDING_RUNS = text(
    "SELECT run_key, run_id FROM run WHERE job = :job AND for_account = :account "
    "AND (run_key = :own OR finished_at IS NOT NULL) AND EXISTS (SELECT 1 FROM receipt WHERE run_key = run.run_key) "
    "AND NOT EXISTS (SELECT 1 FROM receipt WHERE run_key = run.run_key AND (identity < :start OR identity >= :end)) "
    "ORDER BY run_key"
)
_READ_RECEIPTS = text(
    "SELECT receipt.base_key, receipt.identity, kind, name, evidence, receipt.message, state, how, subscriber_id, "
    "status, entry.message, entry.run_key, reported_at FROM receipt LEFT JOIN entry "
    "ON entry.base_key = receipt.base_key AND entry.identity = receipt.identity WHERE receipt.run_key = :run "
    "AND (receipt.base_key > :base OR (receipt.base_key = :base AND receipt.identity > :identity)) "
    "ORDER BY receipt.base_key, receipt.identity LIMIT :number"
)
_FIND_RUNS_IN_OUTBOX = text("SELECT run_key FROM run WHERE EXISTS (SELECT 1 FROM receipt WHERE run_key = run.run_key)")
_DELETE_RECEIPTS = text("DELETE FROM receipt WHERE run_key = :run")
_DELETE_RECEIPTS_OF_JOB = text("DELETE FROM receipt WHERE run_key IN (SELECT run_key FROM run WHERE job = :job)")
