"""The spellings of an identity in look-ups, and the kind of each spelling.

The service's filter may fail only for some kinds of texts. Examples are texts with capitals, and texts with a plus that
the service decodes as a blank. So a proof that the filter works for one spelling is valid only for spellings of the
same kind.
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
class SpellingKind:
    """A kind of spelling: texts of one field that a filter should treat alike. `traits` has all that is unusual in
    these texts, such as capitals or a plus. Plain texts have no traits."""

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


def classify_spelling(field: str, text: str) -> SpellingKind:
    """Return which kind of spelling this text of the field has."""
    if is_plain_spelling(field, text):
        return SpellingKind(field, frozenset())
    if field != "email":
        return SpellingKind(field, describe_spelling(text))
    local_part, at_sign, domain = text.rpartition("@")
    if not at_sign:
        return SpellingKind(field, frozenset(("no @", *_find_traits(text))))
    address_parts = (("local", local_part), ("domain", domain))
    traits = {f"{name}: {trait}" for name, address_part in address_parts for trait in _find_traits(address_part)}
    if any(label.startswith("xn--") for label in domain.lower().split(".")):
        traits.add("domain: A-label")
    return SpellingKind(field, frozenset(traits))


def is_plain_spelling(field: str, text: str) -> bool:
    """Return true if a fast test shows that the text has no traits (see `SpellingKind`). The test is enough for nearly
    all texts."""
    return _PLAIN_PATTERN_BY_FIELD[field].fullmatch(text) is not None


def spellings_differ_only_in_case(field: str, identity_text: str) -> bool:
    """Return whether all spellings of this identity differ only in upper and lower case.

    Return false for an email with a letter beyond ASCII, because the service may store the letter in several forms.
    """
    if field != "email":
        return True
    normal_form = normalise_email(identity_text)
    return normal_form.isascii() and "domain: A-label" not in classify_spelling("email", normal_form).traits


def describe_spelling(text: str) -> frozenset[str]:
    """Return the traits of a text that is not an email. A plain text has no traits."""
    traits = set(_find_traits(text))
    if text.isascii() and text.isdigit():
        traits.add("digits only")
    if text.startswith("0"):
        traits.add("leading zero")
    return frozenset(traits)


def _find_traits(text: str) -> Iterator[str]:
    if text != text.lower():
        yield "capitals"
    if not text.isascii():
        yield "beyond ASCII"
        if unicodedata.normalize("NFC", text) != text:
            yield "not composed"
        if max(text) > "\uffff":  # such a character needs four bytes in UTF-8, which some databases cannot store
            yield "beyond 16 bits"
    yield from {character for character in text if character.isascii() and not character.isalnum()} - _PLAIN_CHARACTERS
