"""The switches and the control address of the sandbox: set, seed, reset, and read the truth log."""

from itertools import product

import pytest

from connector.sandbox.switches import SandboxSettings, list_switches, parse_settings
from tests.sandbox.client import SandboxClient


def test_the_documented_defaults_of_the_switches_are_the_default_settings() -> None:
    assert parse_settings([f"{switch.name}={switch.default}" for switch in list_switches()]) == SandboxSettings()


WRONG_SWITCHES: list[tuple[str, object, str]] = [
    ("duplicates", "maybe", "reject_409"), ("drop_after", "1.5", "0 to 1"), ("capacity", "1.5", "whole"),
    ("rate", [1], "a number"), ("alter_identity", "maybe", "true | false"), ("required", "Shoe", "Email"),
    ("authorization", "Bearer", "{token}"), ("redirect_to", "a\nb", "a text"),
    ("replica_lags_ms", "1,soon", "comma-separated numbers"), ("base_alias", "Old=", "left=right"),
    ("drop_afterr", "1", "did you mean 'drop_after'"),
]  # fmt: skip


def test_the_error_of_a_wrong_switch_names_the_allowed_values(client: SandboxClient) -> None:
    for name, value, expected_text in WRONG_SWITCHES:
        with pytest.raises(ValueError, match=f"switch '{name}'") as error:
            client.sandbox.switch(jitter_ms=5, **{name: value})
        assert expected_text in str(error.value)
    assert client.sandbox.switch()["jitter_ms"] == 0


def test_the_truth_log_has_the_stored_subscriber_and_the_answer_of_a_create(client: SandboxClient) -> None:
    subscriber = client.create(" Ana@example.com", FirstName="Ana").json["Subscriber"]
    client.create("nobody")  # rejected: no event
    client.sandbox.switch(error_after=1)
    client.create("bob@example.com")
    truth_log = client.sandbox.truth()
    first_event, second_event = truth_log["events"]
    assert (first_event["sequence"], first_event["kind"], first_event["id"], first_event["base_id"]) == (
        1,
        "created",
        subscriber["Id"],
        1,
    )
    assert (first_event["email"], first_event["answered"], first_event["subscriber"]) == (
        " Ana@example.com",
        "answered",
        subscriber,
    )
    assert (second_event["sequence"], second_event["answered"]) == (2, "server_error")
    assert first_event["at"] <= second_event["at"]
    assert (truth_log["sequence"], truth_log["subscribers"], truth_log["bases"]) == (
        2,
        2,
        [{"id": 1, "name": "Base 1"}],
    )
    assert client.sandbox.truth(after_sequence_number=1)["events"] == [second_event]


def test_reset_removes_subscribers_and_resets_the_switches(client: SandboxClient) -> None:
    client.sandbox.seed(5)
    first_id = client.create("a@example.com").json["Subscriber"]["Id"]
    client.sandbox.switch(order="email", latency_ms=3)
    client.sandbox.reset()
    truth_log, stats = client.sandbox.truth(), client.sandbox.stats()
    assert (truth_log["events"], truth_log["subscribers"], truth_log["bases"], stats["requests"]) == ([], 0, [], {})
    assert client.sandbox.switch()["order"] == "id"
    assert client.create("a@example.com").json["Subscriber"]["Id"] == first_id - 5


def test_a_wrong_control_request_is_an_error(client: SandboxClient) -> None:
    for method, action, body, status in (
        ("GET", "nothing", None, 404),
        ("GET", "truth?after=x", None, 400),
        ("POST", "seed", b'{"count":1,"colour":"x"}', 400),
    ):
        reply = client.request(method, f"/_sandbox/{action}", body)
        assert (reply.status, "error" in reply.json) == (status, True)


def test_the_control_address_requires_the_plain_token(client: SandboxClient) -> None:
    client.sandbox.switch(authorization="Bearer {token}", error_shape="html")
    control_paths = [("GET", name) for name in ("truth", "stats", "outbox", "switches", "nothing")]
    control_paths += [("POST", name) for name in ("switches", "reset", "seed")]
    templates = ("", "Bearer {token}")
    for (method, action), authorization_template in product(control_paths, templates):
        authorization = authorization_template.replace("{token}", client.sandbox.token)
        body = b'{"count": 5, "latency_ms": 5}' if method == "POST" else None
        reply = client.request(method, f"/_sandbox/{action}", body, Authorization=authorization)
        assert (reply.status, list(reply.json)) == (401, ["error"]), action
        assert client.sandbox.token.encode() not in reply.body
    assert (client.sandbox.truth()["subscribers"], client.sandbox.switch()["latency_ms"]) == (0, 0)


def test_a_seeded_subscriber_is_listed_and_found_like_a_created_subscriber(client: SandboxClient) -> None:
    seeded_subscribers = client.sandbox.seed(300, base_name="Crowd")
    page = client.read_page(limit=1000)
    people = page["Subscribers"]
    assert (page["TotalCount"], len({listed_person["Email"] for listed_person in people})) == (300, 300)
    assert {listed_person["Base"]["Name"] for listed_person in people} == {"Crowd"}
    assert [person["Id"] for person in people] == [seeded_subscribers["first_id"] + n for n in range(300)]
    assert {listed_person["Gender"] for listed_person in people} == {"male", "female", ""}
    person = people[123]
    for query in ({"Email": person["Email"]}, {"ClientUserId": person["ClientUserId"]}, {"Id": person["Id"]}):
        assert client.read_page(**query)["Subscribers"] == [person]
    for field in ("FirstName", "Gender"):
        matching_people = [listed_person for listed_person in people if listed_person[field] == person[field]]
        assert client.read_page(limit=1000, **{field: person[field]})["Subscribers"] == matching_people
    for requested_id in (0, 400, "0123", "²"):  # seeded ids begin at 100,001
        assert client.read_page(ClientUserId=f"seed-{requested_id}")["TotalCount"] == 0
    client.sandbox.switch(filters="partial")
    assert client.read_page(Email=f"{person['Id']}@EXAMPLE")["Subscribers"] == [person]
    client.sandbox.switch(duplicates="reject_409")
    assert client.create(person["Email"].upper(), base=person["Base"]).status == 409
    assert client.create(person["Email"], base={"Id": 99}).status == 200
