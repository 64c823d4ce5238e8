"""Look-ups by filters or sweeps: the cheaper method comes first, and the other method is for inconclusive look-ups. A
sweep is a reading of the whole list."""

from pathlib import Path
from typing import Any

import pytest

from connector.listing.access import KeyGroup, LookupKey, LookupResult
from connector.listing.pages import ListFailed
from connector.load.lookups import (
    FilterCost,
    LookupMethod,
    LookupProgress,
    SweepCost,
    choose_lookup,
    look_up_all,
    look_up_keys,
)
from connector.load.session import Session
from connector.service.wire import AmbiguousResult, Refused
from tests.load.looks.fake_list import FakeList, build_other_people, matches_everything
from tests.load.sessions import build_confirmed_create, build_key, compute_identity, read_result, run_with_fake_list

NEVER = float("-inf")
LONG_LIST_COUNT = 12_000  # a sweep of this many subscribers takes about 13 requests


def look_up_texts(fake_list: FakeList, folder: Path, *texts: str, **options: Any) -> LookupResult:
    keys = [build_key(text) for text in texts]
    return run_with_fake_list(fake_list, folder, lambda session: look_up_all(session.list_access, keys), **options)


def has_read_whole_list(fake_list: FakeList) -> bool:
    return fake_list.page_count > 2


def test_a_few_subscribers_are_looked_up_by_filters_in_a_long_list(tmp_path: Path) -> None:
    fake_list = FakeList(build_other_people(LONG_LIST_COUNT))
    fake_list.add(30_000, "ann@x.org")
    result = look_up_texts(fake_list, tmp_path, "ann@x.org", "bob@x.org")
    assert (set(result.found_ids), set(result.absent_identities)) == (
        {compute_identity("ann@x.org")},
        {compute_identity("bob@x.org")},
    )
    # One request shows that the list does not hide the base.
    assert (fake_list.page_count, len(fake_list.queries)) == (1, 1 + 1 + 2 + 1 + 2)


@pytest.mark.parametrize(("key_count", "person_count"), [(1, 100), (40, LONG_LIST_COUNT)])
def test_the_whole_list_is_read_if_the_list_is_short_or_many_subscribers_are_looked_up(
    key_count: int, person_count: int, tmp_path: Path
) -> None:
    fake_list = FakeList(build_other_people(person_count))
    texts = [f"ann{index}@x.org" for index in range(key_count)]
    result = look_up_texts(fake_list, tmp_path, *texts)
    assert result.absent_identities == {compute_identity(text) for text in texts}
    assert fake_list.page_count == len(fake_list.queries)


def test_the_whole_list_is_read_if_the_filter_cannot_be_tested_for_the_email(tmp_path: Path) -> None:
    fake_list = FakeList(build_other_people(LONG_LIST_COUNT))
    assert look_up_texts(fake_list, tmp_path, "a+b@x.org").absent_identities == {compute_identity("a+b@x.org")}
    assert fake_list.page_count == len(fake_list.queries)


def test_the_whole_list_is_read_if_look_ups_by_filters_are_inconclusive(tmp_path: Path) -> None:
    fake_list = FakeList([*build_other_people(3, 50_000, "p+{}@crowd.org"), *build_other_people(LONG_LIST_COUNT)])
    fake_list.text_match = lambda filter_text, stored_text: filter_text.replace("+", " ") == stored_text
    fake_list.add(59_000, "dan@x.org")
    fake_list.add(60_000, "ann+b@x.org")
    result = look_up_texts(fake_list, tmp_path, "ann+b@x.org", "bob@x.org", "c+d@x.org")
    assert set(result.found_ids) == {compute_identity("ann+b@x.org")}
    assert result.absent_identities == {compute_identity("bob@x.org"), compute_identity("c+d@x.org")}
    assert has_read_whole_list(fake_list)


def test_a_look_up_has_no_result_if_the_filters_and_the_list_are_unreliable(tmp_path: Path) -> None:
    fake_list = FakeList(build_other_people(60), matches_everything, max_limit=10)
    fake_list.shuffle()
    result = look_up_texts(fake_list, tmp_path, "bob@x.org")
    assert read_result(result) == ({}, set())


