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
        assert read_answers(client_socket, 1)[0][0] == 200  # without a fault, the connection gets a complete answer
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


def test_a_cut_answer_ends_in_the_middle_of_its_body(client: SandboxClient) -> None:
    client.sandbox.switch(cut_answer=1)
    with client.connect() as client_socket:
        client_socket.sendall(client.encode_create("a@example.com"))
        answer_head, _, body = read_to_end(client_socket).partition(b"\r\n\r\n")
    body_length = int(answer_head.partition(b"Content-Length: ")[2].split(b"\r\n")[0])
    assert answer_head.startswith(b"HTTP/1.1 200 ")
    assert 0 < len(body) < body_length
    assert list_stored_subscribers(client) == [("a@example.com", "cut_in_answer")]


def test_a_hanging_create_is_stored_and_not_answered(client: SandboxClient) -> None:
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


def test_a_create_can_be_executed_after_its_connection_was_cut(
    client: SandboxClient,
) -> None:
    client.sandbox.switch(drop_before=1, late_ms=100)
    started_at = time.monotonic()
    with pytest.raises(CLOSED_CONNECTION_ERRORS):
        client.create("a@example.com")
    assert list_stored_subscribers(client) == []
    wait_until(lambda: list_stored_subscribers(client))
    assert time.monotonic() - started_at > 0.09
    assert list_stored_subscribers(client) == [("a@example.com", "late")]


def test_a_create_of_a_disconnected_client_is_executed(client: SandboxClient) -> None:
    client.sandbox.switch(latency_ms=150)  # during the latency, the sandbox notices that the client has disconnected
    with client.connect() as client_socket:
        client_socket.sendall(client.encode_create("a@example.com"))
    wait_until(lambda: list_stored_subscribers(client))
    assert list_stored_subscribers(client) == [("a@example.com", "gone")]


def test_a_fault_affects_only_the_selected_operations(client: SandboxClient) -> None:
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
        return [client.create(f"{n}@example.com").status for n in range(50)]

    first_statuses = list_statuses()
    assert first_statuses.count(422) == 50 - first_statuses.count(500)
    assert 0 < first_statuses.count(422) < 50
    assert list_statuses() == first_statuses
