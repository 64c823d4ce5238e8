"""Helpers that send one request to a test server, and usual answers."""

import pytest

from connector.service.settings import Service, Token
from connector.service.transport import open_transport
from connector.service.wire import (
    AmbiguousResult,
    ListQuery,
    NotSent,
    RawAnswer,
    Request,
    build_create_request,
    build_list_request,
)
from tests.service.faults import build_response

CREATE_REQUEST = build_create_request(b'{"Subscriber":{}}')
LIST_REQUEST = build_list_request(ListQuery(email="ann@example.com"))
REQUESTS = pytest.mark.parametrize("request_", [CREATE_REQUEST, LIST_REQUEST], ids=["POST", "GET"])
OK = build_response(b'{"success": true}')
CREATED_ANSWER = build_response(
    b'{"success": true, "Subscriber": {"Id": 5, "Email": "ann@example.com"}}', "201 Created"
)
LIST_ANSWER = build_response(b'{"success": true, "SubscribersList": {"TotalCount": 1, "Subscribers": [{"Id": 5}]}}')
SERVER_ERROR = build_response(b"oops", "500 Internal Server Error")


def build_service(
    base_url: str, timeout_s: float = 5.0, max_connections: int = 8, *, proxy: str | None = None
) -> Service:
    return Service(base_url, Token("s3cret-token"), timeout_s=timeout_s, max_connections=max_connections, proxy=proxy)


async def make_attempt(
    base_url: str, request: Request, timeout_s: float = 5.0
) -> RawAnswer | NotSent | AmbiguousResult:
    async with open_transport(build_service(base_url, timeout_s)) as transport:
        return await transport.send(request)
