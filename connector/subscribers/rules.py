"""The rules of a job: which column becomes which field, how a cell is read, and which fields are required.

This module imports neither pandas nor Arrow, because a job file is checked before a source is read.
"""

import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Literal, get_args

from connector.choices import IDENTITIES, ZIP_POLICIES
from connector.errors import ConfigurationError
from connector.fields import BY_NAME, SENT, Kind

if TYPE_CHECKING:
    from connector.templates import Template

# From columns to fields

MAPPABLE: tuple[str, ...] = tuple(field.name for field in SENT)
"""The fields that a column can be mapped to: all fields of a person. The job names the base in another section."""

Case = Literal["lower", "upper", "title"]


@dataclass(frozen=True, slots=True)
class ColumnRule:
    """The source of a field's values, and how they are read.

    Exactly one source is set: a `column`, a `template` over the columns of a row, or a constant `value` for all rows.
    Then these steps follow in this order, if they are set:

    - `is_trimmed` (the default): remove white space at both ends.
    - Remove an apostrophe that a program wrote before a number or a formula to protect it from spreadsheets.
    - `case`: write all letters small (`lower`) or capital (`upper`), or the first letter of each word (`title`).
    - `values`: replace whole texts. Other texts stay.
    - `format`: read dates in these formats (strptime's letters). The first format that fits is used.
    - `default`: replace an empty text.
    - `split`: cut the tags of a cell at this separator.

    Raises ConfigurationError if parts of the rule contradict each other or are invalid.
    """

    column: str | None = None
    value: str | None = None
    template: str | None = None
    is_trimmed: bool = True
    case: Case | None = None
    values: Mapping[str, str] | None = None
    format: tuple[str, ...] = ()
    default: str | None = None
    split: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "format", tuple(self.format))
        if self.values is not None:
            object.__setattr__(self, "values", MappingProxyType(dict(self.values)))
        for fault in _find_faults(self):
            raise ConfigurationError(fault)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the rule reads, without duplicates. Raises ConfigurationError for an invalid template."""
        if self.template is not None:
            return _compile(self.template).columns
        return () if self.column is None else (self.column,)


@dataclass(frozen=True, slots=True)
class FieldMapping:
    """The rules by field name, in the order of the field table. `whole_name` is a column of whole names that was mapped
    to one field because of its header.

    Raises ConfigurationError for a field that cannot be mapped, and for a rule that does not fit its field.
    """

    rules: Mapping[str, ColumnRule]
    whole_name: str | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        for name, rule in self.rules.items():
            for fault in find_misfits(name, rule):
                raise ConfigurationError(fault)
        ordered = {name: self.rules[name] for name in MAPPABLE if name in self.rules}
        object.__setattr__(self, "rules", MappingProxyType(ordered))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the rules read, without duplicates."""
        return tuple(dict.fromkeys(column for rule in self.rules.values() for column in rule.columns))


def find_mapping_faults(
    mapped: Collection[str], identity: str, required: Collection[str], zip_policy: str
) -> list[str]:
    """Return the faults of a mapping to the fields `mapped`, each with its remedy. Faults are an unmapped identity or
    required field, and a zip that would overwrite a mapped field."""
    faults = []
    if identity not in mapped:
        faults.append(f"no column is mapped to {identity}, which identifies a subscriber; map one to it")
    missing = [name for name in required if name not in mapped and name != identity]
    if missing:
        faults.append(f"no column is mapped to {', '.join(missing)}, which required names; map one or require less")
    if zip_policy in mapped:
        faults.append(
            f"zip: {zip_policy} would overwrite the values of {zip_policy}, which is mapped; choose another field"
        )
    return faults


def find_misfits(name: str, rule: ColumnRule) -> Iterator[str]:
    """Yield messages why a rule does not fit the field `name`."""
    if name not in MAPPABLE:
        yield f"no field {name!r} can be mapped; there are: {', '.join(MAPPABLE)}"
        return
    kind = BY_NAME[name].kind
    if rule.split is not None and kind is not Kind.TAGS:
        yield f"{name}: split is for tags; to use a part of a cell, write a template"
    if rule.format and kind is not Kind.DATE:
        yield f"{name}: format is for birthday"
    if not rule.is_trimmed and kind not in (Kind.TEXT, Kind.NULLABLE_TEXT):
        yield f"{name}: trim: false is for texts only; remove it"


