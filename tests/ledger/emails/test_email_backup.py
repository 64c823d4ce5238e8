"""A backup of the ledger includes the emails, so that a restored ledger sends no campaign twice."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from connector.errors import ConfigurationError
from connector.ledger.copies import Backup, back_up_ledger, restore_ledger
from connector.ledger.opening import open_email_log, open_existing_email_log, open_ledger
from connector.ledger.store import StaleTransitionError
from connector.states import EmailState
from tests.ledger.emails.transitions import RECIPIENT, RUN_ID, add_campaign, bring_to_state, read_email_state
from tests.ledger.places import build_file_url
from tests.ledger.transitions import begin_run


@pytest.fixture
def ledger_path(tmp_path: Path) -> Path:
    """A ledger without entries, with one sent email."""
    path = tmp_path / "state" / "ledger.db"
    with open_ledger(build_file_url(path)) as ledger:
        begin_run(ledger)
    record_sent_email(path)
    return path


def record_sent_email(path: Path) -> None:
    with open_email_log(build_file_url(path)) as email_log:
        bring_to_state(email_log, add_campaign(email_log), EmailState.SENT)


def test_a_restored_backup_sends_no_email_twice(ledger_path: Path, tmp_path: Path) -> None:
    target = tmp_path / "backups" / "copy.db"
    target.parent.mkdir()
    assert back_up_ledger(build_file_url(ledger_path), target) == Backup(entry_count=0, email_count=1)
    assert sorted(file.name for file in target.parent.iterdir()) == ["copy-emails.db", "copy.db"]
    assert {file.stat().st_mode & 0o777 for file in target.parent.iterdir()} == {0o600}
    assert target.read_bytes()[18:20] == b"\1\1"  # the file header says that no WAL is needed
    with open_ledger(build_file_url(target)), open_email_log(build_file_url(target)) as email_log:
        campaign = add_campaign(email_log)
        with pytest.raises(StaleTransitionError), email_log.transaction():
            email_log.mark_intended(campaign, RUN_ID, [(RECIPIENT, "ann@example.com")], intended_at=3.0)


def test_emails_without_a_ledger_are_copied(tmp_path: Path) -> None:
    record_sent_email(tmp_path / "ledger.db")
    assert back_up_ledger(build_file_url(tmp_path / "ledger.db"), tmp_path / "copy.db") == Backup(
        entry_count=None, email_count=1
    )
    assert not (tmp_path / "copy.db").exists()
    with open_existing_email_log(build_file_url(tmp_path / "copy.db")) as email_log:
        assert email_log is not None
        assert read_email_state(email_log, add_campaign(email_log)) is EmailState.SENT


def test_a_backup_by_a_link_to_the_ledger_includes_the_emails(ledger_path: Path, tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(ledger_path)
    assert back_up_ledger(build_file_url(tmp_path / "link.db"), tmp_path / "copy.db").email_count == 1


def test_the_file_of_the_emails_is_refused_as_a_backup_of_the_ledger(ledger_path: Path, tmp_path: Path) -> None:
    back_up_ledger(build_file_url(ledger_path), tmp_path / "copy.db")
    with pytest.raises(ConfigurationError, match=r"copy-emails\.db is not a backup that can be restored"):
        restore_ledger(
            build_file_url(tmp_path / "new.db"),
            tmp_path / "copy-emails.db",
            restored_at=datetime(2026, 11, 27, tzinfo=UTC),
        )
    assert not (tmp_path / "new.db").exists()


def test_existing_emails_beside_the_target_are_not_overwritten(ledger_path: Path, tmp_path: Path) -> None:
    (tmp_path / "copy-emails.db").write_text("precious")
    with pytest.raises(ConfigurationError, match=r"copy-emails\.db exists already"):
        back_up_ledger(build_file_url(ledger_path), tmp_path / "copy.db")
    assert [file.read_text() for file in tmp_path.iterdir() if file.is_file()] == ["precious"]


KILLED_WRITER = """
import os, sys
from connector.ledger.opening import open_email_log

with open_email_log(sys.argv[1]) as email_log:
    email_log.connection.exec_driver_sql("PRAGMA cache_size = 1")  # so that changes are written before the commit
    email_log.connection.rollback()
    with email_log.hold_campaign("account", "welcome") as campaign, email_log.transaction():
        people = [(number.to_bytes(16, "big"), "p@example.com") for number in range(1000)]
        email_log.mark_intended(campaign, "run-1", people, intended_at=1.0)
        os.kill(os.getpid(), 9)
"""


def test_the_half_written_transaction_of_a_killed_process_is_not_in_the_copy(ledger_path: Path, tmp_path: Path) -> None:
    assert (
        subprocess.run([sys.executable, "-c", KILLED_WRITER, build_file_url(ledger_path)], check=False).returncode == -9
    )
    assert ledger_path.with_name("ledger-emails.db-journal").exists()
    assert back_up_ledger(build_file_url(ledger_path), tmp_path / "copy.db").email_count == 1
    assert not ledger_path.with_name("ledger-emails.db-journal").exists()
