"""What the service says in an answer that is no success, as one line of text, and what kind of refusal it is.

The shape of errors is not shown (api.md 7.4), so every shape is read; nothing here raises or knows a language.
"""

import html
import re
from collections.abc import Iterator, Mapping
from itertools import islice

import orjson

from connector.protocol.retry_after import find_header

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
    """The message in the body as one line: of JSON the texts that tell something, of HTML what a reader would see.

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
    told = [text for path, leaf in leaves if (text := _told(path, leaf))]
    if not told:  # nothing that looks like a message: show it all, without the quotes and braces of JSON
        told = [".".join((*path, "")).rstrip(".") + f": {leaf}" if path else str(leaf) for path, leaf in leaves]
    return "; ".join(dict.fromkeys(told))


def _leaves(value: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object]]:
    """Every value that is neither list nor object, with the keys that lead to it; `success` tells nothing."""
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


def _told(path: tuple[str, ...], leaf: object) -> str:
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
    is_markup = (
        "html" in content_type.lower() or "xml" in content_type.lower() or text.lstrip("\ufeff \r\n\t")[:1] == "<"
    )
    if not is_markup:
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
    """The kind of a refusal (design, section 3): its status, and its message with what differs from row to row masked.

    Quoted text becomes `'…'`, an address `@`, an identifier or a run of digits `#`.
    """
    masked = _ADDRESS.sub("@", _QUOTED.sub("'…'", message))
    masked = _DIGITS.sub("#", _IDENTIFIER.sub("#", masked))
    return f"{status} {_BLANKS.sub(' ', masked).strip()}".rstrip()
