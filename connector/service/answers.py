"""Parses answers of the service. The result is a value: a success, a refusal, or an ambiguous answer.

The functions have no side effects. No answer raises an error. Only an answer in the form of service-api.md is a
success. The message of an error is returned as one line of at most 500 characters, without the token. The documentation
(service-api.md 7.4) shows no form of errors, so the parser finds a message in any form.
"""

import html
import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import islice
from typing import Any
from urllib.parse import unquote, unquote_plus

import orjson

from connector.fields import FIELDS, LARGEST_ID
from connector.service.wire import (
    TOO_MANY_REQUESTS,
    AmbiguousResult,
    CreatedAnswer,
    EmailAccepted,
    ListPage,
    MaskMessage,
    Refused,
    is_rate_limit,
)

MAX_MESSAGE_LENGTH = 500
"""The maximum number of characters of a message of the service (architecture 2). Longer messages are cut."""

_UNCERTAIN_4XX_STATUSES = frozenset({408, 409})  # after a time-out or a conflict, the create may have been executed
_BOM = b"\xef\xbb\xbf"


NUMBER_KEYS_OF_PAGE = ("TotalCount", "Offset", "Limit")
"""The numbers of a page, in the order of `ListPage` (service-api.md 4.3)."""


def parse_create_answer(
    status: int, headers: Mapping[str, str], body: bytes, now: datetime, *, mask_message: MaskMessage = str
) -> CreatedAnswer | Refused | AmbiguousResult:
    """Return the result of a create (service-api.md 4.2 and 7.1).

    The result is a CreatedAnswer only with a 2xx status, `success` true, and a whole positive Subscriber.Id. The caller
    must compare the base and the identity in the answer. `now` is a time with a time zone, for a Retry-After with a
    date.
    """
    subscriber, success_value = _read_success(status, body, "Subscriber")
    if subscriber is not None:
        _convert_types(subscriber)
        subscriber_id = read_whole_number(subscriber.get("Id"))
        if subscriber_id is not None and subscriber_id > 0:
            return CreatedAnswer(subscriber_id, subscriber, status)
        # A wrong Id shows that the service uses other ids than documented. A missing Id may be an accident.
        has_unusable_id = subscriber.get("Id") not in (None, "")
        return AmbiguousResult(
            status, "the answer has no whole number as Subscriber.Id", has_unusable_id=has_unusable_id
        )
    return _classify_failure(status, headers, body, now, mask_message, success_value)


def parse_list_answer(
    status: int, headers: Mapping[str, str], body: bytes, now: datetime, *, mask_message: MaskMessage = str
) -> ListPage | Refused | AmbiguousResult:
    """Return a page of the list (service-api.md 4.3). If an element of the page is not an object, return an
    AmbiguousResult."""
    page, success_value = _read_success(status, body, "SubscribersList")
    if page is not None:
        total_count, offset, limit = (read_whole_number(page.get(name)) for name in NUMBER_KEYS_OF_PAGE)
        subscribers = page.get("Subscribers")
        if subscribers is None and "Subscribers" in page and total_count is not None and total_count <= (offset or 0):
            subscribers = []  # null is an empty page if the offset is TotalCount or more; otherwise null is a fault
        if isinstance(subscribers, list) and all(type(subscriber) is dict for subscriber in subscribers):
            for subscriber in subscribers:
                _convert_types(subscriber)
            return ListPage(subscribers, total_count, offset, limit)
    return _classify_failure(status, headers, body, now, mask_message, success_value)


async def parse_wire_page(
    status: int, headers: Mapping[str, str], body: bytes, now: datetime, *, mask_message: MaskMessage = str
) -> ListPage | Refused | AmbiguousResult:
    """Return the result of `parse_list_answer`. The function is a coroutine, like every `ListAnswerParser`."""
    return parse_list_answer(status, headers, body, now, mask_message=mask_message)


