"""Answers the requests of service-api.md for one sandbox.

A request is admitted or refused. An admitted request waits in line, waits for its latency, is executed, and is answered
according to its fault. No function awaits: each step calls the next step, immediately or by a timer of the event loop.
"""

import asyncio
import hmac
import html
import math
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Protocol

import orjson

from connector.sandbox.connection import NO_RESPONSE, Delivery, Request, Response
from connector.sandbox.faults import ANSWER_FATE_BY_FAULT, GARBAGE_BODIES, Fault
from connector.sandbox.state import Sandbox
from connector.sandbox.subscriber import RejectedError
from connector.sandbox.truth import AnswerFate

OPERATION_AND_METHOD_BY_PATH = {
    "/api/subscribers/create-subscriber/": ("create", "POST"),
    "/api/subscribers/subscribers-list/": ("list", "GET"),
    "/api/emails/send-instant-email/": ("send", "POST"),
}
"""The operation and the method of each path (service-api.md 4)."""

_MAX_SHOWN_BYTES = 4096  # a larger body, for example an email with attachments, is not kept for the page
_CREATED_429_WAIT_S = 1.0  # the Retry-After of a 429 after a create that took place


class Peer(Protocol):
    """The connection of a request. `paused_until`: before this time, the client should send nothing (Retry-After)."""

    paused_until: float

    @property
    def is_client_gone(self) -> bool:
        """Whether the client has closed the connection."""

    def finish_request(
        self, response: Response, delivery_kind: Delivery = Delivery.WHOLE_RESPONSE, cut_method: str = "close"
    ) -> None:
        """End the request."""


def is_authorised(request: Request, authorization: bytes) -> bool:
    """Return whether the Authorization header of the request is exactly `authorization`."""
    return hmac.compare_digest(
        request.headers.get("authorization", "").encode("utf-8", "surrogateescape"), authorization
    )


