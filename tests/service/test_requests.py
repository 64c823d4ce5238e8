"""The three requests, as service-api.md 4.1 to 4.3 writes them."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from connector.errors import ConfigurationError
from connector.service import ListQuery, Request, build_create, build_list, build_send

PATH = "/api/subscribers/subscribers-list/"
NUMBERS = ("offset", "limit", "id", "base_id")
TEXTS = ("client_user_id", "email", "first_name", "last_name")


def test_a_create_posts_its_body() -> None:
    assert build_create(b"{}") == Request("create", "POST", "/api/subscribers/create-subscriber/", (), b"{}")


def test_a_send_posts_its_body() -> None:
    assert build_send(b"{}") == Request("send", "POST", "/api/emails/send-instant-email/", (), b"{}")


def test_a_plain_list_says_its_offset_and_limit_and_has_no_body() -> None:
    assert build_list(ListQuery()) == Request("list", "GET", PATH, (("offset", "0"), ("limit", "1000")), None)


def test_all_ten_parameters_have_the_names_and_forms_of_the_document() -> None:
    query = ListQuery(
        offset=5,
        limit=50,
        id=3,
        base_id=7,
        client_user_id="C/1 ü",
        email="a+b@example.com",
        is_active=True,
        first_name="Ann",
        last_name="Lee",
        gender="female",
    )
    assert build_list(query).query == (
        ("offset", "5"),
        ("limit", "50"),
        ("Id", "3"),
        ("BaseId", "7"),
        ("ClientUserId", "C/1 ü"),
        ("Email", "a+b@example.com"),
        ("IsActive", "1"),
        ("FirstName", "Ann"),
        ("LastName", "Lee"),
        ("Gender", "female"),
    )


def test_inactive_zero_and_not_specified_are_asked_for_and_none_is_not() -> None:
    query = build_list(ListQuery(id=0, is_active=False, gender="")).query
    assert query[2:] == (("Id", "0"), ("IsActive", "0"), ("Gender", ""))


@pytest.mark.parametrize(
    "wrong",
    [
        {"offset": -1},
        {"limit": 0},
        {"limit": 1001},
        {"gender": "Male"},
        {"email": "\ud800@example.com"},
        {"first_name": "\udfff"},
        *({name: blank} for name in TEXTS for blank in ("", " \t")),
    ],
)
def test_what_the_document_does_not_allow_for_is_refused_before_it_is_asked(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))) as caught:
        ListQuery(**wrong)  # type: ignore[arg-type] # a table of wrong values
    assert "\\ud" not in str(caught.value)


WRONG_TYPES = [
    *((name, wrong) for name in NUMBERS for wrong in (True, np.bool_(True), 1.0, np.float64(1), "1", b"1", [1], pd.NA)),
    *(("is_active", wrong) for wrong in (1, 0, np.int64(1), 1.0, "true", "", pd.NA)),
    *((name, wrong) for name in (*TEXTS, "gender") for wrong in (1, True, b"male", ["male"], float("nan"), pd.NA)),
    ("offset", None),
    ("limit", None),
]


@pytest.mark.parametrize(("name", "wrong"), WRONG_TYPES)
def test_a_filter_of_another_type_is_refused_by_its_name(name: str, wrong: Any) -> None:
    wanted = "a whole number" if name in NUMBERS else "True or False" if name == "is_active" else "a text"
    with pytest.raises(ConfigurationError) as caught:
        ListQuery(**{name: wrong})
    assert str(caught.value) == f"The list's {name} must be {wanted}, not of the type {type(wrong).__name__}."


@pytest.mark.parametrize(
    ("name", "given", "plain"),
    [
        *((name, kind(7), 7) for name in NUMBERS for kind in (np.int64, np.int32, np.uint8, np.array)),
        ("is_active", np.bool_(True), True),
        ("is_active", np.bool_(False), False),
        *((name, np.str_("male"), "male") for name in (*TEXTS, "gender")),
    ],
)
def test_a_scalar_of_numpy_is_taken_as_the_plain_value_that_it_is(name: str, given: Any, plain: object) -> None:
    query = ListQuery(**{name: given})
    taken = getattr(query, name)
    assert (type(taken), taken) == (type(plain), plain)
    assert query == ListQuery(**{name: plain})  # type: ignore[arg-type] # a table of values


def test_no_request_shows_a_persons_data_in_its_repr() -> None:
    query = ListQuery(email="ann@example.com", client_user_id="ann-1", first_name="Ann", last_name="Ann")
    shown = f"{query!r} {build_list(query)!r} {build_create(b'Ann')!r}"
    assert "ann" not in shown.lower()
