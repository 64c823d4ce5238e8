"""The states of a create and of an email, and every move between them: two tables of one kind of machine. A move that
its table does not have raises, and changes nothing.

Theory of operation of an entry. An entry speaks of one identity in one base. NONE means that the ledger holds no entry.
Before a create request leaves, its entry is SENDING, durably; so a crash can never hide a request. From there
an answer that is understood leads to CONFIRMED (it is in the service, by id) or REJECTED (the service said no);
a request known not to have left leads back to NONE; everything else, a crash included, to UNKNOWN. Out of
UNKNOWN lead only proofs: FOUND by a look-up, or ABSENT by the rule of architecture 4.5, whereupon it is sent again,
HELD for a person, REJECTED if the service answered each of several attempts with an error, or given up because it is no
longer wanted. An answer that speaks of another base or identity than was sent leads to HELD, too: no look-up can show
what became of such a create. A refusal whose kind turns out to have created subscribers is UNRESOLVED, and a held entry
can be REOPENED: both are UNKNOWN then, and are looked up like any other. A person may also have a held entry ACCEPTED
as it was answered, or DROPPED. CONFIRMED is final, unless a person asks for the entry to be FORGOTTEN.

Theory of operation of an email. NONE means that the ledger of emails holds no entry. Before the request leaves, its
entry is SENDING, durably; so a crash can never hide an email. From there the service's answer leads to SENT (it took
the email, under a number) or REFUSED (it said no); a request known never to have left leads back to NONE; everything
else, a crash included, to UNKNOWN. An email sent twice cannot be taken back, and the service offers no way to ask what
was sent: so nothing leads out of UNKNOWN, as nothing leads out of SENT, and an email is sent at most once, always. What
is UNKNOWN is listed for a person. REFUSED is final, too, unless a person says that the email may be sent once more: it
is ALLOWED then.
"""

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from typing import Generic, TypeVar

S = TypeVar("S", bound=IntEnum)
E = TypeVar("E", bound=StrEnum)


class IllegalMoveError(Exception):
    """A move that the table does not have; it names the state and the event."""


class StateMachine(Generic[S, E]):
    """A table of moves; `what` says in errors what is in the state."""

    def __init__(self, what: str, transitions: Mapping[tuple[S, E], S]) -> None:
        self.what = what
        self.transitions = transitions

    def decide(self, state: S, event: E) -> S:
        """Return the state that `event` leads to from `state`; raise IllegalMoveError when there is no such move."""
        try:
            return self.transitions[state, event]
        except KeyError:
            raise IllegalMoveError(f"{self.what} that is {state.name} cannot be {event.value}") from None


class State(IntEnum):
    """A condition; the numbers are stored in ledgers and never change their meaning."""

    NONE = 0
    SENDING = 1
    UNKNOWN = 2
    HELD = 3
    CONFIRMED = 4
    REJECTED = 5


class Event(StrEnum):
    """Something that happened."""

    INTENDED = "intended"  # a create is about to be sent
    ANSWERED = "answered"  # success, with an id, and base and identity as sent
    MISANSWERED = "misanswered"  # success, with an id, and with another base or identity than was sent
    REFUSED = "refused"  # an error of a kind that is taken to have had no effect, or proved to have had none each time
    NOT_SENT = "not sent"  # known to have had no effect: it never left
    LOST = "lost"  # anything else: it may have been executed, or may yet be
    DIED = "died"  # found SENDING by a run that holds the lock
    FOUND = "found"  # seen in the service by a look-up or a listing
    ABSENT = "absent"  # proved not there, and to be sent again
    WITHHELD = "withheld"  # proved not there, and left to a person
    SUPPRESSED = "suppressed"  # proved not there, and on the job's suppression list by now
    UNRESOLVED = "unresolved"  # its kind of refusal turned out to have created
    REOPENED = "reopened"  # a person wants it sent again
    ACCEPTED = "accepted"  # a person says that the answered subscriber is the one that was meant
    DROPPED = "dropped"  # a person gives it up
    FORGOTTEN = "forgotten"  # a person says that the service does not have it any more


ENTRY = StateMachine[State, Event](
    "an entry",
    {
        (State.NONE, Event.INTENDED): State.SENDING,
        (State.NONE, Event.FOUND): State.CONFIRMED,
        (State.SENDING, Event.ANSWERED): State.CONFIRMED,
        (State.SENDING, Event.MISANSWERED): State.HELD,
        (State.SENDING, Event.REFUSED): State.REJECTED,
        (State.SENDING, Event.NOT_SENT): State.NONE,
        (State.SENDING, Event.LOST): State.UNKNOWN,
        (State.SENDING, Event.DIED): State.UNKNOWN,
        (State.UNKNOWN, Event.FOUND): State.CONFIRMED,
        (State.UNKNOWN, Event.ABSENT): State.SENDING,
        (State.UNKNOWN, Event.WITHHELD): State.HELD,
        (State.UNKNOWN, Event.REFUSED): State.REJECTED,
        (State.UNKNOWN, Event.SUPPRESSED): State.NONE,
        (State.HELD, Event.FOUND): State.CONFIRMED,
        (State.HELD, Event.REOPENED): State.UNKNOWN,
        (State.HELD, Event.ACCEPTED): State.CONFIRMED,
        (State.HELD, Event.DROPPED): State.REJECTED,
        (State.HELD, Event.FORGOTTEN): State.NONE,
        (State.REJECTED, Event.INTENDED): State.SENDING,
        (State.REJECTED, Event.FOUND): State.CONFIRMED,
        (State.REJECTED, Event.UNRESOLVED): State.UNKNOWN,
        (State.REJECTED, Event.FORGOTTEN): State.NONE,
        (State.CONFIRMED, Event.FORGOTTEN): State.NONE,
    },
)


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


EMAIL = StateMachine[EmailState, EmailEvent](
    "an email",
    {
        (EmailState.NONE, EmailEvent.INTENDED): EmailState.SENDING,
        (EmailState.SENDING, EmailEvent.ACCEPTED): EmailState.SENT,
        (EmailState.SENDING, EmailEvent.REFUSED): EmailState.REFUSED,
        (EmailState.SENDING, EmailEvent.NOT_SENT): EmailState.NONE,
        (EmailState.SENDING, EmailEvent.LOST): EmailState.UNKNOWN,
        (EmailState.SENDING, EmailEvent.DIED): EmailState.UNKNOWN,
        (EmailState.REFUSED, EmailEvent.ALLOWED): EmailState.NONE,
    },
)
