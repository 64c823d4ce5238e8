"""Backups: a backup is one file with the ledger at one moment, even while another process writes to the ledger."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from connector.errors import ConfigurationError, LedgerError
from connector.ledger.copies import Backup, back_up_ledger
from connector.ledger.opening import open_ledger
from connector.ledger.records import find_or_add_base, finish_run
from connector.ledger.sqlite import hold_lock
from connector.states import State
from tests.ledger.places import build_file_url
from tests.ledger.test_damage import overwrite_the_middle
from tests.ledger.transitions import IDENTITY, RUN_KEY, add_base, begin_run, bring_to_state, read_entry_state
from tests.pipelines.conftest import wait_for

BACKUP_COUNT = 3
BATCH_SIZE = 64


@pytest.fixture
def ledger_path(tmp_path: Path) -> Path:
    """A ledger in which one create is being sent."""
    path = tmp_path / "state" / "ledger.db"
    with open_ledger(build_file_url(path)) as ledger:
        begin_run(ledger)
        bring_to_state(ledger, add_base(ledger), State.SENDING)
    return path


def read_subscriber_ids(path: Path) -> list[int]:
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        return [row[0] for row in connection.execute("SELECT subscriber_id FROM entry ORDER BY subscriber_id")]


@contextmanager
def start_writer(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a process that commits batches and sometimes opens the ledger again. End the process after the `with`
    block."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER_SCRIPT, build_file_url(path), str(BATCH_SIZE)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdout.readline()
        yield process
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(30)


WRITER_SCRIPT = """
import select, sys
from connector.ledger.records import find_or_add_base; from connector.ledger.opening import open_ledger

SPREAD = 0x9E3779B97F4A7C15F39CC0605CEDC835  # spreads identities, so that each commit changes pages in the whole file
url, size, start = sys.argv[1], int(sys.argv[2]), 0
while not select.select([sys.stdin], [], [], 0)[0]:
    with open_ledger(url, wait_s=60.0) as ledger:
        for _ in range(100):
            with ledger.transaction() as connection:
                base = find_or_add_base(connection, "account", 7, None)
                ids = range(start, start + size)
                identities = [(subscriber_id * SPREAD % 2**128).to_bytes(16, "big") for subscriber_id in ids]
                ledger.record_listed_subscribers(base, "email", list(zip(identities, ids)))
            start += size
            if start == size:
                print("begun", flush=True)
