"""How the filters of a filtered reading behave is tried and recorded; one that misses who is there is no proof."""

from typing import Any

import pytest

from connector.pages import Reason
from connector.protocol import ListQuery
from connector.sandbox import SandboxProcess
from tests.export.exports import create, read
from tests.export.test_odd_lists import IDS, Page, read_from

PEOPLE = (
    {"base_id": 7, "email": "ann@example.com", "first_name": "Ann", "is_active": True, "gender": "female"},
    {"base_id": 7, "email": "joann@example.com", "first_name": "Joann", "is_active": False, "gender": ""},
    {"base_id": 8, "email": "Bo+x@example.com", "first_name": "Bo", "client_user_id": "k1", "gender": "male"},
)


@pytest.mark.parametrize(
    ("asked", "filters", "control"),
    [
        ({"first_name": "Ann"}, "exact", "exact"),
        ({"first_name": "Ann"}, "partial", "partial"),
        ({"first_name": "Ann"}, "ignored", "ignored"),
        ({"email": "bo+x@example.com"}, "icase", "exact"),
        ({"email": "nobody@example.com"}, "ignored", "ignored"),
        ({"base_id": 7}, "exact", "exact"),
        ({"base_id": 7}, "ignored", "ignored"),
        ({"id": 1}, "exact", "exact"),
        ({"is_active": True}, "exact", "exact"),
        ({"is_active": True}, "ignored", "ignored"),
        ({"gender": ""}, "exact", "exact"),
        ({"gender": ""}, "ignored", "ignored"),
        ({"client_user_id": "k1"}, "exact", "exact"),
        ({"last_name": "Lee"}, "exact", "untold"),  # nobody has one
    ],
)
def test_each_filter_is_recorded_as_it_behaves(
    sandbox: SandboxProcess, asked: dict[str, Any], filters: str, control: str
) -> None:
    create(sandbox, *PEOPLE)
    sandbox.switch(filters=filters)
    before = sandbox.stats()["requests"].get("list", {"received": 0})["received"]

    certificate, _ = read(sandbox, ListQuery(**asked))

    assert certificate.is_complete
    assert certificate.filters["controls"] == dict.fromkeys(asked, control)
    assert sandbox.stats()["requests"]["list"]["received"] - before - certificate.pages <= 1 + 3


def test_several_filters_are_tried_one_by_one(sandbox: SandboxProcess) -> None:
    create(sandbox, *PEOPLE)

    certificate, _ = read(sandbox, ListQuery(base_id=7, first_name="Ann"))

    assert certificate.filters["controls"] == {"base_id": "exact", "first_name": "exact"}


def test_without_thoroughness_nothing_is_tried(sandbox: SandboxProcess) -> None:
    create(sandbox, *PEOPLE)

    certificate, _ = read(sandbox, ListQuery(base_id=7), is_thorough=False)

    assert set(certificate.filters) == {"asked", "dropped"}


def finding_nobody(offset: int, limit: int, filters: dict[str, str]) -> Page:
    """A service whose filter by email finds nobody."""
    rows = [{"Id": each, "Email": f"p{each}@x.org"} for each in ([] if "Email" in filters else IDS)]
    return {
        "TotalCount": len(rows),
        "Offset": offset,
        "Limit": limit,
        "Subscribers": rows[offset : offset + limit],
    }


def test_a_filter_that_does_not_find_who_is_there_is_broken_and_nothing_is_certified_by_it() -> None:
    certificate, _ = read_from(finding_nobody, ListQuery(limit=100, email="p5@x.org"))

    assert (certificate.verdict, certificate.reason) == ("incomplete", Reason.FILTER)
    assert certificate.filters["controls"] == {"email": "broken"}
