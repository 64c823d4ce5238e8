"""The ledger call that makes each transition of an email, and the events that bring an email to each state."""

from collections.abc import Callable
from pathlib import Path

from connector.ledger.emails import Campaign, EmailEntry, EmailLog
from connector.ledger.sqlite import find_emails_file
from connector.states import EMAIL_STATE_MACHINE, EmailEvent, EmailState

RUN_ID = "run-1"
RECIPIENT = b"r" * 16
ADDRESS = "ann@example.com"

Transition = tuple[EmailState, EmailEvent]


CALL_BY_TRANSITION: dict[Transition, Callable[[EmailLog, Campaign], object]] = {
    (EmailState.NONE, EmailEvent.INTENDED): lambda email_log, campaign: email_log.mark_intended(
        campaign, RUN_ID, [(RECIPIENT, ADDRESS)], intended_at=1.0
    ),
    (EmailState.SENDING, EmailEvent.ACCEPTED): lambda email_log, campaign: email_log.mark_accepted(
        campaign, [(RECIPIENT, 7, "<7@shop>", 2.0)]
    ),
    (EmailState.SENDING, EmailEvent.REFUSED): lambda email_log, campaign: email_log.mark_refused(
        campaign, [(RECIPIENT, 422, "no")]
    ),
    (EmailState.SENDING, EmailEvent.NOT_SENT): lambda email_log, campaign: email_log.mark_not_sent(
        campaign, [RECIPIENT]
    ),
    (EmailState.SENDING, EmailEvent.LOST): lambda email_log, campaign: email_log.mark_lost(campaign, [RECIPIENT]),
    (EmailState.SENDING, EmailEvent.DIED): lambda email_log, campaign: email_log.mark_sending_emails_unknown(campaign),
    (EmailState.REFUSED, EmailEvent.ALLOWED): lambda email_log, campaign: email_log.allow_another_attempt(
        campaign, [RECIPIENT]
    ),
}
# The call of this transition raises no error if the email is in another state.
TRANSITIONS_ALLOWED_IN_ANY_STATE = {(EmailState.SENDING, EmailEvent.DIED)}

EVENTS_BY_REACHED_STATE: dict[EmailState, tuple[EmailEvent, ...]] = {
    EmailState.NONE: (),
    EmailState.SENDING: (EmailEvent.INTENDED,),
    EmailState.SENT: (EmailEvent.INTENDED, EmailEvent.ACCEPTED),
    EmailState.UNKNOWN: (EmailEvent.INTENDED, EmailEvent.LOST),
    EmailState.REFUSED: (EmailEvent.INTENDED, EmailEvent.REFUSED),
}


def add_campaign(email_log: EmailLog, name: str = "welcome", account: str = "account") -> Campaign:
    with email_log.hold_campaign(account, name, is_new_account=True) as campaign:
        return campaign


def bring_to_state(email_log: EmailLog, campaign: Campaign, state: EmailState) -> None:
    """Create the entry of RECIPIENT in the state `state`."""
    current_state = EmailState.NONE
    with email_log.transaction():
        for event in EVENTS_BY_REACHED_STATE[state]:
            CALL_BY_TRANSITION[current_state, event](email_log, campaign)
            current_state = EMAIL_STATE_MACHINE.transitions[current_state, event]


def read_email_entry(email_log: EmailLog, campaign: Campaign, recipient: bytes = RECIPIENT) -> EmailEntry | None:
    with email_log.transaction():
        return email_log.find_emails(campaign, [recipient]).get(recipient)


def read_email_state(email_log: EmailLog, campaign: Campaign, recipient: bytes = RECIPIENT) -> EmailState:
    entry = read_email_entry(email_log, campaign, recipient)
    return entry.state if entry else EmailState.NONE


def find_emails_file_of_url(url: str) -> Path:
    """Return the file with the emails of a ledger in SQLite."""
    return find_emails_file(Path(url.removeprefix("sqlite:///")))
