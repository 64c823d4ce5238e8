"""A backup of the ledger takes the emails with it: without them people would be mailed twice."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from connector.errors import ConfigurationError, LedgerError, LockedError
from connector.ledger.backup import Backup, back_up_ledger, restore_ledger
from connector.ledger.opening import open_emails, open_existing_emails, open_ledger
from connector.ledger.store import StaleMoveError
from connector.states import EmailState
from tests.ledger.emails.moves import RECIPIENT, RUN, add_campaign, bring_to, read_state
from tests.ledger.moves import begin_run
from tests.ledger.places import url_of
from tests.pipelines.conftest import wait_for

BACKUPS = 4
BATCH = 8


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """An empty ledger, and beside it one email that was sent."""
    path = tmp_path / "state" / "ledger.db"
    with open_ledger(url_of(path)) as ledger:
        begin_run(ledger)
    send_one(path)
    return path


def send_one(path: Path) -> None:
    with open_emails(url_of(path)) as log:
        bring_to(log, add_campaign(log), EmailState.SENT)


def test_nobody_is_mailed_twice_by_the_copy(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "backups" / "copy.db"
    target.parent.mkdir()
    assert back_up_ledger(url_of(source), target) == Backup(entries=0, emails=1)
    assert sorted(file.name for file in target.parent.iterdir()) == ["copy-emails.db", "copy.db"]
    assert {file.stat().st_mode & 0o777 for file in target.parent.iterdir()} == {0o600}
    with open_ledger(url_of(target)), open_emails(url_of(target)) as log:
        campaign = add_campaign(log)
        with pytest.raises(StaleMoveError), log.transaction():
            log.mark_intended(campaign, RUN, [(RECIPIENT, "ann@example.com")], at=3.0)


def test_emails_are_copied_where_there_is_no_ledger_yet(tmp_path: Path) -> None:
    send_one(tmp_path / "ledger.db")
    assert back_up_ledger(url_of(tmp_path / "ledger.db"), tmp_path / "copy.db") == Backup(entries=None, emails=1)
    assert not (tmp_path / "copy.db").exists()
    with open_existing_emails(url_of(tmp_path / "copy.db")) as log:
        assert log is not None
        assert read_state(log, add_campaign(log)) is EmailState.SENT


def test_the_emails_of_a_ledger_are_those_beside_it_and_not_beside_its_link(source: Path, tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(source)
    assert back_up_ledger(url_of(tmp_path / "link.db"), tmp_path / "copy.db").emails == 1


@pytest.mark.parametrize("name", ["copy.db", "copy-emails.db"])
def test_neither_file_takes_the_place_of_another_unless_it_is_to(source: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("precious")
    with pytest.raises(ConfigurationError, match=rf"{name} is there already"):
        back_up_ledger(url_of(source), tmp_path / "copy.db")
    assert [file.read_text() for file in tmp_path.iterdir() if file.is_file()] == ["precious"]
    assert back_up_ledger(url_of(source), tmp_path / "copy.db", is_replacing=True).emails == 1


@pytest.mark.parametrize("missing", ["ledger.db", "ledger-emails.db"])
def test_an_older_copy_is_not_left_to_be_taken_for_part_of_this_one(source: Path, tmp_path: Path, missing: str) -> None:
    back_up_ledger(url_of(source), tmp_path / "copy.db")
    source.with_name(missing).unlink()
    before = {file.name: file.read_bytes() for file in tmp_path.glob("copy*")}
    with pytest.raises(ConfigurationError, match="move it away"):
        back_up_ledger(url_of(source), tmp_path / "copy.db", is_replacing=True)
    assert {file.name: file.read_bytes() for file in tmp_path.glob("copy*")} == before


@pytest.mark.parametrize("has_emails", [True, False])
@pytest.mark.parametrize(
    "name",
    ["ledger.db", "ledger.db.lock", "ledger-emails.db", "ledger-emails.db-journal", "ledger-emails.db.ab.lock"],
)
def test_no_file_of_the_emails_is_the_target(source: Path, name: str, has_emails: bool) -> None:
    emails = source.with_name("ledger-emails.db")
    if not has_emails:
        emails.unlink()
    with pytest.raises(ConfigurationError, match="of the ledger itself"):
        back_up_ledger(url_of(source), source.with_name(name), is_replacing=True)
    assert emails.exists() is has_emails
    with open_ledger(url_of(source)):
        pass


def test_of_a_ledger_whose_emails_are_damaged_there_is_no_copy(source: Path, tmp_path: Path) -> None:
    source.with_name("ledger-emails.db").write_bytes(b"no database" * 1000)
    with pytest.raises(LedgerError, match=r"ledger-emails\.db .*not a database"):
        back_up_ledger(url_of(source), tmp_path / "copy.db")
    assert [file.name for file in tmp_path.iterdir()] == ["state"]


_KILLED = """
import os, sys
from connector.ledger.opening import open_emails

