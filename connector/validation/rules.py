"""What a job demands of a row beyond the field table; it refuses to know any row."""

from collections.abc import Collection
from dataclasses import dataclass, field

from connector.choices import IDENTITIES, ZIP_FIELDS, ZIP_POLICIES
from connector.errors import ConfigurationError
from connector.fields import SENT
from connector.validation.phones import check_region

_NAMES = tuple(sent.name for sent in SENT)
PHONE_POLICIES = ("reject", "keep")


@dataclass(frozen=True, slots=True)
class E164:
    """Phone numbers are to be sent as E.164 has them (+49301234567): one without a country's number is of `region`
    (ISO 3166-1 alpha-2). What cannot be written so is `otherwise` to `reject` its row or to be kept as it is.

    Raises ConfigurationError for a region or a word that does not exist, or if the library for it is not installed.
    """

    region: str
    otherwise: str = "reject"

    def __post_init__(self) -> None:
        object.__setattr__(self, "region", self.region.upper())
        check_region(self.region)
        _check("e164: otherwise", [self.otherwise], PHONE_POLICIES)


@dataclass(frozen=True, slots=True)
class Rules:
    """A job's demands: the `identity` field, the fields `required` of each row, and what becomes of a `zip`
    that is no number: `omit` it, `reject` its row, or keep its text in one of custom_field1 to custom_field3.
    Without `e164` a phone number is any text.

    Raises ConfigurationError for a word that is none of these.
    """

    identity: str = "email"
    required: frozenset[str] = field(default_factory=frozenset)
    zip: str = "omit"
    e164: E164 | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "required", frozenset(self.required))
        _check("identity", [self.identity], IDENTITIES)
        _check("required", sorted(self.required), _NAMES)
        _check("zip", [self.zip], ZIP_POLICIES)

    def refuse_clash(self, mapped_fields: Collection[str]) -> None:
        """Raise ConfigurationError if the field that is to hold zips is one that the mapping fills itself."""
        if self.zip in mapped_fields and self.zip in ZIP_FIELDS:
            raise ConfigurationError(
                f"zip: {self.zip} is already mapped from a column; choose another custom field, or omit or reject"
            )


def _check(key: str, words: list[str], allowed: tuple[str, ...]) -> None:
    for word in words:
        if word not in allowed:
            raise ConfigurationError(f"{key}: {word!r} is not one of {', '.join(allowed)}")
