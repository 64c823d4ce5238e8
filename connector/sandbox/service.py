"""The service of service-api.md: what it holds (`Sandbox`), and the way of a request (`Service`).

A request is let in or refused, waits in line and for its latency, is executed, and is answered as its fault demands.
Nothing here awaits: each step decides and calls the next, at once or later by a timer of the loop.
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

from connector.sandbox.connection import NO_RESPONSE, Ending, Request, Response
from connector.sandbox.emails import Outbox, parse_email
from connector.sandbox.faults import FATES, GARBAGE, Block, Fault, FaultDraw, build_limiter
from connector.sandbox.listing import Filter, Query, SubscriberList, choose_id, draw_row, parse_query
from connector.sandbox.people import SyntheticSubscribers
from connector.sandbox.store import SubscriberStore, fold_base
from connector.sandbox.subscriber import (
    RejectedError,
    alter,
    fill_defaults,
    parse_create,
    quote_ids,
    write_activity,
    write_id_as_number,
    write_uuid,
)
from connector.sandbox.switches import SandboxSettings, change_settings
from connector.sandbox.truth import Fate, Stats, TruthLog

OPERATIONS = {
    "/api/subscribers/create-subscriber/": ("create", "POST"),
    "/api/subscribers/subscribers-list/": ("list", "GET"),
    "/api/emails/send-instant-email/": ("send", "POST"),
}
"""Path to operation and method (service-api.md 4)."""

_PACE = ("limiter", "rate", "burst", "window_ms")
_RECENT = 100  # requests that the page shows
_LARGEST_SHOWN = 4096  # bytes; a larger body, such as one with attachments, is not kept for the page
_CREATED_429_S = 1.0  # the Retry-After of a 429 that stands for a create which took place


class Peer(Protocol):
    """The connection of a request. A Retry-After asked its client to stay away until `quiet_until`."""

    quiet_until: float

    @property
    def is_gone(self) -> bool:
        """Whether the client has closed."""

    def finish(self, response: Response, ending: Ending = Ending.WHOLE, cut_by: str = "close") -> None:
        """End the request."""


def is_authorised(request: Request, authorization: bytes) -> bool:
    """Return whether the Authorization header is exactly this."""
    return hmac.compare_digest(
        request.headers.get("authorization", "").encode("utf-8", "surrogateescape"), authorization
    )


# state and operations


class Sandbox:
    """The state of one sandbox and the three operations; `clock` and `wall` return seconds, the first without going
    back."""

    def __init__(
        self,
        settings: SandboxSettings,
        token: str,
        data: Path | None,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        """Open the folder `data`, made if need be, or an empty sandbox in memory.

        Raise ValueError if another sandbox uses the folder, or if a line of its journal is broken.
        """
        if data is not None:
            data.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.token = token
        self.clock, self.wall = clock, wall
        self.data = data
        self.outbox = Outbox(None if data is None else data / "outbox")
        self.truth = TruthLog(None if data is None else data / "journal.jsonl", wall)
        self._first_settings = settings
        self._begin()
        for number, line in enumerate(self.truth.lines, start=1):
            try:
                event = orjson.loads(line)
                self._restore(event)
                is_event = event["sequence"] == number
            except (ValueError, KeyError, TypeError):
                is_event = False
            if not is_event:
                raise ValueError(f"line {number} of the sandbox's journal is not event {number}: the file is damaged")

    def _begin(self) -> None:
        """Set everything but outbox and truth log as at the start."""
        self.store = SubscriberStore()
        self.listing = SubscriberList(self.store)
        self._cached: dict[str, tuple[float, bytes]] = {}
        """The answers that the switch `cached` repeats, by query: the time (seconds of the clock) and the body."""
        self.stats = Stats()
        self.recent: deque[tuple[float, Request, str]] = deque(maxlen=_RECENT)
        """The last requests of the API: arrival (seconds of the clock), request and answer."""
        self.block = Block(self._first_settings)
        self._set(self._first_settings)
        self._build_limiter()
        self.random = Random(self.settings.seed)  # noqa: S311 - chances that must recur, not secrets

    def _restore(self, event: dict[str, Any]) -> None:
        """Apply an event of the journal."""
        match event["kind"]:
            case "created" | "churn_inserted":
                wire = event["subscriber"]
                self.store.bases.add(wire["Base"]["Id"], wire["Base"]["Name"])
                email, client = wire.get("Email") or "", wire.get("ClientUserId") or ""
                self.store.add(event["id"], event["base_id"], email, client, orjson.dumps(wire))
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
        """Empty the sandbox and set the switches as at the start."""
        self.truth.clear()
        self.outbox.clear()
        self._begin()

    def change(self, values: Mapping[str, object]) -> None:
        """Set switches while the sandbox runs; raise ValueError and change nothing if a value is wrong."""
        before, settings = self.settings, change_settings(self.settings, values)
        self._set(settings)
        if any(getattr(settings, name) != getattr(before, name) for name in _PACE):
            self._build_limiter()
        if "seed" in values:
            self.random = Random(settings.seed)  # noqa: S311 - chances that must recur, not secrets

    def _set(self, settings: SandboxSettings) -> None:
        self.settings = settings
        self.faults = FaultDraw(settings)
        self.block = self.block.follow(settings)
        self.authorization = settings.authorization.replace("{token}", self.token).encode()

    def _build_limiter(self) -> None:
        settings = self.settings
        self.limiter = build_limiter(settings.limiter, settings.rate, settings.burst, settings.window_ms / 1000)

    def execute(self, operation: str, request: Request, fate: Fate) -> Response:
        """Execute a request whose answer has this fate.

        Raise RejectedError if the request breaks a rule, OSError if the disk is full and nothing was stored.
        """
        if operation == "create":
            return self.create_subscriber(request.body, fate)
        if operation == "list":
            return self._list_subscribers(request)
        entry = self.outbox.add(parse_email(request.body, self.settings), self.wall())
        ids = {"request_id": entry["request_id"], "message_id": entry["message_id"]}
        self.truth.append("sent", **ids, answered=fate, email=entry)
        sent = {"SendMessageRequestId": entry["request_id"], "MessageId": entry["message_id"]}
        return Response(200, orjson.dumps({"success": True, "SendEmail": sent}))

    def _list_subscribers(self, request: Request) -> Response:
        """Return a page of the list (service-api.md 4.3), or an earlier answer (switch `cached`)."""
        settings, now = self.settings, self.clock()
        answered_at, earlier = self._cached.get(request.query, (-math.inf, b""))
        is_anew = request.headers.get("cache-control") == "no-cache" and not settings.cache_ignores
        if now < answered_at + settings.cached and not is_anew:
            return Response(200, earlier)
        query = parse_query(request.query, settings)
        page = self.listing.read_page(query, settings, now, self.random)
        if settings.churn_insert or settings.churn_delete:
            self._churn(query.base_id)
        if settings.cached:
            self._cached[request.query] = now, page
        return Response(200, page)

    def create_subscriber(self, body: bytes, fate: Fate) -> Response:
        """Create a subscriber (service-api.md 4.2); raise as `execute` does."""
        settings, store = self.settings, self.store
        wanted_id, wanted_name, values = parse_create(body, settings)
        base_id, base_name = self._find_base(wanted_id, wanted_name)
        email = values.get("Email")
        if settings.alter_fields or settings.alter_identity:
            alter(values, settings)
        merged = self._find_merged(values, base_id)
        same = [] if merged or settings.duplicates == "accept" else store.find_same(values, base_id, settings.identity)
        if same and settings.duplicates != "upsert":
            who = email or f"with ClientUserId {values.get('ClientUserId')!r}"
            status = int(settings.duplicates.removeprefix("reject_"))
            raise RejectedError(f"Subscriber {who} already exists in base {base_id}", status)
        key: int | None = next(iter(merged or same), None)
        if key is not None:
            old = store.read(key)
            address = {**(old.get("Address") or {}), **values.get("Address", {})}
            values = old | values | ({"Address": address} if address else {})
        is_new = key is None
        if is_new and settings.quota and len(store) >= settings.quota:
            raise RejectedError(f"Your plan allows {settings.quota} subscribers", settings.quota_status)
        kind = "created" if is_new else "updated"
        if key is None:
            key = store.take_id(settings.id_step)
        filled = fill_defaults(values, settings.absent_fields)
        wire = orjson.dumps({"Id": key, "Base": {"Id": base_id, "Name": base_name}} | filled)
        self._record(kind, key, base_id, email, fate, wire)
        if is_new:
            store.created.add(key)
            lag_s = settings.list_lag_ms / 1000
            show_at = self.clock() + lag_s if lag_s else None
            store.add(key, base_id, values.get("Email", ""), values.get("ClientUserId", ""), wire, show_at)
            if settings.replica_lags_ms:
                store.record_fresh(key, self.clock() + lag_s)
        else:
            store.replace(key, wire)
        return Response(settings.created_status, b'{"success":true,"Subscriber":' + self._answer(wire) + b"}")

    def answer_unstored(self, body: bytes) -> Response:
        """Return the answer to a create, and store nothing. Raise RejectedError if the request breaks a rule."""
        settings = self.settings
        wanted_id, wanted_name, values = parse_create(body, settings)
        base_id, base_name = self._find_base(wanted_id, wanted_name)
        head = {"Id": self.store.take_id(settings.id_step), "Base": {"Id": base_id, "Name": base_name}}
        wire = orjson.dumps(head | fill_defaults(values, settings.absent_fields))
        return Response(settings.created_status, b'{"success":true,"Subscriber":' + self._answer(wire) + b"}")

    def _find_merged(self, values: Mapping[str, Any], base_id: int) -> list[int]:
        """Return the keys of subscribers that a create overwrites by the switch `merge_by`, the base's own first."""
        found = list[int]()
        for name in self.settings.merge_by:
            if values.get(name):
                text = values[name]
                found += self.store.find_phone(text) if name == "Phone" else self.store.find(name, text)
        if self.settings.merge_within == "base":
            found = [subscriber_id for subscriber_id in found if self.store.base_of(subscriber_id) == base_id]
        return sorted(found, key=lambda subscriber_id: (self.store.base_of(subscriber_id) != base_id, subscriber_id))

    def _answer(self, wire: bytes) -> bytes:
        """Return the subscriber as the answer to a create shows it."""
        settings = self.settings
        if settings.provisional_ids:
            wire = orjson.dumps({**orjson.loads(wire), "Id": self.store.take_id(settings.id_step)})
        if settings.activity != "boolean":
            wire = write_activity(wire, settings.activity)
        if settings.client_user_ids == "number":
            wire = write_id_as_number(wire)
        if settings.uuids:
            return write_uuid(wire)
        return quote_ids(wire) if "ids" in settings.numbers_as_text else wire

    def _record(self, kind: str, id_: int, base_id: int, email: str | None, fate: Fate, wire: bytes) -> None:
        subscriber = orjson.Fragment(wire)
        self.truth.append(kind, id=id_, base_id=base_id, email=email, answered=fate, subscriber=subscriber)

    def _find_base(self, base_id: int | None, name: str | None) -> tuple[int, str]:
        """Return (Id, Name) of the base that a create goes to: the named base, or the base that `base_alias` has."""
        way = self.settings.base_names
        for left, right in self.settings.base_alias.items():
            if left == str(base_id) if name is None else fold_base(left, way) == fold_base(name, way):
                base_id, name = (int(right), None) if right.isascii() and right.isdigit() else (None, right)
                break
        return self.store.bases.find_or_make(base_id, name, way)

    def _churn(self, listed_base: int | None) -> None:
        """Delete, then insert, as the switches say; `listed_base` None means that all bases were listed."""
        settings, store, random = self.settings, self.store, self.random
        filters = () if listed_base is None else (Filter("BaseId", listed_base),)

        def draw_count(amount: float) -> int:
            return int(amount) + int(random.random() < amount - int(amount))

        def find_rows() -> list[int]:
            return self.listing.find(Query(0, 0, filters), settings)

        for _ in range(draw_count(settings.churn_delete)):
            if rows := find_rows():
                subscriber_id = draw_row(rows, settings, random)
                self.truth.append("churn_deleted", id=subscriber_id)
                store.remove(subscriber_id)
        for _ in range(draw_count(settings.churn_insert)):
            rows = find_rows()
            wanted_base = listed_base
            if wanted_base is None:
                wanted_base = store.base_of(draw_row(rows, settings, random)) if rows else 1
            base_id, name = store.bases.find_or_make(wanted_base, None)
            local = "somebody"
            if settings.order == "email" and rows:  # next to its neighbour in the list
                local = (store.read(draw_row(rows, settings, random)).get("Email") or "").partition("@")[0]
            email = f"{local}.churn-{self.truth.sequence + 1}@example.net"
            subscriber_id = choose_id(store, rows, settings)
            base = {"Id": base_id, "Name": name}
            wire = orjson.dumps({"Id": subscriber_id, "Base": base, "IsActive": True, "Email": email, "Gender": ""})
            self._record("churn_inserted", subscriber_id, base_id, None, Fate.UNASKED, wire)
            store.add(subscriber_id, base_id, email, "", wire)

    def seed(self, count: int, base_id: int | None, base_name: str | None) -> SyntheticSubscribers:
        """Add `count` synthetic subscribers to one base, visible at once."""
        base, step = self.store.bases.find_or_make(base_id, base_name), self.settings.id_step
        block = SyntheticSubscribers(self.store.take_id(step), count, step, *base)
        self.truth.append("seeded", **asdict(block))
        self.store.add_block(block)
        return block


