"""Look-ups by filters or sweeps: the cheaper method comes first, and the other method is for inconclusive keys."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from connector.listing.access import KeyGroup, LookupKey, LookupResult
from connector.listing.base_list import read_account_list
from connector.listing.pages import ListFailed
from connector.load.lookups import (
    KeysCost,
    SweepCost,
    estimate_keys_cost,
    estimate_sweep_cost,
    look_up_all,
    look_up_keys,
)
from connector.load.session import Session
from connector.service.wire import Ambiguous, ListQuery, Refused
from tests.load.looks.fake_list import FakeList, build_other_people, matches_everything
from tests.load.sessions import build_key, build_sentinel, compute_identity, read_result, run_with_fake

NO_SENTINEL = float("-inf")
LONG_LIST_COUNT = 20_000  # a sweep of this many subscribers takes about 22 requests


def look_up_texts(
    fake_list: FakeList, folder: Path, *texts: str, ignores_case: bool = False, **options: Any
) -> LookupResult:
    keys = [build_key(text, ignores_case=ignores_case) for text in texts]
    return run_with_fake(fake_list, folder, lambda session: look_up_all(session.access, keys), **options)


def has_read_whole_list(fake_list: FakeList) -> bool:
    return fake_list.page_count > 2


def shuffle_list(fake_list: FakeList) -> None:
    """Give the list another random order at each request."""
    fake_list.sort_people = lambda people: random.Random(len(fake_list.queries)).sample(people, len(people))


def test_a_few_keys_are_looked_up_by_filters_in_a_long_list(tmp_path: Path) -> None:
    fake_list = FakeList(build_other_people(LONG_LIST_COUNT))
    fake_list.add(30_000, "ann@x.org")
    result = look_up_texts(fake_list, tmp_path, "ann@x.org", "bob@x.org")
    assert (set(result.found_ids), set(result.absent_identities)) == (
        {compute_identity("ann@x.org")},
        {compute_identity("bob@x.org")},
    )
    # One request shows that the list does not hide the base.
    assert (fake_list.page_count, len(fake_list.queries)) == (1, 1 + 1 + 2 + 1 + 2)


def test_a_base_whose_id_the_list_refuses_counts_as_empty(tmp_path: Path) -> None:
    fake_list = FakeList(
        build_other_people(LONG_LIST_COUNT),
        choose_answer=lambda query: Refused(404, "no such base") if query.base_id else None,
    )
    assert look_up_texts(fake_list, tmp_path, "bob@x.org").absent_identities == {compute_identity("bob@x.org")}


@pytest.mark.parametrize(("key_count", "person_count"), [(1, 100), (40, LONG_LIST_COUNT)])
def test_many_keys_and_keys_in_a_short_list_are_looked_up_by_a_sweep(
    key_count: int, person_count: int, tmp_path: Path
) -> None:
    fake_list = FakeList(build_other_people(person_count))
    texts = [f"ann{index}@x.org" for index in range(key_count)]
    result = look_up_texts(fake_list, tmp_path, *texts)
    assert result.absent_identities == {compute_identity(text) for text in texts}
    assert fake_list.page_count == len(fake_list.queries)


def test_a_look_up_of_no_key_sends_no_request(tmp_path: Path) -> None:
    fake_list = FakeList(build_other_people(5))
    assert look_up_texts(fake_list, tmp_path) == LookupResult({}, frozenset(), frozenset(), 0.0, 1000.0)
    assert fake_list.queries == []


def test_a_key_without_a_control_of_its_class_is_looked_up_by_a_sweep(tmp_path: Path) -> None:
    fake_list = FakeList(build_other_people(LONG_LIST_COUNT))
    assert look_up_texts(fake_list, tmp_path, "a+b@x.org").absent_identities == {compute_identity("a+b@x.org")}
    assert fake_list.page_count == len(fake_list.queries)


def test_filters_that_the_service_ignores_are_not_used_again_and_a_sweep_decides(tmp_path: Path) -> None:
    fake_list = FakeList(build_other_people(LONG_LIST_COUNT), matches_everything)

    async def look_up_twice(session: Session) -> int:
        assert (await look_up_all(session.access, [build_key("bob@x.org")])).absent_identities
        fake_list.queries.clear()
        assert (await look_up_all(session.access, [build_key("bob@x.org")])).absent_identities
        return len(fake_list.queries) - fake_list.page_count

    assert run_with_fake(fake_list, tmp_path, look_up_twice) == 0


def test_keys_that_are_inconclusive_by_filters_are_looked_up_by_a_sweep(tmp_path: Path) -> None:
    fake_list = FakeList([*build_other_people(3, 50_000, "p+{}@crowd.org"), *build_other_people(LONG_LIST_COUNT)])
    fake_list.text_match = lambda filter_text, stored_text: filter_text.replace("+", " ") == stored_text
    fake_list.add(59_000, "dan@x.org")
    fake_list.add(60_000, "ann+b@x.org")
    result = look_up_texts(fake_list, tmp_path, "ann+b@x.org", "bob@x.org", "c+d@x.org")
    assert set(result.found_ids) == {compute_identity("ann+b@x.org")}
    assert result.absent_identities == {compute_identity("bob@x.org"), compute_identity("c+d@x.org")}
    assert has_read_whole_list(fake_list)


def test_after_an_inconclusive_sweep_the_run_uses_filters_first(tmp_path: Path) -> None:
    fake_list = FakeList(build_other_people(40), max_limit=20)
    fake_list.add(60_000, "ann@x.org")
    shuffle_list(fake_list)

    async def look_up_twice(session: Session) -> None:
        keys = [build_key("ann@x.org"), *(build_key(f"bob{index}@x.org") for index in range(50))]
        for _ in range(2):
            result = await look_up_all(session.access, keys)
            assert set(result.found_ids) == {keys[0].identity}
            assert result.absent_identities == {key.identity for key in keys[1:]}
        page_count = fake_list.page_count
        assert (await look_up_all(session.access, keys)).absent_identities
        assert fake_list.page_count == page_count

    run_with_fake(fake_list, tmp_path, look_up_twice)


def test_a_key_stays_inconclusive_if_neither_filters_nor_a_sweep_decide(tmp_path: Path) -> None:
    fake_list = FakeList(build_other_people(60), matches_everything, max_limit=10)
    shuffle_list(fake_list)
    result = look_up_texts(fake_list, tmp_path, "bob@x.org")
    assert read_result(result) == ({}, set())


@pytest.mark.parametrize("answer", [Ambiguous(500, "broken"), Refused(404, "no"), Refused(429, "slow down")])
def test_a_text_for_which_the_filter_fails_is_looked_up_by_a_sweep(answer: Ambiguous | Refused, tmp_path: Path) -> None:
    fake_list = FakeList(
        build_other_people(LONG_LIST_COUNT), choose_answer=lambda query: answer if query.email == "bob@x.org" else None
    )

    async def look_up_twice(session: Session) -> int:
        assert (await look_up_all(session.access, [build_key("bob@x.org")])).absent_identities
        fake_list.queries.clear()
        assert (await look_up_all(session.access, [build_key("bob@x.org")])).absent_identities
        return len(fake_list.queries) - fake_list.page_count

    assert run_with_fake(fake_list, tmp_path, look_up_twice) == 0  # the run does not use the filter again


@pytest.mark.parametrize(("answer", "message"), [(Refused(401, "no"), "token"), (Ambiguous(500, "broken"), ".")])
def test_a_look_up_fails_if_the_service_refuses_the_token_or_returns_no_list(
    tmp_path: Path, answer: Ambiguous | Refused, message: str
) -> None:
    fake_list = FakeList(build_other_people(LONG_LIST_COUNT))
    fake_list.choose_answer = lambda query: (
        answer if query.email or (message == "." and len(fake_list.queries) > 3) else None
    )
    with pytest.raises(ListFailed, match=message):
        look_up_texts(fake_list, tmp_path, "bob@x.org")


def test_filters_that_do_not_find_the_sentinels_prove_no_absence(tmp_path: Path) -> None:
    """The service stores new emails in capitals, its filter is case-sensitive, and older emails are in lower case."""
    fake_list = FakeList(build_other_people(LONG_LIST_COUNT))
    fake_list.add(60_000, "WIT@X.ORG")
    fake_list.add(60_001, "LOST@X.ORG")
    sentinels = (build_sentinel(900.0, 60_000, "wit@x.org"),)
    assert set(look_up_texts(fake_list, tmp_path, "lost@x.org", sentinels=sentinels).found_ids) == {
        compute_identity("lost@x.org")
    }


def test_a_sweep_shows_a_sentinel_of_another_class_that_no_filter_finds(tmp_path: Path) -> None:
    fake_list = FakeList(build_other_people(LONG_LIST_COUNT))
    fake_list.add(60_000, "wit ness@x.org")  # the run sent this email with a plus

    async def look_up_twice(session: Session) -> list[float]:
        return [(await look_up_all(session.access, [build_key("bob@x.org")])).latest_sentinel_at for _ in range(2)]

    sentinels = (build_sentinel(900.0, 60_000, "wit+ness@x.org"),)
    assert run_with_fake(fake_list, tmp_path, look_up_twice, sentinels=sentinels) == [NO_SENTINEL, 900.0]


def test_no_sweep_follows_if_the_filters_show_a_lag(tmp_path: Path) -> None:
    fake_list = FakeList(build_other_people(LONG_LIST_COUNT))
    result = look_up_texts(fake_list, tmp_path, "bob@x.org", sentinels=(build_sentinel(900.0, 60_000, "wit@x.org"),))
    assert (set(result.absent_identities), result.lag_s) == ({compute_identity("bob@x.org")}, 100.0)
    assert fake_list.page_count == 1


def test_a_sentinel_counts_only_if_both_methods_that_prove_an_absence_show_the_sentinel(tmp_path: Path) -> None:
    fake_list = FakeList([*build_other_people(3, 1, "p+{}@crowd.org"), *build_other_people(LONG_LIST_COUNT, 10)])
    fake_list.text_match = lambda filter_text, stored_text: filter_text.replace("+", " ") == stored_text
    fake_list.add(60_000, "wit@x.org")
    sentinels = (build_sentinel(900.0, 60_000, "wit@x.org"),)
    result = look_up_texts(fake_list, tmp_path, "bob@x.org", "c+d@x.org", sentinels=sentinels)
    assert len(result.absent_identities) == 2
    assert result.latest_sentinel_at == NO_SENTINEL  # a sentinel counts only in the second sweep


def test_a_subscriber_in_other_capitals_is_found_if_the_key_allows_any_spelling(tmp_path: Path) -> None:
    fake_list = FakeList(build_other_people(LONG_LIST_COUNT))
    fake_list.add(60_000, "Ann@X.org")
    assert set(look_up_texts(fake_list, tmp_path, "ann@x.org", ignores_case=True).found_ids) == {
        compute_identity("ann@x.org")
    }
    assert has_read_whole_list(fake_list)


def build_keys(key_count: int, *, ignores_case: bool = False) -> list[LookupKey]:
    return [build_key(f"q{index}@x.org", ignores_case=ignores_case) for index in range(key_count)]


def build_groups(session: Session, *groups: Sequence[LookupKey]) -> list[KeyGroup]:
    return [KeyGroup(session.access, keys) for keys in groups]


def test_the_first_estimate_reads_one_page_unless_a_listing_came_before(tmp_path: Path) -> None:
    async def check_estimate(session: Session) -> None:
        sweep_cost = await estimate_sweep_cost(session.access)
        assert sweep_cost == SweepCost(23)
        for key_count, request_count in ((10, 10 + 2 * 1 + 1 + 1), (19, 19 + 2 * 1 + 1 + 1), (40, 40)):
            assert estimate_keys_cost(build_groups(session, build_keys(key_count)), sweep_cost) == KeysCost(
                request_count
            )
        key_halves = build_keys(10)[:5], build_keys(10)[5:]
        assert estimate_keys_cost(build_groups(session, *key_halves), sweep_cost) == KeysCost(10 + 2 * (2 * 1 + 1 + 1))
        assert await estimate_sweep_cost(session.access) == sweep_cost
        assert len(fake_list.queries) == 1

    fake_list = FakeList(build_other_people(LONG_LIST_COUNT))
    run_with_fake(fake_list, tmp_path, check_estimate)

    async def list_account_first(session: Session) -> None:
        await read_account_list([session.access])
        query_count = len(fake_list.queries)
        assert await estimate_sweep_cost(session.access) == SweepCost(query_count)
        assert len(fake_list.queries) == query_count

    fake_list = FakeList(build_other_people(LONG_LIST_COUNT))
    run_with_fake(fake_list, tmp_path / "again", list_account_first)


def test_the_estimate_of_a_sweep_in_id_order_is_wrong_by_at_most_one_request(tmp_path: Path) -> None:
    for subscriber_count in (0, 1, 999, 1000, 1001, 5000, LONG_LIST_COUNT):
        fake_list = FakeList(build_other_people(subscriber_count))

        async def check_estimate(session: Session) -> tuple[int | None, int]:
            estimated_count = (await estimate_sweep_cost(session.access)).request_count
            fake_list.queries.clear()  # noqa: B023 - called at once
            await read_account_list([session.access])
            return estimated_count, len(fake_list.queries)  # noqa: B023

        estimated_count, request_count = run_with_fake(fake_list, tmp_path / str(subscriber_count), check_estimate)
        assert estimated_count is not None
        assert request_count - 1 <= estimated_count <= request_count + 1, subscriber_count


def test_the_estimate_counts_the_keys_for_which_no_filter_is_known_to_work(tmp_path: Path) -> None:
    async def check_estimate(session: Session) -> None:
        sweep_cost = await estimate_sweep_cost(session.access)

        def count_unprovable_keys(*keys: LookupKey) -> int:
            return estimate_keys_cost(build_groups(session, keys), sweep_cost).unprovable_count

        assert count_unprovable_keys(*build_keys(1), build_key("a+b@x.org")) == 1
        session.access.state.is_case_insensitive = False
        assert count_unprovable_keys(*build_keys(1)) == 0
        assert count_unprovable_keys(*build_keys(1, ignores_case=True)) == 1

    run_with_fake(FakeList(build_other_people(LONG_LIST_COUNT)), tmp_path, check_estimate)


def test_a_list_without_a_total_count_has_no_estimate(tmp_path: Path) -> None:
    fake_list = FakeList(build_other_people(LONG_LIST_COUNT), choose_total_count=lambda match_count: None)
    assert run_with_fake(fake_list, tmp_path, lambda session: estimate_sweep_cost(session.access)) == SweepCost(None)


def test_simultaneous_look_ups_have_separate_results(tmp_path: Path) -> None:
    fake_list = FakeList(build_other_people(LONG_LIST_COUNT))
    fake_list.add(60_000, "q3@x.org")

    async def look_up_simultaneously(session: Session) -> list[LookupResult]:
        return await asyncio.gather(*(look_up_all(session.access, [key]) for key in build_keys(20)))

    results = run_with_fake(fake_list, tmp_path, look_up_simultaneously)
    assert [bool(result.found_ids) for result in results] == [index == 3 for index in range(20)]
    assert all(len(result.absent_identities) == 1 for index, result in enumerate(results) if index != 3)
    assert all(query.offset == 0 for query in fake_list.queries if query != ListQuery(query.offset, query.limit))


@pytest.mark.parametrize("is_in_order", [True, False])
def test_the_results_of_many_keys_are_returned_in_parts(is_in_order: bool, tmp_path: Path) -> None:
    # A sweep of the ordered list needs more requests than look-ups; a sweep of the unordered list is inconclusive.
    fake_list = FakeList(build_other_people(LONG_LIST_COUNT if is_in_order else 40), max_limit=20)
    fake_list.add(60_000, "q350@x.org")
    if not is_in_order:
        shuffle_list(fake_list)
    all_keys, lookup_parts, activities = build_keys(400), list[tuple[list[LookupKey], LookupResult]](), list[str]()

    async def look_up_in_parts(session: Session) -> None:
        async for lookup_part in look_up_keys([KeyGroup(session.access, all_keys)]):
            lookup_parts.append((list(lookup_part.keys), lookup_part.result))
            activities.append(session.stop.activity)

    run_with_fake(fake_list, tmp_path, look_up_in_parts)
    assert sorted(key.value for keys, _ in lookup_parts for key in keys) == sorted(key.value for key in all_keys)
    assert max(len(keys) for keys, _ in lookup_parts) == 300
    assert [compute_identity("q350@x.org") in result.found_ids for keys, result in lookup_parts].count(True) == 1
    assert sum(len(result.absent_identities) for _, result in lookup_parts) == 399
    key_counts = (400, 100) if is_in_order else (399, 99)  # the sweep has found one subscriber
    filter_activities = [activity for activity in activities if activity.endswith("filters")]
    assert filter_activities == [
        f"looking for {key_count} subscribers by the list's filters" for key_count in key_counts
    ]
