"""What a job says of its columns and its rows: which column becomes which field, how a cell is read, what is required.

It knows no row and imports neither pandas nor Arrow: a job file is checked by these rules before anything is read.
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
"""The fields that a column may become: all that describe the person. The base is the job's to say."""

Case = Literal["lower", "upper", "title"]


@dataclass(frozen=True, slots=True)
class ColumnRule:
    """Where one field's values come from, and how they are read.

    They come from exactly one of: a `column` of the source, a `template` over the columns of a row, one constant
    `value` for all rows. What comes goes through these steps, in this order, each only if given:

    - `is_trimmed` (the default): white space at both ends is dropped.
    - An apostrophe that a program wrote before a number or a formula, so that no spreadsheet changes it, is dropped.
    - `case`: all letters small (`lower`) or capital (`upper`), or the first one of each word (`title`).
    - `values` replaces whole texts; one that it does not name stays as it is.
    - `format`: the ways in which the source writes a date (strptime's letters); the first that fits counts.
    - `default` stands for what is empty by now.
    - `split`: what separates the tags in a cell.

    Raises ConfigurationError for what makes no sense.
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
        """The source's columns that are read, each once. Raises ConfigurationError for a template that fails."""
        if self.template is not None:
            return _compile(self.template).columns
        return () if self.column is None else (self.column,)


@dataclass(frozen=True, slots=True)
class FieldMapping:
    """The rules by field name, in the order of the field table. `whole_name` is a column that seems to hold whole
    names, and that one field got whole because of its header.

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
        """The source's columns that are used, each once."""
        return tuple(dict.fromkeys(column for rule in self.rules.values() for column in rule.columns))


def find_mapping_faults(
    mapped: Collection[str], identity: str, required: Collection[str], zip_policy: str
) -> list[str]:
    """Return why a mapping to the fields `mapped` cannot serve: an identity or a required field that nothing fills, a
    zip that would go where another column goes already. Each fault says what to do; an empty list is a clean bill."""
    faults = []
    if identity not in mapped:
        faults.append(f"no column is mapped to {identity}, which identifies a subscriber; map one to it")
    missing = [name for name in required if name not in mapped and name != identity]
    if missing:
        faults.append(f"no column is mapped to {', '.join(missing)}, which required names; map one or require less")
    if zip_policy in mapped:
        faults.append(f"zip: {zip_policy} would overwrite what is mapped to {zip_policy}; choose a free field")
    return faults


def find_misfits(name: str, rule: ColumnRule) -> Iterator[str]:
    """Yield why a rule does not fit the field `name`, in words."""
    if name not in MAPPABLE:
        yield f"no field {name!r} can be mapped; there are: {', '.join(MAPPABLE)}"
        return
    kind = BY_NAME[name].kind
    if rule.split is not None and kind is not Kind.TAGS:
        yield f"{name}: split is for tags; to take a part of a cell write a template"
    if rule.format and kind is not Kind.DATE:
        yield f"{name}: format is for birthday"
    if not rule.is_trimmed and kind not in (Kind.TEXT, Kind.NULLABLE_TEXT):
        yield f"{name}: trim: false is for texts, and would only spoil this field"


def _find_faults(rule: ColumnRule) -> Iterator[str]:
    """Yield what is wrong with a rule, whatever its field."""
    sources = [each for each in (rule.column, rule.value, rule.template) if each is not None]
    if len(sources) != 1:
        yield "needs exactly one of column, value and template"
        return
    steps = [key for key in ("values", "split", "case", "format", "default") if getattr(rule, key)]
    if rule.value is not None and (steps or not rule.is_trimmed):
        yield f"beside value there is no cell to read: leave out {' and '.join(steps) or 'trim'}"
    if rule.case is not None and rule.case not in get_args(Case):
        yield f"case must be lower, upper or title, not {rule.case!r}"
    if "" in (rule.split, rule.default):
        yield "split and default must be at least one character"
    if rule.default and rule.values and any(not key.strip() and value for key, value in rule.values.items()):
        yield "default and the empty cell of values both say what becomes of an empty cell: keep one of them"
    for key in rule.values or {}:
        cell = key.strip() if rule.is_trimmed else key
        if (rule.case == "lower" and cell != cell.lower()) or (rule.case == "upper" and cell != cell.upper()):
            yield f"values: no cell is {cell!r} by then, since case: {rule.case} goes before; write it so, too"
    texts = [rule.value, rule.default, rule.template, *(rule.values or {}).keys(), *(rule.values or {}).values()]
    if any(text != text.encode("utf-8", "replace").decode("utf-8") for text in texts if text):  # YAML's "\ud800"
        yield "what a rule puts into a field must be text that can be sent: one text holds half a character"
    if rule.template is not None:
        _compile(rule.template)


def _compile(template: str) -> "Template":
    """Jinja is imported only for a mapping that has a template. Raises ConfigurationError."""
    from connector.templates import compile_template

    return compile_template(template)


def require_columns(mapping: FieldMapping, columns: Sequence[str]) -> None:
    """Raise ConfigurationError, naming every column that the mapping uses and the source does not have."""
    missing = [column for column in mapping.columns if column not in columns]
    if missing:
        raise ConfigurationError("; ".join(explain_missing("column", column, columns) for column in missing))


def explain_missing(what: str, name: str, there_are: Sequence[str]) -> str:
    """Return the message for a name that does not exist, with the nearest of those that do."""
    by_folded = {known.casefold(): known for known in there_are}
    close = [by_folded[folded] for folded in get_close_matches(name.strip().casefold(), list(by_folded), n=3)]
    meant = f" Did you mean {' or '.join(close)}?" if close else ""
    return f"there is no {what} {name!r}.{meant} There are: {', '.join(there_are)}"


def normalise_header(header: str) -> str:
    """Return the header's letters and digits alone, in lower case, without accents."""
    plain = unicodedata.normalize("NFKD", header).casefold().replace("ł", "l")
    return "".join(sign for sign in plain if sign.isalnum())


def split_header(header: str) -> str:
    """Return the header's words in lower case, without accents, with one blank between two words. A capital letter
    begins a word (`doNotEmail`)."""
    parted = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", header)
    plain = unicodedata.normalize("NFKD", parted).casefold().replace("ł", "l")
    plain = "".join(sign for sign in plain if not unicodedata.combining(sign))
    return " ".join(re.findall(r"[^\W_]+", plain))


# What a row must hold


@dataclass(frozen=True, slots=True)
class PhoneRule:
    """Phone numbers are to be sent as E.164 has them (+49301234567): one without a country's number is of `region`
    (ISO 3166-1 alpha-2). What cannot be written so is `otherwise` to `reject` its row or to be kept as it is.

    Raises ConfigurationError for a region or a word that does not exist, or if the library for it is not installed.
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
    """A job's demands: the `identity` field, the fields `required` of each row, and what becomes of a `zip`
    that is no number: `omit` it, `reject` its row, or keep its text in one of custom_field1 to custom_field3.
    Without `e164` a phone number is any text.

    Raises ConfigurationError for any other word.
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


@lru_cache(maxsize=1 << 16)  # each is asked for twice, when it is judged and when it is written: a chunk fits in
def format_phone(text: str, region: str) -> str | None:
    """Return the number in E.164 form, None for what is no valid number or has an extension, which E.164 would lose.

    One without a leading + is of `region`. It takes about 25 µs.
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
