"""A subscriber as the service writes it, and back, derived from the field table.

It checks types, not rules: those are validation's.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson

from connector.fields import BY_NAME, FIELDS, NAMES, Field, Kind

_SENT: Final = tuple(field for field in FIELDS if field.is_sent)
_TEXT_KINDS: Final = frozenset({Kind.TEXT, Kind.NULLABLE_TEXT, Kind.EMAIL, Kind.GENDER, Kind.COUNTRY, Kind.DATE})


def _sent_type(field: Field) -> type:
    """The one Python type that a field's values have on their way out."""
    if field.kind in _TEXT_KINDS:
        return str
    return {Kind.NUMBER: int, Kind.ZIP: int, Kind.FLAG: bool, Kind.TAGS: list}[field.kind]


Plan = tuple[tuple[str, str, str, type], ...]
"""(column, the object it lives in or "", its key there, its type) of fields that may be sent, in the table's order."""

_PLAN: Final[Plan] = tuple(
    (field.name, field.path[0] if len(field.path) > 1 else "", field.path[-1], _sent_type(field)) for field in _SENT
)
_READ: Final = tuple((field.name, field.path[0] if len(field.path) > 1 else "", field.path[-1]) for field in FIELDS)
_PATHS: Final = {name: (parent, key) for name, parent, key in _READ}
_PARENTS: Final = tuple(dict.fromkeys(field.path[0] for field in FIELDS if len(field.path) > 1))


def plan_encoding(names: Iterable[str]) -> Plan:
    """What `encode_subscriber` has to look at where no other fields than these are ever given."""
    given = frozenset(names)
    return tuple(each for each in _PLAN if each[0] in given)


def encode_subscriber(values: Mapping[str, object], plan: Plan = _PLAN) -> bytes:
    """The whole body of a create (api.md 4.2), in the table's field order, so that equal values make equal bytes.

    `values` by field name; missing and None are left out, and so are `id` and names that are no field's. Numbers of
    numpy count as plain ones. Raises TypeError, naming the field and never the value, for a value of another type (NaN
    included) or one that JSON cannot hold.
    """
    subscriber: dict[str, object] = {}
    for name, parent, key, expected in plan:
        value = values.get(name)
        if value is None:
            continue
        if type(value) is not expected:
            value = _plain(name, value, expected)
        if parent:
            inner = subscriber.get(parent)
            if inner is None:
                subscriber[parent] = {key: value}
            else:
                inner[key] = value  # type: ignore[index] # only the line above puts anything under a parent's name
        else:
            subscriber[key] = value
    try:
        return orjson.dumps({"Subscriber": subscriber})
    except orjson.JSONEncodeError as error:
        raise TypeError(_unwritable(values)) from error


def decode_subscriber(wire: Mapping[str, Any]) -> dict[str, object]:
    """The values of one wire object by field name: every name, None where absent or null, otherwise as it came."""
    parents: dict[str, Mapping[str, Any]] = {"": wire}
    for parent in _PARENTS:
        inner = wire.get(parent)
        parents[parent] = inner if isinstance(inner, dict) else {}
    return {name: parents[parent].get(key) for name, parent, key in _READ}


def read_field(wire: Mapping[str, Any], name: str) -> object:
    """One value of a wire object, as `decode_subscriber` reads it."""
    parent, key = _PATHS[name]
    inner = wire.get(parent) if parent else wire
    return inner.get(key) if isinstance(inner, dict) else None


def echoes(sent: Mapping[str, object], wire: Mapping[str, Any]) -> bool:
    """Whether a wire object holds each value that was sent (flat, by field name), by the rules of `altered_fields`."""
    for name, value in sent.items():
        other = read_field(wire, name)
        if (type(value) is not type(other) or value != other) and not is_same(BY_NAME[name].kind, value, other):
            return False
    return True


def _plain(name: str, value: object, expected: type) -> object:
    """The value as the one type its field is sent in, if nothing is lost by that."""
    for method in ("tolist", "item", "as_py"):  # numpy arrays and numbers, Arrow scalars: known by what they can do
        if hasattr(value, method):
            value = getattr(value, method)()
            break
    if expected is list and isinstance(value, tuple | list):
        return list(value)
    if type(value) is expected:
        return value
    raise TypeError(f"The field {name} is sent as {expected.__name__}, not as {type(value).__name__}.")


def _unwritable(values: Mapping[str, object]) -> str:
    for field in _SENT:
        try:
            orjson.dumps(values.get(field.name), option=orjson.OPT_SERIALIZE_NUMPY)
        except orjson.JSONEncodeError:
            return f"The field {field.name} holds what JSON cannot: a lone surrogate, or a number beyond 64 bits."
    return "The subscriber cannot be written as JSON."


def altered_fields(sent: Mapping[str, object], answered: Mapping[str, object]) -> tuple[str, ...]:
    """Names of the fields that were sent and came back different, in the table's order (design, 4.13).

    Both flat by field name. By the normalisation rules of api.md 2.1 these are equal: a Zip as number and as text; an
    empty State, Line3 or Gender and none at all. A base named by its id as well is known by the id alone.
    """
    altered = []
    for name, value in sent.items():
        if value is None:
            continue
        other = answered.get(name)
        if type(value) is type(other) and value == other:  # nearly always
            continue
        if name == "base_name" and sent.get("base_id") is not None:
            continue
        if not is_same(BY_NAME[name].kind, value, other):
            altered.append(name)
    return tuple(sorted(altered, key=NAMES.index)) if altered else ()


def is_same(kind: Kind, sent: object, answered: object) -> bool:
    """Whether a value that was sent and one that came back are one, by the rules of `altered_fields`."""
    if kind in (Kind.NULLABLE_TEXT, Kind.GENDER):
        return (sent or "") == ("" if answered is None else answered)
    if kind is Kind.ZIP:
        return str(sent) == str(answered)
    if kind is Kind.TAGS:
        return _plain("tags", sent, list) == answered
    if kind is Kind.FLAG:
        return isinstance(answered, bool) and bool(sent) == answered
    return sent == answered
