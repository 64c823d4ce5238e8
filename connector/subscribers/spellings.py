"""The spellings of an identity in look-ups, and the traits of a text: all that is unusual in the text, such as
capitals.

The service's filter may fail only for texts with certain traits. Examples are texts with capitals, and texts with a
plus that the service decodes as a blank. So a proof that the filter works for one text is valid only for texts with the
same traits.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from connector.fields import normalise_email, normalise_identity

_PLAIN_PATTERN_BY_FIELD = {
    "email": re.compile(r"[a-z0-9._-]+@(?!xn--)[a-z0-9-]+(\.(?!xn--)[a-z0-9-]+)*"),
    "client_user_id": re.compile(r"(?!0)[0-9]*[a-z._-][a-z0-9._-]*"),
}
_PLAIN_CHARACTERS = frozenset("._-")

CAPITAL_TRAITS = frozenset({"local: capitals", "domain: capitals"})
"""The traits of an email with capital letters before the @ (`local`) or after the @ (`domain`)."""


@dataclass(frozen=True, slots=True)
class TextTraits:
    """The traits of a text in a field: all that is unusual in the text, such as capitals or a plus. A plain text has no
    traits. A filter should treat all texts of a field with the same traits alike."""

    field: str
    traits: frozenset[str]


def build_spellings(field: str, identity_text: str) -> tuple[str, ...]:
    """Return the texts that a look-up of an identity uses, without duplicates (architecture 4.5). `field` is email or
    client_user_id. `identity_text` is the identity as it was sent.

    The texts are the `identity_text` and its normal form. An email also has a text with a normalised domain:
    `Ann@Müller.example` → `Ann@Müller.example`, `ann@xn--mller-kva.example`, `Ann@xn--mller-kva.example`.
    """
    if field != "email":
        return tuple(dict.fromkeys((identity_text, normalise_identity(field, identity_text))))
    normal_form = normalise_email(identity_text)
    local_part, at_sign, _ = identity_text.rpartition("@")
    normalised_domain_spelling = f"{local_part}@{normal_form.rpartition('@')[2]}" if at_sign else normal_form
    return tuple(dict.fromkeys((identity_text, normalised_domain_spelling, normal_form)))


def find_text_traits(field: str, text: str) -> TextTraits:
    """Return the traits of this text of the field."""
    if is_plain_spelling(field, text):
        return TextTraits(field, frozenset())
    if field != "email":
        return TextTraits(field, find_non_email_traits(text))
    local_part, at_sign, domain = text.rpartition("@")
    if not at_sign:
        return TextTraits(field, frozenset(("no @", *_iterate_traits(text))))
    address_parts = (("local", local_part), ("domain", domain))
    traits = {f"{name}: {trait}" for name, address_part in address_parts for trait in _iterate_traits(address_part)}
    if any(label.startswith("xn--") for label in domain.lower().split(".")):
        traits.add("domain: A-label")
    return TextTraits(field, frozenset(traits))


def is_plain_spelling(field: str, text: str) -> bool:
    """Return true if a fast test shows that the text has no traits (see `TextTraits`). The test is enough for nearly
    all texts."""
    return _PLAIN_PATTERN_BY_FIELD[field].fullmatch(text) is not None


def spellings_differ_only_in_case(field: str, identity_text: str) -> bool:
    """Return whether all spellings of this identity differ only in upper and lower case.

    Return false for an email with a letter beyond ASCII, because the service may store the letter in several forms.
    """
    if field != "email":
        return True
    normal_form = normalise_email(identity_text)
    return normal_form.isascii() and "domain: A-label" not in find_text_traits("email", normal_form).traits


def find_non_email_traits(text: str) -> frozenset[str]:
    """Return the traits of a text that is not an email. A plain text has no traits."""
    traits = set(_iterate_traits(text))
    if text.isascii() and text.isdigit():
        traits.add("digits only")
    if text.startswith("0"):
        traits.add("leading zero")
    return frozenset(traits)


def _iterate_traits(text: str) -> Iterator[str]:
    if text != text.lower():
        yield "capitals"
    if not text.isascii():
        yield "beyond ASCII"
        if unicodedata.normalize("NFC", text) != text:
            yield "not composed"
        if max(text) > "\uffff":  # such a character needs four bytes in UTF-8, which some databases cannot store
            yield "beyond 16 bits"
    yield from {character for character in text if character.isascii() and not character.isalnum()} - _PLAIN_CHARACTERS
