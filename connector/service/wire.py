"""Requests and answers of the service as values, and the JSON of a subscriber both ways (service-api.md 2.1 and 4).

Pure: no host, no token, no connection. The field table says where each field is in the JSON; types are checked here,
rules are validation's.
"""

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, TypeGuard, assert_never

import numpy as np
import orjson
from typing_extensions import TypeVar

from connector.choices import IDENTITIES
from connector.errors import ConfigurationError
from connector.fields import BY_NAME, FIELDS, NAMES, Kind, normalise_identity

# Requests

Operation = Literal["create", "list", "send"]

OPERATIONS: tuple[Operation, ...] = ("create", "list", "send")

TOO_MANY_REQUESTS = 429
"""RFC 6585: refused for its rate. Whether and when the service answers so is not shown."""

UNAUTHORISED = frozenset({401, 403})  # the token is refused

LARGEST_PAGE = 1000
"""service-api.md 8: a limit above it is reduced to it by the service."""

_CREATE_PATH = "/api/subscribers/create-subscriber/"
_LIST_PATH = "/api/subscribers/subscribers-list/"
_SEND_PATH = "/api/emails/send-instant-email/"


@dataclass(slots=True, unsafe_hash=True)  # one for each row or more: frozen ones take three times as long to make
class Request:
    """One request, its `path` relative to the base URL; query values are plain text, not yet URL-encoded."""

    operation: Operation
    method: Literal["GET", "POST"]
    path: str
    query: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    body: bytes | None = field(default=None, repr=False)


@dataclass(slots=True, unsafe_hash=True)  # as Request is
class RawAnswer:
    """An answer that was read to its end."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ListQuery:
    """What to list: the ten parameters of service-api.md 4.3. None is not asked; the gender "" asks for Not specified.

    numpy's whole numbers, flags and texts become Python's: what is listed is compared with them by value and type.
    Raises ConfigurationError for any other type, an offset below 0, a limit outside 1..1000 (what the service does with
    those is not shown), another gender, or text that is blank or cannot be written as UTF-8.
    """

    offset: int = 0
    limit: int = LARGEST_PAGE
    id: int | None = None
    base_id: int | None = None
    client_user_id: str | None = field(default=None, repr=False)
    email: str | None = field(default=None, repr=False)
    is_active: bool | None = None
    first_name: str | None = field(default=None, repr=False)
    last_name: str | None = field(default=None, repr=False)
    gender: str | None = None

    def __post_init__(self) -> None:
        for name, read in _READERS.items():
            given = getattr(self, name)
            if given is not None or name in ("offset", "limit"):
                object.__setattr__(self, name, read(name, given))
        if self.offset < 0:
            raise ConfigurationError(f"The list's offset must be 0 or more, not {self.offset}.")
        if not 1 <= self.limit <= LARGEST_PAGE:
            raise ConfigurationError(f"The list's limit must be from 1 to {LARGEST_PAGE}, not {self.limit}.")
        if self.gender not in (None, "male", "female", ""):
            raise ConfigurationError("The list's gender must be male, female, or empty for not specified.")


def build_create(body: bytes) -> Request:
    """Return the request that creates one subscriber (service-api.md 4.2); `body` as `encode_subscriber` made it."""
    return Request("create", "POST", _CREATE_PATH, (), body)


def build_list(query: ListQuery) -> Request:
    """Return the request for one page of the list (service-api.md 4.3); offset and limit are always said."""
    asked: tuple[tuple[str, object], ...] = (
        ("offset", query.offset),
        ("limit", query.limit),
        ("Id", query.id),
        ("BaseId", query.base_id),
        ("ClientUserId", query.client_user_id),
        ("Email", query.email),
        ("IsActive", None if query.is_active is None else int(query.is_active)),
        ("FirstName", query.first_name),
        ("LastName", query.last_name),
        ("Gender", query.gender),
    )
    return Request("list", "GET", _LIST_PATH, tuple((name, str(value)) for name, value in asked if value is not None))


def build_send(body: bytes) -> Request:
    """Return the request that sends one email (service-api.md 4.1); `body` as `connector.mail.message.encode_email`
    made it."""
    return Request("send", "POST", _SEND_PATH, (), body)


def _read_number(name: str, given: object) -> int:
    if not isinstance(given, (bool, np.bool_)):
        with suppress(TypeError):
            return operator.index(given)  # type: ignore[arg-type] # what has no index is refused
    raise _build_refusal(name, "a whole number", given)


def _read_flag(name: str, given: object) -> bool:
    if isinstance(given, (bool, np.bool_)):
        return bool(given)
    raise _build_refusal(name, "True or False", given)


def _read_text(name: str, given: object) -> str:
    if not isinstance(given, str):
        raise _build_refusal(name, "a text", given)
    text = str(given)
    if not text.strip() and name != "gender":  # the gender "" asks for Not specified
        raise ConfigurationError(f"The list's filter {name} is blank: leave it out to list all subscribers.")
    try:
        text.encode()
    except UnicodeEncodeError:
        # `from None`: the codec's error holds the text itself, which may be personal.
        raise ConfigurationError(f"The list's filter {name} holds a broken character (a lone surrogate).") from None
    return text


def _build_refusal(name: str, wanted: str, given: object) -> ConfigurationError:
    """Return an error that names the type alone: the value may be personal."""
    return ConfigurationError(f"The list's {name} must be {wanted}, not of the type {type(given).__name__}.")


_READERS: dict[str, Callable[[str, object], object]] = {
    **dict.fromkeys(("offset", "limit", "id", "base_id"), _read_number),
    **dict.fromkeys(("client_user_id", "email", "first_name", "last_name", "gender"), _read_text),
    "is_active": _read_flag,
}


# Answers


@dataclass(slots=True, unsafe_hash=True)  # one for each row or more: frozen ones take three times as long to make
class Created:
    """A subscriber was created: its id, and the answered subscriber as it came."""

    subscriber_id: int
    subscriber: dict[str, Any] = field(repr=False)
    status: int

    def read(self, name: str) -> object:
        """Return one of its values, by field name."""
        return self.subscriber_id if name == "id" else read_field(self.subscriber, name)


WireRows = Sequence[dict[str, Any]]
"""Subscribers as the service wrote them."""

Rows = TypeVar("Rows", default=WireRows)
"""Subscribers of a page, in whichever form they are read."""


@dataclass(frozen=True, slots=True)
class ListPage(Generic[Rows]):
    """A page of the list: wire objects as they came, unless another form was asked for, and the echoes (None where
    absent or no integer)."""

    subscribers: Rows = field(repr=False)
    total_count: int | None
    offset: int | None
    limit: int | None


@dataclass(frozen=True, slots=True)
class Accepted:
    """The service accepted an email; `message_id` is "" where the answer has none."""

    request_id: int
    message_id: str


@dataclass(frozen=True, slots=True)
class Refused:
    """429, a definite 4xx, or `success: false` below 500: taken to have had no effect (architecture 2). `may_pass`: the
    refusal is about the service and not about the request (architecture 4.8)."""

    status: int
    message: str = field(repr=False)
    retry_after_s: float | None = None
    may_pass: bool = field(default=False, compare=False)  # read by the caller, not said by the service


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """It may or may not have had an effect; `status` is None when no answer could be read at all. `is_without_id`: the
    answer says success, and its Id is not a whole number."""

    status: int | None
    message: str = field(repr=False)
    retry_after_s: float | None = None
    is_without_id: bool = False


@dataclass(frozen=True, slots=True)
class NotSent:
    """It failed before the first byte was written: known to have had no effect. The words are this program's own."""

    message: str


