"""The key `subscriber` of a job: the base of the rows, and the source of each field."""

from collections.abc import Mapping
from datetime import date, datetime
from difflib import get_close_matches
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from connector.errors import ConfigurationError
from connector.fields import FIELD_BY_NAME, FIELDS, SENT_FIELDS, BaseRef, find_wire_name
from connector.jobs.key_types import ColumnName, JobModel, Name, accept_short_form
from connector.subscribers.rules import BaseColumn, Case, ColumnRule, find_kind_faults, parse_base

ZipPolicy = Literal["omit", "reject", "custom_field1", "custom_field2", "custom_field3"]

_SENT_FIELD_NAMES = tuple(field.name for field in SENT_FIELDS)
_NAME_BY_WIRE_NAME = {find_wire_name(field).casefold(): field.name for field in FIELDS}
_SAMPLE_DAY = date(1987, 6, 25)  # the numbers of its year, month and day cannot be confused
_OTHER_YEAR_DAY = date(2015, 6, 25)  # month, day and weekday of _SAMPLE_DAY in another year


def check_field_name(name: str) -> str:
    """Return `name` if a row can fill the field. Raises ValueError. The message proposes a field name."""
    if name in _SENT_FIELD_NAMES:
        return name
    known_field = FIELD_BY_NAME.get(_NAME_BY_WIRE_NAME.get(name.casefold(), name))
    if known_field is not None and not known_field.is_sent:
        raise ValueError(f"the service assigns the field `{name}`, and a job cannot send this field")
    if known_field is not None and known_field.is_of_base:
        raise ValueError(f"{name} is not a field of a subscriber: set the base under subscriber.base")
    similar_names = [known_field.name] if known_field is not None else get_close_matches(name, _SENT_FIELD_NAMES, n=1)
    hint = f"; did you mean {similar_names[0]}?" if similar_names else "."
    raise ValueError(f"there is no such field{hint} Allowed here: {', '.join(_SENT_FIELD_NAMES)}")


def _read_null_as_empty(value: Any) -> Any:
    return "" if value is None else value


def _format_boolean(value: Any) -> Any:
    """Return the text of a boolean. A job that was built in Python may have True, but the `true` of a file is already a
    text."""
    return str(value).lower() if isinstance(value, bool) else value


FieldName = Annotated[str, AfterValidator(check_field_name)]
Constant = Annotated[str | None, BeforeValidator(_format_boolean)]
Cell = Annotated[str, BeforeValidator(_read_null_as_empty)]


def _check_region(value: str) -> str:
    if len(value) != 2 or not (value.isascii() and value.isalpha()):
        raise ValueError("must be two letters, such as DE")
    return value.upper()


class PhoneForm(JobModel):
    """The form of phone numbers. `e164: DE` is short for `e164: {region: DE}`."""

    region: Annotated[str, AfterValidator(_check_region)] = Field(
        description="Country of numbers without a country code, as two letters such as DE."
    )
    otherwise: Literal["reject", "keep"] = Field(
        default="reject",
        description="What to do with an invalid number. `reject`: the row is invalid; `keep`: send the number as it "
        "is.",
    )