with open_emails(sys.argv[1]) as log:
    log.connection.exec_driver_sql("PRAGMA cache_size = 1")  # what is changed is in the file before the commit
    log.connection.rollback()
    with log.hold_campaign("account", "welcome") as campaign, log.transaction():
        people = [(number.to_bytes(16, "big"), "p@example.com") for number in range(1000)]
        log.mark_intended(campaign, "run-1", people, at=1.0)
        os.kill(os.getpid(), 9)
"""


def test_what_a_killed_process_left_half_written_is_not_in_the_copy(source: Path, tmp_path: Path) -> None:
    assert subprocess.run([sys.executable, "-c", _KILLED, url_of(source)], check=False).returncode == -9
    assert source.with_name("ledger-emails.db-journal").exists()
    assert back_up_ledger(url_of(source), tmp_path / "copy.db").emails == 1
    assert not source.with_name("ledger-emails.db-journal").exists()


_WRITER = f"""
import select, sys
from connector.ledger.opening import open_emails

start = 0
with open_emails(sys.argv[1]) as log, log.hold_campaign("account", "farewell") as campaign:
    while not select.select([sys.stdin], [], [], 0)[0]:
        with log.transaction():
            people = [(each.to_bytes(16, "big"), "p@example.com") for each in range(start, start + {BATCH})]
            log.mark_intended(campaign, "run-1", people, at=1.0)
        start += {BATCH}
        if start == {BATCH}:
            print("begun", flush=True)
print(start, flush=True)
"""


def count_emails(path: Path) -> int:
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        return int(connection.execute("SELECT count(*) FROM email").fetchone()[0])


def test_backups_beside_a_writer_are_each_a_whole_prefix_of_what_it_committed(source: Path, tmp_path: Path) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER, url_of(source)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == "begun\n"
    targets = [tmp_path / f"copy-{number}.db" for number in range(BACKUPS)]
    numbers = [back_up_ledger(url_of(source), target).emails or 0 for target in targets[:-1]]
    wait_for(lambda: count_emails(source.with_name("ledger-emails.db")) > numbers[0])
    numbers.append(back_up_ledger(url_of(source), targets[-1]).emails or 0)
    assert writer.poll() is None
    last, _ = writer.communicate("stop\n", timeout=60)
    assert writer.returncode == 0
    assert numbers == sorted(numbers)
    assert 1 < numbers[0] < numbers[-1] <= int(last) + 1
    for number, target in zip(numbers, targets, strict=True):
        assert number % BATCH == 1  # the one of the fixture
        with closing(sqlite3.connect(target.with_name(f"{target.stem}-emails.db"))) as copy:
            assert copy.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            found = copy.execute("SELECT recipient FROM email WHERE state = 1 ORDER BY email_key").fetchall()
        assert [int.from_bytes(who) for (who,) in found] == list(range(number - 1))


@pytest.mark.parametrize("name", ["ledger.db", "ledger[1].db"])
def test_a_restore_is_refused_while_a_campaign_is_being_sent(tmp_path: Path, name: str) -> None:
    with open_ledger(url_of(tmp_path / name)) as ledger:
        begin_run(ledger)
    send_one(tmp_path / name)
    back_up_ledger(url_of(tmp_path / name), tmp_path / "copy.db")
    with (
        open_emails(url_of(tmp_path / name)) as log,
        log.hold_campaign("account", "welcome"),
        pytest.raises(LockedError, match="campaign"),
    ):
        restore_ledger(url_of(tmp_path / name), tmp_path / "copy.db", at=datetime.now(UTC))
