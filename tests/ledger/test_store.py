"""The entries of the ledger: every transition from every state, transactions, and constraints, on SQLite and on
PostgreSQL."""

from dataclasses import replace
from itertools import product
from math import inf

import pytest
from sqlalchemy import text

from connector.errors import LedgerError
from connector.ledger.entries import ConfirmedEntry, Intent, Ledger
from connector.ledger.records import finish_run, start_run
from connector.ledger.schema import CONFIRMATION_CODES
from connector.ledger.store import Base, StaleTransitionError
from connector.states import ENTRY_STATE_MACHINE, Event, State
from tests.ledger.transitions import (
    CALL_BY_TRANSITION,
    IDENTITY,
    INTENT,
    RUN_KEY,
    TRANSITIONS_ALLOWED_IN_ANY_STATE,
    Transition,
    add_base,
    bring_to_state,
    read_body,
    read_entry,
    read_entry_state,
)

OTHER_IDENTITY = b"j" * 16


def test_the_tested_transitions_are_exactly_the_transitions_of_the_state_table() -> None:
    assert CALL_BY_TRANSITION.keys() == ENTRY_STATE_MACHINE.transitions.keys()


def test_only_a_transition_of_the_state_table_changes_an_entry(ledger: Ledger) -> None:
    for index, (state, transition) in enumerate(product(State, CALL_BY_TRANSITION)):
        check_transition(ledger, add_base(ledger, index), state, transition)


def check_transition(ledger: Ledger, base: Base, state: State, transition: Transition) -> None:
    bring_to_state(ledger, base, state)
    entry_before = read_entry(ledger, base)
    if state is transition[0]:
        check_changed_entry(ledger, base, transition)
    elif transition in TRANSITIONS_ALLOWED_IN_ANY_STATE:
        with ledger.transaction():
            CALL_BY_TRANSITION[transition](ledger, base)
        is_confirmed = transition[1] is Event.FOUND and state in (State.REJECTED, State.DROPPED, State.HELD)
        assert read_entry_state(ledger, base) is (State.CONFIRMED if is_confirmed else state), transition
    else:
        with pytest.raises(StaleTransitionError), ledger.transaction():
            CALL_BY_TRANSITION[transition](ledger, base)
        assert read_entry(ledger, base) == entry_before, (state, transition)


SAME_FINGERPRINT = INTENT.fingerprint
COLUMNS_SQL = "SELECT how, subscriber_id, fingerprint, status, message, attempts FROM entry"
COLUMNS_AFTER_TRANSITION: dict[Transition, tuple[object, ...]] = {
    (State.NONE, Event.INTENDED): (None, None, SAME_FINGERPRINT, None, None, 1),
    (State.NONE, Event.FOUND): (CONFIRMATION_CODES["found"], 7, None, None, None, 0),
    (State.SENDING, Event.ANSWERED): (CONFIRMATION_CODES["created"], 7, SAME_FINGERPRINT, None, None, 1),
    (State.SENDING, Event.REFUSED): (None, None, SAME_FINGERPRINT, 422, "no", 1),
    (State.SENDING, Event.MISANSWERED): (None, 7, SAME_FINGERPRINT, None, "of another", 1),
    (State.SENDING, Event.LOST): (None, None, SAME_FINGERPRINT, None, None, 1),
    (State.SENDING, Event.DIED): (None, None, SAME_FINGERPRINT, None, None, 1),
    (State.UNKNOWN, Event.FOUND): (CONFIRMATION_CODES["settled"], 7, SAME_FINGERPRINT, None, None, 1),
    (State.UNKNOWN, Event.ABSENT): (None, None, SAME_FINGERPRINT, None, None, 2),
    (State.UNKNOWN, Event.HELD): (None, None, SAME_FINGERPRINT, None, None, 1),
    (State.UNKNOWN, Event.REFUSED): (None, None, SAME_FINGERPRINT, 200, "no", 1),
    (State.HELD, Event.FOUND): (CONFIRMATION_CODES["settled"], 7, None, None, None, 1),
    (State.HELD, Event.REOPENED): (None, None, SAME_FINGERPRINT, None, None, 1),
    (State.HELD, Event.DROPPED): (None, None, SAME_FINGERPRINT, None, "given up", 1),
    (State.HELD, Event.ACCEPTED): (CONFIRMATION_CODES["accepted"], 7, SAME_FINGERPRINT, None, None, 1),
    (State.REJECTED, Event.INTENDED): (None, None, SAME_FINGERPRINT, None, None, 2),
    (State.REJECTED, Event.FOUND): (CONFIRMATION_CODES["found"], 7, None, None, None, 1),
    (State.REJECTED, Event.UNRESOLVED): (None, None, SAME_FINGERPRINT, None, None, 1),
    (State.DROPPED, Event.INTENDED): (None, None, SAME_FINGERPRINT, None, None, 2),
    (State.DROPPED, Event.FOUND): (CONFIRMATION_CODES["found"], 7, None, None, None, 1),
    (State.DROPPED, Event.UNRESOLVED): (None, None, SAME_FINGERPRINT, None, "given up", 1),
}
"""The values of the columns in COLUMNS_SQL, after each transition that does not delete the entry."""


