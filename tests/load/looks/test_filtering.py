"""A look by filters: the keys that the look finds, the keys that it misses, and the keys that it does not decide."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from connector.errors import ConfigurationError
from connector.listing.access import LookupResult
from connector.listing.lookup import can_prove_absence, count_requests, look_by_filter
from connector.listing.requests import read_stats
from connector.load.session import Session
from connector.service.wire import ListPage, ListQuery, Refused
from tests.load.looks import fake_list
from tests.load.looks.fake_list import FakeList, crowd
from tests.load.sessions import VirtualTime, get_verdict, identity, look_at_fake, sentinel, want

NOBODY = float("-inf")


def look(fake: FakeList, folder: Path, *texts: str, in_any_spelling: bool = False, **options: Any) -> LookupResult:
    wanted = [want(text, in_any_spelling=in_any_spelling) for text in texts]
    return look_at_fake(fake, folder, lambda session: look_by_filter(session.access, wanted), **options)


def digests(*texts: str) -> set[bytes]:
    return {identity(text) for text in texts}


def test_a_listed_subscriber_is_found_and_an_absent_one_is_missed(tmp_path: Path) -> None:
    fake = FakeList(crowd(5))
    fake.add(50, "ann@x.org")
    result = look(fake, tmp_path, "ann@x.org", "bob@x.org")
    assert result.found_ids == {identity("ann@x.org"): (50,)}
    assert result.absent_identities == digests("bob@x.org")
    assert (result.started_at, result.latest_seen_at, result.lag_s) == (1000.0, NOBODY, 0.0)


def test_a_look_up_returns_the_ids_of_its_base_only(tmp_path: Path) -> None:
    fake = FakeList(crowd(5), fake_list.icase)
    for subscriber_id, email, base in ((52, "ann@x.org", 7), (51, "Ann@X.org", 7), (50, "ann@x.org", 8)):
        fake.add(subscriber_id, email, base={"Id": base, "Name": f"b{base}"})
    fake.add(60, "bob@x.org", base={"Id": 8, "Name": "b8"})
    result = look(fake, tmp_path, "ann@x.org", "bob@x.org")
    assert result.found_ids == {identity("ann@x.org"): (51, 52)}
    assert result.absent_identities == digests("bob@x.org")


def test_a_partial_match_is_no_find(tmp_path: Path) -> None:
    fake = FakeList(crowd(5), fake_list.partial)
    fake.add(50, "joann@x.org")
    assert get_verdict(look(fake, tmp_path, "ann@x.org")) == ({}, set())  # perhaps the first match of several
    fake.add(51, "mary.ann@x.org")
    (tmp_path / "again").mkdir()
    assert get_verdict(look(fake, tmp_path / "again", "ann@x.org")) == ({}, digests("ann@x.org"))


def test_a_base_known_by_its_name_is_compared_by_that(tmp_path: Path) -> None:
    fake = FakeList(crowd(5))
    fake.add(50, "ann@x.org", base={"Id": 8, "Name": "Shop"})
    fake.add(51, "bob@x.org", base={"Id": 7, "Name": "News"})
    result = look(fake, tmp_path, "ann@x.org", "bob@x.org", base_id=None, name="News")
    assert (set(result.found_ids), set(result.absent_identities)) == (digests("bob@x.org"), set())
    fake.add(52, "bob@x.org", base={"Id": 8, "Name": "Shop"})  # now the filter lists two subscribers together
    (tmp_path / "again").mkdir()
    result = look(fake, tmp_path / "again", "ann@x.org", "bob@x.org", base_id=None, name="News")
    assert (set(result.found_ids), set(result.absent_identities)) == (digests("bob@x.org"), digests("ann@x.org"))


@pytest.mark.parametrize("base", [{"Id": None}, {"Id": None, "Name": "News"}])
def test_a_row_without_the_id_of_its_base_ends_the_run(tmp_path: Path, base: object) -> None:
    fake = FakeList(crowd(5))
    fake.people += [
        {"Id": name, "Base": base, "Email": email}
        for name, email in enumerate(["ann@x.org", "bob@x.org", "bob@x.org"], 50)
    ]
    with pytest.raises(ConfigurationError, match="does not show the base of a subscriber by its Id"):
        look(fake, tmp_path, "ann@x.org", "bob@x.org", "eve@x.org")


def test_a_name_that_two_bases_bear_ends_the_run_even_over_two_batches(tmp_path: Path) -> None:
    fake = FakeList(crowd(5))
    fake.add(50, "p0@x.org", base={"Id": 8, "Name": "News"})
    fake.add(51, "p500@x.org", base={"Id": 7, "Name": "News"})
    with pytest.raises(ConfigurationError, match="several bases"):
        look(fake, tmp_path, *(f"p{number}@x.org" for number in range(501)), base_id=None, name="News")


def test_a_class_whose_filter_fails_stays_undecided_and_other_classes_do_not(tmp_path: Path) -> None:
    fake = FakeList(crowd(5), lambda asked, stored: asked.replace("+", " ") == stored)
    fake.add(50, "known+1@x.org")
    fake.add(51, "ann+b@x.org")
    result = look(fake, tmp_path, "ann+b@x.org", "cem+d@x.org", "bob@x.org")
    assert get_verdict(result) == ({}, digests("bob@x.org"))


def test_a_class_that_failed_is_not_asked_for(tmp_path: Path) -> None:
    fake = FakeList(crowd(5) + crowd(3, 20, "p+{}@x.org"), lambda asked, stored: "+" not in asked and asked == stored)
    look(fake, tmp_path, "ann+b@x.org", "bob@x.org")
    assert (fake.times("ann+b@x.org"), fake.times("bob@x.org")) == (0, 1)


def test_a_class_that_passes_only_afterwards_proves_no_absence(tmp_path: Path) -> None:
    fake = FakeList(crowd(5))  # the one sentinel with a plus begins to show while others are looked up

    def show_late(query: ListQuery) -> None:
        if query.email == "ann+b@x.org" and len(fake.people) == 5:
            fake.add(100, "wit+ness@x.org")

    fake.before = show_late
    sentinels = (sentinel(990.0, 100, "wit+ness@x.org"),)
    assert look(fake, tmp_path, "ann+b@x.org", "bob@x.org", sentinels=sentinels).absent_identities == digests(
        "bob@x.org"
    )


def test_a_key_without_a_control_can_be_found_and_not_missed(tmp_path: Path) -> None:
    fake = FakeList(crowd(1000))
    fake.add(2000, "ann+b@x.org")  # not on the first page: nobody surveyed has a plus
    result = look(fake, tmp_path, "ann+b@x.org", "cem+d@x.org")
    assert get_verdict(result) == ({identity("ann+b@x.org"): (2000,)}, set())


def test_a_key_is_looked_up_in_its_spellings_and_a_spelling_needs_a_control(tmp_path: Path) -> None:
    fake = FakeList(crowd(5))
    fake.add(50, "bob@x.org")  # was sent as Bob@X.org, and is kept in lower case
    result = look(fake, tmp_path, "Bob@X.org", "Ann@X.org")
    assert result.found_ids == {identity("bob@x.org"): (50,)}
    # The list has no email with capitals, so the filter cannot be tried with capitals.
    assert result.absent_identities == set()
    assert [fake.times(text) for text in ("Ann@X.org", "Ann@x.org", "ann@x.org")] == [1, 1, 1]


def test_a_service_that_lowers_domains_and_compares_case_misses_no_listed_subscriber(tmp_path: Path) -> None:
    def keep(email: str) -> str:
        local, _, domain = email.partition("@")
        return f"{local}@{domain.lower()}"

    fake = FakeList(crowd(5) + crowd(3, 20, "Anna{}@crowd.org"))
    sent = [f"{name}@{domain}" for name in ("ann", "Bob") for domain in ("x.org", "X.org")]
    for number, email in enumerate(sent):
        fake.add(100 + number, keep(f"is.there.{email}"))
    result = look(fake, tmp_path, *sent, *(f"is.there.{email}" for email in sent))
    assert set(result.found_ids) == digests(*(f"is.there.{email}" for email in sent))
    assert result.absent_identities == digests("ann@x.org", "bob@x.org")  # asked for as x.org too, which is told


@pytest.mark.parametrize("count", [lambda number: None, lambda number: number + 1, lambda number: max(0, number - 1)])
def test_a_missing_or_contradictory_total_count_proves_no_absence(tmp_path: Path, count: Any) -> None:
    fake = FakeList(crowd(5), count=count)
    assert look(fake, tmp_path, "bob@x.org").absent_identities == set()


def test_an_incomplete_answer_proves_no_absence(tmp_path: Path) -> None:
    fake = FakeList(crowd(5), instead=lambda query: ListPage([], None, 0, 1000) if query.email == "bob@x.org" else None)
    assert look(fake, tmp_path, "bob@x.org", "cem@x.org").absent_identities == digests("cem@x.org")


def test_one_incomplete_answer_leaves_a_key_undecided(tmp_path: Path) -> None:
    fake = FakeList(crowd(5) + crowd(3, 20, "Anna{}@crowd.org"))
    fake.instead = lambda query: Refused(400, "no") if query.email == "Bob@x.org" else None
    assert look(fake, tmp_path, "Bob@x.org", "Cem@x.org").absent_identities == digests("cem@x.org")


@pytest.mark.parametrize(("matches", "is_missed"), [(9, True), (10, False)])
def test_a_partial_match_that_takes_more_than_one_page_tells_nothing(
    matches: int, is_missed: bool, tmp_path: Path
) -> None:
    fake = FakeList([*crowd(4), *crowd(matches, 100, "p{}.ann@x.org")], fake_list.partial, largest_limit=10)
    assert (look(fake, tmp_path, "ann@x.org").absent_identities == digests("ann@x.org")) is is_missed


def test_a_filter_that_fails_within_a_batch_proves_no_absence_in_the_batch(tmp_path: Path) -> None:
    people = [f"p{number}@x.org" for number in range(900)]
    fake = FakeList(crowd(5))
    fake.instead = lambda query: ListPage([], 0, 0, 1000) if len(fake.asked) > 500 and query.email else None
    missed = look(fake, tmp_path, *people).absent_identities
    assert missed == digests(*people[:300])
    assert len(fake.asked) < 650  # and nobody more is asked for


def test_a_look_tries_its_controls_again(tmp_path: Path) -> None:
    fake = FakeList(crowd(5))

    async def look_twice(session: Session) -> None:
        assert (await look_by_filter(session.access, [want("bob@x.org")])).absent_identities
        fake.finds = lambda asked, stored: False
        assert not (await look_by_filter(session.access, [want("bob@x.org")])).absent_identities

    look_at_fake(fake, tmp_path, look_twice)


@pytest.mark.parametrize(
    ("finds", "missed"),
    [(fake_list.exact, set()), (fake_list.icase, {"bob@x.org"}), (fake_list.partial, {"bob@x.org"})],
)
def test_only_a_filter_that_is_blind_to_case_misses_a_key_in_any_capitals(
    finds: fake_list.Finds, missed: set[str], tmp_path: Path
) -> None:
    fake = FakeList(crowd(5) + crowd(3, 20, "p{}@bücher.de") + crowd(3, 30, "p{}@xn--bcher-kva.de"), finds)
    fake.add(50, "Ann@X.org")  # signed up elsewhere
    wanted = ("ann@x.org", "bob@x.org", "eva@bücher.de")
    result = look(fake, tmp_path, *wanted, in_any_spelling=True)
    assert set(result.found_ids) == (digests("ann@x.org") if missed else set())
    assert result.absent_identities == digests(*missed)  # eva's domain may be kept in yet another form
    if not missed:
        assert fake.times("bob@x.org") == 0  # nothing is asked that could not be believed


def test_a_client_user_id_keeps_its_case_and_needs_no_blindness(tmp_path: Path) -> None:
    fake = FakeList(crowd(5))
    fake.add(50, client="c50")
    wanted = [want(text, "client_user_id", in_any_spelling=True) for text in ("c50", "c99")]
    result = look_at_fake(fake, tmp_path, lambda session: look_by_filter(session.access, wanted))
    assert result.found_ids == {identity("c50", "client_user_id"): (50,)}
    assert result.absent_identities == {identity("c99", "client_user_id")}


def test_the_latest_witness_is_looked_up_before_anybody_else(tmp_path: Path) -> None:
    fake = FakeList(crowd(5))
    fake.add(100, "wit@x.org")
    sentinels = (sentinel(950.0, 99, "gone@x.org"), sentinel(990.0, 100, "wit@x.org"))
    result = look(fake, tmp_path, "bob@x.org", sentinels=sentinels)
    assert (result.latest_seen_at, result.lag_s) == (990.0, 0.0)
    asked = [query.email for query in fake.asked]
    assert asked.index("wit@x.org") < asked.index("bob@x.org")


def test_a_sentinel_that_stops_showing_in_the_middle_of_a_look_up_proves_nothing(tmp_path: Path) -> None:
    fake = FakeList(crowd(5))
    fake.add(100, "wit@x.org")

    def lag_from_then_on(query: ListQuery) -> None:
        if query.email == "bob@x.org":  # a replica that lags answers from here on
            fake.people = [person for person in fake.people if person["Id"] != 100]

    fake.before = lag_from_then_on
    result = look(fake, tmp_path, "bob@x.org", sentinels=(sentinel(990.0, 100, "wit@x.org"),))
    assert (result.latest_seen_at, result.lag_s) == (NOBODY, 10.0)


def test_a_survey_is_read_once_until_it_is_old(tmp_path: Path) -> None:
    fake, time = FakeList(crowd(5)), VirtualTime()

    async def look_three_times(session: Session) -> None:
        await look_by_filter(session.access, [want("bob@x.org")])
        await look_by_filter(session.access, [want("bob@x.org")])
        assert fake.pages == 1
        time.now += 60
        await look_by_filter(session.access, [want("bob@x.org")])
        assert fake.pages == 2

    look_at_fake(fake, tmp_path, look_three_times, time=time, fresh_s=60)


@pytest.mark.parametrize("in_any_spelling", [False, True])
def test_the_requests_are_as_many_as_were_counted_before(in_any_spelling: bool, tmp_path: Path) -> None:
    fake = FakeList([*crowd(3), *crowd(3, 20, "A{}@crowd.org"), *crowd(3, 30, "p+{}@crowd.org")], fake_list.icase)
    fake.add(100, "wit@x.org")
    wanted = [want(f"{start}{index}@x.org") for index in range(150) for start in ("p", "P", "p+")]
    wanted += [want(f"k{number}", "client_user_id") for number in range(50)]

    async def look_and_count(session: Session) -> None:
        await read_stats(session.access)
        fake.asked.clear()
        asked = [replace(want, in_any_spelling=in_any_spelling) for want in wanted]
        assert not (await look_by_filter(session.access, asked)).found_ids
        expected = count_requests(asked)
        assert expected - 4 <= len(fake.asked) <= expected  # the sentinel may be among the controls

    look_at_fake(fake, tmp_path, look_and_count, sentinels=(sentinel(990.0, 100, "wit@x.org"),))


def test_a_plain_address_costs_one_request_beside_the_controls(tmp_path: Path) -> None:
    assert count_requests([want("a@x.org"), want("b@x.org")]) - count_requests([want("a@x.org")]) == 1


def test_the_keys_that_a_filter_can_decide_are_known_before_the_look(tmp_path: Path) -> None:
    fake = FakeList(crowd(5) + crowd(3, 20, "p+{}@bücher.de"))

    async def ask(session: Session) -> None:
        await read_stats(session.access)
        decidable = {
            text: can_prove_absence(session.access, want(text))
            for text in ("a@x.org", "a+b@x.org", "a+b@bücher.de", "A@x.org")
        }
        assert decidable == {"a@x.org": True, "a+b@x.org": False, "a+b@bücher.de": False, "A@x.org": False}
        assert can_prove_absence(session.access, want("a@x.org", in_any_spelling=True))
        session.access.state.is_case_blind = False
        assert not can_prove_absence(session.access, want("a@x.org", in_any_spelling=True))
        assert can_prove_absence(session.access, want("c9", "client_user_id", in_any_spelling=True))

    look_at_fake(fake, tmp_path, ask)
