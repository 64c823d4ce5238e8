"""Switches, and the control by which they are set."""

import json
from typing import get_args

import pytest

from connector.sandbox.subscriber import parse_create
from connector.sandbox.switches import FieldName, SandboxSettings, change_settings, list_switches, parse_settings
from tests.sandbox.calls import Calls
from tests.sandbox.test_creates import EVERYTHING

DESIGN = """
duplicates error_shape filters order latency_ms rate burst limiter capacity retry_after drop_before drop_after
error_before error_after cut_answer hang_after garbage_after refuse created_422 late_ms list_lag_ms churn_insert
churn_delete churn_where list_error max_total redirect_to verified_domains protected_headers authorization seed
result_window base_names base_alias alter_identity executed_status error_status past_end numbers_as_text limit_status
burst window_ms retry_after_s max_in_flight replica_lags_ms blind_filters
"""


def test_every_switch_of_the_design_is_in_the_table() -> None:
    assert set(DESIGN.split()) <= {switch.name for switch in list_switches()}


def test_every_default_of_the_table_sets_the_default() -> None:
    assert parse_settings([f"{switch.name}={switch.default}" for switch in list_switches()]) == SandboxSettings()


def test_every_switch_explains_itself_in_a_sentence() -> None:
    assert all(switch.help.endswith(".") and switch.values for switch in list_switches())


@pytest.mark.parametrize(
    ("setting", "name", "value"),
    [
        ("duplicates=reject_409", "duplicates", "reject_409"),
        ("drop_after=0.02", "drop_after", 0.02),
        (" rate = 2.5 ", "rate", 2.5),
        ("capacity=8", "capacity", 8),
        ("total_off=-3", "total_off", -3),
        ("verified_domains=a.org, b.org", "verified_domains", ("a.org", "b.org")),
        ("required=", "required", ()),
        ("authorization=Bearer {token}", "authorization", "Bearer {token}"),
        ("replica_lags_ms=0, 1.5", "replica_lags_ms", (0.0, 1.5)),
        ("base_alias=Old = New,7=9", "base_alias", {"Old": "New", "7": "9"}),
        ("redirect_to=http://x/?a=b", "redirect_to", "http://x/?a=b"),
    ],
)
def test_a_setting_is_read(setting: str, name: str, value: object) -> None:
    assert getattr(parse_settings([setting]), name) == value


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("duplicates=maybe", ["'duplicates'", "reject_409"]),
        ("drop_after=1.5", ["'drop_after'", "0 to 1"]),
        ("drop_after=nan", ["'drop_after'"]),
        ("drop_after=often", ["'drop_after'"]),
        ("capacity=1.5", ["'capacity'", "whole"]),
        ("latency_ms=-1", ["'latency_ms'"]),
        ("alter_identity=maybe", ["'alter_identity'", "true | false"]),
        ("required=Shoe", ["'required'", "Email"]),
        ("authorization=Bearer", ["'authorization'", "{token}"]),
        ("redirect_to=a\nb", ["'redirect_to'"]),
        ("replica_lags_ms=1,soon", ["'replica_lags_ms'", "comma-separated numbers"]),
        ("base_alias=Old", ["'base_alias'", "left=right"]),
        ("base_alias=Old=", ["'base_alias'"]),
        ("drop_afterr=1", ["'drop_afterr'", "did you mean 'drop_after'"]),
        ("xyzzy=1", ["'xyzzy'", "there are: "]),
        ("duplicates", ["name=value"]),
    ],
)
def test_a_setting_that_cannot_be_is_named_with_what_it_takes(setting: str, words: list[str]) -> None:
    settings = [setting]
    with pytest.raises(ValueError, match=r"switch|setting") as caught:
        parse_settings(settings)
    assert all(word in str(caught.value) for word in words)


def test_json_values_are_taken_as_texts_are() -> None:
    given = {"rate": 5, "fault_operations": ["list"], "alter_identity": True, "drop_after": "0.5"}
    changed = change_settings(SandboxSettings(), given)
    assert (changed.rate, changed.fault_operations, changed.alter_identity, changed.drop_after) == (
        5.0,
        ("list",),
        True,
        0.5,
    )


@pytest.mark.parametrize(
    "given",
    [
        {"rate": [1]},
        {"duplicates": 1},
        {"required": [1]},
        {"alter_identity": 2},
        {"replica_lags_ms": 1},
        {"base_alias": 1},
    ],
)
def test_a_json_value_of_the_wrong_type_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="cannot be"):
        change_settings(SandboxSettings(), given)


def test_settings_that_were_read_back_can_be_set_again() -> None:
    settings = parse_settings(["base_alias=Old=New", "replica_lags_ms=0,500", "required=Email", "limit_status=503"])
    assert change_settings(SandboxSettings(), settings.model_dump()) == settings


def test_the_fields_that_switches_name_are_those_that_a_create_knows() -> None:
    _, _, values = parse_create(json.dumps({"Subscriber": EVERYTHING}).encode(), "forbid")
    known = {name for name in values if name != "Address"} | {f"Address.{name}" for name in values["Address"]}
    assert set(get_args(FieldName)) == known


def test_the_truth_log_tells_of_each_create_what_was_stored_and_answered(calls: Calls) -> None:
    answered = calls.create(" Ana@example.com", FirstName="Ana").json["Subscriber"]
    calls.sandbox.switch(error_after=1)
    calls.create("bob@example.com")
    truth = calls.sandbox.truth()
    first, second = truth["events"]
    assert (first["sequence"], first["kind"], first["id"], first["base_id"]) == (1, "created", answered["Id"], 1)
    assert (first["email"], first["answered"], first["subscriber"]) == (" Ana@example.com", "answered", answered)
    assert (second["sequence"], second["answered"]) == (2, "server_error")
    assert first["at"] <= second["at"]
    assert (truth["sequence"], truth["subscribers"], truth["bases"]) == (2, 2, [{"id": 1, "name": "Base 1"}])
    assert calls.sandbox.truth(after=1)["events"] == [second]


