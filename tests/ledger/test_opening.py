"""Opening a ledger: whatever is wrong with it is said before anything is sent."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from connector.errors import ConfigurationError, LedgerError, LockedError
from connector.ledger import open_ledger
from connector.ledger.lock import hold_lock


def url_of(path: Path) -> str:
    return f"sqlite:///{path}"


def test_a_new_ledger_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "state" / "ledger.db"
    with open_ledger(url_of(path)) as ledger, ledger.transaction():
        pass
    assert {file.name: oct(file.stat().st_mode & 0o777) for file in path.parent.iterdir()} == {
        "ledger.db": "0o600",
        "ledger.db.lock": "0o600",
    }
    assert path.parent.stat().st_mode & 0o077 == 0


def test_a_second_run_is_told_who_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    holder = f"process {os.getpid()} on"
    with open_ledger(url_of(path)), pytest.raises(LockedError, match=holder), open_ledger(url_of(path)):
        pass


def test_a_run_that_waits_gets_the_lock_when_it_is_free(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    slept: list[float] = []
    first = hold_lock(path)
    first.__enter__()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            first.__exit__(None, None, None)

    with hold_lock(path, 10.0, monotonic=lambda: sum(slept), sleep=sleep):
        assert len(slept) == 3


def test_waiting_ends(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    slept: list[float] = []
    with (
        hold_lock(path),
        pytest.raises(LockedError),
        hold_lock(path, 1.0, monotonic=lambda: sum(slept), sleep=slept.append),
    ):
        pass
    assert 0.9 <= sum(slept) <= 1.3


def test_the_lock_goes_with_a_process_that_is_killed(tmp_path: Path) -> None:
    url = url_of(tmp_path / "ledger.db")
    code = (
        "import os, sys\nfrom connector.ledger import open_ledger\n"
        "with open_ledger(sys.argv[1]):\n    os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code, url], check=False).returncode == -9
    with open_ledger(url):
        pass


def test_a_ledger_of_another_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with open_ledger(url_of(path)):
        pass
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE meta SET value = '99' WHERE name = 'schema_version'")
    connection.close()
    with pytest.raises(LedgerError, match="schema_version 99"), open_ledger(url_of(path)):
        pass


def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(b"email,first_name\n" * 100)
    with pytest.raises(LedgerError, match="not a database"), open_ledger(url_of(path)):
        pass
    assert path.read_bytes() == b"email,first_name\n" * 100


@pytest.mark.parametrize("url", ["nonsense", "sqlite://", "sqlite:///:memory:", "mysql://u:secret@127.0.0.1/x"])
def test_a_place_that_cannot_hold_a_ledger_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigurationError) as raised, open_ledger(url):
        pass
    assert "secret" not in str(raised.value)


def test_what_goes_wrong_inside_is_not_taken_for_the_ledgers_fault(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), open_ledger(url_of(tmp_path / "ledger.db")):
        raise FileNotFoundError
