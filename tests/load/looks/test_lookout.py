"""The samples of listed subscribers, which are used as controls of filters."""

from typing import Any

from connector.listing.access import ListedSubscriber, ListStats
from connector.subscribers.spellings import SpellingClass, classify_spelling

PLAIN_CLASS, PLUS_CLASS = classify_spelling("email", "a@x.org"), classify_spelling("email", "a+b@x.org")
KEY_CLASS = classify_spelling("client_user_id", "k")


def read_samples(*people: dict[str, Any]) -> dict[SpellingClass, list[ListedSubscriber]]:
    list_stats = ListStats(0.0)
    list_stats.add(people)
    return list_stats.samples_by_class


def test_both_identities_of_a_subscriber_become_samples() -> None:
    samples_by_class = read_samples(
        {"Id": 1, "Email": "a+b@x.org", "ClientUserId": "k1"}, {"Id": 2, "Email": "c@x.org"}
    )
    assert samples_by_class == {
        PLUS_CLASS: [ListedSubscriber(1, "a+b@x.org")],
        KEY_CLASS: [ListedSubscriber(1, "k1")],
        PLAIN_CLASS: [ListedSubscriber(2, "c@x.org")],
    }


def test_a_subscriber_that_no_filter_can_find_is_not_a_sample() -> None:
    cases: list[dict[str, Any]] = [
        {"Id": 1},
        {"Id": 1, "Email": None, "ClientUserId": ""},
        {"Id": 1, "Email": 5},
        {"Id": None, "Email": "a@x.org"},
        {"Id": True, "Email": "a@x.org"},
        {"Email": "a@x.org"},
        {"Id": 1, "Email": "a\ud83d@x.org"},  # half a character, which JSON may contain and a URL may not
    ]
    for person in cases:
        assert read_samples(person) == {}


def test_samples_that_differ_only_in_capitals_are_found() -> None:
    list_stats = ListStats(0.0)
    texts = ("a@x.org", "A@x.org", "a@X.org", "A+b@x.org", "É@x.org")
    list_stats.add([{"Id": index, "Email": text, "ClientUserId": "K"} for index, text in enumerate(texts)])
    assert [sample.text for sample in list_stats.find_samples_with_capitals()] == ["A@x.org", "a@X.org"]
