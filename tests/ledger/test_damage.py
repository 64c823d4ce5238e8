"""Ledgers that are damaged or cannot be written: missing permissions, a full disk, and damage. The run ends with an
error."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from connector.errors import ForeignLedgerError, LedgerError
from connector.ledger.opening import open_ledger, read_ledger
from connector.ledger.records import finish_run, start_run
from tests.ledger.places import build_file_url, check_opening_fails
from tests.ledger.transitions import add_base

NOBODY_USER_ID = 65534
PAGE_SIZE = 4096


def fill_ledger(path: Path, entry_count: int = 5000, *, is_run_finished: bool = True) -> None:
    """Write a ledger with `entry_count` listed people and one run."""
    with open_ledger(build_file_url(path)) as ledger:
        base = add_base(ledger)
        with ledger.transaction() as connection:
            run_key = start_run(connection, "run-1", "job", "import", 0.0)
            ledger.record_listed_subscribers(
                base, "email", [(build_identity(person_number), person_number) for person_number in range(entry_count)]
            )
            if is_run_finished:
                finish_run(connection, run_key, "ok", 1.0)


def build_identity(person_number: int) -> bytes:
    return person_number.to_bytes(16, "big")


def overwrite_the_middle(path: Path) -> None:
    """Overwrite pages of entries with garbage, as a failing disk does."""
    content = bytearray(path.read_bytes())
    middle_offset = len(content) // PAGE_SIZE // 2 * PAGE_SIZE
    content[middle_offset : middle_offset + 2 * PAGE_SIZE] = b"\xa5garbage" * (2 * PAGE_SIZE // 8)
    path.write_bytes(content)


@contextmanager
def use_rights_of_ordinary_user(folder: Path) -> Iterator[None]:
    """Change to the rights of an ordinary user. Root ignores permissions."""
    if os.geteuid() != 0:
        yield
        return
    folder.parent.chmod(0o755)
    for path in (folder, *folder.iterdir()):
        os.chown(path, NOBODY_USER_ID, NOBODY_USER_ID)
    os.seteuid(NOBODY_USER_ID)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def ledger_file() -> Iterator[Path]:
    """A ledger with a finished run, in a folder that an ordinary user can reach."""
    with TemporaryDirectory(prefix="connector-ledger-") as outer_folder:
        folder = Path(outer_folder) / "state"
        folder.mkdir()
        fill_ledger(folder / "ledger.db", 10)
        yield folder / "ledger.db"
        folder.chmod(0o700)


@pytest.mark.parametrize(
    ("file_mode", "folder_mode", "file_name", "expected_text"),
    [
        (0o400, 0o700, "ledger.db", "readonly database"),
        (0o600, 0o500, "ledger.db", r"unable to open|readonly database"),
        (0o600, 0o500, "other.db", "Permission denied"),
        (0o000, 0o700, "ledger.db", "unable to open"),
    ],
)
def test_a_ledger_without_write_rights_is_refused(
    ledger_file: Path, file_mode: int, folder_mode: int, file_name: str, expected_text: str
) -> None:
    with use_rights_of_ordinary_user(ledger_file.parent):
        ledger_file.chmod(file_mode)
        ledger_file.parent.chmod(folder_mode)
        check_opening_fails(open_ledger(build_file_url(ledger_file.with_name(file_name))), LedgerError, expected_text)
        assert not ledger_file.with_name("other.db").exists()


def test_a_path_that_cannot_be_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "ledger.db").touch()
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    for path_name, expected_text in (
        ("folder", "it is a folder"),
        ("folder/ledger.db/deeper.db", "Not a directory|File exists"),
        ("circle", "links lead in a circle"),
    ):
        check_opening_fails(open_ledger(build_file_url(tmp_path / path_name)), LedgerError, expected_text)


def test_a_file_that_is_not_a_database_is_refused_and_stays_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    for content in (b"email,first_name\n" * 1000, b"SQLite format 3\0" + b"\xa5" * 9000):
        path.write_bytes(content)
        check_opening_fails(open_ledger(build_file_url(path)), ForeignLedgerError, "not a database")
        with pytest.raises(ForeignLedgerError, match="not a database"):
            read_ledger(build_file_url(path), lambda _ledger: None)
        assert path.read_bytes() == content


def test_a_ledger_without_its_first_or_its_last_bytes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    fill_ledger(path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    check_opening_fails(open_ledger(build_file_url(path)), LedgerError, "malformed|damaged")
    path.write_bytes(b"\xa5" * 100 + content[100:])
    check_opening_fails(open_ledger(build_file_url(path)), LedgerError, "not a database")


def test_damage_is_noticed_at_opening_if_the_last_run_did_not_finish(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    fill_ledger(path, is_run_finished=False)
    with open_ledger(build_file_url(path)):
        pass
    overwrite_the_middle(path)
    check_opening_fails(open_ledger(build_file_url(path)), LedgerError, r"damaged \(.*restore a backup")


def test_damage_is_noticed_at_opening_if_the_last_process_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    fill_ledger(path)
    result = subprocess.run([sys.executable, "-c", KILLED_WRITER, build_file_url(path)], check=False)
    assert result.returncode == -9
    assert path.with_name("ledger.db-wal").stat().st_size > 0
    overwrite_the_middle(path)
    check_opening_fails(open_ledger(build_file_url(path)), LedgerError, "damaged")


KILLED_WRITER = """
import os, sys
from connector.ledger.records import finish_run, start_run; from connector.ledger.opening import open_ledger

