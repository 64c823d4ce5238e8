"""Creates: the rules of service-api.md 2.1, and the effect of the switches."""

import json
from typing import Any, get_args

import pytest

from connector.fields import SENT_FIELDS, FieldKind, find_wire_name
from connector.sandbox.switches import FieldName, TextFieldName
from tests.sandbox.client import CREATE_PATH, SEND_PATH, SandboxClient

ALL_FIELDS: dict[str, Any] = {
    "Base": {"Name": "Новости"},
    "IsActive": True,
    "Email": "Zoë+x@Exämple.com",
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
    "Birthday": "2000-02-29",
}  # fmt: skip


def test_an_answer_has_the_normalised_fields_with_an_id_and_the_base(client: SandboxClient) -> None:
    reply = client.request("POST", CREATE_PATH, json.dumps({"Subscriber": ALL_FIELDS}).encode())
    subscriber = reply.json["Subscriber"]
    address = ALL_FIELDS["Address"] | {"State": "", "Zip": "3511", "Line3": ""}
    expected_subscriber = ALL_FIELDS | {
        "Id": subscriber["Id"],
        "Base": {"Id": 1, "Name": "Новости"},
        "Address": address,
    }
    assert (reply.status, reply.json["success"], subscriber) == (200, True, expected_subscriber)
    assert client.read_page()["Subscribers"] == [expected_subscriber]


WRONG_BASES: list[Any] = [{}, {"Id": "7"}, {"Id": -1}, "News"]
WRONG_VALUES: list[tuple[dict[str, Any], str]] = [
    ({"IsActive": "true"}, "IsActive"), ({"Email": "nobody"}, "Email"), ({"Gender": "Male"}, "Gender"),
    ({"Tags": ["a", 1]}, "Tags"),
    ({"Address": "Main Street"}, "Address"), ({"Address": {"Zip": "1234"}}, "Address.Zip"),
    ({"Address": {"Country": "XX"}}, "Address.Country"), ({"Birthday": "2001-02-29"}, "Birthday"), ({"Id": 5}, "Id"),
    ({"Surname": "x"}, "Surname"), ({"Base": {"Id": 1, "Colour": "x"}}, "Base.Colour"),
    *(({"Base": base}, "Base") for base in WRONG_BASES),
]  # fmt: skip


def test_the_refusal_of_a_wrong_create_names_the_field(client: SandboxClient) -> None:
    for wrong_values, field in WRONG_VALUES:
        reply = client.request(
            "POST", CREATE_PATH, json.dumps({"Subscriber": {"Base": {"Id": 1}} | wrong_values}).encode()
        )
        assert (reply.status, reply.json["success"]) == (400, False)
        assert f"Subscriber.{field}" in reply.json["message"]
    assert client.list_events() == []


def test_a_body_without_the_subscriber_or_the_email_is_refused(client: SandboxClient) -> None:
    for body in (b"", b"{", b"[]", b"{}", b'{"Subscriber":[]}', b'{"SendEmail":{}}', b'"\xff"'):
        for path in (CREATE_PATH, SEND_PATH):
            reply = client.request("POST", path, body)
            assert (reply.status, reply.json["success"]) == (400, False), body
    assert client.list_events() == []


def test_the_id_of_a_base_has_precedence_over_its_name(client: SandboxClient) -> None:
    bases = [client.create(base=base).json["Subscriber"]["Base"] for base in (
        {"Id": 7}, {"Name": "News"}, {"Id": 7, "Name": "News"}, {"Id": None, "Name": "News"}, {"Id": 0, "Name": "News"},
        {"Name": "Base 7"},
    )]  # fmt: skip
    base_7, news_base = {"Id": 7, "Name": "Base 7"}, {"Id": 8, "Name": "News"}
    assert bases == [base_7, news_base, base_7, news_base, news_base, base_7]


def test_switches_choose_how_a_create_is_answered(client: SandboxClient) -> None:
    client.sandbox.switch(
        created_status=201, id_step=10, unknown_fields="ignore", alter_fields=["FirstName", "Address.City"]
    )
    first_reply, second_reply = (
        client.create("a@example.com", FirstName="Ana", Address={"City": "Lyon"}, New=1) for _ in range(2)
    )
    assert (first_reply.status, first_reply.json["Subscriber"]["FirstName"]) == (201, "ANA")
    assert first_reply.json["Subscriber"]["Address"] == {"City": "LYON"}
    assert second_reply.json["Subscriber"]["Id"] - first_reply.json["Subscriber"]["Id"] == 10


def test_the_truth_log_lists_an_accepted_duplicate(client: SandboxClient) -> None:
    ids = [client.create(email).json["Subscriber"]["Id"] for email in ("Ana@example.com", " ana@EXAMPLE.com ")]
    assert client.sandbox.truth()["duplicates"] == [
        {"base_id": 1, "field": "Email", "value": "ana@example.com", "ids": ids}
    ]


