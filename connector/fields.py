"""One line for each subscriber field, and what makes two rows the same subscriber.

The pandera schemas, the JSON of the service, the columns of tables and the reference page derive from the table
(service-api.md 2.1). An identity is the normal form of an email or a client_user_id (architecture 3).
"""

import html
import unicodedata
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

import idna


class Kind(StrEnum):
    """What the values of a field are; each edge knows how to hold one kind, never one field."""

    NUMBER = "number"  # int
    FLAG = "boolean"  # bool
    TEXT = "string"  # str
    NULLABLE_TEXT = "string or null"  # str; a null sent comes back as ""
    EMAIL = "email"  # str
    GENDER = "gender"  # "male", "female"; "" means not specified
    TAGS = "array of string"  # list[str]
    COUNTRY = "country"  # ISO 3166-1 alpha-2, upper case
    ZIP = "zip"  # int when sent, str when received
    DATE = "date"  # YYYY-MM-DD


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a subscriber: `name` is its column everywhere, `path` its place in the service's JSON."""

    name: str
    path: tuple[str, ...]
    kind: Kind
    rule: str
    is_sent: bool = True

    @property
    def is_of_base(self) -> bool:
        """Whether the field names the subscriber's base rather than the person."""
        return self.path[0] == "Base"


FIELDS: tuple[Field, ...] = (
    Field("id", ("Id",), Kind.NUMBER, "Number that the service assigns. It is never sent.", is_sent=False),
    Field(
        "base_id",
        ("Base", "Id"),
        Kind.NUMBER,
        "Id of the base. A row needs base_id or base_name; with both, base_id counts.",
    ),
    Field("base_name", ("Base", "Name"), Kind.TEXT, "Name of the base. A row needs base_id or base_name."),
    Field("is_active", ("IsActive",), Kind.FLAG, "true or false. Without a value, the service stores false."),
    Field("email", ("Email",), Kind.EMAIL, "Email address."),
    Field("first_name", ("FirstName",), Kind.TEXT, "Any text."),
    Field("last_name", ("LastName",), Kind.TEXT, "Any text."),
    Field("gender", ("Gender",), Kind.GENDER, "male or female. Empty: not specified."),
    Field("phone", ("Phone",), Kind.TEXT, "Any text."),
    Field("tags", ("Tags",), Kind.TAGS, "List of texts."),
    Field("client_user_id", ("ClientUserId",), Kind.TEXT, "Id of the subscriber in your own system."),
    Field("custom_field1", ("CustomField1",), Kind.TEXT, "Any text."),
    Field("custom_field2", ("CustomField2",), Kind.TEXT, "Any text."),
    Field("custom_field3", ("CustomField3",), Kind.TEXT, "Any text."),
    Field("address_country", ("Address", "Country"), Kind.COUNTRY, "Two-letter code of ISO 3166-1, such as DE."),
    Field("address_city", ("Address", "City"), Kind.TEXT, "Any text."),
    Field(
        "address_state",
        ("Address", "State"),
        Kind.NULLABLE_TEXT,
        "Any text. The service returns null as an empty text.",
    ),
    Field(
        "address_zip",
        ("Address", "Zip"),
        Kind.ZIP,
        "A number when it is sent, a text when it is read. See `subscriber.zip`.",
    ),
    Field("address_line1", ("Address", "Line1"), Kind.TEXT, "Any text."),
    Field("address_line2", ("Address", "Line2"), Kind.TEXT, "Any text."),
    Field(
        "address_line3",
        ("Address", "Line3"),
        Kind.NULLABLE_TEXT,
        "Any text. The service returns null as an empty text.",
    ),
    Field("birthday", ("Birthday",), Kind.DATE, "Date: YYYY-MM-DD."),
)

DIGIT_FIELDS = frozenset({"phone", "client_user_id", "address_zip"})
"""Fields of texts that are mostly digits. Spreadsheets take such texts for numbers and change them."""

NAME_FIELDS = frozenset({"first_name", "last_name", "address_city"})
"""Fields of names, which may be any word: also a word that programs write for a missing value, or for yes."""

