"""The three operations on real sockets: the bytes of the requests, the values of the answers, and the counts."""

import asyncio
import logging
from dataclasses import replace
from datetime import UTC, datetime
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given, strategies as st

from connector.clock import system_clock
from connector.pace.rate import RateController
from connector.service.client import Client, open_client
from connector.service.retry import RequestCounts
from connector.service.settings import Service, Token
from connector.service.wire import AmbiguousResult, CreatedAnswer, EmailAccepted, ListPage, ListQuery, NotSent
from tests.service import faults
from tests.service.attempts import CREATED_ANSWER, LIST_ANSWER, SERVER_ERROR
from tests.service.faults import Fault, build_response, find_unused_port, serve
from tests.service.recorded_waits import RecordedWaits

TOKEN = Token("s3cret-token")
EMAIL_ANSWER = build_response(b'{"success": true, "SendEmail": {"SendMessageRequestId": 8, "MessageId": "<m>"}}')
RATE_REFUSAL = build_response(b'{"message": "slow down"}', "429 Too Many Requests", Retry_After="2")
TAKEN_REFUSAL = build_response(b'{"message": "taken"}', "422 Unprocessable")
EMAIL_BODY = b'{"SendEmail":{}}'


async def test_an_operation_sends_its_request_with_the_token_and_returns_its_result() -> None:
    async with (
        serve(faults.answer_with(CREATED_ANSWER, LIST_ANSWER, EMAIL_ANSWER)) as server,
        open_client(Service(server.base_url + "/base/", TOKEN, "Bearer {token}")) as client,
    ):
        create_answer = await client.create_subscriber(b'{"Subscriber":{}}')
        assert isinstance(create_answer, CreatedAnswer)
        assert (create_answer.subscriber_id, create_answer.status, create_answer.read("email")) == (
            5,
            201,
            "ann@example.com",
        )
        assert await client.list_subscribers(ListQuery(base_id=7)) == ListPage([{"Id": 5}], 1, None, None)
        assert await client.send_email(EMAIL_BODY) == EmailAccepted(8, "<m>")

    create_request, list_request_bytes, send_request = server.requests
    assert create_request.startswith(b"POST /base/api/subscribers/create-subscriber/ HTTP/1.1\r\n")
    assert create_request.endswith(b'\r\n\r\n{"Subscriber":{}}')
    assert list_request_bytes.startswith(
        b"GET /base/api/subscribers/subscribers-list/?offset=0&limit=1000&BaseId=7 HTTP/1.1"
    )
    assert list_request_bytes.endswith(b"\r\n\r\n")
    assert b"Content-Type" not in list_request_bytes
    assert send_request.startswith(b"POST /base/api/emails/send-instant-email/ HTTP/1.1\r\n")
    assert send_request.endswith(b"\r\n\r\n" + EMAIL_BODY)
    for request in server.requests:
        assert request.count(b"\r\nAuthorization: Bearer s3cret-token\r\n") == 1
    for request in (create_request, send_request):
        assert request.count(b"\r\nContent-Type: application/json\r\n") == 1


def test_any_text_in_a_query_reaches_the_service_unchanged() -> None:
    query_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30).filter(str.strip)

    async def check_query(email: str, name: str) -> None:
        async with (
            serve(faults.answer_with(LIST_ANSWER)) as server,
            open_client(Service(server.base_url, TOKEN)) as client,
        ):
            await client.list_subscribers(ListQuery(email=email, first_name=name, is_active=False, gender=""))
            request_target = server.requests[0].split(b" ")[1].decode("ascii")
            assert "+" not in request_target, "servers disagree whether a plus sign in a query means a blank"
            assert parse_qsl(urlsplit(request_target).query, keep_blank_values=True, strict_parsing=True) == [
                ("offset", "0"),
                ("limit", "1000"),
                ("Email", email),
                ("IsActive", "0"),
                ("FirstName", name),
                ("Gender", ""),
            ]

    @given(query_texts, query_texts)
    def check_any_text(email: str, name: str) -> None:
        asyncio.run(check_query(email, name))

    check_any_text()
    for email in ("a+b@example.com", "a b&c=d;e%2Bf@example.com", "größe@bücher.example", "a/../b?#@x"):
        asyncio.run(check_query(email, "+"))


