"""The table of an email's transitions: every pair of state and event, written out a second time."""

import pytest

from connector.email_states import (
    EMAIL_TRANSITIONS,
    EmailEvent,
    EmailState,
    IllegalEmailMoveError,
    decide_email_state,
)

LEGAL = {
    (EmailState.NONE, EmailEvent.INTENDED): EmailState.SENDING,
    (EmailState.SENDING, EmailEvent.ACCEPTED): EmailState.SENT,
    (EmailState.SENDING, EmailEvent.REFUSED): EmailState.REFUSED,
    (EmailState.SENDING, EmailEvent.NOT_SENT): EmailState.NONE,
    (EmailState.SENDING, EmailEvent.LOST): EmailState.UNKNOWN,
    (EmailState.SENDING, EmailEvent.DIED): EmailState.UNKNOWN,
    (EmailState.REFUSED, EmailEvent.ALLOWED): EmailState.NONE,
}


@pytest.mark.parametrize("state", EmailState)
@pytest.mark.parametrize("event", EmailEvent)
def test_every_move_is_either_in_the_table_or_raises(state: EmailState, event: EmailEvent) -> None:
    if (state, event) in LEGAL:
        assert decide_email_state(state, event) is LEGAL[state, event]
    else:
        with pytest.raises(IllegalEmailMoveError, match=f"{state.name} cannot be {event.value}"):
            decide_email_state(state, event)


@pytest.mark.parametrize("state", [EmailState.SENT, EmailState.UNKNOWN])
def test_nothing_leads_out_of_what_was_or_may_have_been_sent(state: EmailState) -> None:
    assert [event for left, event in EMAIL_TRANSITIONS if left is state] == []


def test_only_a_known_failure_or_a_person_makes_room_for_another_attempt() -> None:
    assert {event for (_, event), to in EMAIL_TRANSITIONS.items() if to is EmailState.NONE} == {
        EmailEvent.NOT_SENT,
        EmailEvent.ALLOWED,
    }
