"""Latency, capacity, and what the sandbox counts of requests in flight."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from tests.sandbox.calls import Calls, read_answers, wait_until


def create_many(calls: Calls, count: int) -> tuple[list[int], float]:
    started = time.monotonic()
    with ThreadPoolExecutor(count) as pool:
        statuses = list(pool.map(lambda n: calls.create(f"{n}@example.com").status, range(count)))
    return statuses, time.monotonic() - started


def test_each_request_takes_its_latency_and_many_go_side_by_side(calls: Calls) -> None:
    calls.sandbox.switch(latency_ms=150)
    statuses, took_s = create_many(calls, 8)
    assert statuses == [200] * 8
    assert 0.15 <= took_s < 0.9
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
        wait_until(lambda: calls.sandbox.stats()["in_flight"] >= 395)
        calls.sandbox.switch(latency_ms=0, capacity=0)
        assert [read_answers(sock, 1)[0][0] for sock in socks] == [200] * 400
    assert len(calls.events()) == 400


def test_what_was_begun_before_a_reset_does_not_show_after_it(calls: Calls) -> None:
    calls.sandbox.switch(latency_ms=200)
    with calls.connect() as sock:
        sock.sendall(calls.raw_create("a@example.com"))
        wait_until(lambda: calls.sandbox.stats()["in_flight"])
        calls.sandbox.reset()
        assert sock.recv(100) == b""
    assert calls.events() == []


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
