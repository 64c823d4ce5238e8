"""Each of the service's three requests as a value: method, path, query and body (api.md, section 4).

It refuses to know the host, the token and the connection.
"""

import operator
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from connector.errors import ConfigurationError
from connector.protocol.email import Message, encode_email
from connector.values import hot_value

Operation = Literal["create", "list", "send"]

OPERATIONS: tuple[Operation, ...] = ("create", "list", "send")

TOO_MANY_REQUESTS = 429
"""RFC 6585: refused for its rate. Whether and when the service answers so is not shown."""

LARGEST_PAGE = 1000
"""api.md, section 8: a limit above it is reduced to it by the service."""

_CREATE_PATH = "/api/subscribers/create-subscriber/"
_LIST_PATH = "/api/subscribers/subscribers-list/"
_SEND_PATH = "/api/emails/send-instant-email/"


@hot_value
class Request:
    """One request, its `path` relative to the base URL; query values are plain text, not yet URL-encoded."""

    operation: Operation
    method: Literal["GET", "POST"]
    path: str
    query: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    body: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ListQuery:
    """What to list: the ten parameters of api.md 4.3. None is not asked; the gender "" asks for Not specified.

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
            if given is not None or name in _ALWAYS_SAID:
                object.__setattr__(self, name, read(name, given))
        if self.offset < 0:
            raise ConfigurationError(f"The list's offset must be 0 or more, not {self.offset}.")
        if not 1 <= self.limit <= LARGEST_PAGE:
            raise ConfigurationError(f"The list's limit must be from 1 to {LARGEST_PAGE}, not {self.limit}.")
        if self.gender not in (None, "male", "female", ""):
            raise ConfigurationError("The list's gender must be male, female, or empty for not specified.")


def build_create(body: bytes) -> Request:
    """The request that creates one subscriber (api.md 4.2); `body` as `encode_subscriber` made it."""
    return Request("create", "POST", _CREATE_PATH, (), body)


def build_list(query: ListQuery) -> Request:
    """The request for one page of the list (api.md 4.3); offset and limit are always said."""
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


def build_send(message: Message) -> Request:
    """The request that sends one email (api.md 4.1)."""
    return Request("send", "POST", _SEND_PATH, (), encode_email(message))


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
    return str(given)


def _read_filled_text(name: str, given: object) -> str:
    text = _read_text(name, given)
    if not text.strip():
        raise ConfigurationError(f"The list's filter {name} is blank: leave it out to list everybody.")
    try:
        text.encode()
    except UnicodeEncodeError:
        # `from None`: the codec's error holds the text itself, which may be personal.
        raise ConfigurationError(f"The list's filter {name} holds a broken character (a lone surrogate).") from None
    return text


def _build_refusal(name: str, wanted: str, given: object) -> ConfigurationError:
    """Names the type alone: the value may be personal."""
    return ConfigurationError(f"The list's {name} must be {wanted}, not of the type {type(given).__name__}.")


_ALWAYS_SAID = ("offset", "limit")

_READERS: dict[str, Callable[[str, object], object]] = {
    "offset": _read_number,
    "limit": _read_number,
    "id": _read_number,
    "base_id": _read_number,
    "client_user_id": _read_filled_text,
    "email": _read_filled_text,
    "is_active": _read_flag,
    "first_name": _read_filled_text,
    "last_name": _read_filled_text,
    "gender": _read_text,
}
