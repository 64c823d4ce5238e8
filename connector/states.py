"""The states of an entry and of an email, and the state transitions. One table has every transition of an entry, and a
second table every transition of an email. A transition that is not in the table raises an error and changes nothing.

An entry is the ledger's record of one identity in one base. The states of an entry:

- NONE: The ledger has no entry.
- SENDING: The intent of a create is durable, and the request may have left. So a crash can never hide a request.
- CONFIRMED: The service has the subscriber, with this id. Only a person can end this state, by forgetting the entry.
- REJECTED: The service refused the create.
- DROPPED: A person has given the create up. The create is sent again only if its row changes.
- UNKNOWN: The create may or may not have taken effect, because no understandable answer came, or because a crash cut
  the request off. This state ends if the subscriber is found, if the subscriber is proved absent (architecture 4.5), or
  if a person must decide.
- HELD: A person must decide. For example, the answer has another base or identity than the request, and no look-up can
  show the reason.

An email has the states NONE, SENDING, SENT, REFUSED and UNKNOWN, with similar meanings. SENT and UNKNOWN are final,
because nobody can take an email back, and the service cannot show which emails it has sent. So an email is sent at most
once. REFUSED is final, unless a person allows one more attempt.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Generic, Literal, TypeVar, assert_never

S = TypeVar("S", bound=IntEnum)
E = TypeVar("E", bound=StrEnum)


class IllegalTransitionError(Exception):
    """The error of a state transition that the table does not have. The message has the state and the event."""


@dataclass(frozen=True)
class StateMachine(Generic[S, E]):
    """A table of state transitions. `subject_noun` ("an entry" or "an email") is the beginning of an error message."""

    subject_noun: str
    transitions: Mapping[tuple[S, E], S]

    def decide(self, state: S, event: E) -> S:
        """Return the state after `event` in `state`. Raise IllegalTransitionError if the table lacks the transition."""
        try:
            return self.transitions[state, event]
        except KeyError:
            raise IllegalTransitionError(f"{self.subject_noun} that is {state.name} cannot be {event.value}") from None

    def allows(self, state: S, event: E) -> bool:
        """Return whether the table has a transition for `event` in `state`."""
        return (state, event) in self.transitions


class State(IntEnum):
    """The state of an entry. Ledgers store the numbers, so a number never changes its meaning."""

    NONE = 0
    SENDING = 1
    UNKNOWN = 2
    HELD = 3
    CONFIRMED = 4
    REJECTED = 5
    DROPPED = 6

    @property
    def report_name(self) -> str:
        """The name of the state in reports. A dropped entry counts as rejected."""
        return (State.REJECTED if self is State.DROPPED else self).name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTraits:
    """The properties of a state. SQL statements and checks about many entries depend on these properties.

    - `rank`: decides which entry stays if two entries of a subscriber are joined. The entry with the smaller rank
      stays.
    - `subscriber_may_exist`: the service may have the subscriber.
    - `is_unsettled`: the effect of the create is not known, or a person has not accepted the effect. So the entry keeps
      its body.
    - `waits_for_retry`: the entry stays unsettled between two runs, until a run or a person settles it.
    - `waits_for_person`: a retry needs a person's decision about the entry.
    - `is_confirmed_by_list`: a listing that shows the subscriber confirms the entry at once. A listing does not
      confirm an UNKNOWN entry, because only its resolution knows whether the connector created the subscriber.
    - `counts_as_rejected`: a row that has not changed has the outcome `rejected`.
    """

    rank: int
    subscriber_may_exist: bool
    is_unsettled: bool
    waits_for_retry: bool
    waits_for_person: bool
    is_confirmed_by_list: bool
    counts_as_rejected: bool


def find_traits(state: State) -> StateTraits:
    """Return the properties of a state."""
    match state:
        case State.CONFIRMED:
            return StateTraits(
                rank=0,
                subscriber_may_exist=True,
                is_unsettled=False,
                waits_for_retry=False,
                waits_for_person=False,
                is_confirmed_by_list=False,
                counts_as_rejected=False,
            )
        case State.SENDING:
            return StateTraits(
                rank=1,
                subscriber_may_exist=True,
                is_unsettled=True,
                waits_for_retry=False,
                waits_for_person=False,
                is_confirmed_by_list=False,
                counts_as_rejected=False,
            )
        case State.UNKNOWN:
            return StateTraits(
                rank=2,
                subscriber_may_exist=True,
                is_unsettled=True,
                waits_for_retry=True,
                waits_for_person=False,
                is_confirmed_by_list=False,
                counts_as_rejected=False,
            )
        case State.HELD:
            return StateTraits(
                rank=3,
                subscriber_may_exist=True,
                is_unsettled=True,
                waits_for_retry=True,
                waits_for_person=True,
                is_confirmed_by_list=True,
                counts_as_rejected=False,
            )
        case State.DROPPED:
            return StateTraits(
                rank=4,
                subscriber_may_exist=False,
                is_unsettled=False,
                waits_for_retry=False,
                waits_for_person=False,
                is_confirmed_by_list=True,
                counts_as_rejected=True,
            )
        case State.REJECTED:
            return StateTraits(
                rank=5,
                subscriber_may_exist=False,
                is_unsettled=False,
                waits_for_retry=False,
                waits_for_person=False,
                is_confirmed_by_list=True,
                counts_as_rejected=True,
            )
        case State.NONE:
            return StateTraits(
                rank=6,
                subscriber_may_exist=False,
                is_unsettled=False,
                waits_for_retry=False,
                waits_for_person=False,
                is_confirmed_by_list=True,
                counts_as_rejected=False,
            )
    assert_never(state)


def list_states_sql(has_property: Callable[[StateTraits], bool]) -> str:
    """Return the states with this property as an SQL list: `(1, 2, 3)`."""
    return f"({', '.join(str(state.value) for state in State if has_property(find_traits(state)))})"


class Event(StrEnum):
    """The cause of a state transition of an entry."""

    INTENDED = "intended"  # a create is about to be sent
    ANSWERED = "answered"  # the service answered with an id, and with the base and identity that were sent
    MISANSWERED = "misanswered"  # the service answered with an id, and the base or identity is different or missing
    REFUSED = "refused"  # the service refused, and the create had no effect (assumed by architecture 2, or proved)
    NOT_SENT = "not sent"  # the request never left, so it had no effect
    LOST = "lost"  # any other result: the service may have executed the request, or may execute the request later
    DIED = "died"  # a run that holds the lock found the entry in SENDING
    FOUND = "found"  # a look-up or a listing showed the subscriber
    ABSENT = "absent"  # the subscriber is proved absent, and the create is sent again
    HELD = "held"  # no look-up has found the subscriber, and a person must decide
    SUPPRESSED = "suppressed"  # the subscriber is proved absent, and is now on the job's suppression list
    UNRESOLVED = "unresolved"  # the refused or dropped create may be sent again, so its subscriber is looked up first
    REOPENED = "reopened"  # a person wants the create to be sent again
    ACCEPTED = "accepted"  # a person accepts the subscriber in the answer
    DROPPED = "dropped"  # a person gives up the create
    FORGOTTEN = "forgotten"  # a person knows that the service no longer has the subscriber


CreateEvent = Literal[Event.ANSWERED, Event.MISANSWERED, Event.REFUSED, Event.NOT_SENT, Event.LOST]
"""An event that ends one attempt to create a subscriber."""

NoResendEvent = Literal[Event.HELD, Event.SUPPRESSED, Event.REFUSED]
"""An event of an UNKNOWN entry whose subscriber was not found, if the create is not sent again."""

ENTRY_STATE_MACHINE = StateMachine[State, Event](
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
        (State.UNKNOWN, Event.HELD): State.HELD,
        (State.UNKNOWN, Event.REFUSED): State.REJECTED,
        (State.UNKNOWN, Event.SUPPRESSED): State.NONE,
        (State.HELD, Event.FOUND): State.CONFIRMED,
        (State.HELD, Event.REOPENED): State.UNKNOWN,
        (State.HELD, Event.ACCEPTED): State.CONFIRMED,
        (State.HELD, Event.DROPPED): State.DROPPED,
        (State.HELD, Event.FORGOTTEN): State.NONE,
        (State.REJECTED, Event.INTENDED): State.SENDING,
        (State.REJECTED, Event.FOUND): State.CONFIRMED,
        (State.REJECTED, Event.UNRESOLVED): State.UNKNOWN,
        (State.REJECTED, Event.FORGOTTEN): State.NONE,
        (State.DROPPED, Event.INTENDED): State.SENDING,
        (State.DROPPED, Event.FOUND): State.CONFIRMED,
        (State.DROPPED, Event.UNRESOLVED): State.UNKNOWN,
        (State.DROPPED, Event.FORGOTTEN): State.NONE,
        (State.CONFIRMED, Event.FORGOTTEN): State.NONE,
    },
)


class EmailState(IntEnum):
    """The state of an email. Ledgers store the numbers, so a number never changes its meaning."""

    NONE = 0
    SENDING = 1
    SENT = 2
    UNKNOWN = 3
    REFUSED = 4


class EmailEvent(StrEnum):
    """The cause of a state transition of an email."""

    INTENDED = "intended"  # the email is about to be sent
    ACCEPTED = "accepted"  # the service accepted the email, and answered with a request id
    REFUSED = "refused"  # the service answered with an error, and the email counts as not sent (architecture 2)
    NOT_SENT = "not sent"  # the request never left
    LOST = "lost"  # any other result: the service may have sent the email, or may send the email later
    DIED = "died"  # a run that holds the campaign's lock found the email in SENDING
    ALLOWED = "allowed"  # a person allows one more attempt


EMAIL_STATE_MACHINE = StateMachine[EmailState, EmailEvent](
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