@pytest.mark.parametrize("status", [409, 400, 200])
def test_a_switch_chooses_the_status_of_a_refused_duplicate(client: SandboxClient, status: int) -> None:
    # The subscriber is a duplicate even while the list does not show the first subscriber.
    client.sandbox.switch(duplicates=f"reject_{status}", list_lag_ms=60_000)
    assert client.create("ana@example.com").json["success"] is True
    reply = client.create(" ANA@example.com")
    assert (reply.status, reply.json["success"]) == (status, False)
    assert client.create("ana@example.com", base={"Id": 2}).json["success"] is True
    assert (client.sandbox.stats()["subscribers"], client.sandbox.truth()["duplicates"]) == (2, [])


@pytest.mark.parametrize(
    ("identity", "sent_values", "expected_statuses"),
    [
        (
            "email",
            [(None, "a1"), (None, " a1 "), (None, "A1"), ("x@e.org", "a1"), (None, ""), (None, "")],
            [200, 409, 200, 200, 200, 200],
        ),
        ("client_user_id", [("a@e.org", "1"), ("b@e.org", "1"), ("a@e.org", "2")], [200, 409, 200]),
    ],
)
def test_a_client_user_id_is_the_identity_if_the_email_is_missing(
    client: SandboxClient, identity: str, sent_values: list[tuple[str | None, str]], expected_statuses: list[int]
) -> None:
    client.sandbox.switch(duplicates="reject_409", identity=identity)
    answer_statuses = [
        client.create(email, ClientUserId=client_user_id).status for email, client_user_id in sent_values
    ]
    assert answer_statuses == expected_statuses
    assert client.sandbox.truth()["duplicates"] == []


def test_a_switch_lets_base_names_match_regardless_of_capitals_and_outer_spaces(client: SandboxClient) -> None:
    bases = [{"Name": name} for name in ("News", " NEWS ", "news")]
    base_ids = [client.create(base=base).json["Subscriber"]["Base"]["Id"] for base in bases]
    assert base_ids == [1, 2, 3]
    client.sandbox.reset()
    client.sandbox.switch(base_names="folded")
    assert [client.create(base=base).json["Subscriber"]["Base"] for base in bases] == [{"Id": 1, "Name": "News"}] * 3


@pytest.mark.parametrize(
    ("base_name_rule", "base_names", "expected_bases"),
    [
        ("nfd", ("Café", "Cafe\u0301", "CAFÉ"), ((1, "Cafe\u0301"), (1, "Cafe\u0301"), (2, "CAFE\u0301"))),
        ("collapsed", (" a  b", "a b", "A b"), ((1, "a b"), (1, "a b"), (2, "A b"))),
        ("escaped", ("É&<", "&Eacute;&amp;&lt;"), ((1, "&Eacute;&amp;&lt;"), (1, "&Eacute;&amp;&lt;"))),
        ("cut", ("x" * 21, "x" * 20, "x" * 19), ((1, "x" * 20), (1, "x" * 20), (2, "x" * 19))),
        ("accent_blind", ("Café", " CAFE ", "Cafés"), ((1, "Café"), (1, "Café"), (2, "Cafés"))),
    ],
)
def test_a_switch_changes_how_base_names_are_stored_and_compared(
    client: SandboxClient, base_name_rule: str, base_names: tuple[str, ...], expected_bases: tuple[tuple[int, str], ...]
) -> None:
    client.sandbox.switch(base_names=base_name_rule)
    bases = [client.create(base={"Name": name}).json["Subscriber"]["Base"] for name in base_names]
    assert [(base["Id"], base["Name"]) for base in bases] == list(expected_bases)


def test_the_list_shows_another_id_than_the_provisional_id_of_the_answer(client: SandboxClient) -> None:
    client.sandbox.switch(provisional_ids=True)
    provisional_id = client.create("ana@e.org").json["Subscriber"]["Id"]
    listed_id = client.read_page()["Subscribers"][0]["Id"]
    assert provisional_id != listed_id
    assert [client.read_page(Id=shown_id)["TotalCount"] for shown_id in (provisional_id, listed_id)] == [0, 1]


def test_the_switches_name_every_field_of_a_subscriber() -> None:
    assert set(get_args(FieldName)) == {find_wire_name(field) for field in SENT_FIELDS}
    text_kinds = (FieldKind.TEXT, FieldKind.NULLABLE_TEXT, FieldKind.EMAIL)
    assert set(get_args(TextFieldName)) == {find_wire_name(field) for field in SENT_FIELDS if field.kind in text_kinds}
