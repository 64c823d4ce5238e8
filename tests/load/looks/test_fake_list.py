"""The fake list answers as the sandbox does."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from connector.load.session import Session
from connector.sandbox import SandboxProcess
from connector.service.wire import ListPage, ListQuery
from tests.load.looks.fake_list import MATCHES, FakeList
from tests.load.sessions import run_with_sandbox
from tests.sandbox.calls import Calls

EMAILS = ("ann@x.org", "Ann@X.org", "joann@x.org", "a+b@x.org", "jörg@x.org", "o'neil%2b@x.org")
QUERIES = (
    *(ListQuery(email=text) for text in (*EMAILS, "ANN@X.ORG", "nobody@x.org")),
    ListQuery(client_user_id="C1"),
    ListQuery(client_user_id="c2"),
    ListQuery(),
    ListQuery(limit=2),
    ListQuery(offset=4, limit=2),
    ListQuery(offset=9, limit=2),
)


def describe(page: object) -> tuple[object, ...]:
    assert isinstance(page, ListPage)
    rows = [(row["Id"], row["Base"]["Id"], row["Email"], row["ClientUserId"]) for row in page.subscribers]
    return rows, page.total_count, page.offset, page.limit


@pytest.mark.parametrize("filters", ["exact", "icase", "partial", "ignored"])
def test_the_fake_list_answers_as_the_sandbox_does(sandbox: SandboxProcess, tmp_path: Path, filters: str) -> None:
    sandbox.switch(filters=filters)
    fake = FakeList(text_match=MATCHES[filters])
    for number, email in enumerate(EMAILS):
        subscriber = Calls(sandbox).create(email, base={"Id": 7}, ClientUserId=f"C{number}").json["Subscriber"]
        fake.add(subscriber["Id"], email, client=f"C{number}")
    queries = (*QUERIES, ListQuery(id=fake.people[2]["Id"])) if filters != "ignored" else QUERIES

    async def ask(session: Session) -> Sequence[object]:
        return [describe(await session.access.client.list_subscribers(query)) for query in queries]

    async def ask_fake() -> Sequence[object]:
        return [describe(await fake.list_subscribers(query)) for query in queries]

    assert asyncio.run(ask_fake()) == run_with_sandbox(sandbox, tmp_path, ask)
