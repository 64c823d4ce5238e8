"""The rules of service-api.md 2.1, one by one, without a server."""

from typing import Any

import pycountry
import pytest

from connector.sandbox.subscriber import (
    COUNTRY_CODES,
    RejectedError,
    check_required,
    fill_defaults,
    normalise_subscriber,
    parse_base,
)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"Address": {"State": None, "Line3": None}}, {"Address": {"State": "", "Line3": ""}}),
        ({"Address": {"Zip": 1234}}, {"Address": {"Zip": "1234"}}),
        ({"Address": {"Zip": 12.0}}, {"Address": {"Zip": "12"}}),
        ({"Gender": ""}, {"Gender": ""}),
        ({"Tags": []}, {"Tags": []}),
        ({"Email": "Zoë+x@Exämple.org"}, {"Email": "Zoë+x@Exämple.org"}),
        ({"Email": '"a b"@example.org'}, {"Email": '"a b"@example.org'}),
        ({"Birthday": "2000-02-29"}, {"Birthday": "2000-02-29"}),
        ({"Address": {"Country": "NL"}}, {"Address": {"Country": "NL"}}),
    ],
)
def test_what_may_be_sent_is_kept_normalised(given: dict[str, Any], kept: dict[str, Any]) -> None:
    assert normalise_subscriber(given, is_strict=True) == kept


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"IsActive": "true"}, "Subscriber.IsActive"),
        ({"IsActive": 1}, "Subscriber.IsActive"),
        ({"Email": "nobody"}, "Subscriber.Email"),
        ({"Email": "a@b c.org"}, "Subscriber.Email"),
        ({"Email": "a\x01@b.org"}, "Subscriber.Email"),
        ({"Email": None}, "Subscriber.Email"),
        ({"FirstName": 5}, "Subscriber.FirstName"),
        ({"Gender": "Male"}, "Subscriber.Gender"),
        ({"Gender": []}, "Subscriber.Gender"),
        ({"Tags": "a,b"}, "Subscriber.Tags"),
        ({"Tags": ["a", 1]}, "Subscriber.Tags"),
        ({"Address": "Main Street"}, "Subscriber.Address"),
        ({"Address": {"Zip": "1234"}}, "Subscriber.Address.Zip"),
        ({"Address": {"Zip": True}}, "Subscriber.Address.Zip"),
        ({"Address": {"Zip": 1.5}}, "Subscriber.Address.Zip"),
        ({"Address": {"Zip": 1e30}}, "Subscriber.Address.Zip"),
        ({"Address": {"Country": "XX"}}, "Subscriber.Address.Country"),
        ({"Address": {"Country": "nl"}}, "Subscriber.Address.Country"),
        ({"Address": {"City": None}}, "Subscriber.Address.City"),
        ({"Birthday": "2001-02-29"}, "Subscriber.Birthday"),
        ({"Birthday": "20010228"}, "Subscriber.Birthday"),
        ({"Birthday": "1.2.2001"}, "Subscriber.Birthday"),
        ({"Id": 5}, "Subscriber.Id"),
        ({"Surname": "x"}, "Subscriber.Surname"),
        ({"Address": {"Street": "x"}}, "Subscriber.Address.Street"),
        ({"Base": {"Id": 1, "Colour": "x"}}, "Subscriber.Base.Colour"),
    ],
)
def test_what_breaks_a_rule_is_rejected_by_name(given: dict[str, Any], field: str) -> None:
    with pytest.raises(RejectedError) as caught:
        normalise_subscriber(given, is_strict=True)
    assert caught.value.message.startswith(field)


def test_unknown_fields_are_dropped_when_not_strict() -> None:
    given = {"Id": 5, "Surname": "x", "Address": {"Street": "x", "City": "y"}}
    assert normalise_subscriber(given, is_strict=False) == {"Address": {"City": "y"}}


@pytest.mark.parametrize(
    ("base", "wanted"),
    [
        ({"Id": 7}, (7, None)),
        ({"Name": "News"}, (None, "News")),
        ({"Id": 7, "Name": "News"}, (7, None)),
        ({"Id": None, "Name": "News"}, (None, "News")),
        ({"Id": 0, "Name": "News"}, (None, "News")),
        ({"Id": 7, "Name": ""}, (7, None)),
    ],
)
def test_the_base_is_named_by_id_before_name(base: dict[str, Any], wanted: tuple[int | None, str | None]) -> None:
    assert parse_base({"Base": base}) == wanted


@pytest.mark.parametrize(
    "base", [None, {}, {"Id": None}, {"Name": ""}, {"Id": "7"}, {"Id": -1}, {"Id": True}, {"Name": 5}, "News"]
)
def test_a_base_that_is_not_named_is_rejected(base: object) -> None:
    with pytest.raises(RejectedError, match="Base"):
        parse_base({"Base": base})


def test_the_defaults_are_inactive_and_not_specified() -> None:
    assert fill_defaults({}, "omit") == {"IsActive": False, "Gender": ""}


def test_absent_fields_show_as_the_switch_says() -> None:
    empty, null = fill_defaults({}, "empty"), fill_defaults({}, "null")
    assert (empty["Email"], empty["Tags"], empty["Address"]["Zip"]) == ("", [], "")
    assert (null["Email"], null["Tags"], null["Address"]["Zip"], null["IsActive"]) == (None, None, None, False)


def test_required_fields_need_a_value() -> None:
    check_required({"IsActive": False, "Address": {"City": "x"}}, ("IsActive", "Address.City"))
    lacking: list[dict[str, Any]] = [{}, {"Address": {}}, {"Address": {"City": ""}}]
    for values in lacking:
        with pytest.raises(RejectedError, match=r"Address\.City is required"):
            check_required(values, ("Address.City",))


def test_the_country_codes_are_those_of_iso_3166() -> None:
    assert {country.alpha_2 for country in pycountry.countries} == COUNTRY_CODES
