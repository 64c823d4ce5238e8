"""Creates: the rules of service-api.md 2.1 without a server, and what a service makes of what it was sent."""

import json
from typing import Any, Literal

import pycountry
import pytest

from connector.sandbox.subscriber import COUNTRY_CODES, RejectedError, check_required, fill_defaults, parse_create
from tests.sandbox.calls import CREATE, Calls


def parse(
    given: dict[str, Any], extra: Literal["forbid", "ignore"] = "forbid"
) -> tuple[int | None, str | None, dict[str, Any]]:
    """Return the parsed fields of a create in base 1."""
    return parse_create(json.dumps({"Subscriber": {"Base": {"Id": 1}} | given}).encode(), extra)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"Address": {"State": None, "Line3": None}}, {"Address": {"State": "", "Line3": ""}}),
        ({"Address": {"Zip": 1234}}, {"Address": {"Zip": "1234"}}),
        ({"Gender": ""}, {"Gender": ""}),
        ({"Tags": []}, {"Tags": []}),
        ({"Email": "Zoë+x@Exämple.org"}, {"Email": "Zoë+x@Exämple.org"}),
        ({"Email": '"a b"@example.org'}, {"Email": '"a b"@example.org'}),
        ({"Birthday": "2000-02-29"}, {"Birthday": "2000-02-29"}),
        ({"Address": {"Country": "NL"}}, {"Address": {"Country": "NL"}}),
    ],
)
def test_what_may_be_sent_is_kept_normalised(given: dict[str, Any], kept: dict[str, Any]) -> None:
    assert parse(given) == (1, None, kept)


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
        ({"Address": {"Zip": 12.0}}, "Subscriber.Address.Zip"),
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
        parse(given)
    assert caught.value.message.startswith(field)


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
    assert parse({"Base": base}) == (*wanted, {})


@pytest.mark.parametrize(
    "base", [None, {}, {"Id": None}, {"Name": ""}, {"Id": "7"}, {"Id": -1}, {"Id": True}, {"Name": 5}, "News"]
)
def test_a_base_that_is_not_named_is_rejected(base: object) -> None:
    with pytest.raises(RejectedError, match="Base"):
        parse({"Base": base})


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


EVERYTHING: dict[str, Any] = {
    "Base": {"Name": "Новости"},
    "IsActive": True,
    "Email": "Zoë@example.com",
    "FirstName": "张伟",
    "LastName": 'O"Brien, Jr.',
    "Gender": "female",
    "Phone": "+31 6 1234",
    "Tags": ["a", "б", ""],
    "ClientUserId": "007",
    "CustomField1": "\t1\n",
    "CustomField2": "",
    "CustomField3": "x" * 5000,
    "Address": {
        "Country": "NL", "City": "Αθήνα", "State": None, "Zip": 3511, "Line1": "1", "Line2": "2", "Line3": None
    },
    "Birthday": "1990-12-31",
}  # fmt: skip


def test_every_field_comes_back_normalised_with_an_id_and_both_names_of_the_base(calls: Calls) -> None:
    reply = calls.ask("POST", CREATE, json.dumps({"Subscriber": EVERYTHING}).encode())
    answered = reply.json["Subscriber"]
    address = EVERYTHING["Address"] | {"State": "", "Zip": "3511", "Line3": ""}
    wanted = EVERYTHING | {"Id": answered["Id"], "Base": {"Id": 1, "Name": "Новости"}, "Address": address}
    assert (reply.status, reply.json["success"]) == (200, True)
    assert answered == wanted
    assert calls.page()["Subscribers"] == [wanted]


def test_bases_are_made_when_first_named(calls: Calls) -> None:
    named = [calls.create(base=base).json["Subscriber"]["Base"] for base in (
        {"Id": 7}, {"Name": "News"}, {"Id": 7, "Name": "News"}, {"Name": "News"}, {"Name": "Base 7"},
    )]  # fmt: skip
    seven, news = {"Id": 7, "Name": "Base 7"}, {"Id": 8, "Name": "News"}
    assert named == [seven, news, seven, news, seven]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"{}", b'{"Subscriber":[]}', b'{"Subscriber":{},"x":1}', b'"\xff"', b'{"a":"\\ud800"}']
)
def test_a_body_that_is_no_create_is_answered_400_and_stores_nothing(calls: Calls, body: bytes) -> None:
    reply = calls.ask("POST", CREATE, body)
    assert (reply.status, reply.json["success"]) == (400, False)
    assert calls.events() == []


def test_the_error_status_and_shape_are_switches(calls: Calls) -> None:
    calls.sandbox.switch(error_status=200, error_shape="nested")
    reply = calls.create("nobody")
    assert (reply.status, reply.json["error"]["code"]) == (200, 200)
    assert "Subscriber.Email" in reply.json["error"]["details"][0]["message"]
    calls.sandbox.switch(error_shape="html", error_status=422)
    reply = calls.create("no<body")
    assert (reply.status, reply.headers["content-type"]) == (422, "text/html; charset=utf-8")
    assert b"no&lt;body" in reply.body
    calls.sandbox.switch(error_shape="empty")
    assert calls.create("nobody").body == b""


def test_created_status_required_unknown_and_altered_fields_are_switches(calls: Calls) -> None:
    calls.sandbox.switch(
        created_status=201, required=["FirstName"], unknown_fields="ignore", alter_fields=["FirstName", "Address.City"]
    )
    assert calls.create("a@example.com").status == 400
    reply = calls.create("a@example.com", FirstName="Ana", Address={"City": "Lyon"}, Unheard=1)
    assert (reply.status, reply.json["Subscriber"]["FirstName"]) == (201, "ANA")
    assert reply.json["Subscriber"]["Address"] == {"City": "LYON"}


