import json

import pytest

from tests.sandbox.calls import Calls


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
