"""What an answer of the service means: success, a refusal, or nothing certain; each is a value.

Pure: bytes in, values out. It knows the shapes of api.md and refuses to guess at any other; no answer makes it raise.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic

import orjson
from typing_extensions import TypeVar

from connector.fields import LARGEST_ID
from connector.protocol.requests import TOO_MANY_REQUESTS
from connector.protocol.retry_after import parse_retry_after
from connector.protocol.wire import decode_subscriber, read_field
from connector.protocol.words import extract_words, refusal_kind
from connector.values import hot_value

__all__ = [
    "ECHOES",
    "MESSAGE_LENGTH",
    "Accepted",
    "Ambiguous",
    "Created",
    "Listed",
    "Mask",
    "NotSent",
    "Refused",
    "Rows",
    "WireRows",
    "parse_created",
    "parse_listed",
    "parse_sent",
    "read_whole_number",
    "refusal_kind",
    "says_limit",
]

MESSAGE_LENGTH = 500
"""Characters kept of what the service says (design, section 2)."""

_LIMITS_BY_RETRY_AFTER = frozenset({403, 503})
_UNCERTAIN_4XX = frozenset({408, 409})  # a time-out and a conflict may both follow a create that was executed
_BOM = b"\xef\xbb\xbf"
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,19}")


@hot_value
class Created:
    """A subscriber was created: its id, and the answered subscriber as it came."""

    subscriber_id: int
    subscriber: dict[str, Any] = field(repr=False)
    status: int

    def read(self, name: str) -> object:
        """One of its values, by field name."""
        return self.subscriber_id if name == "id" else read_field(self.subscriber, name)

    def read_all(self) -> dict[str, object]:
        """All of them, flat by field name, as `decode_subscriber` reads them."""
        return {**decode_subscriber(self.subscriber), "id": self.subscriber_id}


WireRows = Sequence[dict[str, Any]]
"""Subscribers as the service wrote them."""

Rows = TypeVar("Rows", default=WireRows)
"""Subscribers of a page, in whichever form they are read."""


@dataclass(frozen=True, slots=True)
class Listed(Generic[Rows]):
    """A page of the list: wire objects as they came, unless another form was asked for, and the echoes (None where
    absent or no integer)."""

    subscribers: Rows = field(repr=False)
    total_count: int | None
    offset: int | None
    limit: int | None


@dataclass(frozen=True, slots=True)
class Accepted:
    """The service took on an email; `message_id` is "" when it was not told."""

    request_id: int
    message_id: str


@dataclass(frozen=True, slots=True)
class Refused:
    """429, a definite 4xx, or `success: false` below 500: taken to have had no effect (design, section 2)."""

    status: int
    message: str = field(repr=False)
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """It may or may not have had an effect; `status` is None when no answer could be read at all."""

    status: int | None
    message: str = field(repr=False)
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class NotSent:
    """It failed before the first byte was written: known to have had no effect. The words are this program's own."""

    message: str


ECHOES = ("TotalCount", "Offset", "Limit")
"""The numbers of a page, in the order of `Listed` (api.md 4.3)."""

Mask = Callable[[str], str]
"""Takes out of the service's words what must not be kept, before they are cut to length."""


def parse_created(
    status: int, headers: Mapping[str, str], body: bytes, now: datetime, *, mask: Mask = str
) -> Created | Refused | Ambiguous:
    """Tell what became of a create; obeys api.md 4.2 and 7.1.

    Created needs a 2xx status, `success` true and a whole positive Subscriber.Id; whether base and identity are those
    sent is for the caller to compare. `now` is aware, for a Retry-After that is a date.
    """
    answer = _read_object(body)
    subscriber = answer.get("Subscriber") if _is_success(answer) else None
    if isinstance(subscriber, dict) and _is_2xx(status):
        _read_quoted_ids(subscriber)
        subscriber_id = read_whole_number(subscriber.get("Id"))
        if subscriber_id is not None and subscriber_id > 0:
            return Created(subscriber_id, subscriber, status)
    return _unsuccessful(status, headers, body, now, mask, answer.get("success"))