def test_the_whole_list_is_read_if_the_filter_fails_for_one_email(tmp_path: Path) -> None:
    fake_list = FakeList(build_other_people(LONG_LIST_COUNT))
    fake_list.choose_answer = lambda query: AmbiguousResult(500, "broken") if query.email == "bob@x.org" else None
    assert look_up_texts(fake_list, tmp_path, "bob@x.org").absent_identities == {compute_identity("bob@x.org")}
    assert has_read_whole_list(fake_list)


@pytest.mark.parametrize(("answer", "message"), [(Refused(401, "no"), "token"), (AmbiguousResult(500, "broken"), ".")])
def test_a_look_up_fails_if_the_service_refuses_the_token_or_returns_no_list(
    tmp_path: Path, answer: AmbiguousResult | Refused, message: str
) -> None:
    fake_list = FakeList(build_other_people(LONG_LIST_COUNT))
    fake_list.choose_answer = lambda query: (
        answer if query.email or (message == "." and len(fake_list.queries) > 3) else None
    )
    with pytest.raises(ListFailed, match=message):
        look_up_texts(fake_list, tmp_path, "bob@x.org")


def test_a_confirmed_create_does_not_count_if_the_list_was_read_only_once(tmp_path: Path) -> None:
    fake_list = FakeList([*build_other_people(3, 1, "p+{}@crowd.org"), *build_other_people(LONG_LIST_COUNT, 10)])
    fake_list.text_match = lambda filter_text, stored_text: filter_text.replace("+", " ") == stored_text
    fake_list.add(60_000, "wit@x.org")
    confirmed_creates = (build_confirmed_create(900.0, 60_000, "wit@x.org"),)
    result = look_up_texts(fake_list, tmp_path, "bob@x.org", "c+d@x.org", confirmed_creates=confirmed_creates)
    assert len(result.absent_identities) == 2
    assert result.latest_confirmed_create_at == NEVER  # a confirmed create counts only in the second sweep


def test_the_results_for_many_subscribers_are_returned_in_parts(tmp_path: Path) -> None:
    fake_list = FakeList(build_other_people(40), max_limit=20)
    fake_list.add(60_000, "q350@x.org")
    fake_list.shuffle()  # a sweep of the unordered list is inconclusive
    all_keys = [build_key(f"q{index}@x.org") for index in range(400)]
    lookup_parts, activity_texts = list[tuple[list[LookupKey], LookupResult]](), list[str]()

    async def look_up_in_parts(session: Session) -> None:
        async for lookup_part in look_up_keys([KeyGroup(session.list_access, all_keys)]):
            lookup_parts.append((list(lookup_part.keys), lookup_part.result))
            activity_texts.append(session.stop.activity)

    run_with_fake_list(fake_list, tmp_path, look_up_in_parts)
    assert sorted(key.identity_text for keys, _ in lookup_parts for key in keys) == sorted(
        key.identity_text for key in all_keys
    )
    assert max(len(keys) for keys, _ in lookup_parts) == 300
    assert [compute_identity("q350@x.org") in result.found_ids for keys, result in lookup_parts].count(True) == 1
    assert sum(len(result.absent_identities) for _, result in lookup_parts) == 399
    filter_activity_texts = [activity for activity in activity_texts if activity.endswith("filters")]
    assert filter_activity_texts == [
        f"looking for {key_count} subscribers by the list's filters"
        for key_count in (399, 99)  # the sweep has found one subscriber
    ]


FILTER, SWEEP, FILTER_BY_SENT_SPELLING, NO_METHOD = (
    LookupMethod.FILTER,
    LookupMethod.SWEEP,
    LookupMethod.FILTER_BY_SENT_SPELLING,
    LookupMethod.NONE,
)
SHORT_SWEEP_COST, LONG_SWEEP_COST, UNKNOWN_SWEEP_COST = SweepCost(2), SweepCost(100), SweepCost(None)
UNUSABLE_SWEEP_COST = SweepCost(100, is_unusable=True)
FEW_KEYS_COST, MANY_KEYS_COST = FilterCost(10), FilterCost(300)
UNPROVABLE_KEY_COST = FilterCost(10, unprovable_count=1)
CAPITALS_COST = FilterCost(10, has_other_spellings=True)
UNPROVABLE_CAPITALS_COST = FilterCost(10, unprovable_count=10, has_other_spellings=True)


