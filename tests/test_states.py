"""The table of transitions: every pair of state and event, written out a second time."""

import pytest

from connector.states import TRANSITIONS, Event, IllegalMoveError, State, decide_state

LEGAL = {
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


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", Event)
def test_every_move_is_either_in_the_table_or_raises(state: State, event: Event) -> None:
    if (state, event) in LEGAL:
        assert decide_state(state, event) is LEGAL[state, event]
    else:
        with pytest.raises(IllegalMoveError, match=f"{state.name} cannot be {event.value}"):
            decide_state(state, event)


def test_nothing_but_an_answer_a_sighting_or_a_person_confirms() -> None:
    assert {event for (_, event), state in TRANSITIONS.items() if state is State.CONFIRMED} == {
        Event.ANSWERED,
        Event.FOUND,
        Event.ACCEPTED,
    }


def test_an_unknown_is_sent_again_only_after_a_proof_of_absence() -> None:
    assert [event for (state, event), to in TRANSITIONS.items() if state is State.UNKNOWN and to is State.SENDING] == [
        Event.ABSENT
    ]
