"""The answer of one look-up by a filter, and the number of simultaneous look-ups."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from connector.errors import RunAborted
from connector.listing.pages import ListFailed
from connector.listing.requests import AnswerRows, ask, look_up, look_up_together
from connector.load.session import Session
from connector.service.wire import Ambiguous, ListPage, ListQuery, NotSent, Refused
from tests.load.looks import fake_list
from tests.load.looks.fake_list import Answer, FakeList
from tests.load.sessions import look_at_fake

ANN, BOB = {"Id": 1, "Email": "ann@x.org"}, {"Id": 2, "Email": "bob@x.org"}


def answer_once(listed: Answer, folder: Path) -> AnswerRows:
    return look_at_fake(
        FakeList(instead=lambda query: listed),
        folder,
        lambda session: ask(session.access, ListQuery(email="ann@x.org")),
    )


@pytest.mark.parametrize(
    ("listed", "is_whole"),
    [
        (ListPage([ANN], 1, 0, 1000), True),
        (ListPage([], 0, 0, 1000), True),
        (ListPage([ANN, BOB], 2, 0, 3), True),
        (ListPage([ANN, BOB], 2, 0, 2), False),  # as many as fit: there may be more
        (ListPage([ANN], 2, 0, 1000), False),
        (ListPage([], 1, 0, 1000), False),
        (ListPage([ANN], 0, 0, 1000), False),
        (ListPage([ANN], None, 0, 1000), False),
        (ListPage([ANN], 1, 0, None), False),
        (ListPage([], 0, 0, 0), False),
        (ListPage([ANN, ANN], 2, 0, 1000), False),  # one of them stands in somebody's place
    ],
)
def test_an_answer_is_complete_if_total_count_and_limit_agree(listed: ListPage, is_whole: bool, tmp_path: Path) -> None:
    assert answer_once(listed, tmp_path).is_whole is is_whole


@pytest.mark.parametrize("status", [400, 422])
def test_a_text_that_the_service_refuses_gives_an_incomplete_answer(status: int, tmp_path: Path) -> None:
    assert answer_once(Refused(status, "no such address"), tmp_path) == AnswerRows((), is_whole=False)


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        *((Refused(status, "no"), status) for status in (401, 403, 404, 405, 429)),
        (Ambiguous(500, "broken"), 500),
        (Ambiguous(409, "conflict"), 409),
        (Ambiguous(302, "elsewhere"), 302),
        (NotSent("no route"), None),
    ],
)
def test_an_error_that_is_not_about_the_text_fails_the_look(answer: Answer, status: int | None, tmp_path: Path) -> None:
    with pytest.raises(ListFailed) as failure:
        answer_once(answer, tmp_path)
    assert failure.value.status == status


def test_a_row_without_an_id_fails(tmp_path: Path) -> None:
    with pytest.raises(ListFailed, match="whole number"):
        answer_once(ListPage([{"Email": "ann@x.org"}], 1, 0, 1000), tmp_path)


def partial_matches(number: int) -> FakeList:
    """So many people whose address ends alike, ten to a page; the last is the one looked for."""
    fake = FakeList(finds=fake_list.partial, largest_limit=10)
    for index in range(1, number):
        fake.add(index, f"p{index}.ann@x.org")
    fake.add(number, "ann@x.org")
    return fake


def test_a_match_of_several_pages_is_not_read_and_not_whole(tmp_path: Path) -> None:
    fake = partial_matches(50)
    shown = look_at_fake(fake, tmp_path, lambda session: look_up(session.access, "email", "ann@x.org"))
    assert (len(fake.asked), len(shown.rows), shown.is_whole) == (1, 10, False)


@pytest.mark.parametrize(("max_concurrency", "at_once"), [(64, 16), (3, 3)])
def test_look_ups_are_made_together_and_no_more_than_allowed(
    max_concurrency: int, at_once: int, tmp_path: Path
) -> None:
    fake = FakeList()
    for number in range(100):
        fake.add(number, f"p{number}@x.org")

    async def look(session: Session) -> list[AnswerRows]:
        return await look_up_together(
            session.access, [partial(look_up, session.access, "email", f"p{number}@x.org") for number in range(100)]
        )

    shown = look_at_fake(fake, tmp_path, look, max_concurrency=max_concurrency)
    assert fake.most_under_way == at_once
    assert [row["Id"] for page in shown for row in page.rows] == list(range(100))


def test_the_first_failure_ends_all(tmp_path: Path) -> None:
    fake = FakeList(instead=lambda query: Refused(403, "no") if len(fake.asked) == 20 else None)

    async def look(session: Session) -> None:
        with pytest.raises(ListFailed, match="403"):
            await look_up_together(session.access, [partial(look_up, session.access, "email", "x@x.org")] * 500)
        assert len(asyncio.all_tasks()) == 2  # this one, and the one that waits for it

    look_at_fake(fake, tmp_path, look)
    assert len(fake.asked) < 60
    assert fake.under_way == 0


def test_those_refused_for_their_rate_are_made_again_fewer_at_a_time(tmp_path: Path) -> None:
    fake = FakeList(instead=lambda query: Refused(429, "slow down") if fake.under_way > 2 else None)

    async def look(session: Session) -> list[AnswerRows]:
        return await look_up_together(session.access, [partial(look_up, session.access, "email", "x@x.org")] * 40)

    assert all(result.is_whole for result in look_at_fake(fake, tmp_path, look))


def test_look_ups_continue_one_at_a_time_while_some_are_answered(tmp_path: Path) -> None:
    def refuse_most(_query: ListQuery) -> Refused | None:
        return Refused(429, "slow down") if fake.under_way > 1 or len(fake.asked) % 3 else None

    fake = FakeList(instead=refuse_most)

    async def look(session: Session) -> list[AnswerRows]:
        return await look_up_together(session.access, [partial(look_up, session.access, "email", "x@x.org")] * 10)

    assert len(look_at_fake(fake, tmp_path, look)) == 10


def test_a_service_that_refuses_even_one_at_a_time_fails(tmp_path: Path) -> None:
    fake = FakeList(instead=lambda query: Refused(429, "slow down"))
    with pytest.raises(ListFailed, match="429") as failure:
        look_at_fake(
            fake,
            tmp_path,
            lambda session: look_up_together(session.access, [partial(look_up, session.access, "email", "x")]),
        )
    assert failure.value.status == 429


def test_nothing_hangs_when_the_run_is_stopped(tmp_path: Path) -> None:
    async def look(session: Session) -> None:
        hanging = asyncio.Event()
        looks = look_up_together(session.access, [hanging.wait] * 5)
        asyncio.get_running_loop().call_soon(session.control.event.set)
        with pytest.raises(RunAborted, match="stopped"):
            await session.control.until_stopped(looks)
        assert len(asyncio.all_tasks()) == 2

    look_at_fake(FakeList(), tmp_path, look)
