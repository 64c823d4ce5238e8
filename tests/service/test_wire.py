"""Requests, the JSON of subscribers in both directions, and the comparison of sent and listed values."""

from typing import Any

import numpy as np
import orjson
import pandas as pd
import pytest
from hypothesis import given, strategies as st

from connector.errors import ConfigurationError
from connector.fields import FIELD_BY_NAME, FIELD_NAMES, FIELDS, FieldKind
from connector.service.wire import (
    ListQuery,
    are_equal_values,
    build_create_request,
    build_list_request,
    decode_subscriber,
    encode_subscriber,
    find_altered_fields,
    find_differing_fields,
)
from tests.field_values import VALUES_BY_KIND, write_as_service

SENT_FIELDS = tuple(field for field in FIELDS if field.is_sent)

FULL_SUBSCRIBERS = st.fixed_dictionaries({field.name: VALUES_BY_KIND[field.kind] for field in SENT_FIELDS})

PARTIAL_SUBSCRIBERS = st.fixed_dictionaries(
    {}, optional={field.name: st.none() | VALUES_BY_KIND[field.kind] for field in SENT_FIELDS}
)


def encode_to_json(values: dict[str, object]) -> dict[str, Any]:
    body = orjson.loads(encode_subscriber(values))
    assert list(body) == ["Subscriber"]
    subscriber: dict[str, Any] = body["Subscriber"]
    return subscriber


