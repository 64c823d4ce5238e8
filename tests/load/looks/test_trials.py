"""A filter of the service is tried before a run relies on it: the filter must find listed subscribers with similar
texts. Texts are similar if they have the same traits: the same unusual characters, such as capitals or a plus."""

from pathlib import Path
from typing import Any

from connector.listing.access import ConfirmedCreate, ListedSubscriber, ListStats
from connector.listing.lookup import FilterCheck, can_try_filter, check_filters
from connector.listing.requests import read_list_stats
from connector.load.session import Session
from connector.service.wire import ListPage, Refused
from connector.subscribers.spellings import TextTraits, find_text_traits
from tests.load.looks.fake_list import (
    FakeList,
    build_other_people,
    matches_everything,
    matches_exactly,
    matches_ignoring_case,
    matches_partially,
)
from tests.load.sessions import build_confirmed_create, run_with_fake_list

PLAIN_TRAITS, PLUS_TRAITS, CAPITALS_TRAITS = (
    find_text_traits("email", text) for text in ("a@x.org", "a+b@x.org", "Ann@x.org")
)
CLIENT_USER_ID_TRAITS = find_text_traits("client_user_id", "c1")


def check_list_filters(
    fake_list: FakeList, folder: Path, *traits_of_texts: TextTraits, checks_case: bool = False, **options: Any
) -> FilterCheck:
    async def run_checks(session: Session) -> FilterCheck:
        await read_list_stats(session.list_access)
        return await check_filters(session.list_access, traits_of_texts, checks_case=checks_case)

    return run_with_fake_list(fake_list, folder, run_checks, **options)


def build_list_with_plus() -> FakeList:
    fake_list = FakeList(build_other_people(5))
    for subscriber_id in (11, 12, 13):
        fake_list.add(subscriber_id, f"p+{subscriber_id}@x.org")
    return fake_list


def matches_plus_as_blank(filter_text: str, stored_text: str) -> bool:
    return filter_text.replace("+", " ") == stored_text


def test_a_trial_tests_the_filter_only_for_texts_with_the_same_traits(tmp_path: Path) -> None:
    fake_list = build_list_with_plus()
    fake_list.text_match = matches_plus_as_blank
    result = check_list_filters(fake_list, tmp_path, PLAIN_TRAITS, PLUS_TRAITS, CAPITALS_TRAITS, CLIENT_USER_ID_TRAITS)
    # The list shows no email with capitals, so no trial used CAPITALS_TRAITS.
    assert (set(result.traits_that_passed), set(result.traits_that_failed)) == (
        {PLAIN_TRAITS, CLIENT_USER_ID_TRAITS},
        {PLUS_TRAITS},
    )


def test_the_test_of_a_filter_fails_if_the_filter_finds_none_of_three_known_subscribers(tmp_path: Path) -> None:
    fake_list = build_list_with_plus()
    fake_list.add(14, "p+14@x.org")
    fake_list.choose_answer = lambda query: ListPage([], 0, 0, 1000) if "p+1" in (query.email or "") else None
    assert check_list_filters(fake_list, tmp_path, PLUS_TRAITS).traits_that_failed == {PLUS_TRAITS}
    request_counts = [fake_list.count_requests(f"p+{subscriber_id}@x.org") for subscriber_id in (11, 12, 13, 14)]
    assert request_counts == [1, 1, 1, 0]


def test_a_filter_is_not_used_if_it_lists_subscribers_for_a_made_up_value(tmp_path: Path) -> None:
    fake_list = FakeList(build_other_people(5), text_match=matches_everything)

    async def run_checks(session: Session) -> None:
        await read_list_stats(session.list_access)
        assert await check_filters(session.list_access, [PLAIN_TRAITS]) == FilterCheck(
            traits_that_failed=frozenset({PLAIN_TRAITS})
        )
        assert session.list_access.state.unusable_fields == {"email"}
        query_count = len(fake_list.queries)
        fake_list.text_match = matches_exactly
        assert (await check_filters(session.list_access, [PLAIN_TRAITS])).traits_that_passed == set()
        assert not can_try_filter(session.list_access, PLAIN_TRAITS)
        assert len(fake_list.queries) == query_count
        # The filter by client_user_id is tried separately.
        assert (await check_filters(session.list_access, [CLIENT_USER_ID_TRAITS])).traits_that_passed == {
            CLIENT_USER_ID_TRAITS
        }

    run_with_fake_list(fake_list, tmp_path, run_checks)


def test_a_filter_fails_if_the_answer_to_a_made_up_value_has_no_total_count(tmp_path: Path) -> None:
    fake_list = FakeList(build_other_people(5), choose_total_count=lambda match_count: None)
    assert check_list_filters(fake_list, tmp_path, PLAIN_TRAITS) == FilterCheck(
        traits_that_failed=frozenset({PLAIN_TRAITS})
    )
    refusal = Refused(400, "no address")
    fake_list = FakeList(
        build_other_people(5), choose_answer=lambda query: refusal if ".invalid" in (query.email or "") else None
    )
    assert check_list_filters(fake_list, tmp_path / "again", PLAIN_TRAITS) == FilterCheck(
        traits_that_failed=frozenset({PLAIN_TRAITS})
    )


def build_confirmed_creates(*texts: str) -> tuple[ConfirmedCreate, ...]:
    return tuple(build_confirmed_create(900.0 + index, 100 + index, text) for index, text in enumerate(texts))