Mask = Callable[[str], str]
"""Takes out of the service's words what must not be kept, before they are cut to length."""


_LIMITS_BY_RETRY_AFTER = frozenset({403, 503})


def says_limit(status: int | None, retry_after_s: float | None) -> bool:
    """Return whether an answer says that requests come too fast: 429, or 503 or 403 with a Retry-After (architecture
    2)."""
    return status == TOO_MANY_REQUESTS or (status in _LIMITS_BY_RETRY_AFTER and retry_after_s is not None)


def is_limited(answer: object) -> TypeGuard[Refused | Ambiguous]:
    """Return whether an answer says, or is known to mean, that requests come too fast or too early."""
    if isinstance(answer, Refused) and answer.may_pass:
        return True
    return isinstance(answer, Refused | Ambiguous) and says_limit(answer.status, answer.retry_after_s)


# A subscriber as JSON

_SENT: Final = tuple(field for field in FIELDS if field.is_sent)


def _find_sent_type(kind: Kind) -> type:
    """Return the type of a value of this kind in the JSON of a create."""
    match kind:
        case Kind.NUMBER | Kind.ZIP:
            return int
        case Kind.FLAG:
            return bool
        case Kind.TAGS:
            return list
        case Kind.TEXT | Kind.NULLABLE_TEXT | Kind.EMAIL | Kind.GENDER | Kind.COUNTRY | Kind.DATE:
            return str
        case _:
            assert_never(kind)


Plan = tuple[tuple[str, str, str, type], ...]
"""(column, the object it lives in or "", its key there, its type) of fields that may be sent, in the table's order."""

