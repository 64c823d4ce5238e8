"""The service of service-api.md: what it holds (`Sandbox`), and the way of a request (`Service`).

A request is let in or refused, waits its turn and its latency, is executed, and is answered as its fault has it.
Nothing here awaits: each step decides and calls the next, at once or later by the loop's timer.
"""

import asyncio
import hmac
import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from random import Random
from typing import Any, Protocol

import orjson

from connector.sandbox.connection import NO_RESPONSE, Ending, Request, Response, build_error
from connector.sandbox.emails import Outbox, compose_eml, describe_email, parse_email
from connector.sandbox.faults import FATES, Fate, Fault, FaultDraw, RateLimiter, build_limiter, pick_garbage
from connector.sandbox.listing import Churn, SubscriberList, parse_query
from connector.sandbox.store import SubscriberStore, SyntheticSubscribers, fold_name
from connector.sandbox.subscriber import (
    RejectedError,
    check_required,
    drop_tag,
    fill_defaults,
    parse_create,
    quote_ids,
    write_in_capitals,
)
from connector.sandbox.switches import SandboxSettings, change_settings
from connector.sandbox.truth import Journal, Stats, TruthLog, replay

OPERATIONS = {
    "/api/subscribers/create-subscriber/": ("create", "POST"),
    "/api/subscribers/subscribers-list/": ("list", "GET"),
    "/api/emails/send-instant-email/": ("send", "POST"),
}
"""Path to operation and method (service-api.md 4)."""

_PACE = ("limiter", "rate", "burst", "window_ms")
_LABELS = {Ending.CUT: "cut", Ending.PART: "cut_in_answer", Ending.SILENT: "hung"}
_RECENT = 100  # requests that the page shows
_KEPT = 4096  # bytes of a body; one with attachments is not kept for being shown
_CREATED = b'{"success":true,"Subscriber":'
_AS_IF_REFUSED_S = 1.0  # the Retry-After of a 429 that stands for a create which took place


