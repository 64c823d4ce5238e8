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
S, E = EmailState, EmailEvent

MOVES: dict[Move, Callable[[EmailLog, Campaign], object]] = {
    (S.NONE, E.INTENDED): lambda log, at: log.mark_intended(at, RUN, [(RECIPIENT, ADDRESS)], at=1.0),
    (S.SENDING, E.ACCEPTED): lambda log, at: log.mark_accepted(at, [(RECIPIENT, 7, "<7@shop>", 2.0)]),
    (S.SENDING, E.REFUSED): lambda log, at: log.mark_refused(at, [(RECIPIENT, 422, "no")]),
    (S.SENDING, E.NOT_SENT): lambda log, at: log.mark_not_sent(at, [RECIPIENT]),
    (S.SENDING, E.LOST): lambda log, at: log.mark_lost(at, [RECIPIENT]),
    (S.SENDING, E.DIED): lambda log, at: log.mark_died(at),
    (S.REFUSED, E.ALLOWED): lambda log, at: log.mark_allowed(at, [RECIPIENT]),
}
TOLERANT_MOVES = {(S.SENDING, E.DIED)}  # a call about many emails, which skips emails in other states

SINGLE_MOVES: dict[EmailEvent, Callable[[EmailLog, int], object]] = {
    E.ACCEPTED: lambda log, key: log.mark_single_accepted(key, 7, "<7@shop>", at=2.0),
    E.REFUSED: lambda log, key: log.mark_single_refused(key, 422, "no"),
    E.NOT_SENT: lambda log, key: log.mark_single_not_sent(key),
    E.LOST: lambda log, key: log.mark_single_lost(key),
}

PATHS: dict[EmailState, tuple[EmailEvent, ...]] = {
    S.NONE: (),
    S.SENDING: (E.INTENDED,),
    S.SENT: (E.INTENDED, E.ACCEPTED),
    S.UNKNOWN: (E.INTENDED, E.LOST),
    S.REFUSED: (E.INTENDED, E.REFUSED),
}


def add_campaign(log: EmailLog, name: str = "welcome", account: str = "account") -> Campaign:
    with log.hold_campaign(account, name, is_new_account=True) as campaign:
        return campaign


def add_single_email(log: EmailLog, account: str = "account") -> int:
    with log.transaction():
        return log.mark_single_intended(account, RUN, ADDRESS, at=1.0)


def move_to(log: EmailLog, campaign: Campaign, state: EmailState) -> None:
    """Move the email to RECIPIENT, which has no entry, to `state`, with a transaction for each move."""
    current_state = S.NONE
    for event in PATHS[state]:
        with log.transaction():
            MOVES[current_state, event](log, campaign)
        current_state = EMAIL.transitions[current_state, event]


def read_entry(log: EmailLog, campaign: Campaign, recipient: bytes = RECIPIENT) -> EmailEntry | None:
    with log.transaction():
        return log.find(campaign, [recipient]).get(recipient)


def read_state(log: EmailLog, campaign: Campaign, recipient: bytes = RECIPIENT) -> EmailState:
    entry = read_entry(log, campaign, recipient)
    return entry.state if entry else S.NONE


def read_single(log: EmailLog, key: int) -> tuple[EmailState, str | None]:
    """Return the state and the stored address of a single email."""
    with log.transaction() as connection:
        rows = connection.exec_driver_sql("SELECT email_key, state, address FROM email").all()
    return {row[0]: (S(row[1]), row[2]) for row in rows}.get(key, (S.NONE, None))


def find_file(url: str) -> Path:
    """Return the file with the emails of a ledger in SQLite."""
    return find_emails(Path(url.removeprefix("sqlite:///")))
