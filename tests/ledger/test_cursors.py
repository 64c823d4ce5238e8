"""Cursors of incremental sources, kept in each of the stores."""

import pytest
from sqlalchemy.exc import IntegrityError

from connector.errors import LedgerError
from connector.ledger.entries import Ledger
from connector.ledger.opening import open_ledger
from connector.ledger.records import KeptCursor, move_cursor, read_cursor, start_run
from tests.ledger.moves import RUN, begin_run

SOURCE, OTHER = b"s" * 16, b"o" * 16


def read(ledger: Ledger, job: str = "crm", source: bytes = SOURCE) -> KeptCursor | None:
    with ledger.transaction() as connection:
        return read_cursor(connection, job, source)


def move(ledger: Ledger, value: str, job: str = "crm", source: bytes = SOURCE, run: int = RUN) -> None:
    with ledger.transaction() as connection:
        move_cursor(connection, job, source, value, run)


def test_a_cursor_that_was_never_moved_is_none(ledger: Ledger) -> None:
    assert read(ledger) is None


def test_each_job_and_each_source_has_a_cursor_of_its_own(ledger: Ledger) -> None:
    move(ledger, "1")
    move(ledger, "2", job="shop")
    move(ledger, "3", source=OTHER)
    assert [read(ledger), read(ledger, job="shop"), read(ledger, source=OTHER)] == [
        KeptCursor("1", "run-1"), KeptCursor("2", "run-1"), KeptCursor("3", "run-1"),
    ]  # fmt: skip
    assert read(ledger, job="shop", source=OTHER) is None


def test_a_cursor_says_which_run_moved_it_last_and_may_go_back(ledger: Ledger) -> None:
    move(ledger, "2026-11-21")
    with ledger.transaction() as connection:
        second = start_run(connection, "run-2", "crm", "sync", 1.0)
    move(ledger, "2026-11-20", run=second)
    assert read(ledger) == KeptCursor("2026-11-20", "run-2")


def test_a_cursor_outlives_the_process(ledger_url: str) -> None:
    with open_ledger(ledger_url) as ledger:
        begin_run(ledger)
        move(ledger, "7")
    with open_ledger(ledger_url) as ledger:
        assert read(ledger) == KeptCursor("7", "run-1")


def move_and_break(ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        move_cursor(connection, "crm", SOURCE, "2", RUN)
        raise ZeroDivisionError


def test_a_move_that_is_rolled_back_was_none(ledger: Ledger) -> None:
    move(ledger, "1")
    with pytest.raises(ZeroDivisionError):
        move_and_break(ledger)
    assert read(ledger) == KeptCursor("1", "run-1")


@pytest.mark.parametrize("job", ["a\0b", "\ud800", "Ünïcode 😀"])
def test_any_name_of_a_job_can_be_kept(ledger: Ledger, job: str) -> None:
    move(ledger, "1", job=job)
    assert read(ledger, job=job) == KeptCursor("1", "run-1")


def test_half_a_digest_and_a_run_that_is_none_are_refused(ledger: Ledger) -> None:
    for source, run in ((b"short", RUN), (SOURCE, 99)):
        with pytest.raises((LedgerError, IntegrityError)):
            move(ledger, "1", source=source, run=run)
    assert read(ledger) is None
