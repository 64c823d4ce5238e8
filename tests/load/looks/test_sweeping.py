"""A sweep of the whole list: the keys that the sweep finds and misses, and the knowledge that it keeps."""

import random
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from connector.errors import ConfigurationError, RunAborted
from connector.ledger.entries import ConfirmedEntry
from connector.listing.access import KeyGroup, LookupKey, LookupResult
from connector.listing.base_list import EmptiedError, Listing, list_account, record_base, sweep_for
from connector.listing.pages import ListFailed
from connector.load.session import Session
from connector.service.wire import Ambiguous, ListQuery
from connector.subscribers.identity import classify, digest_identity
from tests.load.looks.fake_list import FakeList, crowd
from tests.load.sessions import identity, look_at_fake, read_recorded, sentinel, want


def sweep(fake: FakeList, folder: Path, *texts: str, **options: Any) -> LookupResult:
    return look_at_fake(fake, folder, lambda session: sweep_in(session, [want(text) for text in texts]), **options)


def shuffled(fake: FakeList) -> None:
    fake.arrange = lambda people: random.Random(len(fake.asked)).sample(people, len(people))


def test_a_complete_sweep_decides_every_key_with_its_ids(tmp_path: Path) -> None:
    fake = FakeList(crowd(3000))
    for subscriber_id, email, base in ((5002, "Ann@X.org", 7), (5001, "ann@x.org", 7), (5003, "bob@x.org", 8)):
        fake.add(subscriber_id, email, base={"Id": base, "Name": "b"})
    result = sweep(fake, tmp_path, "ann@x.org", "bob@x.org")
    assert result.found_ids == {identity("ann@x.org"): (5001, 5002)}
    assert result.absent_identities == {identity("bob@x.org")}


def test_a_listing_keeps_the_rows_of_its_keys_for_a_comparison(tmp_path: Path) -> None:
    fake = FakeList(crowd(3000))
    fake.add(5001, "ann@x.org")

    async def look(session: Session) -> list[object]:
        await list_account([session.access], [want("ann@x.org")])
        rows = [session.access.state.shown_subscribers.read(subscriber_id) for subscriber_id in (5001, 7)]
        return [row and row["Email"] for row in rows]

    assert look_at_fake(fake, tmp_path, look) == ["ann@x.org", None]


def test_an_incomplete_sweep_finds_and_misses_no_key(tmp_path: Path) -> None:
    fake = FakeList(crowd(60), largest_limit=10)
    fake.add(5001, "ann@x.org")
    shuffled(fake)
    result = sweep(fake, tmp_path, "ann@x.org", "bob@x.org", sentinels=(sentinel(900.0, 77, "w@x.org"),))
    assert set(result.found_ids) <= {identity("ann@x.org")}
    assert (set(result.absent_identities), result.lag_s) == (set(), 0.0)


def test_identities_of_two_fields_are_looked_for_in_one_sweep(tmp_path: Path) -> None:
    fake = FakeList(crowd(5))
    fake.add(50, "ann@x.org", client="k50")
    wanted = [want("k50", "client_user_id"), want("ann@x.org"), want("k9", "client_user_id")]
    result = look_at_fake(fake, tmp_path, lambda session: sweep_in(session, wanted))
    assert set(result.found_ids) == {wanted[0].identity, wanted[1].identity}
    assert result.absent_identities == {wanted[2].identity}


def test_witnesses_tell_how_late_the_list_is(tmp_path: Path) -> None:
    fake = FakeList(crowd(5))
    fake.add(50, "w@x.org", base={"Id": 9, "Name": "elsewhere"})
    sentinels = (sentinel(900.0, 50, "w@x.org"), sentinel(950.0, 51, "v@x.org"))
    result = sweep(fake, tmp_path, "bob@x.org", sentinels=sentinels)
    assert (result.latest_seen_at, result.lag_s, result.started_at) == (900.0, 50.0, 1000.0)


