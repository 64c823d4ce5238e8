"""The ledger of emails: every transition from every state, transactions, and constraints, on SQLite and on
PostgreSQL."""

from itertools import product

import pytest
from sqlalchemy import text

from connector.errors import LedgerError
from connector.ledger.emails import Campaign, EmailEntry, EmailLog, UnsettledEmail
from connector.ledger.store import StaleTransitionError
from connector.states import EMAIL_STATE_MACHINE, EmailState
from tests.ledger.emails.transitions import (
    ADDRESS,
    CALL_BY_TRANSITION,
    RECIPIENT,
    RUN_ID,
    TRANSITIONS_ALLOWED_IN_ANY_STATE,
    Transition,
    add_campaign,
    bring_to_state,
    read_email_entry,
    read_email_state,
)

OTHER_RECIPIENT = b"o" * 16


def test_the_tested_transitions_are_exactly_the_transitions_of_the_state_table() -> None:
    assert CALL_BY_TRANSITION.keys() == EMAIL_STATE_MACHINE.transitions.keys()


def test_only_a_transition_of_the_state_table_changes_an_email(email_log: EmailLog) -> None:
    for state, transition in product(EmailState, CALL_BY_TRANSITION):
        check_transition(email_log, add_campaign(email_log, f"{state} {transition}"), state, transition)


def check_transition(email_log: EmailLog, campaign: Campaign, state: EmailState, transition: Transition) -> None:
    bring_to_state(email_log, campaign, state)
    entry_before = read_email_entry(email_log, campaign)
    if state is transition[0]:
        check_changed_email(email_log, campaign, transition)
    elif transition in TRANSITIONS_ALLOWED_IN_ANY_STATE:
        with email_log.transaction():
            assert CALL_BY_TRANSITION[transition](email_log, campaign) == 0
        assert read_email_entry(email_log, campaign) == entry_before, (state, transition)
    else:
        with pytest.raises(StaleTransitionError), email_log.transaction():
            CALL_BY_TRANSITION[transition](email_log, campaign)
        assert read_email_entry(email_log, campaign) == entry_before, (state, transition)


def check_changed_email(email_log: EmailLog, campaign: Campaign, transition: Transition) -> None:
    """Check that the transition changes its email, and no other email of this campaign or another campaign."""
    other_campaign = add_campaign(email_log, f"{transition} elsewhere")
    for changed_campaign in (campaign, other_campaign):
        with email_log.transaction():
            email_log.mark_intended(changed_campaign, RUN_ID, [(OTHER_RECIPIENT, "otto@example.com")], intended_at=1.0)
            email_log.mark_lost(changed_campaign, [OTHER_RECIPIENT])
    bring_to_state(email_log, other_campaign, transition[0])
    keys_of_other_emails = [(other_campaign, RECIPIENT), (other_campaign, OTHER_RECIPIENT), (campaign, OTHER_RECIPIENT)]
    entries_before = [read_email_entry(email_log, *email_key) for email_key in keys_of_other_emails]
    with email_log.transaction():
        CALL_BY_TRANSITION[transition](email_log, campaign)
    assert read_email_state(email_log, campaign) is EMAIL_STATE_MACHINE.transitions[transition], transition
    assert [read_email_entry(email_log, *email_key) for email_key in keys_of_other_emails] == entries_before, transition


def test_only_a_sent_or_refused_email_has_values_of_an_answer(email_log: EmailLog) -> None:
    values_by_state = {
        EmailState.SENDING: (None, None, None, None, None),
        EmailState.SENT: (7, "<7@shop>", 2.0, None, None),
        EmailState.UNKNOWN: (None, None, None, None, None),
        EmailState.REFUSED: (None, None, None, 422, "no"),
    }
    for index, (state, values) in enumerate(values_by_state.items()):
        campaign = add_campaign(email_log, f"campaign {index}")
        bring_to_state(email_log, campaign, state)
        assert read_email_entry(email_log, campaign) == EmailEntry(state, *values, RUN_ID)
        with email_log.transaction():
            assert email_log.find_emails(campaign, [OTHER_RECIPIENT]) == {}


def test_a_call_with_the_same_recipient_twice_is_refused(email_log: EmailLog, campaign: Campaign) -> None:
    with pytest.raises(StaleTransitionError), email_log.transaction():
        email_log.mark_intended(
            campaign, RUN_ID, [(RECIPIENT, ADDRESS), (OTHER_RECIPIENT, "o@x"), (RECIPIENT, ADDRESS)], intended_at=1.0
        )
    assert [read_email_state(email_log, campaign, identity) for identity in (RECIPIENT, OTHER_RECIPIENT)] == [
        EmailState.NONE
    ] * 2


def test_an_unsettled_email_is_read_with_its_address_and_run(email_log: EmailLog, campaign: Campaign) -> None:
    with email_log.transaction():
        people = [
            (bytes([recipient_number]) * 16, f"p{recipient_number}@example.com") for recipient_number in (9, 1, 5, 3)
        ]
        email_log.mark_intended(campaign, RUN_ID, people, intended_at=3.5)
        email_log.mark_lost(campaign, [people[0][0]])
        email_log.mark_refused(campaign, [(people[1][0], 422, "spam")])
        assert email_log.mark_sending_emails_unknown(campaign) == 2
        unsettled_emails = email_log.read_unsettled_emails(campaign)
    assert [email.address for email in unsettled_emails] == ["p9@example.com", "p5@example.com", "p3@example.com"]
    assert unsettled_emails[0] == UnsettledEmail(people[0][0], "p9@example.com", RUN_ID)


