"""One connection of a client. aiohttp.web reads the requests and writes the answers one after another, so pipelining is
safe.

A fault may cut the connection, send half an answer, or send nothing. `connector.sandbox.service` decides the answers.
"""

import asyncio
import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import inf

from aiohttp import web

_LINGER_OPTION_FOR_RESET = struct.pack("ii", 1, 0)  # SO_LINGER on, for 0 s: closing sends a reset


class Delivery(StrEnum):
    """How a response is delivered, and what happens to its connection. The value of a member is its name in the counts
    of requests."""

    WHOLE_RESPONSE = "whole"  # the response is sent
    CUT = "cut"  # nothing is sent, and the connection ends
    HALF_RESPONSE = "cut_in_answer"  # half of the response is sent, then the connection ends
    SILENT = "hung"  # nothing is sent, and the connection stays open


@dataclass(slots=True)  # not frozen, because each request creates an object, and freezing doubles the cost
class Request:
    """A complete request. `path` and `query` are still percent-encoded."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True)
class Response:
    """A status, a body, and the headers other than Content-Type and Content-Length.

    `wait_s`: the client should send nothing for this many seconds after the response (Retry-After). If the Retry-After
    is a date, `wait_until` has this date in Unix seconds.
    """

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    wait_s: float = 0.0
    wait_until: float | None = None


NO_RESPONSE = Response(0, b"")
"""The response object for faults that close the connection without an answer."""


class Connection:
    """The server side of one connection. `receive_request` gets each complete request. For each request,
    `finish_request` must be called once."""

    def __init__(self, receive_request: "Callable[[Request, Connection], None]") -> None:
        self._receive = receive_request
        self.paused_until = -inf
        """The end of the pause that a Retry-After on this connection asked for (seconds of the service's clock)."""
        self._transport: asyncio.Transport | None = None
        self._finished: asyncio.Future[tuple[Response, Delivery, str]] | None = None

    @property
    def is_client_gone(self) -> bool:
        """Whether the client has closed the connection, so that no response can reach the client."""
        return self._transport is None or self._transport.is_closing()

    def finish_request(
        self, response: Response, delivery_kind: Delivery = Delivery.WHOLE_RESPONSE, cut_method: str = "close"
    ) -> None:
        """End the request. If the client has closed the connection, do nothing."""
        if delivery_kind is not Delivery.SILENT and self._finished is not None and not self._finished.done():
            self._finished.set_result((response, delivery_kind, cut_method))

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Return the answer to a request, or cut the connection. aiohttp writes nothing to a connection that is cut."""
        self._transport = transport = request.transport
        if transport is not None and request.headers.get("Expect", "").lower() == "100-continue":
            transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await request.content.read()
        path, _, query = request.raw_path.partition("?")
        self._finished = asyncio.get_running_loop().create_future()
        self._receive(Request(request.method, path, query, request.headers, body), self)
        response, delivery_kind, cut_method = await self._finished
        headers = {"Content-Type": response.content_type, **dict(response.headers)}
        if delivery_kind is Delivery.WHOLE_RESPONSE:
            return web.Response(body=response.body, status=response.status, headers=headers)
        stream_response = web.StreamResponse(status=response.status or 200, headers=headers)
        if delivery_kind is Delivery.HALF_RESPONSE and response.body:
            stream_response.content_length = len(response.body)
            await stream_response.prepare(request)
            await stream_response.write(response.body[: len(response.body) // 2])
        if transport is not None and delivery_kind is Delivery.CUT and cut_method == "reset":
            client_socket = transport.get_extra_info("socket")
            client_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_OPTION_FOR_RESET)
            transport.abort()
        elif transport is not None:
            transport.close()  # no reset, because a reset could arrive before the half answer
        return stream_response
