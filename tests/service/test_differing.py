"""What counts as a difference between a source and the list, value by value."""

import pytest

from connector.service import differing_fields


@pytest.mark.parametrize(
    ("name", "told", "listed"),
    [
        ("first_name", "Ann", "Ann"),
        ("first_name", None, None),
        ("first_name", None, ""),  # what comes back of a field that was not sent is not shown
        ("first_name", "", None),
        ("address_state", None, ""),
        ("address_line3", None, ""),
        ("gender", None, ""),
        ("gender", "", None),
        ("is_active", True, True),
        ("is_active", None, False),  # service-api.md 2.1: the default
        ("is_active", False, None),
        ("tags", None, []),
        ("tags", ["a", "b"], ["a", "b"]),
        ("address_zip", 10115, "10115"),
        ("address_zip", None, ""),
        ("address_zip", "SW1A 1AA", ""),  # it could not be sent
        ("address_zip", "SW1A 1AA", None),
        ("address_zip", "02134", "02134"),  # somebody has entered it there
        ("email", "Ann@X.org", "ann@x.org"),
        ("email", "zoe@bücher.example", "zoe@xn--bcher-kva.example"),
        ("client_user_id", "7", " 7 "),
        ("birthday", "1980-02-29", "1980-02-29"),
    ],
)
def test_the_same(name: str, told: object, listed: object) -> None:
    assert differing_fields([name], [told], [listed]) == []


@pytest.mark.parametrize(
    ("name", "told", "listed"),
    [
        ("first_name", "Ann", "ann"),
        ("first_name", "Ann", ""),
        ("first_name", None, "Ann"),
        ("first_name", "5", 5),
        ("gender", "male", ""),
        ("gender", None, "male"),
        ("is_active", True, False),
        ("is_active", True, None),
        ("is_active", None, True),
        ("is_active", True, 1),
        ("tags", ["a", "b"], ["b", "a"]),  # as in the echo of a create
        ("tags", ["a"], []),
        ("tags", None, ["a"]),
        ("address_zip", 10115, "10117"),
        ("address_zip", 10115, ""),
        ("address_zip", None, "10115"),
        ("address_zip", 2134, "02134"),
        ("address_zip", "02134", "2134"),
        ("address_zip", "SW1A 1AA", "10115"),
        ("email", "ann@x.org", "anna@x.org"),
        ("client_user_id", "a", "A"),
        ("birthday", "1980-02-29", "1980-02-28"),
        ("address_city", "Ulm", {"strange": "thing"}),
    ],
)
def test_not_the_same(name: str, told: object, listed: object) -> None:
    assert differing_fields([name], [told], [listed]) == [0]


def test_the_places_of_the_fields_that_differ_are_told() -> None:
    names, told, listed = ["first_name", "phone", "tags"], ["Ann", "+1", ["a"]], ["Anna", "+1", []]
    assert differing_fields(names, told, listed) == [0, 2]
