"""The transition of an entry after each answer to a create."""

import pytest

from connector.ledger.entries import Intent
from connector.ledger.store import Base
from connector.load.candidates import Candidate
from connector.load.create_answers import classify_answer
from connector.service.wire import AmbiguousResult, CreatedAnswer, NotSent, Refused
from connector.states import Event

BASE_WITH_ID = Base(1, "account", 7, None)
BASE_WITH_NAME = Base(1, "account", None, "News")
BASE_WITH_ID_AND_NAME = Base(1, "account", 7, "News")
CANDIDATE = Candidate(Intent(b"i" * 16, b"f" * 8, b""), {"base_id": 7, "email": "Ann@example.com", "first_name": "Ann"})


def build_answer(**answered_values: object) -> CreatedAnswer:
    field_values = {
        "base_id": 7,
        "base_name": "News",
        "email": "Ann@example.com",
        "first_name": "Ann",
    } | answered_values
    base = {"Id": field_values["base_id"], "Name": field_values["base_name"]}
    return CreatedAnswer(
        5, {"Base": base, "Email": field_values["email"], "FirstName": field_values["first_name"]}, 200
    )


@pytest.mark.parametrize("base", [BASE_WITH_ID, BASE_WITH_NAME], ids=["by id", "by name"])
@pytest.mark.parametrize("email", ["Ann@example.com", "ann@example.com", " ANN@EXAMPLE.COM "])
def test_an_answer_with_the_sent_base_and_identity_is_a_success(base: Base, email: str) -> None:
    transition = classify_answer(build_answer(email=email), CANDIDATE, base, base.name)
    assert (transition.event, transition.subscriber_id) == (Event.ANSWERED, 5)


def test_an_answer_with_another_base_or_identity_counts_as_misanswered() -> None:
    bases_and_answers: list[tuple[Base, dict[str, object]]] = [
        (BASE_WITH_ID, {"email": "bob@example.com"}),
        (BASE_WITH_ID, {"base_id": 8}),
        (BASE_WITH_ID, {"base_id": "7"}),
        (Base(1, "account", 1, None), {"base_id": True}),
        (BASE_WITH_ID_AND_NAME, {"base_name": "Other"}),
        (BASE_WITH_ID_AND_NAME, {"base_id": 8}),
        (BASE_WITH_ID_AND_NAME, {"base_name": 5}),
    ]
    for base, answered_values in bases_and_answers:
        transition = classify_answer(build_answer(**answered_values), CANDIDATE, base, base.name)
        is_email_changed = "email" in answered_values
        assert (transition.event, transition.subscriber_id) == (Event.MISANSWERED, build_answer().subscriber_id)
        assert (transition.answered_base is None) == is_email_changed


def test_an_answer_without_the_base_or_the_identity_counts_as_misanswered() -> None:
    bases_and_answers: list[tuple[Base, dict[str, object], Event]] = [
        (BASE_WITH_ID, {"email": None}, Event.MISANSWERED),
        (BASE_WITH_ID, {"base_id": None}, Event.MISANSWERED),
        (BASE_WITH_NAME, {"base_name": None}, Event.MISANSWERED),
        (BASE_WITH_NAME, {"base_id": None}, Event.ANSWERED),
        (BASE_WITH_ID_AND_NAME, {"base_name": None}, Event.ANSWERED),
    ]
    for base, answered_values, expected_event in bases_and_answers:
        transition = classify_answer(build_answer(**answered_values), CANDIDATE, base, base.name)
        assert (transition.event, transition.answered_base) == (expected_event, None)


@pytest.mark.parametrize("name", ["news", " NEWS "])
def test_capitals_and_blanks_do_not_change_the_name_of_a_base(name: str) -> None:
    assert classify_answer(build_answer(base_name=name), CANDIDATE, BASE_WITH_NAME, "News").event is Event.ANSWERED


def test_a_create_without_success_is_recorded_as_refused_or_lost_or_not_sent() -> None:
    answers_and_events: list[tuple[Refused | AmbiguousResult | NotSent, Event]] = [
        (Refused(422, "no"), Event.REFUSED),
        (AmbiguousResult(500, "oops"), Event.LOST),
        (AmbiguousResult(None, "reset"), Event.LOST),
        (AmbiguousResult(200, "success is false"), Event.LOST),
        (NotSent("no route"), Event.NOT_SENT),
    ]
    for answer, expected_event in answers_and_events:
        transition = classify_answer(answer, CANDIDATE, BASE_WITH_ID, None)
        assert (transition.event, transition.message) == (expected_event, answer.message)


def test_the_transition_has_the_fields_that_the_service_altered() -> None:
    assert classify_answer(build_answer(first_name="ANN"), CANDIDATE, BASE_WITH_ID, None).altered_fields == (
        "first_name",
    )
