"""Existing subscribers in all bases of a run: one reading of the account's whole list (a sweep) serves all bases."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from connector.errors import RunAborted
from connector.ledger.entries import ConfirmedEntry
from connector.load.presence import AccountPresence, BasePresence, LookupTask
from connector.load.session import LoadPolicy, Session
from connector.rows import PlannedChunk
from connector.service.wire import ListQuery
from tests.load.looks.fake_list import FakeList, build_other_people, matches_everything
from tests.load.sessions import VirtualTime, build_key, open_other_base, read_recorded_ids, run_with_fake_list

SHOP_BASE_ID, CLUB_BASE_ID = 8, 9


def build_task(presence: BasePresence, *emails: str) -> LookupTask:
    """Return the look-up of these emails for a new chunk."""
    return LookupTask(
        presence, cast("PlannedChunk", object()), [build_key(email, ignores_case=True) for email in emails]
    )


def build_presences(session: Session, *other_base_ids: int) -> list[BasePresence]:
    """Return a look-up of existing subscribers (`BasePresence`) for the session's base and for each other base."""
    account_presence = AccountPresence(has_many_bases=True)
    sessions = [session, *(open_other_base(session, base_id) for base_id in other_base_ids)]
    return [BasePresence(base_session, account_presence) for base_session in sessions]


def add_one_subscriber_to_each_base(fake_list: FakeList, *base_ids: int) -> None:
    """Add one subscriber to each of these bases: ann1@x.org to the first base, ann2@x.org to the second base."""
    for base_number, base_id in enumerate(base_ids, start=1):
        fake_list.add(50_000 + base_number, f"ann{base_number}@x.org", base={"Id": base_id, "Name": f"Base {base_id}"})


def test_one_reading_of_the_list_looks_up_subscribers_of_several_bases_and_chunks(tmp_path: Path) -> None:
    fake_list = FakeList(build_other_people(2500))
    add_one_subscriber_to_each_base(fake_list, 7, SHOP_BASE_ID, CLUB_BASE_ID)

    async def check_look_ups(session: Session) -> None:
        news_presence, shop_presence = build_presences(session, SHOP_BASE_ID)
        tasks = [
            build_task(news_presence, *add_ten_emails("ann1@x.org")),
            build_task(shop_presence, *add_ten_emails("ann2@x.org")),
        ]
        await news_presence.account.look_up(tasks)
        assert all(task.presence.covers_chunk(task.planned_chunk) for task in tasks)
        query_count = len(fake_list.queries)
        assert fake_list.page_count == 1 + 5  # the first page of the list, and one sweep
        club_presence = BasePresence(open_other_base(session, CLUB_BASE_ID), news_presence.account)
        later_tasks = [
            build_task(club_presence, *add_ten_emails("ann3@x.org")),
            build_task(shop_presence, "ann2@x.org"),
        ]
        await news_presence.account.look_up(later_tasks)
        assert all(task.presence.covers_chunk(task.planned_chunk) for task in later_tasks)
        assert len(fake_list.queries) == query_count
        for presence, recorded_ids in ((news_presence, [50_001, None]), (shop_presence, [None, 50_002])):
            assert read_recorded_ids(presence.session.ledger_writer, "ann1@x.org", "ann2@x.org") == recorded_ids
        assert read_recorded_ids(club_presence.session.ledger_writer, "ann3@x.org") == [50_003]

    run_with_fake_list(fake_list, tmp_path, check_look_ups)


def add_ten_emails(*emails: str) -> Sequence[str]:
    """Return the emails and ten further emails, so that a sweep is cheaper than filters."""
    return [*emails, *(f"new{index}@x.org" for index in range(10))]


@pytest.mark.parametrize(("request_number", "other_person_count"), [(1, 2500), (2, 50)])
def test_a_base_does_not_count_as_hidden_if_its_first_subscriber_appears_after_the_reading(
    request_number: int, other_person_count: int, tmp_path: Path
) -> None:
    fake_list = FakeList(build_other_people(other_person_count))
    add_one_subscriber_to_each_base(fake_list, 7)
    shop_request_count = 0

    def create_subscribers(query: ListQuery) -> None:
        nonlocal shop_request_count
        if len(fake_list.queries) == 3 and len(fake_list.people) == other_person_count + 1:
            fake_list.add(55_000, "eve@x.org")  # the list changes during the sweep
        if query.base_id == SHOP_BASE_ID:
            shop_request_count += 1
            if shop_request_count == request_number:
                fake_list.add(60_000, "bob@x.org", base={"Id": SHOP_BASE_ID, "Name": "Base 8"})

    fake_list.on_request = create_subscribers

    async def check_look_ups(session: Session) -> None:
        news_presence, shop_presence = build_presences(session, SHOP_BASE_ID)
        tasks = [build_task(presence, *add_ten_emails()) for presence in (news_presence, shop_presence)]
        await news_presence.account.look_up(tasks)
        assert (shop_request_count >= request_number, shop_presence.is_hidden, session.tally.messages) == (
            True,
            False,
            [],
        )

    run_with_fake_list(fake_list, tmp_path, check_look_ups)


