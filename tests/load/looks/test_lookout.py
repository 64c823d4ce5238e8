"""The samples of listed subscribers, from which controls are made."""

from typing import Any

from connector.listing.access import ListedSubscriber, ListStats
from connector.subscribers.identity import SpellingClass, classify

PLAIN, PLUS = classify("email", "a@x.org"), classify("email", "a+b@x.org")
KEY = classify("client_user_id", "k")


def stats(*people: dict[str, Any]) -> dict[SpellingClass, list[ListedSubscriber]]:
    taken = ListStats(0.0)
    taken.add(people)
    return taken.samples


def test_a_sample_has_both_identities_of_a_subscriber() -> None:
    samples = stats({"Id": 1, "Email": "a+b@x.org", "ClientUserId": "k1"}, {"Id": 2, "Email": "c@x.org"})
    assert samples == {
        PLUS: [ListedSubscriber(1, "a+b@x.org")],
        KEY: [ListedSubscriber(1, "k1")],
        PLAIN: [ListedSubscriber(2, "c@x.org")],
    }


def test_a_subscriber_that_no_filter_can_find_is_no_sample() -> None:
    cases: list[dict[str, Any]] = [
        {"Id": 1},
        {"Id": 1, "Email": None, "ClientUserId": ""},
        {"Id": 1, "Email": 5},
        {"Id": None, "Email": "a@x.org"},
        {"Id": True, "Email": "a@x.org"},
        {"Email": "a@x.org"},
        {"Id": 1, "Email": "a\ud83d@x.org"},  # half a character, as JSON may hold: no URL can
    ]
    for person in cases:
        assert stats(person) == {}


def test_a_class_has_three_samples() -> None:
    samples = stats(
        *({"Id": number, "Email": f"{start}{number}@x.org"} for number in range(1000) for start in ("p", "p+"))
    )
    assert {spelling: [want.subscriber_id for want in those] for spelling, those in samples.items()} == {
        PLAIN: [0, 1, 2],
        PLUS: [0, 1, 2],
    }


def test_the_classes_are_bounded() -> None:
    marks = "!#$%&'*/=?^`{|}~"
    people = [{"Id": 1, "Email": f"{a}{b}{c}@x.org"} for a in marks for b in marks for c in marks]
    assert len(stats(*people)) == 500


def test_samples_that_differ_only_in_capitals_are_found() -> None:
    taken = ListStats(0.0)
    texts = ("a@x.org", "A@x.org", "a@X.org", "A+b@x.org", "É@x.org")
    taken.add([{"Id": index, "Email": text, "ClientUserId": "K"} for index, text in enumerate(texts)])
    assert [capital.text for capital in taken.find_samples_with_capitals()] == ["A@x.org", "a@X.org"]
