"""Who is let in, and when: the token, the limiters, latency, capacity, and what is counted of requests in flight."""

import http.client
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from email.utils import parsedate_to_datetime

import pytest

from connector.sandbox.faults import Bucket, FixedWindow, SlidingWindow, Unlimited, build_limiter
from tests.sandbox.calls import CREATE, LIST, SEND, Calls, read_answers, wait_until


@pytest.mark.parametrize(("method", "path"), [("POST", CREATE), ("GET", LIST), ("POST", SEND)])
@pytest.mark.parametrize("given", ["", "wrong", "Bearer {token}", "{token}x"])
def test_every_operation_demands_the_very_token(calls: Calls, method: str, path: str, given: str) -> None:
    reply = calls.ask(method, path, b"{}", Authorization=given.replace("{token}", calls.sandbox.token))
    assert (reply.status, reply.json["success"]) == (401, False)
    assert calls.sandbox.token.encode() not in reply.body


def test_the_authorization_header_has_a_template(calls: Calls) -> None:
    calls.sandbox.switch(authorization="Bearer {token}")
    assert calls.ask_list().status == 401
    assert calls.ask("GET", LIST, Authorization=f"Bearer {calls.sandbox.token}").status == 200


def test_a_wrong_token_is_answered_in_the_shape_of_errors(calls: Calls) -> None:
    calls.sandbox.switch(error_shape="empty")
    reply = calls.ask("GET", LIST, Authorization="wrong")
    assert (reply.status, reply.body) == (401, b"")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", CREATE, 405), ("POST", LIST, 405), ("GET", SEND, 405), ("GET", "/nothing", 404), ("GET", LIST[:-1], 404)],
)
def test_only_the_three_operations_are_there(calls: Calls, method: str, path: str, status: int) -> None:
    assert calls.ask(method, path).status == status


def test_a_body_must_say_that_it_is_json(calls: Calls) -> None:
    assert calls.ask("POST", CREATE, b"{}", Content_Type="text/plain").status == 415
    assert calls.ask("POST", CREATE, b"{}", Content_Type="application/json; charset=utf-8").status == 400


def test_redirects_lead_away_before_anything_is_checked(calls: Calls) -> None:
    calls.sandbox.switch(redirect_to="http://127.0.0.1:9/there/")
    reply = calls.ask("GET", f"{LIST}?limit=5", Authorization="")
    assert (reply.status, reply.headers["location"]) == (307, f"http://127.0.0.1:9/there{LIST}?limit=5")
    assert calls.create("a@example.com").status == 307
    assert calls.events() == []


@pytest.mark.parametrize("limiter", ["bucket", "fixed_window", "sliding_window"])
def test_beyond_the_rate_all_operations_are_refused_together(calls: Calls, limiter: str) -> None:
    calls.sandbox.switch(limiter=limiter, rate=0.001, burst=1, window_ms=1_000_000)  # one in a quarter of an hour
    assert [calls.create("a@example.com").status, calls.ask_list().status, calls.send({}).status] == [200, 429, 429]


@pytest.mark.parametrize("fault", [False, True])
def test_retry_after_is_seconds_a_date_or_nothing(calls: Calls, fault: bool) -> None:
    asked = {"refuse": 1, "refuse_retry_after_s": 60} if fault else {"rate": 0.0166, "burst": 1}
    calls.sandbox.switch(**asked)
    calls.create("a@example.com")
    seconds = calls.create("a@example.com")
    assert seconds.status == 429
    assert int(seconds.headers["retry-after"]) in (60, 61)
    calls.sandbox.switch(retry_after="date")
    asked_at = time.time()
    date = parsedate_to_datetime(calls.create("a@example.com").headers["retry-after"])
    assert (60 if fault else 58) <= date.timestamp() - asked_at <= 62  # rounded up, never down
    calls.sandbox.switch(retry_after="none")
    assert "retry-after" not in calls.create("a@example.com").headers