def parse_listed(
    status: int, headers: Mapping[str, str], body: bytes, now: datetime, *, mask: Mask = str
) -> Listed | Refused | Ambiguous:
    """Read a page of the list; obeys api.md 4.3. A page with an element that is no object is Ambiguous as a whole."""
    answer = _read_object(body)
    page = answer.get("SubscribersList") if _is_success(answer) else None
    if isinstance(page, dict) and _is_2xx(status):
        total, offset, limit = (read_whole_number(page.get(name)) for name in ECHOES)
        subscribers = page.get("Subscribers")
        if subscribers is None and "Subscribers" in page and total is not None and total <= (offset or 0):
            subscribers = []  # past the end of what TotalCount says; anywhere else null is no page
        if isinstance(subscribers, list) and all(type(each) is dict for each in subscribers):
            for each in subscribers:
                _read_quoted_ids(each)
            return Listed(subscribers, total, offset, limit)
    return _unsuccessful(status, headers, body, now, mask, answer.get("success"))


def parse_sent(
    status: int, headers: Mapping[str, str], body: bytes, now: datetime, *, mask: Mask = str
) -> Accepted | Refused | Ambiguous:
    """Tell what became of an email; obeys api.md 2.3 and 4.1. Accepted needs a whole SendMessageRequestId."""
    answer = _read_object(body)
    result = answer.get("SendEmail") if _is_success(answer) else None
    if isinstance(result, dict) and _is_2xx(status):
        request_id = read_whole_number(result.get("SendMessageRequestId"))
        if request_id is not None:
            message_id = result.get("MessageId")
            return Accepted(request_id, message_id if isinstance(message_id, str) else "")
    return _unsuccessful(status, headers, body, now, mask, answer.get("success"))


def _read_object(body: bytes) -> dict[str, Any]:
    """The JSON object of an answer; empty where there is none."""
    try:
        answer = orjson.loads(body.removeprefix(_BOM))
    except orjson.JSONDecodeError:
        answer = _read_leniently(body)
    return answer if isinstance(answer, dict) else {}


def _is_success(answer: Mapping[str, Any]) -> bool:
    return answer.get("success") is True


def _read_leniently(body: bytes) -> object:
    """What the fast reader refuses and JSON allows: an escaped half of a character, a number beyond a double."""
    try:
        return json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


def _is_2xx(status: int) -> bool:
    return 200 <= status < 300


def read_whole_number(value: object) -> int | None:
    """JSON has one kind of number: 12.0 is 12, and so is the text "12" of a service that quotes its numbers."""
    if (type(value) is float and value.is_integer()) or (type(value) is str and _WHOLE_NUMBER.fullmatch(value)):
        value = int(value)
    return value if type(value) is int and abs(value) <= LARGEST_ID else None


def _read_quoted_ids(subscriber: dict[str, Any]) -> None:
    """Ids that came as text become numbers: everything behind compares them as such."""
    for owner in (subscriber, subscriber.get("Base")):
        if type(owner) is dict and type(owner.get("Id")) is str:
            number = read_whole_number(owner["Id"])
            owner["Id"] = owner["Id"] if number is None else number


def says_limit(status: int | None, retry_after_s: float | None) -> bool:
    """Whether an answer says that requests come too fast: 429, or 503 or 403 with a Retry-After (design, section 2)."""
    return status == TOO_MANY_REQUESTS or (status in _LIMITS_BY_RETRY_AFTER and retry_after_s is not None)


def _unsuccessful(
    status: int, headers: Mapping[str, str], body: bytes, now: datetime, mask: Mask, success: object
) -> Refused | Ambiguous:
    message = mask(extract_words(status, headers, body))[:MESSAGE_LENGTH]
    retry_after_s = parse_retry_after(headers, now)
    is_refused = _is_definite(status) and success is not True  # a 4xx that says `success: true` contradicts itself
    is_stated = success is False and status < 500 and not 300 <= status < 400  # a redirect says nothing of the row
    # A 403 that names a Retry-After speaks of the pace, and not of the row: it is looked up, and sent again.
    is_of_the_pace = status != TOO_MANY_REQUESTS and says_limit(status, retry_after_s)
    is_refusal = (is_refused or is_stated) and not is_of_the_pace
    return (Refused if is_refusal else Ambiguous)(status, message, retry_after_s)


def _is_definite(status: int) -> bool:
    return status == TOO_MANY_REQUESTS or (400 <= status < 500 and status not in _UNCERTAIN_4XX)