# the way of a request


class Service:
    """The way of each request of the API over one sandbox. `call_later` sets a timer in seconds."""

    def __init__(
        self, sandbox: Sandbox, call_later: Callable[[float, Callable[[], None]], asyncio.TimerHandle]
    ) -> None:
        self._sandbox = sandbox
        self._call_later = call_later
        self._served = 0
        self._is_calling = False
        self._line: deque[Callable[[], None]] = deque()
        self._under_way: dict[Peer, tuple[str, float, Request]] = {}  # operation, arrival, request
        self._timers: set[asyncio.TimerHandle] = set()

    def reset(self) -> None:
        """Cut off all requests under way, so that nothing of them shows later, and empty the sandbox."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._line.clear()
        self._served = 0
        for peer, (operation, *_) in tuple(self._under_way.items()):
            self._finish(operation, peer, NO_RESPONSE, Ending.CUT)
        self._sandbox.reset()

    def receive(self, request: Request, peer: Peer) -> None:
        """Receive a request of the API; `peer.finish` is called once for the request."""
        sandbox = self._sandbox
        now = sandbox.clock()
        operation, method = OPERATIONS.get(request.path, ("other", ""))
        self._under_way[peer] = operation, now, request
        sandbox.stats.count_received(operation, now, peer.quiet_until)
        fault, refusal = self._admit(request, operation, method, now)
        if refusal is not None:
            self._after(self._latency_s(), lambda: self._finish(operation, peer, refusal, Ending.WHOLE))
        elif sandbox.settings.capacity and self._served >= sandbox.settings.capacity:
            self._line.append(lambda: self._serve(operation, request, peer, fault))
        else:
            self._serve(operation, request, peer, fault)

    def _admit(self, request: Request, operation: str, method: str, now: float) -> tuple[Fault | None, Response | None]:
        """Return the fault of a request and None, or the response that refuses the request.

        The checks come in the order redirect, path, method, token, limit, fault, block of creates, form.
        """
        sandbox, settings = self._sandbox, self._sandbox.settings
        if settings.redirect_to:
            target = settings.redirect_to.rstrip("/") + request.path + (f"?{request.query}" if request.query else "")
            return None, self._error(307, "Moved", ("Location", target))
        if operation == "other":
            return None, self._error(404, "There is nothing at this address")
        if request.method != method:
            return None, self._error(405, f"Only {method} is possible here", ("Allow", method))
        if not is_authorised(request, sandbox.authorization):
            return None, self._error(401, "The API token is missing or wrong")
        if settings.max_in_flight and self._served + len(self._line) >= settings.max_in_flight:
            return None, self._refuse(settings.limit_status, settings.retry_after_s or 1, "Too many at once")
        wait_s = sandbox.limiter.admit(now)
        if wait_s > 0:
            return None, self._refuse(settings.limit_status, max(wait_s, settings.retry_after_s), "Too many requests")
        fault = sandbox.faults.draw(operation, sandbox.random)
        if fault is not None:
            sandbox.stats.faults[fault.value] += 1
        if fault is Fault.REFUSE:
            message = "Too many requests, come back later"
            return None, self._refuse(settings.limit_status, settings.refuse_retry_after_s, message)
        if operation == "create" and sandbox.block.refuses(now):
            sandbox.stats.faults["blocked"] += 1
            return None, self._error(settings.blocked_status, settings.blocked_words)
        if len(request.body) > settings.max_body_bytes:
            return None, self._error(413, "The body is too large")
        if operation == "list":
            return fault, self._error(400, "A list request has no body") if request.body else None
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return None, self._error(415, "Content-Type must be application/json")
        return fault, None

    def _latency_s(self) -> float:
        settings = self._sandbox.settings
        jitter_ms = self._sandbox.random.random() * settings.jitter_ms if settings.jitter_ms else 0.0
        return (settings.latency_ms + jitter_ms) / 1000

    def _after(self, delay_s: float, act: Callable[[], object]) -> None:
        """Call `act` after a delay, or at once without a delay."""
        if not delay_s:
            act()
            return

        def act_in_time() -> None:
            self._timers.discard(timer)
            act()

        timer = self._call_later(delay_s, act_in_time)
        self._timers.add(timer)

    def _serve(self, operation: str, request: Request, peer: Peer, fault: Fault | None) -> None:
        """Execute a request after its latency, then serve the next in line."""
        self._served += 1

        def act() -> None:
            try:
                self._perform(operation, request, peer, fault)
            finally:
                self._served -= 1
                if not self._is_calling:  # a request that the loop below serves at once must not start the loop again
                    self._is_calling = True
                    capacity = self._sandbox.settings.capacity
                    while self._line and (not capacity or self._served < capacity):
                        self._line.popleft()()
                    self._is_calling = False

        self._after(self._latency_s(), act)

    def _perform(self, operation: str, request: Request, peer: Peer, fault: Fault | None) -> None:
        """Execute a request and answer as its fault demands. A fault does not turn a rejection into another answer."""
        sandbox, settings = self._sandbox, self._sandbox.settings
        if fault is Fault.DROP_BEFORE:
            self._finish(operation, peer, NO_RESPONSE, Ending.CUT)
            if settings.late_ms and operation != "list":
                self._after(settings.late_ms / 1000, lambda: self._execute(operation, request, Fate.LATE))
            return
        is_error = fault is Fault.ERROR_BEFORE
        if not is_error and operation == "list" and settings.list_error:
            is_error = sandbox.random.random() < settings.list_error
            sandbox.stats.faults.update(["list_error"] if is_error else [])
        if is_error:
            self._finish(operation, peer, self._server_error(), Ending.WHOLE)
            return
        if fault is Fault.STRAY_REFUSAL:
            status = int(sandbox.random.choice(settings.stray_statuses))
            self._finish(operation, peer, self._error(status, "This is not possible"), Ending.WHOLE)
            return
        if fault is Fault.DISCARD and operation == "create":
            self._finish(operation, peer, self._discard(request), Ending.WHOLE)
            return
        if fault is Fault.REPEAT and operation == "create":
            self._execute(operation, request, Fate.REPEATED)
        response, is_done = self._execute(operation, request, Fate.GONE if peer.is_gone else FATES[fault])
        ending = Ending.WHOLE
        is_change = is_done and operation != "list"
        match fault:
            case Fault.DROP_AFTER:
                ending = Ending.CUT
            case Fault.CUT_ANSWER:
                ending = Ending.PART
            case Fault.HANG_AFTER:
                ending = Ending.SILENT
            case Fault.ERROR_AFTER:
                response = self._server_error()
            case Fault.GARBAGE_AFTER:
                response = Response(200, sandbox.random.choice(GARBAGE))
            case Fault.CREATED_422 if is_change:
                response = self._error(422, "The request cannot be processed")
            case Fault.CREATED_429 if is_change:
                response = self._refuse(429, _CREATED_429_S, "Too many requests, come back later")
            case Fault.EXECUTED_STATUS if is_change:
                response = self._error(int(sandbox.random.choice(settings.executed_statuses)), "This is not possible")
            case Fault.WRONG_ANSWER if is_change and operation == "create":  # as if two requests were mixed up
                root = orjson.loads(response.body)
                root["Subscriber"]["Email"] = "somebody.else@example.net"
                response = Response(response.status, orjson.dumps(root))
        self._finish(operation, peer, response, ending)

    def _execute(self, operation: str, request: Request, fate: Fate) -> tuple[Response, bool]:
        """Return the response, and whether the request was executed."""
        try:
            return self._sandbox.execute(operation, request, fate), True
        except RejectedError as error:
            status = self._sandbox.settings.error_status if error.status is None else error.status
            return self._error(status, error.message), False
        except OSError:  # a full disk: nothing was stored, and the sandbox answers as a service would
            return self._server_error(), False

    def _discard(self, request: Request) -> Response:
        """Return the answer to a create that is not executed."""
        try:
            return self._sandbox.answer_unstored(request.body)
        except RejectedError as error:
            status = self._sandbox.settings.error_status if error.status is None else error.status
            return self._error(status, error.message)

    def _error(self, status: int, message: str, *headers: tuple[str, str]) -> Response:
        """Return an error; service-api.md does not show its shape, so the shape is a switch (`error_shape`)."""
        match self._sandbox.settings.error_shape:
            case "plain":
                return Response(status, orjson.dumps({"success": False, "message": message}), headers=headers)
            case "nested":
                error = {"code": status, "details": [{"message": message}]}
                return Response(status, orjson.dumps({"success": False, "error": error}), headers=headers)
            case "html":
                head = f"<!doctype html><html><head><title>{status}</title></head>"
                page = f"{head}<body><h1>{html.escape(message)}</h1></body></html>"
                return Response(status, page.encode(), "text/html; charset=utf-8", headers)
        return Response(status, b"", headers=headers)

    def _server_error(self) -> Response:
        return self._error(self._sandbox.settings.server_error, "Something went wrong on our side")

    def _refuse(self, status: int, wait_s: float, message: str) -> Response:
        """Return a refusal whose Retry-After has the form of the switch `retry_after`, rounded up to a whole second."""
        self._sandbox.stats.limited += 1
        match self._sandbox.settings.retry_after:
            case "seconds":
                seconds = math.ceil(wait_s)
                error = self._error(status, message, ("Retry-After", str(seconds)))
                return replace(error, wait_s=float(seconds))
            case "date":
                until = math.ceil(self._sandbox.wall() + wait_s)
                date = format_datetime(datetime.fromtimestamp(until, UTC), usegmt=True)
                return replace(self._error(status, message, ("Retry-After", date)), wait_until=float(until))
            case "unix":
                until = math.ceil(self._sandbox.wall() + wait_s)
                return replace(self._error(status, message, ("Retry-After", str(until))), wait_until=float(until))
        return self._error(status, message)

    def _finish(self, operation: str, peer: Peer, response: Response, ending: Ending) -> None:
        """Answer, and count what the client can see of the answer."""
        sandbox = self._sandbox
        label = str(response.status) if ending is Ending.WHOLE else ending.value
        label = "gone" if peer.is_gone else label
        sandbox.stats.count_answered(operation, label)
        _, came_at, request = self._under_way[peer] if ending is Ending.SILENT else self._under_way.pop(peer)
        shown = request if len(request.body) <= _LARGEST_SHOWN else replace(request, body=b"")
        sandbox.recent.append((came_at, shown, label))
        wait_s = response.wait_s if response.wait_until is None else response.wait_until - sandbox.wall()
        if wait_s > 0:
            peer.quiet_until = sandbox.clock() + wait_s
            sandbox.stats.record_retry_after(peer.quiet_until)
        peer.finish(response, ending, sandbox.settings.cut_by)
