"""What an answer of the service means: success, a refusal, or nothing certain; each is a value.

Pure: bytes in, values out. No answer makes it raise, and no shape that service-api.md does not show is guessed to be a
success. Of an error the words are kept, as one line, without the token, cut to 500 characters; service-api.md 7.4 shows
no shape of errors, so every shape is read.
"""

import html
import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from html.entities import html5
from itertools import islice
from typing import Any

import orjson

from connector.fields import FIELDS, LARGEST_ID
from connector.service.wire import TOO_MANY_REQUESTS, Accepted, Ambiguous, Created, ListPage, Mask, Refused, says_limit

MESSAGE_LENGTH = 500
"""Characters kept of what the service says (architecture 2)."""

_UNCERTAIN_4XX = frozenset({408, 409})  # a time-out and a conflict may both follow a create that was executed
_BOM = b"\xef\xbb\xbf"
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,19}")


ECHOES = ("TotalCount", "Offset", "Limit")
"""The numbers of a page, in the order of `ListPage` (service-api.md 4.3)."""


def parse_created(
    status: int, headers: Mapping[str, str], body: bytes, now: datetime, *, mask: Mask = str
) -> Created | Refused | Ambiguous:
    """Return what became of a create; obeys service-api.md 4.2 and 7.1.

    Created needs a 2xx status, `success` true and a whole positive Subscriber.Id; whether base and identity are those
    sent is for the caller to compare. `now` is aware, for a Retry-After that is a date.
    """
    subscriber, success = _read_success(status, body, "Subscriber")
    if subscriber is not None:
        _read_types(subscriber)
        subscriber_id = read_whole_number(subscriber.get("Id"))
        if subscriber_id is not None and subscriber_id > 0:
            return Created(subscriber_id, subscriber, status)
        return Ambiguous(status, "the answer has no whole number as Subscriber.Id", is_without_id=True)
    return _unsuccessful(status, headers, body, now, mask, success)


def parse_listed(
    status: int, headers: Mapping[str, str], body: bytes, now: datetime, *, mask: Mask = str
) -> ListPage | Refused | Ambiguous:
    """Read a page of the list; obeys service-api.md 4.3. A page with an element that is no object is Ambiguous as a
    whole."""
    page, success = _read_success(status, body, "SubscribersList")
    if page is not None:
        total, offset, limit = (read_whole_number(page.get(name)) for name in ECHOES)
        subscribers = page.get("Subscribers")
        if subscribers is None and "Subscribers" in page and total is not None and total <= (offset or 0):
            subscribers = []  # past the end of what TotalCount says; anywhere else null is no page
        if isinstance(subscribers, list) and all(type(each) is dict for each in subscribers):
            for each in subscribers:
                _read_types(each)
            return ListPage(subscribers, total, offset, limit)
    return _unsuccessful(status, headers, body, now, mask, success)


async def parse_wire_page(
    status: int, headers: Mapping[str, str], body: bytes, now: datetime, *, mask: Mask = str
) -> ListPage | Refused | Ambiguous:
    """As `parse_listed`; other forms of rows are parsed in a thread, so this is a coroutine."""
    return parse_listed(status, headers, body, now, mask=mask)


def parse_sent(
    status: int, headers: Mapping[str, str], body: bytes, now: datetime, *, mask: Mask = str
) -> Accepted | Refused | Ambiguous:
    """Return what became of an email; obeys service-api.md 2.3 and 4.1. Accepted needs a whole SendMessageRequestId."""
    result, success = _read_success(status, body, "SendEmail")
    if result is not None:
        request_id = read_whole_number(result.get("SendMessageRequestId"))
        if request_id is not None:
            message_id = result.get("MessageId")
            return Accepted(request_id, message_id if isinstance(message_id, str) else "")
    return _unsuccessful(status, headers, body, now, mask, success)


