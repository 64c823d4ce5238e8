"""The data of one sandbox, and the three operations of service-api.md on the data."""

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import orjson

from connector.sandbox.connection import Request, Response
from connector.sandbox.emails import Outbox, parse_email
from connector.sandbox.faults import CreateBlocker, FaultDraw, build_limiter
from connector.sandbox.listing import Filter, Query, SubscriberList, choose_new_id, draw_churned_id, parse_query
from connector.sandbox.people import SyntheticSubscribers
from connector.sandbox.store import SubscriberStore, fold_base_name
from connector.sandbox.subscriber import (
    RejectedError,
    alter_values,
    fill_defaults,
    format_answer,
    parse_create,
)
from connector.sandbox.switches import SandboxSettings, change_settings
from connector.sandbox.truth import AnswerFate, EventLog, Stats

_PACE_SWITCHES = ("limiter", "rate", "burst", "window_ms")
_MAX_RECENT_REQUESTS = 100  # number of requests that the page shows


class Sandbox:
    """The state of one sandbox, and the three operations. `clock` returns the seconds of a clock that never goes back,
    and `wall_clock` returns Unix seconds."""

    def __init__(
        self,
        settings: SandboxSettings,
        token: str,
        data_folder: Path | None,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
    ) -> None:
        """Open `data_folder`, and create the folder if it is missing. Without `data_folder`, the sandbox is empty
        and only in memory.

        Raise ValueError if another sandbox uses the folder, or if a line of its journal is broken.
        """
        if data_folder is not None:
            data_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.token = token
        self.clock, self.wall_clock = clock, wall_clock
        self.data_folder = data_folder
        self.outbox = Outbox(None if data_folder is None else data_folder / "outbox")
        self.event_log = EventLog(None if data_folder is None else data_folder / "journal.jsonl", wall_clock)
        self._first_settings = settings
        self._set_start_state()
        for line_number, line in enumerate(self.event_log.lines, start=1):
            try:
                event = orjson.loads(line)
                self._apply_event(event)
                is_valid_event = event["sequence"] == line_number
            except (ValueError, KeyError, TypeError):
                is_valid_event = False
            if not is_valid_event:
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
        self.recent_requests: deque[tuple[float, Request, str]] = deque(maxlen=_MAX_RECENT_REQUESTS)
        """The last requests of the API: the arrival (seconds of the clock), the request, and the answer."""
        self.create_blocker = CreateBlocker(self._first_settings)
        self._set_settings(self._first_settings)
        self._build_limiter()
        self.random = Random(self.settings.seed)  # noqa: S311 - reproducible random numbers, not secrets

    def _apply_event(self, event: dict[str, Any]) -> None:
        match event["kind"]:
            case "created" | "churn_inserted":
                subscriber_json = event["subscriber"]
                self.store.bases.add(subscriber_json["Base"]["Id"], subscriber_json["Base"]["Name"])
                email, client_user_id = subscriber_json.get("Email") or "", subscriber_json.get("ClientUserId") or ""
                self.store.add(event["id"], event["base_id"], email, client_user_id, orjson.dumps(subscriber_json))
                self.store.created_ids.update([event["id"]] if event["kind"] == "created" else [])
            case "updated":
                self.store.replace(event["id"], orjson.dumps(event["subscriber"]))
            case "churn_deleted":
                self.store.remove(event["id"])
            case "seeded":
                argument_names = ("first_id", "count", "step", "base_id", "base_name")
                subscriber_block = SyntheticSubscribers(**{name: event[name] for name in argument_names})
                self.store.bases.add(subscriber_block.base_id, subscriber_block.base_name)
                self.store.add_block(subscriber_block)
            case "sent":
                email_ids = {"request_id": event["request_id"], "message_id": event["message_id"]}
                self.outbox.restore_email(email_ids | event["email"])
            case other:
                raise ValueError(f"unknown kind {other!r}")

    def reset(self) -> None:
        """Empty the sandbox, and set all switches to their values at the start."""
        self.event_log.clear()
        self.outbox.clear()
        self._set_start_state()

    def change_switches(self, switch_values: Mapping[str, object]) -> None:
        """Set switches while the sandbox runs. Raise ValueError and change nothing if a value is wrong."""
        old_settings, new_settings = self.settings, change_settings(self.settings, switch_values)
        self._set_settings(new_settings)
        if any(getattr(new_settings, name) != getattr(old_settings, name) for name in _PACE_SWITCHES):
            self._build_limiter()
        if "seed" in switch_values:
            self.random = Random(new_settings.seed)  # noqa: S311 - reproducible random numbers, not secrets

    def _set_settings(self, settings: SandboxSettings) -> None:
        self.settings = settings
        self.faults = FaultDraw(settings)
        self.create_blocker = self.create_blocker.apply_settings(settings)
        self.authorization = settings.authorization.replace("{token}", self.token).encode()

    def _build_limiter(self) -> None:
        settings = self.settings
        self.limiter = build_limiter(settings.limiter, settings.rate, settings.burst, settings.window_ms / 1000)

    def execute(self, operation: str, request: Request, answer_fate: AnswerFate) -> Response:
        """Execute a request. The truth log records `answer_fate`: whether and how the answer is sent.

        Raise RejectedError if the request breaks a rule, and OSError if the disk is full and nothing was stored.
        """
        if operation == "create":
            return self.create_subscriber(request.body, answer_fate)
        if operation == "list":
            return self._list_subscribers(request)
        entry = self.outbox.add(parse_email(request.body, self.settings), self.wall_clock())
        email_ids = {"request_id": entry["request_id"], "message_id": entry["message_id"]}
        self.event_log.append("sent", **email_ids, answered=answer_fate, email=entry)
        send_result = {"SendMessageRequestId": entry["request_id"], "MessageId": entry["message_id"]}
        return Response(200, orjson.dumps({"success": True, "SendEmail": send_result}))

    def _list_subscribers(self, request: Request) -> Response:
        """Return a page of the list (service-api.md 4.3), or an earlier answer (switch `cached`)."""
        settings, now = self.settings, self.clock()
        answered_at, cached_page = self._cached_answers.get(request.query, (-math.inf, b""))
        skips_cache = request.headers.get("cache-control") == "no-cache" and not settings.cache_ignores
        if now < answered_at + settings.cached and not skips_cache:
            return Response(200, cached_page)
        query = parse_query(request.query, settings)
        page = self.listing.read_page(query, settings, now, self.random)
        if settings.churn_insert or settings.churn_delete:
            self._churn_list(query.base_id)
        if settings.cached:
            self._cached_answers[request.query] = now, page
        return Response(200, page)

    def create_subscriber(self, body: bytes, answer_fate: AnswerFate) -> Response:
        """Create a subscriber (service-api.md 4.2). Raise the errors of `execute`."""
        settings, store = self.settings, self.store
        requested_base_id, requested_base_name, subscriber_values = parse_create(body, settings)
        base_id, base_name = self._find_base(requested_base_id, requested_base_name)
        email = subscriber_values.get("Email")
        alter_values(subscriber_values, settings)
        merged_ids = self._find_ids_to_overwrite(subscriber_values, base_id)
        ids_of_identity = (
            []
            if merged_ids or settings.duplicates == "accept"
            else store.find_by_identity(subscriber_values, base_id, settings.identity)
        )
        if ids_of_identity and settings.duplicates != "upsert":
            subscriber_text = email or f"with ClientUserId {subscriber_values.get('ClientUserId')!r}"
            status = int(settings.duplicates.removeprefix("reject_"))
            raise RejectedError(f"Subscriber {subscriber_text} already exists in base {base_id}", status)
        subscriber_id: int | None = next(iter(merged_ids or ids_of_identity), None)
        if subscriber_id is not None:
            old_subscriber = store.read(subscriber_id)
            address = {**(old_subscriber.get("Address") or {}), **subscriber_values.get("Address", {})}
            subscriber_values = old_subscriber | subscriber_values | ({"Address": address} if address else {})
        is_new = subscriber_id is None
        if is_new and settings.quota and len(store) >= settings.quota:
            raise RejectedError(f"Your plan allows {settings.quota} subscribers", settings.quota_status)
        if subscriber_id is None:
            subscriber_id = store.create_id(settings.id_step)
        subscriber = fill_defaults(subscriber_values, settings.absent_fields)
        subscriber_json = orjson.dumps({"Id": subscriber_id, "Base": {"Id": base_id, "Name": base_name}} | subscriber)
        self.event_log.append(
            "created" if is_new else "updated",
            id=subscriber_id,
            base_id=base_id,
            email=email,
            answered=answer_fate,
            subscriber=orjson.Fragment(subscriber_json),
        )
        if is_new:
            store.created_ids.add(subscriber_id)
            lag_s = settings.list_lag_ms / 1000
            visible_from = self.clock() + lag_s if lag_s else None
            store.add(
                subscriber_id,
                base_id,
                subscriber_values.get("Email", ""),
                subscriber_values.get("ClientUserId", ""),
                subscriber_json,
                visible_from,
            )
            if settings.replica_lags_ms:
                store.record_shown_at(subscriber_id, self.clock() + lag_s)
        else:
            store.replace(subscriber_id, subscriber_json)
        return self._build_create_response(subscriber_json)

    def answer_without_storing(self, body: bytes) -> Response:
        """Return the answer to a create, and store nothing. Raise RejectedError if the request breaks a rule."""
        settings = self.settings
        requested_base_id, requested_base_name, subscriber_values = parse_create(body, settings)
        base_id, base_name = self._find_base(requested_base_id, requested_base_name)
        id_and_base = {"Id": self.store.create_id(settings.id_step), "Base": {"Id": base_id, "Name": base_name}}
        subscriber_json = orjson.dumps(id_and_base | fill_defaults(subscriber_values, settings.absent_fields))
        return self._build_create_response(subscriber_json)

    def _find_ids_to_overwrite(self, subscriber_values: Mapping[str, Any], base_id: int) -> list[int]:
        """Return the ids of the subscribers that a create overwrites by the switch `merge_by`. Subscribers of the base
        come first."""
        ids = list[int]()
        for name in self.settings.merge_by:
            if subscriber_values.get(name):
                text = subscriber_values[name]
                ids += self.store.find_ids_by_phone(text) if name == "Phone" else self.store.find_ids_by_key(name, text)
        if self.settings.merge_within == "base":
            ids = [subscriber_id for subscriber_id in ids if self.store.find_base_id(subscriber_id) == base_id]
        return sorted(ids, key=lambda subscriber_id: (self.store.find_base_id(subscriber_id) != base_id, subscriber_id))

    def _build_create_response(self, subscriber_json: bytes) -> Response:
        settings = self.settings
        if settings.provisional_ids:
            subscriber_json = orjson.dumps(
                {**orjson.loads(subscriber_json), "Id": self.store.create_id(settings.id_step)}
            )
        answered_json = format_answer(subscriber_json, settings)
        return Response(settings.created_status, b'{"success":true,"Subscriber":' + answered_json + b"}")

    def _find_base(self, base_id: int | None, base_name: str | None) -> tuple[int, str]:
        """Return the Id and the Name of the base in which a create is stored: the named base, or its target in the
        switch `base_alias`."""
        base_name_matching = self.settings.base_names
        for alias, target in self.settings.base_alias.items():
            if (
                alias == str(base_id)
                if base_name is None
                else fold_base_name(alias, base_name_matching) == fold_base_name(base_name, base_name_matching)
            ):
                base_id, base_name = (int(target), None) if target.isascii() and target.isdigit() else (None, target)
                break
        return self.store.bases.find_or_create_base(base_id, base_name, base_name_matching)

    def _churn_list(self, listed_base_id: int | None) -> None:
        """Delete and then insert subscribers, as the churn switches say. If `listed_base_id` is None, all bases were
        listed."""
        settings, store, random = self.settings, self.store, self.random
        filters = () if listed_base_id is None else (Filter("BaseId", listed_base_id),)

        def draw_change_count(expected_count: float) -> int:
            return int(expected_count) + int(random.random() < expected_count - int(expected_count))

        def find_subscriber_ids() -> list[int]:
            return self.listing.find(Query(0, 0, filters), settings)

        for _ in range(draw_change_count(settings.churn_delete)):
            if listed_ids := find_subscriber_ids():
                subscriber_id = draw_churned_id(listed_ids, settings, random)
                self.event_log.append("churn_deleted", id=subscriber_id)
                store.remove(subscriber_id)
        for _ in range(draw_change_count(settings.churn_insert)):
            listed_ids = find_subscriber_ids()
            new_base_id = listed_base_id
            if new_base_id is None:
                new_base_id = store.find_base_id(draw_churned_id(listed_ids, settings, random)) if listed_ids else 1
            base_id, base_name = store.bases.find_or_create_base(new_base_id, None)
            local_part = "somebody"
            if settings.order == "email" and listed_ids:  # then the new subscriber is next to a listed subscriber
                listed_subscriber = store.read(draw_churned_id(listed_ids, settings, random))
                local_part = (listed_subscriber.get("Email") or "").partition("@")[0]
            email = f"{local_part}.churn-{self.event_log.last_sequence_number + 1}@example.net"
            subscriber_id = choose_new_id(store, listed_ids, settings)
            base = {"Id": base_id, "Name": base_name}
            subscriber_json = orjson.dumps(
                {"Id": subscriber_id, "Base": base, "IsActive": True, "Email": email, "Gender": ""}
            )
            self.event_log.append(
                "churn_inserted",
                id=subscriber_id,
                base_id=base_id,
                email=None,
                answered=AnswerFate.NO_REQUEST,
                subscriber=orjson.Fragment(subscriber_json),
            )
            store.add(subscriber_id, base_id, email, "", subscriber_json)

    def seed(self, count: int, base_id: int | None, base_name: str | None) -> SyntheticSubscribers:
        """Add `count` synthetic subscribers to one base. The list shows them immediately."""
        base, id_step = self.store.bases.find_or_create_base(base_id, base_name), self.settings.id_step
        subscriber_block = SyntheticSubscribers(self.store.create_id(id_step), count, id_step, *base)
        self.event_log.append("seeded", **asdict(subscriber_block))
        self.store.add_block(subscriber_block)
        return subscriber_block
