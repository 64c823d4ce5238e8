"""Existing subscribers in the bases of a run: one sweep of the account's list serves all bases."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from connector.errors import RunAborted
from connector.ledger.entries import ConfirmedEntry
from connector.load.presence import AccountPresence, BasePresence, LookupTask
from connector.load.session import LoadPolicy, Session
from connector.rows import PlannedChunk
from tests.load.looks import fake_list
from tests.load.looks.fake_list import FakeList, crowd
from tests.load.sessions import VirtualTime, look_at_fake, open_other_base, read_recorded, want

SHOP, CLUB = 8, 9


def build_want(presence: BasePresence, *texts: str) -> LookupTask:
    """Return the keys to look up for a chunk of their own."""
    return LookupTask(presence, cast("PlannedChunk", object()), [want(text, in_any_spelling=True) for text in texts])


def build_bases(session: Session, *others: int) -> list[BasePresence]:
    """Return the presence in the session's base and in other bases of the run. Later chunks may bring more bases."""
    account = AccountPresence(has_many_bases=True)
    sessions = [session, *(open_other_base(session, base_id) for base_id in others)]
    return [BasePresence(member, account) for member in sessions]


def fill(fake: FakeList, *base_ids: int) -> None:
    """Add one subscriber to each of these bases, ann1@x.org to the first base."""
    for number, base_id in enumerate(base_ids, start=1):
        fake.add(50_000 + number, f"ann{number}@x.org", base={"Id": base_id, "Name": f"Base {base_id}"})


def test_one_sweep_serves_all_bases_of_a_chunk_and_those_of_later_chunks(tmp_path: Path) -> None:
    fake = FakeList(crowd(2500))
    fill(fake, 7, SHOP, CLUB)

    async def look(session: Session) -> None:
        news, shop = build_bases(session, SHOP)
        wants = [build_want(news, *many(news_row)), build_want(shop, *many("ann2@x.org"))]
        await news.account.learn(wants)
        assert all(wanted.base.covers(wanted.planned) for wanted in wants)
        asked, pages = len(fake.asked), fake.pages
        assert pages == 1 + 5  # a page of the list's head, and one sweep
        club = BasePresence(open_other_base(session, CLUB), news.account)
        later = [build_want(club, *many("ann3@x.org")), build_want(shop, "ann2@x.org")]
        await news.account.learn(later)
        assert all(want.base.covers(want.planned) for want in later)
        assert len(fake.asked) == asked
        for presence, own, other in ((news, 50_001, None), (shop, None, 50_002)):
            assert read_recorded(presence.session.journal, "ann1@x.org", "ann2@x.org") == [own, other]
        assert read_recorded(club.session.journal, "ann3@x.org") == [50_003]

    news_row = "ann1@x.org"
    look_at_fake(fake, tmp_path, look)


def many(*texts: str) -> Sequence[str]:
    """Return so many keys that a sweep is cheaper than filters."""
    return [*texts, *(f"new{number}@x.org" for number in range(10))]


def test_a_few_keys_in_many_bases_cost_no_more_than_a_sweep(tmp_path: Path) -> None:
    fake = FakeList(crowd(9_500))

    async def look(session: Session) -> None:
        bases = build_bases(session, *range(100, 130))
        await bases[0].account.learn([build_want(base, "new1@x.org") for base in bases])

    look_at_fake(fake, tmp_path, look)
    assert fake.pages == 1 + 12  # a page of the list's head, and one sweep
    assert (
        sum(query.email is not None for query in fake.asked) <= 20
    )  # look-ups of subscribers that the sweep did not show


def test_a_base_that_the_list_hides_is_read_separately(tmp_path: Path) -> None:
    fake = FakeList(crowd(50), hidden_bases=frozenset({SHOP}))
    fill(fake, 7, SHOP)

    async def look(session: Session) -> None:
        news, shop = build_bases(session, SHOP)
        wants = [build_want(news, "ann1@x.org"), build_want(shop, "ann2@x.org", "bob@x.org")]
        await news.account.learn(wants)
        assert all(asked.base.covers(asked.planned) for asked in wants)
        assert read_recorded(shop.session.journal, "ann2@x.org", "bob@x.org") == [50_002, None]
        assert "shows no subscribers of the base 8 unless a request asks for them" in session.tally.messages[0]

    look_at_fake(fake, tmp_path, look)


