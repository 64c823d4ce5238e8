"""Look-ups by filters: a stopped run, the messages, and the requests."""

from dataclasses import replace
from pathlib import Path

import pytest

from connector.listing.lookup import look_up_by_filters
from connector.listing.pages import ListFailed
from connector.load.session import Session
from connector.service.wire import ListQuery, Refused
from tests.load.looks.fake_list import FakeList, build_other_people
from tests.load.sessions import build_key, build_sentinel, run_with_fake


def test_messages_contain_no_email(tmp_path: Path) -> None:
    fake_list = FakeList(
        build_other_people(5), choose_answer=lambda query: Refused(403, "no") if query.email == "ann@x.org" else None
    )

    async def check_messages(session: Session) -> None:
        with pytest.raises(ListFailed) as error_info:
            await look_up_by_filters(session.access, [build_key("ann@x.org")])
        messages = f"{error_info.value} {session.stop.activity} {build_key('ann@x.org')!r} {session.access.state!r}"
        messages += repr(session.access.sentinels)
        assert "@" not in messages
        assert session.stop.activity == "looking for 1 subscriber by the list's filters"

    run_with_fake(fake_list, tmp_path, check_messages, sentinels=(build_sentinel(940.0, 100, "wit@x.org"),))


def test_each_request_has_at_most_one_filter(tmp_path: Path) -> None:
    fake_list = FakeList(build_other_people(5))
    sentinels = (build_sentinel(940.0, 100, "wit@x.org"),)
    run_with_fake(
        fake_list,
        tmp_path,
        lambda session: look_up_by_filters(session.access, [build_key("ann@x.org")]),
        sentinels=sentinels,
    )
    for query in fake_list.queries:
        filter_query = replace(query, limit=ListQuery().limit)
        assert filter_query in (ListQuery(), ListQuery(email=query.email), ListQuery(id=query.id))
