"""Create a subscriber (api.md 4.2): check, find or make the base, decide on duplicates, record, keep, answer."""

from typing import Any

import orjson

from connector.sandbox.answers import Answer, quote_ids
from connector.sandbox.bases import fold_name
from connector.sandbox.faults import Fate
from connector.sandbox.rejection import RejectedError, check_known, check_object
from connector.sandbox.state import State
from connector.sandbox.subscriber import (
    alter_fields,
    check_required,
    drop_tag,
    fill_defaults,
    normalise_subscriber,
    parse_base,
)

_PREFIX = b'{"success":true,"Subscriber":'


def create_subscriber(state: State, body: bytes, fate: Fate) -> Answer:
    """Executes a create whose answer will have this fate; raises RejectedError when it breaks a rule."""
    given, base_id, base_name, values = _parse_create(state, body)
    email = values.get("Email")
    if state.settings.alter_fields:
        alter_fields(values, state.settings.alter_fields)
    if state.settings.alter_identity and email:
        values["Email"] = drop_tag(email)
    if state.settings.duplicates != "accept":
        same = state.store.find_same(values, base_id, state.settings.identity)
        if same:
            return _meet_duplicate(state, same[0], values, email, fate)
    wire_values = fill_defaults(values, state.settings.absent_fields)
    subscriber_id = state.store.take_id(state.settings.id_step)
    wire = orjson.dumps({"Id": subscriber_id, "Base": {"Id": base_id, "Name": base_name}} | wire_values)
    state.truth.note_stored("created", subscriber_id, base_id, given.get("Email"), fate, wire)
    lag_s = state.settings.list_lag_ms / 1000
    state.store.add(
        subscriber_id,
        base_id,
        values.get("Email", ""),
        values.get("ClientUserId", ""),
        wire,
        state.clock() + lag_s if lag_s else None,
    )
    if state.settings.replica_lags_ms:
        state.store.note_fresh(subscriber_id, state.clock() + lag_s)
    return _answer_created(state, wire)


def _answer_created(state: State, wire: bytes) -> Answer:
    shown = quote_ids(wire) if "ids" in state.settings.numbers_as_text else wire
    return Answer(state.settings.created_status, _PREFIX + shown + b"}")


def _parse_create(state: State, body: bytes) -> tuple[dict[str, Any], int, str, dict[str, Any]]:
    """(the Subscriber as it came, Base.Id, Base.Name, its fields normalised)."""
    is_strict = state.settings.unknown_fields == "reject"
    root = parse_json_object(body)
    if is_strict:
        check_known(root, ("Subscriber",), "")
    given = check_object(root.get("Subscriber"), "Subscriber")
    wanted_base = parse_base(given)
    values = normalise_subscriber(given, is_strict=is_strict)
    if state.settings.required:
        check_required(values, state.settings.required)
    return given, *_find_base(state, *wanted_base), values


def _find_base(state: State, base_id: int | None, name: str | None) -> tuple[int, str]:
    """(Id, Name) of the base that a create goes to: the one named, or the other one that `base_alias` has for it."""
    settings = state.settings
    is_folded = settings.base_names == "folded"
    for left, right in settings.base_alias:
        is_meant = left == str(base_id) if name is None else left == name
        if is_meant or (is_folded and name is not None and fold_name(left) == fold_name(name)):
            base_id, name = (int(right), None) if right.isascii() and right.isdigit() else (None, right)
            break
    return state.store.bases.find_or_make(base_id, name, is_folded=is_folded)


def parse_json_object(body: bytes) -> dict[str, Any]:
    """A request's body; raises RejectedError unless it is a JSON object in UTF-8."""
    try:
        root = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RejectedError(f"The body is not JSON: {error.msg}", 400) from None
    return check_object(root, "The body")


def _meet_duplicate(state: State, existing: int, values: dict[str, Any], email: str | None, fate: Fate) -> Answer:
    """What the switch `duplicates` says of a create whose base has the subscriber already."""
    rule = state.settings.duplicates
    base_id = state.store.base_of(existing)
    if rule != "upsert":
        who = email or f"with ClientUserId {values.get('ClientUserId')!r}"
        raise RejectedError(f"Subscriber {who} already exists in base {base_id}", int(rule.removeprefix("reject_")))
    old = state.store.read_subscriber(existing)
    address = {**(old.get("Address") or {}), **values.get("Address", {})}
    wire_values = old | values | ({"Address": address} if address else {})
    wire = orjson.dumps(
        {"Id": existing, "Base": old["Base"]} | fill_defaults(_only_fields(wire_values), state.settings.absent_fields)
    )
    state.truth.note_stored("updated", existing, base_id, email, fate, wire)
    state.store.replace(existing, wire)
    return _answer_created(state, wire)


def _only_fields(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in ("Id", "Base")}