def parse_send_answer(
    status: int, headers: Mapping[str, str], body: bytes, now: datetime, *, mask_message: MaskMessage = str
) -> EmailAccepted | Refused | AmbiguousResult:
    """Return the result of a request to send an email (service-api.md 2.3 and 4.1). The result is EmailAccepted only
    with a whole number as SendMessageRequestId."""
    result, success_value = _read_success(status, body, "SendEmail")
    if result is not None:
        request_id = read_whole_number(result.get("SendMessageRequestId"))
        if request_id is not None:
            message_id = result.get("MessageId")
            return EmailAccepted(request_id, message_id if isinstance(message_id, str) else "")
    return _classify_failure(status, headers, body, now, mask_message, success_value)


def _read_success(status: int, body: bytes, key: str) -> tuple[dict[str, Any] | None, object]:
    """Return the object under `key` if the status is 2xx and `success` is true, else None. Also return the value of
    `success`."""
    try:
        answer = orjson.loads(body.removeprefix(_BOM))
    except orjson.JSONDecodeError:
        try:  # unlike orjson, json accepts an escaped lone surrogate and a number that is too large for a float
            answer = json.loads(body, parse_constant=_refuse_json_constant)
        except (ValueError, RecursionError):
            answer = None
    if not isinstance(answer, dict):
        return None, None
    success_value, result_object = answer.get("success"), answer.get(key)
    is_success = success_value is True and 200 <= status < 300 and isinstance(result_object, dict)
    return (result_object if is_success else None), success_value


def _refuse_json_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def read_whole_number(value: object) -> int | None:
    """Return the value as an int, or None if the value is not a whole number or is too large. 12.0 is 12, because JSON
    has only one kind of number."""
    if type(value) is float and value.is_integer():
        value = int(value)
    return value if type(value) is int and abs(value) <= LARGEST_ID else None


_FLAG_BY_TEXT = {"0": False, "1": True, "false": False, "true": True}


def _convert_types(subscriber: dict[str, Any]) -> None:
    """Convert values in place to the types of service-api.md 2.1, which all other code expects. Convert an Id that is a
    float, a ClientUserId that is a number, and an IsActive that is 0, 1 or a text."""
    for json_object in (subscriber, subscriber.get("Base")):
        if type(json_object) is dict and type(json_object.get("Id")) is float:
            integer_id = read_whole_number(json_object["Id"])
            json_object["Id"] = json_object["Id"] if integer_id is None else integer_id
    if type(subscriber.get("ClientUserId")) is int:
        subscriber["ClientUserId"] = str(subscriber["ClientUserId"])
    is_active = subscriber.get("IsActive")
    if type(is_active) in (int, str):
        subscriber["IsActive"] = _FLAG_BY_TEXT.get(str(is_active).strip().lower(), is_active)


def _classify_failure(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    now: datetime,
    mask_message: MaskMessage,
    success_value: object,
) -> Refused | AmbiguousResult:
    message = mask_message(extract_message(status, headers, body))[:MAX_MESSAGE_LENGTH]
    retry_after_s = parse_retry_after(headers, now)
    is_status_definite = 400 <= status < 500 and status not in _UNCERTAIN_4XX_STATUSES
    # A 4xx with `success: true` contradicts itself, so it is ambiguous.
    is_refused_by_status = is_status_definite and success_value is not True
    # A redirect does not refuse the row.
    is_refused_in_body = success_value is False and status < 500 and not 300 <= status < 400
    # A 403 with a Retry-After refuses the pace and not the row, so the row is looked up and sent again.
    is_pace_refusal = status != TOO_MANY_REQUESTS and is_rate_limit(status, retry_after_s)
    is_row_refusal = (is_refused_by_status or is_refused_in_body) and not is_pace_refusal
    return (Refused if is_row_refusal else AmbiguousResult)(status, message, retry_after_s)


# The Retry-After header

MAX_RETRY_AFTER_S = 86_400.0
"""One day. A longer Retry-After is ignored, because its cause is a wrong clock, or a number that is not a time."""

_YEAR_2000_S = 946_684_800  # a larger number in a Retry-After is a Unix time, in seconds or milliseconds

