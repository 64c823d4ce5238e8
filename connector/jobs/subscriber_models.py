"""`subscriber` of a job: the base that its rows belong to, and which field takes what."""

from collections.abc import Mapping
from datetime import date, datetime
from difflib import get_close_matches
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from connector.errors import ConfigurationError
from connector.fields import BY_NAME, FIELDS, SENT, BaseRef, wire_name
from connector.jobs.key_types import STRICT, ColumnName, Name, short_for
from connector.subscribers.row_bases import BaseColumn, parse_base
from connector.subscribers.rules import Case, ColumnRule, find_misfits

ZipPolicy = Literal["omit", "reject", "custom_field1", "custom_field2", "custom_field3"]

_SENT_NAMES = tuple(field.name for field in SENT)
_WIRE_NAMES = {wire_name(field).casefold(): field.name for field in FIELDS}
_SAMPLE_DAY = date(1987, 6, 25)  # year, month and day cannot be taken for one another
_SAME_DAY_LATER = date(2015, 6, 25)  # the same weekday


def check_field_name(name: str) -> str:
    """Return `name` if a row can fill that field (architecture 3); raises ValueError naming what it may mean."""
    if name in _SENT_NAMES:
        return name
    known = BY_NAME.get(_WIRE_NAMES.get(name.casefold(), name))
    if known is not None and not known.is_sent:
        raise ValueError(f"{name} is given by the service and cannot be sent")
    if known is not None and known.is_of_base:
        raise ValueError(f"the base is not a field: it stands under subscriber.base, not as {name}")
    meant = [known.name] if known is not None else get_close_matches(name, _SENT_NAMES, n=1)
    hint = f"did you mean {meant[0]}? " if meant else ""
    raise ValueError(f"there is no such field; {hint}The fields: {', '.join(_SENT_NAMES)}")


def _read_nothing_as_empty(value: Any) -> Any:
    return "" if value is None else value


def _write_truth(value: Any) -> Any:
    """A job that is made in Python may say True; a file's `true` comes as it is written."""
    return str(value).lower() if isinstance(value, bool) else value


FieldName = Annotated[str, AfterValidator(check_field_name)]
Constant = Annotated[str | None, BeforeValidator(_write_truth)]
Cell = Annotated[str, BeforeValidator(_read_nothing_as_empty)]


def _check_region(value: str) -> str:
    if len(value) != 2 or not (value.isascii() and value.isalpha()):
        raise ValueError("must be two letters, such as DE")
    return value.upper()


class PhoneForm(BaseModel):
    """How phone numbers are written; `e164: DE` is short for `e164: {region: DE}`."""

    model_config = STRICT

    region: Annotated[str, AfterValidator(_check_region)] = Field(
        description="the country of numbers that name none, such as DE"
    )
    otherwise: Literal["reject", "keep"] = Field(
        default="reject", description="what becomes of a number that cannot be written so, or of its row"
    )


def _list_one(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


Formats = Annotated[tuple[str, ...], BeforeValidator(_list_one)]


class FieldRule(BaseModel):
    """Where one field comes from and how its cells are read; the steps and their order are `ColumnRule`'s."""

    model_config = STRICT

    column: ColumnName | None = Field(default=None, description="the source's column, or")
    template: str | None = Field(
        default=None,
        min_length=1,
        description='a template over the row\'s columns, such as "{{ first }} {{ last }}", or',
    )
    value: Constant = Field(default=None, description="one value for every row")
    trim: bool = Field(default=True, description="drop white space at both ends of a cell")
    case: Case | None = Field(default=None, description="make letters small or capital, or capital as in a title")
    values: dict[str, Cell] | None = Field(
        default=None, description="what to take for each cell; others stay as they are"
    )
    format: Formats = Field(
        default=(),
        description="birthday: how the source writes a date, or a list of ways, of which the first that fits counts",
    )
    default: Constant = Field(default=None, min_length=1, description="what to take where nothing is left")
    split: str | None = Field(default=None, min_length=1, description="tags: what stands between two tags of a cell")
    e164: Annotated[PhoneForm | None, short_for("region")] = Field(
        default=None, description="phone: write numbers as +49301234567; a region such as DE, or keys:"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not all(_gives_a_day(pattern) for pattern in self.format):
            raise ValueError("format must give year, month and day, such as %d/%m/%Y")
        try:
            build_column_rule(self)
        except ConfigurationError as error:
            raise ValueError(str(error)) from None
        return self


MappedField = Annotated[FieldRule, short_for("column")]


def build_column_rule(rule: FieldRule) -> ColumnRule:
    """Return the library's own rule. Raises ConfigurationError for what makes no sense."""
    values = rule.model_dump(exclude={"trim", "e164"})
    return ColumnRule(**values, is_trimmed=rule.trim)


def _gives_a_day(pattern: str) -> bool:
    try:
        written = _SAMPLE_DAY.strftime(pattern)
        if written == _SAME_DAY_LATER.strftime(pattern):  # no year, of which strptime warns from Python 3.13 on
            return False
        return datetime.strptime(written, pattern).date() == _SAMPLE_DAY  # noqa: DTZ007 - a day
    except ValueError:
        return False


def find_rule_faults(rules: Mapping[str, FieldRule], identity: str) -> list[str]:
    """Return what is wrong with rules in their place: one that does not fit its field, one for all where each has its
    own."""
    faults = [fault for name, rule in rules.items() for fault in find_misfits(name, build_column_rule(rule))]
    faults += [f"{name}: e164 is for phone" for name, rule in rules.items() if rule.e164 and name != "phone"]
    own = rules.get(identity)
    if own is not None and (own.default or own.value is not None):
        faults.append(
            f"{identity}: it identifies a subscriber, and one {'default' if own.default else 'value'} for many rows "
            "would make them one subscriber; leave it out"
        )
    return faults


def _check_base(value: str) -> str:
    parse_base(value)
    return value


NamedBase = Annotated[str, AfterValidator(_check_base)]


class BaseKeys(BaseModel):
    """The base that the job's subscribers belong to."""

    model_config = ConfigDict(**STRICT, title="Base")

    id: int | None = Field(default=None, ge=1, description="the base's number, or")
    name: Name | None = Field(default=None, description="its name, or")
    column: ColumnName | None = Field(default=None, description="the source's column that says each row's base")
    values: dict[str, NamedBase] | None = Field(
        default=None,
        description="the base of each cell of that column: a whole number is an id, a text a name; without it "
        "the cells are ids and names themselves",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if sum(each is not None for each in (self.id, self.name, self.column)) != 1:
            raise ValueError("needs either id or name or column, and only one of them")
        if self.values is not None and self.column is None:
            raise ValueError("values says what the cells of a column mean: give column, too")
        try:
            build_base(self)
        except ConfigurationError as error:
            raise ValueError(str(error)) from None
        return self


def build_base(base: BaseKeys) -> BaseRef | BaseColumn:
    """Return the base as the library asks for it. Raises ConfigurationError for what makes no sense."""
    if base.column is None:
        return BaseRef(base.id, base.name)
    if base.values is None:
        return BaseColumn(base.column)
    return BaseColumn(base.column, {cell: parse_base(word) for cell, word in base.values.items()})