def _find_faults(rule: ColumnRule) -> Iterator[str]:
    """Yield the faults of a rule that do not depend on its field."""
    sources = [source for source in (rule.column, rule.value, rule.template) if source is not None]
    if len(sources) != 1:
        yield "needs exactly one of column, value and template"
        return
    steps = [key for key in ("values", "split", "case", "format", "default") if getattr(rule, key)]
    if rule.value is not None and (steps or not rule.is_trimmed):
        yield f"value is a constant, so there is no cell to read: leave out {' and '.join(steps) or 'trim'}"
    if rule.case is not None and rule.case not in get_args(Case):
        yield f"case must be lower, upper or title, not {rule.case!r}"
    if "" in (rule.split, rule.default):
        yield "split and default must be at least one character"
    if rule.default and rule.values and any(not key.strip() and value for key, value in rule.values.items()):
        yield "default and the empty cell of values both replace an empty cell: keep one of them"
    for key in rule.values or {}:
        cell = key.strip() if rule.is_trimmed else key
        if (rule.case == "lower" and cell != cell.lower()) or (rule.case == "upper" and cell != cell.upper()):
            yield f"values: no cell can be {cell!r}, because case: {rule.case} is applied first; write the key in that "
            "case, too"
    texts = [rule.value, rule.default, rule.template, *(rule.values or {}).keys(), *(rule.values or {}).values()]
    if any(text != text.encode("utf-8", "replace").decode("utf-8") for text in texts if text):  # YAML's "\ud800"
        yield "the texts of a rule must be valid Unicode: one text holds half a character"
    if rule.template is not None:
        _compile(rule.template)


def _compile(template: str) -> "Template":
    """Compile a template. Raises ConfigurationError. Jinja is imported only for a mapping with a template."""
    from connector.templates import compile_template

    return compile_template(template)


def require_columns(mapping: FieldMapping, columns: Sequence[str]) -> None:
    """Raise ConfigurationError with all columns that the mapping uses and the source lacks."""
    missing = [column for column in mapping.columns if column not in columns]
    if missing:
        raise ConfigurationError("; ".join(explain_missing("column", column, columns) for column in missing))


def explain_missing(kind: str, name: str, existing: Sequence[str]) -> str:
    """Return the message for a name of this kind ("column") that does not exist, with similar existing names."""
    by_folded = {known.casefold(): known for known in existing}
    similar = [by_folded[folded] for folded in get_close_matches(name.strip().casefold(), list(by_folded), n=3)]
    hint = f" Did you mean {' or '.join(similar)}?" if similar else ""
    return f"there is no {kind} {name!r}.{hint} There are: {', '.join(existing)}"


def normalise_header(header: str) -> str:
    """Return the letters and digits of a header in lower case, without accents and other characters."""
    plain = unicodedata.normalize("NFKD", header).casefold().replace("ł", "l")
    return "".join(sign for sign in plain if sign.isalnum())


def split_header(header: str) -> str:
    """Return the words of a header in lower case and without accents, separated by one blank. A capital letter begins
    a word (`doNotEmail`)."""
    separated = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", header)
    plain = unicodedata.normalize("NFKD", separated).casefold().replace("ł", "l")
    plain = "".join(sign for sign in plain if not unicodedata.combining(sign))
    return " ".join(re.findall(r"[^\W_]+", plain))


# Requirements of a row


@dataclass(frozen=True, slots=True)
class PhoneRule:
    """The rule that phone numbers are sent in E.164 form (+49301234567). A number without a country code belongs to
    `region` (ISO 3166-1 alpha-2). If a number has no such form, `otherwise` is `reject` (its row) or `keep` (the text).

    Raises ConfigurationError for an unknown region or word, and if the phone library is not installed.
    """

    region: str
    otherwise: str = "reject"

    def __post_init__(self) -> None:
        object.__setattr__(self, "region", self.region.upper())
        if self.region not in _load_library().SUPPORTED_REGIONS:
            raise ConfigurationError(
                f"e164: there are no phone numbers of a region {self.region!r}; write two letters, such as DE"
            )
        _check("e164: otherwise", [self.otherwise], ("reject", "keep"))


@dataclass(frozen=True, slots=True)
class ValidationRules:
    """The requirements of a job: the `identity` field, and the fields that are `required` in each row.

    `zip` is the policy for a zip code that is not a number: `omit` it, `reject` its row, or name the field that gets
    its text (custom_field1 to custom_field3). Without `e164`, a phone number can be any text. Raises ConfigurationError
    for an unknown word.
    """

    identity: str = "email"
    required: frozenset[str] = field(default_factory=frozenset)
    zip: str = "omit"
    e164: PhoneRule | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "required", frozenset(self.required))
        _check("identity", [self.identity], IDENTITIES)
        _check("required", sorted(self.required), MAPPABLE)
        _check("zip", [self.zip], ZIP_POLICIES)


def _check(key: str, words: list[str], allowed: tuple[str, ...]) -> None:
    for word in words:
        if word not in allowed:
            raise ConfigurationError(f"{key}: {word!r} is not one of {', '.join(allowed)}")


@lru_cache(
    maxsize=1 << 16
)  # each number is formatted twice, by the check and by the reader; the numbers of a chunk fit in the cache
def format_phone(text: str, region: str) -> str | None:
    """Return the number in E.164 form, or None for an invalid number or a number with an extension (E.164 has none).

    A number without a leading + belongs to `region`. A call takes about 25 µs.
    """
    library = _load_library()
    try:
        number = library.parse(text, region)
    except library.NumberParseException:
        return None
    if number.extension or not library.is_valid_number(number):
        return None
    return str(library.format_number(number, library.PhoneNumberFormat.E164))


def _load_library() -> ModuleType:
    try:
        import phonenumbers
    except ImportError:
        raise ConfigurationError(
            "e164 needs a library that is not installed: pip install 'subscriber-connector[phone]'"
        ) from None
    return phonenumbers
