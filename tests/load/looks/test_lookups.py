"""A single look-up by a filter, several look-ups at the same time, and pages at which the service always fails."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from connector.errors import RunAborted
from connector.listing.pages import ListFailed, try_fetch_page
from connector.listing.requests import AnswerRows, look_up, look_up_together, request_rows
from connector.load.session import Session
from connector.service.wire import AmbiguousResult, ListPage, ListQuery, NotSent, Refused
from tests.load.looks.fake_list import Answer, FakeList, build_other_people
from tests.load.sessions import run_with_fake_list

ANN, BOB = {"Id": 1, "Email": "ann@x.org"}, {"Id": 2, "Email": "bob@x.org"}


def look_up_once(answer: Answer, folder: Path) -> AnswerRows:
    return run_with_fake_list(
        FakeList(choose_answer=lambda query: answer),
        folder,
        lambda session: request_rows(session.list_access, ListQuery(email="ann@x.org")),
    )


@pytest.mark.parametrize(
    ("page", "has_all_matches"),
    [
        (ListPage([ANN], 1, 0, 1000), True),
        (ListPage([], 0, 0, 1000), True),
        (ListPage([ANN, BOB], 2, 0, 3), True),
        (ListPage([ANN, BOB], 2, 0, 2), False),  # the page is full, so there may be more rows
        (ListPage([ANN], 2, 0, 1000), False),
        (ListPage([], 1, 0, 1000), False),
        (ListPage([ANN], 0, 0, 1000), False),
        (ListPage([ANN], None, 0, 1000), False),
        (ListPage([], None, 0, 1000), False),
        (ListPage([ANN], 1, 0, None), False),
        (ListPage([], 0, 0, 0), False),
        (ListPage([ANN, ANN], 2, 0, 1000), False),  # one subscriber is listed twice, and another is missing
    ],
)
def test_an_answer_is_complete_if_its_rows_agree_with_total_count_and_limit(
    page: ListPage, has_all_matches: bool, tmp_path: Path
) -> None:
    assert look_up_once(page, tmp_path).has_all_matches is has_all_matches


@pytest.mark.parametrize("status", [400, 422])
def test_a_look_up_of_a_text_that_the_service_refuses_is_incomplete(status: int, tmp_path: Path) -> None:
    assert look_up_once(Refused(status, "no such address"), tmp_path) == AnswerRows((), has_all_matches=False)


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        *((Refused(status, "no"), status) for status in (401, 404, 429)),
        (AmbiguousResult(500, "broken"), 500),
        (NotSent("no route"), None),
    ],
)
def test_a_look_up_fails_on_an_error_that_the_looked_up_text_did_not_cause(
    answer: Answer, status: int | None, tmp_path: Path
) -> None:
    with pytest.raises(ListFailed) as error_info:
        look_up_once(answer, tmp_path)
    assert error_info.value.status == status


def test_a_look_up_fails_on_a_row_without_an_id(tmp_path: Path) -> None:
    with pytest.raises(ListFailed, match="whole number"):
        look_up_once(ListPage([{"Email": "ann@x.org"}], 1, 0, 1000), tmp_path)


@pytest.mark.parametrize(("max_concurrency", "max_in_flight_count"), [(64, 16), (3, 3)])
def test_look_ups_in_flight_are_limited_to_16_and_to_max_concurrency(
    max_concurrency: int, max_in_flight_count: int, tmp_path: Path
) -> None:
    fake_list = FakeList()
    for index in range(100):
        fake_list.add(index, f"p{index}@x.org")

    async def look_up_all(session: Session) -> list[AnswerRows]:
        return await look_up_together(
            session.list_access,
            [partial(look_up, session.list_access, "email", f"p{index}@x.org") for index in range(100)],
        )

    answers = run_with_fake_list(fake_list, tmp_path, look_up_all, max_concurrency=max_concurrency)
    assert fake_list.max_in_flight_count == max_in_flight_count
    assert [row["Id"] for answer in answers for row in answer.rows] == list(range(100))


def test_the_first_failure_ends_all_look_ups(tmp_path: Path) -> None:
    fake_list = FakeList(choose_answer=lambda query: Refused(403, "no") if len(fake_list.queries) == 20 else None)

    async def look_up_all(session: Session) -> None:
        earlier_tasks = asyncio.all_tasks()
        with pytest.raises(ListFailed, match="403"):
            await look_up_together(
                session.list_access, [partial(look_up, session.list_access, "email", "x@x.org")] * 500
            )
        assert asyncio.all_tasks() == earlier_tasks

    run_with_fake_list(fake_list, tmp_path, look_up_all)
    assert len(fake_list.queries) < 60
    assert fake_list.in_flight_count == 0


def test_after_a_429_fewer_look_ups_are_sent_at_the_same_time(tmp_path: Path) -> None:
    fake_list = FakeList(
        choose_answer=lambda query: Refused(429, "slow down") if fake_list.in_flight_count > 2 else None
    )

    async def look_up_all(session: Session) -> list[AnswerRows]:
        return await look_up_together(
            session.list_access, [partial(look_up, session.list_access, "email", "x@x.org")] * 40
        )

    assert all(result.has_all_matches for result in run_with_fake_list(fake_list, tmp_path, look_up_all))


def test_look_ups_fail_if_a_look_up_that_is_sent_alone_gets_a_429(tmp_path: Path) -> None:
    fake_list = FakeList(choose_answer=lambda query: Refused(429, "slow down"))
    with pytest.raises(ListFailed, match="429") as error_info:
        run_with_fake_list(
            fake_list,
            tmp_path,
            lambda session: look_up_together(
                session.list_access, [partial(look_up, session.list_access, "email", "x")]
            ),
        )
    assert error_info.value.status == 429


def test_a_stopped_run_cancels_hanging_look_ups(tmp_path: Path) -> None:
    async def look_up_all(session: Session) -> None:
        earlier_tasks = asyncio.all_tasks()
        never_set_event = asyncio.Event()
        look_ups_in_progress = look_up_together(session.list_access, [never_set_event.wait] * 5)
        asyncio.get_running_loop().call_soon(session.stop.event.set)
        with pytest.raises(RunAborted, match="stopped"):
            await session.stop.wait_until_stopped(look_ups_in_progress)
        assert asyncio.all_tasks() == earlier_tasks

    run_with_fake_list(FakeList(), tmp_path, look_up_all)


_GROUP_QUERY = ListQuery(is_active=False)
_REDIRECT = AmbiguousResult(307, "redirected")


def _try_page(tmp_path: Path, is_failing: Callable[[FakeList, ListQuery], bool]) -> ListPage | None:
    fake_list, pages = FakeList(build_other_people(5)), list[ListPage | None]()
    fake_list.choose_answer = lambda query: _REDIRECT if is_failing(fake_list, query) else None

    async def request_page(session: Session) -> None:
        pages.append(await try_fetch_page(session.list_access.client, session.list_access.retrier, _GROUP_QUERY))

    run_with_fake_list(fake_list, tmp_path, request_page)
    return pages[0]


def test_a_page_at_which_the_service_always_fails_is_returned_as_none(tmp_path: Path) -> None:
    assert _try_page(tmp_path, lambda fake_list, query: query == _GROUP_QUERY) is None


def test_a_page_at_which_the_service_fails_once_is_read_again(tmp_path: Path) -> None:
    page = _try_page(tmp_path, lambda fake_list, query: len(fake_list.queries) + len(fake_list.evidence_queries) == 1)
    assert page is not None
    assert len(page.subscribers) == 5


def test_an_outage_is_not_mistaken_for_a_page_at_which_the_service_fails(tmp_path: Path) -> None:
    with pytest.raises(ListFailed, match="307"):
        _try_page(tmp_path, lambda fake_list, query: True)