def test_the_renewal_of_an_expired_listing_updates_all_bases(tmp_path: Path) -> None:
    fake_list, virtual_time = FakeList(build_other_people(2500)), VirtualTime()
    add_one_subscriber_to_each_base(fake_list, 7, SHOP_BASE_ID)

    async def check_look_ups(session: Session) -> None:
        news_presence, shop_presence = build_presences(session, SHOP_BASE_ID)
        tasks = [build_task(presence, *add_ten_emails()) for presence in (news_presence, shop_presence)]
        await news_presence.account.look_up(tasks)
        virtual_time.now_s += 100
        assert not any(task.presence.covers_chunk(task.planned_chunk) for task in tasks)
        fake_list.add(60_000, "new1@x.org", base={"Id": SHOP_BASE_ID, "Name": "Base 8"})
        query_count = len(fake_list.queries)
        await news_presence.account.look_up(tasks)
        assert all(task.presence.covers_chunk(task.planned_chunk) for task in tasks)
        assert len(fake_list.queries) == query_count + 2
        assert read_recorded_ids(shop_presence.session.ledger_writer, "new1@x.org") == [60_000]
        assert read_recorded_ids(news_presence.session.ledger_writer, "new1@x.org") == [None]

    run_with_fake_list(fake_list, tmp_path, check_look_ups, virtual_time=virtual_time, max_lookup_age_s=60.0)


def test_the_list_is_read_again_if_a_new_subscriber_is_not_at_the_end(tmp_path: Path) -> None:
    fake_list, virtual_time = FakeList(build_other_people(2500, 100)), VirtualTime()
    add_one_subscriber_to_each_base(fake_list, 7)

    async def check_look_ups(session: Session) -> None:
        (news_presence,) = build_presences(session)
        task = build_task(news_presence, *add_ten_emails())
        await news_presence.account.look_up([task])
        virtual_time.now_s += 100
        fake_list.add(60_000, "new1@x.org")
        fake_list.people.insert(
            0, {"Id": 5, "Base": {"Id": 7, "Name": "News"}, "Email": "new2@x.org", "ClientUserId": ""}
        )
        await news_presence.account.look_up([task])
        assert news_presence.covers_chunk(task.planned_chunk)
        assert read_recorded_ids(news_presence.session.ledger_writer, "new1@x.org", "new2@x.org") == [60_000, 5]

    run_with_fake_list(fake_list, tmp_path, check_look_ups, virtual_time=virtual_time, max_lookup_age_s=60.0)


@pytest.mark.parametrize("is_verified", [True, False])
def test_an_incomplete_listing_is_recorded_only_if_the_account_is_verified(tmp_path: Path, is_verified: bool) -> None:
    fake_list = FakeList(build_other_people(2500), matches_everything)
    add_one_subscriber_to_each_base(fake_list, 7)
    fake_list.shuffle()

    async def check_look_ups(session: Session) -> list[int | None]:
        session.list_access.unverified_entries = () if is_verified else (ConfirmedEntry(b"n" * 16, 999, None),)
        (news_presence,) = build_presences(session)
        with pytest.raises(RunAborted, match="could not be read whole"):
            await news_presence.account.look_up([build_task(news_presence, "ann1@x.org", "bob@x.org")])
        return read_recorded_ids(session.ledger_writer, "ann1@x.org")

    assert run_with_fake_list(fake_list, tmp_path, check_look_ups) == [50_001 if is_verified else None]


def test_the_age_of_a_look_up_counts_from_its_beginning() -> None:
    policy = LoadPolicy(max_lookup_age_s=60.0)
    assert policy.compute_valid_until(100.0, 159.0) == 160.0
    with pytest.raises(RunAborted, match=r"longer than load\.fresh"):
        policy.compute_valid_until(100.0, 160.0)
