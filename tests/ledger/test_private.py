"""A private copy of a ledger: what is in it, that nothing is written beside it or taken, and that it leaves nothing."""

import multiprocessing
import os
from pathlib import Path

import pytest

from connector.errors import LedgerError, RunAborted
from connector.ledger.admin import open_private_copy
from connector.ledger.entries import Intent
from connector.ledger.opening import open_ledger
from connector.ledger.records import (
    find_or_add_base,
    list_bases,
    move_cursor,
    read_cursor,
    read_largest_lag,
    record_lag,
)
from connector.states import State
from tests.ledger.moves import RUN, begin_run
from tests.ledger.places import check_refused, run_sql

ACCOUNT = "account"
SOURCE = b"s" * 16
ANN, BOB, CEM, STRANGER = (letter * 16 for letter in (b"a", b"b", b"c", b"d"))


def fill(url: str) -> None:
    """People in several states, of two accounts; a cursor."""
    with open_ledger(url) as ledger:
        begin_run(ledger)
        with ledger.transaction() as connection:
            news = find_or_add_base(connection, ACCOUNT, 7, "News")
            other = find_or_add_base(connection, "another", 7, "News")
            ledger.record_listed(news, "email", [(ANN, 1)])
            ledger.record_listed(other, "email", [(STRANGER, 2)])
            ledger.mark_intended(news, RUN, [Intent(each, b"f" * 8, b"{}") for each in (BOB, CEM)])
            ledger.mark_refused(news, State.SENDING, [(CEM, 422, "no")])
            move_cursor(connection, "crm", SOURCE, "7", RUN)
            record_lag(connection, ACCOUNT, 90.0)


def read_states(url: str, account: str = ACCOUNT) -> dict[bytes, State]:
    with open_private_copy(url, account) as copy, copy.transaction() as connection:
        return {
            identity: entry.state
            for base in list_bases(connection, account)
            for identity, entry in copy.find_entries(base, [ANN, BOB, CEM, STRANGER]).items()
        }


def test_a_copy_knows_what_the_ledger_knows_of_the_account(ledger_url: str) -> None:
    fill(ledger_url)
    assert read_states(ledger_url) == {ANN: State.CONFIRMED, BOB: State.SENDING, CEM: State.REJECTED}
    assert read_states(ledger_url, "another") == {STRANGER: State.CONFIRMED}
    with open_private_copy(ledger_url, ACCOUNT) as copy, copy.transaction() as connection:
        kept = read_cursor(connection, "crm", SOURCE)
        assert read_largest_lag(connection, ACCOUNT) == 90.0
        news = list_bases(connection, ACCOUNT)[0]
        assert kept is not None
        assert kept.value == "7"
        assert copy.find_unfinished(news, State.REJECTED)[0].body == b"{}"


def test_where_there_is_no_ledger_the_copy_is_an_empty_one_and_none_is_made(ledger_url: str, tmp_path: Path) -> None:
    assert read_states(ledger_url) == {}
    assert list(tmp_path.iterdir()) == []
    if not ledger_url.startswith("sqlite"):
        assert run_sql(ledger_url, "SELECT to_regclass('meta') IS NULL") == [(True,)]


def test_what_is_written_to_a_copy_is_not_in_the_ledger(ledger_url: str) -> None:
    fill(ledger_url)
    with open_private_copy(ledger_url, ACCOUNT) as copy, copy.transaction() as connection:
        assert copy.mark_died() == 1
        move_cursor(connection, "crm", SOURCE, "8", RUN)
    with open_ledger(ledger_url) as ledger, ledger.transaction() as connection:
        kept = read_cursor(connection, "crm", SOURCE)
        assert kept is not None
        assert kept.value == "7"
        assert ledger.mark_died() == 1


def test_a_ledger_that_is_open_elsewhere_is_copied_as_its_last_commit_left_it(ledger_url: str) -> None:
    fill(ledger_url)
    with open_ledger(ledger_url) as ledger:
        with ledger.transaction() as connection:
            ledger.mark_lost(list_bases(connection, ACCOUNT)[0], [BOB])
        assert read_states(ledger_url)[BOB] is State.UNKNOWN
        with ledger.transaction():
            assert ledger.mark_died() == 0  # it can go on


def test_a_copy_takes_no_lock(ledger_url: str) -> None:
    fill(ledger_url)
    with open_private_copy(ledger_url, ACCOUNT), open_ledger(ledger_url) as ledger, ledger.transaction():
        assert ledger.mark_died() == 1


def describe(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in sorted(folder.iterdir())}


@pytest.fixture
def killed(tmp_path: Path) -> str:
    """The URL of a ledger whose writer was killed: its journal holds what it last wrote."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    writer = multiprocessing.get_context("spawn").Process(target=_write_and_die, args=(url,))
    writer.start()
    writer.join()
    assert (tmp_path / "ledger.db-wal").stat().st_size > 0
    return url


def _write_and_die(url: str) -> None:
    fill(url)
    with open_ledger(url) as ledger:
        with ledger.transaction() as connection:
            ledger.mark_lost(list_bases(connection, ACCOUNT)[0], [BOB])
        os._exit(0)


def test_a_copy_leaves_the_file_and_its_folder_as_they_were(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    fill(url)
    (tmp_path / "ledger.db.lock").unlink()
    before = describe(tmp_path)
    assert list(before) == ["ledger.db"]
    read_states(url)
    assert describe(tmp_path) == before


def test_what_a_killed_writer_left_in_its_journal_is_in_the_copy_and_stays_there(tmp_path: Path, killed: str) -> None:
    before = {name: each for name, each in describe(tmp_path).items() if not name.endswith("-shm")}  # SQLite's index
    assert read_states(killed)[BOB] is State.UNKNOWN
    after = {name: each for name, each in describe(tmp_path).items() if not name.endswith("-shm")}
    assert after == before


def test_a_copy_has_no_name_in_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQLITE_TMPDIR", str(tmp_path))
    url = f"sqlite:///{tmp_path}/ledger.db"
    fill(url)
    with open_private_copy(url, ACCOUNT) as copy, copy.transaction() as connection:
        connection.exec_driver_sql("PRAGMA cache_size = 10")
        news = list_bases(connection, ACCOUNT)[0]
        many = [(number.to_bytes(16, "big"), number) for number in range(1, 5_000)]  # more than its cache holds
        copy.record_listed(news, "email", many)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["ledger.db", "ledger.db.lock"]


def test_what_is_no_ledger_is_not_planned_by(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_text("no database")
    check_refused(open_private_copy(f"sqlite:///{tmp_path}/ledger.db", ACCOUNT), LedgerError, r"ledger\.db")


def test_a_copy_from_a_server_ends_when_the_run_is_to_stop(postgres_url: str) -> None:
    fill(postgres_url)
    check_refused(open_private_copy(postgres_url, ACCOUNT, lambda: True), RunAborted, ".")