def test_a_witness_on_a_later_page_counts_once_the_sweep_before_had_shown_it(tmp_path: Path) -> None:
    fake = FakeList(crowd(3000))
    fake.add(5000, "w@x.org")

    async def sweep_twice(session: Session) -> list[float]:
        return [(await sweep_in(session, [want("bob@x.org")])).latest_seen_at for _ in range(2)]

    sentinels = (sentinel(900.0, 5000, "w@x.org"),)
    assert look_at_fake(fake, tmp_path, sweep_twice, sentinels=sentinels) == [float("-inf"), 900.0]


def test_a_sentinel_that_appears_during_a_sweep_proves_no_absence(tmp_path: Path) -> None:
    """The service begins to show both once the page of the first has been read, the second one, which is not looked at
    again; as many vanish, one of them before it, so that neither ranks nor TotalCount tell of it."""
    fake = FakeList([email for email in crowd(3000) if email["Id"] != 1200])

    def show_late(query: ListQuery) -> None:
        if query.offset > 1500 and fake.people[3]["Id"] == 4:
            fake.add(1200, "lost@x.org")
            fake.add(5000, "w@x.org")
            fake.people = sorted(
                (p for p in fake.people if p["Id"] not in (4, 2950)), key=lambda person: int(person["Id"])
            )

    fake.before = show_late
    result = sweep(fake, tmp_path, "lost@x.org", sentinels=(sentinel(900.0, 5000, "w@x.org"),))
    assert not result.absent_identities  # the id of the first one exists, and no page showed the id


def test_a_sweep_keeps_the_length_of_the_list_its_requests_and_samples_of_the_classes(tmp_path: Path) -> None:
    fake = FakeList([*crowd(3000), *crowd(1, 5000, "p+{}@x.org")])

    async def look(session: Session) -> None:
        await sweep_in(session, [want("bob@x.org")])
        state = session.access.state
        assert state.stats is not None
        assert (state.stats.total, state.stats.request_count) == (3001, len(fake.asked))
        assert [sample.text for sample in state.stats.samples[classify("email", "a+b@x.org")]] == ["p+5000@x.org"]
        assert len(state.stats.samples[classify("email", "a@x.org")]) == 3
        assert not state.is_list_unreadable
        fake.largest_limit = 200
        shuffled(fake)
        await sweep_in(session, [want("bob@x.org")])
        assert session.access.state.is_list_unreadable

    look_at_fake(fake, tmp_path, look)


def test_only_the_last_sweep_of_a_look_shows_a_witness(tmp_path: Path) -> None:
    """Two sweeps must agree, and the sentinel is gone after the first: there are three."""
    fake = FakeList(crowd(100), arrange=lambda people: sorted(people, key=lambda person: str(person["Email"])))
    fake.add(500, "w@x.org")
    fake.largest_limit = 60

    def vanish(query: ListQuery) -> None:
        if len(fake.asked) == 4:
            fake.people.pop()

    fake.before = vanish

    result = sweep(fake, tmp_path, "bob@x.org", sentinels=(sentinel(900.0, 500, "w@x.org"),))

    assert result.absent_identities
    assert (result.latest_seen_at, result.lag_s) == (float("-inf"), 100.0)


async def sweep_in(session: Session, keys: Sequence[LookupKey]) -> LookupResult:
    (result,) = await sweep_for([KeyGroup(session.access, keys)])
    return result


async def list_base(session: Session) -> tuple[Listing, int]:
    listed = await list_account([session.access])
    return listed, (await record_base(session.access, listed.rows)).doubled_count


def listing(fake: FakeList, folder: Path, *texts: str, **options: Any) -> tuple[Listing, int, list[int | None]]:
    async def look(session: Session) -> tuple[Listing, int, list[int | None]]:
        listed, recorded = await list_base(session)
        return listed, recorded, read_recorded(session.journal, *texts)

    return look_at_fake(fake, folder, look, **options)


