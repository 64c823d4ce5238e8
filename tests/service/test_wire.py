"""Requests, the JSON of a subscriber both ways, and what counts as a difference between two values."""

from typing import Any

import numpy as np
import orjson
import pandas as pd
import pytest
from hypothesis import given, strategies as st

from connector.errors import ConfigurationError
from connector.fields import FIELDS, NAMES, Kind
from connector.service.wire import (
    ListQuery,
    Request,
    altered_fields,
    build_create,
    build_list,
    build_send,
    decode_subscriber,
    differing_fields,
    encode_subscriber,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)

BY_KIND: dict[Kind, st.SearchStrategy[object]] = {
    Kind.NUMBER: st.integers(1, 2**63 - 1),
    Kind.FLAG: st.booleans(),
    Kind.TEXT: TEXT,
    Kind.NULLABLE_TEXT: TEXT,
    Kind.EMAIL: st.emails(),
    Kind.GENDER: st.sampled_from(["male", "female", ""]),
    Kind.TAGS: st.lists(TEXT, max_size=4),
    Kind.COUNTRY: st.sampled_from(["NL", "GB"]),
    Kind.ZIP: st.integers(0, 2**53 - 1),
    Kind.DATE: st.dates().map(str),
}

SENT = tuple(field for field in FIELDS if field.is_sent)

FULL = st.fixed_dictionaries({field.name: BY_KIND[field.kind] for field in SENT})

PARTIAL = st.fixed_dictionaries({}, optional={field.name: st.none() | BY_KIND[field.kind] for field in SENT})


def wire_of(values: dict[str, object]) -> dict[str, Any]:
    body = orjson.loads(encode_subscriber(values))
    assert list(body) == ["Subscriber"]
    subscriber: dict[str, Any] = body["Subscriber"]
    return subscriber


def paths(wire: dict[str, Any], above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for key, value in wire.items():
        found += paths(value, (*above, key)) if isinstance(value, dict) else [(*above, key)]
    return found


@given(FULL)
def test_a_subscriber_with_every_field_comes_back_as_it_was_sent(values: dict[str, object]) -> None:
    wire = wire_of(values)
    assert paths(wire) == [field.path for field in SENT]
    assert decode_subscriber(wire) == {"id": None, **values}


@given(PARTIAL)
def test_what_is_missing_or_none_is_left_out_and_comes_back_as_none(values: dict[str, object]) -> None:
    wire = wire_of(values)
    assert paths(wire) == [field.path for field in SENT if values.get(field.name) is not None]
    assert decode_subscriber(wire) == {name: values.get(name) for name in NAMES}


@given(PARTIAL)
def test_the_same_values_make_the_same_bytes_in_whatever_order_they_are_given(values: dict[str, object]) -> None:
    backwards = dict(reversed(values.items()))
    assert encode_subscriber(backwards) == encode_subscriber(values)


def test_the_body_is_that_of_the_document() -> None:
    values = {"base_id": 7, "email": "a@example.com", "address_zip": 1234, "address_state": "", "tags": ["x"]}
    assert encode_subscriber(values) == (
        b'{"Subscriber":{"Base":{"Id":7},"Email":"a@example.com","Tags":["x"],"Address":{"State":"","Zip":1234}}}'
    )


def test_the_id_and_names_that_are_no_field_are_never_sent() -> None:
    assert wire_of({"id": 5, "Email": "x", "_row": 3, "email": "a@b.c"}) == {"Email": "a@b.c"}


def test_numbers_and_lists_of_numpy_are_sent_as_plain_ones() -> None:
    values: dict[str, object] = {
        "base_id": np.int64(7),
        "is_active": np.bool_(True),
        "address_zip": np.int32(12),
        "tags": np.array(["a", "b"], dtype=object),
        "email": np.str_("a@b.c"),
    }
    assert wire_of(values) == {
        "Base": {"Id": 7},
        "IsActive": True,
        "Email": "a@b.c",
        "Tags": ["a", "b"],
        "Address": {"Zip": 12},
    }
    assert wire_of({"tags": ("a",)}) == {"Tags": ["a"]}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("email", float("nan")),
        ("first_name", 5),
        ("address_zip", "02134"),
        ("address_zip", 12.0),
        ("address_zip", True),
        ("base_id", "7"),
        ("is_active", 1),
        ("is_active", "true"),
        ("tags", "a,b"),
        ("birthday", np.datetime64("2020-01-01")),
        ("last_name", "broken \ud800"),
        ("base_id", 2**70),
        ("tags", ["ok", "\udfff"]),
    ],
)
def test_a_value_of_another_type_is_refused_by_name_and_not_shown(field: str, value: object) -> None:
    with pytest.raises(TypeError, match=rf"\b{field}\b") as caught:
        encode_subscriber({"client_user_id": "secret", field: value})
    assert "secret" not in str(caught.value)
    assert repr(value) not in str(caught.value)