def list_paths(subscriber_object: dict[str, Any], parent_keys: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    paths: list[tuple[str, ...]] = []
    for key, value in subscriber_object.items():
        paths += list_paths(value, (*parent_keys, key)) if isinstance(value, dict) else [(*parent_keys, key)]
    return paths


@given(PARTIAL_SUBSCRIBERS)
def test_a_missing_value_is_not_encoded_and_is_decoded_as_none(values: dict[str, object]) -> None:
    subscriber_object = encode_to_json(values)
    assert list_paths(subscriber_object) == [field.path for field in SENT_FIELDS if values.get(field.name) is not None]
    assert decode_subscriber(subscriber_object) == {name: values.get(name) for name in FIELD_NAMES}


@given(PARTIAL_SUBSCRIBERS)
def test_the_same_values_in_any_order_have_the_same_bytes(values: dict[str, object]) -> None:
    reversed_values = dict(reversed(values.items()))
    assert encode_subscriber(reversed_values) == encode_subscriber(values)


def test_a_body_has_the_format_of_service_api_md() -> None:
    values = {"base_id": 7, "email": "a@example.com", "address_zip": 1234, "address_state": "", "tags": ["x"]}
    assert encode_subscriber(values) == (
        b'{"Subscriber":{"Base":{"Id":7},"Email":"a@example.com","Tags":["x"],"Address":{"State":"","Zip":1234}}}'
    )


def test_the_id_and_unknown_names_are_not_sent() -> None:
    assert encode_to_json({"id": 5, "Email": "x", "_row": 3, "email": "a@b.c"}) == {"Email": "a@b.c"}


def test_numbers_and_lists_of_numpy_are_sent_as_plain_values() -> None:
    values: dict[str, object] = {
        "base_id": np.int64(7),
        "is_active": np.bool_(True),
        "address_zip": np.int32(12),
        "tags": np.array(["a", "b"], dtype=object),
        "email": np.str_("a@b.c"),
    }
    assert encode_to_json(values) == {
        "Base": {"Id": 7},
        "IsActive": True,
        "Email": "a@b.c",
        "Tags": ["a", "b"],
        "Address": {"Zip": 12},
    }
    assert encode_to_json({"tags": ("a",)}) == {"Tags": ["a"]}


def test_the_error_of_a_wrong_type_names_the_field_without_the_value() -> None:
    cases: list[tuple[str, object]] = [
        ("email", float("nan")),
        ("first_name", 5),
        ("address_zip", "02134"),
        ("address_zip", True),
        ("base_id", "7"),
        ("is_active", 1),
        ("tags", "a,b"),
        ("birthday", np.datetime64("2020-01-01")),
        ("last_name", "broken \ud800"),
        ("tags", ["ok", "\udfff"]),
    ]
    for field, value in cases:
        with pytest.raises(TypeError, match=rf"\b{field}\b") as error_info:
            encode_subscriber({"client_user_id": "secret", field: value})
        assert "secret" not in str(error_info.value)
        assert repr(value) not in str(error_info.value)


def test_an_address_of_a_wrong_type_is_decoded_as_empty() -> None:
    cases: list[object] = [None, [], "x", 5]
    for address in cases:
        values = decode_subscriber({"Id": 3, "Address": address, "Base": {"Id": 7}, "Unheard": 1})
        assert tuple(values) == FIELD_NAMES
        assert (values["id"], values["base_id"], values["address_zip"]) == (3, 7, None)


@given(FULL_SUBSCRIBERS)
def test_an_answer_with_only_documented_changes_counts_as_unaltered(values: dict[str, object]) -> None:
    answered_subscriber = encode_to_json({**values, "base_name": "another"})
    answered_subscriber["Address"]["Zip"] = str(answered_subscriber["Address"]["Zip"])
    assert find_altered_fields(values, answered_subscriber) == ()


@pytest.mark.parametrize("kind", FieldKind)
@given(st.data())
def test_a_sent_value_equals_only_the_same_value_in_an_answer(kind: FieldKind, data: st.DataObject) -> None:
    value, other_value = data.draw(st.lists(VALUES_BY_KIND[kind], min_size=2, max_size=2, unique_by=repr))
    assert are_equal_values(kind, value, write_as_service(kind, value))
    assert not are_equal_values(kind, value, write_as_service(kind, other_value))


def test_an_answered_value_counts_as_altered_unless_a_normalisation_rule_explains_it() -> None:
    cases: list[tuple[str, object, Any, bool]] = [
        ("address_state", "", None, False),
        ("address_line3", None, "", False),
        ("gender", "", None, False),
        ("address_zip", 1234, "1234", False),
        ("address_zip", np.int64(1234), "1234", False),
        ("tags", ("a", "b"), ["a", "b"], False),
        ("email", None, "set by the service", False),
        ("email", "Ann@example.com", "ann@example.com", True),
        ("first_name", "", None, True),
        ("address_state", "ZH", "", True),
        ("gender", "", "male", True),
        ("address_zip", 1234, "01234", True),
        ("address_zip", 0, "", True),
        ("tags", ["a", "b"], ["b", "a"], True),
        ("is_active", True, 1, True),
        ("is_active", False, None, True),
        ("base_id", 7, 8, True),
        ("base_name", "News", "news", True),
        ("birthday", "1990-01-02", "1990-02-01", True),
    ]
    for field, sent_value, answered_value, is_altered in cases:
        *parent_keys, key = FIELD_BY_NAME[field].path
        answered_value = {parent_keys[0]: {key: answered_value}} if parent_keys else {key: answered_value}
        assert find_altered_fields({field: sent_value}, answered_value) == ((field,) if is_altered else ())


def test_the_id_of_an_answered_base_has_precedence_over_its_name() -> None:
    sent_values = {"base_id": 7, "base_name": "whatever"}
    assert find_altered_fields(sent_values, {"Base": {"Id": 7, "Name": "News"}}) == ()
    assert find_altered_fields(sent_values, {"Base": {"Id": 8, "Name": "whatever"}}) == ("base_id",)


# The three requests of service-api.md 4.1 to 4.3

LIST_PATH = "/api/subscribers/subscribers-list/"

NUMBER_PARAMETERS = ("offset", "limit", "id", "base_id")

TEXT_PARAMETERS = ("client_user_id", "email", "first_name", "last_name")


def test_query_parameters_have_the_names_and_formats_of_service_api_md() -> None:
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
    assert build_list_request(query).query == (
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


def test_a_query_parameter_is_left_out_only_if_its_value_is_none() -> None:
    query = build_list_request(ListQuery(id=0, is_active=False, gender="")).query
    assert query[2:] == (("Id", "0"), ("IsActive", "0"), ("Gender", ""))


def test_a_query_that_service_api_md_forbids_is_refused() -> None:
    cases: list[dict[str, Any]] = [
        {"offset": -1},
        {"limit": 0},
        {"limit": 1001},
        {"gender": "Male"},
        {"email": "\ud800@example.com"},
        {"first_name": "\udfff"},
        *({name: blank_text} for name in TEXT_PARAMETERS for blank_text in ("", " \t")),
    ]
    for wrong_options in cases:
        with pytest.raises(ConfigurationError, match=next(iter(wrong_options))) as error_info:
            ListQuery(**wrong_options)
        assert "\\ud" not in str(error_info.value)


WRONG_TYPES: list[tuple[str, Any]] = [
    *(
        (name, wrong_value)
        for name in NUMBER_PARAMETERS
        for wrong_value in (True, np.bool_(True), 1.0, np.float64(1), "1", b"1", [1], pd.NA)
    ),
    *(("is_active", wrong_value) for wrong_value in (1, 0, np.int64(1), 1.0, "true", "", pd.NA)),
    *(
        (name, wrong_value)
        for name in (*TEXT_PARAMETERS, "gender")
        for wrong_value in (1, True, b"male", ["male"], float("nan"), pd.NA)
    ),
    ("offset", None),
    ("limit", None),
]


def test_the_error_of_a_wrong_filter_type_names_the_filter_and_the_types() -> None:
    for name, wrong_value in WRONG_TYPES:
        expected_type = (
            "a whole number" if name in NUMBER_PARAMETERS else "True or False" if name == "is_active" else "a text"
        )
        with pytest.raises(ConfigurationError) as error_info:
            ListQuery(**{name: wrong_value})
        assert (
            str(error_info.value)
            == f"The list's {name} must be {expected_type}, not of the type {type(wrong_value).__name__}."
        )


def test_a_numpy_scalar_in_a_query_is_converted_to_a_python_value() -> None:
    cases: list[tuple[str, Any, object]] = [
        *((name, convert(7), 7) for name in NUMBER_PARAMETERS for convert in (np.int64, np.int32, np.uint8, np.array)),
        ("is_active", np.bool_(True), True),
        ("is_active", np.bool_(False), False),
        *((name, np.str_("male"), "male") for name in (*TEXT_PARAMETERS, "gender")),
    ]
    for name, scalar, plain_value in cases:
        query = ListQuery(**{name: scalar})
        stored_value = getattr(query, name)
        assert (type(stored_value), stored_value) == (type(plain_value), plain_value)
        assert query == ListQuery(**{name: plain_value})  # type: ignore[arg-type] # the types are those of the table


def test_the_repr_of_a_request_shows_no_data_of_a_person() -> None:
    query = ListQuery(email="ann@example.com", client_user_id="ann-1", first_name="Ann", last_name="Ann")
    text = f"{query!r} {build_list_request(query)!r} {build_create_request(b'Ann')!r}"
    assert "ann" not in text.lower()


# Differences between a value of the source and a value of the list


def test_a_difference_that_a_rule_explains_is_ignored() -> None:
    cases: list[tuple[str, object, object, bool]] = [
        ("first_name", None, None, False),
        ("first_name", None, "", False),  # service-api.md does not show the value of a field that was not sent
        ("address_state", None, "", False),
        ("gender", "", None, False),
        ("is_active", None, False, False),  # service-api.md 2.1: the default
        ("tags", None, [], False),
        ("tags", ["a", "b"], ["a", "b"], False),
        ("address_zip", 10115, "10115", False),
        ("address_zip", "SW1A 1AA", "", False),  # this zip cannot be sent
        ("address_zip", "02134", "02134", False),  # not sent, but a person may have entered this zip in the service
        ("email", "Ann@X.org", "ann@x.org", False),
        ("email", "zoe@bücher.example", "zoe@xn--bcher-kva.example", False),
        ("client_user_id", "7", " 7 ", False),
        ("first_name", "Ann", "ann", True),
        ("first_name", "Ann", "", True),
        ("first_name", None, "Ann", True),
        ("first_name", "5", 5, True),
        ("gender", None, "male", True),
        ("is_active", True, None, True),
        ("is_active", None, True, True),
        ("is_active", True, 1, True),
        ("tags", ["a", "b"], ["b", "a"], True),  # the order of the tags counts, as in the answer to a create
        ("tags", ["a"], [], True),
        ("address_zip", 10115, "", True),
        ("address_zip", None, "10115", True),
        ("address_zip", 2134, "02134", True),
        ("address_zip", "SW1A 1AA", "10115", True),
        ("email", "ann@x.org", "anna@x.org", True),
        ("client_user_id", "a", "A", True),
        ("address_city", "Ulm", {"strange": "thing"}, True),
    ]
    for name, sent_value, listed_value, is_different in cases:
        field_names, birthday = ["phone", name, "birthday"], "1980-02-29"
        assert find_differing_fields(field_names, ["+1", sent_value, birthday], ["+1", listed_value, birthday]) == (
            [1] if is_different else []
        )
