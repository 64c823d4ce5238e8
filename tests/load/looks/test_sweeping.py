"""Sweeps (readings of the whole list): found and absent subscribers, and the entries that a sweep records."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from connector.errors import ConfigurationError
from connector.ledger.entries import ConfirmedEntry
from connector.listing.access import KeyGroup, LookupKey, LookupResult
from connector.listing.base_list import EmptiedListError, Listing, look_up_by_sweep, read_account_list, record_base
from connector.load.session import Session
from connector.service.wire import ListQuery
from connector.subscribers.identity import digest_identity
from tests.load.looks.fake_list import FakeList, build_other_people
from tests.load.sessions import (
    build_confirmed_create,
    build_key,
    compute_identity,
    read_recorded_ids,
    run_with_fake_list,
)


def sweep_for_texts(fake_list: FakeList, folder: Path, *emails: str, **options: Any) -> LookupResult:
    return run_with_fake_list(
        fake_list,
        folder,
        lambda session: look_up_by_sweep_in_session(session, [build_key(email) for email in emails]),
        **options,
    )


def test_a_subscriber_is_found_or_proved_absent_if_the_whole_list_is_read(tmp_path: Path) -> None:
    fake_list = FakeList(build_other_people(3000))
    for subscriber_id, email, base_id in ((5002, "Ann@X.org", 7), (5001, "ann@x.org", 7), (5003, "bob@x.org", 8)):
        fake_list.add(subscriber_id, email, base={"Id": base_id, "Name": "b"})
    result = sweep_for_texts(fake_list, tmp_path, "ann@x.org", "bob@x.org")
    assert result.found_ids == {compute_identity("ann@x.org"): (5001, 5002)}
    assert result.absent_identities == {compute_identity("bob@x.org")}


def test_an_incomplete_reading_of_the_list_proves_neither_absence_nor_a_lag(tmp_path: Path) -> None:
    fake_list = FakeList(build_other_people(60), max_limit=10)
    fake_list.add(5001, "ann@x.org")
    fake_list.shuffle()
    result = sweep_for_texts(
        fake_list, tmp_path, "ann@x.org", "bob@x.org", confirmed_creates=(build_confirmed_create(900.0, 77, "w@x.org"),)
    )
    assert set(result.found_ids) <= {compute_identity("ann@x.org")}
    assert (set(result.absent_identities), result.lag_s) == (set(), 0.0)


def test_one_reading_of_the_list_finds_subscribers_by_two_identity_fields(tmp_path: Path) -> None:
    fake_list = FakeList(build_other_people(5))
    fake_list.add(50, "ann@x.org", client_user_id="k50")
    keys = [build_key("k50", "client_user_id"), build_key("ann@x.org"), build_key("k9", "client_user_id")]
    result = run_with_fake_list(fake_list, tmp_path, lambda session: look_up_by_sweep_in_session(session, keys))
    assert set(result.found_ids) == {keys[0].identity, keys[1].identity}
    assert result.absent_identities == {keys[2].identity}


def test_the_lag_of_the_list_is_computed_from_confirmed_creates(tmp_path: Path) -> None:
    fake_list = FakeList(build_other_people(5))
    fake_list.add(50, "w@x.org", base={"Id": 9, "Name": "elsewhere"})
    confirmed_creates = (build_confirmed_create(900.0, 50, "w@x.org"), build_confirmed_create(950.0, 51, "v@x.org"))
    result = sweep_for_texts(fake_list, tmp_path, "bob@x.org", confirmed_creates=confirmed_creates)
    assert (result.latest_confirmed_create_at, result.lag_s, result.started_at) == (900.0, 50.0, 1000.0)


def test_a_confirmed_create_on_a_later_page_counts_only_after_two_readings_of_the_list(tmp_path: Path) -> None:
    fake_list = FakeList(build_other_people(3000))
    fake_list.add(5000, "w@x.org")

    async def sweep_twice(session: Session) -> list[float]:
        return [
            (await look_up_by_sweep_in_session(session, [build_key("bob@x.org")])).latest_confirmed_create_at
            for _ in range(2)
        ]

    confirmed_creates = (build_confirmed_create(900.0, 5000, "w@x.org"),)
    assert run_with_fake_list(fake_list, tmp_path, sweep_twice, confirmed_creates=confirmed_creates) == [
        float("-inf"),
        900.0,
    ]


def test_an_email_is_not_proved_absent_if_its_subscriber_appears_during_the_reading(tmp_path: Path) -> None:
    """After the page of lost@x.org was read, lost@x.org and the confirmed create appear in the list, and two other
    subscribers vanish. The list had shown one of them above lost@x.org. So the ranks of the rows and TotalCount hide
    the change."""
    fake_list = FakeList([person for person in build_other_people(3000) if person["Id"] != 1200])

    def change_list_during_sweep(query: ListQuery) -> None:
        if query.offset > 1500 and fake_list.people[3]["Id"] == 4:
            fake_list.add(1200, "lost@x.org")
            fake_list.add(5000, "w@x.org")
            remaining_people = (person for person in fake_list.people if person["Id"] not in (4, 2950))
            fake_list.people = sorted(remaining_people, key=lambda person: int(person["Id"]))

    fake_list.on_request = change_list_during_sweep
    result = sweep_for_texts(
        fake_list, tmp_path, "lost@x.org", confirmed_creates=(build_confirmed_create(900.0, 5000, "w@x.org"),)
    )
    assert not result.absent_identities  # lost@x.org exists with the Id 1200, and no page showed this Id


def test_a_confirmed_create_does_not_count_if_the_last_reading_of_the_list_lacks_it(tmp_path: Path) -> None:
    """Two sweeps must agree, and the confirmed create vanishes after the first sweep. So there are three sweeps."""
    fake_list = FakeList(
        build_other_people(100), sort_people=lambda people: sorted(people, key=lambda person: str(person["Email"]))
    )
    fake_list.add(500, "w@x.org")
    fake_list.max_limit = 60

    def remove_last_person(query: ListQuery) -> None:
        if len(fake_list.queries) == 4:
            fake_list.people.pop()

    fake_list.on_request = remove_last_person
    result = sweep_for_texts(
        fake_list, tmp_path, "bob@x.org", confirmed_creates=(build_confirmed_create(900.0, 500, "w@x.org"),)
    )
    assert result.absent_identities
    assert (result.latest_confirmed_create_at, result.lag_s) == (float("-inf"), 100.0)


async def look_up_by_sweep_in_session(session: Session, keys: Sequence[LookupKey]) -> LookupResult:
    (result,) = await look_up_by_sweep([KeyGroup(session.list_access, keys)])
    return result


async def read_list_and_record_base(session: Session) -> tuple[Listing, int]:
    listing = await read_account_list([session.list_access])
    return listing, (await record_base(session.list_access, listing.rows, first_batch_index=0)).duplicate_count


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_run_ends_if_the_list_shows_none_of_the_unverified_entries(tmp_path: Path, is_listed: bool) -> None:
    """The list must show the identity of an entry. A row with the Id of the entry is not enough."""
    fake_list = FakeList(build_other_people(5))
    fake_list.add(51, "ann@x.org" if is_listed else "other@x.org")
    known_entry = ConfirmedEntry(digest_identity("email", "Ann@x.org"), 51, None)

    async def look_up_people(session: Session) -> list[int | None]:
        session.list_access.unverified_entries = (known_entry, ConfirmedEntry(b"n" * 16, 999, None))
        with nullcontext() if is_listed else pytest.raises(EmptiedListError):
            await read_list_and_record_base(session)
        return read_recorded_ids(session.ledger_writer, "ann@x.org", "other@x.org")

    assert run_with_fake_list(fake_list, tmp_path, look_up_people) == [51 if is_listed else None, None]


@pytest.mark.parametrize("is_sorted_by_email", [False, True])
def test_a_listing_counts_the_identities_that_have_several_ids(tmp_path: Path, is_sorted_by_email: bool) -> None:
    fake_list = FakeList(build_other_people(3000))
    for index, email in enumerate(("a@x.org", "A@x.org", "a@X.org", "b@x.org", "b@x.org", "c@x.org")):
        fake_list.add(5000 + index, email)
    fake_list.add(6000, "c@x.org", base={"Id": 8, "Name": "Shop"})
    if is_sorted_by_email:  # the list needs two sweeps, and a subscriber that both sweeps show must not count twice
        fake_list.sort_people = lambda people: sorted(
            people, key=lambda person: (person["Email"].lower(), person["Id"])
        )

    async def read_list_and_recorded_ids(session: Session) -> tuple[Listing, int, list[int | None]]:
        listing, duplicate_count = await read_list_and_record_base(session)
        return listing, duplicate_count, read_recorded_ids(session.ledger_writer, "a@x.org", "b@x.org", "c@x.org")

    listing, duplicate_count, recorded_ids = run_with_fake_list(fake_list, tmp_path, read_list_and_recorded_ids)
    assert (listing.certificate.sweeps, duplicate_count) == (2 if is_sorted_by_email else 1, 2)
    assert None not in recorded_ids


def test_a_run_ends_if_two_listed_bases_have_the_requested_name(tmp_path: Path) -> None:
    fake_list = FakeList(build_other_people(5))
    fake_list.add(51, "ann@x.org")
    fake_list.add(52, "bob@x.org", base={"Id": 8, "Name": "News"})
    with pytest.raises(ConfigurationError, match=r"several bases are called News \(ids 7, 8\)"):
        sweep_for_texts(fake_list, tmp_path, "ann@x.org", base_id=None, name="News")
