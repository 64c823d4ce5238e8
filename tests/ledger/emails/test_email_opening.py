"""Opening the ledger of emails and holding a campaign, on SQLite and on PostgreSQL."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import text

from connector.errors import ConfigurationError, LedgerError, LockedError
from connector.ledger.emails import EmailLog
from connector.ledger.opening import open_email_log, open_existing_email_log, open_ledger
from connector.states import EmailState
from tests.ledger.emails.transitions import add_campaign, bring_to_state, find_emails_file_of_url, read_email_state
from tests.ledger.places import check_opening_fails
from tests.ledger.transitions import begin_run


def test_an_email_is_stored_while_a_load_holds_the_ledger(ledger_url: str) -> None:
    with open_ledger(ledger_url) as ledger, open_email_log(ledger_url) as email_log:
        begin_run(ledger)
        bring_to_state(email_log, add_campaign(email_log), EmailState.SENT)


def test_threads_that_create_the_ledger_of_emails_together_use_the_same_ledger(ledger_url: str) -> None:
    def add_campaign_in_thread(campaign_number: int) -> int:
        with open_email_log(ledger_url) as email_log:
            return add_campaign(email_log, f"campaign {campaign_number}").key

    with ThreadPoolExecutor(8) as pool:
        campaign_keys = list(pool.map(add_campaign_in_thread, range(16)))
    assert sorted(campaign_keys) == list(range(1, 17))


def test_reading_emails_creates_no_file(ledger_url: str, tmp_path: Path) -> None:
    folder = tmp_path / "nowhere"
    for url in (ledger_url, ledger_url.replace(str(tmp_path), str(folder))):
        with open_existing_email_log(url) as email_log:
            assert email_log is None
    assert list(tmp_path.iterdir()) == []
    with open_email_log(ledger_url) as email_log:
        bring_to_state(email_log, add_campaign(email_log), EmailState.SENT)
    with open_existing_email_log(ledger_url) as existing_email_log:
        assert existing_email_log is not None
        assert read_email_state(existing_email_log, add_campaign(existing_email_log)) is EmailState.SENT


def test_a_ledger_that_must_exist_is_refused_if_it_has_no_campaign(ledger_url: str) -> None:
    """An empty log at a wrong place would let a campaign send all its emails again."""
    check_opening_fails(open_email_log(ledger_url, may_create=False), LedgerError, "there is no ledger at")
    with open_email_log(ledger_url):
        pass
    check_opening_fails(open_email_log(ledger_url, may_create=False), LedgerError, "with a recorded campaign")
    with open_email_log(ledger_url) as email_log:
        bring_to_state(email_log, add_campaign(email_log), EmailState.SENT)
    with open_email_log(ledger_url, may_create=False):
        pass


def write_meta(url: str, name: str, value: str) -> None:
    with open_email_log(url) as email_log, email_log.transaction() as connection:
        statement = text("UPDATE email_meta SET value = :value WHERE name = :name")
        connection.execute(statement, {"name": name, "value": value})


@pytest.mark.parametrize(
    ("name", "value"), [("schema_version", "2"), ("schema_version", "one"), ("identity_rule", "0")]
)
def test_an_email_log_of_another_connector_version_is_refused(ledger_url: str, name: str, value: str) -> None:
    """With another rule for addresses, a person would be a new recipient and get the email again."""
    write_meta(ledger_url, name, value)
    for open_log in (open_email_log, open_existing_email_log):
        check_opening_fails(
            open_log(ledger_url), ConfigurationError, rf"{name} {value}.*Use the version of the connector"
        )
    with open_ledger(ledger_url):
        pass


# Campaigns


def test_the_error_of_a_second_run_of_a_campaign_shows_the_first_process(ledger_url: str) -> None:
    error_pattern = f"the campaign welcome is held by process {os.getpid()} on .*: wait for that run, or use --wait"
    with (
        open_email_log(ledger_url) as first_email_log,
        open_email_log(ledger_url) as second_email_log,
        first_email_log.hold_campaign("one", "welcome"),
    ):
        for account in ("one", "two"):  # two account names may mean the same account
            check_opening_fails(second_email_log.hold_campaign(account, "welcome"), LockedError, error_pattern)
        with second_email_log.hold_campaign("one", "farewell"):
            pass


def test_a_run_cannot_hold_a_campaign_twice(email_log: EmailLog) -> None:
    for _ in range(2):
        with email_log.hold_campaign("account", "welcome"):
            check_opening_fails(email_log.hold_campaign("account", "welcome"), LockedError, "welcome is held")


def test_a_waiting_run_gets_the_campaign_when_the_campaign_is_free(ledger_url: str) -> None:
    call_count = 0
    with (
        open_email_log(ledger_url) as first_email_log,
        open_email_log(ledger_url) as second_email_log,
        ExitStack() as exit_stack,
    ):
        exit_stack.enter_context(first_email_log.hold_campaign("account", "welcome"))

        def release_campaign_at_second_call() -> bool:
            nonlocal call_count
            call_count += 1
            if call_count == 2:
                exit_stack.close()
            return False

        with second_email_log.hold_campaign(
            "account", "welcome", wait_s=60.0, is_stopped=release_campaign_at_second_call
        ) as campaign:
            bring_to_state(second_email_log, campaign, EmailState.SENT)
    assert call_count == 2


def test_an_exception_while_a_run_holds_a_campaign_frees_the_campaign(ledger_url: str) -> None:
    with open_email_log(ledger_url) as email_log, open_email_log(ledger_url) as other_email_log:
        with pytest.raises(FileNotFoundError), email_log.hold_campaign("account", "welcome"), email_log.transaction():
            raise FileNotFoundError
        with other_email_log.hold_campaign("account", "welcome"):
            pass


KILLED_WRITER = """
import os, sys
from connector.ledger.opening import open_email_log

