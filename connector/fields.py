"""The table of the subscriber fields (service-api.md 2.1), and the normal form of identities and of names of bases.

The pandera schemas, the JSON of the service, the columns of tables and the reference page follow from the table of
fields. An identity is the normal form of an email or a client_user_id (docs/glossary.md).
"""

import html
import unicodedata
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

import idna


class FieldKind(StrEnum):
    """The kind of a field's values. Types and most checks depend on the kind and not on a single field."""

    NUMBER = "number"  # int
    FLAG = "boolean"  # bool
    TEXT = "string"  # str
    NULLABLE_TEXT = "string or null"  # str; a null that was sent comes back as ""
    EMAIL = "email"  # str
    GENDER = "gender"  # "male", "female"; "" means not specified
    TAGS = "array of string"  # list[str]
    COUNTRY = "country"  # ISO 3166-1 alpha-2, upper case
    ZIP = "zip"  # int when sent, str when received
    DATE = "date"  # YYYY-MM-DD


class FieldContent(StrEnum):
    """The usual content of a field's cells. The content decides which faults of spreadsheets are corrected or refused,
    for example `4.9E+11` in place of a phone number."""

    PLAIN = "plain"  # any content that the other members do not describe, such as an address
    NAME = "name"  # any word: a person may have the name Null or True
    DIGITS = "digits"  # mostly digits: spreadsheets read the text as a number and change its digits
    ID = "id"  # an id of another system: usually digits, but any text is possible
    ANY_TEXT = "any text"  # any text, also a list or an object as JSON

    @property
    def is_digits(self) -> bool:
        """Whether the cells of such a field usually contain only digits."""
        return self in (FieldContent.DIGITS, FieldContent.ID)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a subscriber. `name` is its column name everywhere, `path` has its keys in the service's JSON, and
    `valid_values_text` describes its valid values."""

    name: str
    path: tuple[str, ...]
    kind: FieldKind
    content: FieldContent
    valid_values_text: str
    is_sent: bool = True

    @property
    def is_of_base(self) -> bool:
        """Whether the field describes the subscriber's base and not the person."""
        return self.path[0] == "Base"


FIELDS: tuple[Field, ...] = (
    Field("id", ("Id",), FieldKind.NUMBER, FieldContent.PLAIN,
          "Number that the service assigns. The connector never sends the id.", is_sent=False),
    Field("base_id", ("Base", "Id"), FieldKind.NUMBER, FieldContent.PLAIN,
          "Id of the base. A row needs base_id or base_name. If a row has both, base_id decides."),
    Field("base_name", ("Base", "Name"), FieldKind.TEXT, FieldContent.PLAIN,
          "Name of the base. A row needs base_id or base_name."),
    Field("is_active", ("IsActive",), FieldKind.FLAG, FieldContent.PLAIN,
          "`true` or `false`. Without a value, the service stores `false`."),
    Field("email", ("Email",), FieldKind.EMAIL, FieldContent.PLAIN, "Email address."),
    Field("first_name", ("FirstName",), FieldKind.TEXT, FieldContent.NAME, "Any text."),
    Field("last_name", ("LastName",), FieldKind.TEXT, FieldContent.NAME, "Any text."),
    Field("gender", ("Gender",), FieldKind.GENDER, FieldContent.PLAIN,
          "`male` or `female`. An empty value means not specified."),
    Field("phone", ("Phone",), FieldKind.TEXT, FieldContent.DIGITS, "Any text."),
    Field("tags", ("Tags",), FieldKind.TAGS, FieldContent.PLAIN, "List of texts."),
    Field("client_user_id", ("ClientUserId",), FieldKind.TEXT, FieldContent.ID,
          "Id of the subscriber in your own system."),
    Field("custom_field1", ("CustomField1",), FieldKind.TEXT, FieldContent.ANY_TEXT, "Any text."),
    Field("custom_field2", ("CustomField2",), FieldKind.TEXT, FieldContent.ANY_TEXT, "Any text."),
    Field("custom_field3", ("CustomField3",), FieldKind.TEXT, FieldContent.ANY_TEXT, "Any text."),
    Field("address_country", ("Address", "Country"), FieldKind.COUNTRY, FieldContent.PLAIN,
          "Two-letter code of ISO 3166-1, such as DE."),
    Field("address_city", ("Address", "City"), FieldKind.TEXT, FieldContent.NAME, "Any text."),
    Field("address_state", ("Address", "State"), FieldKind.NULLABLE_TEXT, FieldContent.PLAIN,
          "Any text. If null is sent, the service returns an empty text."),
    Field("address_zip", ("Address", "Zip"), FieldKind.ZIP, FieldContent.DIGITS,
          "Sent as a number, and returned by the service as a text. See `subscriber.zip`."),
    Field("address_line1", ("Address", "Line1"), FieldKind.TEXT, FieldContent.PLAIN, "Any text."),
    Field("address_line2", ("Address", "Line2"), FieldKind.TEXT, FieldContent.PLAIN, "Any text."),
    Field("address_line3", ("Address", "Line3"), FieldKind.NULLABLE_TEXT, FieldContent.PLAIN,
          "Any text. If null is sent, the service returns an empty text."),
    Field("birthday", ("Birthday",), FieldKind.DATE, FieldContent.PLAIN, "Date: YYYY-MM-DD."),
)  # fmt: skip