def check_changed_entry(ledger: Ledger, base: Base, transition: Transition) -> None:
    """Check that the transition changes the columns of its entry, and no other entry of this base or another base."""
    other_base = add_base(ledger, None, f"Shop {transition}")
    other_intent = Intent(OTHER_IDENTITY, b"o" * 8, b"{}")
    for base_with_other_entry in (base, other_base):
        with ledger.transaction():
            ledger.mark_intended(base_with_other_entry, RUN_KEY, [other_intent])
            ledger.mark_lost(base_with_other_entry, [OTHER_IDENTITY])
    bring_to_state(ledger, other_base, transition[0])
    if transition[1] is Event.DIED:  # this transition changes the entries of all bases
        with ledger.transaction():
            ledger.mark_lost(other_base, [IDENTITY])
    other_entries = [(other_base, IDENTITY), (other_base, OTHER_IDENTITY), (base, OTHER_IDENTITY)]
    entries_before = [read_entry(ledger, *other_entry) for other_entry in other_entries]
    with ledger.transaction() as connection:
        CALL_BY_TRANSITION[transition](ledger, base)
        columns_query = text(f"{COLUMNS_SQL} WHERE base_key = :base_key AND identity = :identity")
        rows = connection.execute(columns_query, {"base_key": base.key, "identity": IDENTITY}).all()
    assert read_entry_state(ledger, base) is ENTRY_STATE_MACHINE.transitions[transition], transition
    assert [read_entry(ledger, *other_entry) for other_entry in other_entries] == entries_before, transition
    assert [tuple(row) for row in rows] == (
        [COLUMNS_AFTER_TRANSITION[transition]] if transition in COLUMNS_AFTER_TRANSITION else []
    ), transition
    has_body = ENTRY_STATE_MACHINE.transitions[transition] not in (State.NONE, State.CONFIRMED)
    assert read_body(ledger, base) == (INTENT.body if has_body else None), transition


def test_one_entry_in_a_wrong_state_rolls_the_transaction_back(ledger: Ledger) -> None:
    base = add_base(ledger)
    bring_to_state(ledger, base, State.SENDING)
    with pytest.raises(StaleTransitionError, match="1 of 2 entries"), ledger.transaction():
        ledger.mark_lost(base, [IDENTITY, OTHER_IDENTITY])
    assert read_entry_state(ledger, base) is State.SENDING


def test_the_same_identity_twice_in_one_call_is_an_error(ledger: Ledger) -> None:
    base = add_base(ledger)
    with pytest.raises(StaleTransitionError), ledger.transaction():
        ledger.mark_intended(base, RUN_KEY, [INTENT, replace(INTENT, body=b"other")])
    assert read_entry_state(ledger, base) is State.NONE


def test_an_identity_that_is_listed_twice_keeps_its_first_id(ledger: Ledger) -> None:
    base = add_base(ledger)
    with ledger.transaction():
        ledger.record_listed_subscribers(base, "email", [(IDENTITY, 7), (OTHER_IDENTITY, 8), (IDENTITY, 9)])
        id_by_identity = {entry.identity: entry.subscriber_id for entry in ledger.find_confirmed_entries(base, b"", 9)}
    assert id_by_identity == {IDENTITY: 7, OTHER_IDENTITY: 8}


@pytest.mark.parametrize("state", [State.UNKNOWN, State.HELD, State.REJECTED])
def test_an_unfinished_entry_has_every_value_that_a_second_create_needs(ledger: Ledger, state: State) -> None:
    base = add_base(ledger)
    bring_to_state(ledger, base, state)
    with ledger.transaction():
        (entry,) = ledger.find_unfinished_entries(base, state)
        other_states = {
            other_state
            for other_state in State
            if other_state is not state and ledger.find_unfinished_entries(base, other_state)
        }
    assert (entry.identity, entry.fingerprint, entry.body) == (IDENTITY, INTENT.fingerprint, INTENT.body)
    assert (entry.identity_field, entry.attempt_count, entry.run_id, entry.suppressing_job) == (
        "email",
        1,
        "run-1",
        None,
    )
    answer_by_state = {State.REJECTED: (422, "no"), State.HELD: (None, "of another")}
    assert (entry.status, entry.message) == answer_by_state.get(state, (None, None))
    assert other_states == set()


