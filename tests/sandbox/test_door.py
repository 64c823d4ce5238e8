"""The checks before a request is served: host, token, limiters, latency and capacity."""

import http.client
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from email.utils import parsedate_to_datetime

import pytest

from connector.sandbox.faults import BucketLimiter, FixedWindowLimiter, RateLimiter, SlidingWindowLimiter, build_limiter
from connector.sandbox.server import is_loopback_header
from tests.sandbox.client import CREATE_PATH, LIST_PATH, SEND_PATH, SandboxClient, wait_until


@pytest.mark.parametrize(("method", "path"), [("POST", CREATE_PATH), ("GET", LIST_PATH), ("POST", SEND_PATH)])
def test_an_operation_refuses_a_request_without_its_token(client: SandboxClient, method: str, path: str) -> None:
    for template in ("", "wrong", "Bearer {token}", "{token}x"):
        reply = client.request(method, path, b"{}", Authorization=template.replace("{token}", client.sandbox.token))
        assert (reply.status, reply.json["success"]) == (401, False)
        assert client.sandbox.token.encode() not in reply.body
    client.sandbox.switch(authorization="Bearer {token}", error_shape="empty")
    reply = client.request(method, path)
    assert (reply.status, reply.body) == (401, b"")
    assert client.request(method, path, Authorization=f"Bearer {client.sandbox.token}").status != 401


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", CREATE_PATH, 405),
        ("POST", LIST_PATH, 405),
        ("GET", SEND_PATH, 405),
        ("GET", "/nothing", 404),
        ("GET", LIST_PATH[:-1], 404),
    ],
)
def test_only_the_three_operations_have_an_address(client: SandboxClient, method: str, path: str, status: int) -> None:
    assert client.request(method, path).status == status


def test_a_body_needs_the_content_type_json_and_an_allowed_size(client: SandboxClient) -> None:
    assert client.request("POST", CREATE_PATH, b"{}", Content_Type="text/plain").status == 415
    assert client.request("POST", CREATE_PATH, b"{}", Content_Type="application/json; charset=utf-8").status == 400
    client.sandbox.switch(max_body_bytes=100)
    assert client.create("a@example.com", FirstName="x" * 200).status == 413
    assert client.list_events() == []


def test_a_redirect_is_answered_before_any_check(client: SandboxClient) -> None:
    client.sandbox.switch(redirect_to="http://127.0.0.1:9/there/")
    reply = client.request("GET", f"{LIST_PATH}?limit=5", Authorization="")
    assert (reply.status, reply.headers["location"]) == (307, f"http://127.0.0.1:9/there{LIST_PATH}?limit=5")
    assert client.create("a@example.com").status == 307
    assert client.list_events() == []


@pytest.mark.parametrize("limiter", ["bucket", "fixed_window", "sliding_window"])
def test_a_rate_limit_counts_the_requests_of_all_operations_together(client: SandboxClient, limiter: str) -> None:
    # The limit is one request in a quarter of an hour.
    client.sandbox.switch(limiter=limiter, rate=0.001, burst=1, window_ms=1_000_000)
    assert [client.create("a@example.com").status, client.request_list().status, client.send({}).status] == [
        200,
        429,
        429,
    ]


def test_retry_after_is_seconds_a_date_a_unix_time_or_nothing(client: SandboxClient) -> None:
    client.sandbox.switch(rate=0.0166, burst=1)
    client.create("a@example.com")
    refusal_reply = client.create("a@example.com")
    assert refusal_reply.status == 429
    assert int(refusal_reply.headers["retry-after"]) in (60, 61)
    client.sandbox.switch(retry_after="date")
    request_time = time.time()
    retry_date = parsedate_to_datetime(client.create("a@example.com").headers["retry-after"])
    assert 58 <= retry_date.timestamp() - request_time <= 62  # the date is rounded up
    client.sandbox.switch(retry_after="unix")
    retry_at = int(client.create("a@example.com").headers["retry-after"])
    assert 58 <= retry_at - request_time <= 64
    client.sandbox.switch(retry_after="none")
    assert "retry-after" not in client.create("a@example.com").headers


def test_stats_count_the_requests_that_ignore_a_retry_after(
    client: SandboxClient,
) -> None:
    client.sandbox.switch(refuse=1, refuse_retry_after_s=50)
    with closing(http.client.HTTPConnection("127.0.0.1", client.port, timeout=10)) as connection:
        assert send_create(connection, client.sandbox.token) == 429
        client.sandbox.switch(refuse=0)
        assert send_create(connection, client.sandbox.token) == 200
    assert client.create("b@example.com").status == 200
    stats = client.sandbox.stats()
    assert (stats["limited"], stats["inside_retry_after"]) == (1, {"all": 2, "told": 1})
    assert stats["requests"]["create"] == {"received": 3, "answers": {"429": 1, "200": 2}}
    assert stats["faults"] == {"refuse": 1}


def send_create(connection: http.client.HTTPConnection, token: str) -> int:
    body = b'{"Subscriber": {"Email": "a@example.com", "Base": {"Id": 1}}}'
    connection.request("POST", CREATE_PATH, body, {"Authorization": token, "Content-Type": "application/json"})
    answer = connection.getresponse()
    answer.read()
    return answer.status