def test_stats_tell_who_came_inside_a_retry_after(calls: Calls) -> None:
    calls.sandbox.switch(refuse=1, refuse_retry_after_s=50)
    assert calls.create("a@example.com").status == 429
    calls.sandbox.switch(refuse=0)
    assert calls.create("a@example.com").status == 200
    stats = calls.sandbox.stats()
    assert (stats["limited"], stats["inside_retry_after"]) == (1, {"all": 1, "told": 0})  # it may not have known
    assert stats["requests"]["create"] == {"received": 2, "answers": {"429": 1, "200": 1}}
    assert stats["faults"] == {"refuse": 1}


def test_stats_tell_who_knew_of_a_retry_after(calls: Calls) -> None:
    calls.sandbox.switch(refuse=1, refuse_retry_after_s=50)
    with closing(http.client.HTTPConnection("127.0.0.1", calls.port, timeout=10)) as told:
        assert create(told, calls.sandbox.token) == 429
        calls.sandbox.switch(refuse=0)
        assert create(told, calls.sandbox.token) == 200
    assert calls.create("b@example.com").status == 200
    assert calls.sandbox.stats()["inside_retry_after"] == {"all": 2, "told": 1}


def create(connection: http.client.HTTPConnection, token: str) -> int:
    body = b'{"Subscriber": {"Email": "a@example.com", "Base": {"Id": 1}}}'
    connection.request("POST", CREATE, body, {"Authorization": token, "Content-Type": "application/json"})
    answer = connection.getresponse()
    answer.read()
    return answer.status


@pytest.mark.parametrize("status", [503, 403])
@pytest.mark.parametrize("asked", [{"rate": 0.001, "burst": 1}, {"refuse": 1}])
def test_a_limit_can_be_said_by_another_status(calls: Calls, status: int, asked: dict[str, float]) -> None:
    calls.sandbox.switch(limit_status=status)
    calls.create("a@example.com")
    calls.sandbox.switch(**asked)
    replies = [calls.create("b@example.com") for _ in range(2)]
    assert replies[-1].status == status
    assert int(replies[-1].headers["retry-after"]) > 0
    assert calls.sandbox.stats()["limited"] == len([each for each in replies if each.status == status])


def test_the_retry_after_of_a_limit_has_a_least_length(calls: Calls) -> None:
    calls.sandbox.switch(rate=0.05, burst=1, retry_after_s=30)
    assert [calls.create("a@example.com").headers.get("retry-after") for _ in range(2)] == [None, "30"]
    calls.sandbox.switch(rate=0.001)
    assert calls.create("a@example.com").status == 200
    assert int(calls.create("a@example.com").headers["retry-after"]) > 900


def test_more_at_once_than_allowed_are_refused(calls: Calls) -> None:
    calls.sandbox.switch(max_in_flight=2, latency_ms=1500)
    with closing(calls.connect()) as first, closing(calls.connect()) as second:
        for sock, name in ((first, "a"), (second, "b")):
            sock.sendall(calls.raw_create(f"{name}@example.com"))
        wait_until(lambda: calls.sandbox.stats()["in_flight"] == 2)
        calls.sandbox.switch(latency_ms=0)  # of those that come from now on
        assert calls.ask_list().status == 429
        assert [read_answers(sock, 1)[0][0] for sock in (first, second)] == [200, 200]
    assert calls.create("d@example.com").status == 200


def test_a_bucket_lets_its_burst_in_and_then_its_rate() -> None:
    bucket = Bucket(rate=10, burst=3)
    assert [bucket.admit(5.0) for _ in range(3)] == [0, 0, 0]
    assert bucket.admit(5.0) == pytest.approx(0.1)
    assert [bucket.admit(5.0 + n / 10) for n in range(1, 200)] == [0] * 199


def test_a_bucket_without_burst_holds_one_second() -> None:
    bucket = Bucket(rate=5, burst=0)
    assert sum(bucket.admit(0.0) == 0 for _ in range(20)) == 5


def test_a_slow_bucket_holds_one_request() -> None:
    bucket = Bucket(rate=0.5, burst=0)
    assert [bucket.admit(0.0), bucket.admit(0.0), bucket.admit(2.0)] == pytest.approx([0, 2, 0])


