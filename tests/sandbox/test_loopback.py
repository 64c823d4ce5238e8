"""Only who calls the sandbox by a name of this machine is served: a web page under a name of its own is not."""

import pytest

from connector.sandbox.server import is_loopback_header
from tests.sandbox.calls import LIST, Calls, read_answers

OURS = ["localhost", "localhost:8080", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:8080", "127.9.8.7:1", "[::1]", "[::1]:80"]
FOREIGN = [
    "",
    "x",
    "evil.example",
    "evil.example:8080",
    "localhost.evil.example",
    "localhost:evil.example",
    "127.0.0.1.evil.example",
    "evil.example@127.0.0.1",
    "127.0.0.1@evil.example",
    "localhost, evil.example",
    "localhost localhost",
    "localhost.",
    "127.0.0.256",
    "127.1",
    "2130706433",
    "0.0.0.0",
    "10.0.0.1",
    "192.168.0.1:80",
    "::1",
    "[::1",
    "[::]",
    "[2001:db8::1]",
    "[127.0.0.1]",
    "[localhost]",
    "lоcalhost",  # a Cyrillic o
    ":8080",
]


def test_names_of_this_machine_are_let_in_and_no_other() -> None:
    assert [host for host in (*OURS, *FOREIGN) if is_loopback_header(host)] == OURS


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
        assert read_answers(sock, 1)[0][0] == 403
        assert calls.events() == []


def test_a_name_of_this_machine_is_served(calls: Calls) -> None:
    assert calls.ask("GET", LIST, Host="[::1]:7").status == 200
