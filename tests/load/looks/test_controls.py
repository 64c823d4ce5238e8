"""The classes of spellings for which a filter is trusted."""

from pathlib import Path
from typing import Any

from connector.listing.access import Sentinel
from connector.listing.lookup import FilterCheck, check_filters, has_control
from connector.listing.requests import read_stats
from connector.load.session import Session
from connector.service.wire import ListPage, ListQuery, Refused
from connector.subscribers.identity import SpellingClass, classify
from tests.load.looks import fake_list
from tests.load.looks.fake_list import FakeList, crowd
from tests.load.sessions import look_at_fake, sentinel

PLAIN, PLUS, CAPITALS = (classify("email", text) for text in ("a@x.org", "a+b@x.org", "Ann@x.org"))
KEY = classify("client_user_id", "c1")


def check(fake: FakeList, folder: Path, *classes: SpellingClass, case: bool = False, **options: Any) -> FilterCheck:
    async def look(session: Session) -> FilterCheck:
        await read_stats(session.access)
        return await check_filters(session.access, classes, with_case=case)

    return look_at_fake(fake, folder, look, **options)


def with_plus() -> FakeList:
    fake = FakeList(crowd(5))
    for number in (11, 12, 13):
        fake.add(number, f"p+{number}@x.org")
    return fake


def plus_is_a_blank(asked: str, stored: str) -> bool:
    return asked.replace("+", " ") == stored


def test_a_class_passes_or_fails_by_its_own_control(tmp_path: Path) -> None:
    fake = with_plus()
    fake.finds = plus_is_a_blank
    checked = check(fake, tmp_path, PLAIN, PLUS, CAPITALS, KEY)
    # The list shows no email with capitals, so that class was not tried.
    assert (set(checked.passed_classes), set(checked.failed_classes)) == ({PLAIN, KEY}, {PLUS})


def test_one_control_a_class_and_one_made_up_a_field_are_asked_for(tmp_path: Path) -> None:
    fake = with_plus()
    check(fake, tmp_path, PLAIN, PLUS, KEY)
    assert len(fake.asked) == 1 + 2 + 3  # the stats, two made up, three classes


def test_a_control_that_has_vanished_is_replaced_by_another(tmp_path: Path) -> None:
    fake = with_plus()
    surveyed = list(fake.people)

    def vanish(query: ListQuery) -> None:
        if query.email is not None:
            fake.people = surveyed[7:]

    fake.before = vanish
    assert check(fake, tmp_path, PLUS).passed_classes == {PLUS}
    assert [fake.times(f"p+{number}@x.org") for number in (11, 12, 13)] == [1, 1, 1]


def test_a_class_fails_if_no_filter_shows_three_of_its_controls(tmp_path: Path) -> None:
    fake = with_plus()
    fake.add(14, "p+14@x.org")
    fake.instead = lambda query: ListPage([], 0, 0, 1000) if "p+1" in (query.email or "") else None
    assert check(fake, tmp_path, PLUS).failed_classes == {PLUS}
    assert [fake.times(f"p+{number}@x.org") for number in (11, 12, 13, 14)] == [1, 1, 1, 0]


def test_a_control_must_come_back_with_its_own_id(tmp_path: Path) -> None:
    other: ListPage = ListPage([{"Id": 99, "Email": "p1@crowd.org"}], 1, 0, 1000)
    fake = FakeList(crowd(1), instead=lambda query: other if query.email == "p1@crowd.org" else None)
    assert check(fake, tmp_path, PLAIN).failed_classes == {PLAIN}


def test_a_filter_that_shows_an_invented_subscriber_is_useless_for_the_run(tmp_path: Path) -> None:
    fake = FakeList(crowd(5), finds=fake_list.ignored)

    async def look(session: Session) -> None:
        await read_stats(session.access)
        assert await check_filters(session.access, [PLAIN]) == FilterCheck(failed_classes=frozenset({PLAIN}))
        assert session.access.state.useless_fields == {"email"}
        asked = len(fake.asked)
        fake.finds = fake_list.exact
        assert (await check_filters(session.access, [PLAIN])).passed_classes == set()
        assert not has_control(session.access, PLAIN)
        assert len(fake.asked) == asked
        assert (await check_filters(session.access, [KEY])).passed_classes == {
            KEY
        }  # the other filter is a matter of its own

    look_at_fake(fake, tmp_path, look)


def test_a_made_up_answer_that_is_not_whole_tells_nothing_this_time(tmp_path: Path) -> None:
    fake = FakeList(crowd(5), count=lambda number: None)
    assert check(fake, tmp_path, PLAIN) == FilterCheck(failed_classes=frozenset({PLAIN}))
    refused = Refused(400, "no address")
    fake = FakeList(crowd(5), instead=lambda query: refused if ".invalid" in (query.email or "") else None)
    assert check(fake, tmp_path / "again", PLAIN) == FilterCheck(failed_classes=frozenset({PLAIN}))


def test_a_filter_is_tried_once_in_a_run_and_its_classes_again_only_on_demand(tmp_path: Path) -> None:
    fake = with_plus()

    async def look(session: Session) -> list[int]:
        await read_stats(session.access)
        counts = []
        for is_again in (False, False, True):
            before = len(fake.asked)
            checked = await check_filters(session.access, [PLAIN, PLUS, KEY], is_again=is_again)
            assert checked.passed_classes == {PLAIN, PLUS, KEY}
            counts.append(len(fake.asked) - before)
        return counts

    assert look_at_fake(fake, tmp_path, look) == [2 + 3, 0, 3]


