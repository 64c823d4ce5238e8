"""The requests that are sent again, and the requests that are never sent again, over real sockets without real
waits."""

import random
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack

import pytest
from hypothesis import given, strategies as st

from connector.service.client import Client, open_client
from connector.service.request_counts import RequestCounts
from connector.service.retry import Retrier, RetryBudget
from connector.service.settings import Service, Token
from connector.service.wire import Ambiguous, Created, ListPage, ListQuery, NotSent, Refused
from tests.service import faults
from tests.service.faults import response, serve, unused_port
from tests.service.waits import Waits

CreateAnswer = Created | Refused | Ambiguous | NotSent

ReadAnswer = ListPage | Refused | Ambiguous | NotSent

TOKEN = Token("s3cret-token")

QUERY = ListQuery()

CREATED = response(b'{"success": true, "Subscriber": {"Id": 5}}')

LISTED = response(b'{"success": true, "SubscribersList": {"Subscribers": []}}')

LIMITED = response(b"slow down", "429 Too Many Requests", Retry_After="7")

UNAVAILABLE = response(b"later", "503 Service Unavailable", Retry_After="4")

BROKEN = response(b"oops", "500 Internal Server Error")

REFUSED_S = Ambiguous(500, "oops", None)


def retrier(waits: Waits, attempts: int = 6, longest_s: float = 60.0) -> Retrier:
    return Retrier(attempts, longest_s, clock=waits.clock, rng=random.Random(7))


def connect(server: faults.Server, waits: Waits) -> AbstractAsyncContextManager[Client]:
    """A client whose own pauses are not slept either."""
    return open_client(Service(server.base_url, TOKEN), clock=waits.clock)


def creating(client: Client) -> tuple[Callable[[], Awaitable[CreateAnswer]], RequestCounts]:
    return lambda: client.create_subscriber(b"{}"), client.counts["create"]


def reading(client: Client) -> tuple[Callable[[], Awaitable[ReadAnswer]], RequestCounts]:
    return lambda: client.list_subscribers(QUERY), client.counts["list"]


@pytest.mark.parametrize(("fault", "kind"), [(faults.answers(CREATED), Created), (faults.cut_before_answer, Ambiguous)])
async def test_a_create_is_tried_until_it_is_sent_once(fault: faults.Fault, kind: type) -> None:
    port = unused_port()
    async with AsyncExitStack() as stack:

        async def start_service(wait: int) -> None:
            if wait == 3:
                server.append(await stack.enter_async_context(serve(fault, port=port)))

        server: list[faults.Server] = []
        client = await stack.enter_async_context(open_client(Service(f"http://127.0.0.1:{port}", TOKEN)))
        assert isinstance(await retrier(Waits(start_service)).send(*creating(client)), kind)
        assert len(server[0].requests) == 1
        assert (client.counts["create"].sent, client.counts["create"].retried) == (4, 3)


async def test_a_create_that_was_sent_is_never_sent_again() -> None:
    for raw in [
        LIMITED,
        UNAVAILABLE,
        BROKEN,
        response(b"", "400 Bad"),
        response(b"", "409 Conflict"),
        response(b"", "302 Found"),
    ]:
        waits = Waits()
        async with (
            serve(faults.answers(raw, CREATED)) as server,
            open_client(Service(server.base_url, TOKEN)) as client,
        ):
            assert isinstance(await retrier(waits).send(*creating(client)), Refused | Ambiguous)
            assert (len(server.requests), waits.seconds, client.counts["create"].retried) == (1, [], 0)


async def test_a_create_whose_answer_was_lost_is_never_sent_again() -> None:
    cases: list[faults.Fault] = [
        faults.cut_before_answer,
        faults.reset_before_answer,
        faults.cut_in_the_body,
        faults.hang,
        faults.garbage,
    ]
    for fault in cases:
        waits, timeout_s = Waits(), 1.0 if fault is faults.hang else 10.0  # half of it is for the connection
        async with serve(fault) as server, open_client(Service(server.base_url, TOKEN, timeout_s=timeout_s)) as client:
            assert isinstance(await retrier(waits).send(*creating(client)), Ambiguous)
            assert (len(server.requests), server.connections, waits.seconds) == (1, 1, [])


async def test_a_create_that_cannot_be_sent_ends_after_its_attempts_with_growing_waits() -> None:
    waits = Waits()
    async with open_client(Service(f"http://127.0.0.1:{unused_port()}", TOKEN)) as client:
        assert isinstance(await retrier(waits, attempts=9).send(*creating(client)), NotSent)
        assert client.counts["create"] == RequestCounts(sent=9, retried=8, failed=9)
    windows = (0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0)
    assert len(waits.seconds) == len(windows)
    assert all(0.0 <= waited <= window for waited, window in zip(waits.seconds, windows, strict=True))
    assert max(waits.seconds) > 4.0
    assert len(set(waits.seconds)) == len(windows)


