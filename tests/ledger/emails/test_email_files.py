"""Emails in a SQLite file: only the owner can read the file, and an address is erased after its use."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from connector.errors import LedgerError
from connector.ledger.emails import Campaign
from connector.ledger.opening import open_emails, open_existing_emails, open_ledger
from connector.ledger.sqlite import find_emails
from connector.states import EmailState
from tests.ledger.emails.moves import RUN, add_campaign, add_single, bring_to, read_state
from tests.ledger.places import check_refused, url_of

PEOPLE = 3000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger's path; nothing is there yet."""
    return tmp_path / "state" / "ledger.db"


def fill(path: Path, number: int = PEOPLE) -> list[bytes]:
    """A campaign of so many who were mailed, and an email sent by itself; returns the recipients."""
    people = [(index * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128).to_bytes(16, "big") for index in range(number)]
    with open_emails(url_of(path)) as log:
        campaign = add_campaign(log)
        for start in range(0, number, 64):
            batch = people[start : start + 64]
            with log.transaction():
                intents = [(subscriber, f"secret-{at}@example.com") for at, subscriber in enumerate(batch, start)]
                log.mark_intended(campaign, RUN, intents, at=1.0)
            with log.transaction():
                log.mark_accepted(campaign, [(person, 7, "<7@shop>", 2.0) for person in batch])
        key = add_single(log)
        with log.transaction():
            log.mark_single_accepted(key, 7, "<7@shop>", at=2.0)
    return people


def test_of_addresses_that_were_mailed_nothing_is_left_in_any_file(path: Path) -> None:
    fill(path)
    for file in path.parent.iterdir():
        content = file.read_bytes()
        assert (b"secret" in content, b"example" in content) == (False, False), file.name
    assert find_emails(path).stat().st_size > PEOPLE * 16


def test_only_an_unsettled_email_stores_its_address(path: Path) -> None:
    fill(path, 200)
    with open_emails(url_of(path)) as log:
        campaign = add_campaign(log)
        with log.transaction():
            log.mark_intended(campaign, RUN, [(b"u" * 16, "unknown@example.com")], at=1.0)
            log.mark_intended(campaign, RUN, [(b"n" * 16, "never-left@example.com")], at=1.0)
            log.mark_intended(campaign, RUN, [(b"r" * 16, "refused@example.com")], at=1.0)
        with log.transaction():
            log.mark_lost(campaign, [b"u" * 16])
            log.mark_not_sent(campaign, [b"n" * 16])
            log.mark_refused(campaign, [(b"r" * 16, 422, "no")])
        with log.transaction():
            log.mark_allowed(campaign, [b"r" * 16])
    content = find_emails(path).read_bytes()
    assert content.count(b"example.com") == content.count(b"unknown@example.com") == 1


def test_the_file_and_its_locks_are_their_owners_alone(path: Path) -> None:
    with open_emails(url_of(path)) as log, log.hold_campaign("account", "welcome"):
        files = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert len(files) == 2
    assert {"ledger-emails.db"} < set(files)
    assert set(files.values()) == {0o600}
    assert path.parent.stat().st_mode & 0o777 == 0o700
    find_emails(path).chmod(0o644)
    with open_emails(url_of(path)):
        assert find_emails(path).stat().st_mode & 0o777 == 0o600


def test_a_commit_is_on_the_disk_with_the_removal_of_its_journal(path: Path) -> None:
    assert {name: show(path, name) for name in ("synchronous", "journal_mode", "secure_delete")} == {
        "synchronous": 3,  # EXTRA
        "journal_mode": "delete",
        "secure_delete": 1,
    }
    assert show(path, "busy_timeout") >= 10_000  # type: ignore[operator] # milliseconds


def show(path: Path, pragma: str) -> object:
    with open_emails(url_of(path)) as log, log.transaction() as connection:
        return connection.exec_driver_sql(f"PRAGMA {pragma}").scalar_one()


def test_a_file_with_a_wal_gets_its_journal_back(path: Path) -> None:
    fill(path, 10)
    with closing(sqlite3.connect(find_emails(path))) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    assert show(path, "journal_mode") == "delete"


def test_a_link_to_a_ledger_has_the_same_emails(path: Path, tmp_path: Path) -> None:
    with open_ledger(url_of(path)):
        pass
    (tmp_path / "link.db").symlink_to(path)
    with open_emails(url_of(tmp_path / "link.db")) as log:
        bring_to(log, add_campaign(log), EmailState.SENT)
    with open_existing_emails(url_of(path)) as found:
        assert found is not None
        assert read_state(found, add_campaign(found)) is EmailState.SENT
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["link.db"]


def test_a_file_with_a_second_name_is_refused(path: Path) -> None:
    """By a hard link the file has another journal and another lock."""
    fill(path, 10)
    path.with_name("other-emails.db").hardlink_to(find_emails(path))
    check_refused(open_emails(url_of(path)), LedgerError, "hard link")


def test_an_emails_database_of_another_program_is_refused(path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(find_emails(path))) as connection:
        connection.execute("CREATE TABLE invoice (note TEXT)")
    check_refused(open_emails(url_of(path)), LedgerError, r"tables of something else \(invoice\)")


def test_an_emails_file_that_is_no_database_is_refused_and_stays_unchanged(path: Path) -> None:
    path.parent.mkdir()
    find_emails(path).write_bytes(b"email,first_name\n" * 1000)
    for opening in (open_emails, open_existing_emails):
        check_refused(opening(url_of(path)), LedgerError, r"ledger-emails\.db .*not a database")
    assert find_emails(path).read_bytes() == b"email,first_name\n" * 1000


def test_no_campaign_is_held_in_a_damaged_file(path: Path) -> None:
    """Whoever was mailed might not be found in it."""
    people = fill(path)
    file = find_emails(path)
    content = bytearray(file.read_bytes())
    middle = len(content) // 8192 * 4096
    content[middle : middle + 8192] = b"\xa5garbage" * 1024
    file.write_bytes(content)
    with open_emails(url_of(path)) as log:
        check_refused(log.hold_campaign("account", "welcome"), LedgerError, r"damaged \(.*restore a backup")
        with pytest.raises(LedgerError, match="malformed"), log.transaction():
            log.find(Campaign(1, "account", "welcome"), people)


def test_a_commit_that_a_reader_blocks_is_an_error_and_stores_nothing(path: Path) -> None:
    fill(path, 10)
    with open_emails(url_of(path)) as log, closing(sqlite3.connect(find_emails(path))) as reader:
        campaign = add_campaign(log)
        log.connection.exec_driver_sql("PRAGMA busy_timeout = 50")  # milliseconds, for this test
        log.connection.rollback()
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM email").fetchone()
        with pytest.raises(LedgerError, match="locked"), log.transaction():
            log.mark_intended(campaign, RUN, [(b"u" * 16, "unknown@example.com")], at=1.0)
        reader.rollback()
        assert read_state(log, campaign, b"u" * 16) is EmailState.NONE
        with log.transaction():
            log.mark_intended(campaign, RUN, [(b"u" * 16, "unknown@example.com")], at=1.0)
