"""Retries on real sockets without real waits: requests that are sent again, and requests that are never sent again."""

import random
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack

import pytest
from hypothesis import given, strategies as st

from connector.service.client import Client, open_client
from connector.service.retry import RequestCounts, Retrier, RetryBudget
from connector.service.settings import Service, Token
from connector.service.wire import AmbiguousResult, CreatedAnswer, ListPage, ListQuery, NotSent, Refused
from tests.service import faults
from tests.service.attempts import CREATED_ANSWER, LIST_ANSWER, SERVER_ERROR
from tests.service.faults import build_response, find_unused_port, serve
from tests.service.recorded_waits import RecordedWaits

CreateAnswer = CreatedAnswer | Refused | AmbiguousResult | NotSent
ReadAnswer = ListPage | Refused | AmbiguousResult | NotSent

TOKEN = Token("s3cret-token")
QUERY = ListQuery()
RATE_REFUSAL = build_response(b"slow down", "429 Too Many Requests", Retry_After="7")
UNAVAILABLE_ANSWER = build_response(b"later", "503 Service Unavailable", Retry_After="4")
BROKEN_ANSWER = AmbiguousResult(500, "oops", None)


def build_retrier(recorded_waits: RecordedWaits, attempt_count: int = 6, max_wait_s: float = 60.0) -> Retrier:
    return Retrier(attempt_count, max_wait_s, clock=recorded_waits.clock, rng=random.Random(7))


def open_client_without_sleep(
    server: faults.Server, recorded_waits: RecordedWaits
) -> AbstractAsyncContextManager[Client]:
    """Open a client whose pauses do not sleep."""
    return open_client(Service(server.base_url, TOKEN), clock=recorded_waits.clock)


def build_create_call(client: Client) -> tuple[Callable[[], Awaitable[CreateAnswer]], RequestCounts]:
    return lambda: client.create_subscriber(b"{}"), client.counts["create"]


def build_read_call(client: Client) -> tuple[Callable[[], Awaitable[ReadAnswer]], RequestCounts]:
    return lambda: client.list_subscribers(QUERY), client.counts["list"]


@pytest.mark.parametrize(
    ("fault", "answer_class"),
    [(faults.answer_with(CREATED_ANSWER), CreatedAnswer), (faults.cut_before_answer, AmbiguousResult)],
)
async def test_a_create_is_sent_once_after_retries_of_the_connection(fault: faults.Fault, answer_class: type) -> None:
    port = find_unused_port()
    async with AsyncExitStack() as exit_stack:

        async def start_service(wait_number: int) -> None:
            if wait_number == 3:
                servers.append(await exit_stack.enter_async_context(serve(fault, port=port)))

        servers: list[faults.Server] = []
        client = await exit_stack.enter_async_context(open_client(Service(f"http://127.0.0.1:{port}", TOKEN)))
        assert isinstance(
            await build_retrier(RecordedWaits(start_service)).send(*build_create_call(client)), answer_class
        )
        assert len(servers[0].requests) == 1
        assert (client.counts["create"].sent, client.counts["create"].retried) == (4, 3)


async def test_an_answered_create_is_never_sent_again() -> None:
    for response_bytes in [
        RATE_REFUSAL,
        UNAVAILABLE_ANSWER,
        SERVER_ERROR,
        build_response(b"", "400 Bad"),
        build_response(b"", "409 Conflict"),
        build_response(b"", "302 Found"),
    ]:
        recorded_waits = RecordedWaits()
        async with (
            serve(faults.answer_with(response_bytes, CREATED_ANSWER)) as server,
            open_client(Service(server.base_url, TOKEN)) as client,
        ):
            assert isinstance(
                await build_retrier(recorded_waits).send(*build_create_call(client)), Refused | AmbiguousResult
            )
            assert (len(server.requests), recorded_waits.seconds, client.counts["create"].retried) == (1, [], 0)


async def test_a_create_with_a_lost_answer_is_never_sent_again() -> None:
    cases: list[faults.Fault] = [
        faults.cut_before_answer,
        faults.reset_before_answer,
        faults.cut_answer_in_body,
        faults.never_answer,
        faults.answer_with_garbage,
    ]
    for fault in cases:
        recorded_waits = RecordedWaits()
        # The connection gets half of the timeout, and 0.5 s may be too short.
        timeout_s = 1.0 if fault is faults.never_answer else 10.0
        async with serve(fault) as server, open_client(Service(server.base_url, TOKEN, timeout_s=timeout_s)) as client:
            assert isinstance(await build_retrier(recorded_waits).send(*build_create_call(client)), AmbiguousResult)
            assert (len(server.requests), server.connection_count, recorded_waits.seconds) == (1, 1, [])


async def test_a_create_without_a_connection_has_few_attempts_with_growing_waits() -> None:
    recorded_waits = RecordedWaits()
    async with open_client(Service(f"http://127.0.0.1:{find_unused_port()}", TOKEN)) as client:
        assert isinstance(
            await build_retrier(recorded_waits, attempt_count=9).send(*build_create_call(client)), NotSent
        )
        assert client.counts["create"] == RequestCounts(sent=9, retried=8, failed=9)
    max_waits_s = (0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0)
    assert len(recorded_waits.seconds) == len(max_waits_s)
    assert all(
        0.0 <= waited_s <= max_wait_s for waited_s, max_wait_s in zip(recorded_waits.seconds, max_waits_s, strict=True)
    )
    assert max(recorded_waits.seconds) > 4.0
    assert len(set(recorded_waits.seconds)) == len(max_waits_s)