async def test_a_create_that_cannot_be_sent_is_not_tried_again_after_a_stop() -> None:
    waits: list[float] = []

    async def rest(seconds: float) -> bool:
        waits.append(seconds)
        return len(waits) < 2

    async with open_client(Service(f"http://127.0.0.1:{unused_port()}", TOKEN)) as client:
        assert isinstance(await retrier(Waits()).send(*creating(client), rest), NotSent)
        assert len(waits) == 2
        assert client.counts["create"].retried == 1


async def test_a_read_is_sent_again_after_an_uncertain_answer() -> None:
    waits = Waits()
    cut = b"HTTP/1.1 200 OK\r\nContent-Length: 18\r\n\r\n{'success': false}"
    replies = (BROKEN, response(b'{"success": true}'), cut, response(b"", "408 Timeout"), LIMITED, LISTED)
    async with serve(faults.answers(*replies)) as server, connect(server, waits) as client:
        assert isinstance(await retrier(waits).read(*reading(client)), ListPage)
        assert len(server.requests) == len(replies)
        assert client.counts["list"] == RequestCounts(sent=6, retried=5, limited=1, failed=4)


@pytest.mark.parametrize(("raw", "asked_s"), [(LIMITED, 7.0), (UNAVAILABLE, 4.0)], ids=["429", "503"])
async def test_a_read_waits_for_retry_after(raw: bytes, asked_s: float) -> None:
    waits = Waits()
    async with serve(faults.answers(raw, raw, LISTED)) as server, connect(server, waits) as c:
        assert isinstance(await retrier(waits).read(*reading(c)), ListPage)
    assert [asked_s <= waited <= asked_s + 1.0 for waited in waits.seconds] == [True, True]


async def test_a_read_that_was_refused_or_redirected_is_not_sent_again() -> None:
    for status in [400, 401, 403, 404, 405, 422, 301, 302, 307, 308]:
        waits = Waits()
        refused = response(b"no", f"{status} Whatever")
        async with serve(faults.answers(refused, LISTED)) as server, open_client(Service(server.base_url, TOKEN)) as c:
            answer = await retrier(waits).read(*reading(c))
            assert isinstance(answer, Refused | Ambiguous)
            assert (answer.status, len(server.requests), waits.seconds) == (status, 1, [])


async def test_after_a_failed_read_reads_have_one_attempt_until_a_read_succeeds() -> None:
    waits, replies = Waits(), (BROKEN, BROKEN, BROKEN, LISTED, BROKEN, LISTED)
    async with serve(faults.answers(*replies)) as server, open_client(Service(server.base_url, TOKEN)) as client:
        again = retrier(waits, attempts=2)
        assert await again.read(*reading(client)) == REFUSED_S
        assert await again.read(*reading(client)) == REFUSED_S
        assert len(server.requests) == 3
        assert isinstance(await again.read(*reading(client)), ListPage)
        assert isinstance(await again.read(*reading(client)), ListPage)
        assert len(server.requests) == 6


async def test_an_attempt_beyond_the_time_budget_does_not_start() -> None:
    waits = Waits()
    async with serve(faults.answers(LIMITED)) as server, open_client(Service(server.base_url, TOKEN)) as client:
        assert await retrier(waits, longest_s=6.9).read(*reading(client)) == Refused(429, "slow down", 7.0)
        assert (len(server.requests), waits.seconds) == (1, [])


# The budget of retries: a tenth of the requests of ten seconds, and never less than ten


def test_a_tenth_of_the_requests_may_be_sent_again() -> None:
    cases: list[tuple[int, int]] = [(0, 10), (50, 10), (100, 10), (200, 20), (5000, 500)]
    for requests, retries in cases:
        budget = RetryBudget()
        for _ in range(requests):
            budget.record_request(1.0)
        assert [budget.try_spend(2.0) for _ in range(retries + 3)] == [True] * retries + [False] * 3
        assert budget.try_spend(13.0), "the budget comes back after ten seconds"


@given(st.lists(st.tuples(st.floats(0, 3), st.booleans()), max_size=300))
def test_retries_of_any_ten_seconds_stay_within_the_budget(steps: list[tuple[float, bool]]) -> None:
    budget, now = RetryBudget(), 0.0
    retried: list[float] = []
    requested: list[float] = []
    for gap_s, is_retry in steps:
        now += gap_s
        if not is_retry:
            budget.record_request(now)
            requested.append(now)
        elif budget.try_spend(now):
            retried.append(now)
            lately = sum(now - 10 < request for request in retried)
            assert lately <= max(10, 0.1 * sum(now - 11 <= at for at in requested) + 1)
