"""The fake list answers as the sandbox does."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from connector.load.session import Session
from connector.sandbox import SandboxProcess
from connector.service.wire import ListPage, ListQuery
from tests.load.looks.fake_list import TEXT_MATCH_BY_FILTER_MODE, FakeList
from tests.load.sessions import run_with_sandbox
from tests.sandbox.client import SandboxClient

EMAILS = ("ann@x.org", "Ann@X.org", "joann@x.org", "a+b@x.org", "jörg@x.org", "o'neil%2b@x.org", "a&b=c/d@x.org")
QUERIES = (
    *(ListQuery(email=text) for text in (*EMAILS, "ANN@X.ORG", "nobody@x.org")),
    ListQuery(client_user_id="C1"),
    ListQuery(client_user_id="c2"),
    ListQuery(),
    ListQuery(limit=2),
    ListQuery(offset=4, limit=2),
    ListQuery(offset=9, limit=2),
)


def describe_answer(page: object) -> tuple[object, ...]:
    assert isinstance(page, ListPage)
    rows = [(row["Id"], row["Base"]["Id"], row["Email"], row["ClientUserId"]) for row in page.subscribers]
    return rows, page.total_count, page.offset, page.limit


@pytest.mark.parametrize("filters", ["exact", "icase", "partial", "ignored"])
def test_the_fake_list_answers_as_the_sandbox_does(sandbox: SandboxProcess, tmp_path: Path, filters: str) -> None:
    sandbox.switch(filters=filters)
    fake_list = FakeList(text_match=TEXT_MATCH_BY_FILTER_MODE[filters])
    for index, email in enumerate(EMAILS):
        subscriber = SandboxClient(sandbox).create(email, base={"Id": 7}, ClientUserId=f"C{index}").json["Subscriber"]
        fake_list.add(subscriber["Id"], email, client_user_id=f"C{index}")
    queries = (*QUERIES, ListQuery(id=fake_list.people[2]["Id"])) if filters != "ignored" else QUERIES

    async def request_pages(session: Session) -> Sequence[object]:
        return [describe_answer(await session.list_access.client.list_subscribers(query)) for query in queries]

    async def request_fake_pages() -> Sequence[object]:
        return [describe_answer(await fake_list.list_subscribers(query)) for query in queries]

    assert asyncio.run(request_fake_pages()) == run_with_sandbox(sandbox, tmp_path, request_pages)
