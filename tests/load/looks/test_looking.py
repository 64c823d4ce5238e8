"""The order of filters and sweeps, and the second way for the keys that the first way does not decide."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from connector.listing.access import KeyGroup, LookupKey, LookupResult
from connector.listing.base_list import list_account
from connector.listing.pages import ListFailed
from connector.load.lookups import KeysCost, SweepCost, estimate_keys, estimate_sweep, look_for, look_up_keys
from connector.load.session import Session
from connector.service.wire import Ambiguous, ListQuery, Refused
from tests.load.looks import fake_list
from tests.load.looks.fake_list import FakeList, crowd
from tests.load.sessions import get_verdict, identity, look_at_fake, sentinel, want

NOBODY = float("-inf")
LONG = 20_000  # a sweep of so many takes 22 requests


def look(fake: FakeList, folder: Path, *texts: str, in_any_spelling: bool = False, **options: Any) -> LookupResult:
    wanted = [want(text, in_any_spelling=in_any_spelling) for text in texts]
    return look_at_fake(fake, folder, lambda session: look_for(session.access, wanted), **options)


def has_swept(fake: FakeList) -> bool:
    return fake.pages > 2


def shuffled(fake: FakeList) -> None:
    fake.arrange = lambda people: random.Random(len(fake.asked)).sample(people, len(people))


def test_a_few_on_a_long_list_are_looked_up_by_filters(tmp_path: Path) -> None:
    fake = FakeList(crowd(LONG))
    fake.add(30_000, "ann@x.org")
    result = look(fake, tmp_path, "ann@x.org", "bob@x.org")
    assert (set(result.found_ids), set(result.absent_identities)) == ({identity("ann@x.org")}, {identity("bob@x.org")})
    assert (fake.pages, len(fake.asked)) == (1, 1 + 1 + 2 + 1 + 2)  # one shows that the list does not hide the base


def test_a_service_that_refuses_the_id_of_an_empty_base_shows_nobody_there(tmp_path: Path) -> None:
    fake = FakeList(crowd(LONG), instead=lambda query: Refused(404, "no such base") if query.base_id else None)
    assert look(fake, tmp_path, "bob@x.org").absent_identities == {identity("bob@x.org")}


@pytest.mark.parametrize(("number", "people"), [(1, 100), (40, LONG)])
def test_many_or_a_short_list_are_looked_for_by_a_sweep(number: int, people: int, tmp_path: Path) -> None:
    fake = FakeList(crowd(people))
    wanted = [f"ann{index}@x.org" for index in range(number)]
    result = look(fake, tmp_path, *wanted)
    assert result.absent_identities == {identity(asked) for asked in wanted}
    assert fake.pages == len(fake.asked)


def test_a_look_up_of_no_key_sends_no_request(tmp_path: Path) -> None:
    fake = FakeList(crowd(5))
    assert look(fake, tmp_path) == LookupResult({}, frozenset(), frozenset(), 0.0, 1000.0)
    assert fake.asked == []


def test_a_key_without_a_control_of_its_class_is_looked_up_by_a_sweep(tmp_path: Path) -> None:
    fake = FakeList(crowd(LONG))
    assert look(fake, tmp_path, "a+b@x.org").absent_identities == {identity("a+b@x.org")}
    assert fake.pages == len(fake.asked)


def test_ignored_filters_are_not_used_again_and_a_sweep_decides(tmp_path: Path) -> None:
    fake = FakeList(crowd(LONG), fake_list.ignored)

    async def look_twice(session: Session) -> int:
        assert (await look_for(session.access, [want("bob@x.org")])).absent_identities
        fake.asked.clear()
        assert (await look_for(session.access, [want("bob@x.org")])).absent_identities
        return len(fake.asked) - fake.pages

    assert look_at_fake(fake, tmp_path, look_twice) == 0


def test_a_sweep_decides_the_keys_that_filters_do_not_decide(tmp_path: Path) -> None:
    fake = FakeList([*crowd(3, 50_000, "p+{}@crowd.org"), *crowd(LONG)])
    fake.finds = lambda asked, stored: asked.replace("+", " ") == stored
    fake.add(59_000, "dan@x.org")
    fake.add(60_000, "ann+b@x.org")
    result = look(fake, tmp_path, "ann+b@x.org", "bob@x.org", "c+d@x.org")
    assert set(result.found_ids) == {identity("ann+b@x.org")}
    assert result.absent_identities == {identity("bob@x.org"), identity("c+d@x.org")}
    assert has_swept(fake)


def test_a_list_in_no_stable_order_is_looked_up_by_filters_and_by_those_first_from_then_on(tmp_path: Path) -> None:
    fake = FakeList(crowd(40), largest_limit=20)
    fake.add(60_000, "ann@x.org")
    shuffled(fake)

    async def look_twice(session: Session) -> None:
        wanted = [want("ann@x.org"), *(want(f"bob{number}@x.org") for number in range(50))]
        for _ in range(2):
            result = await look_for(session.access, wanted)
            assert set(result.found_ids) == {wanted[0].identity}
            assert result.absent_identities == {asked.identity for asked in wanted[1:]}
        swept = fake.pages
        assert (await look_for(session.access, wanted)).absent_identities
        assert fake.pages == swept

    look_at_fake(fake, tmp_path, look_twice)


def test_a_key_that_neither_filters_nor_sweeps_decide_stays_undecided(tmp_path: Path) -> None:
    fake = FakeList(crowd(60), fake_list.ignored, largest_limit=10)
    shuffled(fake)
    result = look(fake, tmp_path, "bob@x.org")
    assert get_verdict(result) == ({}, set())


@pytest.mark.parametrize("answer", [Ambiguous(500, "broken"), Refused(404, "no"), Refused(429, "slow down")])
def test_a_text_on_which_the_service_chokes_is_swept_for(answer: Ambiguous | Refused, tmp_path: Path) -> None:
    fake = FakeList(crowd(LONG), instead=lambda query: answer if query.email == "bob@x.org" else None)

    async def look_twice(session: Session) -> int:
        assert (await look_for(session.access, [want("bob@x.org")])).absent_identities
        fake.asked.clear()
        assert (await look_for(session.access, [want("bob@x.org")])).absent_identities
        return len(fake.asked) - fake.pages

    assert look_at_fake(fake, tmp_path, look_twice) == 0  # and not asked for again in this run


@pytest.mark.parametrize(("answer", "words"), [(Refused(401, "no"), "token"), (Ambiguous(500, "broken"), ".")])
def test_a_service_that_refuses_the_token_or_gives_no_list_ends_the_look(
    tmp_path: Path, answer: Ambiguous | Refused, words: str
) -> None:
    fake = FakeList(crowd(LONG))
    fake.instead = lambda query: answer if query.email or (words == "." and len(fake.asked) > 3) else None
    with pytest.raises(ListFailed, match=words):
        look(fake, tmp_path, "bob@x.org")


def test_filters_that_do_not_show_our_creates_prove_no_absence(tmp_path: Path) -> None:
    """The service keeps in capitals what is sent now, tells them apart, and has older people in lower case."""
    fake = FakeList(crowd(LONG))
    fake.add(60_000, "WIT@X.ORG")
    fake.add(60_001, "LOST@X.ORG")
    sentinels = (sentinel(900.0, 60_000, "wit@x.org"),)
    assert set(look(fake, tmp_path, "lost@x.org", sentinels=sentinels).found_ids) == {identity("lost@x.org")}


def test_witnesses_of_another_class_that_no_filter_shows_are_left_to_a_sweep(tmp_path: Path) -> None:
    fake = FakeList(crowd(LONG))
    fake.add(60_000, "wit ness@x.org")  # was sent with a plus: what the service makes of one is not known

    async def look_twice(session: Session) -> list[float]:
        return [(await look_for(session.access, [want("bob@x.org")])).latest_seen_at for _ in range(2)]

    sentinels = (sentinel(900.0, 60_000, "wit+ness@x.org"),)
    assert look_at_fake(fake, tmp_path, look_twice, sentinels=sentinels) == [NOBODY, 900.0]


def test_a_lag_that_filters_show_is_no_reason_to_sweep(tmp_path: Path) -> None:
    fake = FakeList(crowd(LONG))
    result = look(fake, tmp_path, "bob@x.org", sentinels=(sentinel(900.0, 60_000, "wit@x.org"),))
    assert (set(result.absent_identities), result.lag_s) == ({identity("bob@x.org")}, 100.0)
    assert fake.pages == 1


def test_a_sentinel_must_show_in_both_looks_that_missed_a_key(tmp_path: Path) -> None:
    fake = FakeList([*crowd(3, 1, "p+{}@crowd.org"), *crowd(LONG, 10)])
    fake.finds = lambda asked, stored: asked.replace("+", " ") == stored
    fake.add(60_000, "wit@x.org")
    sentinels = (sentinel(900.0, 60_000, "wit@x.org"),)
    result = look(fake, tmp_path, "bob@x.org", "c+d@x.org", sentinels=sentinels)
    assert len(result.absent_identities) == 2
    assert result.latest_seen_at == NOBODY  # the filter showed them; the first sweep of many pages does not count


def test_a_subscriber_in_other_capitals_is_found_on_request(tmp_path: Path) -> None:
    fake = FakeList(crowd(LONG))
    fake.add(60_000, "Ann@X.org")
    assert set(look(fake, tmp_path, "ann@x.org", in_any_spelling=True).found_ids) == {identity("ann@x.org")}
    assert has_swept(fake)


def asked_for(number: int, *, in_any_spelling: bool = False) -> list[LookupKey]:
    return [want(f"q{index}@x.org", in_any_spelling=in_any_spelling) for index in range(number)]


def group(session: Session, *groups: Sequence[LookupKey]) -> list[KeyGroup]:
    return [KeyGroup(session.access, keys) for keys in groups]


def test_an_estimate_takes_one_page_once_and_none_after_a_listing(tmp_path: Path) -> None:
    async def ask(session: Session) -> None:
        sweep = await estimate_sweep(session.access)
        assert sweep == SweepCost(23)
        for number, requests in ((10, 10 + 2 * 1 + 1 + 1), (19, 19 + 2 * 1 + 1 + 1), (40, 40)):
            assert estimate_keys(group(session, asked_for(number)), sweep) == KeysCost(requests)
        halves = asked_for(10)[:5], asked_for(10)[5:]
        assert estimate_keys(group(session, *halves), sweep) == KeysCost(10 + 2 * (2 * 1 + 1 + 1))
        assert await estimate_sweep(session.access) == sweep
        assert len(fake.asked) == 1

    fake = FakeList(crowd(LONG))
    look_at_fake(fake, tmp_path, ask)

    async def list_first(session: Session) -> None:
        await list_account([session.access])
        asked = len(fake.asked)
        assert await estimate_sweep(session.access) == SweepCost(asked)
        assert len(fake.asked) == asked

    fake = FakeList(crowd(LONG))
    look_at_fake(fake, tmp_path / "again", list_first)


def test_an_estimate_is_right_about_a_sweep_in_id_order(tmp_path: Path) -> None:
    for number in (0, 1, 999, 1000, 1001, 5000, LONG):
        fake = FakeList(crowd(number))

        async def ask(session: Session) -> tuple[int | None, int]:
            expected = (await estimate_sweep(session.access)).request_count
            fake.asked.clear()  # noqa: B023 - called at once
            await list_account([session.access])
            return expected, len(fake.asked)  # noqa: B023

        expected, taken = look_at_fake(fake, tmp_path / str(number), ask)
        assert expected is not None
        assert taken - 1 <= expected <= taken + 1, number


def test_an_estimate_counts_the_keys_that_no_filter_can_find(tmp_path: Path) -> None:
    async def ask(session: Session) -> None:
        sweep = await estimate_sweep(session.access)

        def count(*keys: LookupKey) -> int:
            return estimate_keys(group(session, keys), sweep).unprovable_count

        assert count(*asked_for(1), want("a+b@x.org")) == 1
        session.access.state.is_case_blind = False
        assert count(*asked_for(1)) == 0
        assert count(*asked_for(1, in_any_spelling=True)) == 1

    look_at_fake(FakeList(crowd(LONG)), tmp_path, ask)


def test_a_list_without_a_total_count_has_no_estimate(tmp_path: Path) -> None:
    fake = FakeList(crowd(LONG), count=lambda number: None)
    assert look_at_fake(fake, tmp_path, lambda session: estimate_sweep(session.access)) == SweepCost(None)


def test_simultaneous_looks_have_their_own_results(tmp_path: Path) -> None:
    fake = FakeList(crowd(LONG))
    fake.add(60_000, "q3@x.org")

    async def look_at_once(session: Session) -> list[LookupResult]:
        return await asyncio.gather(*(look_for(session.access, [email]) for email in asked_for(20)))

    results = look_at_fake(fake, tmp_path, look_at_once)
    assert [bool(result.found_ids) for result in results] == [number == 3 for number in range(20)]
    assert all(len(result.absent_identities) == 1 for number, result in enumerate(results) if number != 3)
    assert all(query.offset == 0 for query in fake.asked if query != ListQuery(query.offset, query.limit))


@pytest.mark.parametrize("is_in_order", [True, False])
def test_the_results_of_many_keys_are_returned_in_parts(is_in_order: bool, tmp_path: Path) -> None:
    fake = FakeList(crowd(LONG if is_in_order else 40), largest_limit=20)  # a sweep takes longer, or tells nothing
    fake.add(60_000, "q350@x.org")
    if not is_in_order:
        shuffled(fake)
    wanted, parts, activities = asked_for(400), list[tuple[list[LookupKey], LookupResult]](), list[str]()

    async def look_in_parts_of(session: Session) -> None:
        async for part in look_up_keys([KeyGroup(session.access, wanted)]):
            parts.append((list(part.keys), part.result))
            activities.append(session.control.activity)

    look_at_fake(fake, tmp_path, look_in_parts_of)
    assert sorted(key.value for keys, _ in parts for key in keys) == sorted(key.value for key in wanted)
    assert max(len(keys) for keys, _ in parts) == 300
    assert [identity("q350@x.org") in result.found_ids for keys, result in parts].count(True) == 1
    assert sum(len(result.absent_identities) for _, result in parts) == 399
    numbers = (400, 100) if is_in_order else (399, 99)  # the sweep has shown one
    by_filter = [message for message in activities if message.endswith("filters")]
    assert by_filter == [f"looking for {number} subscribers by the list's filters" for number in numbers]
