"""The end of a look by filters if the service or the run ends, and its messages and requests."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from connector.errors import RunAborted
from connector.listing.lookup import look_by_filter
from connector.listing.pages import ListFailed
from connector.load.session import Session
from connector.service.wire import ListQuery, Refused
from tests.load.looks.fake_list import FakeList, crowd
from tests.load.sessions import look_at_fake, sentinel, want


def test_nothing_hangs_and_nothing_is_asked_any_more_when_the_run_is_stopped(tmp_path: Path) -> None:
    fake = FakeList(crowd(5))

    async def look_and_stop(session: Session) -> None:
        fake.before = lambda query: session.control.event.set() if query.email == "p7@x.org" else None
        with pytest.raises(RunAborted, match="stopped"):
            await look_by_filter(session.access, [want(f"p{number}@x.org") for number in range(200)])
        asked = len(fake.asked)
        await asyncio.sleep(0)
        assert (len(fake.asked), fake.under_way) == (asked, 0)
        assert asked < 120

    look_at_fake(fake, tmp_path, look_and_stop)


def test_messages_name_no_subscriber(tmp_path: Path) -> None:
    fake = FakeList(crowd(5), instead=lambda query: Refused(403, "no") if query.email == "ann@x.org" else None)

    async def fail(session: Session) -> None:
        with pytest.raises(ListFailed) as failure:
            await look_by_filter(session.access, [want("ann@x.org")])
        messages = f"{failure.value} {session.control.activity} {want('ann@x.org')!r} {session.access.state!r}"
        messages += repr(session.access.sentinels)
        assert "@" not in messages
        assert session.control.activity == "looking for 1 subscriber by the list's filters"

    look_at_fake(fake, tmp_path, fail, sentinels=(sentinel(940.0, 100, "wit@x.org"),))


def test_a_query_has_one_filter_only(tmp_path: Path) -> None:
    fake = FakeList(crowd(5))
    sentinels = (sentinel(940.0, 100, "wit@x.org"),)
    look_at_fake(
        fake, tmp_path, lambda session: look_by_filter(session.access, [want("ann@x.org")]), sentinels=sentinels
    )
    for query in fake.asked:
        plain = replace(query, limit=ListQuery().limit)
        assert plain in (ListQuery(), ListQuery(email=query.email), ListQuery(id=query.id))
