"""The service of service-api.md: its data (`Sandbox`), and the treatment of requests (`Service`).

A request is admitted or refused. An admitted request waits in line, waits for its latency, is executed, and is answered
according to its fault. No function awaits: each step calls the next step, at once or by a timer of the event loop.
"""

import asyncio
import hmac
import html
import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from random import Random
from typing import Any, Protocol

import orjson

from connector.sandbox.connection import NO_RESPONSE, Delivery, Request, Response
from connector.sandbox.emails import Outbox, parse_email
from connector.sandbox.faults import ANSWER_FATES, GARBAGE, CreateBlock, Fault, FaultDraw, build_limiter
from connector.sandbox.listing import Filter, Query, SubscriberList, choose_id, draw_row, parse_query
from connector.sandbox.people import SyntheticSubscribers
from connector.sandbox.store import SubscriberStore, fold_base_name
from connector.sandbox.subscriber import (
    RejectedError,
    alter_values,
    fill_defaults,
    format_activity,
    format_id_as_number,
    format_uuid,
    parse_create,
)
from connector.sandbox.switches import SandboxSettings, change_settings
from connector.sandbox.truth import AnswerFate, Stats, TruthLog

OPERATIONS = {
    "/api/subscribers/create-subscriber/": ("create", "POST"),
    "/api/subscribers/subscribers-list/": ("list", "GET"),
    "/api/emails/send-instant-email/": ("send", "POST"),
}
"""The operation and the method of each path (service-api.md 4)."""

_PACE_SWITCHES = ("limiter", "rate", "burst", "window_ms")
_MAX_RECENT_REQUESTS = 100  # number of requests that the page shows
_MAX_SHOWN_BYTES = 4096  # a larger body, for example an email with attachments, is not kept for the page
_CREATED_429_WAIT_S = 1.0  # the Retry-After of a 429 after a create that took place


class Peer(Protocol):
    """The connection of a request. `quiet_until` is the end of the pause that a Retry-After asked the client for."""

    quiet_until: float

    @property
    def is_gone(self) -> bool:
        """Whether the client has closed."""

    def finish(self, response: Response, delivery: Delivery = Delivery.WHOLE, cut_by: str = "close") -> None:
        """End the request."""


def is_authorised(request: Request, authorization: bytes) -> bool:
    """Return whether the Authorization header of the request is exactly `authorization`."""
    return hmac.compare_digest(
        request.headers.get("authorization", "").encode("utf-8", "surrogateescape"), authorization
    )


# state and operations


