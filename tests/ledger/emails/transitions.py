"""The call of the ledger of emails for each move of an email, and the events that lead to each state."""

from collections.abc import Callable
from pathlib import Path

from connector.ledger.emails import Campaign, EmailEntry, EmailLog
from connector.ledger.sqlite import find_emails
from connector.states import EMAIL, EmailEvent, EmailState

RUN = "run-1"
RECIPIENT = b"r" * 16
ADDRESS = "ann@example.com"

Move = tuple[EmailState, EmailEvent]


MOVES: dict[Move, Callable[[EmailLog, Campaign], object]] = {
    (EmailState.NONE, EmailEvent.INTENDED): lambda log, campaign: log.mark_intended(
        campaign, RUN, [(RECIPIENT, ADDRESS)], at=1.0
    ),
    (EmailState.SENDING, EmailEvent.ACCEPTED): lambda log, campaign: log.mark_accepted(
        campaign, [(RECIPIENT, 7, "<7@shop>", 2.0)]
    ),
    (EmailState.SENDING, EmailEvent.REFUSED): lambda log, campaign: log.mark_refused(
        campaign, [(RECIPIENT, 422, "no")]
    ),
    (EmailState.SENDING, EmailEvent.NOT_SENT): lambda log, campaign: log.mark_not_sent(campaign, [RECIPIENT]),
    (EmailState.SENDING, EmailEvent.LOST): lambda log, campaign: log.mark_lost(campaign, [RECIPIENT]),
    (EmailState.SENDING, EmailEvent.DIED): lambda log, campaign: log.mark_died(campaign),
    (EmailState.REFUSED, EmailEvent.ALLOWED): lambda log, campaign: log.mark_allowed(campaign, [RECIPIENT]),
}
TOLERANT_MOVES = {(EmailState.SENDING, EmailEvent.DIED)}  # a call about many emails, which skips emails in other states

PATHS: dict[EmailState, tuple[EmailEvent, ...]] = {
    EmailState.NONE: (),
    EmailState.SENDING: (EmailEvent.INTENDED,),
    EmailState.SENT: (EmailEvent.INTENDED, EmailEvent.ACCEPTED),
    EmailState.UNKNOWN: (EmailEvent.INTENDED, EmailEvent.LOST),
    EmailState.REFUSED: (EmailEvent.INTENDED, EmailEvent.REFUSED),
}


def add_campaign(log: EmailLog, name: str = "welcome", account: str = "account") -> Campaign:
    with log.hold_campaign(account, name, is_new_account=True) as campaign:
        return campaign


def move_to(log: EmailLog, campaign: Campaign, state: EmailState) -> None:
    """Move the email to RECIPIENT, which has no entry, to `state`, with a transaction for each move."""
    current_state = EmailState.NONE
    for event in PATHS[state]:
        with log.transaction():
            MOVES[current_state, event](log, campaign)
        current_state = EMAIL.transitions[current_state, event]


def read_entry(log: EmailLog, campaign: Campaign, recipient: bytes = RECIPIENT) -> EmailEntry | None:
    with log.transaction():
        return log.find(campaign, [recipient]).get(recipient)


def read_state(log: EmailLog, campaign: Campaign, recipient: bytes = RECIPIENT) -> EmailState:
    entry = read_entry(log, campaign, recipient)
    return entry.state if entry else EmailState.NONE


def find_file(url: str) -> Path:
    """Return the file with the emails of a ledger in SQLite."""
    return find_emails(Path(url.removeprefix("sqlite:///")))
