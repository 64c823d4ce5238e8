"""What a ledger keeps of an account besides its entries: rows that were accepted, and habits of its service."""

from connector.ledger.admin import open_private_copy
from connector.ledger.opening import open_ledger
from connector.ledger.records import (
    KeptHabit,
    accept_rows,
    read_accepted_rows,
    read_habits,
    record_habit,
    revoke_job,
    revoke_rows,
)

FIRST, SECOND = b"\0" * 16, b"\xff" * 16


def test_an_account_keeps_its_accepted_rows_and_habits_and_a_copy_has_them(ledger_url: str) -> None:
    habit = KeptHabit("order", '["ascending"]', 5.0)
    with open_ledger(ledger_url) as ledger, ledger.transaction() as connection:
        for at in (1.0, 2.0):
            accept_rows(connection, "main", "crm", [FIRST, SECOND], at)
            record_habit(connection, "main", KeptHabit("order", '["other"]', at))
        accept_rows(connection, "main", "shop", [FIRST], 3.0)
        accept_rows(connection, "other", "crm", [FIRST], 3.0)
        record_habit(connection, "main", habit)
    with open_private_copy(ledger_url, "main") as copy, copy.transaction() as connection:
        assert read_accepted_rows(connection, "main") == {FIRST, SECOND}
        assert read_habits(connection, "main") == [habit]
    with open_ledger(ledger_url) as ledger, ledger.transaction() as connection:
        assert revoke_job(connection, "main", "crm") == 1  # the other row is the shop's by now
        assert revoke_rows(connection, "main", [FIRST, SECOND]) == 1
        assert read_accepted_rows(connection, "main") == frozenset()
        assert read_accepted_rows(connection, "other") == {FIRST}
