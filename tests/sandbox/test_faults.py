"""The faults of the sandbox on a real socket: the answer, the stored subscribers and the truth log."""

import http.client
import time

import pytest

from tests.sandbox.client import SandboxClient, read_answers, read_to_end, wait_until

CLOSED_CONNECTION_ERRORS = (
    http.client.RemoteDisconnected,
    http.client.BadStatusLine,
    ConnectionResetError,
    BrokenPipeError,
)


def list_stored_subscribers(client: SandboxClient) -> list[tuple[str, str]]:
    return [(event["email"], event["answered"]) for event in client.list_events()]


def count_answers(client: SandboxClient) -> dict[str, int]:
    answers: dict[str, int] = client.sandbox.stats()["requests"]["create"]["answers"]
    return answers


@pytest.mark.parametrize("closing_method", ["close", "reset"])
@pytest.mark.parametrize(("fault", "events"), [("drop_before", []), ("drop_after", [("a@example.com", "cut")])])
def test_a_dropped_connection_sends_no_byte_of_an_answer(
    client: SandboxClient, fault: str, events: list[tuple[str, str]], closing_method: str
) -> None:
    with client.connect() as client_socket:
        client_socket.sendall(client.encode_create("before@example.com"))
        assert read_answers(client_socket, 1)[0][0] == 200  # an answer before the fault is complete
        client.sandbox.switch(**{fault: 1, "cut_by": closing_method})
        client_socket.sendall(client.encode_create("a@example.com") + client.encode_create("b@example.com"))
        if closing_method == "reset":
            with pytest.raises(ConnectionResetError):
                read_to_end(client_socket)
        else:
            assert read_to_end(client_socket) == b""
    assert (list_stored_subscribers(client), count_answers(client)) == (
        [("before@example.com", "answered"), *events],
        {"200": 1, "cut": 1},
    )


@pytest.mark.parametrize(
    ("fault", "status", "recorded_answer"),
    [
        ("error_before", 502, None),
        ("error_after", 502, "server_error"),
        ("created_422", 422, "answered_422"),
        ("created_429", 429, "answered_429"),
        ("refuse", 429, None),
    ],
)
def test_an_error_can_be_answered_before_or_after_the_create_is_stored(
    client: SandboxClient, fault: str, status: int, recorded_answer: str | None
) -> None:
    client.sandbox.switch(**{fault: 1, "server_error": 502})
    reply = client.create("a@example.com")
    assert (reply.status, reply.json["success"]) == (status, False)
    assert list_stored_subscribers(client) == ([("a@example.com", recorded_answer)] if recorded_answer else [])
    assert count_answers(client) == {str(status): 1}


def test_a_cut_answer_ends_in_the_middle_of_its_body(client: SandboxClient) -> None:
    client.sandbox.switch(cut_answer=1)
    with client.connect() as client_socket:
        client_socket.sendall(client.encode_create("a@example.com"))
        answer_head, _, body = read_to_end(client_socket).partition(b"\r\n\r\n")
    body_length = int(answer_head.partition(b"Content-Length: ")[2].split(b"\r\n")[0])
    assert answer_head.startswith(b"HTTP/1.1 200 ")
    assert 0 < len(body) < body_length
    assert list_stored_subscribers(client) == [("a@example.com", "cut_in_answer")]


def test_a_create_that_hangs_is_stored_and_not_answered(client: SandboxClient) -> None:
    client.sandbox.switch(hang_after=1)
    with client.connect() as client_socket:
        client_socket.sendall(client.encode_create("a@example.com") + client.encode_create("b@example.com"))
        wait_until(lambda: list_stored_subscribers(client))
        client.sandbox.switch(hang_after=0)
        assert client.create("c@example.com").status == 200
        client_socket.settimeout(0.05)
        with pytest.raises(TimeoutError):
            client_socket.recv(1)
    assert list_stored_subscribers(client) == [("a@example.com", "hung"), ("c@example.com", "answered")]
    assert count_answers(client) == {"hung": 1, "200": 1}


def test_no_kind_of_garbage_is_a_success(client: SandboxClient) -> None:
    client.sandbox.switch(garbage_after=1)
    replies = [client.create(f"{n}@example.com") for n in range(40)]
    assert len({reply.body for reply in replies}) > 4
    for reply in replies:
        try:
            answer = reply.json
        except ValueError:
            continue
        is_success = isinstance(answer, dict) and answer.get("success") is True
        assert not (is_success and (answer.get("Subscriber") or {}).get("Id"))
    assert [recorded_answer for _, recorded_answer in list_stored_subscribers(client)] == ["garbage"] * 40


def test_a_stored_create_can_be_answered_as_a_refusal(client: SandboxClient) -> None:
    client.sandbox.switch(executed_status=1)
    assert {client.create(f"{n}@example.com").status for n in range(40)} == {401, 403, 404, 405}
    assert [recorded_answer for _, recorded_answer in list_stored_subscribers(client)] == ["answered_as_refused"] * 40
    client.sandbox.switch(executed_statuses=["200"])
    reply = client.create("last@example.com")
    assert (reply.status, reply.json["success"], len(list_stored_subscribers(client))) == (200, False, 41)


