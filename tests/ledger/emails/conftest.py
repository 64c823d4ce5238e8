"""A ledger of emails in each store: a test with `log` runs on both stores."""

from collections.abc import Iterator

import pytest

from connector.ledger.emails import Campaign, EmailLog
from connector.ledger.opening import open_emails
from tests.ledger.emails.moves import add_campaign


@pytest.fixture
def log(ledger_url: str) -> Iterator[EmailLog]:
    """An open ledger of emails, on each of the stores."""
    with open_emails(ledger_url) as opened:
        yield opened


@pytest.fixture
def campaign(log: EmailLog) -> Campaign:
    """A campaign in it."""
    return add_campaign(log)