class Sandbox:
    """The state of one sandbox, and the three operations. `clock` returns the seconds of a clock that never goes back,
    and `wall_clock` returns Unix seconds."""

    def __init__(
        self,
        settings: SandboxSettings,
        token: str,
        data: Path | None,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
    ) -> None:
        """Open the folder `data`, and create it if it is missing. Without `data`, the sandbox is empty and only in
        memory.

        Raise ValueError if another sandbox uses the folder, or if a line of its journal is broken.
        """
        if data is not None:
            data.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.token = token
        self.clock, self.wall_clock = clock, wall_clock
        self.data = data
        self.outbox = Outbox(None if data is None else data / "outbox")
        self.truth = TruthLog(None if data is None else data / "journal.jsonl", wall_clock)
        self._first_settings = settings
        self._set_start_state()
        for line_number, line in enumerate(self.truth.lines, start=1):
            try:
                event = orjson.loads(line)
                self._apply_event(event)
                is_event = event["sequence"] == line_number
            except (ValueError, KeyError, TypeError):
                is_event = False
            if not is_event:
                raise ValueError(
                    f"line {line_number} of the sandbox's journal is not event {line_number}: the file is damaged"
                )

    def _set_start_state(self) -> None:
        """Set all data to their values at the start, except the outbox and the truth log."""
        self.store = SubscriberStore()
        self.listing = SubscriberList(self.store)
        self._cached_answers: dict[str, tuple[float, bytes]] = {}
        """The answers that the switch `cached` repeats: the time (seconds of the clock) and the body of the answer, by
        query."""
        self.stats = Stats()
        self.recent: deque[tuple[float, Request, str]] = deque(maxlen=_MAX_RECENT_REQUESTS)
        """The last requests of the API: the arrival (seconds of the clock), the request, and the answer."""
        self.block = CreateBlock(self._first_settings)
        self._set_settings(self._first_settings)
        self._build_limiter()
        self.random = Random(self.settings.seed)  # noqa: S311 - chances that must recur, not secrets

    def _apply_event(self, event: dict[str, Any]) -> None:
        """Apply an event of the journal."""
        match event["kind"]:
            case "created" | "churn_inserted":
                subscriber_json = event["subscriber"]
                self.store.bases.add(subscriber_json["Base"]["Id"], subscriber_json["Base"]["Name"])
                email, client_user_id = subscriber_json.get("Email") or "", subscriber_json.get("ClientUserId") or ""
                self.store.add(event["id"], event["base_id"], email, client_user_id, orjson.dumps(subscriber_json))
                self.store.created.update([event["id"]] if event["kind"] == "created" else [])
            case "updated":
                self.store.replace(event["id"], orjson.dumps(event["subscriber"]))
            case "churn_deleted":
                self.store.remove(event["id"])
            case "seeded":
                names = ("first_id", "count", "step", "base_id", "base_name")
                block = SyntheticSubscribers(**{name: event[name] for name in names})
                self.store.bases.add(block.base_id, block.base_name)
                self.store.add_block(block)
            case "sent":
                ids = {"request_id": event["request_id"], "message_id": event["message_id"]}
                self.outbox.restore(ids | event["email"])
            case other:
                raise ValueError(f"unknown kind {other!r}")

    def reset(self) -> None:
        """Empty the sandbox, and set all switches to their values at the start."""
        self.truth.clear()
        self.outbox.clear()
        self._set_start_state()

    def change_switches(self, values: Mapping[str, object]) -> None:
        """Set switches while the sandbox runs. Raise ValueError and change nothing if a value is wrong."""
        old_settings, new_settings = self.settings, change_settings(self.settings, values)
        self._set_settings(new_settings)
        if any(getattr(new_settings, name) != getattr(old_settings, name) for name in _PACE_SWITCHES):
            self._build_limiter()
        if "seed" in values:
            self.random = Random(new_settings.seed)  # noqa: S311 - chances that must recur, not secrets

    def _set_settings(self, settings: SandboxSettings) -> None:
        self.settings = settings
        self.faults = FaultDraw(settings)
        self.block = self.block.apply_settings(settings)
        self.authorization = settings.authorization.replace("{token}", self.token).encode()

    def _build_limiter(self) -> None:
        settings = self.settings
        self.limiter = build_limiter(settings.limiter, settings.rate, settings.burst, settings.window_ms / 1000)

    def execute(self, operation: str, request: Request, answer_fate: AnswerFate) -> Response:
        """Execute a request. `answer_fate` says whether its answer is sent.

        Raise RejectedError if the request breaks a rule, and OSError if the disk is full and nothing was stored.
        """
        if operation == "create":
            return self.create_subscriber(request.body, answer_fate)
        if operation == "list":
            return self._list_subscribers(request)
        entry = self.outbox.add(parse_email(request.body, self.settings), self.wall_clock())
        ids = {"request_id": entry["request_id"], "message_id": entry["message_id"]}
        self.truth.append("sent", **ids, answered=answer_fate, email=entry)
        send_result = {"SendMessageRequestId": entry["request_id"], "MessageId": entry["message_id"]}
        return Response(200, orjson.dumps({"success": True, "SendEmail": send_result}))

    def _list_subscribers(self, request: Request) -> Response:
        """Return a page of the list (service-api.md 4.3), or an earlier answer (switch `cached`)."""
        settings, now = self.settings, self.clock()
        answered_at, earlier_page = self._cached_answers.get(request.query, (-math.inf, b""))
        skips_cache = request.headers.get("cache-control") == "no-cache" and not settings.cache_ignores
        if now < answered_at + settings.cached and not skips_cache:
            return Response(200, earlier_page)
        query = parse_query(request.query, settings)
        page = self.listing.read_page(query, settings, now, self.random)
        if settings.churn_insert or settings.churn_delete:
            self._churn(query.base_id)
        if settings.cached:
            self._cached_answers[request.query] = now, page
        return Response(200, page)

    def create_subscriber(self, body: bytes, answer_fate: AnswerFate) -> Response:
        """Create a subscriber (service-api.md 4.2). Raise the errors of `execute`."""
        settings, store = self.settings, self.store
        requested_base_id, requested_base_name, values = parse_create(body, settings)
        base_id, base_name = self._find_base(requested_base_id, requested_base_name)
        email = values.get("Email")
        if settings.alter_fields or settings.alter_identity:
            alter_values(values, settings)
        merged_ids = self._find_merged_ids(values, base_id)
        ids_of_identity = (
            []
            if merged_ids or settings.duplicates == "accept"
            else store.find_by_identity(values, base_id, settings.identity)
        )
        if ids_of_identity and settings.duplicates != "upsert":
            subscriber_text = email or f"with ClientUserId {values.get('ClientUserId')!r}"
            status = int(settings.duplicates.removeprefix("reject_"))
            raise RejectedError(f"Subscriber {subscriber_text} already exists in base {base_id}", status)
        subscriber_id: int | None = next(iter(merged_ids or ids_of_identity), None)
        if subscriber_id is not None:
            old_subscriber = store.read(subscriber_id)
            address = {**(old_subscriber.get("Address") or {}), **values.get("Address", {})}
            values = old_subscriber | values | ({"Address": address} if address else {})
        is_new = subscriber_id is None
        if is_new and settings.quota and len(store) >= settings.quota:
            raise RejectedError(f"Your plan allows {settings.quota} subscribers", settings.quota_status)
        kind = "created" if is_new else "updated"
        if subscriber_id is None:
            subscriber_id = store.create_id(settings.id_step)
        subscriber = fill_defaults(values, settings.absent_fields)
        subscriber_json = orjson.dumps({"Id": subscriber_id, "Base": {"Id": base_id, "Name": base_name}} | subscriber)
        self._record_change(kind, subscriber_id, base_id, email, answer_fate, subscriber_json)
        if is_new:
            store.created.add(subscriber_id)
            lag_s = settings.list_lag_ms / 1000
            visible_from = self.clock() + lag_s if lag_s else None
            store.add(
                subscriber_id,
                base_id,
                values.get("Email", ""),
                values.get("ClientUserId", ""),
                subscriber_json,
                visible_from,
            )
            if settings.replica_lags_ms:
                store.record_replica_start(subscriber_id, self.clock() + lag_s)
        else:
            store.replace(subscriber_id, subscriber_json)
        return Response(
            settings.created_status,
            b'{"success":true,"Subscriber":' + self._format_answered_subscriber(subscriber_json) + b"}",
        )

    def answer_unstored(self, body: bytes) -> Response:
        """Return the answer to a create, and store nothing. Raise RejectedError if the request breaks a rule."""
        settings = self.settings
        requested_base_id, requested_base_name, values = parse_create(body, settings)
        base_id, base_name = self._find_base(requested_base_id, requested_base_name)
        id_and_base = {"Id": self.store.create_id(settings.id_step), "Base": {"Id": base_id, "Name": base_name}}
        subscriber_json = orjson.dumps(id_and_base | fill_defaults(values, settings.absent_fields))
        return Response(
            settings.created_status,
            b'{"success":true,"Subscriber":' + self._format_answered_subscriber(subscriber_json) + b"}",
        )

    def _find_merged_ids(self, values: Mapping[str, Any], base_id: int) -> list[int]:
        """Return the ids of the subscribers that a create overwrites by the switch `merge_by`. Subscribers of the base
        come first."""
        ids = list[int]()
        for name in self.settings.merge_by:
            if values.get(name):
                text = values[name]
                ids += self.store.find_phone(text) if name == "Phone" else self.store.find(name, text)
        if self.settings.merge_within == "base":
            ids = [subscriber_id for subscriber_id in ids if self.store.find_base_id(subscriber_id) == base_id]
        return sorted(ids, key=lambda subscriber_id: (self.store.find_base_id(subscriber_id) != base_id, subscriber_id))

    def _format_answered_subscriber(self, subscriber_json: bytes) -> bytes:
        """Return the JSON of a subscriber in the form of an answer to a create."""
        settings = self.settings
        if settings.provisional_ids:
            subscriber_json = orjson.dumps(
                {**orjson.loads(subscriber_json), "Id": self.store.create_id(settings.id_step)}
            )
        if settings.activity != "boolean":
            subscriber_json = format_activity(subscriber_json, settings.activity)
        if settings.client_user_ids == "number":
            subscriber_json = format_id_as_number(subscriber_json)
        return format_uuid(subscriber_json) if settings.uuids else subscriber_json

    def _record_change(
        self,
        kind: str,
        subscriber_id: int,
        base_id: int,
        email: str | None,
        answer_fate: AnswerFate,
        subscriber_json: bytes,
    ) -> None:
        subscriber = orjson.Fragment(subscriber_json)
        self.truth.append(
            kind, id=subscriber_id, base_id=base_id, email=email, answered=answer_fate, subscriber=subscriber
        )

    def _find_base(self, base_id: int | None, name: str | None) -> tuple[int, str]:
        """Return the Id and the Name of the base in which a create is stored: the named base, or its target in the
        switch `base_alias`."""
        base_name_matching = self.settings.base_names
        for alias, target in self.settings.base_alias.items():
            if (
                alias == str(base_id)
                if name is None
                else fold_base_name(alias, base_name_matching) == fold_base_name(name, base_name_matching)
            ):
                base_id, name = (int(target), None) if target.isascii() and target.isdigit() else (None, target)
                break
        return self.store.bases.find_or_create_base(base_id, name, base_name_matching)

    def _churn(self, listed_base_id: int | None) -> None:
        """Delete and then insert subscribers, as the churn switches say. If `listed_base_id` is None, all bases were
        listed."""
        settings, store, random = self.settings, self.store, self.random
        filters = () if listed_base_id is None else (Filter("BaseId", listed_base_id),)

        def draw_count(amount: float) -> int:
            return int(amount) + int(random.random() < amount - int(amount))

        def find_subscriber_ids() -> list[int]:
            return self.listing.find(Query(0, 0, filters), settings)

        for _ in range(draw_count(settings.churn_delete)):
            if listed_ids := find_subscriber_ids():
                subscriber_id = draw_row(listed_ids, settings, random)
                self.truth.append("churn_deleted", id=subscriber_id)
                store.remove(subscriber_id)
        for _ in range(draw_count(settings.churn_insert)):
            listed_ids = find_subscriber_ids()
            new_base_id = listed_base_id
            if new_base_id is None:
                new_base_id = store.find_base_id(draw_row(listed_ids, settings, random)) if listed_ids else 1
            base_id, name = store.bases.find_or_create_base(new_base_id, None)
            local_part = "somebody"
            if settings.order == "email" and listed_ids:  # the new subscriber is next to an existing one in the list
                local_part = (store.read(draw_row(listed_ids, settings, random)).get("Email") or "").partition("@")[0]
            email = f"{local_part}.churn-{self.truth.sequence + 1}@example.net"
            subscriber_id = choose_id(store, listed_ids, settings)
            base = {"Id": base_id, "Name": name}
            subscriber_json = orjson.dumps(
                {"Id": subscriber_id, "Base": base, "IsActive": True, "Email": email, "Gender": ""}
            )
            self._record_change("churn_inserted", subscriber_id, base_id, None, AnswerFate.UNASKED, subscriber_json)
            store.add(subscriber_id, base_id, email, "", subscriber_json)

    def seed(self, count: int, base_id: int | None, base_name: str | None) -> SyntheticSubscribers:
        """Add `count` synthetic subscribers to one base. The list shows them at once."""
        base, step = self.store.bases.find_or_create_base(base_id, base_name), self.settings.id_step
        block = SyntheticSubscribers(self.store.create_id(step), count, step, *base)
        self.truth.append("seeded", **asdict(block))
        self.store.add_block(block)
        return block


