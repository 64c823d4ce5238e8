"""How an identity is spelt when it is asked for, and to which class each spelling belongs. Pure.

A service's filter may fail for one class of texts alone (capitals, a plus that it decodes as a blank): what is known of
one spelling is known of its class, and of no other.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from connector.fields.identity import normalise_client_user_id, normalise_email

_PLAIN = {
    "email": re.compile(r"[a-z0-9._-]+@(?!xn--)[a-z0-9-]+(\.(?!xn--)[a-z0-9-]+)*"),
    "client_user_id": re.compile(r"(?!0)[0-9]*[a-z._-][a-z0-9._-]*"),
}
_PLAIN_CHARACTERS = frozenset("._-")
_LARGEST_16_BITS = "\uffff"  # what lies beyond needs four bytes in UTF-8, for which some databases have no room

CAPITALS = frozenset({"local: capitals", "domain: capitals"})
"""The traits of an email that has capitals."""


@dataclass(frozen=True, slots=True)
class SpellingClass:
    """Texts of one field that a filter is taken to treat alike; `traits` is empty for the plain ones."""

    field: str
    traits: frozenset[str]


def build_spellings(field: str, value: str) -> tuple[str, ...]:
    """The texts to ask for, each different: as sent, with its domain normalised, and as normalised (design 4.5).

    `field` is email or client_user_id, `value` the identity as it was sent.
    """
    if field != "email":
        return tuple(dict.fromkeys((value, normalise_client_user_id(value))))
    normal = normalise_email(value)
    local, at, _ = value.rpartition("@")
    half = f"{local}@{normal.rpartition('@')[2]}" if at else normal
    return tuple(dict.fromkeys((value, half, normal)))


def classify(field: str, text: str) -> SpellingClass:
    """The class of a text that is asked for in this field."""
    if is_plain(field, text):
        return SpellingClass(field, frozenset())
    if field != "email":
        return SpellingClass(field, frozenset(_find_key_traits(text)))
    local, at, domain = text.rpartition("@")
    if not at:
        return SpellingClass(field, frozenset(("no @", *_find_traits(text))))
    parts = (("local", local), ("domain", domain))
    found = {f"{name}: {trait}" for name, part in parts for trait in _find_traits(part)}
    if any(label.startswith("xn--") for label in domain.lower().split(".")):
        found.add("domain: A-label")
    return SpellingClass(field, frozenset(found))


def describe_spelling(text: str) -> frozenset[str]:
    """The traits of a text of any field; none for a plain one."""
    return frozenset(_find_key_traits(text))


def is_plain(field: str, text: str) -> bool:
    """Whether its class has no traits; spares finding out which, for nearly all texts."""
    return _PLAIN[field].fullmatch(text) is not None


def has_spellings_by_case_alone(field: str, value: str) -> bool:
    """Whether all who bear this identity spell it alike, upper and lower case apart.

    Letters beyond ASCII have several forms that a service may keep, and so has a domain that holds them.
    """
    if field != "email":
        return True
    normal = normalise_email(value)
    return normal.isascii() and "domain: A-label" not in classify("email", normal).traits


def _find_key_traits(text: str) -> Iterator[str]:
    yield from _find_traits(text)
    if text.isascii() and text.isdigit():
        yield "digits only"
    if text.startswith("0"):
        yield "leading zero"


def _find_traits(text: str) -> Iterator[str]:
    if text != text.lower():
        yield "capitals"
    if not text.isascii():
        yield "beyond ASCII"
        if unicodedata.normalize("NFC", text) != text:
            yield "not composed"
        if max(text) > _LARGEST_16_BITS:
            yield "beyond 16 bits"
    yield from {each for each in text if each.isascii() and not each.isalnum()} - _PLAIN_CHARACTERS