_SECONDS_PATTERN = re.compile(r"[0-9]{1,300}(\.[0-9]{1,30})?", re.ASCII)


def parse_retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the wait that the Retry-After header asks for, in seconds (0 to MAX_RETRY_AFTER_S). Return None if the
    header is absent or invalid, or asks for a longer wait.

    RFC 9110 allows seconds and dates, and some services send a Unix time. A date is compared with the Date header of
    the answer, so that different clocks of the two machines do not change the wait. Without a Date header, the date is
    compared with `now` (a time with a time zone).
    """
    retry_after = find_header(headers, "retry-after")
    if retry_after is None:
        return None
    answered_at = _parse_date(find_header(headers, "date") or "") or now
    if _SECONDS_PATTERN.fullmatch(retry_after):
        wait_s = float(retry_after)
        if wait_s >= _YEAR_2000_S:
            wait_s = (wait_s / 1000 if wait_s >= _YEAR_2000_S * 1000 else wait_s) - answered_at.timestamp()
    elif (retry_at := _parse_date(retry_after)) is not None:
        wait_s = (retry_at - answered_at).total_seconds()
    else:
        return None
    return max(wait_s, 0.0) if wait_s <= MAX_RETRY_AFTER_S else None


def find_header(headers: Mapping[str, str], name: str) -> str | None:
    """Return the trimmed value of a header, or None if the answer has no such header. `name` is in lower case. The name
    in the answer may have any case."""
    for key, value in headers.items():
        if key.lower() == name:
            return value.strip()
    return None


def _parse_date(text: str) -> datetime | None:
    try:
        parsed_date = parsedate_to_datetime(text)
    # The parser of the standard library raises all of these errors.
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return parsed_date if parsed_date.tzinfo else parsed_date.replace(tzinfo=UTC)


# The message of an error, and the kind of a refusal

_MAX_JSON_BYTES = 1_000_000  # a larger body is not an error message, and only its beginning is shown
_MAX_TEXT_BYTES = 20_000  # enough for 500 visible characters, because markup is rarely forty times as long as its text
_MAX_DEPTH = 8  # levels of nesting in JSON; a deeper value is not a message
_MAX_LEAVES = 100  # values of a JSON error that are read; fewer values fill the 500 characters of a message
# Keys whose values are messages, in lower case and without underscores.
_MESSAGE_KEYS = frozenset(["message", "messages", "error", "errors", "errormessage", "errordescription", "detail"])
_MESSAGE_KEYS |= frozenset(["details", "description", "reason", "title", "msg", "text"])
# Keys whose value is an object of field errors. The keys in this object are the names of the wrong fields.
_KEYS_OF_FIELD_ERRORS = frozenset(["errors", "details", "violations", "fields"])
_KEYS_WITHOUT_MESSAGE = frozenset(["code", "status", "type", "id", "timestamp", "traceid", "requestid"])

_HTML_HEAD_PATTERN = re.compile(r"<head\b.*?</head\s*>", re.IGNORECASE | re.DOTALL)
_INVISIBLE_MARKUP_PATTERN = re.compile(
    r"<(script|style)\b.*?(?:</\1\s*>|\Z)|<!--.*?(?:-->|\Z)", re.IGNORECASE | re.DOTALL
)
_TAG_PATTERN = re.compile(r"<[/!?a-zA-Z][^<>]*>")
_WHITE_SPACE_PATTERN = re.compile(r"[\s\x00-\x1f\x7f-\x9f\ufeff]+")


def extract_message(status: int, headers: Mapping[str, str], body: bytes) -> str:
    """Return the message in the body as one line: the messages in JSON, or the visible text of HTML.

    If the answer is a redirect, the line begins with the target of the redirect. The line is not cut to a maximum
    length. The result is "" if the body is empty.
    """
    message = _read_json_messages(body)
    if message is None:
        content_type = find_header(headers, "content-type") or ""
        message = _read_visible_text(body[:_MAX_TEXT_BYTES].decode(errors="replace"), content_type)
    redirect_target = find_header(headers, "location") if 300 <= status < 400 else None
    if redirect_target is not None:
        message = f"redirect to {redirect_target}; {message}" if message else f"redirect to {redirect_target}"
    return _WHITE_SPACE_PATTERN.sub(" ", message).strip()


def _read_json_messages(body: bytes) -> str | None:
    if len(body) > _MAX_JSON_BYTES:
        return None
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(answer, dict | list):
        return answer if isinstance(answer, str) else "" if answer is None else str(answer)
    leaves_with_paths = list(islice(_list_leaves(answer, ()), _MAX_LEAVES))
    messages = [text for path, leaf_value in leaves_with_paths if (text := _read_message(path, leaf_value))]
    if not messages:  # if no text looks like a message, show all values without the quotes and braces of JSON
        messages = [
            ".".join((*path, "")).rstrip(".") + f": {leaf_value}" if path else str(leaf_value)
            for path, leaf_value in leaves_with_paths
        ]
    return "; ".join(dict.fromkeys(messages))


def _list_leaves(value: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yield every text, number, boolean and null in a JSON value, with its path of keys. Leave out `success`."""
    if len(path) > _MAX_DEPTH:
        return
    if isinstance(value, dict):
        for key, inner_value in value.items():
            if key != "success":
                yield from _list_leaves(inner_value, (*path, key))
    elif isinstance(value, list):
        for inner_value in value:
            yield from _list_leaves(inner_value, path)
    elif value is not None and value != "":
        yield path, value


