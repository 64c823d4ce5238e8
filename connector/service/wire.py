"""Requests and answers of the service as values. Functions encode and decode subscribers (service-api.md 2.1 and 4).

The functions have no side effects, and need no host, token or connection. The field table (connector/fields.py) has the
path of each field in the JSON. This module checks types, and `connector.subscribers.validation` checks the rules.
"""

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, TypeGuard, assert_never

import numpy as np
import orjson
from typing_extensions import TypeVar

from connector.choices import IDENTITY_FIELDS
from connector.errors import ConfigurationError
from connector.fields import FIELD_BY_NAME, FIELD_NAMES, FIELDS, FieldKind, normalise_identity

# The requests of the service

Operation = Literal["create", "list", "send"]

OPERATIONS: tuple[Operation, ...] = ("create", "list", "send")

TOO_MANY_REQUESTS = 429
"""The HTTP status for "too many requests" (RFC 6585). service-api.md does not show whether the service uses 429."""

UNAUTHENTICATED = 401
UNAUTHORISED_STATUSES = frozenset({UNAUTHENTICATED, 403})  # statuses with which the service refuses the token

MAX_LIMIT = 1000
"""The largest limit of a page (service-api.md 8). The service reduces a larger limit to this limit."""

_CREATE_PATH = "/api/subscribers/create-subscriber/"
_LIST_PATH = "/api/subscribers/subscribers-list/"
SEND_PATH = "/api/emails/send-instant-email/"


# The class is not frozen, because creating a frozen object takes three times as long, and each row needs an object.
@dataclass(slots=True, unsafe_hash=True)
class Request:
    """One request. `path` is relative to the base URL. The values of `query` are plain texts, not URL-encoded."""

    operation: Operation
    method: Literal["GET", "POST"]
    path: str
    query: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    body: bytes | None = field(default=None, repr=False)


@dataclass(slots=True, unsafe_hash=True)  # not frozen, because creating a frozen object takes longer
class RawAnswer:
    """An answer of the service that was read completely, but not parsed."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ListQuery:
    """A query of the list: the ten parameters of service-api.md 4.3. None means no filter. The gender "" means Not
    specified.

    numpy's integers, booleans and strings are converted to Python's, because listed values are compared by value and
    type. Raises ConfigurationError for any other type, an offset below 0, a limit outside 1..1000, or another gender.
    Also raises ConfigurationError for a text that is blank or cannot be encoded as UTF-8.
    """

    offset: int = 0
    limit: int = MAX_LIMIT
    id: int | None = None
    base_id: int | None = None
    client_user_id: str | None = field(default=None, repr=False)
    email: str | None = field(default=None, repr=False)
    is_active: bool | None = None
    first_name: str | None = field(default=None, repr=False)
    last_name: str | None = field(default=None, repr=False)
    gender: str | None = None

    def __post_init__(self) -> None:
        for name, read_value in _READER_BY_NAME.items():
            value = getattr(self, name)
            if value is not None or name in ("offset", "limit"):
                object.__setattr__(self, name, read_value(name, value))
        if self.offset < 0:
            raise ConfigurationError(f"The list's offset must be 0 or more, not {self.offset}.")
        if not 1 <= self.limit <= MAX_LIMIT:
            raise ConfigurationError(f"The list's limit must be from 1 to {MAX_LIMIT}, not {self.limit}.")
        if self.gender not in (None, "male", "female", ""):
            raise ConfigurationError("The list's gender must be male, female, or empty for not specified.")


def build_create_request(body: bytes) -> Request:
    """Return the request that creates one subscriber (service-api.md 4.2). `body` is a result of
    `encode_subscriber`."""
    return Request("create", "POST", _CREATE_PATH, (), body)


def build_list_request(query: ListQuery) -> Request:
    """Return the request for one page of the list (service-api.md 4.3). The request always has an offset and a
    limit."""
    parameters: tuple[tuple[str, object], ...] = (
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
    query_values = tuple((name, str(value)) for name, value in parameters if value is not None)
    return Request("list", "GET", _LIST_PATH, query_values)


def _read_number(name: str, value: object) -> int:
    if not isinstance(value, (bool, np.bool_)):
        with suppress(TypeError):
            return operator.index(value)  # type: ignore[arg-type] # raises TypeError if the value is not a whole number
    raise _build_type_error(name, "a whole number", value)


def _read_flag(name: str, value: object) -> bool:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise _build_type_error(name, "True or False", value)


def _read_text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise _build_type_error(name, "a text", value)
    text = str(value)
    if not text.strip() and name != "gender":  # the gender "" means Not specified
        raise ConfigurationError(f"The list's filter {name} is blank: leave it out to list all subscribers.")
    try:
        text.encode()
    except UnicodeEncodeError:
        # `from None`, because the codec's error contains the text, which may be personal data.
        raise ConfigurationError(f"The list's filter {name} holds a broken character (a lone surrogate).") from None
    return text


def _build_type_error(name: str, expected_text: str, value: object) -> ConfigurationError:
    """Return an error that names only the type of the value, because the value may be personal data."""
    return ConfigurationError(f"The list's {name} must be {expected_text}, not of the type {type(value).__name__}.")


_READER_BY_NAME: dict[str, Callable[[str, object], object]] = {
    **dict.fromkeys(("offset", "limit", "id", "base_id"), _read_number),
    **dict.fromkeys(("client_user_id", "email", "first_name", "last_name", "gender"), _read_text),
    "is_active": _read_flag,
}


# The answers of the service


@dataclass(slots=True, unsafe_hash=True)  # not frozen, because creating a frozen object takes longer
class CreatedAnswer:
    """The answer to a successful create: the id of the new subscriber, and the subscriber in the answer (JSON)."""

    subscriber_id: int
    subscriber: dict[str, Any] = field(repr=False)
    status: int

    def read(self, name: str) -> object:
        """Return the value of a field of the subscriber in the answer."""
        return self.subscriber_id if name == "id" else read_field(self.subscriber, name)


WireRows = Sequence[dict[str, Any]]
"""Subscribers as objects of the service's JSON."""