FREE_FIELDS = frozenset({"custom_field1", "custom_field2", "custom_field3"})
"""Fields that may hold any text, also a list or an object as JSON."""

NAMES: tuple[str, ...] = tuple(field.name for field in FIELDS)
BY_NAME: dict[str, Field] = {field.name: field for field in FIELDS}
SENT: tuple[Field, ...] = tuple(field for field in FIELDS if field.is_sent and not field.is_of_base)
"""The fields that describe the person and may be sent: all but the id and the base."""
LARGEST_ID = 2**63 - 1
"""Ids are kept in 64-bit columns of the ledger and of warehouses; a larger one could not be kept as it is."""


def wire_name(field: Field) -> str:
    """Return the field as service-api.md writes it, as messages show it: `Address.Zip`."""
    return ".".join(field.path)


# Identities and bases

IDENTITY_RULE = 1
"""The version of these rules; a ledger records the one it was written under."""


@lru_cache(maxsize=65536)  # domains repeat: a handful make up most of any list
def _normalise_domain(domain: str) -> str:
    lowered = unicodedata.normalize("NFC", domain).lower()
    if lowered.isascii():
        return lowered
    try:
        return idna.encode(lowered, uts46=True).decode("ascii")
    except idna.IDNAError:
        return lowered  # no valid domain: it stays itself, and validation has its say elsewhere


def normalise_email(email: str) -> str:
    """Return an address trimmed, in NFC and lower case, its domain as an A-label; a text without an @ likewise."""
    text = unicodedata.normalize("NFC", unicodedata.normalize("NFC", email.strip()).lower())
    local, at, domain = text.rpartition("@")
    return f"{local}@{_normalise_domain(domain)}" if at else text


@lru_cache(maxsize=4096)  # each listed subscriber has the name of a base
def fold_base_name(name: str) -> str:
    """Return the text that all spellings of a base's name share (architecture 2): in NFKC, case-folded, with single
    blanks inside and none around, and without HTML entities."""
    folded, unescaped = name, html.unescape(name)
    while unescaped != folded:  # `&amp;amp;`
        folded, unescaped = unescaped, html.unescape(unescaped)
    return " ".join(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", folded).casefold()).split())


_SHORTEST_CUT = 20
"""Characters of a name that may have been cut off between two words: `Kunden` is another base than `Kunden 2025`."""
_SHORTEST_CUT_WORD = 10
"""Characters of a name that may have been cut off inside a word: `News` is another base than `Newsletter`."""
_WITHOUT_MARK = str.maketrans({"ø": "o", "ł": "l", "đ": "d", "ħ": "h", "ı": "i", "æ": "ae", "œ": "oe"})


def is_similar_base_name(asked: str, listed: str) -> bool:
    """Return whether a service may take one name for the other, though they are not equal when folded: they differ in
    accents only, or the listed name may be the asked name cut off."""
    asked_letters, listed_letters = _drop_accents(asked), _drop_accents(listed)
    if asked_letters == listed_letters:
        return True
    cut = listed_letters.rstrip("\ufffd.… ")
    if not asked_letters.startswith(cut):
        return False
    is_in_word = cut[-1:].isalnum() and asked_letters[len(cut) : len(cut) + 1].isalnum()
    return len(cut) >= (_SHORTEST_CUT_WORD if is_in_word else _SHORTEST_CUT)


def _drop_accents(name: str) -> str:
    decomposed = unicodedata.normalize("NFKD", fold_base_name(name)).translate(_WITHOUT_MARK)
    return "".join(each for each in decomposed if unicodedata.category(each) not in ("Mn", "Cf"))


def normalise_identity(field: str, value: str) -> str:
    """Return the normal form of `value` under the rule of the identity's `field` (email or client_user_id)."""
    return normalise_email(value) if field == "email" else value.strip()


@dataclass(frozen=True, slots=True)
class BaseRef:
    """A base as a job or a row names it: by its id, or else by its name."""

    service_id: int | None = None
    name: str | None = None