# the treatment of requests


class Service:
    """The treatment of all requests of the API to one sandbox. `call_later` sets a timer in seconds."""

    def __init__(
        self, sandbox: Sandbox, call_later: Callable[[float, Callable[[], None]], asyncio.TimerHandle]
    ) -> None:
        self._sandbox = sandbox
        self._call_later = call_later
        self._served_count = 0
        self._is_serving_line = False
        self._waiting_requests: deque[Callable[[], None]] = deque()
        # operation, arrival and request of each connection
        self._open_requests: dict[Peer, tuple[str, float, Request]] = {}
        self._timers: set[asyncio.TimerHandle] = set()

    def reset(self) -> None:
        """Cut off all open requests, so that they have no later effect, and empty the sandbox."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._waiting_requests.clear()
        self._served_count = 0
        for peer, (operation, *_) in tuple(self._open_requests.items()):
            self._finish_request(operation, peer, NO_RESPONSE, Delivery.CUT)
        self._sandbox.reset()

    def receive(self, request: Request, peer: Peer) -> None:
        """Receive a request of the API. `peer.finish` is called once for the request."""
        sandbox = self._sandbox
        now = sandbox.clock()
        operation, method = OPERATIONS.get(request.path, ("other", ""))
        self._open_requests[peer] = operation, now, request
        sandbox.stats.count_received(operation, now, peer.quiet_until)
        fault, refusal = self._admit(request, operation, method, now)
        if refusal is not None:
            self._call_after(
                self._draw_latency_s(), lambda: self._finish_request(operation, peer, refusal, Delivery.WHOLE)
            )
        elif sandbox.settings.capacity and self._served_count >= sandbox.settings.capacity:
            self._waiting_requests.append(lambda: self._serve(operation, request, peer, fault))
        else:
            self._serve(operation, request, peer, fault)

    def _admit(self, request: Request, operation: str, method: str, now: float) -> tuple[Fault | None, Response | None]:
        """Return the fault of a request, and the response if the request is refused.

        The checks come in the order redirect, path, method, token, limit, fault, block of creates, form.
        """
        sandbox, settings = self._sandbox, self._sandbox.settings
        if settings.redirect_to:
            target = settings.redirect_to.rstrip("/") + request.path + (f"?{request.query}" if request.query else "")
            return None, self._build_error(307, "Moved", ("Location", target))
        if operation == "other":
            return None, self._build_error(404, "There is nothing at this address")
        if request.method != method:
            return None, self._build_error(405, f"Only {method} is possible here", ("Allow", method))
        if not is_authorised(request, sandbox.authorization):
            return None, self._build_error(401, "The API token is missing or wrong")
        wait_s = sandbox.limiter.admit(now)
        if wait_s > 0:
            return None, self._refuse(settings.limit_status, max(wait_s, settings.retry_after_s), "Too many requests")
        fault = sandbox.faults.draw(operation, sandbox.random)
        if fault is not None:
            sandbox.stats.faults[fault.value] += 1
        if fault is Fault.REFUSE:
            message = "Too many requests, come back later"
            return None, self._refuse(settings.limit_status, settings.refuse_retry_after_s, message)
        if operation == "create" and sandbox.block.refuses_create(now):
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
        """Call `action` after a delay, or at once without a delay."""
        if not delay_s:
            action()
            return

        def run_action() -> None:
            self._timers.discard(timer)
            action()

        timer = self._call_later(delay_s, run_action)
        self._timers.add(timer)

    def _serve(self, operation: str, request: Request, peer: Peer, fault: Fault | None) -> None:
        """Execute a request after its latency, and then serve the requests in line."""
        self._served_count += 1

        def execute() -> None:
            try:
                self._execute_with_fault(operation, request, peer, fault)
            finally:
                self._served_count -= 1
                # A request that the loop serves must not start the loop a second time.
                if not self._is_serving_line:
                    self._is_serving_line = True
                    capacity = self._sandbox.settings.capacity
                    while self._waiting_requests and (not capacity or self._served_count < capacity):
                        self._waiting_requests.popleft()()
                    self._is_serving_line = False

        self._call_after(self._draw_latency_s(), execute)

    def _execute_with_fault(self, operation: str, request: Request, peer: Peer, fault: Fault | None) -> None:
        """Execute a request, and answer according to its fault. A fault does not change the answer to a rejected
        request."""
        sandbox, settings = self._sandbox, self._sandbox.settings
        if fault is Fault.DROP_BEFORE:
            self._finish_request(operation, peer, NO_RESPONSE, Delivery.CUT)
            if settings.late_ms and operation != "list":
                self._call_after(settings.late_ms / 1000, lambda: self._execute(operation, request, AnswerFate.LATE))
            return
        is_error = fault is Fault.ERROR_BEFORE
        if not is_error and operation == "list" and settings.list_error:
            is_error = sandbox.random.random() < settings.list_error
            sandbox.stats.faults.update(["list_error"] if is_error else [])
        if is_error:
            self._finish_request(operation, peer, self._build_server_error(), Delivery.WHOLE)
            return
        if fault is Fault.STRAY_REFUSAL:
            status = int(sandbox.random.choice(settings.stray_statuses))
            self._finish_request(operation, peer, self._build_error(status, "This is not possible"), Delivery.WHOLE)
            return
        if fault is Fault.DISCARD and operation == "create":
            self._finish_request(operation, peer, self._answer_without_storing(request), Delivery.WHOLE)
            return
        if fault is Fault.REPEAT and operation == "create":
            self._execute(operation, request, AnswerFate.REPEATED)
        response, is_executed = self._execute(
            operation, request, AnswerFate.GONE if peer.is_gone else ANSWER_FATES[fault]
        )
        delivery = Delivery.WHOLE
        is_change = is_executed and operation != "list"
        match fault:
            case Fault.DROP_AFTER:
                delivery = Delivery.CUT
            case Fault.CUT_ANSWER:
                delivery = Delivery.HALF
            case Fault.HANG_AFTER:
                delivery = Delivery.SILENT
            case Fault.ERROR_AFTER:
                response = self._build_server_error()
            case Fault.GARBAGE_AFTER:
                response = Response(200, sandbox.random.choice(GARBAGE))
            case Fault.CREATED_422 if is_change:
                response = self._build_error(422, "The request cannot be processed")
            case Fault.CREATED_429 if is_change:
                response = self._refuse(429, _CREATED_429_WAIT_S, "Too many requests, come back later")
            case Fault.EXECUTED_STATUS if is_change:
                response = self._build_error(
                    int(sandbox.random.choice(settings.executed_statuses)), "This is not possible"
                )
            case Fault.WRONG_ANSWER if is_change and operation == "create":  # as if the service mixed up two requests
                root = orjson.loads(response.body)
                root["Subscriber"]["Email"] = "somebody.else@example.net"
                response = Response(response.status, orjson.dumps(root))
        self._finish_request(operation, peer, response, delivery)

    def _execute(self, operation: str, request: Request, answer_fate: AnswerFate) -> tuple[Response, bool]:
        """Return the response, and whether the request was executed."""
        try:
            return self._sandbox.execute(operation, request, answer_fate), True
        except RejectedError as error:
            status = self._sandbox.settings.error_status if error.status is None else error.status
            return self._build_error(status, error.message), False
        except OSError:  # the disk is full and nothing was stored; the answer is a server error, as from a real service
            return self._build_server_error(), False

    def _answer_without_storing(self, request: Request) -> Response:
        """Return the answer to a create that is not executed."""
        try:
            return self._sandbox.answer_unstored(request.body)
        except RejectedError as error:
            status = self._sandbox.settings.error_status if error.status is None else error.status
            return self._build_error(status, error.message)

    def _build_error(self, status: int, message: str, *headers: tuple[str, str]) -> Response:
        """Return an error. Its shape is a switch (`error_shape`), because service-api.md does not show the shape."""
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

    def _refuse(self, status: int, wait_s: float, message: str) -> Response:
        """Return a refusal. Its Retry-After is rounded up to a whole second, and has the form of the switch
        `retry_after`."""
        self._sandbox.stats.limited += 1
        match self._sandbox.settings.retry_after:
            case "seconds":
                seconds = math.ceil(wait_s)
                error = self._build_error(status, message, ("Retry-After", str(seconds)))
                return replace(error, wait_s=float(seconds))
            case "date":
                retry_at = math.ceil(self._sandbox.wall_clock() + wait_s)
                date = format_datetime(datetime.fromtimestamp(retry_at, UTC), usegmt=True)
                return replace(self._build_error(status, message, ("Retry-After", date)), wait_until=float(retry_at))
            case "unix":
                retry_at = math.ceil(self._sandbox.wall_clock() + wait_s)
                return replace(
                    self._build_error(status, message, ("Retry-After", str(retry_at))), wait_until=float(retry_at)
                )
            case "none":
                return self._build_error(status, message)

    def _finish_request(self, operation: str, peer: Peer, response: Response, delivery: Delivery) -> None:
        """Answer a request, and count the answer as the client sees it."""
        sandbox = self._sandbox
        label = str(response.status) if delivery is Delivery.WHOLE else delivery.value
        label = "gone" if peer.is_gone else label
        sandbox.stats.count_answered(operation, label)
        _, arrived_at, request = (
            self._open_requests[peer] if delivery is Delivery.SILENT else self._open_requests.pop(peer)
        )
        shown_request = request if len(request.body) <= _MAX_SHOWN_BYTES else replace(request, body=b"")
        sandbox.recent.append((arrived_at, shown_request, label))
        wait_s = response.wait_s if response.wait_until is None else response.wait_until - sandbox.wall_clock()
        if wait_s > 0:
            peer.quiet_until = sandbox.clock() + wait_s
            sandbox.stats.record_retry_after(peer.quiet_until)
        peer.finish(response, delivery, sandbox.settings.cut_by)