def test_a_listing_records_exactly_the_subscribers_of_the_base(tmp_path: Path) -> None:
    fake = FakeList(crowd(5))
    fake.add(51, "Ann@x.org")
    fake.add(52, "bob@x.org", base={"Id": 8, "Name": "Shop"})
    listed, doubled, recorded = listing(fake, tmp_path, "ann@x.org", "bob@x.org", "p1@crowd.org")
    assert recorded == [51, None, None]
    assert (listed.is_complete, doubled) == (True, 0)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_listing_without_a_known_subscriber_is_refused_and_records_nothing(tmp_path: Path, is_there: bool) -> None:
    """The known have to be there under their ids; somebody else under the same one is not them."""
    fake = FakeList(crowd(5))
    fake.add(51, "ann@x.org" if is_there else "other@x.org")
    known = ConfirmedEntry(digest_identity("email", "Ann@x.org"), 51, None)

    async def look(session: Session) -> list[int | None]:
        session.access.unverified_entries = (known, ConfirmedEntry(b"n" * 16, 999, None))
        with nullcontext() if is_there else pytest.raises(EmptiedError):
            await list_base(session)
        return read_recorded(session.journal, "ann@x.org", "other@x.org")

    assert look_at_fake(fake, tmp_path, look) == [51 if is_there else None, None]


@pytest.mark.parametrize("is_by_email", [False, True])
def test_a_listing_counts_the_identities_that_the_base_has_more_than_once(tmp_path: Path, is_by_email: bool) -> None:
    fake = FakeList(crowd(3000))
    for number, email in enumerate(("a@x.org", "A@x.org", "a@X.org", "b@x.org", "b@x.org", "c@x.org")):
        fake.add(5000 + number, email)
    fake.add(6000, "c@x.org", base={"Id": 8, "Name": "Shop"})
    if is_by_email:  # two sweeps: nobody is twice for that
        fake.arrange = lambda people: sorted(people, key=lambda person: (person["Email"].lower(), person["Id"]))
    listed, doubled, recorded = listing(fake, tmp_path, "a@x.org", "b@x.org", "c@x.org")
    assert (listed.certificate.sweeps, doubled) == (2 if is_by_email else 1, 2)
    assert None not in recorded


def test_a_listing_learns_the_base_by_its_name(tmp_path: Path) -> None:
    fake = FakeList(crowd(5))
    fake.add(51, "ann@x.org")

    async def look(session: Session) -> None:
        await list_base(session)
        assert (session.journal.base.service_id, session.journal.base.name) == (7, "News")
        assert read_recorded(session.journal, "ann@x.org") == [51]

    look_at_fake(fake, tmp_path, look, base_id=None, name="News")


def test_a_name_that_two_bases_bear_ends_the_run(tmp_path: Path) -> None:
    fake = FakeList(crowd(5))
    fake.add(51, "ann@x.org")
    fake.add(52, "bob@x.org", base={"Id": 8, "Name": "News"})
    with pytest.raises(ConfigurationError, match=r"several bases are called News \(ids 7, 8\)"):
        sweep(fake, tmp_path, "ann@x.org", base_id=None, name="News")


def test_a_base_that_bears_another_name_now_ends_the_run(tmp_path: Path) -> None:
    fake = FakeList(crowd(5))
    fake.add(51, "ann@x.org", base={"Id": 7, "Name": "Old news"})
    with pytest.raises(RunAborted, match="no longer called News"):
        sweep(fake, tmp_path, "ann@x.org", name="News")


def test_a_list_that_the_service_refuses_ends_the_look(tmp_path: Path) -> None:
    with pytest.raises(ListFailed):
        sweep(FakeList(instead=lambda query: Ambiguous(500, "broken")), tmp_path, "ann@x.org")


def test_a_stopped_run_sweeps_no_further(tmp_path: Path) -> None:
    fake = FakeList(crowd(500), largest_limit=10)

    async def look(session: Session) -> None:
        fake.before = lambda query: session.control.event.set() if len(fake.asked) == 5 else None
        with pytest.raises(RunAborted, match="stopped"):
            await sweep_in(session, [want("ann@x.org")])

    look_at_fake(fake, tmp_path, look)
    assert len(fake.asked) < 15