def test_a_filter_is_tried_with_a_confirmed_create_before_other_subscribers(tmp_path: Path) -> None:
    fake_list = build_list_with_plus()
    fake_list.add(100, "wit+ness@x.org")
    (confirmed_create,) = build_confirmed_creates("wit+ness@x.org")
    result = check_list_filters(fake_list, tmp_path, PLUS_TRAITS, confirmed_creates=(confirmed_create,))
    assert (set(result.traits_that_passed), result.seen_confirmed_creates) == ({PLUS_TRAITS}, (confirmed_create,))
    assert fake_list.count_requests("p+11@x.org") == 0


def test_a_confirmed_create_does_not_decide_a_trial_if_the_list_lacks_its_id(tmp_path: Path) -> None:
    fake_list = build_list_with_plus()
    result = check_list_filters(
        fake_list,
        tmp_path,
        PLUS_TRAITS,
        confirmed_creates=build_confirmed_creates("late+1@x.org", "late+2@x.org", "late+3@x.org"),
    )
    assert (set(result.traits_that_passed), result.seen_confirmed_creates) == ({PLUS_TRAITS}, ())
    assert [fake_list.count_requests(f"late+{create_number}@x.org") for create_number in (1, 2, 3)] == [1, 1, 0]


def test_a_trial_fails_if_the_email_filter_does_not_find_the_confirmed_create(tmp_path: Path) -> None:
    fake_list = build_list_with_plus()
    fake_list.add(100, "WIT+NESS@X.ORG")  # the service stores the text in capitals, and its filter is case-sensitive
    result = check_list_filters(
        fake_list, tmp_path, PLUS_TRAITS, confirmed_creates=build_confirmed_creates("wit+ness@x.org")
    )
    assert (set(result.traits_that_passed), set(result.traits_that_failed)) == (set(), {PLUS_TRAITS})


def test_a_filter_counts_as_case_insensitive_only_if_it_ignores_case_in_both_directions(tmp_path: Path) -> None:
    def matches_lower_text(filter_text: str, stored_text: str) -> bool:
        return filter_text.lower() == stored_text

    def matches_ignoring_case_of_domain(filter_text: str, stored_text: str) -> bool:
        has_same_local_part = filter_text.partition("@")[0] == stored_text.partition("@")[0]
        return has_same_local_part and matches_ignoring_case(filter_text, stored_text)

    def matches_text_or_lower_text(filter_text: str, stored_text: str) -> bool:
        return stored_text in (filter_text, filter_text.lower())

    people_with_capitals = [*build_other_people(3), *build_other_people(3, 11, "Ann{}@x.org")]
    lists_and_filters = [
        (build_other_people(3), matches_ignoring_case, True),
        (build_other_people(3), matches_partially, True),
        (build_other_people(3), matches_exactly, False),
        (build_other_people(3), matches_ignoring_case_of_domain, False),
        (people_with_capitals, matches_ignoring_case, True),
        (people_with_capitals, matches_exactly, False),
        (people_with_capitals, matches_lower_text, False),  # no stored text with capitals is ever found
        (people_with_capitals, matches_text_or_lower_text, False),
        ([], matches_ignoring_case, False),
    ]
    for index, (people, text_match, is_case_insensitive) in enumerate(lists_and_filters):
        result = check_list_filters(FakeList(people, text_match), tmp_path / str(index), PLAIN_TRAITS, checks_case=True)
        assert result.is_case_insensitive is is_case_insensitive, text_match


def read_samples(*people: dict[str, Any]) -> dict[TextTraits, list[ListedSubscriber]]:
    list_stats = ListStats(0.0)
    list_stats.add(people)
    return list_stats.samples_by_traits


def test_both_identities_of_a_subscriber_become_samples() -> None:
    samples_by_traits = read_samples(
        {"Id": 1, "Email": "a+b@x.org", "ClientUserId": "k1"}, {"Id": 2, "Email": "c@x.org"}
    )
    assert samples_by_traits == {
        PLUS_TRAITS: [ListedSubscriber(1, "a+b@x.org")],
        CLIENT_USER_ID_TRAITS: [ListedSubscriber(1, "k1")],
        PLAIN_TRAITS: [ListedSubscriber(2, "c@x.org")],
    }


def test_a_subscriber_is_not_used_as_a_sample_if_filters_cannot_find_the_subscriber() -> None:
    unusable_people: list[dict[str, Any]] = [
        {"Id": 1},
        {"Id": 1, "Email": None, "ClientUserId": ""},
        {"Id": 1, "Email": 5},
        {"Id": None, "Email": "a@x.org"},
        {"Id": True, "Email": "a@x.org"},
        {"Email": "a@x.org"},
        {"Id": 1, "Email": "a\ud83d@x.org"},  # half a character, which JSON may contain and a URL may not
    ]
    for person in unusable_people:
        assert read_samples(person) == {}


def test_samples_that_differ_only_in_capitals_are_found() -> None:
    list_stats = ListStats(0.0)
    texts = ("a@x.org", "A@x.org", "a@X.org", "A+b@x.org", "É@x.org")
    list_stats.add([{"Id": index, "Email": text, "ClientUserId": "K"} for index, text in enumerate(texts)])
    assert [sample.identity_text for sample in list_stats.find_samples_with_capitals()] == ["A@x.org", "a@X.org"]