Rows = TypeVar("Rows", default=WireRows)
"""The type of the subscribers of a page: `WireRows`, or another form that a reader of the list chooses."""


@dataclass(frozen=True, slots=True)
class ListPage(Generic[Rows]):
    """A page of the list. It has the subscribers (by default as objects of the service's JSON), and TotalCount, Offset
    and Limit of the answer. These numbers are None if they are absent or not whole numbers."""

    subscribers: Rows = field(repr=False)
    total_count: int | None
    offset: int | None
    limit: int | None


@dataclass(frozen=True, slots=True)
class EmailAccepted:
    """The answer for an email that the service has accepted. `message_id` is "" if the answer has no message id."""

    request_id: int
    message_id: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A refusal: 429, another 4xx that certainly refuses the request, or `success: false` with a 2xx or 4xx. A refused
    create counts as a create without effect, until a look-up shows the subscriber (architecture 4.8). If
    `may_be_temporary`, the cause may be the state of the service instead of the request."""

    status: int
    message: str = field(repr=False)
    retry_after_s: float | None = None
    may_be_temporary: bool = field(default=False, compare=False)  # the caller sets this flag


@dataclass(frozen=True, slots=True)
class AmbiguousResult:
    """The result of a request that may or may not have had an effect. `status` is None if no answer could be read. If
    `has_unusable_id`, the answer reports success, but its Id is not a whole number."""

    status: int | None
    message: str = field(repr=False)
    retry_after_s: float | None = None
    has_unusable_id: bool = False


@dataclass(frozen=True, slots=True)
class NotSent:
    """The result of a request that failed before its first byte was written. So the request had no effect. `message`
    was written by this program, and not by the service."""

    message: str


MaskMessage = Callable[[str], str]
"""A function that removes secrets from a message of the service, before the message is cut to length."""


def is_rate_limit(status: int | None, retry_after_s: float | None) -> bool:
    """Return whether an answer means that requests come too fast (architecture 2). Such an answer has the status 429,
    or 503 or 403 with a Retry-After."""
    return status == TOO_MANY_REQUESTS or (status in (403, 503) and retry_after_s is not None)


def is_rate_limited(answer: object) -> TypeGuard[Refused | AmbiguousResult]:
    """Return whether an answer means that requests come too fast or too early, by its status or its
    `may_be_temporary`."""
    if isinstance(answer, Refused) and answer.may_be_temporary:
        return True
    return isinstance(answer, Refused | AmbiguousResult) and is_rate_limit(answer.status, answer.retry_after_s)


# A subscriber as JSON


def find_sent_type(kind: FieldKind) -> type:
    """Return the Python type of a value of this kind in a create. Values of the list have the same type, except for
    zips."""
    match kind:
        case FieldKind.NUMBER | FieldKind.ZIP:
            return int
        case FieldKind.FLAG:
            return bool
        case FieldKind.TAGS:
            return list
        case (
            FieldKind.TEXT
            | FieldKind.NULLABLE_TEXT
            | FieldKind.EMAIL
            | FieldKind.GENDER
            | FieldKind.COUNTRY
            | FieldKind.DATE
        ):
            return str
        case _:
            assert_never(kind)


EncodingPlan = tuple[tuple[str, str, str, type], ...]
"""The fields to send, in the order of the field table. Each item has the field's name, its parent object or "", its key
in this object, and its type."""

_PATH_BY_NAME: Final = {field.name: (field.path[0] if len(field.path) > 1 else "", field.path[-1]) for field in FIELDS}
_FULL_ENCODING_PLAN: Final[EncodingPlan] = tuple(
    (field.name, *_PATH_BY_NAME[field.name], find_sent_type(field.kind)) for field in FIELDS if field.is_sent
)


def plan_encoding(field_names: Iterable[str]) -> EncodingPlan:
    """Return the plan of `encode_subscriber` for subscribers that have only the fields `field_names`."""
    requested_names = frozenset(field_names)
    return tuple(item for item in _FULL_ENCODING_PLAN if item[0] in requested_names)


def encode_subscriber(values: Mapping[str, object], encoding_plan: EncodingPlan = _FULL_ENCODING_PLAN) -> bytes:
    """Return the whole body of a create (service-api.md 4.2). Equal `values` (by field name) give equal bytes.

    Missing values, None, `id` and unknown names are left out. numpy's numbers are converted. Raises TypeError for a
    value of another type (also NaN), and for a value that JSON cannot contain. The message names the field, but not the
    value.
    """
    subscriber: dict[str, object] = {}
    for name, parent, key, expected_type in encoding_plan:
        value = values.get(name)
        if value is None:
            continue
        if type(value) is not expected_type:
            value = _convert_to_type(name, value, expected_type)
        if parent:
            parent_object = subscriber.get(parent)
            if parent_object is None:
                subscriber[parent] = {key: value}
            else:
                parent_object[key] = value  # type: ignore[index] # the value under a parent's name is always a dict
        else:
            subscriber[key] = value
    try:
        return orjson.dumps({"Subscriber": subscriber})
    except orjson.JSONEncodeError as error:
        for name, *_ in encoding_plan:
            try:
                orjson.dumps(values.get(name), option=orjson.OPT_SERIALIZE_NUMPY)
            except orjson.JSONEncodeError:
                message = f"The field {name} does not fit into JSON: a lone surrogate, or a number beyond 64 bits."
                raise TypeError(message) from error
        raise


def decode_subscriber(subscriber_object: Mapping[str, Any]) -> dict[str, object]:
    """Return the values of one subscriber by field name. `subscriber_object` is the object of the service's JSON. A
    value that is absent or null is None.
    """
    return {name: read_field(subscriber_object, name) for name in FIELD_NAMES}


def read_field(subscriber_object: Mapping[str, Any], name: str) -> object:
    """Return the value of one field of a subscriber, or None if the value is absent or null."""
    parent, key = _PATH_BY_NAME[name]
    parent_object = subscriber_object.get(parent) if parent else subscriber_object
    return parent_object.get(key) if isinstance(parent_object, dict) else None


def read_base(subscriber_object: Mapping[str, Any]) -> tuple[int | None, str | None]:
    """Return the Id and the Name of a subscriber's base. A value that is missing or has another type is None."""
    base = subscriber_object.get("Base")
    base_id, base_name = (base.get("Id"), base.get("Name")) if isinstance(base, dict) else (None, None)
    return base_id if type(base_id) is int else None, base_name if isinstance(base_name, str) else None


