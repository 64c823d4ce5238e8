import pytest
from hypothesis import given, strategies as st

from connector.sandbox.connection import BadRequestError, RequestReader

POST = b"POST /p?q=1 HTTP/1.1\r\nHost: x\r\n"


def read_all(data: bytes, max_body: int = 1000) -> list[tuple[str, str, str, bytes]]:
    reader = RequestReader(max_body)
    reader.feed(data)
    found = []
    while request := reader.read_request():
        found.append((request.method, request.path, request.query, request.body))
    return found


def test_a_counted_body_is_read() -> None:
    assert read_all(POST + b"Content-Length: 3\r\n\r\nabc") == [("POST", "/p", "q=1", b"abc")]


def test_a_chunked_body_with_extensions_and_trailer_is_read() -> None:
    data = POST + b"Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nT: v\r\n\r\n"
    assert read_all(data) == [("POST", "/p", "q=1", b"abc0123456789")]


@given(st.lists(st.integers(1, 60), max_size=12))
def test_requests_come_out_the_same_however_the_bytes_are_cut(cuts: list[int]) -> None:
    whole = (
        POST + b"Content-Length: 2\r\n\r\nhi" + POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\nyo\r\n0\r\n\r\n"
        b"GET / HTTP/1.1\r\n\r\n"
    )
    reader, found, start = RequestReader(1000), [], 0
    for cut in [*cuts, len(whole)]:
        reader.feed(whole[start : start + cut])
        start += cut
        while request := reader.read_request():
            found.append((request.method, request.body))
    assert found == [("POST", b"hi"), ("POST", b"yo"), ("GET", b"")]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 505),
        (b"GET x HTTP/1.1\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA : b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA: b\nc\r\n\r\n", 400),
        (POST + b"Content-Length: -1\r\n\r\n", 400),
        (POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\n", 400),
        (POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (POST + b"Transfer-Encoding: gzip\r\n\r\n", 400),
        (POST + b"Content-Length: 1001\r\n\r\n", 413),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n3E9\r\n" + b"x" * 1001, 413),
        (POST + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", 400),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\nabcd\r\n", 400),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"1" * 300, 400),
        (b"GET / HTTP/1.1\r\nA: " + b"b" * 70_000, 431),
    ],
)
def test_what_is_no_request_is_refused(data: bytes, status: int) -> None:
    with pytest.raises(BadRequestError) as caught:
        read_all(data)
    assert caught.value.status == status


def test_a_wish_to_upgrade_is_not_granted_and_ends_the_connection() -> None:
    reader = RequestReader(0)
    reader.feed(b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\nPRI")
    request = reader.read_request()
    assert request is not None
    assert (request.path, request.keep_alive) == ("/", False)


@pytest.mark.parametrize(
    ("version", "connection", "keeps"),
    [("1.1", "", True), ("1.1", "close", False), ("1.0", "", False), ("1.0", "keep-alive", True)],
)
def test_whether_the_connection_stays(version: str, connection: str, keeps: bool) -> None:
    reader = RequestReader(0)
    reader.feed(f"GET / HTTP/{version}\r\nConnection: {connection}\r\n\r\n".encode())
    request = reader.read_request()
    assert request is not None
    assert request.keep_alive is keeps