with open_ledger(sys.argv[1]) as ledger:
    with ledger.transaction() as connection:
        finish_run(connection, start_run(connection, "run-2", "job", "import", 2.0), "ok", 3.0)
    os.kill(os.getpid(), 9)
"""


def test_a_query_that_reads_damaged_pages_raises_an_error(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    fill_ledger(path)
    overwrite_the_middle(path)
    with open_ledger(build_file_url(path)) as ledger:
        base = add_base(ledger)
        with pytest.raises(LedgerError, match="malformed"), ledger.transaction():
            ledger.find_entries(base, [build_identity(person_number) for person_number in range(5000)])


# A limit on the size of files makes writing fail, as a full disk does.
FILE_SIZE_LIMIT_SCRIPT = """
import resource, sys
from connector.errors import LedgerError
from connector.ledger.records import find_or_add_base, start_run; from connector.ledger.opening import open_ledger
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
"""


def run_with_file_size_limit(path: Path, limit: int, script: str) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-c", FILE_SIZE_LIMIT_SCRIPT + script, build_file_url(path), str(limit)]
    return subprocess.run(arguments, capture_output=True, text=True, check=False)


SCRIPT_THAT_OPENS_A_LEDGER = """
try:
    with open_ledger(sys.argv[1]):
        print("opened")
except LedgerError as error:
    print("LedgerError", error)
"""


def test_a_full_disk_is_an_error_at_opening(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    result = run_with_file_size_limit(path, 5 * PAGE_SIZE, SCRIPT_THAT_OPENS_A_LEDGER)
    assert result.stdout.startswith("LedgerError the ledger"), result
    with open_ledger(build_file_url(path)) as ledger, ledger.transaction() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM entry").scalar_one() == 0


WRITE_SCRIPT = """
with open_ledger(sys.argv[1]) as ledger:
    with ledger.transaction() as connection:
        base = find_or_add_base(connection, "account", 7, None)
        run = start_run(connection, "run-1", "job", "import", 0.0)
    for start in range(0, 10**6, 64):
        try:
            with ledger.transaction():
                people = [(who.to_bytes(16, "big"), who) for who in range(start, start + 64)]
                ledger.record_listed_subscribers(base, "email", people)
        except LedgerError as error:
            print("LedgerError", error)
            break
        print(start + 64, flush=True)
"""


def test_a_disk_that_fills_up_during_a_run_loses_no_commit(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    result = run_with_file_size_limit(path, 1_000_000, WRITE_SCRIPT)
    *commit_lines, error_line = result.stdout.splitlines()
    assert error_line.startswith("LedgerError"), result
    assert "Nothing more was sent" in error_line
    assert len(commit_lines) > 5
    with open_ledger(build_file_url(path)) as ledger, ledger.transaction() as connection:  # opening checks every page
        stored_ids = connection.exec_driver_sql("SELECT subscriber_id FROM entry ORDER BY identity").scalars().all()
    assert stored_ids == list(range(int(commit_lines[-1])))