def _read_success(status: int, body: bytes, key: str) -> tuple[dict[str, Any] | None, object]:
    """Return the object under `key` of a 2xx answer whose `success` is true, else None; and `success` itself."""
    try:
        answer = orjson.loads(body.removeprefix(_BOM))
    except orjson.JSONDecodeError:
        try:  # orjson refuses an escaped half of a character and a number beyond a double, which JSON allows
            answer = json.loads(body, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            answer = None
    if not isinstance(answer, dict):
        return None, None
    success, result = answer.get("success"), answer.get(key)
    is_success = success is True and 200 <= status < 300 and isinstance(result, dict)
    return (result if is_success else None), success


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


def read_whole_number(value: object) -> int | None:
    """JSON has one kind of number: 12.0 is 12, and so is the text "12" of a service that quotes its numbers."""
    if (type(value) is float and value.is_integer()) or (type(value) is str and _WHOLE_NUMBER.fullmatch(value)):
        value = int(value)
    return value if type(value) is int and abs(value) <= LARGEST_ID else None


_FLAGS = {"0": False, "1": True, "false": False, "true": True}


def _read_types(subscriber: dict[str, Any]) -> None:
    """Give values the types of service-api.md 2.1, by which all other code compares them: Ids that came as text or as
    12.0, a ClientUserId that came as a number, and an IsActive that came as 0, 1 or text."""
    for owner in (subscriber, subscriber.get("Base")):
        if type(owner) is dict and type(owner.get("Id")) in (str, float):
            number = read_whole_number(owner["Id"])
            owner["Id"] = owner["Id"] if number is None else number
    if type(subscriber.get("ClientUserId")) is int:
        subscriber["ClientUserId"] = str(subscriber["ClientUserId"])
    is_active = subscriber.get("IsActive")
    if type(is_active) in (int, str):
        subscriber["IsActive"] = _FLAGS.get(str(is_active).strip().lower(), is_active)


def _unsuccessful(
    status: int, headers: Mapping[str, str], body: bytes, now: datetime, mask: Mask, success: object
) -> Refused | Ambiguous:
    message = mask(extract_words(status, headers, body))[:MESSAGE_LENGTH]
    retry_after_s = parse_retry_after(headers, now)
    is_definite = 400 <= status < 500 and status not in _UNCERTAIN_4XX
    is_refused = is_definite and success is not True  # a 4xx that says `success: true` contradicts itself
    is_stated = success is False and status < 500 and not 300 <= status < 400  # a redirect says nothing of the row
    # A 403 that names a Retry-After speaks of the pace, and not of the row: it is looked up, and sent again.
    is_of_the_pace = status != TOO_MANY_REQUESTS and says_limit(status, retry_after_s)
    is_refusal = (is_refused or is_stated) and not is_of_the_pace
    return (Refused if is_refusal else Ambiguous)(status, message, retry_after_s)


# Retry-After

LONGEST_WAIT_S = 86_400.0
"""A day: a longer wait is not believed. It comes from a wrong clock, or from a number that is not a time."""

_YEAR_2000_S = 946_684_800  # a larger number is a Unix time, in seconds or milliseconds

_SECONDS = re.compile(r"[0-9]{1,300}(\.[0-9]{1,30})?", re.ASCII)


def parse_retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the seconds to wait, in [0, LONGEST_WAIT_S], or None if the header says nothing that can be believed:
    then the pace is found as without the header. RFC 9110 has seconds and dates; some services send a Unix time.

    A date is read against the answer's own Date header where there is one, so that a difference between the two
    machines' clocks does not shorten the wait; else against `now` (aware).
    """
    asked = find_header(headers, "retry-after")
    if asked is None:
        return None
    answered_at = _parse_date(find_header(headers, "date") or "") or now
    if _SECONDS.fullmatch(asked):
        number = float(asked)
        if number >= _YEAR_2000_S:
            number = (number / 1000 if number >= _YEAR_2000_S * 1000 else number) - answered_at.timestamp()
    elif (until := _parse_date(asked)) is not None:
        number = (until - answered_at).total_seconds()
    else:
        return None
    return max(number, 0.0) if number <= LONGEST_WAIT_S else None


def find_header(headers: Mapping[str, str], name: str) -> str | None:
    """Return the header's value, trimmed, whatever the case of its name; `name` is given in lower case."""
    for key, value in headers.items():
        if key.lower() == name:
            return value.strip()
    return None


def _parse_date(text: str) -> datetime | None:
    try:
        parsed = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError, IndexError):  # the standard parser has failed in each of these ways
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


# The words of an error, and the kind of a refusal