"""


def test_a_backup_during_writing_has_all_commits_up_to_one_moment(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    target_paths = [tmp_path / f"backup-{index}.db" for index in range(BACKUP_COUNT)]
    with start_writer(path) as writer:
        entry_counts = [back_up_ledger(build_file_url(path), target).entry_count or 0 for target in target_paths[:-1]]
        wait_for(lambda: len(read_subscriber_ids(path)) > entry_counts[0])
        entry_counts.append(back_up_ledger(build_file_url(path), target_paths[-1]).entry_count or 0)
        assert writer.poll() is None
    assert writer.returncode == 0
    ids_at_end = read_subscriber_ids(path)
    assert ids_at_end == list(range(len(ids_at_end)))
    assert entry_counts == sorted(entry_counts)
    assert entry_counts[0] < entry_counts[-1] <= len(ids_at_end)
    for entry_count, target in zip(entry_counts, target_paths, strict=True):
        assert entry_count % BATCH_SIZE == 0
        assert read_subscriber_ids(target) == list(range(entry_count))
        with closing(sqlite3.connect(target)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        with open_ledger(build_file_url(target)):
            pass
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def read_ledger_files(path: Path) -> dict[str, bytes]:
    """Return the bytes of the ledger and its WAL. This process must not have the ledger open."""
    return {file.name: file.read_bytes() for file in path.parent.glob(f"{path.name}*") if file.suffix != ".db-shm"}


def kill_writer_after_commit(path: Path) -> None:
    """Kill a process after its commit: only the WAL has the rows."""
    script = (
        "import os, sys\nfrom connector.ledger.records import find_or_add_base\n"
        "from connector.ledger.opening import open_ledger\n"
        "with open_ledger(sys.argv[1]) as ledger:\n"
        "    with ledger.transaction() as connection:\n"
        "        base = find_or_add_base(connection, 'account', 8, None)\n"
        "        people = [(who.to_bytes(16, 'big'), who) for who in range(500)]\n"
        "        ledger.record_listed_subscribers(base, 'email', people)\n"
        "    os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", script, build_file_url(path)], check=False).returncode == -9
    assert path.with_name(path.name + "-wal").stat().st_size > 10_000


def test_a_backup_of_a_locked_ledger_does_not_change_the_ledger(ledger_path: Path, tmp_path: Path) -> None:
    kill_writer_after_commit(ledger_path)
    files_before = read_ledger_files(ledger_path)
    with hold_lock(ledger_path.with_name("ledger.db.lock")):  # the ledger is locked, and no process makes a checkpoint
        files_before["ledger.db.lock"] = read_ledger_files(ledger_path)["ledger.db.lock"]
        assert back_up_ledger(build_file_url(ledger_path), tmp_path / "backup.db") == Backup(501, None)
        assert read_ledger_files(ledger_path) == files_before
    with open_ledger(build_file_url(ledger_path)) as ledger:
        assert read_entry_state(ledger, add_base(ledger)) is State.SENDING


def test_a_backup_takes_a_free_lock_and_includes_the_wal_of_a_killed_run(ledger_path: Path, tmp_path: Path) -> None:
    kill_writer_after_commit(ledger_path)
    assert back_up_ledger(build_file_url(ledger_path), tmp_path / "backup.db") == Backup(501, None)
    assert sorted(file.name for file in ledger_path.parent.iterdir()) == ["ledger.db", "ledger.db.lock"]
    assert str(os.getpid()) in ledger_path.with_name("ledger.db.lock").read_text()
    assert len(read_subscriber_ids(ledger_path)) == 501


def test_an_entry_that_is_being_sent_is_unknown_in_the_backup(ledger_path: Path, tmp_path: Path) -> None:
    target = tmp_path / "backup.db"
    assert back_up_ledger(build_file_url(ledger_path), target) == Backup(1, None)
    with open_ledger(build_file_url(target)) as ledger, ledger.transaction():
        assert ledger.mark_sending_entries_unknown() == 1
    with open_ledger(build_file_url(target)) as ledger:
        base = add_base(ledger)
        assert read_entry_state(ledger, base) is State.UNKNOWN
        with ledger.transaction() as connection:
            ledger.mark_found(base, State.UNKNOWN, [(IDENTITY, 7)])
            finish_run(connection, RUN_KEY, "ok", 1.0)


def test_a_path_that_cannot_become_a_backup_is_refused(ledger_path: Path, tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(ledger_path)
    (tmp_path / "first.db-wal").write_text("of another database")
    (tmp_path / "second.db-journal").write_text("of another database")
    (tmp_path / "third.db").write_text("precious")
    for target, expected_text in (
        ("state/ledger.db", "is the ledger itself"),
        ("state/ledger-emails.db", "is the ledger itself"),
        ("state/ledger.db.lock", "exists already"),
        ("link.db", "is the ledger itself"),
        ("first.db", "first.db-wal exists already"),
        ("second.db", "second.db-journal exists already"),
        ("third.db", "exists already, and was not overwritten"),
        ("state", "exists already"),
        ("nowhere/backup.db", "Cannot write in .*/nowhere"),
    ):
        with pytest.raises(ConfigurationError, match=expected_text):
            back_up_ledger(build_file_url(ledger_path), tmp_path / target)
    assert {file.name for file in tmp_path.glob("*.db")} == {"link.db", "third.db"}
    assert (tmp_path / "third.db").read_text() == "precious"
    assert len(read_subscriber_ids(ledger_path)) == 1


def test_a_missing_ledger_or_a_file_without_a_ledger_is_not_copied(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="there is no ledger"):
        back_up_ledger(build_file_url(tmp_path / "ledger.db"), tmp_path / "backup.db")
    assert list(tmp_path.iterdir()) == []
    for content in (b"", b"no database" * 1000):
        (tmp_path / "ledger.db").write_bytes(content)
        with pytest.raises(LedgerError, match=r"no such table|not a database"):
            back_up_ledger(build_file_url(tmp_path / "ledger.db"), tmp_path / "backup.db")
        assert not (tmp_path / "backup.db").exists()


def test_the_copy_of_a_damaged_ledger_is_removed(ledger_path: Path, tmp_path: Path) -> None:
    with open_ledger(build_file_url(ledger_path)) as ledger, ledger.transaction():
        subscribers = [(index.to_bytes(16, "big"), index) for index in range(5000)]
        ledger.record_listed_subscribers(find_or_add_base(ledger.connection, "account", 8, None), "email", subscribers)
    overwrite_the_middle(ledger_path)
    folder = tmp_path / "backups"
    folder.mkdir()
    with pytest.raises(LedgerError, match=r"damaged|malformed"):
        back_up_ledger(build_file_url(ledger_path), folder / "backup.db")
    assert list(folder.iterdir()) == []
