"""The ledger call that makes each transition of an entry, and the events that bring an entry to each state."""

from collections.abc import Callable

from connector.ledger.entries import Entry, Intent, Ledger
from connector.ledger.records import find_or_add_base, start_run
from connector.ledger.store import Base
from connector.states import ENTRY_STATE_MACHINE, Event, State

RUN_KEY = 1
IDENTITY = b"i" * 16
INTENT = Intent(IDENTITY, b"f" * 8, b'{"Subscriber":{}}')

Transition = tuple[State, Event]

CALL_BY_TRANSITION: dict[Transition, Callable[[Ledger, Base], object]] = {
    (State.NONE, Event.INTENDED): lambda ledger, base: ledger.mark_intended(base, RUN_KEY, [INTENT]),
    (State.NONE, Event.FOUND): lambda ledger, base: ledger.record_listed_subscribers(base, "email", [(IDENTITY, 7)]),
    (State.SENDING, Event.ANSWERED): lambda ledger, base: ledger.mark_answered(base, [(IDENTITY, 7)]),
    (State.SENDING, Event.REFUSED): lambda ledger, base: ledger.mark_refused(
        base, State.SENDING, [(IDENTITY, 422, "no")]
    ),
    (State.SENDING, Event.MISANSWERED): lambda ledger, base: ledger.mark_wrongly_answered(
        base, [(IDENTITY, 7, "of another")]
    ),
    (State.SENDING, Event.NOT_SENT): lambda ledger, base: ledger.mark_not_sent(base, [IDENTITY]),
    (State.SENDING, Event.LOST): lambda ledger, base: ledger.mark_lost(base, [IDENTITY]),
    (State.SENDING, Event.DIED): lambda ledger, base: ledger.mark_sending_entries_unknown(),
    (State.UNKNOWN, Event.FOUND): lambda ledger, base: ledger.mark_found(base, State.UNKNOWN, [(IDENTITY, 7)]),
    (State.UNKNOWN, Event.ABSENT): lambda ledger, base: ledger.mark_absent(base, RUN_KEY, [INTENT]),
    (State.UNKNOWN, Event.HELD): lambda ledger, base: ledger.mark_held(base, [(IDENTITY, None)]),
    (State.UNKNOWN, Event.REFUSED): lambda ledger, base: ledger.mark_refused(
        base, State.UNKNOWN, [(IDENTITY, 200, "no")]
    ),
    (State.UNKNOWN, Event.SUPPRESSED): lambda ledger, base: ledger.mark_suppressed(base, [IDENTITY]),
    (State.HELD, Event.FOUND): lambda ledger, base: ledger.mark_found(base, State.HELD, [(IDENTITY, 7)]),
    (State.HELD, Event.REOPENED): lambda ledger, base: ledger.mark_reopened(base, [IDENTITY]),
    (State.HELD, Event.DROPPED): lambda ledger, base: ledger.mark_dropped(base, [IDENTITY], "given up"),
    (State.HELD, Event.ACCEPTED): lambda ledger, base: ledger.mark_accepted(base, [(IDENTITY, 7)]),
    (State.HELD, Event.FORGOTTEN): lambda ledger, base: ledger.mark_forgotten(base, State.HELD, [IDENTITY]),
    (State.REJECTED, Event.INTENDED): lambda ledger, base: ledger.mark_intended_again(
        base, RUN_KEY, State.REJECTED, [INTENT]
    ),
    (State.REJECTED, Event.FOUND): lambda ledger, base: ledger.mark_found(base, State.REJECTED, [(IDENTITY, 7)]),
    (State.REJECTED, Event.UNRESOLVED): lambda ledger, base: ledger.mark_unresolved(base, [IDENTITY]),
    (State.REJECTED, Event.FORGOTTEN): lambda ledger, base: ledger.mark_forgotten(base, State.REJECTED, [IDENTITY]),
    (State.DROPPED, Event.INTENDED): lambda ledger, base: ledger.mark_intended_again(
        base, RUN_KEY, State.DROPPED, [INTENT]
    ),
    (State.DROPPED, Event.FOUND): lambda ledger, base: ledger.mark_found(base, State.DROPPED, [(IDENTITY, 7)]),
    (State.DROPPED, Event.UNRESOLVED): lambda ledger, base: ledger.mark_unresolved(base, [IDENTITY], State.DROPPED),
    (State.DROPPED, Event.FORGOTTEN): lambda ledger, base: ledger.mark_forgotten(base, State.DROPPED, [IDENTITY]),
    (State.CONFIRMED, Event.FORGOTTEN): lambda ledger, base: ledger.mark_forgotten(base, State.CONFIRMED, [IDENTITY]),
}
# The calls of these two transitions raise no error if the entry is in another state.
TRANSITIONS_ALLOWED_IN_ANY_STATE = {(State.NONE, Event.FOUND), (State.SENDING, Event.DIED)}

EVENTS_BY_REACHED_STATE: dict[State, tuple[Event, ...]] = {
    State.NONE: (),
    State.SENDING: (Event.INTENDED,),
    State.UNKNOWN: (Event.INTENDED, Event.LOST),
    State.HELD: (Event.INTENDED, Event.MISANSWERED),
    State.CONFIRMED: (Event.INTENDED, Event.ANSWERED),
    State.REJECTED: (Event.INTENDED, Event.REFUSED),
    State.DROPPED: (Event.INTENDED, Event.MISANSWERED, Event.DROPPED),
}


def begin_run(ledger: Ledger) -> None:
    """Start the run that makes all transitions."""
    with ledger.transaction() as connection:
        assert start_run(connection, "run-1", "job", "import", 0.0) == RUN_KEY


def add_base(ledger: Ledger, base_id: int | None = 7, name: str | None = None) -> Base:
    with ledger.transaction() as connection:
        return find_or_add_base(connection, "account", base_id, name)


def bring_to_state(ledger: Ledger, base: Base, state: State) -> None:
    """Create the entry of IDENTITY in the state `state`."""
    current_state = State.NONE
    with ledger.transaction():
        for event in EVENTS_BY_REACHED_STATE[state]:
            CALL_BY_TRANSITION[current_state, event](ledger, base)
            current_state = ENTRY_STATE_MACHINE.transitions[current_state, event]


def read_entry(ledger: Ledger, base: Base, identity: bytes = IDENTITY) -> Entry | None:
    with ledger.transaction():
        return ledger.find_entries(base, [identity]).get(identity)


def read_entry_state(ledger: Ledger, base: Base, identity: bytes = IDENTITY) -> State:
    entry = read_entry(ledger, base, identity)
    return entry.state if entry else State.NONE


def read_body(ledger: Ledger, base: Base, identity: bytes = IDENTITY) -> bytes | None:
    """Return the stored body of an entry in any state."""
    with ledger.transaction() as connection:
        rows = connection.exec_driver_sql("SELECT base_key, identity, body FROM entry").all()
    return {(row[0], row[1]): row[2] for row in rows}.get((base.key, identity))
