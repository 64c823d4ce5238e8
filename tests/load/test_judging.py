"""The move of an entry after each answer to a create."""

import pytest

from connector.ledger.entries import Intent
from connector.ledger.store import Base
from connector.load.answers import classify_answer
from connector.load.candidates import Candidate
from connector.service.wire import Ambiguous, Created, NotSent, Refused
from connector.states import Event

BY_ID = Base(1, "account", 7, None)
BY_NAME = Base(1, "account", None, "News")
WHOLE = Base(1, "account", 7, "News")
CANDIDATE = Candidate(Intent(b"i" * 16, b"f" * 8, b""), {"base_id": 7, "email": "Ann@example.com", "first_name": "Ann"})


def answer(**values: object) -> Created:
    fields = {"base_id": 7, "base_name": "News", "email": "Ann@example.com", "first_name": "Ann"} | values
    base = {"Id": fields["base_id"], "Name": fields["base_name"]}
    return Created(5, {"Base": base, "Email": fields["email"], "FirstName": fields["first_name"]}, 200)


@pytest.mark.parametrize("base", [BY_ID, BY_NAME], ids=["by id", "by name"])
@pytest.mark.parametrize("email", ["Ann@example.com", "ann@example.com", " ANN@EXAMPLE.COM "])
def test_success_is_an_id_with_the_base_and_the_identity_that_were_sent(base: Base, email: str) -> None:
    verdict = classify_answer(answer(email=email), CANDIDATE, base, base.name)
    assert (verdict.event, verdict.subscriber_id) == (Event.ANSWERED, 5)


def test_a_success_with_another_base_or_identity_is_misanswered() -> None:
    cases: list[tuple[Base, dict[str, object]]] = [
        (BY_ID, {"email": "bob@example.com"}),
        (BY_ID, {"base_id": 8}),
        (BY_ID, {"base_id": "7"}),
        (Base(1, "account", 1, None), {"base_id": True}),
        (WHOLE, {"base_name": "Other"}),
        (WHOLE, {"base_id": 8}),
        (WHOLE, {"base_name": 5}),
    ]
    for base, values in cases:
        verdict = classify_answer(answer(**values), CANDIDATE, base, base.name)
        is_of_another_base = "email" not in values
        assert (verdict.event, verdict.subscriber_id) == (Event.MISANSWERED, answer().subscriber_id)
        assert (verdict.answered_base is not None) == is_of_another_base


def test_an_answer_without_the_base_or_the_identity_is_no_success() -> None:
    cases: list[tuple[Base, dict[str, object], Event]] = [
        (BY_ID, {"email": None}, Event.MISANSWERED),
        (BY_ID, {"base_id": None}, Event.MISANSWERED),
        (BY_NAME, {"base_name": None}, Event.MISANSWERED),
        (BY_NAME, {"base_id": None}, Event.ANSWERED),
        (WHOLE, {"base_name": None}, Event.ANSWERED),
    ]
    for base, values, event in cases:
        verdict = classify_answer(answer(**values), CANDIDATE, base, base.name)
        assert (verdict.event, verdict.answered_base) == (event, None)


@pytest.mark.parametrize("name", ["news", " NEWS "])
def test_capitals_and_blanks_do_not_change_the_name_of_a_base(name: str) -> None:
    assert classify_answer(answer(base_name=name), CANDIDATE, BY_NAME, "News").event is Event.ANSWERED


def test_another_answer_is_refused_lost_or_not_sent() -> None:
    cases: list[tuple[Refused | Ambiguous | NotSent, Event]] = [
        (Refused(422, "no"), Event.REFUSED),
        (Ambiguous(500, "oops"), Event.LOST),
        (Ambiguous(None, "reset"), Event.LOST),
        (Ambiguous(200, "success is false"), Event.LOST),
        (NotSent("no route"), Event.NOT_SENT),
    ]
    for other, event in cases:
        verdict = classify_answer(other, CANDIDATE, BY_ID)
        assert (verdict.event, verdict.message) == (event, other.message)


def test_fields_that_came_back_altered_are_named() -> None:
    assert classify_answer(answer(first_name="ANN"), CANDIDATE, BY_ID).altered == ("first_name",)
