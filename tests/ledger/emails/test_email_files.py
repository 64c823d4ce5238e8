"""Emails in a SQLite file: only the owner can read the file, and an address is erased after its use."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from connector.errors import LedgerError
from connector.ledger.emails import Campaign
from connector.ledger.opening import open_email_log, open_existing_email_log, open_ledger
from connector.ledger.sqlite import find_emails_file
from connector.states import EmailState
from tests.ledger.emails.transitions import RUN_ID, add_campaign, bring_to_state, read_email_state
from tests.ledger.places import build_file_url, check_opening_fails
from tests.ledger.test_damage import overwrite_the_middle

RECIPIENT_COUNT = 3000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a ledger that does not exist yet."""
    return tmp_path / "state" / "ledger.db"


def fill_emails(path: Path, email_count: int = RECIPIENT_COUNT) -> list[bytes]:
    """Record a campaign with `email_count` sent emails. Return the recipients."""
    recipients = [
        (index * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128).to_bytes(16, "big") for index in range(email_count)
    ]
    with open_email_log(build_file_url(path)) as email_log:
        campaign = add_campaign(email_log)
        for start in range(0, email_count, 64):
            batch = recipients[start : start + 64]
            with email_log.transaction():
                intents = [(recipient, f"secret-{index}@example.com") for index, recipient in enumerate(batch, start)]
                email_log.mark_intended(campaign, RUN_ID, intents, intended_at=1.0)
            with email_log.transaction():
                email_log.mark_accepted(campaign, [(recipient, 7, "<7@shop>", 2.0) for recipient in batch])
    return recipients


def test_the_address_of_a_sent_email_is_not_stored_in_any_file(path: Path) -> None:
    fill_emails(path)
    for file in path.parent.iterdir():
        content = file.read_bytes()
        assert (b"secret" in content, b"example" in content) == (False, False), file.name
    assert find_emails_file(path).stat().st_size > RECIPIENT_COUNT * 16


def test_the_address_of_an_email_is_stored_only_while_its_outcome_is_unknown(path: Path) -> None:
    fill_emails(path, 200)
    with open_email_log(build_file_url(path)) as email_log:
        campaign = add_campaign(email_log)
        with email_log.transaction():
            email_log.mark_intended(campaign, RUN_ID, [(b"u" * 16, "unknown@example.com")], intended_at=1.0)
            email_log.mark_intended(campaign, RUN_ID, [(b"n" * 16, "never-left@example.com")], intended_at=1.0)
            email_log.mark_intended(campaign, RUN_ID, [(b"r" * 16, "refused@example.com")], intended_at=1.0)
        with email_log.transaction():
            email_log.mark_lost(campaign, [b"u" * 16])
            email_log.mark_not_sent(campaign, [b"n" * 16])
            email_log.mark_refused(campaign, [(b"r" * 16, 422, "no")])
        with email_log.transaction():
            email_log.allow_another_attempt(campaign, [b"r" * 16])
    content = find_emails_file(path).read_bytes()
    assert content.count(b"example.com") == content.count(b"unknown@example.com") == 1


def test_only_the_owner_may_read_the_file_of_emails_and_its_locks(path: Path) -> None:
    with open_email_log(build_file_url(path)) as email_log, email_log.hold_campaign("account", "welcome"):
        files = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert len(files) == 2
    assert {"ledger-emails.db"} < set(files)
    assert set(files.values()) == {0o600}
    assert path.parent.stat().st_mode & 0o777 == 0o700
    find_emails_file(path).chmod(0o644)
    with open_email_log(build_file_url(path)):
        assert find_emails_file(path).stat().st_mode & 0o777 == 0o600


def test_the_settings_of_the_file_make_each_commit_durable(path: Path) -> None:
    assert {name: read_pragma(path, name) for name in ("synchronous", "journal_mode", "secure_delete")} == {
        "synchronous": 3,  # the value of EXTRA
        "journal_mode": "delete",
        "secure_delete": 1,
    }
    assert read_pragma(path, "busy_timeout") >= 10_000  # type: ignore[operator] # milliseconds


def read_pragma(path: Path, pragma: str) -> object:
    with open_email_log(build_file_url(path)) as email_log, email_log.transaction() as connection:
        return connection.exec_driver_sql(f"PRAGMA {pragma}").scalar_one()


def test_a_file_in_wal_mode_is_opened_with_a_rollback_journal(path: Path) -> None:
    fill_emails(path, 10)
    with closing(sqlite3.connect(find_emails_file(path))) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    assert read_pragma(path, "journal_mode") == "delete"


def test_a_link_to_a_ledger_has_the_same_emails(path: Path, tmp_path: Path) -> None:
    with open_ledger(build_file_url(path)):
        pass
    (tmp_path / "link.db").symlink_to(path)
    with open_email_log(build_file_url(tmp_path / "link.db")) as email_log:
        bring_to_state(email_log, add_campaign(email_log), EmailState.SENT)
    with open_existing_email_log(build_file_url(path)) as target_email_log:
        assert target_email_log is not None
        assert read_email_state(target_email_log, add_campaign(target_email_log)) is EmailState.SENT
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["link.db"]


def test_a_file_with_a_hard_link_is_refused(path: Path) -> None:
    """A hard link would have its own journal and lock."""
    fill_emails(path, 10)
    path.with_name("other-emails.db").hardlink_to(find_emails_file(path))
    check_opening_fails(open_email_log(build_file_url(path)), LedgerError, "hard link")


def test_a_campaign_in_a_damaged_file_is_refused(path: Path) -> None:
    """A damaged file may lack emails that were sent, so the ledger cannot prove that an email was not sent."""
    recipients = fill_emails(path)
    overwrite_the_middle(find_emails_file(path))
    with open_email_log(build_file_url(path)) as email_log:
        check_opening_fails(email_log.hold_campaign("account", "welcome"), LedgerError, r"damaged \(.*restore a backup")
        with pytest.raises(LedgerError, match="malformed"), email_log.transaction():
            email_log.find_emails(Campaign(1, "account", "welcome"), recipients)


def test_a_commit_that_a_reader_blocks_is_an_error_and_stores_nothing(path: Path) -> None:
    fill_emails(path, 10)
    with open_email_log(build_file_url(path)) as email_log, closing(sqlite3.connect(find_emails_file(path))) as reader:
        campaign = add_campaign(email_log)
        # The timeout is 50 milliseconds, so that this test does not wait.
        email_log.connection.exec_driver_sql("PRAGMA busy_timeout = 50")
        email_log.connection.rollback()
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM email").fetchone()
        with pytest.raises(LedgerError, match="locked"), email_log.transaction():
            email_log.mark_intended(campaign, RUN_ID, [(b"u" * 16, "unknown@example.com")], intended_at=1.0)
        reader.rollback()
        assert read_email_state(email_log, campaign, b"u" * 16) is EmailState.NONE
        with email_log.transaction():
            email_log.mark_intended(campaign, RUN_ID, [(b"u" * 16, "unknown@example.com")], intended_at=1.0)
