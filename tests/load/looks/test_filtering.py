"""Look-ups by filters: found subscribers, subscribers that are proved absent, and inconclusive look-ups. A request has
one filter, and no message contains an email."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from connector.listing.access import LookupResult
from connector.listing.lookup import can_prove_absence, look_up_by_filters
from connector.listing.pages import ListFailed
from connector.listing.requests import read_list_stats
from connector.load.session import Session
from connector.service.wire import ListPage, ListQuery, Refused
from tests.load.looks.fake_list import (
    FakeList,
    TextMatch,
    build_other_people,
    matches_exactly,
    matches_ignoring_case,
    matches_partially,
)
from tests.load.sessions import build_confirmed_create, build_key, compute_identity, read_result, run_with_fake_list

NO_CONFIRMED_CREATE_TIME = float("-inf")


def look_up(fake_list: FakeList, folder: Path, *texts: str, ignores_case: bool = False, **options: Any) -> LookupResult:
    keys = [build_key(text, ignores_case=ignores_case) for text in texts]
    return run_with_fake_list(
        fake_list, folder, lambda session: look_up_by_filters(session.list_access, keys), **options
    )


def compute_identities(*texts: str) -> set[bytes]:
    return {compute_identity(text) for text in texts}


def test_a_listed_subscriber_is_found_and_an_unlisted_subscriber_is_absent(tmp_path: Path) -> None:
    fake_list = FakeList(build_other_people(5))
    fake_list.add(50, "ann@x.org")
    result = look_up(fake_list, tmp_path, "ann@x.org", "bob@x.org")
    assert result.found_ids == {compute_identity("ann@x.org"): (50,)}
    assert result.absent_identities == compute_identities("bob@x.org")
    assert (result.started_at, result.latest_confirmed_create_at, result.lag_s) == (
        1000.0,
        NO_CONFIRMED_CREATE_TIME,
        0.0,
    )


def test_a_partial_match_does_not_count_as_found(tmp_path: Path) -> None:
    fake_list = FakeList(build_other_people(5), matches_partially)
    fake_list.add(50, "joann@x.org")
    # The answer may have only the first of several matches, so it proves no absence.
    assert read_result(look_up(fake_list, tmp_path, "ann@x.org")) == ({}, set())
    fake_list.add(51, "mary.ann@x.org")
    (tmp_path / "again").mkdir()
    assert read_result(look_up(fake_list, tmp_path / "again", "ann@x.org")) == ({}, compute_identities("ann@x.org"))


def test_an_email_is_not_proved_absent_if_a_similar_email_appears_only_during_the_look_up(tmp_path: Path) -> None:
    # The list shows no email with a plus until the look-up of ann+b@x.org.
    fake_list = FakeList(build_other_people(5))

    def show_confirmed_create(query: ListQuery) -> None:
        if query.email == "ann+b@x.org" and len(fake_list.people) == 5:
            fake_list.add(100, "wit+ness@x.org")

    fake_list.on_request = show_confirmed_create
    confirmed_creates = (build_confirmed_create(990.0, 100, "wit+ness@x.org"),)
    result = look_up(fake_list, tmp_path, "ann+b@x.org", "bob@x.org", confirmed_creates=confirmed_creates)
    assert result.absent_identities == compute_identities("bob@x.org")


def test_an_untested_filter_can_find_a_subscriber_and_cannot_prove_absence(tmp_path: Path) -> None:
    fake_list = FakeList(build_other_people(1000))
    fake_list.add(2000, "ann+b@x.org")  # no subscriber on the first page has a plus
    result = look_up(fake_list, tmp_path, "ann+b@x.org", "cem+d@x.org")
    assert read_result(result) == ({compute_identity("ann+b@x.org"): (2000,)}, set())


def test_an_email_is_looked_up_in_all_spellings_and_each_spelling_needs_a_trial(tmp_path: Path) -> None:
    fake_list = FakeList(build_other_people(5))
    fake_list.add(50, "bob@x.org")  # the service stores Bob@X.org in lower case
    result = look_up(fake_list, tmp_path, "Bob@X.org", "Ann@X.org")
    assert result.found_ids == {compute_identity("bob@x.org"): (50,)}
    # The list has no email with capitals, so the filter cannot be tried with capitals.
    assert result.absent_identities == set()
    assert [fake_list.count_requests(text) for text in ("Ann@X.org", "Ann@x.org", "ann@x.org")] == [1, 1, 1]


def test_a_look_up_is_inconclusive_if_the_answer_for_one_spelling_is_incomplete(tmp_path: Path) -> None:
    fake_list = FakeList(build_other_people(5) + build_other_people(3, 20, "Anna{}@crowd.org"))
    fake_list.choose_answer = lambda query: Refused(400, "no") if query.email == "Bob@x.org" else None
    assert look_up(fake_list, tmp_path, "Bob@x.org", "Cem@x.org").absent_identities == compute_identities("cem@x.org")


def test_emails_of_a_batch_are_not_proved_absent_if_the_filter_fails_in_the_batch(tmp_path: Path) -> None:
    people = [f"p{index}@x.org" for index in range(900)]
    fake_list = FakeList(build_other_people(5))
    fake_list.choose_answer = lambda query: (
        ListPage([], 0, 0, 1000) if len(fake_list.queries) > 500 and query.email else None
    )
    absent_identities = look_up(fake_list, tmp_path, *people).absent_identities
    assert absent_identities == compute_identities(*people[:300])
    assert len(fake_list.queries) < 650  # no more keys are looked up


def test_each_look_up_repeats_the_trials(tmp_path: Path) -> None:
    fake_list = FakeList(build_other_people(5))

    async def look_up_twice(session: Session) -> None:
        assert (await look_up_by_filters(session.list_access, [build_key("bob@x.org")])).absent_identities
        fake_list.text_match = lambda filter_text, stored_text: False
        assert not (await look_up_by_filters(session.list_access, [build_key("bob@x.org")])).absent_identities

    run_with_fake_list(fake_list, tmp_path, look_up_twice)


@pytest.mark.parametrize(
    ("text_match", "absent_emails"),
    [(matches_exactly, set()), (matches_ignoring_case, {"bob@x.org"}), (matches_partially, {"bob@x.org"})],
)
def test_only_a_case_insensitive_filter_proves_all_spellings_of_an_email_absent(
    text_match: TextMatch, absent_emails: set[str], tmp_path: Path
) -> None:
    fake_list = FakeList(
        build_other_people(5)
        + build_other_people(3, 20, "p{}@bücher.de")
        + build_other_people(3, 30, "p{}@xn--bcher-kva.de"),
        text_match,
    )
    fake_list.add(50, "Ann@X.org")  # another program has created the subscriber
    result = look_up(fake_list, tmp_path, "ann@x.org", "bob@x.org", "eva@bücher.de", ignores_case=True)
    assert set(result.found_ids) == (compute_identities("ann@x.org") if absent_emails else set())
    # eva@bücher.de is never proved absent, because the service may store the domain in another form.
    assert result.absent_identities == compute_identities(*absent_emails)
    if not absent_emails:
        assert fake_list.count_requests("bob@x.org") == 0  # a look-up would prove nothing, so no request is sent


def test_a_client_user_id_is_proved_absent_by_a_case_sensitive_filter(tmp_path: Path) -> None:
    fake_list = FakeList(build_other_people(5))
    fake_list.add(50, client_user_id="c50")
    keys = [build_key(text, "client_user_id", ignores_case=True) for text in ("c50", "c99")]
    result = run_with_fake_list(fake_list, tmp_path, lambda session: look_up_by_filters(session.list_access, keys))
    assert result.found_ids == {compute_identity("c50", "client_user_id"): (50,)}
    assert result.absent_identities == {compute_identity("c99", "client_user_id")}


def test_a_confirmed_create_does_not_count_if_its_subscriber_vanishes_during_the_look_ups(tmp_path: Path) -> None:
    fake_list = FakeList(build_other_people(5))
    fake_list.add(100, "wit@x.org")

    def hide_confirmed_create(query: ListQuery) -> None:
        if query.email == "bob@x.org":  # from now on, the answers come from a replica that lags
            fake_list.people = [person for person in fake_list.people if person["Id"] != 100]

    fake_list.on_request = hide_confirmed_create
    result = look_up(
        fake_list, tmp_path, "bob@x.org", confirmed_creates=(build_confirmed_create(990.0, 100, "wit@x.org"),)
    )
    assert (result.latest_confirmed_create_at, result.lag_s) == (NO_CONFIRMED_CREATE_TIME, 10.0)


def test_absence_can_be_proved_only_if_a_known_subscriber_has_a_similar_email(tmp_path: Path) -> None:
    fake_list = FakeList(build_other_people(5) + build_other_people(3, 20, "p+{}@bücher.de"))

    async def check_proofs(session: Session) -> None:
        await read_list_stats(session.list_access)
        emails = ("a@x.org", "a+b@x.org", "a+b@bücher.de", "A@x.org")
        assert [email for email in emails if can_prove_absence(session.list_access, build_key(email))] == ["a@x.org"]
        assert can_prove_absence(session.list_access, build_key("a@x.org", ignores_case=True))
        session.list_access.state.is_case_insensitive = False
        assert not can_prove_absence(session.list_access, build_key("a@x.org", ignores_case=True))
        assert can_prove_absence(session.list_access, build_key("c9", "client_user_id", ignores_case=True))

    run_with_fake_list(fake_list, tmp_path, check_proofs)


def test_messages_and_representations_contain_no_email(tmp_path: Path) -> None:
    fake_list = FakeList(
        build_other_people(5), choose_answer=lambda query: Refused(403, "no") if query.email == "ann@x.org" else None
    )

    async def check_messages(session: Session) -> None:
        with pytest.raises(ListFailed) as error_info:
            await look_up_by_filters(session.list_access, [build_key("ann@x.org")])
        text = f"{error_info.value} {session.stop.activity} {build_key('ann@x.org')!r} {session.list_access.state!r}"
        text += repr(session.list_access.confirmed_creates)
        assert "@" not in text
        assert session.stop.activity == "looking for 1 subscriber by the list's filters"

    run_with_fake_list(
        fake_list, tmp_path, check_messages, confirmed_creates=(build_confirmed_create(940.0, 100, "wit@x.org"),)
    )


def test_each_request_has_at_most_one_filter(tmp_path: Path) -> None:
    fake_list = FakeList(build_other_people(5))
    confirmed_creates = (build_confirmed_create(940.0, 100, "wit@x.org"),)
    run_with_fake_list(
        fake_list,
        tmp_path,
        lambda session: look_up_by_filters(session.list_access, [build_key("ann@x.org")]),
        confirmed_creates=confirmed_creates,
    )
    for query in fake_list.queries:
        filter_query = replace(query, limit=ListQuery().limit)
        assert filter_query in (ListQuery(), ListQuery(email=query.email), ListQuery(id=query.id))
