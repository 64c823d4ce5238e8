"""The filters of the list (api.md 4.3): read from the query, and matched as the switches say."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from connector.sandbox.rejection import RejectedError

TEXT_FILTERS = ("ClientUserId", "Email", "FirstName", "LastName")
CHARACTER_CLASSES = ("capitals", "plus", "non_ascii")
FILTERS = ("Id", "BaseId", *TEXT_FILTERS, "IsActive", "Gender")


@dataclass(frozen=True, slots=True)
class Filter:
    """One filter: a parameter's name and the value to be matched (int for Id and BaseId, bool for IsActive)."""

    name: str
    value: int | bool | str


def parse_filter(name: str, text: str) -> Filter:
    """A filter of the query; raises RejectedError when its value is of the wrong type."""
    if name in ("Id", "BaseId"):
        return Filter(name, parse_int(name, text))
    if name == "IsActive":
        if text not in ("0", "1"):
            raise RejectedError("IsActive must be 0 or 1")
        return Filter(name, text == "1")
    if name == "Gender" and text not in ("", "male", "female"):
        raise RejectedError("Gender must be male, female or empty")
    return Filter(name, text)


def parse_int(name: str, text: str) -> int:
    """A whole number of the query."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
        raise RejectedError(f"{name} must be a whole number")
    return int(text)


def _match_text(mode: str, held: str, wanted: str) -> bool:
    if mode == "partial":
        return wanted.lower() in held.lower()
    return held.lower() == wanted.lower() if mode == "icase" else held == wanted


def matches(each: Filter, mode: str, subscriber: dict[str, Any]) -> bool:
    """Whether a subscriber passes a filter; `mode` (exact, partial, icase) concerns the texts alone."""
    if each.name == "Id":
        return bool(subscriber["Id"] == each.value)
    if each.name == "BaseId":
        return bool(subscriber["Base"]["Id"] == each.value)
    if each.name in TEXT_FILTERS:
        return _match_text(mode, subscriber.get(each.name) or "", str(each.value))
    return bool(subscriber[each.name] == each.value)


def is_blind(each: Filter, classes: tuple[str, ...]) -> bool:
    """Whether a text filter's value has characters of one of the classes, so that it finds nothing."""
    if each.name not in TEXT_FILTERS:
        return False
    text = str(each.value)
    found = {"capitals": text != text.lower(), "plus": "+" in text, "non_ascii": not text.isascii()}
    return any(found[name] for name in classes)


def build_test(filters: tuple[Filter, ...], mode: str, combine: str) -> Callable[[dict[str, Any]], bool]:
    """A test of all filters together: every one must match, or with combine=any one of them."""
    join = any if combine == "any" else all
    return lambda subscriber: join(matches(each, mode, subscriber) for each in filters)