def test_an_expired_listing_is_read_on_for_all_its_bases_together(tmp_path: Path) -> None:
    fake, time = FakeList(crowd(2500)), VirtualTime()
    fill(fake, 7, SHOP)

    async def look(session: Session) -> None:
        news, shop = build_bases(session, SHOP)
        chunks = [build_want(base, *many()) for base in (news, shop)]
        await news.account.learn(chunks)
        time.now += 100
        assert not any(chunk.base.covers(chunk.planned) for chunk in chunks)
        fake.add(60_000, "new1@x.org", base={"Id": SHOP, "Name": "Base 8"})
        asked = len(fake.asked)
        await news.account.learn(chunks)
        assert all(part.base.covers(part.planned) for part in chunks)
        assert len(fake.asked) == asked + 2
        assert read_recorded(shop.session.journal, "new1@x.org") == [60_000]
        assert read_recorded(news.session.journal, "new1@x.org") == [None]

    look_at_fake(fake, tmp_path, look, time=time, fresh_s=60.0)


def test_a_list_that_has_grown_before_its_end_is_read_again_in_full(tmp_path: Path) -> None:
    fake, time = FakeList(crowd(2500, 100)), VirtualTime()
    fill(fake, 7)

    async def look(session: Session) -> None:
        (news,) = build_bases(session)
        wanted = build_want(news, *many())
        await news.account.learn([wanted])
        time.now += 100
        fake.add(60_000, "new1@x.org")
        fake.people.insert(0, {"Id": 5, "Base": {"Id": 7, "Name": "News"}, "Email": "new2@x.org", "ClientUserId": ""})
        await news.account.learn([wanted])
        assert news.covers(wanted.planned)
        assert read_recorded(news.session.journal, "new1@x.org", "new2@x.org") == [60_000, 5]

    look_at_fake(fake, tmp_path, look, time=time, fresh_s=60.0)


def test_a_list_whose_total_count_is_beyond_its_last_row_is_read_again_in_full(tmp_path: Path) -> None:
    fake, time = FakeList(crowd(2500)), VirtualTime()
    fill(fake, 7)

    async def look(session: Session) -> None:
        (news,) = build_bases(session)
        wanted = build_want(news, *many())
        await news.account.learn([wanted])
        time.now += 100
        asked = len(fake.asked)
        fake.count = lambda number: number + 5 if len(fake.asked) < asked + 3 else number
        await news.account.learn([wanted])
        assert news.covers(wanted.planned)
        assert len(fake.asked) > asked + 4

    look_at_fake(fake, tmp_path, look, time=time, fresh_s=60.0)


def test_a_base_whose_subscribers_have_no_email_is_not_hidden(tmp_path: Path) -> None:
    fake = FakeList(crowd(50))
    fake.add(51, client="c51", base={"Id": SHOP, "Name": "Base 8"})

    async def look(session: Session) -> None:
        (shop,) = build_bases(open_other_base(session, SHOP))
        wanted = build_want(shop, "bob@x.org")
        await shop.account.learn([wanted])
        assert shop.covers(wanted.planned)

    look_at_fake(fake, tmp_path, look)
    assert all(query.base_id is None for query in fake.asked)


def test_a_base_that_is_filled_during_the_run_is_not_hidden(tmp_path: Path) -> None:
    fake, time = FakeList(crowd(2500)), VirtualTime()

    async def look(session: Session) -> None:
        news, shop = build_bases(session, SHOP)
        chunks = [build_want(base, *many()) for base in (news, shop)]
        await news.account.learn(chunks)
        fake.add(60_000, "new1@x.org", base={"Id": SHOP, "Name": "Base 8"})
        time.now += 100
        await news.account.learn(chunks)
        assert all(chunk.base.covers(chunk.planned) for chunk in chunks)
        assert session.tally.messages == []

    look_at_fake(fake, tmp_path, look, time=time, fresh_s=60.0)


@pytest.mark.parametrize("is_readable", [True, False])
def test_an_incomplete_listing_is_recorded_only_for_a_known_account(tmp_path: Path, is_readable: bool) -> None:
    fake = FakeList(crowd(2500), fake_list.ignored)
    fill(fake, 7)
    fake.arrange = lambda people: random.Random(len(fake.asked)).sample(people, len(people))

    async def look(session: Session) -> list[int | None]:
        session.access.unverified_entries = () if is_readable else (ConfirmedEntry(b"n" * 16, 999, None),)
        (news,) = build_bases(session)
        with pytest.raises(RunAborted, match="could not be read whole"):
            await news.account.learn([build_want(news, "ann1@x.org", "bob@x.org")])
        return read_recorded(session.journal, "ann1@x.org")

    assert look_at_fake(fake, tmp_path, look) == [50_001 if is_readable else None]


def test_a_look_up_may_be_relied_on_from_its_beginning() -> None:
    policy = LoadPolicy(fresh_s=60.0)
    assert policy.known_until(100.0, 159.0) == 160.0
    with pytest.raises(RunAborted, match=r"longer than load\.fresh"):
        policy.known_until(100.0, 160.0)