def test_ids_go_in_steps(calls: Calls) -> None:
    calls.sandbox.switch(id_step=10)
    first, second = (calls.create(f"{n}@example.com").json["Subscriber"]["Id"] for n in range(2))
    assert second - first == 10


# duplicates: `SAME` is the same by the default identity, whatever else differs


def test_duplicates_are_accepted_by_default_and_the_truth_tells_of_them(calls: Calls) -> None:
    ids = [calls.create(email).json["Subscriber"]["Id"] for email in ("Ana@example.com", " ana@EXAMPLE.com ")]
    assert calls.sandbox.truth()["duplicates"] == [
        {"base_id": 1, "field": "Email", "value": "ana@example.com", "ids": ids}
    ]


@pytest.mark.parametrize("status", [409, 400, 200])
def test_duplicates_are_rejected_with_the_status_of_the_switch(calls: Calls, status: int) -> None:
    calls.sandbox.switch(duplicates=f"reject_{status}")
    assert calls.create("ana@example.com").json["success"] is True
    reply = calls.create(" ANA@example.com")
    assert (reply.status, reply.json["success"]) == (status, False)
    assert calls.create("ana@example.com", base={"Id": 2}).json["success"] is True
    assert (calls.sandbox.stats()["subscribers"], calls.sandbox.truth()["duplicates"]) == (2, [])


def test_without_an_email_the_client_user_id_counts_with_its_case(calls: Calls) -> None:
    calls.sandbox.switch(duplicates="reject_409")
    statuses = [
        calls.create(None, ClientUserId="a1").status,
        calls.create(None, ClientUserId=" a1 ").status,
        calls.create(None, ClientUserId="A1").status,
        calls.create("x@example.com", ClientUserId="a1").status,
        calls.create(None).status,
        calls.create(None).status,
    ]
    assert statuses == [200, 409, 200, 200, 200, 200]


def test_the_identity_can_be_the_client_user_id_alone(calls: Calls) -> None:
    calls.sandbox.switch(duplicates="reject_409", identity="client_user_id")
    assert calls.create("a@example.com", ClientUserId="1").status == 200
    assert calls.create("b@example.com", ClientUserId="1").status == 409
    assert calls.create("a@example.com", ClientUserId="2").status == 200
    assert calls.sandbox.truth()["duplicates"] == []


def test_upsert_updates_the_one_that_exists_and_keeps_what_was_not_sent(calls: Calls) -> None:
    calls.sandbox.switch(duplicates="upsert")
    old = calls.create("ana@example.com", FirstName="Ana", LastName="B", Address={"City": "X", "Zip": 1}).json
    new = calls.create("ANA@example.com", FirstName="Anna", Address={"Zip": 2}).json["Subscriber"]
    assert new == old["Subscriber"] | {
        "Email": "ANA@example.com", "FirstName": "Anna", "Address": {"City": "X", "Zip": "2"}
    }  # fmt: skip
    assert calls.page()["Subscribers"] == [new]
    assert [event["subscriber"] for event in calls.events("updated")] == [new]


# what a service stores and answers other than it was sent


def test_bases_can_be_found_by_folded_names_and_keep_their_own_spelling(calls: Calls) -> None:
    named = [{"Name": name} for name in ("News", " NEWS ", "news")]
    exact = [calls.create(base=base).json["Subscriber"]["Base"]["Id"] for base in named]
    assert exact == [1, 2, 3]
    calls.sandbox.reset()
    calls.sandbox.switch(base_names="folded")
    assert [calls.create(base=base).json["Subscriber"]["Base"] for base in named] == [{"Id": 1, "Name": "News"}] * 3


def test_a_base_can_be_another_ones_alias_by_name_or_by_id(calls: Calls) -> None:
    calls.sandbox.switch(base_alias={"Old": "New", "7": "9"})
    sent = ({"Name": "Old"}, {"Id": 7}, {"Name": "New"}, {"Name": "OLD"})
    answered = [calls.create(f"{n}@example.com", base=base).json["Subscriber"]["Base"] for n, base in enumerate(sent)]
    new, nine = {"Id": 1, "Name": "New"}, {"Id": 9, "Name": "Base 9"}
    assert answered == [new, nine, new, {"Id": 10, "Name": "OLD"}]
    assert [each["Base"] for each in calls.page()["Subscribers"]] == answered  # stored there, too
    calls.sandbox.switch(base_names="folded")
    assert calls.create(base={"Name": "OLD"}).json["Subscriber"]["Base"] == new


def test_the_tag_of_an_address_can_be_dropped(calls: Calls) -> None:
    calls.sandbox.switch(alter_identity=True, duplicates="reject_409")
    assert calls.create("ann+news@example.com").json["Subscriber"]["Email"] == "ann@example.com"
    assert calls.create("+@example.com").json["Subscriber"]["Email"] == "+@example.com"
    assert calls.create("ann+shop@example.com").status == 409
    assert calls.emails() == ["ann@example.com", "+@example.com"]
    assert [event["email"] for event in calls.events()] == ["ann+news@example.com", "+@example.com"]


def test_ids_can_be_texts_in_answers_while_the_truth_keeps_numbers(calls: Calls) -> None:
    calls.sandbox.switch(numbers_as_text=["ids"])
    answered = calls.create("ann@example.com").json["Subscriber"]
    assert (answered["Base"]["Id"], answered["Id"].isdigit()) == ("1", True)
    assert [(each["Id"], each["Base"]["Id"]) for each in calls.page()["Subscribers"]] == [(answered["Id"], "1")]
    assert [event["id"] for event in calls.events()] == [int(answered["Id"])]