async def test_a_create_without_a_connection_is_not_tried_again_after_a_stop() -> None:
    recorded_waits: list[float] = []

    async def wait(seconds: float) -> bool:
        recorded_waits.append(seconds)
        return len(recorded_waits) < 2

    async with open_client(Service(f"http://127.0.0.1:{find_unused_port()}", TOKEN)) as client:
        assert isinstance(await build_retrier(RecordedWaits()).send(*build_create_call(client), wait), NotSent)
        assert len(recorded_waits) == 2
        assert client.counts["create"].retried == 1


async def test_a_read_is_sent_again_after_an_uncertain_answer() -> None:
    recorded_waits = RecordedWaits()
    cut_answer = b"HTTP/1.1 200 OK\r\nContent-Length: 18\r\n\r\n{'success': false}"
    replies = (
        SERVER_ERROR,
        build_response(b'{"success": true}'),
        cut_answer,
        build_response(b"", "408 Timeout"),
        RATE_REFUSAL,
        LIST_ANSWER,
    )
    async with (
        serve(faults.answer_with(*replies)) as server,
        open_client_without_sleep(server, recorded_waits) as client,
    ):
        assert isinstance(await build_retrier(recorded_waits).read(*build_read_call(client)), ListPage)
        assert len(server.requests) == len(replies)
        assert client.counts["list"] == RequestCounts(sent=6, retried=5, limited=1, failed=4)


@pytest.mark.parametrize(
    ("response_bytes", "retry_after_s"), [(RATE_REFUSAL, 7.0), (UNAVAILABLE_ANSWER, 4.0)], ids=["429", "503"]
)
async def test_a_read_waits_for_retry_after(response_bytes: bytes, retry_after_s: float) -> None:
    recorded_waits = RecordedWaits()
    async with (
        serve(faults.answer_with(response_bytes, response_bytes, LIST_ANSWER)) as server,
        open_client_without_sleep(server, recorded_waits) as client,
    ):
        assert isinstance(await build_retrier(recorded_waits).read(*build_read_call(client)), ListPage)
    assert [retry_after_s <= waited_s <= retry_after_s + 1.0 for waited_s in recorded_waits.seconds] == [True, True]


async def test_a_refused_or_redirected_read_is_not_sent_again() -> None:
    for status in [400, 401, 403, 404, 405, 422, 301, 302, 307, 308]:
        recorded_waits = RecordedWaits()
        refusal = build_response(b"no", f"{status} Whatever")
        async with (
            serve(faults.answer_with(refusal, LIST_ANSWER)) as server,
            open_client(Service(server.base_url, TOKEN)) as client,
        ):
            answer = await build_retrier(recorded_waits).read(*build_read_call(client))
            assert isinstance(answer, Refused | AmbiguousResult)
            assert (answer.status, len(server.requests), recorded_waits.seconds) == (status, 1, [])


async def test_after_a_failed_read_each_read_has_one_attempt_until_a_read_succeeds() -> None:
    recorded_waits = RecordedWaits()
    replies = (SERVER_ERROR, SERVER_ERROR, SERVER_ERROR, LIST_ANSWER, SERVER_ERROR, LIST_ANSWER)
    async with serve(faults.answer_with(*replies)) as server, open_client(Service(server.base_url, TOKEN)) as client:
        retrier = build_retrier(recorded_waits, attempt_count=2)
        assert await retrier.read(*build_read_call(client)) == BROKEN_ANSWER
        assert await retrier.read(*build_read_call(client)) == BROKEN_ANSWER
        assert len(server.requests) == 3
        assert isinstance(await retrier.read(*build_read_call(client)), ListPage)
        assert isinstance(await retrier.read(*build_read_call(client)), ListPage)
        assert len(server.requests) == 6


async def test_an_attempt_beyond_the_time_budget_does_not_start() -> None:
    recorded_waits = RecordedWaits()
    async with (
        serve(faults.answer_with(RATE_REFUSAL)) as server,
        open_client(Service(server.base_url, TOKEN)) as client,
    ):
        assert await build_retrier(recorded_waits, max_wait_s=6.9).read(*build_read_call(client)) == Refused(
            429, "slow down", 7.0
        )
        assert (len(server.requests), recorded_waits.seconds) == (1, [])


# In ten seconds, at most a tenth of the requests may be sent again, or ten requests if this is more.


def test_a_tenth_of_the_requests_may_be_sent_again() -> None:
    cases: list[tuple[int, int]] = [(0, 10), (50, 10), (100, 10), (200, 20), (5000, 500)]
    for request_count, retry_count in cases:
        budget = RetryBudget()
        for _ in range(request_count):
            budget.record_request(1.0)
        assert [budget.spend_retry(2.0) for _ in range(retry_count + 3)] == [True] * retry_count + [False] * 3
        assert budget.spend_retry(13.0), "the budget is not restored after ten seconds"


@given(st.lists(st.tuples(st.floats(0, 3), st.booleans()), max_size=300))
def test_the_retries_in_any_ten_seconds_stay_within_the_budget(
    pauses_and_retry_flags: list[tuple[float, bool]],
) -> None:
    budget, now = RetryBudget(), 0.0
    retry_times: list[float] = []
    request_times: list[float] = []
    for pause_s, is_retry in pauses_and_retry_flags:
        now += pause_s
        if not is_retry:
            budget.record_request(now)
            request_times.append(now)
        elif budget.spend_retry(now):
            retry_times.append(now)
            recent_retry_count = sum(now - 10 < retried_at for retried_at in retry_times)
            assert recent_retry_count <= max(
                10, 0.1 * sum(now - 11 <= requested_at for requested_at in request_times) + 1
            )