def test_a_wrong_answer_contains_another_subscriber(client: SandboxClient) -> None:
    client.sandbox.switch(wrong_answer=1)
    assert client.create("a@example.com").json["Subscriber"]["Email"] == "somebody.else@example.net"
    assert client.list_emails() == ["a@example.com"]


def test_a_create_can_be_executed_after_its_connection_was_cut(
    client: SandboxClient,
) -> None:
    client.sandbox.switch(drop_before=1, late_ms=1000)
    started_at = time.monotonic()
    with pytest.raises(CLOSED_CONNECTION_ERRORS):
        client.create("a@example.com")
    assert list_stored_subscribers(client) == []
    wait_until(lambda: list_stored_subscribers(client))
    assert time.monotonic() - started_at > 0.9
    assert list_stored_subscribers(client) == [("a@example.com", "late")]
    client.sandbox.switch(late_ms=100)
    with pytest.raises(CLOSED_CONNECTION_ERRORS):
        client.create("b@example.com")
    client.sandbox.reset()
    client.sandbox.switch(latency_ms=200)
    client.create("c@example.com")
    assert list_stored_subscribers(client) == [("c@example.com", "answered")]


def test_a_create_whose_client_has_disconnected_is_executed(client: SandboxClient) -> None:
    client.sandbox.switch(latency_ms=500)  # during the latency, the sandbox notices that the client has gone
    with client.connect() as client_socket:
        client_socket.sendall(client.encode_create("a@example.com"))
    wait_until(lambda: list_stored_subscribers(client))
    assert list_stored_subscribers(client) == [("a@example.com", "gone")]


def test_a_fault_of_stored_creates_does_not_change_a_rejected_create(client: SandboxClient) -> None:
    client.sandbox.switch(created_422=1)
    assert client.create("nobody").status == 400
    assert list_stored_subscribers(client) == []


def test_a_fault_affects_only_the_operations_that_a_switch_selects(client: SandboxClient) -> None:
    client.sandbox.switch(drop_after=1)
    assert client.request_list().status == 200
    client.sandbox.switch(fault_operations=["list"])
    assert client.create("a@example.com").status == 200
    with pytest.raises(CLOSED_CONNECTION_ERRORS):
        client.request_list()


def test_the_same_seed_repeats_the_faults_of_each_request(
    client: SandboxClient,
) -> None:
    def list_statuses() -> list[int]:
        client.sandbox.switch(seed=7, error_before=0.5, error_after=0.5, created_422=1)
        return [client.create(f"{n}@example.com").status for n in range(200)]

    first_statuses = list_statuses()
    assert (
        120 < first_statuses.count(500) < 180
    )  # about 150: half of the creates by `error_before`, and half of the remaining creates by `error_after`
    assert first_statuses.count(422) == 200 - first_statuses.count(500)
    assert list_statuses() == first_statuses


def list_statuses(client: SandboxClient, request_count: int) -> list[int]:
    return [client.create(f"{index}@example.com").status for index in range(request_count)]


def test_creates_can_be_refused_by_their_number_or_for_a_period(client: SandboxClient) -> None:
    client.sandbox.switch(blocked_from=3, blocked_creates=2, blocked_status=404)
    assert list_statuses(client, 6) == [200, 200, 404, 404, 200, 200]
    client.sandbox.switch(blocked_from=0)
    client.sandbox.switch(blocked_from=1, blocked_creates=0, blocked_ms=300, blocked_status=200, blocked_words="Later")
    assert client.create("blocked@example.com").json == {"success": False, "message": "Later"}
    wait_until(lambda: client.create("free@example.com").json["success"])
    assert client.request_list().status == 200
    assert "blocked@example.com" not in dict(list_stored_subscribers(client))


def test_a_create_beyond_the_quota_is_refused_until_the_quota_is_lifted(client: SandboxClient) -> None:
    client.sandbox.switch(quota=2)
    assert list_statuses(client, 3) == [200, 200, 402]
    assert client.create("more@example.com").json["message"] == "Your plan allows 2 subscribers"
    client.sandbox.switch(quota_status=200)
    assert client.create("more@example.com").json["success"] is False
    client.sandbox.switch(quota=0)
    assert client.create("more@example.com").json["success"] is True


def test_a_single_refusal_stores_nothing(client: SandboxClient) -> None:
    client.sandbox.switch(stray_refusal=1, stray_statuses="404")
    assert list_statuses(client, 2) == [404, 404]
    assert (list_stored_subscribers(client), client.sandbox.stats()["faults"]) == ([], {"stray_refusal": 2})


def test_a_create_can_be_executed_twice_or_answered_without_being_stored(client: SandboxClient) -> None:
    client.sandbox.switch(repeat=1)
    client.create("twice@example.com")
    assert list_stored_subscribers(client) == [("twice@example.com", "repeated"), ("twice@example.com", "answered")]
    client.sandbox.switch(repeat=0, discard=1, fault_operations=["create", "list"])
    assert client.create("never@example.com").json["Subscriber"]["Email"] == "never@example.com"
    assert client.list_emails() == ["twice@example.com"] * 2
