"""How the filters of a filtered reading behave is tried and recorded; one that misses who is there is no proof."""

from collections.abc import Callable
from typing import Any

import pytest

from connector.paging import Certificate, Reason
from connector.sandbox import SandboxProcess
from connector.service import ListQuery
from tests.export.exports import create, read
from tests.export.test_odd_lists import IDS, Page, Serve, read_from

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
        ({"email": "bo+x@example.com"}, "exact", "by_case"),
        ({"email": "bo-x%@example.com"}, "icase", "untold"),  # nobody is spelt so
        ({"email": "nobody@example.com"}, "ignored", "ignored"),
        ({"base_id": 7}, "exact", "exact"),
        ({"base_id": 7}, "ignored", "ignored"),
        ({"id": 1}, "exact", "exact"),
        ({"is_active": True}, "exact", "exact"),
        ({"is_active": False}, "exact", "exact"),
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
    assert certificate.filters["sent"] == (next(iter(asked)) if control in ("exact", "partial") else None)
    assert sandbox.stats()["requests"]["list"]["received"] - before - certificate.pages <= 1 + 5


def test_several_filters_are_tried_one_by_one(sandbox: SandboxProcess) -> None:
    create(sandbox, *PEOPLE)

    certificate, _ = read(sandbox, ListQuery(base_id=7, first_name="Ann"))

    assert certificate.filters["controls"] == {"base_id": "exact", "first_name": "exact"}
    assert certificate.filters["sent"] == "first_name"


def test_without_thoroughness_nothing_is_tried(sandbox: SandboxProcess) -> None:
    create(sandbox, *PEOPLE)

    certificate, _ = read(sandbox, ListQuery(base_id=7), is_thorough=False)

    assert set(certificate.filters) == {"asked", "dropped"}


def list_by(filters_of: Callable[[dict[str, str]], Callable[[dict[str, Any]], bool]]) -> Serve:
    """A service of 250 people, of whom each request shows those that its filters let through."""
    people = [
        {"Id": each, "Email": f"p{each}@x.org", "IsActive": each % 2 == 0, "Base": {"Id": 7 + each % 3}} for each in IDS
    ]
    people[40]["Email"] = "p+40@x.org"

    def serve(offset: int, limit: int, filters: dict[str, str]) -> Page:
        lets_through = filters_of(filters)
        rows = [each for each in people if lets_through(each)]
        return {
            "TotalCount": len(rows),
            "Offset": offset,
            "Limit": limit,
            "Subscribers": rows[offset : offset + limit],
        }

    return serve


def read_ids(serve: Serve, query: ListQuery) -> tuple[Certificate, list[int]]:
    certificate, collector = read_from(serve, query)
    return certificate, collector.ids


def test_a_filter_that_does_not_find_who_is_there_is_not_asked_by() -> None:
    finding_nobody = list_by(lambda filters: lambda _each: "Email" not in filters)

    certificate, ids = read_ids(finding_nobody, ListQuery(limit=100, email="p5@x.org"))

    assert (certificate.is_complete, ids) == (True, [5])
    assert certificate.filters == {
        "asked": {"email": "p5@x.org"},
        "dropped": 249,
        "controls": {"email": "broken"},
        "sent": None,
    }


def test_what_is_known_of_one_class_of_values_is_not_believed_of_another() -> None:
    """A service that takes a plus in a query for a blank: whoever has one is found by no filter."""

    def by_plain_email(filters: dict[str, str]) -> Callable[[dict[str, Any]], bool]:
        asked = filters.get("Email", "").lower().replace("+", " ")
        return lambda each: not asked or each["Email"].lower() == asked

    certificate, ids = read_ids(list_by(by_plain_email), ListQuery(limit=100, email="p+40@x.org"))
    assert (certificate.is_complete, ids, certificate.filters["sent"]) == (True, [41], None)

    certificate, ids = read_ids(list_by(by_plain_email), ListQuery(limit=100, email="p5@x.org"))
    assert (certificate.is_complete, ids, certificate.filters["sent"]) == (True, [5], "email")


def test_a_value_of_a_flag_speaks_for_itself_alone() -> None:
    """A service that takes IsActive=0 for no filter at all, and IsActive=1 for one that nobody meets."""
    serve = list_by(lambda filters: lambda _each: filters.get("IsActive") != "1")

    certificate, ids = read_ids(serve, ListQuery(limit=100, is_active=True))

    assert (certificate.is_complete, ids) == (True, [each for each in IDS if each % 2 == 0])
    assert certificate.filters["controls"] == {"is_active": "broken"}


def test_who_is_shown_without_the_filter_must_be_shown_with_it() -> None:
    """The trial's pages look right; the reading by BaseId leaves out one of those whom the list's head shows."""

    def by_base(filters: dict[str, str]) -> Callable[[dict[str, Any]], bool]:
        asked = int(filters.get("BaseId", 0))
        return lambda each: not asked or (each["Base"]["Id"] == asked and each["Id"] != 9)

    certificate, ids = read_ids(list_by(by_base), ListQuery(limit=50, base_id=7))

    assert (certificate.verdict, certificate.reason) == ("incomplete", Reason.FILTER)
    assert (certificate.filters["missed"], 9 in ids) == (1, False)


def test_several_filters_are_asked_one_at_most_at_a_time() -> None:
    asked_by = list[set[str]]()

    def count(filters: dict[str, str]) -> Callable[[dict[str, Any]], bool]:
        asked_by.append(set(filters))
        return lambda each: filters.get("BaseId") in (None, str(each["Base"]["Id"]))

    certificate, ids = read_ids(list_by(count), ListQuery(limit=100, base_id=7, is_active=False))

    assert certificate.is_complete
    assert ids == [each for each in IDS if each % 3 == 0 and each % 2]
    assert all(len(each) <= 1 for each in asked_by)
