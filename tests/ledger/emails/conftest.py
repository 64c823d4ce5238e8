"""Ledgers of emails for the tests. A test with the fixture `email_log` runs on SQLite and on PostgreSQL."""

from collections.abc import Iterator

import pytest

from connector.ledger.emails import Campaign, EmailLog
from connector.ledger.opening import open_email_log
from tests.ledger.emails.transitions import add_campaign


@pytest.fixture
def email_log(ledger_url: str) -> Iterator[EmailLog]:
    """An open ledger of emails, on SQLite and on PostgreSQL."""
    with open_email_log(ledger_url) as new_email_log:
        yield new_email_log


@pytest.fixture
def campaign(email_log: EmailLog) -> Campaign:
    """A campaign in the ledger of emails."""
    return add_campaign(email_log)