_LARGEST_JSON = 1_000_000  # bytes; a larger body is a page of something, not an error, and is shown by its beginning
_TEXT_READ = 20_000  # bytes; 500 characters are kept in the end, and markup is rarely forty times its text
_DEEPEST = 8  # levels of nesting followed; whatever lies deeper is no message
_MOST_LEAVES = 100  # values looked at; 500 characters hold fewer
# Keys in lower case and without underscores.
_MESSAGES = frozenset(["message", "messages", "error", "errors", "errormessage", "errordescription", "detail"])
_MESSAGES |= frozenset(["details", "description", "reason", "title", "msg", "text"])
_BY_FIELD = frozenset(["errors", "details", "violations", "fields"])  # objects whose keys say what is wrong
_NO_WORDS = frozenset(["code", "status", "type", "id", "timestamp", "traceid", "requestid"])

_HEAD = re.compile(r"<head\b.*?</head\s*>", re.IGNORECASE | re.DOTALL)
_UNSEEN = re.compile(r"<(script|style)\b.*?(?:</\1\s*>|\Z)|<!--.*?(?:-->|\Z)", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<[/!?a-zA-Z][^<>]*>")
_BLANKS = re.compile(r"[\s\x00-\x1f\x7f-\x9f\ufeff]+")


def extract_words(status: int, headers: Mapping[str, str], body: bytes) -> str:
    """Return the message in the body as one line: of JSON the texts that are messages, of HTML what a reader would see.

    A redirect's target comes first. Not yet cut to length. "" when the body is empty.
    """
    words = _words_of_json(body)
    if words is None:
        words = _words_of_text(body[:_TEXT_READ].decode(errors="replace"), find_header(headers, "content-type") or "")
    target = find_header(headers, "location") if 300 <= status < 400 else None
    if target is not None:
        words = f"redirect to {target}; {words}" if words else f"redirect to {target}"
    return _BLANKS.sub(" ", words).strip()


def _words_of_json(body: bytes) -> str | None:
    if len(body) > _LARGEST_JSON:
        return None
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(answer, dict | list):
        return answer if isinstance(answer, str) else "" if answer is None else str(answer)
    leaves = list(islice(_leaves(answer, ()), _MOST_LEAVES))
    messages = [text for path, leaf in leaves if (text := _read_message(path, leaf))]
    if not messages:  # nothing that looks like a message: show it all, without the quotes and braces of JSON
        messages = [".".join((*path, "")).rstrip(".") + f": {leaf}" if path else str(leaf) for path, leaf in leaves]
    return "; ".join(dict.fromkeys(messages))


def _leaves(value: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object]]:
    """Every value that is neither list nor object, with the keys that lead to it; `success` is left out."""
    if len(path) > _DEEPEST:
        return
    if isinstance(value, dict):
        for key, inner in value.items():
            if key != "success":
                yield from _leaves(inner, (*path, key))
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner, path)
    elif value is not None and value != "":
        yield path, value


def _read_message(path: tuple[str, ...], leaf: object) -> str:
    """The leaf as words when its place says that it is a message, else ""."""
    keys = tuple(key.lower().replace("_", "") for key in path)
    if not isinstance(leaf, str):
        return ""
    if not keys or keys[-1] in _MESSAGES:
        return leaf
    if keys[-1] not in _NO_WORDS and any(key in _BY_FIELD for key in keys[:-1]):
        return f"{path[-1]}: {leaf}"
    return ""


def _words_of_text(text: str, content_type: str) -> str:
    if not re.search("html|xml", content_type, re.IGNORECASE) and text.lstrip("\ufeff \r\n\t")[:1] != "<":
        return text
    seen = _UNSEEN.sub(" ", text)
    words = _TAG.sub(" ", _HEAD.sub(" ", seen))
    return html.unescape(words if words.strip() else _TAG.sub(" ", seen))


# What differs from row to row within one kind of refusal, in the order in which it is masked. A quote that the cut to
# 500 characters left open runs to the end; an apostrophe within a word opens nothing.
_QUOTED = re.compile(
    r'"[^"]*(?:"|\Z)|“[^”]*(?:”|\Z)|„[^“”]*(?:[“”]|\Z)|«[^»]*(?:»|\Z)|`[^`]*(?:`|\Z)|‘[^’]*(?:’|\Z)'
    r"|(?<!\w)'(?:[^']|(?<=\w)'(?=\w))*(?:'|\Z)"
)
_ADDRESS = re.compile(r"[^\s@<>()\[\]{},;:]+@[^\s@<>()\[\]{},;]+")
_IDENTIFIER = re.compile(  # a UUID or another hexadecimal id of 8 and more, or 16 and more mixed letters and digits
    r"\b(?=[0-9a-f-]*\d)[0-9a-f][0-9a-f-]{7,}\b|\b(?=[A-Za-z_]*\d)(?=\d*[A-Za-z])\w{16,}\b", re.IGNORECASE
)
_DIGITS = re.compile(r"\d+")