def test_a_campaign_is_identified_by_account_and_name(email_log: EmailLog) -> None:
    first_campaign, second_campaign = (
        add_campaign(email_log, "welcome", "one"),
        add_campaign(email_log, "welcome", "two"),
    )
    assert first_campaign.key != second_campaign.key
    assert add_campaign(email_log, "welcome", "one") == first_campaign
    with email_log.transaction():
        assert email_log.find_campaign("one", "welcome") == first_campaign
        assert email_log.find_campaign("one", "Welcome") is None


# Constraints of the database

_VALID_ROW = {
    "campaign_key": "1", "account": "NULL", "recipient": "'0123456789abcdef'", "state": "1", "address": "'a'",
    "run_id": "'r'", "intended_at": "1", "sent_at": "NULL", "request_id": "NULL", "message_id": "NULL",
    "status": "NULL", "words": "NULL",
}  # fmt: skip
_ANSWER_VALUES = {"state": "2", "address": "NULL", "sent_at": "2", "request_id": "7", "message_id": "''"}
_REFUSAL_VALUES = {"state": "4", "status": "422", "words": "'no'"}
_SINGLE_EMAIL_VALUES = {"campaign_key": "NULL", "recipient": "NULL", "account": "'account'"}


def test_the_database_accepts_an_email_with_consistent_columns(email_log: EmailLog) -> None:
    for valid_values in (
        {},
        _ANSWER_VALUES,
        _REFUSAL_VALUES,
        _SINGLE_EMAIL_VALUES,
        _SINGLE_EMAIL_VALUES | _ANSWER_VALUES,
        {"state": "3"},
    ):
        insert_row(email_log, add_campaign(email_log, f"{valid_values}"), valid_values)


def test_the_database_refuses_an_email_with_inconsistent_columns(email_log: EmailLog, campaign: Campaign) -> None:
    for invalid_values, constraint in (
        ({"state": "0"}, "state_is_known"),
        ({"state": "5"}, "state_is_known"),
        ({"state": "2"}, "sent_means|an_address_until_sent"),
        ({"request_id": "7"}, "sent_means_a_number"),
        ({"message_id": "''"}, "sent_means_a_message_id"),
        ({"sent_at": "2"}, "sent_means_a_time"),
        ({"address": "NULL"}, "an_address_until_sent"),
        (_ANSWER_VALUES | {"address": "'a'"}, "an_address_until_sent"),
        (_ANSWER_VALUES | {"message_id": "NULL"}, "sent_means_a_message_id"),
        (_ANSWER_VALUES | {"request_id": "NULL"}, "sent_means_a_number"),
        (_ANSWER_VALUES | {"sent_at": "NULL"}, "sent_means_a_time"),
        (_REFUSAL_VALUES | {"status": "NULL"}, "refused_means_a_status"),
        (_REFUSAL_VALUES | {"words": "NULL"}, "refused_means_words"),
        (_REFUSAL_VALUES | {"state": "3"}, "refused_means"),
        (_SINGLE_EMAIL_VALUES | {"account": "NULL"}, "an_email_has_one_account"),
        ({"account": "'account'"}, "an_email_has_one_account"),
        ({"recipient": "NULL"}, "a_campaign_knows_its_recipients"),
        (_SINGLE_EMAIL_VALUES | {"recipient": "short"}, "recipient_is_whole|a_campaign_knows_its_recipients"),
        ({"recipient": "short"}, "recipient_is_whole"),
        ({"campaign_key": "99"}, "(?i)foreign key"),
    ):
        with pytest.raises(LedgerError, match=constraint):
            insert_row(email_log, campaign, invalid_values)


def insert_row(email_log: EmailLog, campaign: Campaign, changed_values: dict[str, str]) -> None:
    """Insert a row into the table of emails as another program would do."""
    row = _VALID_ROW | {"campaign_key": str(campaign.key)} | changed_values
    recipient_by_text = {"NULL": None, "short": b"too short"}
    recipient = recipient_by_text.get(row.pop("recipient"), RECIPIENT)
    columns_sql, values_sql = ", ".join(row), ", ".join(row.values())
    with email_log.transaction() as connection:
        statement = text(f"INSERT INTO email (recipient, {columns_sql}) VALUES (:recipient, {values_sql})")
        connection.execute(statement, {"recipient": recipient})


def test_the_error_of_a_refused_email_shows_no_address(email_log: EmailLog, campaign: Campaign) -> None:
    with pytest.raises(LedgerError) as error_info, email_log.transaction():
        email_log.mark_intended(campaign, RUN_ID, [(b"too short", ADDRESS)], intended_at=1.0)
    assert "example.com" not in str(error_info.value)
    assert error_info.value.__suppress_context__
