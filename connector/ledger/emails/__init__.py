"""What was sent to whom, so that nobody is mailed twice: campaigns, and emails sent by themselves (design, section 4).

Apart from the ledger of subscribers, which a load locks: an email may be sent while a load goes on.
"""

from connector.ledger.emails.campaigns import Campaign, find_campaign, find_campaign_or_add, list_campaigns
from connector.ledger.emails.opening import open_emails, open_existing_emails
from connector.ledger.emails.singles import (
    mark_single_accepted,
    mark_single_intended,
    mark_single_lost,
    mark_single_not_sent,
    mark_single_refused,
    read_unsettled_singles,
)
from connector.ledger.emails.store import EmailEntry, EmailLog, OpenEmail

__all__ = [
    "Campaign",
    "EmailEntry",
    "EmailLog",
    "OpenEmail",
    "find_campaign",
    "find_campaign_or_add",
    "list_campaigns",
    "mark_single_accepted",
    "mark_single_intended",
    "mark_single_lost",
    "mark_single_not_sent",
    "mark_single_refused",
    "open_emails",
    "open_existing_emails",
    "read_unsettled_singles",
]