def test_the_costs_and_the_tried_methods_decide_the_next_look_up_method() -> None:
    costs_and_methods: list[tuple[SweepCost, FilterCost, LookupProgress, LookupMethod]] = [
        # The cheaper method is used first.
        (LONG_SWEEP_COST, FEW_KEYS_COST, LookupProgress(), FILTER),
        (LONG_SWEEP_COST, MANY_KEYS_COST, LookupProgress(), SWEEP),
        (SHORT_SWEEP_COST, FEW_KEYS_COST, LookupProgress(), SWEEP),
        (SweepCost(10), FEW_KEYS_COST, LookupProgress(), SWEEP),
        (SweepCost(11), FEW_KEYS_COST, LookupProgress(), FILTER),
        (SweepCost(11), FEW_KEYS_COST, LookupProgress(request_count=1), SWEEP),
        (UNKNOWN_SWEEP_COST, FEW_KEYS_COST, LookupProgress(), SWEEP),
        # Only a sweep can verify the base, or find these keys.
        (LONG_SWEEP_COST, UNPROVABLE_KEY_COST, LookupProgress(), SWEEP),
        (LONG_SWEEP_COST, FEW_KEYS_COST, LookupProgress(needs_sweep=True), SWEEP),
        (UNUSABLE_SWEEP_COST, FEW_KEYS_COST, LookupProgress(needs_sweep=True), SWEEP),
        (LONG_SWEEP_COST, FEW_KEYS_COST, LookupProgress(frozenset({SWEEP}), needs_sweep=True), FILTER),
        # If a method was inconclusive, the other method follows.
        (LONG_SWEEP_COST, FEW_KEYS_COST, LookupProgress(frozenset({FILTER})), SWEEP),
        (LONG_SWEEP_COST, MANY_KEYS_COST, LookupProgress(frozenset({SWEEP})), FILTER),
        (LONG_SWEEP_COST, UNPROVABLE_KEY_COST, LookupProgress(frozenset({SWEEP})), FILTER),
        (LONG_SWEEP_COST, FEW_KEYS_COST, LookupProgress(frozenset({FILTER, SWEEP})), NO_METHOD),
        (LONG_SWEEP_COST, CAPITALS_COST, LookupProgress(frozenset({FILTER, SWEEP})), NO_METHOD),
        # No sweep of the list can be relied on.
        (UNUSABLE_SWEEP_COST, MANY_KEYS_COST, LookupProgress(), FILTER),
        (UNUSABLE_SWEEP_COST, UNPROVABLE_CAPITALS_COST, LookupProgress(), FILTER_BY_SENT_SPELLING),
        (UNUSABLE_SWEEP_COST, UNPROVABLE_KEY_COST, LookupProgress(), FILTER),
        (UNUSABLE_SWEEP_COST, CAPITALS_COST, LookupProgress(frozenset({FILTER})), FILTER_BY_SENT_SPELLING),
        (UNUSABLE_SWEEP_COST, CAPITALS_COST, LookupProgress(frozenset({FILTER, FILTER_BY_SENT_SPELLING})), SWEEP),
        (UNUSABLE_SWEEP_COST, UNPROVABLE_CAPITALS_COST, LookupProgress(frozenset({FILTER_BY_SENT_SPELLING})), SWEEP),
        (
            UNUSABLE_SWEEP_COST,
            UNPROVABLE_CAPITALS_COST,
            LookupProgress(frozenset({FILTER_BY_SENT_SPELLING, SWEEP})),
            NO_METHOD,
        ),
        (UNUSABLE_SWEEP_COST, FEW_KEYS_COST, LookupProgress(frozenset({FILTER})), SWEEP),
        (UNUSABLE_SWEEP_COST, CAPITALS_COST, LookupProgress(frozenset({SWEEP})), FILTER),
        (UNUSABLE_SWEEP_COST, CAPITALS_COST, LookupProgress(frozenset({SWEEP, FILTER})), FILTER_BY_SENT_SPELLING),
        (
            UNUSABLE_SWEEP_COST,
            CAPITALS_COST,
            LookupProgress(frozenset({SWEEP, FILTER, FILTER_BY_SENT_SPELLING})),
            NO_METHOD,
        ),
    ]
    for sweep_cost, filter_cost, progress, method in costs_and_methods:
        lookup_choice = choose_lookup(sweep_cost, filter_cost, progress)
        assert lookup_choice.method is method
        assert lookup_choice.reason