def test_a_fixed_window_begins_anew_with_the_clock() -> None:
    window = FixedWindow(rate=2, window_s=1.0)
    assert [window.admit(t) for t in (0.9, 0.95)] == [0, 0]
    assert window.admit(0.96) == pytest.approx(0.04)
    assert [window.admit(t) for t in (1.0, 1.01)] == [0, 0]


def test_a_sliding_window_looks_back_a_whole_window() -> None:
    window = SlidingWindow(rate=2, window_s=1.0)
    assert [window.admit(t) for t in (0.9, 0.95)] == [0, 0]
    assert window.admit(1.0) == pytest.approx(0.9)
    assert [window.admit(1.9), window.admit(1.91)] == pytest.approx([0, 0.04])


def test_refused_requests_do_not_count() -> None:
    for limiter in (Bucket(1, 1), FixedWindow(1, 1), SlidingWindow(1, 1)):
        limiter.admit(0.0)
        for n in range(10):
            limiter.admit(0.1 + n / 100)
        assert limiter.admit(1.0) == 0


def test_the_switches_choose_the_limiter() -> None:
    kinds = [type(build_limiter(kind, 5, 0, 1.0)) for kind in ("bucket", "fixed_window", "sliding_window")]
    assert kinds == [Bucket, FixedWindow, SlidingWindow]
    assert isinstance(build_limiter("bucket", 0, 5, 1.0), Unlimited)


def create_many(calls: Calls, count: int) -> tuple[list[int], float]:
    started = time.monotonic()
    with ThreadPoolExecutor(count) as pool:
        statuses = list(pool.map(lambda n: calls.create(f"{n}@example.com").status, range(count)))
    return statuses, time.monotonic() - started


def test_each_request_takes_its_latency_and_many_go_side_by_side(calls: Calls) -> None:
    calls.sandbox.switch(latency_ms=150)
    statuses, took_s = create_many(calls, 8)
    assert statuses == [200] * 8
    assert took_s >= 0.15
    assert calls.sandbox.stats()["peak_in_flight"] > 1


def test_refusals_take_the_latency_too(calls: Calls) -> None:
    calls.sandbox.switch(latency_ms=100, refuse=1, retry_after="none")
    statuses, took_s = create_many(calls, 1)
    assert (statuses, took_s >= 0.1) == ([429], True)


def test_beyond_its_capacity_requests_wait_in_line(calls: Calls) -> None:
    calls.sandbox.switch(latency_ms=50, capacity=2)
    statuses, took_s = create_many(calls, 8)
    assert statuses == [200] * 8
    assert took_s >= 0.2
    assert calls.sandbox.stats()["in_flight"] == 0


def test_a_capacity_lifted_while_hundreds_wait_serves_them_all(calls: Calls) -> None:
    calls.sandbox.switch(latency_ms=300, capacity=1)
    with ExitStack() as stack:
        socks = [stack.enter_context(calls.connect()) for _ in range(400)]
        for n, sock in enumerate(socks):
            sock.sendall(calls.raw_create(f"{n}@example.com"))
        wait_until(lambda: calls.sandbox.stats()["requests"].get("create", {}).get("received") == 400)
        assert calls.sandbox.stats()["in_flight"] > 200
        calls.sandbox.switch(latency_ms=0, capacity=0)
        assert [read_answers(sock, 1)[0][0] for sock in socks] == [200] * 400
    assert len(calls.events()) == 400


def test_a_reset_cuts_off_what_is_under_way_and_leaves_nothing_of_it(calls: Calls) -> None:
    calls.sandbox.switch(latency_ms=60_000, capacity=1)
    with calls.connect() as served, calls.connect() as in_line:
        for sock in (served, in_line):
            sock.sendall(calls.raw_create("a@example.com"))
        wait_until(lambda: calls.sandbox.stats()["in_flight"] == 2)
        calls.sandbox.reset()
        assert [sock.recv(100) for sock in (served, in_line)] == [b"", b""]
    calls.sandbox.switch(capacity=1, max_in_flight=1)
    assert calls.create("b@example.com").status == 200
    stats = calls.sandbox.stats()
    assert (stats["in_flight"], stats["peak_in_flight"]) == (0, 1)
    assert [each["email"] for each in calls.events()] == ["b@example.com"]
