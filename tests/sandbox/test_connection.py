"""HTTP on a real socket: order, slow clients, the end of a connection, and only names of this machine."""

import pytest

from connector.sandbox.server import is_loopback_header
from tests.sandbox.calls import LIST, Calls, read_answers


def test_pipelined_requests_are_answered_in_their_order(calls: Calls) -> None:
    calls.sandbox.switch(latency_ms=2, jitter_ms=5)
    with calls.connect() as sock:
        sock.sendall(b"".join(calls.raw_create(f"p{n}@example.com") for n in range(20)))
        answers = read_answers(sock, 20)
    assert [f"p{n}@example.com".encode() in body for n, (_, body) in enumerate(answers)] == [True] * 20
    assert [event["email"] for event in calls.events()] == [f"p{n}@example.com" for n in range(20)]


def test_a_client_that_expects_100_continue_gets_it(calls: Calls) -> None:
    head, _, body = calls.raw_create("expect@example.com").partition(b"\r\n\r\n")
    with calls.connect() as sock:
        sock.sendall(head + b"\r\nExpect: 100-continue\r\n\r\n")
        assert sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(body)
        assert read_answers(sock, 1)[0][0] == 200


def test_a_body_beyond_the_bound_is_answered_413(calls: Calls) -> None:
    calls.sandbox.switch(max_body_bytes=100)
    assert calls.create("a@example.com", FirstName="x" * 200).status == 413
    assert calls.events() == []


OURS = ["localhost", "localhost:8080", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:8080", "127.9.8.7:1", "[::1]", "[::1]:80"]
FOREIGN = """
    x evil.example evil.example:8080 localhost.evil.example localhost:evil.example 127.0.0.1.evil.example
    evil.example@127.0.0.1 127.0.0.1@evil.example localhost. 127.0.0.256 127.1 2130706433 0.0.0.0 10.0.0.1
    192.168.0.1:80 ::1 [::1 [::] [2001:db8::1] [127.0.0.1] [localhost] lоcalhost :8080
"""
"""One о is Cyrillic."""


def test_names_of_this_machine_are_let_in_and_no_other() -> None:
    foreign = ["", "localhost, evil.example", "localhost localhost", *FOREIGN.split()]
    assert [host for host in (*OURS, *foreign) if is_loopback_header(host)] == OURS


@pytest.mark.parametrize("path", [LIST, "/_sandbox/truth", "/_sandbox/nothing", "/", "/favicon.ico"])
def test_another_host_is_refused_at_every_address_though_it_has_the_token(calls: Calls, path: str) -> None:
    calls.sandbox.switch(error_shape="html", redirect_to="http://127.0.0.1:9")
    reply = calls.ask("GET", path, Host="evil.example:8080")
    assert (reply.status, list(reply.json), reply.headers["content-type"]) == (403, ["error"], "application/json")
    assert calls.sandbox.stats()["requests"] == {}


@pytest.mark.parametrize("hosts", [b"", b"Host: localhost\r\nHost: evil.example\r\n"], ids=["none", "two"])
def test_no_host_or_two_are_refused_too(calls: Calls, hosts: bytes) -> None:
    with calls.connect() as sock:
        sock.sendall(calls.raw_create("a@example.com").replace(b"Host: localhost\r\n", hosts))
        assert read_answers(sock, 1)[0][0] == 400  # by aiohttp
        assert calls.events() == []


def test_a_name_of_this_machine_is_served(calls: Calls) -> None:
    assert calls.ask("GET", LIST, Host="[::1]:7").status == 200