def test_rejected_and_refused_requests_leave_no_event(calls: Calls) -> None:
    calls.create("nobody")
    calls.sandbox.switch(refuse=1)
    calls.create("a@example.com")
    assert calls.sandbox.truth()["events"] == []


def test_switches_are_set_all_or_none(calls: Calls) -> None:
    with pytest.raises(ValueError, match="'rate' cannot be -1"):
        calls.sandbox.switch(latency_ms=5, rate=-1)
    assert calls.sandbox.switch()["latency_ms"] == 0
    assert calls.sandbox.switch(latency_ms="5")["latency_ms"] == 5


def test_reset_empties_everything_and_sets_the_switches_back(calls: Calls) -> None:
    calls.sandbox.seed(5)
    first = calls.create("a@example.com").json["Subscriber"]["Id"]
    calls.sandbox.switch(order="email", latency_ms=3)
    calls.sandbox.reset()
    truth, stats = calls.sandbox.truth(), calls.sandbox.stats()
    assert (truth["events"], truth["subscribers"], truth["bases"], stats["requests"]) == ([], 0, [], {})
    assert calls.sandbox.switch()["order"] == "id"
    assert calls.create("a@example.com").json["Subscriber"]["Id"] == first - 5


@pytest.mark.parametrize(
    ("method", "action", "body", "status"),
    [
        ("GET", "nothing", None, 404),
        ("POST", "truth", b"", 404),
        ("GET", "truth?after=x", None, 400),
        ("POST", "switches", b"{", 400),
        ("POST", "switches", b"[]", 400),
        ("POST", "seed", b"{}", 400),
        ("POST", "seed", b'{"count":0}', 400),
        ("POST", "seed", b'{"count":1,"base_id":"x"}', 400),
        ("POST", "seed", b'{"count":1,"base_name":""}', 400),
        ("POST", "seed", b'{"count":1,"colour":"x"}', 400),
    ],
)
def test_what_the_control_cannot_do_it_says(
    calls: Calls, method: str, action: str, body: bytes | None, status: int
) -> None:
    reply = calls.ask(method, f"/_sandbox/{action}", body)
    assert (reply.status, "error" in reply.json) == (status, True)


CONTROLS = [("GET", each) for each in ("truth", "stats", "outbox", "switches", "nothing")]
CONTROLS += [("POST", each) for each in ("switches", "reset", "seed")]


@pytest.mark.parametrize("given", ["", "wrong", "Bearer {token}", "{token}x", "{token}, {token}"])
def test_the_control_demands_the_very_token_and_says_so_in_json(calls: Calls, given: str) -> None:
    calls.create("a@example.com")
    authorization = given.replace("{token}", calls.sandbox.token)
    for method, action in CONTROLS:
        body = b'{"count": 5, "latency_ms": 5}' if method == "POST" else None
        reply = calls.ask(method, f"/_sandbox/{action}", body, Authorization=authorization)
        assert (reply.status, list(reply.json)) == (401, ["error"]), action
        assert calls.sandbox.token.encode() not in reply.body
    assert (calls.sandbox.truth()["subscribers"], calls.sandbox.switch()["latency_ms"]) == (1, 0)


def test_the_control_takes_the_token_itself_whatever_the_api_wants(calls: Calls) -> None:
    calls.sandbox.switch(authorization="Bearer {token}", error_shape="html")
    assert calls.sandbox.stats()["subscribers"] == 0
    refused = calls.ask("GET", "/_sandbox/stats", Authorization=f"Bearer {calls.sandbox.token}")
    assert (refused.status, list(refused.json)) == (401, ["error"])


def test_control_requests_are_not_counted_and_obey_no_fault(calls: Calls) -> None:
    calls.sandbox.switch(drop_before=1, refuse=1, redirect_to="http://x", latency_ms=1000)
    assert calls.sandbox.stats()["requests"] == {}


def test_seeded_subscribers_are_like_others(calls: Calls) -> None:
    seeded = calls.sandbox.seed(300, base_name="Crowd")
    page = calls.page(limit=1000)
    people = page["Subscribers"]
    assert (page["TotalCount"], len({each["Email"] for each in people})) == (300, 300)
    assert {each["Base"]["Name"] for each in people} == {"Crowd"}
    assert [each["Id"] for each in people] == [seeded["first_id"] + n for n in range(300)]
    somebody = people[123]
    assert calls.page(Email=somebody["Email"])["Subscribers"] == [somebody]
    assert calls.page(ClientUserId=somebody["ClientUserId"])["Subscribers"] == [somebody]
    calls.sandbox.switch(duplicates="reject_409")
    assert calls.create(somebody["Email"].upper(), base=somebody["Base"]).status == 409
    assert calls.create(somebody["Email"], base={"Id": 99}).status == 200


def test_a_seeded_subscriber_would_be_accepted_as_a_create(calls: Calls) -> None:
    calls.sandbox.seed(500)
    people = calls.page(limit=1000)["Subscribers"]
    calls.sandbox.reset()
    for each in people:
        given = {name: value for name, value in each.items() if name != "Id"}
        given["Address"] = each["Address"] | {"Zip": int(each["Address"]["Zip"])}
        body = json.dumps({"Subscriber": given}).encode()
        assert calls.ask("POST", "/api/subscribers/create-subscriber/", body).json == {
            "success": True, "Subscriber": each
        }  # fmt: skip