def _read_message(path: tuple[str, ...], leaf_value: object) -> str:
    """Return the text of a value in a JSON error, or "" if its keys are not for messages. Keys such as `error` and
    `details` are for messages."""
    keys = tuple(key.lower().replace("_", "") for key in path)
    if not isinstance(leaf_value, str):
        return ""
    if not keys or keys[-1] in _MESSAGE_KEYS:
        return leaf_value
    if keys[-1] not in _KEYS_WITHOUT_MESSAGE and any(key in _KEYS_OF_FIELD_ERRORS for key in keys[:-1]):
        return f"{path[-1]}: {leaf_value}"
    return ""


def _read_visible_text(text: str, content_type: str) -> str:
    if not re.search("html|xml", content_type, re.IGNORECASE) and text.lstrip("\ufeff \r\n\t")[:1] != "<":
        return text
    visible_markup = _INVISIBLE_MARKUP_PATTERN.sub(" ", text)
    body_text = _TAG_PATTERN.sub(" ", _HTML_HEAD_PATTERN.sub(" ", visible_markup))
    return html.unescape(body_text if body_text.strip() else _TAG_PATTERN.sub(" ", visible_markup))


# Patterns of texts that differ between refusals of one kind, in the order of masking.
# A quotation may lack its end, because the message is cut to 500 characters.
# An apostrophe within a word does not begin a quotation.
_QUOTATION_PATTERN = re.compile(
    r'"[^"]*(?:"|\Z)|“[^”]*(?:”|\Z)|„[^“”]*(?:[“”]|\Z)|«[^»]*(?:»|\Z)|`[^`]*(?:`|\Z)|‘[^’]*(?:’|\Z)'
    r"|(?<!\w)'(?:[^']|(?<=\w)'(?=\w))*(?:'|\Z)"
)
_ADDRESS_PATTERN = re.compile(r"[^\s@<>()\[\]{},;:]+@[^\s@<>()\[\]{},;]+")
_IDENTIFIER_PATTERN = re.compile(  # a UUID, a hexadecimal id of 8 or more characters, or 16 or more letters and digits
    r"\b(?=[0-9a-f-]*\d)[0-9a-f][0-9a-f-]{7,}\b|\b(?=[A-Za-z_]*\d)(?=\d*[A-Za-z])\w{16,}\b", re.IGNORECASE
)
_DIGITS_PATTERN = re.compile(r"\d+")