_PATHS: Final = {field.name: (field.path[0] if len(field.path) > 1 else "", field.path[-1]) for field in FIELDS}
_PLAN: Final[Plan] = tuple((field.name, *_PATHS[field.name], _find_sent_type(field.kind)) for field in _SENT)


def plan_encoding(names: Iterable[str]) -> Plan:
    """Return what `encode_subscriber` has to look at where no other fields than these are ever given."""
    given = frozenset(names)
    return tuple(each for each in _PLAN if each[0] in given)


def encode_subscriber(values: Mapping[str, object], plan: Plan = _PLAN) -> bytes:
    """Return the whole body of a create (service-api.md 4.2), in the table's field order, so that equal values make
    equal bytes.

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
        for name, *_ in plan:
            try:
                orjson.dumps(values.get(name), option=orjson.OPT_SERIALIZE_NUMPY)
            except orjson.JSONEncodeError:
                words = f"The field {name} holds what JSON cannot: a lone surrogate, or a number beyond 64 bits."
                raise TypeError(words) from error
        raise


def decode_subscriber(wire: Mapping[str, Any]) -> dict[str, object]:
    """Return the values of one wire object by field name: None where absent or null, otherwise as received."""
    return {name: read_field(wire, name) for name in NAMES}


def read_field(wire: Mapping[str, Any], name: str) -> object:
    """Return one value of a wire object, as `decode_subscriber` reads it."""
    parent, key = _PATHS[name]
    inner = wire.get(parent) if parent else wire
    return inner.get(key) if isinstance(inner, dict) else None


def read_base(wire: Mapping[str, Any]) -> tuple[int | None, str | None]:
    """Return Id and Name of the base of a wire object; None for what is missing or of another type."""
    base = wire.get("Base")
    service_id, name = (base.get("Id"), base.get("Name")) if isinstance(base, dict) else (None, None)
    return service_id if type(service_id) is int else None, name if isinstance(name, str) else None


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


def altered_fields(sent: Mapping[str, object], wire: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of fields that were sent and that the answered subscriber `wire` shows otherwise, in the table's
    order (architecture 4.13).

    By the normalisation rules of service-api.md 2.1 these are equal: a Zip as number and as text; an empty State, Line3
    or Gender and none at all. A base named by its id as well is known by the id alone.
    """
    altered = []
    for name, value in sent.items():
        other = read_field(wire, name)
        if value is None or (type(value) is type(other) and value == other):  # nearly always
            continue
        is_named_by_id = name == "base_name" and sent.get("base_id") is not None
        if not is_named_by_id and not is_same(BY_NAME[name].kind, value, other):
            altered.append(name)
    return tuple(sorted(altered, key=NAMES.index)) if altered else ()


def is_same(kind: Kind, sent: object, answered: object) -> bool:
    """Return whether a value that was sent and one that came back are one, by the rules of `altered_fields`."""
    match kind:
        case Kind.NULLABLE_TEXT | Kind.GENDER:
            return (sent or "") == ("" if answered is None else answered)
        case Kind.ZIP:
            return str(sent) == str(answered)
        case Kind.TAGS:
            return _plain("tags", sent, list) == answered
        case Kind.FLAG:
            return isinstance(answered, bool) and bool(sent) == answered
        case Kind.NUMBER | Kind.TEXT | Kind.EMAIL | Kind.COUNTRY | Kind.DATE:
            return sent == answered
        case _:
            assert_never(kind)


def differing_fields(names: Sequence[str], sent: Sequence[object], listed: Sequence[object]) -> list[int]:
    """Return the indexes in `names` (fields) at which `sent` differs from `listed`, both in that order.

    `sent` are values as they would be sent, None for an empty one; `listed` as the service wrote them. A zip that is
    sent as a text cannot be sent: a service that has none does not differ from it. Of an email and a
    client_user_id the normal forms are compared, as of an identity.
    """
    return [
        index
        for index, (value, other) in enumerate(zip(sent, listed, strict=True))
        if not (value == other and type(value) is type(other)) and _do_differ(names[index], value, other)
    ]


def _do_differ(name: str, sent: object, listed: object) -> bool:
    kind = BY_NAME[name].kind
    if _is_nothing(listed):
        return not _is_nothing(sent) and not (kind is Kind.ZIP and isinstance(sent, str))
    if _is_nothing(sent):
        return True
    if name in IDENTITIES and isinstance(sent, str) and isinstance(listed, str):
        return normalise_identity(name, sent) != normalise_identity(name, listed)
    return not is_same(kind, sent, listed)


def _is_nothing(value: object) -> bool:
    return value is None or value is False or value in ("", [])
