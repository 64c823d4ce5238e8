"""HTTP on a real socket."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.sandbox.calls import Calls, read_answers, read_to_end, wait_until


def test_a_connection_serves_one_request_after_another(calls: Calls) -> None:
    with calls.connect() as sock:
        for n in range(3):
            sock.sendall(calls.raw_create(f"p{n}@example.com"))
            assert read_answers(sock, 1)[0][0] == 200


def test_pipelined_requests_are_answered_in_their_order(calls: Calls) -> None:
    calls.sandbox.switch(latency_ms=2, jitter_ms=5)
    with calls.connect() as sock:
        sock.sendall(b"".join(calls.raw_create(f"p{n}@example.com") for n in range(20)))
        answers = read_answers(sock, 20)
    assert [f"p{n}@example.com".encode() in body for n, (_, body) in enumerate(answers)] == [True] * 20
    assert [event["email"] for event in calls.events()] == [f"p{n}@example.com" for n in range(20)]


def test_a_thousand_pipelined_requests_that_are_read_late_are_all_answered(calls: Calls) -> None:
    calls.sandbox.seed(1000)
    request = (
        b"GET /api/subscribers/subscribers-list/?limit=1000 HTTP/1.1\r\nHost: localhost\r\nAuthorization: %s\r\n\r\n"
    )
    with calls.connect() as sock:
        sock.sendall(request % calls.sandbox.token.encode() * 60)  # some 24 MB of answers: more than the buffers hold
        assert [status for status, _ in read_answers(sock, 60)] == [200] * 60


def test_a_client_that_does_not_read_is_not_answered_into_the_void(calls: Calls) -> None:
    calls.sandbox.seed(1000)
    request = (
        b"GET /api/subscribers/subscribers-list/?limit=1000 HTTP/1.1\r\nHost: localhost\r\nAuthorization: %s\r\n\r\n"
    )
    with calls.connect() as sock:
        sock.sendall(request % calls.sandbox.token.encode() * 200)
        seen = [0] * 20
        while len(set(seen[-20:])) > 1 or not seen[-1]:  # until the count has stood still for twenty looks
            seen.append(calls.sandbox.stats()["requests"].get("list", {"received": 0})["received"])
        assert seen[-1] < 200
        assert [status for status, _ in read_answers(sock, 200)] == [200] * 200


def test_requests_that_come_faster_than_they_are_served_wait_in_the_socket_and_are_all_served(calls: Calls) -> None:
    calls.sandbox.switch(latency_ms=200)
    with calls.connect() as sock, ThreadPoolExecutor(1) as pool:
        sent = pool.submit(sock.sendall, b"".join(calls.raw_create(f"p{n}@example.com") for n in range(3000)))
        wait_until(lambda: calls.sandbox.stats()["in_flight"])
        calls.sandbox.switch(latency_ms=0)
        assert [status for status, _ in read_answers(sock, 3000)] == [200] * 3000
        sent.result()


def test_a_chunked_create_is_taken(calls: Calls) -> None:
    head, _, body = calls.raw_create("chunked@example.com").partition(b"\r\n\r\n")
    head = head.replace(b"Content-Length: %d" % len(body), b"Transfer-Encoding: chunked")
    with calls.connect() as sock:
        sock.sendall(head + b"\r\n\r\n%x\r\n%s\r\n" % (10, body[:10]))
        sock.sendall(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body) - 10, body[10:]))
        assert read_answers(sock, 1)[0][0] == 200


def test_a_client_that_expects_100_continue_gets_it(calls: Calls) -> None:
    head, _, body = calls.raw_create("expect@example.com").partition(b"\r\n\r\n")
    with calls.connect() as sock:
        sock.sendall(head + b"\r\nExpect: 100-continue\r\n\r\n")
        assert sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(body)
        assert read_answers(sock, 1)[0][0] == 200


@pytest.mark.parametrize("data", [b"what?\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n"])
def test_bytes_that_are_no_request_are_answered_400_and_the_connection_ends(calls: Calls, data: bytes) -> None:
    with calls.connect() as sock:
        sock.sendall(data)
        assert read_to_end(sock).startswith(b"HTTP/1.1 400 ")


def test_a_body_beyond_the_bound_is_answered_413(calls: Calls) -> None:
    calls.sandbox.switch(max_body_bytes=100)
    assert calls.create("a@example.com", FirstName="x" * 200).status == 413
    assert calls.events() == []


def test_connection_close_is_honoured(calls: Calls) -> None:
    with calls.connect() as sock:
        sock.sendall(calls.raw_create("a@example.com").replace(b"Host:", b"Connection: close\r\nHost:"))
        assert b"Connection: close" in read_to_end(sock)


def test_an_idle_connection_ends_after_keep_alive_ms(calls: Calls) -> None:
    calls.sandbox.switch(keep_alive_ms=50)
    with calls.connect() as sock:
        sock.sendall(calls.raw_create("a@example.com"))
        assert read_to_end(sock).startswith(b"HTTP/1.1 200 ")
