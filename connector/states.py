"""Every state that an entry of the ledger can be in, and every move between them: one table.

Theory of operation. An entry speaks of one identity in one base. NONE means that the ledger holds no entry.
Before a create request leaves, its entry is SENDING, durably; so a crash can never hide a request. From there
an answer that is understood leads to CONFIRMED (it is in the service, by id) or REJECTED (the service said no);
a request known not to have left leads back to NONE; everything else, a crash included, to UNKNOWN. Out of
UNKNOWN lead only proofs: FOUND by a look-up, or ABSENT by the rule of design 4.5, whereupon it is sent again, HELD
for a person, REJECTED if the service answered each of several attempts with an error, or given up because nobody wants
it any more. An answer that speaks of another base or identity than was sent leads to HELD, too: no look-up can tell
what became of such a create. A refusal whose kind turns out to have created people is DOUBTED, and one who is held can
be REOPENED: both are UNKNOWN then, and are looked for like any other; a person may also have what is held ACCEPTED as
it was answered, or DROPPED. CONFIRMED is
final, unless a person says that somebody is to be FORGOTTEN. An illegal move raises and changes nothing.
"""

from enum import IntEnum, StrEnum


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
    NOT_SENT = "not sent"  # known to have had no effect: it never left, or was refused only for its rate
    LOST = "lost"  # anything else: it may have been executed, or may yet be
    DIED = "died"  # found SENDING by a run that holds the lock
    FOUND = "found"  # seen in the service by a look-up or a listing
    ABSENT = "absent"  # proved not there, and to be sent again
    WITHHELD = "withheld"  # proved not there, and left to a person
    SUPPRESSED = "suppressed"  # proved not there, and on the job's suppression list by now
    DOUBTED = "doubted"  # its kind of refusal turned out to have created
    REOPENED = "reopened"  # a person wants it sent again
    ACCEPTED = "accepted"  # a person says that the answered subscriber is the one that was meant
    DROPPED = "dropped"  # a person gives it up
    FORGOTTEN = "forgotten"  # a person says that the service does not have it any more


TRANSITIONS: dict[tuple[State, Event], State] = {
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
    (State.REJECTED, Event.DOUBTED): State.UNKNOWN,
    (State.REJECTED, Event.FORGOTTEN): State.NONE,
    (State.CONFIRMED, Event.FORGOTTEN): State.NONE,
}


class IllegalMoveError(Exception):
    """A move that the table does not have; it names the state and the event."""


def decide_state(state: State, event: Event) -> State:
    """The state that `event` leads to from `state`; raises IllegalMoveError when there is no such move."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalMoveError(f"an entry that is {state.name} cannot be {event.value}") from None