class Service:
    """Answers all API requests to one sandbox. `call_later` calls a function after a number of seconds."""

    def __init__(
        self, sandbox: Sandbox, call_later: Callable[[float, Callable[[], None]], asyncio.TimerHandle]
    ) -> None:
        self._sandbox = sandbox
        self._call_later = call_later
        self._served_count = 0
        self._is_serving_waiting_requests = False
        self._waiting_requests: deque[Callable[[], None]] = deque()
        # The operation, the arrival time and the request of each connection with an open request.
        self._open_requests: dict[Peer, tuple[str, float, Request]] = {}
        self._timers: set[asyncio.TimerHandle] = set()

    def reset(self) -> None:
        """Cut off all open requests, so that these requests have no later effect. Then empty the sandbox."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._waiting_requests.clear()
        self._served_count = 0
        for peer, (operation, *_) in tuple(self._open_requests.items()):
            self._finish_request(operation, peer, NO_RESPONSE, Delivery.CUT)
        self._sandbox.reset()

    def receive(self, request: Request, peer: Peer) -> None:
        """Receive a request of the API. `peer.finish_request` is called once for the request."""
        sandbox = self._sandbox
        now = sandbox.clock()
        operation, method = OPERATION_AND_METHOD_BY_PATH.get(request.path, ("other", ""))
        self._open_requests[peer] = operation, now, request
        sandbox.stats.count_received_request(operation, now, peer.paused_until)
        fault, refusal = self._admit_request(request, operation, method, now)
        if refusal is not None:
            self._call_after(self._draw_latency_s(), lambda: self._finish_request(operation, peer, refusal))
        elif sandbox.settings.capacity and self._served_count >= sandbox.settings.capacity:
            self._waiting_requests.append(lambda: self._serve_request(operation, request, peer, fault))
        else:
            self._serve_request(operation, request, peer, fault)

    def _admit_request(
        self, request: Request, operation: str, method: str, now: float
    ) -> tuple[Fault | None, Response | None]:
        """Return the fault that the sandbox simulates for a request, and the response if the request is refused.

        The checks come in the order redirect, path, method, token, limit, fault, block of creates, form.
        """
        sandbox, settings = self._sandbox, self._sandbox.settings
        if settings.redirect_to:
            redirect_url = (
                settings.redirect_to.rstrip("/") + request.path + (f"?{request.query}" if request.query else "")
            )
            return None, self._build_error(307, "Moved", ("Location", redirect_url))
        if operation == "other":
            return None, self._build_error(404, "There is nothing at this address")
        if request.method != method:
            return None, self._build_error(405, f"Only {method} is possible here", ("Allow", method))
        if not is_authorised(request, sandbox.authorization):
            return None, self._build_error(401, "The API token is missing or wrong")
        wait_s = sandbox.limiter.admit_or_compute_wait(now)
        if wait_s > 0:
            return None, self._build_refusal(
                settings.limit_status, max(wait_s, settings.retry_after_s), "Too many requests"
            )
        fault = sandbox.faults.draw(operation, sandbox.random)
        if fault is not None:
            sandbox.stats.faults[fault.value] += 1
        if fault is Fault.REFUSE:
            message = "Too many requests, come back later"
            return None, self._build_refusal(settings.limit_status, settings.refuse_retry_after_s, message)
        if operation == "create" and sandbox.create_blocker.blocks_next_create(now):
            sandbox.stats.faults["blocked"] += 1
            return None, self._build_error(settings.blocked_status, settings.blocked_words)
        if len(request.body) > settings.max_body_bytes:
            return None, self._build_error(413, "The body is too large")
        if operation == "list":
            return fault, self._build_error(400, "A list request has no body") if request.body else None
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return None, self._build_error(415, "Content-Type must be application/json")
        return fault, None

    def _draw_latency_s(self) -> float:
        settings = self._sandbox.settings
        jitter_ms = self._sandbox.random.random() * settings.jitter_ms if settings.jitter_ms else 0.0
        return (settings.latency_ms + jitter_ms) / 1000

    def _call_after(self, delay_s: float, action: Callable[[], object]) -> None:
        """Call `action` after a delay, or immediately without a delay."""
        if not delay_s:
            action()
            return

        def run_action() -> None:
            self._timers.discard(timer)
            action()

        timer = self._call_later(delay_s, run_action)
        self._timers.add(timer)

    def _serve_request(self, operation: str, request: Request, peer: Peer, fault: Fault | None) -> None:
        """Execute a request after its latency, and then serve waiting requests if the sandbox has free capacity."""
        self._served_count += 1

        def execute() -> None:
            try:
                self._execute_with_fault(operation, request, peer, fault)
            finally:
                self._served_count -= 1
                # If the latency is 0, the loop below executes a waiting request immediately. The request calls this
                # function again, and must not start a second loop.
                if not self._is_serving_waiting_requests:
                    self._is_serving_waiting_requests = True
                    capacity = self._sandbox.settings.capacity
                    while self._waiting_requests and (not capacity or self._served_count < capacity):
                        self._waiting_requests.popleft()()
                    self._is_serving_waiting_requests = False

        self._call_after(self._draw_latency_s(), execute)

    def _execute_with_fault(self, operation: str, request: Request, peer: Peer, fault: Fault | None) -> None:
        """Execute a request, and answer according to its fault. The faults `created_422`, `created_429`,
        `executed_status` and `wrong_answer` do not change the answer to a rejected request."""
        sandbox, settings = self._sandbox, self._sandbox.settings
        if fault is Fault.DROP_BEFORE:
            self._finish_request(operation, peer, NO_RESPONSE, Delivery.CUT)
            if settings.late_ms and operation != "list":
                self._call_after(
                    settings.late_ms / 1000, lambda: self._execute_request(operation, request, AnswerFate.LATE)
                )
            return
        is_error = fault is Fault.ERROR_BEFORE
        if not is_error and operation == "list" and settings.list_error:
            is_error = sandbox.random.random() < settings.list_error
            sandbox.stats.faults.update(["list_error"] if is_error else [])
        if is_error:
            self._finish_request(operation, peer, self._build_server_error())
            return
        if fault is Fault.STRAY_REFUSAL:
            status = int(sandbox.random.choice(settings.stray_statuses))
            self._finish_request(operation, peer, self._build_error(status, "This is not possible"))
            return
        if fault is Fault.REPEAT and operation == "create":
            self._execute_request(operation, request, AnswerFate.REPEATED)
        answer_fate = AnswerFate.CLIENT_GONE if peer.is_client_gone else ANSWER_FATE_BY_FAULT[fault]
        is_create_discarded = fault is Fault.DISCARD and operation == "create"
        response, is_executed = self._execute_request(
            operation, request, answer_fate, is_create_discarded=is_create_discarded
        )
        delivery_kind = Delivery.WHOLE_RESPONSE
        is_state_changed = is_executed and operation != "list"
        match fault:
            case Fault.DROP_AFTER:
                delivery_kind = Delivery.CUT
            case Fault.CUT_ANSWER:
                delivery_kind = Delivery.HALF_RESPONSE
            case Fault.HANG_AFTER:
                delivery_kind = Delivery.SILENT
            case Fault.ERROR_AFTER:
                response = self._build_server_error()
            case Fault.GARBAGE_AFTER:
                response = Response(200, sandbox.random.choice(GARBAGE_BODIES))
            case Fault.CREATED_422 if is_state_changed:
                response = self._build_error(422, "The request cannot be processed")
            case Fault.CREATED_429 if is_state_changed:
                response = self._build_refusal(429, _CREATED_429_WAIT_S, "Too many requests, come back later")
            case Fault.EXECUTED_STATUS if is_state_changed:
                status = int(sandbox.random.choice(settings.executed_statuses))
                response = self._build_error(status, "This is not possible")
            case Fault.WRONG_ANSWER if is_state_changed and operation == "create":
                # The answer shows another email, as if the service mixed up two requests.
                root = orjson.loads(response.body)
                root["Subscriber"]["Email"] = "somebody.else@example.net"
                response = Response(response.status, orjson.dumps(root))
        self._finish_request(operation, peer, response, delivery_kind)

    def _execute_request(
        self, operation: str, request: Request, answer_fate: AnswerFate, *, is_create_discarded: bool = False
    ) -> tuple[Response, bool]:
        """Return the response, and whether the request was executed. If `is_create_discarded`, a
        create is answered but not stored."""
        try:
            if is_create_discarded:
                return self._sandbox.answer_without_storing(request.body), False
            return self._sandbox.execute(operation, request, answer_fate), True
        except RejectedError as error:
            status = self._sandbox.settings.error_status if error.status is None else error.status
            return self._build_error(status, error.message), False
        except OSError:  # the disk is full and nothing was stored; the answer is a server error, as from a real service
            return self._build_server_error(), False

    def _build_error(self, status: int, message: str, *headers: tuple[str, str]) -> Response:
        """Return an error. The switch `error_shape` decides its shape, which service-api.md does not define."""
        match self._sandbox.settings.error_shape:
            case "plain":
                return Response(status, orjson.dumps({"success": False, "message": message}), headers=headers)
            case "nested":
                error = {"code": status, "details": [{"message": message}]}
                return Response(status, orjson.dumps({"success": False, "error": error}), headers=headers)
            case "html":
                html_head = f"<!doctype html><html><head><title>{status}</title></head>"
                page = f"{html_head}<body><h1>{html.escape(message)}</h1></body></html>"
                return Response(status, page.encode(), "text/html; charset=utf-8", headers)
            case "empty":
                return Response(status, b"", headers=headers)

    def _build_server_error(self) -> Response:
        return self._build_error(self._sandbox.settings.server_error, "Something went wrong on our side")

    def _build_refusal(self, status: int, wait_s: float, message: str) -> Response:
        """Return a refusal. Its Retry-After is rounded up to a whole second, and has the form of the switch
        `retry_after`."""
        self._sandbox.stats.limited += 1
        form = self._sandbox.settings.retry_after
        if form == "none":
            return self._build_error(status, message)
        if form == "seconds":
            retry_after_s = math.ceil(wait_s)
            error = self._build_error(status, message, ("Retry-After", str(retry_after_s)))
            return replace(error, wait_s=float(retry_after_s))
        retry_at = math.ceil(self._sandbox.wall_clock() + wait_s)
        retry_date = format_datetime(datetime.fromtimestamp(retry_at, UTC), usegmt=True)
        error = self._build_error(status, message, ("Retry-After", retry_date if form == "date" else str(retry_at)))
        return replace(error, wait_until=float(retry_at))

    def _finish_request(
        self, operation: str, peer: Peer, response: Response, delivery_kind: Delivery = Delivery.WHOLE_RESPONSE
    ) -> None:
        """Answer a request, and count the answer as the client sees it."""
        sandbox = self._sandbox
        answer_label = str(response.status) if delivery_kind is Delivery.WHOLE_RESPONSE else delivery_kind.value
        answer_label = "gone" if peer.is_client_gone else answer_label
        sandbox.stats.count_answer(operation, answer_label)
        _, arrived_at, request = (
            self._open_requests[peer] if delivery_kind is Delivery.SILENT else self._open_requests.pop(peer)
        )
        shown_request = request if len(request.body) <= _MAX_SHOWN_BYTES else replace(request, body=b"")
        sandbox.recent_requests.append((arrived_at, shown_request, answer_label))
        wait_s = response.wait_s if response.wait_until is None else response.wait_until - sandbox.wall_clock()
        if wait_s > 0:
            peer.paused_until = sandbox.clock() + wait_s
            sandbox.stats.record_retry_after(peer.paused_until)
        peer.finish_request(response, delivery_kind, sandbox.settings.cut_by)
