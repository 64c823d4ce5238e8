"""The outcomes that need a person."""

from connector.outcomes import MailOutcome, Outcome, needs_person


def test_a_rejects_file_can_hold_each_outcome_of_an_email_that_needs_a_person() -> None:
    assert {outcome for outcome in MailOutcome if needs_person(outcome)} <= set(Outcome)
