"""Receipts: the outcome and the evidence for each state of an entry, and the run that delivers the receipt."""

from connector.ledger.entries import Intent, Ledger
from connector.ledger.receipts import (
    FIRST_POSITION,
    PendingReceipt,
    ReceiptKind,
    delete_pending_receipts,
    find_pending_runs,
    read_receipts,
    record_pending_receipts,
)
from connector.ledger.records import find_or_add_base, finish_run, record_base_id, start_run
from connector.states import State

IDENTITY = b"i" * 16
EXPECTED_RECEIPT_BY_CASE = {
    "sending": ("unknown", None, "ledger"),
    "lost": ("unknown", None, "ledger"),
    "answered": ("created", 9, "answer"),
    "shown": ("created", 9, "lookup"),
    "settled": ("created", 9, "lookup"),
    "refused": ("rejected", None, "answer"),
    "checked by a later run": ("rejected", None, "ledger"),
    "found after a refusal": ("exists", 9, "lookup"),
    "held": ("held", None, "lookup"),
    "misanswered": ("held", 9, "answer"),
    "dropped": ("rejected", None, "ledger"),
    "dropped, checked by a later run": ("rejected", None, "ledger"),
}


def start_receipt_run(ledger: Ledger, run_id: str) -> int:
    return start_run(ledger.connection, run_id, "crm", "sync", 1.0, account="main")


def test_the_receipt_of_an_entry_has_the_outcome_and_the_evidence_of_its_state(ledger: Ledger) -> None:
    for index, entry_case in enumerate(EXPECTED_RECEIPT_BY_CASE):
        check_receipt(ledger, entry_case, index)


def check_receipt(ledger: Ledger, entry_case: str, base_id: int) -> None:
    with ledger.transaction() as connection:
        run_key = start_receipt_run(ledger, entry_case)
        base = find_or_add_base(connection, "main", base_id, None)
        ledger.mark_intended(base, run_key, [Intent(IDENTITY, b"f" * 8, b"{}")])
        record_pending_receipts(ledger, run_key, base.key, [PendingReceipt(IDENTITY, ReceiptKind.SENT, "ann@x.org")])
        if entry_case in ("lost", "settled", "held"):
            ledger.mark_lost(base, [IDENTITY])
        if entry_case in ("answered", "shown"):
            ledger.mark_answered(base, [(IDENTITY, 9)])
        if entry_case in ("refused", "checked by a later run", "found after a refusal"):
            ledger.mark_refused(base, State.SENDING, [(IDENTITY, 422, "no")])
        if entry_case == "shown":
            ledger.record_shown_identities(base, [IDENTITY])
        if entry_case == "settled":
            ledger.mark_found(base, State.UNKNOWN, [(IDENTITY, 9)])
        if entry_case == "held":
            ledger.mark_held(base, [(IDENTITY, None)])
        if entry_case == "misanswered":
            ledger.mark_wrongly_answered(base, [(IDENTITY, 9, "answered as bob@x.org")])
        if entry_case == "found after a refusal":
            ledger.record_listed_subscribers(base, "email", [(IDENTITY, 9)])
        if entry_case.startswith("dropped"):
            ledger.mark_wrongly_answered(base, [(IDENTITY, 9, "answered as bob@x.org")])
            ledger.mark_dropped(base, [IDENTITY], "given up")
        if entry_case.endswith("checked by a later run"):
            ledger.record_checked_identities(base, start_receipt_run(ledger, f"after {entry_case}"), [IDENTITY], 2.0)
        receipts, next_position = read_receipts(ledger, run_key, FIRST_POSITION, 10)
        assert [(receipt.outcome, receipt.service_id, receipt.evidence) for receipt in receipts] == [
            EXPECTED_RECEIPT_BY_CASE[entry_case]
        ], entry_case
        assert next_position is not None
        assert read_receipts(ledger, run_key, next_position, 10) == ([], None)


def test_the_receipt_of_a_create_belongs_only_to_the_last_run_that_sent_the_create(ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        first_run_key, second_run_key = start_receipt_run(ledger, "receipts-1"), start_receipt_run(ledger, "receipts-2")
        base = find_or_add_base(connection, "main", 7, "News")
        intent = Intent(IDENTITY, b"f" * 8, b"{}")
        for run_key in (first_run_key, second_run_key):
            record_pending_receipts(
                ledger, run_key, base.key, [PendingReceipt(IDENTITY, ReceiptKind.SENT, "ann@x.org")]
            )
        assert read_receipts(ledger, first_run_key, FIRST_POSITION, 10)[0] == []
        ledger.mark_intended(base, first_run_key, [intent])
        ledger.mark_lost(base, [IDENTITY])
        ledger.mark_absent(base, second_run_key, [intent])
        ledger.mark_answered(base, [(IDENTITY, 9)])
        assert read_receipts(ledger, first_run_key, FIRST_POSITION, 10)[0] == []
        assert [receipt.outcome for receipt in read_receipts(ledger, second_run_key, FIRST_POSITION, 10)[0]] == [
            "created"
        ]


def test_a_base_keeps_its_receipts_when_its_id_is_recorded_for_its_name(ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        run_key = start_receipt_run(ledger, "receipts-1")
        base = find_or_add_base(connection, "main", None, "News")
        ledger.mark_intended(base, run_key, [Intent(IDENTITY, b"f" * 8, b"{}")])
        record_pending_receipts(ledger, run_key, base.key, [PendingReceipt(IDENTITY, ReceiptKind.SENT, "ann@x.org")])
        merged_base = record_base_id(connection, base, 7, "News")
        ledger.mark_answered(merged_base, [(IDENTITY, 9)])
        assert [receipt.service_id for receipt in read_receipts(ledger, run_key, FIRST_POSITION, 10)[0]] == [9]


def test_a_run_delivers_its_own_receipts_and_the_receipts_of_finished_runs(ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        base = find_or_add_base(connection, "main", 7, "News")
        run_keys = [start_receipt_run(ledger, f"receipts-{index}") for index in range(3)]
        for run_key in run_keys:
            record_pending_receipts(
                ledger, run_key, base.key, [PendingReceipt(IDENTITY, ReceiptKind.KNOWN, "ann@x.org")]
            )
        finish_run(connection, run_keys[0], "aborted", 2.0)
        pending_runs = find_pending_runs(ledger, "main", "crm", run_keys[2])
        assert [run.run_key for run in pending_runs] == [run_keys[0], run_keys[2]]
        assert find_pending_runs(ledger, "main", "shop", 0) == []
        delete_pending_receipts(connection, run_keys[0])
        assert [run.run_key for run in find_pending_runs(ledger, "main", "crm", run_keys[2])] == [run_keys[2]]