class Sandbox:
    """All that one sandbox is at a moment, and the three operations upon it; `clock` and `wall` return seconds, the
    first without going back."""

    def __init__(
        self,
        settings: SandboxSettings,
        token: str,
        data: Path | None,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        """Open what `data` (a directory, made if need be) holds, or an empty sandbox in memory.

        Raises ValueError when the directory is in use or its journal cannot be trusted.
        """
        if data is not None:
            data.mkdir(mode=0o700, parents=True, exist_ok=True)
        journal = Journal(None if data is None else data / "journal.jsonl")
        self.token = token
        self.clock, self.wall = clock, wall
        self.store, self.outbox = SubscriberStore(), Outbox(None if data is None else data / "outbox")
        self.truth = TruthLog(journal, wall, replay(journal.read_lines(), self.store, self.outbox.restore))
        self.stats = Stats()
        self.data = data
        self.recent: deque[tuple[float, Request, str]] = deque(maxlen=_RECENT)
        """The last requests of the API: when each came (seconds of the clock), and what it was answered."""
        self._at_start = settings
        self._begin(settings)

    def change(self, given: Mapping[str, object]) -> None:
        """Set switches while the sandbox runs; raises ValueError and changes nothing."""
        before, settings = self.settings, change_settings(self.settings, given)
        self._apply(settings)
        if any(getattr(settings, name) != getattr(before, name) for name in _PACE):
            self.limiter = _build_limiter(settings)
        if "seed" in given:
            self.random = Random(settings.seed)  # noqa: S311 - chances that must come again, not secrets

    def reset(self) -> None:
        """Go back to an empty sandbox with the switches it was started with."""
        self.store = SubscriberStore()
        self.truth.clear()
        self.outbox.clear()
        self.stats = Stats()
        self.recent.clear()
        self._begin(self._at_start)

    def close(self) -> None:
        """Let go of files."""
        self.truth.close()

    def _begin(self, settings: SandboxSettings) -> None:
        self._list = SubscriberList(self.store)
        self.limiter = _build_limiter(settings)
        self.random = Random(settings.seed)  # noqa: S311 - chances that must come again, not secrets
        self._apply(settings)

    def _apply(self, settings: SandboxSettings) -> None:
        """Take the switches, and derive what follows from them."""
        self.settings = settings
        self.draw = FaultDraw(settings.fault_operations, {each: getattr(settings, each) for each in Fault})
        self.authorization = settings.authorization.replace("{token}", self.token).encode()

    # the operations

    def execute(self, operation: str, request: Request, fate: Fate) -> Response:
        """Do what a request asks for, its answer having this fate; raises RejectedError when it breaks a rule, OSError
        when the disk is full and nothing was stored."""
        if operation == "create":
            return self.create_subscriber(request.body, fate)
        if operation == "send":
            return self._send_email(request.body, fate)
        query = parse_query(request.query, self.settings)
        page = self._list.read_page(query, self.settings, self.clock(), self.random)
        self._churn(query.base_id)
        return Response(200, page)

    def create_subscriber(self, body: bytes, fate: Fate) -> Response:
        """Create a subscriber (service-api.md 4.2); raises as `execute` does."""
        settings, store = self.settings, self.store
        wanted_id, wanted_name, values = parse_create(body, settings.extra_fields)
        check_required(values, settings.required)
        base_id, base_name = self._find_base(wanted_id, wanted_name)
        email = values.get("Email")
        if settings.alter_fields:
            write_in_capitals(values, settings.alter_fields)
        if settings.alter_identity and email:
            values["Email"] = drop_tag(email)
        if settings.duplicates != "accept":
            same = store.find_same(values, base_id, settings.identity)
            if same:
                return self._meet_duplicate(same[0], values, email, fate)
        wire_values = fill_defaults(values, settings.absent_fields)
        subscriber_id = store.take_id(settings.id_step)
        wire = orjson.dumps({"Id": subscriber_id, "Base": {"Id": base_id, "Name": base_name}} | wire_values)
        self.truth.note_stored("created", subscriber_id, base_id, email, fate, wire)
        lag_s = settings.list_lag_ms / 1000
        show_at = self.clock() + lag_s if lag_s else None
        store.add(subscriber_id, base_id, values.get("Email", ""), values.get("ClientUserId", ""), wire, show_at)
        if settings.replica_lags_ms:
            store.note_fresh(subscriber_id, self.clock() + lag_s)
        return self._answer_created(wire)

    def _find_base(self, base_id: int | None, name: str | None) -> tuple[int, str]:
        """Return (Id, Name) of the base that a create goes to: the one named, or what `base_alias` has for it."""
        is_folded = self.settings.base_names == "folded"
        for left, right in self.settings.base_alias.items():
            is_meant = left == str(base_id) if name is None else left == name
            if is_meant or (is_folded and name is not None and fold_name(left) == fold_name(name)):
                base_id, name = (int(right), None) if right.isascii() and right.isdigit() else (None, right)
                break
        return self.store.bases.find_or_make(base_id, name, is_folded=is_folded)

    def _meet_duplicate(self, existing: int, values: dict[str, Any], email: str | None, fate: Fate) -> Response:
        """Do what the switch `duplicates` says of a create whose base has the subscriber already."""
        rule, base_id = self.settings.duplicates, self.store.base_of(existing)
        if rule != "upsert":
            who = email or f"with ClientUserId {values.get('ClientUserId')!r}"
            raise RejectedError(f"Subscriber {who} already exists in base {base_id}", int(rule.removeprefix("reject_")))
        old = self.store.read_subscriber(existing)
        address = {**(old.get("Address") or {}), **values.get("Address", {})}
        merged = old | values | ({"Address": address} if address else {})
        merged = {name: value for name, value in merged.items() if name not in ("Id", "Base")}
        filled = fill_defaults(merged, self.settings.absent_fields)
        wire = orjson.dumps({"Id": existing, "Base": old["Base"]} | filled)
        self.truth.note_stored("updated", existing, base_id, email, fate, wire)
        self.store.replace(existing, wire)
        return self._answer_created(wire)

    def _answer_created(self, wire: bytes) -> Response:
        shown = quote_ids(wire) if "ids" in self.settings.numbers_as_text else wire
        return Response(self.settings.created_status, _CREATED + shown + b"}")

    def _send_email(self, body: bytes, fate: Fate) -> Response:
        """Accept an email (service-api.md 4.1): check, compose, keep in the outbox, record."""
        email = parse_email(body, self.settings)
        request_id, message_id = self.outbox.take_ids()
        entry = describe_email(email)
        self.outbox.keep(request_id, message_id, entry, compose_eml(email, message_id, self.wall()))
        self.truth.note_sent(request_id, message_id, fate, entry)
        sent = {"SendMessageRequestId": request_id, "MessageId": message_id}
        return Response(200, orjson.dumps({"success": True, "SendEmail": sent}))

    def _churn(self, base_id: int | None) -> None:
        """Delete, then insert, as the switches say; `base_id` is the base that was listed, None for all."""
        settings = self.settings
        if not settings.churn_insert and not settings.churn_delete:
            return
        churn = Churn(self.store, settings, self.random, base_id)
        for _ in range(self._draw_count(settings.churn_delete)):
            gone = churn.choose_leaving()
            if gone is not None:
                self.truth.note_deleted(gone)
                self.store.remove(gone)
        for _ in range(self._draw_count(settings.churn_insert)):
            subscriber_id, home, email = churn.choose_arriving(self.truth.sequence + 1)
            home, name = self.store.bases.find_or_make(home, None)
            base = {"Id": home, "Name": name}
            wire = orjson.dumps({"Id": subscriber_id, "Base": base, "IsActive": True, "Email": email, "Gender": ""})
            self.truth.note_stored("churn_inserted", subscriber_id, home, None, Fate.UNASKED, wire)
            self.store.add(subscriber_id, home, email, "", wire)

    def _draw_count(self, amount: float) -> int:
        whole = int(amount)
        return whole + int(self.random.random() < amount - whole)

    def seed(self, count: int, base_id: int | None, base_name: str | None) -> SyntheticSubscribers:
        """Add `count` synthetic subscribers to one base, visible at once."""
        base, step = self.store.bases.find_or_make(base_id, base_name), self.settings.id_step
        seeded = SyntheticSubscribers(self.store.take_id(step), count, step, *base)
        self.truth.note_seeded(seeded)
        self.store.add_synthetic(seeded)
        return seeded

    # refusals

    def refuse(self, status: int, wait_s: float, message: str) -> Response:
        """Return a refusal that says how long to stay away in whole seconds, rounded up, or as the switches have it."""
        shape, wanted = self.settings.error_shape, self.settings.retry_after
        self.stats.limited += 1
        if wanted == "none":
            return build_error(shape, status, message)
        if wanted == "seconds":
            seconds = math.ceil(wait_s)
            error = build_error(shape, status, message, (("Retry-After", str(seconds)),))
            return replace(error, wait_s=float(seconds))
        until = math.ceil(self.wall() + wait_s)  # a date has no fractions: never earlier than the wait asks for
        header = format_datetime(datetime.fromtimestamp(until, UTC), usegmt=True)
        return replace(build_error(shape, status, message, (("Retry-After", header),)), wait_until=float(until))


def _build_limiter(settings: SandboxSettings) -> RateLimiter:
    return build_limiter(settings.limiter, settings.rate, settings.burst, settings.window_ms / 1000)


def is_authorised(request: Request, authorization: bytes) -> bool:
    """Whether the Authorization header is exactly this."""
    return hmac.compare_digest(
        request.headers.get("authorization", "").encode("utf-8", "surrogateescape"), authorization
    )


class Peer(Protocol):
    """The connection that a request came by; a Retry-After asked its client to stay away until `quiet_until`."""

    quiet_until: float

    @property
    def is_gone(self) -> bool:
        """Whether the client has closed."""

    def finish(self, response: Response, ending: Ending = Ending.WHOLE, cut_by: str = "close") -> None:
        """End the request."""


class Service:
    """The way of each request of the API over one sandbox."""

    def __init__(
        self, sandbox: Sandbox, call_later: Callable[[float, Callable[[], None]], asyncio.TimerHandle]
    ) -> None:
        self._sandbox = sandbox
        self._call_later = call_later
        self._served = 0
        self._is_calling = False
        self._line: deque[Callable[[], None]] = deque()
        self._under_way: dict[Peer, tuple[str, float, Request]] = {}  # what each asks for, and since when
        self._timers: set[asyncio.TimerHandle] = set()

    def reset(self) -> None:
        """Cut off what is under way, so that nothing of it shows later, and go back to an empty sandbox."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._line.clear()
        self._served = 0
        for peer, (operation, *_) in tuple(self._under_way.items()):
            self._finish(operation, peer, NO_RESPONSE, Ending.CUT)
        self._sandbox.reset()

    def receive(self, request: Request, peer: Peer) -> None:
        """Take a request of the API; `peer.finish` is called once for it."""
        sandbox = self._sandbox
        now = sandbox.clock()
        operation = OPERATIONS[request.path][0] if request.path in OPERATIONS else None
        label = operation or "other"
        self._under_way[peer] = label, now, request
        sandbox.stats.note_received(label, now, peer.quiet_until)
        fault, refusal = self._admit(request, operation, now)
        if operation is None or refusal is not None:
            turned_away = refusal or self._error(404, "There is nothing at this address")
            self._after(self._latency_s(), lambda: self._finish(label, peer, turned_away, Ending.WHOLE))
            return
        self._stand_in_line(lambda: self._serve(operation, request, peer, fault))

    # who is let in: the checks in the order redirect, path, method, token, limit, fault, form

    def _admit(self, request: Request, operation: str | None, now: float) -> tuple[Fault | None, Response | None]:
        """Return the fault that will befall a request that arrives at the moment `now`, or the response that turns it
        away; `operation` None is a path that the API does not have."""
        sandbox, settings = self._sandbox, self._sandbox.settings
        refusal = self._refuse_stranger(request, operation)
        if refusal is not None or operation is None:
            return None, refusal
        if settings.max_in_flight and self._served + len(self._line) >= settings.max_in_flight:
            return None, sandbox.refuse(settings.limit_status, settings.retry_after_s or 1, "Too many at once")
        wait_s = sandbox.limiter.admit(now)
        if wait_s > 0:
            wait_s = max(wait_s, settings.retry_after_s)
            return None, sandbox.refuse(settings.limit_status, wait_s, "Too many requests")
        fault = sandbox.draw.draw(operation, sandbox.random)
        if fault is not None:
            sandbox.stats.faults[fault.value] += 1
        if fault is Fault.REFUSE:
            message = "Too many requests, come back later"
            return fault, sandbox.refuse(settings.limit_status, settings.refuse_retry_after_s, message)
        return fault, self._refuse_form(request, operation)

    def _refuse_stranger(self, request: Request, operation: str | None) -> Response | None:
        settings = self._sandbox.settings
        if settings.redirect_to:
            target = settings.redirect_to.rstrip("/") + request.path + (f"?{request.query}" if request.query else "")
            return self._error(307, "Moved", ("Location", target))
        if operation is None:
            return self._error(404, "There is nothing at this address")
        method = OPERATIONS[request.path][1]
        if request.method != method:
            return self._error(405, f"Only {method} is possible here", ("Allow", method))
        if not is_authorised(request, self._sandbox.authorization):
            return self._error(401, "The API token is missing or wrong")
        return None

    def _refuse_form(self, request: Request, operation: str) -> Response | None:
        if len(request.body) > self._sandbox.settings.max_body_bytes:
            return self._error(413, "The body is too large")
        if operation == "list":
            return self._error(400, "A list request has no body") if request.body else None
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        return None if content_type == "application/json" else self._error(415, "Content-Type must be application/json")

    # capacity and latency

    def _stand_in_line(self, serve: Callable[[], None]) -> None:
        if self._sandbox.settings.capacity and self._served >= self._sandbox.settings.capacity:
            self._line.append(serve)
            return
        self._served += 1
        serve()

    def _leave(self) -> None:
        self._served -= 1
        if self._is_calling:  # a call below served one at once and came back here: its loop goes on, not a deeper one
            return
        self._is_calling = True
        while self._line and (not self._sandbox.settings.capacity or self._served < self._sandbox.settings.capacity):
            self._served += 1
            self._line.popleft()()
        self._is_calling = False

    def _latency_s(self) -> float:
        settings = self._sandbox.settings
        jitter_ms = self._sandbox.random.random() * settings.jitter_ms if settings.jitter_ms else 0.0
        return (settings.latency_ms + jitter_ms) / 1000

    def _after(self, delay_s: float, act: Callable[[], object]) -> None:
        if not delay_s:
            act()
            return

        def act_in_time() -> None:
            self._timers.discard(timer)
            act()

        timer = self._call_later(delay_s, act_in_time)
        self._timers.add(timer)

    def _serve(self, operation: str, request: Request, peer: Peer, fault: Fault | None) -> None:
        def act() -> None:
            try:
                self._perform(operation, request, peer, fault)
            finally:
                self._leave()

        self._after(self._latency_s(), act)

    # execution

    def _perform(self, operation: str, request: Request, peer: Peer, fault: Fault | None) -> None:
        if fault is Fault.DROP_BEFORE:
            self._finish(operation, peer, NO_RESPONSE, Ending.CUT)
            if self._sandbox.settings.late_ms and operation != "list":
                late_s = self._sandbox.settings.late_ms / 1000
                self._after(late_s, lambda: self._execute(operation, request, Fate.LATE))
            return
        if fault is Fault.ERROR_BEFORE or (operation == "list" and self._is_list_error()):
            self._finish(operation, peer, self._server_error(), Ending.WHOLE)
            return
        fate = Fate.GONE if peer.is_gone else FATES[fault]
        response, is_done = self._execute(operation, request, fate)
        response, ending = self._disguise(operation, response, fault, is_done=is_done)
        self._finish(operation, peer, response, ending)

    def _execute(self, operation: str, request: Request, fate: Fate) -> tuple[Response, bool]:
        """Return (the response, whether the request did what it asked for)."""
        try:
            return self._sandbox.execute(operation, request, fate), True
        except RejectedError as error:
            status = self._sandbox.settings.error_status if error.status is None else error.status
            return self._error(status, error.message), False
        except OSError:  # a full disk: nothing was stored, and the sandbox says so as a service would
            return self._server_error(), False

    def _is_list_error(self) -> bool:
        share = self._sandbox.settings.list_error
        if not share or self._sandbox.random.random() >= share:
            return False
        self._sandbox.stats.faults["list_error"] += 1
        return True

    # responses

    def _disguise(
        self, operation: str, response: Response, fault: Fault | None, *, is_done: bool
    ) -> tuple[Response, Ending]:
        """Return what the fault makes of the response to an executed request; a rejection is not made another one."""
        sandbox = self._sandbox
        match fault:
            case Fault.DROP_AFTER:
                return NO_RESPONSE, Ending.CUT
            case Fault.CUT_ANSWER:
                return response, Ending.PART
            case Fault.HANG_AFTER:
                return NO_RESPONSE, Ending.SILENT
            case Fault.ERROR_AFTER:
                return self._server_error(), Ending.WHOLE
            case Fault.GARBAGE_AFTER:
                return Response(200, pick_garbage(sandbox.random)), Ending.WHOLE
            case Fault.CREATED_422 if is_done and operation != "list":
                return self._error(422, "The request cannot be processed"), Ending.WHOLE
            case Fault.CREATED_429 if is_done and operation != "list":
                return sandbox.refuse(429, _AS_IF_REFUSED_S, "Too many requests, come back later"), Ending.WHOLE
            case Fault.EXECUTED_STATUS if is_done and operation != "list":
                status = int(sandbox.random.choice(sandbox.settings.executed_statuses))
                return self._error(status, "This is not possible"), Ending.WHOLE
            case Fault.WRONG_ANSWER if is_done and operation == "create":
                return _replace_email(response), Ending.WHOLE
            case _:
                return response, Ending.WHOLE

    def _error(self, status: int, message: str, *headers: tuple[str, str]) -> Response:
        return build_error(self._sandbox.settings.error_shape, status, message, headers)

    def _server_error(self) -> Response:
        return self._error(self._sandbox.settings.server_error, "Something went wrong on our side")

    def _finish(self, operation: str, peer: Peer, response: Response, ending: Ending) -> None:
        """Answer, and count what the client can see of it."""
        sandbox = self._sandbox
        label = _LABELS.get(ending) or str(response.status)
        label = "gone" if peer.is_gone else label
        sandbox.stats.note_answered(operation, label)
        _, came_at, request = self._under_way[peer] if ending is Ending.SILENT else self._under_way.pop(peer)
        sandbox.recent.append((came_at, request if len(request.body) <= _KEPT else replace(request, body=b""), label))
        wait_s = response.wait_s if response.wait_until is None else response.wait_until - sandbox.wall()
        if wait_s > 0:
            peer.quiet_until = sandbox.clock() + wait_s
            sandbox.stats.note_retry_after(peer.quiet_until)
        peer.finish(response, ending, sandbox.settings.cut_by)


def _replace_email(response: Response) -> Response:
    """Return the response with another subscriber's email, as of a service that mixed two requests up."""
    root = orjson.loads(response.body)
    root["Subscriber"]["Email"] = "somebody.else@example.net"
    return Response(response.status, orjson.dumps(root))