@pytest.mark.parametrize(("status", "retry_after"), [(403, "seconds"), (503, "none"), (200, "seconds")])
def test_a_limit_can_refuse_with_any_status_and_without_a_retry_after(
    client: SandboxClient, status: int, retry_after: str
) -> None:
    client.sandbox.switch(rate=0.001, burst=1, limit_status=status, retry_after=retry_after)
    reply = [client.create("b@example.com") for _ in range(2)][-1]
    assert (reply.status, reply.json["success"]) == (status, False)
    assert ("retry-after" in reply.headers) == (retry_after == "seconds")


def test_a_limiter_returns_the_wait_of_a_request() -> None:
    cases: list[tuple[RateLimiter, list[float], list[float]]] = [
        (BucketLimiter(rate=10, burst=3), [5, 5, 5, 5, 5.1, 5.2, 5.25], [0, 0, 0, 0.1, 0, 0, 0.05]),
        # With burst=0, the bucket admits the requests of one second at the same time: here two requests.
        (BucketLimiter(rate=2, burst=0), [0, 0, 0, 0.5], [0, 0, 0.5, 0]),
        (BucketLimiter(rate=0.5, burst=0), [0, 0, 2], [0, 2, 0]),
        (FixedWindowLimiter(rate=2, window_s=1.0), [0.9, 0.95, 0.96, 1.0, 1.01, 1.02], [0, 0, 0.04, 0, 0, 0.98]),
        (SlidingWindowLimiter(rate=2, window_s=1.0), [0.9, 0.95, 1.0, 1.9, 1.91], [0, 0, 0.9, 0, 0.04]),
        (build_limiter("bucket", 0, 5, 1.0), [0] * 9, [0] * 9),
    ]
    for limiter, arrival_times, wait_times in cases:
        assert [limiter.admit_or_compute_wait(arrival_time) for arrival_time in arrival_times] == pytest.approx(
            wait_times
        )


def create_many(client: SandboxClient, count: int) -> tuple[list[int], float]:
    started_at = time.monotonic()
    with ThreadPoolExecutor(count) as pool:
        statuses = list(pool.map(lambda n: client.create(f"{n}@example.com").status, range(count)))
    return statuses, time.monotonic() - started_at


def test_the_latency_delays_simultaneous_requests_at_the_same_time(client: SandboxClient) -> None:
    client.sandbox.switch(latency_ms=150)
    statuses, duration_s = create_many(client, 8)
    assert (statuses, duration_s >= 0.15) == ([200] * 8, True)
    assert client.sandbox.stats()["peak_in_flight"] > 1
    client.sandbox.switch(refuse=1, retry_after="none")
    statuses, duration_s = create_many(client, 1)
    assert (statuses, duration_s >= 0.15) == ([429], True)


def test_a_reset_closes_open_requests_without_storing_them(client: SandboxClient) -> None:
    client.sandbox.switch(latency_ms=60_000, capacity=1)
    with client.connect() as served_socket, client.connect() as waiting_socket:
        for client_socket in (served_socket, waiting_socket):
            client_socket.sendall(client.encode_create("a@example.com"))
        wait_until(lambda: client.sandbox.stats()["in_flight"] == 2)
        client.sandbox.reset()
        assert [client_socket.recv(100) for client_socket in (served_socket, waiting_socket)] == [b"", b""]
    client.sandbox.switch(capacity=1)
    assert client.create("b@example.com").status == 200
    stats = client.sandbox.stats()
    assert (stats["in_flight"], stats["peak_in_flight"]) == (0, 1)
    assert [event["email"] for event in client.list_events()] == ["b@example.com"]


# Connections and hosts


LOCAL_HOSTS = [
    "localhost",
    "localhost:8080",
    "LOCALHOST:1",
    "127.0.0.1",
    "127.0.0.1:8080",
    "127.9.8.7:1",
    "[::1]",
    "[::1]:80",
]
FOREIGN_HOSTS = """
    x evil.example evil.example:8080 localhost.evil.example localhost:evil.example 127.0.0.1.evil.example
    evil.example@127.0.0.1 127.0.0.1@evil.example localhost. 127.0.0.256 127.1 2130706433 0.0.0.0 10.0.0.1
    192.168.0.1:80 ::1 [::1 [::] [2001:db8::1] [127.0.0.1] [localhost] lоcalhost :8080
"""
"""Hosts that are not this machine. In the last `localhost`, the letter o is Cyrillic."""


def test_only_host_names_of_this_machine_are_allowed() -> None:
    foreign_hosts = ["", "localhost, evil.example", "localhost localhost", *FOREIGN_HOSTS.split()]
    assert [host for host in (*LOCAL_HOSTS, *foreign_hosts) if is_loopback_header(host)] == LOCAL_HOSTS


@pytest.mark.parametrize("path", [LIST_PATH, "/_sandbox/truth", "/_sandbox/nothing", "/", "/favicon.ico"])
def test_a_request_for_another_host_is_refused_even_with_the_token(client: SandboxClient, path: str) -> None:
    client.sandbox.switch(error_shape="html", redirect_to="http://127.0.0.1:9")
    reply = client.request("GET", path, Host="evil.example:8080")
    assert (reply.status, list(reply.json), reply.headers["content-type"]) == (403, ["error"], "application/json")
    assert client.sandbox.stats()["requests"] == {}
