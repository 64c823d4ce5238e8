"""A ledger in a SQLite file: its settings, its permissions, and the erasure of personal data."""

import sqlite3
from pathlib import Path

import pytest

from connector.errors import ForeignLedgerError, LedgerError, LockedError
from connector.ledger.entries import Intent
from connector.ledger.opening import open_ledger, read_ledger
from connector.states import State
from tests.ledger.places import build_file_url, check_opening_fails
from tests.ledger.transitions import IDENTITY, RUN_KEY, add_base, begin_run

INTENT_WITH_EMAIL = Intent(IDENTITY, b"f" * 8, b"somebody@example.com" * 20)


def read_ledger_files(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.glob("ledger.db*"))


def test_only_the_owner_may_read_a_new_ledger(tmp_path: Path) -> None:
    path = tmp_path / "state" / "ledger.db"
    with open_ledger(build_file_url(path)) as ledger, ledger.transaction():
        assert {file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {0o600}
    assert {file.name: oct(file.stat().st_mode & 0o777) for file in path.parent.iterdir()} == {
        "ledger.db": "0o600",
        "ledger.db.lock": "0o600",
    }
    assert path.parent.stat().st_mode & 0o077 == 0
    path.chmod(0o644)
    with open_ledger(build_file_url(path)):
        assert path.stat().st_mode & 0o777 == 0o600


def test_the_settings_of_a_ledger_in_a_file_make_each_commit_durable(tmp_path: Path) -> None:
    pragma_names = ("journal_mode", "synchronous", "secure_delete", "locking_mode", "foreign_keys")
    with open_ledger(build_file_url(tmp_path / "ledger.db")) as ledger, ledger.transaction() as connection:
        pragma_values = [connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in pragma_names]
    assert pragma_values == ["wal", 2, 1, "normal", 1]


@pytest.mark.parametrize("is_rejected", [False, True], ids=["confirmed", "rejected, then forgotten"])
def test_the_body_is_erased_after_the_last_state_that_needs_the_body(tmp_path: Path, is_rejected: bool) -> None:
    with open_ledger(build_file_url(tmp_path / "ledger.db")) as ledger:
        begin_run(ledger)
        base = add_base(ledger)
        with ledger.transaction():
            ledger.mark_intended(base, RUN_KEY, [INTENT_WITH_EMAIL])
        if is_rejected:
            with ledger.transaction():
                ledger.mark_refused(base, State.SENDING, [(IDENTITY, 422, "no")])
    assert b"somebody" in read_ledger_files(tmp_path)
    with open_ledger(build_file_url(tmp_path / "ledger.db")) as ledger, ledger.transaction():
        if is_rejected:
            ledger.mark_forgotten(base, State.REJECTED, [IDENTITY])
        else:
            ledger.mark_answered(base, [(IDENTITY, 7)])
    assert b"somebody" not in read_ledger_files(tmp_path)


def test_a_ledger_and_a_link_to_it_have_the_same_lock(tmp_path: Path) -> None:
    path, link_path = tmp_path / "ledger.db", tmp_path / "folder" / "other.db"
    link_path.parent.mkdir()
    link_path.symlink_to(path)
    with open_ledger(build_file_url(path)), pytest.raises(LockedError), open_ledger(build_file_url(link_path)):
        pass
    with open_ledger(build_file_url(link_path)), pytest.raises(LockedError), open_ledger(build_file_url(path)):
        pass


@pytest.mark.parametrize("table_name", ["people", "meta", "run"])
def test_a_database_of_another_program_is_refused_and_stays_unchanged(tmp_path: Path, table_name: str) -> None:
    path = tmp_path / "crm.db"
    connection = sqlite3.connect(path)
    connection.execute(f"CREATE TABLE {table_name} (email)")
    connection.commit()
    connection.close()
    expected_text = rf"tables of another program \({table_name}\)"
    check_opening_fails(open_ledger(build_file_url(path)), ForeignLedgerError, expected_text)
    with pytest.raises(ForeignLedgerError, match=expected_text):
        read_ledger(build_file_url(path), lambda _ledger: None)
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [(table_name,)]
    connection.close()


def test_a_ledger_with_a_hard_link_is_refused(tmp_path: Path) -> None:
    with open_ledger(f"sqlite:///{tmp_path}/ledger.db"):
        pass
    (tmp_path / "other.db").hardlink_to(tmp_path / "ledger.db")
    for name in ("ledger.db", "other.db"):
        check_opening_fails(open_ledger(f"sqlite:///{tmp_path}/{name}"), LedgerError, "hard link")
