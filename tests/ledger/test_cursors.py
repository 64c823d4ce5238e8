"""Cursors of incremental sources in the ledger, on SQLite and on PostgreSQL."""

from connector.ledger.entries import Ledger
from connector.ledger.records import StoredCursor, move_cursor, read_cursor, start_run
from tests.ledger.transitions import RUN_KEY

SOURCE, OTHER_SOURCE = b"s" * 16, b"o" * 16


def read_job_cursor(ledger: Ledger, job: str = "crm", source: bytes = SOURCE) -> StoredCursor | None:
    with ledger.transaction() as connection:
        return read_cursor(connection, job, source)


def move_job_cursor(ledger: Ledger, value: str, job: str = "crm", source: bytes = SOURCE, run: int = RUN_KEY) -> None:
    with ledger.transaction() as connection:
        move_cursor(connection, job, source, value, run)


def test_each_job_has_its_own_cursor_for_each_source(ledger: Ledger) -> None:
    move_job_cursor(ledger, "1")
    move_job_cursor(ledger, "2", job="shop")
    move_job_cursor(ledger, "3", source=OTHER_SOURCE)
    assert read_job_cursor(ledger) == StoredCursor("1", "run-1")
    assert read_job_cursor(ledger, job="shop") == StoredCursor("2", "run-1")
    assert read_job_cursor(ledger, source=OTHER_SOURCE) == StoredCursor("3", "run-1")
    assert read_job_cursor(ledger, job="shop", source=OTHER_SOURCE) is None


def test_a_cursor_records_the_run_that_moved_it_and_can_be_moved_back(ledger: Ledger) -> None:
    move_job_cursor(ledger, "2026-11-21")
    with ledger.transaction() as connection:
        second_run_key = start_run(connection, "run-2", "crm", "sync", 1.0)
    move_job_cursor(ledger, "2026-11-20", run=second_run_key)
    assert read_job_cursor(ledger) == StoredCursor("2026-11-20", "run-2")
