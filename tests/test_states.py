"""The states and outcomes. The tests contain a second copy of the tables, so that no table changes by mistake."""

from dataclasses import fields
from itertools import product

import pytest

from connector.outcomes import MailOutcome, Outcome, needs_person
from connector.states import (
    EMAIL_STATE_MACHINE,
    ENTRY_STATE_MACHINE,
    EmailEvent,
    EmailState,
    Event,
    IllegalTransitionError,
    State,
    StateTraits,
    find_traits,
)

ENTRY_TRANSITIONS = {
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
}


def test_every_transition_of_an_entry_is_in_the_table_or_raises() -> None:
    for state, event in product(State, Event):
        if (state, event) in ENTRY_TRANSITIONS:
            assert ENTRY_STATE_MACHINE.decide(state, event) is ENTRY_TRANSITIONS[state, event], (state, event)
        else:
            with pytest.raises(IllegalTransitionError, match=f"{state.name} cannot be {event.value}"):
                ENTRY_STATE_MACHINE.decide(state, event)


STATES_BY_PROPERTY = {
    "subscriber_may_exist": {State.SENDING, State.UNKNOWN, State.HELD, State.CONFIRMED},
    "is_unsettled": {State.SENDING, State.UNKNOWN, State.HELD},
    "waits_for_retry": {State.UNKNOWN, State.HELD},
    "waits_for_person": {State.HELD},
    "is_confirmed_by_list": {State.NONE, State.HELD, State.REJECTED, State.DROPPED},
    "counts_as_rejected": {State.REJECTED, State.DROPPED},
}


def test_each_property_of_a_state_is_true_for_the_states_of_the_table() -> None:
    states_by_property = {
        field.name: {state for state in State if getattr(find_traits(state), field.name)}
        for field in fields(StateTraits)
        if field.name != "rank"  # tests/ledger/test_bases.py tests `rank` with entries of all pairs of states
    }
    assert states_by_property == STATES_BY_PROPERTY


EMAIL_TRANSITIONS = {
    (EmailState.NONE, EmailEvent.INTENDED): EmailState.SENDING,
    (EmailState.SENDING, EmailEvent.ACCEPTED): EmailState.SENT,
    (EmailState.SENDING, EmailEvent.REFUSED): EmailState.REFUSED,
    (EmailState.SENDING, EmailEvent.NOT_SENT): EmailState.NONE,
    (EmailState.SENDING, EmailEvent.LOST): EmailState.UNKNOWN,
    (EmailState.SENDING, EmailEvent.DIED): EmailState.UNKNOWN,
    (EmailState.REFUSED, EmailEvent.ALLOWED): EmailState.NONE,
}


def test_every_transition_of_an_email_is_in_the_table_or_raises() -> None:
    for state, event in product(EmailState, EmailEvent):
        if (state, event) in EMAIL_TRANSITIONS:
            assert EMAIL_STATE_MACHINE.decide(state, event) is EMAIL_TRANSITIONS[state, event], (state, event)
        else:
            with pytest.raises(IllegalTransitionError, match=f"an email that is {state.name} cannot be {event.value}"):
                EMAIL_STATE_MACHINE.decide(state, event)


def test_a_rejects_file_can_hold_each_email_outcome_that_needs_a_person() -> None:
    assert {outcome for outcome in MailOutcome if needs_person(outcome)} <= set(Outcome)