def _wrap_in_list(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


DateFormats = Annotated[tuple[str, ...], BeforeValidator(_wrap_in_list)]


class FieldRule(JobModel):
    """The source of one field, and the steps that read its cells. `ColumnRule` describes the steps and their order."""

    column: ColumnName | None = Field(
        default=None, description="Column that fills the field. Set one of `column`, `template` and `value`."
    )
    template: str | None = Field(
        default=None,
        min_length=1,
        description='Template over the row\'s columns that fills the field, such as "{{ first }} {{ last }}". Set one '
        "of `column`, `template` and `value`.",
    )
    value: Constant = Field(
        default=None,
        description="Constant that fills the field in every row. Set one of `column`, `template` and `value`.",
    )
    trim: bool = Field(default=True, description="Remove white space at both ends of a cell.")
    case: Case | None = Field(
        default=None,
        description="Change the case of letters: `lower`, `upper` or `title` (the first letter of each word). Without "
        "this key, no change.",
    )
    values: dict[str, Cell] | None = Field(
        default=None,
        description="Replacement of each cell, as pairs `cell: value`. A cell that is not listed is not changed. "
        "Without this key, no replacement.",
    )
    format: DateFormats = Field(
        default=(),
        description="For `birthday`: the source's date format, such as %d/%m/%Y, or a list of formats that are tried "
        "in order. Without this key, %Y-%m-%d.",
    )
    default: Constant = Field(
        default=None,
        min_length=1,
        description="Value for a row whose field is empty after all other steps. "
        "Without this key, the field stays empty.",
    )
    split: str | None = Field(
        default=None,
        min_length=1,
        description="For `tags`: separator of the tags in a cell. Without this key, a comma.",
    )
    e164: Annotated[PhoneForm | None, accept_short_form("region")] = Field(
        default=None,
        description="For `phone`: write numbers as +49301234567. Set a region such as DE, or the keys below. Without "
        "this key, numbers are sent as they are.",
    )

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        if not all(_is_date_format(pattern) for pattern in self.format):
            raise ValueError("`format` must contain year, month and day, such as %d/%m/%Y")
        try:
            build_column_rule(self)
        except ConfigurationError as error:
            raise ValueError(str(error)) from None
        return self


MappedField = Annotated[FieldRule, accept_short_form("column")]


def build_column_rule(rule: FieldRule) -> ColumnRule:
    """Return the rule for the mapping. Raises ConfigurationError for keys that contradict each other."""
    rule_values = rule.model_dump(exclude={"trim", "e164"})
    return ColumnRule(**rule_values, is_trimmed=rule.trim)


def _is_date_format(pattern: str) -> bool:
    try:
        sample_text = _SAMPLE_DAY.strftime(pattern)
        if sample_text == _OTHER_YEAR_DAY.strftime(pattern):
            # The pattern has no year; from Python 3.13 on, strptime would log a warning.
            return False
        return datetime.strptime(sample_text, pattern).date() == _SAMPLE_DAY  # noqa: DTZ007 - a day
    except ValueError:
        return False


def find_rule_faults(rule_by_field: Mapping[str, FieldRule], identity_field: str) -> list[str]:
    """Return the faults of the rules. A fault is a rule that does not fit its field, or an identity that would be equal
    in many rows."""
    faults = [
        fault for name, rule in rule_by_field.items() for fault in find_kind_faults(name, build_column_rule(rule))
    ]
    faults += [
        f"{name}: `e164` is for the field `phone`"
        for name, rule in rule_by_field.items()
        if rule.e164 and name != "phone"
    ]
    identity_rule = rule_by_field.get(identity_field)
    if identity_rule is not None and (identity_rule.default or identity_rule.value is not None):
        rule_key = "default" if identity_rule.default else "value"
        faults.append(
            f"{identity_field}: this field identifies a subscriber, and a fixed `{rule_key}` would give many rows the "
            f"same {identity_field}; remove `{rule_key}`"
        )
    return faults


def _check_base(value: str) -> str:
    parse_base(value)
    return value


BaseText = Annotated[str, AfterValidator(_check_base)]


class BaseKeys(JobModel):
    """The base that the job's subscribers belong to."""

    model_config = ConfigDict(title="Base")

    id: int | None = Field(default=None, ge=1, description="Id of the base. Set one of `id`, `name` and `column`.")
    name: Name | None = Field(default=None, description="Name of the base. Set one of `id`, `name` and `column`.")
    column: ColumnName | None = Field(
        default=None, description="Column that holds the base of each row. Set one of `id`, `name` and `column`."
    )
    values: dict[str, BaseText] | None = Field(
        default=None,
        description="Base for each cell of the column, as pairs `cell: base`. A whole number is an id, any other text "
        "a name. Without this key, the cells are ids or names.",
    )

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        if sum(value is not None for value in (self.id, self.name, self.column)) != 1:
            raise ValueError("needs exactly one of the keys `id`, `name` and `column`")
        if self.values is not None and self.column is None:
            raise ValueError("`values` maps the cells of a column to bases: add `column`")
        try:
            build_base(self)
        except ConfigurationError as error:
            raise ValueError(str(error)) from None
        return self


def build_base(base: BaseKeys) -> BaseRef | BaseColumn:
    """Return the base of all rows, or the column of each row's base. Raises ConfigurationError."""
    if base.column is None:
        return BaseRef(base.id, base.name)
    if base.values is None:
        return BaseColumn(base.column)
    return BaseColumn(base.column, {cell: parse_base(text) for cell, text in base.values.items()})