with open_email_log(sys.argv[1]) as email_log, email_log.hold_campaign("account", "welcome") as campaign:
    if sys.argv[1].startswith("sqlite"):
        email_log.connection.exec_driver_sql("PRAGMA cache_size = 1")  # so that changes are written before the commit
        email_log.connection.rollback()
    with email_log.transaction():
        recipients = [(number.to_bytes(16, "big"), f"p{number}@example.com") for number in range(300)]
        email_log.mark_intended(campaign, "run-1", recipients, intended_at=1.0)
    with email_log.transaction():
        email_log.mark_accepted(campaign, [(recipients[0][0], 7, "<7@shop>", 2.0)])
    with email_log.transaction():
        email_log.mark_accepted(campaign, [(recipient, 8, "<8@shop>", 2.0) for recipient, _ in recipients[1:]])
        os.kill(os.getpid(), 9)
"""


def test_emails_of_a_run_killed_in_a_commit_are_not_sent_again(ledger_url: str) -> None:
    result = subprocess.run([sys.executable, "-c", KILLED_WRITER, ledger_url], check=False)
    assert result.returncode == -9
    if ledger_url.startswith("sqlite"):  # the journal has the unfinished transaction
        file = find_emails_file_of_url(ledger_url)
        assert file.with_name(f"{file.name}-journal").exists()
    with (
        open_email_log(ledger_url) as email_log,
        email_log.hold_campaign("account", "welcome", wait_s=60.0) as campaign,
    ):
        with email_log.transaction():
            assert email_log.mark_sending_emails_unknown(campaign) == 299
        with email_log.transaction() as connection:
            email_count_by_state: dict[int, int] = dict(
                connection.exec_driver_sql("SELECT state, count(*) FROM email GROUP BY state").all()
            )
            unsettled_emails = email_log.read_unsettled_emails(campaign)
        assert (email_count_by_state[EmailState.SENT], email_count_by_state[EmailState.UNKNOWN]) == (1, 299)
        assert [email.address for email in unsettled_emails] == [
            f"p{campaign_number}@example.com" for campaign_number in range(1, 300)
        ]
        for recipient in (number.to_bytes(16, "big") for number in (0, 1)):
            with pytest.raises(LedgerError, match="1 of 1 entries"), email_log.transaction():
                email_log.mark_intended(campaign, "run-2", [(recipient, "p@example.com")], intended_at=3.0)