def test_a_class_that_stops_working_fails_for_the_rest_of_the_run(tmp_path: Path) -> None:
    fake = with_plus()

    async def look(session: Session) -> None:
        await read_stats(session.access)
        assert (await check_filters(session.access, [PLAIN, PLUS])).passed_classes == {PLAIN, PLUS}
        fake.finds = plus_is_a_blank
        assert (await check_filters(session.access, [PLAIN, PLUS], is_again=True)).failed_classes == {PLUS}
        fake.finds = fake_list.exact
        assert (await check_filters(session.access, [PLAIN, PLUS], is_again=True)).failed_classes == {PLUS}

    look_at_fake(fake, tmp_path, look)


def sentinels(*texts: str) -> tuple[Sentinel, ...]:
    return tuple(sentinel(900.0 + number, 100 + number, text) for number, text in enumerate(texts))


def test_a_witness_by_the_text_as_sent_is_the_first_control(tmp_path: Path) -> None:
    fake = with_plus()
    fake.add(100, "wit+ness@x.org")
    (sent,) = sentinels("wit+ness@x.org")
    checked = check(fake, tmp_path, PLUS, sentinels=(sent,))
    assert (set(checked.passed_classes), checked.seen_sentinels) == ({PLUS}, (sent,))
    assert fake.times("p+11@x.org") == 0


def test_a_sentinel_that_no_id_shows_does_not_decide(tmp_path: Path) -> None:
    fake = with_plus()
    checked = check(fake, tmp_path, PLUS, sentinels=sentinels("late+1@x.org", "late+2@x.org", "late+3@x.org"))
    assert (set(checked.passed_classes), checked.seen_sentinels) == ({PLUS}, ())
    assert [fake.times(f"late+{number}@x.org") for number in (1, 2, 3)] == [1, 1, 0]


def test_lag_alone_fails_no_class(tmp_path: Path) -> None:
    checked = check(FakeList(crowd(5)), tmp_path, PLUS, sentinels=sentinels("late+1@x.org"))
    assert (set(checked.passed_classes), set(checked.failed_classes)) == (set(), set())


def test_a_sentinel_that_shows_by_id_and_not_by_its_text_fails_the_class(tmp_path: Path) -> None:
    fake = with_plus()
    fake.add(100, "WIT+NESS@X.ORG")  # the service keeps what is sent now in capitals, and tells them apart
    checked = check(fake, tmp_path, PLUS, sentinels=sentinels("wit+ness@x.org"))
    assert (set(checked.passed_classes), set(checked.failed_classes)) == (set(), {PLUS})


def test_a_sentinel_that_appears_between_the_two_requests_does_not_fail_the_class(tmp_path: Path) -> None:
    fake = with_plus()

    def show_late(query: ListQuery) -> None:
        if query.id is not None:
            fake.add(100, "wit+ness@x.org")

    fake.before = show_late
    assert check(fake, tmp_path, PLUS, sentinels=sentinels("wit+ness@x.org")).passed_classes == {PLUS}


def test_a_listed_or_confirmed_subscriber_is_a_control(tmp_path: Path) -> None:
    async def look(session: Session) -> list[bool]:
        await read_stats(session.access)
        return [has_control(session.access, want) for want in (PLAIN, PLUS, CAPITALS, KEY)]

    options = {"sentinels": sentinels("wit+ness@x.org")}
    assert look_at_fake(FakeList(crowd(5)), tmp_path, look, **options) == [True, True, False, True]


def test_a_filter_is_blind_to_case_if_both_cases_find_each_other(tmp_path: Path) -> None:
    def lowers_what_is_asked(asked: str, stored: str) -> bool:
        return asked.lower() == stored

    def lowers_the_domain(asked: str, stored: str) -> bool:
        return asked.partition("@")[0] == stored.partition("@")[0] and fake_list.icase(asked, stored)

    def lowers_what_it_does_not_find(asked: str, stored: str) -> bool:
        return stored in (asked, asked.lower())

    with_capitals = [*crowd(3), *crowd(3, 11, "Ann{}@x.org")]
    table = [
        (crowd(3), fake_list.icase, True),
        (crowd(3), fake_list.partial, True),
        (crowd(3), fake_list.exact, False),
        (crowd(3), lowers_the_domain, False),
        (with_capitals, fake_list.icase, True),
        (with_capitals, fake_list.exact, False),
        (with_capitals, lowers_what_is_asked, False),  # whoever is kept with capitals is never found
        (with_capitals, lowers_what_it_does_not_find, False),
        ([], fake_list.icase, False),
    ]
    for number, (people, finds, is_blind) in enumerate(table):
        checked = check(FakeList(people, finds), tmp_path / str(number), PLAIN, case=True)
        assert checked.is_case_blind is is_blind, finds


def test_a_filter_that_distinguishes_capitals_is_not_tried_again(tmp_path: Path) -> None:
    fake = FakeList(crowd(5))

    async def look(session: Session) -> int:
        await read_stats(session.access)
        await check_filters(session.access, [PLAIN], with_case=True)
        assert session.access.state.is_case_blind is False
        fake.asked.clear()
        assert not (await check_filters(session.access, [PLAIN], with_case=True)).is_case_blind
        return len(fake.asked)

    assert look_at_fake(fake, tmp_path, look) == 0
