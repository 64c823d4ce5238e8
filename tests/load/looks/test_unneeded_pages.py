"""Pages that a look-up can do without, such as the page of a class. A service may fail at this page or at all pages."""

from collections.abc import Callable
from pathlib import Path

import pytest

from connector.listing.pages import ListFailed, try_page
from connector.load.session import Session
from connector.service.wire import Ambiguous, ListPage, ListQuery
from tests.load.looks.fake_list import FakeList, build_other_people
from tests.load.sessions import run_with_fake

_CLASS_QUERY = ListQuery(is_active=False)
_REDIRECT = Ambiguous(307, "redirected")


def _try_page(tmp_path: Path, is_failing: Callable[[FakeList, ListQuery], bool]) -> ListPage | None:
    fake_list, pages = FakeList(build_other_people(5)), list[ListPage | None]()
    fake_list.choose_answer = lambda query: _REDIRECT if is_failing(fake_list, query) else None

    async def request_page(session: Session) -> None:
        pages.append(await try_page(session.access.client, session.access.retrier, _CLASS_QUERY))

    run_with_fake(fake_list, tmp_path, request_page)
    return pages[0]


def test_a_page_at_which_the_service_always_fails_is_returned_as_none(tmp_path: Path) -> None:
    assert _try_page(tmp_path, lambda fake_list, query: query == _CLASS_QUERY) is None


def test_a_page_at_which_the_service_fails_once_is_read_again(tmp_path: Path) -> None:
    page = _try_page(tmp_path, lambda fake_list, query: len(fake_list.queries) + len(fake_list.evidence_queries) == 1)
    assert page is not None
    assert len(page.subscribers) == 5


def test_an_outage_is_not_mistaken_for_a_page_at_which_the_service_fails(tmp_path: Path) -> None:
    with pytest.raises(ListFailed, match="307"):
        _try_page(tmp_path, lambda fake_list, query: True)
