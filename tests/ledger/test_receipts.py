"""The receipt of a create is what its entry supports, whichever run reads it."""

import pytest

from connector.ledger.entries import Intent, Ledger
from connector.ledger.receipts import (
    FIRST_PLACE,
    PendingReceipt,
    ReceiptKind,
    delete_pending,
    find_pending_runs,
    read_receipts,
    record_pending,
)
from connector.ledger.records import find_or_add_base, finish_run, learn_base, start_run
from connector.states import State

IDENTITY = b"i" * 16
CASES = {
    "sending": ("unknown", None, "ledger"),
    "lost": ("unknown", None, "ledger"),
    "answered": ("created", 9, "answer"),
    "shown": ("created", 9, "lookup"),
    "settled": ("created", 9, "lookup"),
    "refused": ("rejected", None, "answer"),
    "checked by a later run": ("rejected", None, "ledger"),
    "found after a refusal": ("exists", 9, "lookup"),
    "withheld": ("held", None, "lookup"),
    "misanswered": ("held", 9, "answer"),
}


def begin(ledger: Ledger, run_id: str) -> int:
    return start_run(ledger.connection, run_id, "crm", "sync", 1.0, account="main")


@pytest.mark.parametrize("case", CASES)
def test_each_state_of_an_entry_has_its_receipt(ledger: Ledger, case: str) -> None:
    with ledger.transaction() as connection:
        run_key = begin(ledger, "receipts-1")
        base = find_or_add_base(connection, "main", 7, "News")
        ledger.mark_intended(base, run_key, [Intent(IDENTITY, b"f" * 8, b"{}")])
        record_pending(ledger, run_key, base.key, [PendingReceipt(IDENTITY, ReceiptKind.SENT, "ann@x.org")])
        if case in ("lost", "settled", "withheld"):
            ledger.mark_lost(base, [IDENTITY])
        if case in ("answered", "shown"):
            ledger.mark_answered(base, [(IDENTITY, 9)])
        if case in ("refused", "checked by a later run", "found after a refusal"):
            ledger.mark_refused(base, State.SENDING, [(IDENTITY, 422, "no")])
        if case == "shown":
            ledger.record_shown(base, [IDENTITY])
        if case == "settled":
            ledger.mark_found(base, State.UNKNOWN, [(IDENTITY, 9)])
        if case == "withheld":
            ledger.mark_withheld(base, [(IDENTITY, None)])
        if case == "misanswered":
            ledger.mark_misanswered(base, [(IDENTITY, 9, "answered as bob@x.org")])
        if case == "found after a refusal":
            ledger.record_listed(base, "email", [(IDENTITY, 9)])
        if case == "checked by a later run":
            ledger.record_checked(base, begin(ledger, "receipts-2"), [IDENTITY], 2.0)
        receipts, place = read_receipts(connection, run_key, FIRST_PLACE, 10)
        assert [(receipt.outcome, receipt.service_id, receipt.evidence) for receipt in receipts] == [CASES[case]]
        assert place is not None
        assert read_receipts(connection, run_key, place, 10) == ([], None)


def test_a_create_that_was_not_sent_or_was_sent_again_by_a_later_run_has_no_receipt_of_the_first(
    ledger: Ledger,
) -> None:
    with ledger.transaction() as connection:
        first, second = begin(ledger, "receipts-1"), begin(ledger, "receipts-2")
        base = find_or_add_base(connection, "main", 7, "News")
        intent = Intent(IDENTITY, b"f" * 8, b"{}")
        for run_key in (first, second):
            record_pending(ledger, run_key, base.key, [PendingReceipt(IDENTITY, ReceiptKind.SENT, "ann@x.org")])
        assert read_receipts(connection, first, FIRST_PLACE, 10)[0] == []
        ledger.mark_intended(base, first, [intent])
        ledger.mark_lost(base, [IDENTITY])
        ledger.mark_absent(base, second, [intent])
        ledger.mark_answered(base, [(IDENTITY, 9)])
        assert read_receipts(connection, first, FIRST_PLACE, 10)[0] == []
        assert [each.outcome for each in read_receipts(connection, second, FIRST_PLACE, 10)[0]] == ["created"]


def test_receipts_of_a_base_that_was_known_by_its_name_move_to_the_base_with_the_id(ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        run_key = begin(ledger, "receipts-1")
        base = find_or_add_base(connection, "main", None, "News")
        ledger.mark_intended(base, run_key, [Intent(IDENTITY, b"f" * 8, b"{}")])
        record_pending(ledger, run_key, base.key, [PendingReceipt(IDENTITY, ReceiptKind.SENT, "ann@x.org")])
        whole = learn_base(connection, base, 7, "News")
        ledger.mark_answered(whole, [(IDENTITY, 9)])
        assert [each.service_id for each in read_receipts(connection, run_key, FIRST_PLACE, 10)[0]] == [9]


def test_a_run_delivers_its_own_receipts_and_those_of_runs_that_have_ended(ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        base = find_or_add_base(connection, "main", 7, "News")
        keys = [begin(ledger, f"receipts-{number}") for number in range(3)]
        for key in keys:
            record_pending(ledger, key, base.key, [PendingReceipt(IDENTITY, ReceiptKind.KNOWN, "ann@x.org")])
        finish_run(connection, keys[0], "aborted", 2.0)
        pending = find_pending_runs(ledger, "main", "crm", keys[2])
        assert [run.run_key for run in pending] == [keys[0], keys[2]]
        assert find_pending_runs(ledger, "main", "shop", 0) == []
        delete_pending(connection, keys[0])
        assert [run.run_key for run in find_pending_runs(ledger, "main", "crm", keys[2])] == [keys[2]]