def refusal_kind(status: int, message: str) -> str:
    """Return the kind of a refusal (architecture 3): its status, and its message with what differs from row to row
    masked.

    Quoted text becomes `'…'`, an address `@`, an identifier or a run of digits `#`.
    """
    masked = _ADDRESS.sub("@", _QUOTED.sub("'…'", message))
    masked = _DIGITS.sub("#", _IDENTIFIER.sub("#", masked))
    return f"{status} {_BLANKS.sub(' ', masked).strip()}".rstrip()


_UNPROCESSABLE = 422  # RFC 9110: the request is understood, and its content is wrong
_FIELD_WORDS = [each.name.removeprefix("address_") for each in FIELDS if each.is_sent]
_ONE_WORD = "|".join(each for each in _FIELD_WORDS if "_" not in each)
_MORE_WORDS = "|".join(each.replace("_", "[_ ]?") for each in _FIELD_WORDS if "_" in each)
_NAMES_A_FIELD = re.compile(
    rf"\b({_MORE_WORDS})\b|(?<=\w\.)({_ONE_WORD})\b|\b({_ONE_WORD})['\"]?\s*:|['\"]({_ONE_WORD})['\"]", re.IGNORECASE
)
"""A field by its name. A name of one word must be a label (`email: …`), in a path or in quotes: not "email limit"."""


def is_about_row(status: int, message: str, identity: str = "") -> bool:
    """Return whether a refusal says something of a row: by its status, a field's name, an address or the row's
    identity."""
    is_named = bool(identity.strip()) and identity.strip().casefold() in message.casefold()
    return status == _UNPROCESSABLE or is_named or bool(_ADDRESS.search(message) or _NAMES_A_FIELD.search(message))


# The token in the words of an error

MASKED = "****"

_SHORTEST_MASKED = 4
"""A shorter token is no secret, and taking it out would only garble the service's words."""

_IN_HTML = {"Content-Type": "text/html"}

_ENTITIES: dict[str, list[str]] = {}
for _name, _characters in html5.items():
    _ENTITIES.setdefault(_characters, []).append(_name.rstrip(";"))


def build_mask(secret: str) -> Mask:
    """Return what puts `MASKED` in the place of `secret` and its spellings, which are worked out at its first use: most
    runs meet no failure, and it would be a seventh of a small one."""
    if len(secret) < _SHORTEST_MASKED:
        return str

    @cache
    def find_spellings() -> re.Pattern[str]:
        forms = _read_as_words(secret)
        spellings = [each for form in forms for each in ("".join(map(_spell_character, form)), re.escape(form))]
        return re.compile("|".join(spellings), re.IGNORECASE)

    return lambda words: find_spellings().sub(MASKED, words)


def _read_as_words(secret: str) -> list[str]:
    """The secret, and what is read where a service puts it into JSON or HTML unescaped: it is taken for escaped."""
    texts = (secret.encode(), b'"%s"' % secret.encode())
    read = [extract_words(401, headers, text).strip('"') for text in texts for headers in ({}, _IN_HTML)]
    return [form for form in dict.fromkeys([secret, *read]) if len(form) >= _SHORTEST_MASKED]


def _spell_character(character: str) -> str:
    """A pattern of all ways to write one character, also escaped once more (`%252B`, `\\\\u002b`, `&amp;quot;`).

    Each repetition is bounded, and no run of characters can be divided in two ways: hostile words cost linear time.
    """
    code = ord(character)
    entities = "|".join([*_ENTITIES.get(character, ()), f"#0{{0,6}}{code}", f"#x0{{0,6}}{code:x}"])
    is_percent, is_ampersand, is_backslash = (character == each for each in "%&\\")
    ways = [
        "%25" if is_percent else f"%(?:25){{0,3}}{code:02x}",
        rf"\\{{1,7}}u{code:04x}",
        f"&(?:{entities});?" if is_ampersand else f"&(?:amp;){{0,3}}(?:{entities});?",
        r"\\\\|\\" if is_backslash else rf"\\{{0,7}}{re.escape(character)}",
    ]
    if character == " ":
        ways.append(r"\+")
    return f"(?>{'|'.join(ways)})" if is_backslash else f"(?:{'|'.join(ways)})"