@pytest.mark.parametrize("address", [None, [], "x", 5])
def test_an_address_that_is_no_object_is_an_address_without_values(address: object) -> None:
    values = decode_subscriber({"Id": 3, "Address": address, "Base": {"Id": 7}, "Unheard": 1})
    assert tuple(values) == NAMES
    assert (values["id"], values["base_id"], values["address_zip"]) == (3, 7, None)


def test_what_comes_is_decoded_as_it_came_whatever_its_type() -> None:
    assert decode_subscriber({"Email": ["odd"], "IsActive": "yes"})["email"] == ["odd"]


@given(FULL)
def test_the_echo_of_a_service_that_keeps_to_the_document_is_unaltered(values: dict[str, object]) -> None:
    answered = {**values, "id": 9, "address_zip": str(values["address_zip"]), "base_name": "another"}
    assert altered_fields(values, answered) == ()


@pytest.mark.parametrize(
    ("field", "sent", "answered"),
    [
        ("address_state", "", None),
        ("address_line3", "", None),
        ("address_state", None, ""),
        ("gender", "", None),
        ("gender", "", ""),
        ("gender", None, ""),
        ("address_zip", 1234, "1234"),
        ("address_zip", 1234, 1234),
        ("address_zip", np.int64(1234), "1234"),
        ("tags", ("a", "b"), ["a", "b"]),
        ("email", None, "set by the service"),
        ("is_active", True, True),
    ],
)
def test_under_the_normalisation_rules_these_are_the_same(field: str, sent: object, answered: object) -> None:
    assert altered_fields({field: sent}, {field: answered}) == ()


@pytest.mark.parametrize(
    ("field", "sent", "answered"),
    [
        ("email", "Ann@example.com", "ann@example.com"),
        ("email", "a@b.c", None),
        ("first_name", "", None),
        ("phone", "+31 6", "+316"),
        ("address_state", "ZH", ""),
        ("address_line3", "x", None),
        ("gender", "male", ""),
        ("gender", "", "male"),
        ("address_zip", 1234, "01234"),
        ("address_zip", 1, True),
        ("address_zip", 1234, None),
        ("address_zip", 0, ""),
        ("tags", ["a", "b"], ["b", "a"]),
        ("tags", ["a"], None),
        ("tags", ["a"], "a"),
        ("is_active", True, 1),
        ("is_active", False, None),
        ("base_id", 7, 8),
        ("base_name", "News", "news"),
        ("birthday", "1990-01-02", "1990-02-01"),
    ],
)
def test_these_came_back_different(field: str, sent: object, answered: object) -> None:
    assert altered_fields({field: sent}, {field: answered}) == (field,)


def test_a_base_named_by_both_is_known_by_its_id() -> None:
    sent = {"base_id": 7, "base_name": "whatever"}
    assert altered_fields(sent, {"base_id": 7, "base_name": "News"}) == ()
    assert altered_fields(sent, {"base_id": 8, "base_name": "whatever"}) == ("base_id",)


def test_altered_fields_are_named_in_the_tables_order() -> None:
    sent = {"birthday": "x", "email": "x", "address_city": "x"}
    assert altered_fields(sent, {}) == ("email", "address_city", "birthday")


# The three requests, as service-api.md 4.1 to 4.3 writes them

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


# What counts as a difference between a source and the list, value by value


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