def test_an_unknown_entry_shows_which_run_sent_its_create(ledger: Ledger) -> None:
    base = add_base(ledger)
    with ledger.transaction() as connection:
        run_key = start_run(connection, "run-2", "job", "sync", 0.0, suppressing_job="crm")
        ledger.mark_intended(base, run_key, [replace(INTENT, identity_field="client_user_id")])
        ledger.mark_lost(base, [IDENTITY])
        (entry,) = ledger.find_unfinished_entries(base, State.UNKNOWN)
    assert (entry.identity_field, entry.run_id, entry.suppressing_job) == ("client_user_id", "run-2", "crm")


def test_a_second_intent_replaces_the_first_intent(ledger: Ledger) -> None:
    base = add_base(ledger)
    bring_to_state(ledger, base, State.REJECTED)
    newer_intent = Intent(IDENTITY, b"g" * 8, b"newer")
    with ledger.transaction() as connection:
        run_key = start_run(connection, "run-2", "job", "import", 0.0)
        ledger.mark_intended_again(base, run_key, State.REJECTED, [newer_intent])
        ledger.mark_lost(base, [IDENTITY])
        (entry,) = ledger.find_unfinished_entries(base, State.UNKNOWN)
    assert (entry.fingerprint, entry.body, entry.attempt_count, entry.run_id) == (b"g" * 8, b"newer", 2, "run-2")
    assert (entry.status, entry.message) == (None, None)


def test_a_read_of_confirmed_entries_starts_at_any_identity_and_wraps_around(ledger: Ledger) -> None:
    base, other_base = add_base(ledger), add_base(ledger, 8)
    identities = [bytes([count]) * 16 for count in range(5)]
    with ledger.transaction():
        ledger.record_listed_subscribers(base, "email", [(person, person[0]) for person in identities])
        ledger.record_listed_subscribers(other_base, "email", [(b"e" * 16, 50)])
        ledger.mark_intended(base, RUN_KEY, [INTENT])  # this entry is not confirmed

    def find_ids(start: bytes, count: int) -> list[int]:
        with ledger.transaction():
            return [entry.subscriber_id for entry in ledger.find_confirmed_entries(base, start, count)]

    assert find_ids(b"", 3) == [0, 1, 2]
    assert find_ids(identities[3], 1) == [3]
    assert find_ids(identities[2] + b"\0", 2) == [3, 4]
    assert find_ids(identities[3], 4) == [3, 4, 0, 1]
    assert find_ids(identities[3], 9) == [3, 4, 0, 1, 2]
    assert find_ids(b"\xff" * 16, 2) == [0, 1]
    assert find_ids(identities[1], 0) == []


def test_the_age_of_a_created_entry_counts_from_the_end_of_its_run(ledger: Ledger) -> None:
    base = add_base(ledger)
    bring_to_state(ledger, base, State.CONFIRMED)
    with ledger.transaction() as connection:
        ledger.record_listed_subscribers(base, "email", [(OTHER_IDENTITY, 8)])
        assert ledger.find_confirmed_entries(base, b"", 9) == [
            ConfirmedEntry(IDENTITY, 7, inf),
            ConfirmedEntry(OTHER_IDENTITY, 8, None),
        ]
        finish_run(connection, RUN_KEY, "ok", 1e9 + 0.5)
        assert ledger.find_confirmed_entries(base, b"", 9) == [
            ConfirmedEntry(IDENTITY, 7, 1e9 + 0.5),
            ConfirmedEntry(OTHER_IDENTITY, 8, None),
        ]


def test_only_a_confirmed_entry_gets_a_fingerprint(ledger: Ledger) -> None:
    base = add_base(ledger)
    with ledger.transaction():
        ledger.record_listed_subscribers(base, "email", [(IDENTITY, 7)])
        ledger.record_reported_rows(base, [(IDENTITY, b"g" * 8)], 5.0)
        ledger.record_rows_equal_to_service(base, [(IDENTITY, b"f" * 8)])
    with pytest.raises(StaleTransitionError), ledger.transaction():
        ledger.record_rows_equal_to_service(base, [(OTHER_IDENTITY, b"g" * 8)])
    entry = read_entry(ledger, base)
    assert entry is not None
    assert (entry.fingerprint, entry.reported_fingerprint, entry.reported_at) == (b"f" * 8, None, None)


