"""Every state that an email can be in, and every move between them: one table.

Theory of operation. NONE means that the ledger of emails holds no entry. Before the request leaves, its entry is
SENDING, durably; so a crash can never hide an email. From there the service's answer leads to SENT (it took the email,
under a number) or REFUSED (it said no); a request known never to have left leads back to NONE; everything else, a crash
included, to UNKNOWN. An email sent twice cannot be taken back, and the service offers no way to ask what was sent:
so nothing leads out of UNKNOWN, as nothing leads out of SENT, and an email is sent at most once, always. Who is UNKNOWN
is listed for a person. REFUSED is final, too, unless a person says that it may be sent once more: it is ALLOWED then.
An illegal move raises and changes nothing.
"""

from enum import IntEnum, StrEnum


class EmailState(IntEnum):
    """A condition; the numbers are stored in ledgers and never change their meaning."""

    NONE = 0
    SENDING = 1
    SENT = 2
    UNKNOWN = 3
    REFUSED = 4


class EmailEvent(StrEnum):
    """Something that happened."""

    INTENDED = "intended"  # it is about to be sent
    ACCEPTED = "accepted"  # success, with the number of the service's task
    REFUSED = "refused"  # an error that is taken to have had no effect
    NOT_SENT = "not sent"  # known never to have left
    LOST = "lost"  # anything else: it may have been sent, or may yet be
    DIED = "died"  # found SENDING by a run that holds the campaign's lock
    ALLOWED = "allowed"  # a person says that it may be sent once more


EMAIL_TRANSITIONS: dict[tuple[EmailState, EmailEvent], EmailState] = {
    (EmailState.NONE, EmailEvent.INTENDED): EmailState.SENDING,
    (EmailState.SENDING, EmailEvent.ACCEPTED): EmailState.SENT,
    (EmailState.SENDING, EmailEvent.REFUSED): EmailState.REFUSED,
    (EmailState.SENDING, EmailEvent.NOT_SENT): EmailState.NONE,
    (EmailState.SENDING, EmailEvent.LOST): EmailState.UNKNOWN,
    (EmailState.SENDING, EmailEvent.DIED): EmailState.UNKNOWN,
    (EmailState.REFUSED, EmailEvent.ALLOWED): EmailState.NONE,
}


class IllegalEmailMoveError(Exception):
    """A move that the table does not have; it names the state and the event."""


def decide_email_state(state: EmailState, event: EmailEvent) -> EmailState:
    """The state that `event` leads to from `state`; raises IllegalEmailMoveError when there is no such move."""
    try:
        return EMAIL_TRANSITIONS[state, event]
    except KeyError:
        raise IllegalEmailMoveError(f"an email that is {state.name} cannot be {event.value}") from None