def _convert_to_type(name: str, value: object, expected_type: type) -> object:
    """Convert a value to the type in which the field is sent. Raises TypeError for a value of another type."""
    for method in ("tolist", "item", "as_py"):  # methods that convert numpy arrays, numpy numbers and Arrow scalars
        if hasattr(value, method):
            value = getattr(value, method)()
            break
    if expected_type is list and isinstance(value, tuple | list):
        return list(value)
    if type(value) is expected_type:
        return value
    raise TypeError(f"The field {name} is sent as {expected_type.__name__}, not as {type(value).__name__}.")


def find_altered_fields(sent_values: Mapping[str, object], subscriber_object: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the sent fields whose values differ in `subscriber_object`, the subscriber in the answer
    (architecture 4.13). The names are in the order of the field table.

    By the normalisation rules of service-api.md 2.1, a Zip as a number equals the same Zip as a text. An empty State,
    Line3 or Gender equals a missing value. If a base is sent with its id and its name, only the id is compared.
    """
    altered_names = []
    for name, value in sent_values.items():
        answered_value = read_field(subscriber_object, name)
        is_equal = type(value) is type(answered_value) and value == answered_value
        if value is None or is_equal:  # this is true for nearly all values
            continue
        is_uncompared_base_name = name == "base_name" and sent_values.get("base_id") is not None
        if not is_uncompared_base_name and not are_equal_values(FIELD_BY_NAME[name].kind, value, answered_value):
            altered_names.append(name)
    return tuple(sorted(altered_names, key=FIELD_NAMES.index)) if altered_names else ()


def are_equal_values(kind: FieldKind, sent_value: object, answered_value: object) -> bool:
    """Return whether a sent value and the value in the answer are equal, by the rules of `find_altered_fields`."""
    match kind:
        case FieldKind.NULLABLE_TEXT | FieldKind.GENDER:
            return (sent_value or "") == ("" if answered_value is None else answered_value)
        case FieldKind.ZIP:
            return str(sent_value) == str(answered_value)
        case FieldKind.TAGS:
            return _convert_to_type("tags", sent_value, list) == answered_value
        case FieldKind.FLAG:
            return isinstance(answered_value, bool) and bool(sent_value) == answered_value
        case FieldKind.NUMBER | FieldKind.TEXT | FieldKind.EMAIL | FieldKind.COUNTRY | FieldKind.DATE:
            return sent_value == answered_value
        case _:
            assert_never(kind)


def find_differing_fields(
    names: Sequence[str], sent_values: Sequence[object], listed_values: Sequence[object]
) -> list[int]:
    """Return the indexes of the fields in `names` for which `sent_values` and `listed_values` differ. Both sequences of
    values are in the order of `names`.

    `sent_values` has the values that a create would send (None for an empty value), and `listed_values` the values of
    the list. A zip that is a text cannot be sent, so this zip and a missing zip in the list count as equal. Emails
    and client_user_ids are compared in their normal forms, as identities.
    """
    return [
        index
        for index, (value, listed_value) in enumerate(zip(sent_values, listed_values, strict=True))
        if not (value == listed_value and type(value) is type(listed_value))
        and _is_different(names[index], value, listed_value)
    ]


def _is_different(name: str, sent_value: object, listed_value: object) -> bool:
    kind = FIELD_BY_NAME[name].kind
    if _is_empty_value(listed_value):
        return not _is_empty_value(sent_value) and not (kind is FieldKind.ZIP and isinstance(sent_value, str))
    if _is_empty_value(sent_value):
        return True
    if name in IDENTITY_FIELDS and isinstance(sent_value, str) and isinstance(listed_value, str):
        return normalise_identity(name, sent_value) != normalise_identity(name, listed_value)
    return not are_equal_values(kind, sent_value, listed_value)


def _is_empty_value(value: object) -> bool:
    return value is None or value is False or value in ("", [])