def test_more_identities_than_one_statement_can_have_are_found_and_forgotten(ledger: Ledger) -> None:
    base = add_base(ledger)
    identities = [index.to_bytes(16, "big") for index in range(2500)]
    with ledger.transaction():
        ledger.mark_intended(base, RUN_KEY, [Intent(identity, b"f" * 8, b"{}") for identity in identities])
        ledger.mark_answered(base, [(identity, subscriber_id) for subscriber_id, identity in enumerate(identities)])
        entries = ledger.find_entries(base, identities)
        assert [entries[identity].subscriber_id for identity in identities] == list(range(2500))
        ledger.mark_forgotten(base, State.CONFIRMED, identities)
        assert ledger.find_entries(base, identities) == {}


def test_a_row_is_equal_only_to_a_confirmed_entry_with_the_same_fingerprint(ledger: Ledger) -> None:
    base = add_base(ledger)
    sent_person, changed_person, listed_person, refused_person, unknown_person, unrecorded_person = (
        bytes([index]) * 16 for index in range(6)
    )
    with ledger.transaction():
        ledger.mark_intended(
            base,
            RUN_KEY,
            [
                Intent(person, b"f" * 8, b"{}")
                for person in (sent_person, changed_person, refused_person, unknown_person)
            ],
        )
        ledger.mark_answered(base, [(sent_person, 1), (changed_person, 3)])
        ledger.mark_refused(base, State.SENDING, [(refused_person, 422, "no")])
        ledger.mark_lost(base, [unknown_person])
        ledger.record_listed_subscribers(base, "email", [(listed_person, 2)])
        rows = [
            (person, b"f" * 8)
            for person in (sent_person, listed_person, refused_person, unknown_person, unrecorded_person)
        ]
        has_entry_by_identity = ledger.find_identities_of_changed_rows(base, [*rows, (changed_person, b"g" * 8)])
    assert has_entry_by_identity == {
        changed_person: True,
        listed_person: True,
        refused_person: True,
        unknown_person: True,
        unrecorded_person: False,
    }


def test_the_database_refuses_an_entry_with_inconsistent_columns(ledger: Ledger) -> None:
    base = add_base(ledger)
    bring_to_state(ledger, base, State.SENDING)
    for statement in (
        "UPDATE entry SET state = 4",
        "UPDATE entry SET state = 9",
        "UPDATE entry SET body = NULL",
        "UPDATE entry SET identity = :short",
        "UPDATE entry SET state = 5, body = NULL",
        "UPDATE entry SET state = 4, subscriber_id = 1, how = 1",
        "UPDATE entry SET state = 4, subscriber_id = 1, body = NULL",
        "UPDATE entry SET subscriber_id = 1",
        "UPDATE entry SET status = 422",
        "UPDATE base SET service_id = NULL",
    ):
        parameters = {"short": b"\0"} if ":short" in statement else {}
        with pytest.raises(LedgerError, match=r"(?i)check constraint"), ledger.transaction() as connection:
            connection.execute(text(statement), parameters)
    assert read_entry_state(ledger, base) is State.SENDING


def test_an_error_of_the_database_shows_no_data_of_a_person(ledger: Ledger) -> None:
    base = add_base(ledger)
    intent = Intent(b"short", b"f" * 8, b"somebody@example.com")
    with pytest.raises(LedgerError) as error_info, ledger.transaction():
        ledger.mark_intended(base, RUN_KEY, [intent])
    message = str(error_info.value)
    assert not any(secret in message for secret in ("somebody", intent.body.hex(), intent.identity.hex()))
    assert "\n" not in message
    assert error_info.value.__suppress_context__


def test_any_message_of_the_service_can_be_stored(ledger: Ledger) -> None:
    for index, message in enumerate(("a\0b", "half \ud83d of a pair", "\x00\udcff", "plain, é, 😀 and \\x00")):
        base = add_base(ledger, index)
        bring_to_state(ledger, base, State.SENDING)
        with ledger.transaction():
            ledger.mark_refused(base, State.SENDING, [(IDENTITY, 400, message)])
        entry = read_entry(ledger, base)
        assert entry is not None
        escaped_message = message.replace("\0", r"\x00").replace("\ud83d", r"\ud83d").replace("\udcff", r"\udcff")
        assert entry.message == escaped_message