def build_refusal_kind(status: int, message: str) -> str:
    """Return the status and the message of a refusal as its kind. Texts that differ between rows are masked.

    The masks are `'…'` for a quotation, `@` for an address, and `#` for an identifier or a number.
    """
    masked_message = _ADDRESS_PATTERN.sub("@", _QUOTATION_PATTERN.sub("'…'", message))
    masked_message = _DIGITS_PATTERN.sub("#", _IDENTIFIER_PATTERN.sub("#", masked_message))
    return f"{status} {_WHITE_SPACE_PATTERN.sub(' ', masked_message).strip()}".rstrip()


_UNPROCESSABLE_STATUS = 422  # RFC 9110: the request is understood, and its content is wrong
_FIELD_NAMES = [field.name.removeprefix("address_") for field in FIELDS if field.is_sent]
_ONE_WORD_FIELD_NAMES_PATTERN = "|".join(field_name for field_name in _FIELD_NAMES if "_" not in field_name)
_MULTIWORD_FIELD_NAMES_PATTERN = "|".join(
    field_name.replace("_", "[_ ]?") for field_name in _FIELD_NAMES if "_" in field_name
)
_FIELD_NAME_PATTERN = re.compile(
    rf"\b({_MULTIWORD_FIELD_NAMES_PATTERN})\b|(?<=\w\.)({_ONE_WORD_FIELD_NAMES_PATTERN})\b|\b({_ONE_WORD_FIELD_NAMES_PATTERN})['\"]?\s*:|['\"]({_ONE_WORD_FIELD_NAMES_PATTERN})['\"]",
    re.IGNORECASE,
)
"""The name of a field in a message. A name of one word counts only before a colon (`email: …`), in a path, or in
quotes, because "email limit" is not about a field."""


def is_about_row(status: int, message: str, identity: str = "") -> bool:
    """Return whether a refusal is about the row. Such a refusal has the status 422, or its message names a field, an
    address or the row's identity."""
    is_identity_named = bool(identity.strip()) and identity.strip().casefold() in message.casefold()
    return (
        status == _UNPROCESSABLE_STATUS
        or is_identity_named
        or bool(_ADDRESS_PATTERN.search(message) or _FIELD_NAME_PATTERN.search(message))
    )


# The token in the message of an error

MASK = "****"

_MIN_MASKED_LENGTH = 4
"""A shorter token is not masked, because it cannot be a secret, and masking would make the service's messages
unreadable."""

_MAX_ESCAPE_LAYERS = 3
"""A token in a message is found even if the token was escaped this many times. A link in JSON in HTML is escaped three
times."""

_BACKSLASH_ESCAPE_PATTERN = re.compile(r"\\+(?:u([0-9a-fA-F]{4})|(.?))", re.DOTALL)


def build_message_mask(secret: str) -> MaskMessage:
    """Return a function that replaces `secret` by `MASK` in a message, even if the secret is escaped for a URL, JSON
    or HTML.

    A message with an escaped secret is returned unescaped.
    """
    if len(secret) < _MIN_MASKED_LENGTH:
        return str
    token_forms = [secret]  # the unescaped secret comes first
    for _ in range(_MAX_ESCAPE_LAYERS):
        token_forms.append(_unescape_text(token_forms[-1], unquote))
    long_token_forms = [re.escape(token_form) for token_form in token_forms if len(token_form) >= _MIN_MASKED_LENGTH]
    token_pattern = re.compile("|".join(long_token_forms), re.IGNORECASE)  # a proxy may write a URL in small letters

    def mask_message(message: str) -> str:
        masked_message = token_pattern.sub(MASK, message)
        for decode_url_text in (unquote, unquote_plus):  # in a URL of a form, + means a blank
            text = masked_message
            for _ in range(_MAX_ESCAPE_LAYERS):
                text = _unescape_text(text, decode_url_text)
                if token_pattern.search(text):
                    masked_message = text = token_pattern.sub(MASK, text)
        return masked_message

    return mask_message


def _unescape_text(text: str, decode_url_text: Callable[[str], str]) -> str:
    unescaped_text = _BACKSLASH_ESCAPE_PATTERN.sub(lambda match: chr(int(match[1], 16)) if match[1] else match[2], text)
    return html.unescape(decode_url_text(unescaped_text))