async def call_all_operations(client: Client) -> list[object]:
    return [
        await client.create_subscriber(b"{}"),
        await client.list_subscribers(ListQuery()),
        await client.send_email(EMAIL_BODY),
    ]


async def test_an_operation_counts_its_sent_limited_and_failed_requests() -> None:
    replies = (CREATED_ANSWER, RATE_REFUSAL, TAKEN_REFUSAL, SERVER_ERROR, CREATED_ANSWER)
    async with (
        serve(faults.answer_with(*replies)) as server,
        open_client(Service(server.base_url, TOKEN), clock=RecordedWaits().clock) as client,
    ):
        for _ in replies:
            await client.create_subscriber(b"{}")
        assert client.counts == {
            "create": RequestCounts(sent=5, limited=1, failed=1),
            "list": RequestCounts(),
            "send": RequestCounts(),
        }

    async with open_client(Service(f"http://127.0.0.1:{find_unused_port()}", TOKEN)) as client:
        assert all(isinstance(answer, NotSent) for answer in await call_all_operations(client))
        assert list(client.counts.values()) == [RequestCounts(sent=1, failed=1)] * 3


async def test_a_date_in_retry_after_is_read_with_the_clock_of_the_client() -> None:
    rate_refusal = build_response(b"", "503 Unavailable", Retry_After="Sat, 21 Nov 2026 12:00:30 GMT")
    service_time = datetime(2026, 11, 21, 12, 0, 10, tzinfo=UTC)
    async with (
        serve(faults.answer_with(rate_refusal)) as server,
        open_client(Service(server.base_url, TOKEN), clock=replace(system_clock(), now=lambda: service_time)) as client,
    ):
        assert await client.create_subscriber(b"{}") == AmbiguousResult(503, "", 20.0)


FAULTS_WITH_SECRETS: list[Fault] = [
    faults.answer_with(
        CREATED_ANSWER, LIST_ANSWER, build_response(b"s3cret-token ann@example.com", "401 Unauthorized")
    ),
    faults.cut_before_answer,
    faults.reset_before_answer,
    faults.cut_answer_in_head,
    faults.cut_answer_in_body,
    faults.never_answer,
    faults.answer_with_garbage,
]


async def test_no_log_and_no_answer_shows_the_token_or_a_person(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    asyncio.get_running_loop().set_debug(True)
    for fault in FAULTS_WITH_SECRETS:
        async with serve(fault) as server, open_client(Service(server.base_url, TOKEN, timeout_s=0.3)) as client:
            answers = await call_all_operations(client)
            answers.append(await client.list_subscribers(ListQuery(email="ann@example.com")))
        log_and_reprs = caplog.text + repr(answers) + repr(client) + repr(client.counts)
        assert "s3cret" not in log_and_reprs, fault
        assert "ann@" not in log_and_reprs, fault


async def test_a_page_delayed_by_a_pause_counts_as_sent_after_the_pause() -> None:
    """A pause begins while the second page waits."""
    sent_times: list[float] = []

    class RecordingRate(RateController):
        def record_served_request(self, sent_at: float, now: float) -> None:
            sent_times.append(sent_at)

    async def begin_pause(wait_number: int) -> None:
        if wait_number == 1:  # the second page waits
            client.paused_until = recorded_waits.clock.monotonic() + 30.0

    recorded_waits = RecordedWaits(begin_pause)
    async with (
        serve(faults.answer_with(LIST_ANSWER)) as server,
        open_client(Service(server.base_url, TOKEN), clock=recorded_waits.clock, rate=RecordingRate(2.0)) as client,
    ):
        await client.list_subscribers(ListQuery(limit=1))
        await client.list_subscribers(ListQuery(limit=2))
        assert sent_times[1] >= client.paused_until