FIELD_NAMES: tuple[str, ...] = tuple(field.name for field in FIELDS)
FIELD_BY_NAME: dict[str, Field] = {field.name: field for field in FIELDS}
SENT_FIELDS: tuple[Field, ...] = tuple(field for field in FIELDS if field.is_sent and not field.is_of_base)
"""The fields that describe the person and may be sent: all fields except the id and the base."""
LARGEST_ID = 2**63 - 1
"""The largest id that fits into the 64-bit columns of the ledger and of warehouses."""


def find_wire_name(field: Field) -> str:
    """Return the field's name in service-api.md, for messages: `Address.Zip`."""
    return ".".join(field.path)


# Functions for identities and for names of bases

IDENTITY_RULE_VERSION = 1
"""The version of the rules for identities. A ledger records the version with which it was written."""


@lru_cache(maxsize=65536)  # most addresses of a list have one of a few domains
def _normalise_domain(domain: str) -> str:
    lower_domain = unicodedata.normalize("NFC", domain).lower()
    if lower_domain.isascii():
        return lower_domain
    try:
        return idna.encode(lower_domain, uts46=True).decode("ascii")
    except idna.IDNAError:
        return lower_domain  # the validation of rows refuses an invalid domain


def normalise_email(email: str) -> str:
    """Return an address trimmed, in NFC and in lower case, with its domain as an A-label. A text without an @ is
    returned trimmed, in NFC and in lower case."""
    text = unicodedata.normalize("NFC", unicodedata.normalize("NFC", email.strip()).lower())
    local_part, at_sign, domain = text.rpartition("@")
    return f"{local_part}@{_normalise_domain(domain)}" if at_sign else text


@lru_cache(maxsize=4096)  # each listed subscriber repeats the name of its base
def fold_base_name(name: str) -> str:
    """Return the normal form of a base's name: in NFKC, case-folded, trimmed, with single blanks, and without HTML
    entities. All spellings of a name have the same normal form (architecture 2)."""
    text, unescaped_text = name, html.unescape(name)
    while unescaped_text != text:  # a name may be escaped twice: `&amp;amp;`
        text, unescaped_text = unescaped_text, html.unescape(unescaped_text)
    return " ".join(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).split())


_MIN_LENGTH_OF_NAME_CUT_BETWEEN_WORDS = 20
"""If a listed name has at least this many characters, it may be a longer name that the service has cut off between two
words. `Kunden` is shorter, so `Kunden` and `Kunden 2025` are different bases."""
_MIN_LENGTH_OF_NAME_CUT_INSIDE_WORD = 10
"""If a listed name has at least this many characters, it may be a longer name that the service has cut off inside a
word. `News` is shorter, so `News` and `Newsletter` are different bases."""
_PLAIN_LETTERS_BY_SPECIAL_LETTER = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ħ": "h", "ı": "i", "æ": "ae", "œ": "oe"}
)


def is_similar_base_name(requested_name: str, listed_name: str) -> bool:
    """Return whether both names may be names of the same base. This is possible if the names differ only in accents, or
    if the listed name may be the requested name without its end, because the service cuts off long names."""
    requested_letters, listed_letters = _remove_accents(requested_name), _remove_accents(listed_name)
    if requested_letters == listed_letters:
        return True
    cut_name = listed_letters.rstrip("\ufffd.… ")
    if not requested_letters.startswith(cut_name):
        return False
    is_cut_inside_word = cut_name[-1:].isalnum() and requested_letters[len(cut_name) : len(cut_name) + 1].isalnum()
    return len(cut_name) >= (
        _MIN_LENGTH_OF_NAME_CUT_INSIDE_WORD if is_cut_inside_word else _MIN_LENGTH_OF_NAME_CUT_BETWEEN_WORDS
    )


def _remove_accents(name: str) -> str:
    decomposed_text = unicodedata.normalize("NFKD", fold_base_name(name)).translate(_PLAIN_LETTERS_BY_SPECIAL_LETTER)
    return "".join(character for character in decomposed_text if unicodedata.category(character) not in ("Mn", "Cf"))


def normalise_identity(field: str, identity_text: str) -> str:
    """Return the normal form of an identity. `field` is email or client_user_id."""
    return normalise_email(identity_text) if field == "email" else identity_text.strip()


@dataclass(frozen=True, slots=True)
class BaseRef:
    """The base that a job or a row names, by its id or by its name."""

    service_id: int | None = None
    name: str | None = None
