"""`subscriber.fields` of a job: which field takes what, and whether the rules can be kept with it."""

from collections.abc import Collection, Mapping
from datetime import date, datetime
from difflib import get_close_matches
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from connector.fields import BY_NAME, FIELDS, SENT, wire_name

STRICT = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
"""Every part of a job: no other keys, no change after reading, no value of a key in an error."""

Identity = Literal["email", "client_user_id"]
ZipPolicy = Literal["omit", "reject", "custom_field1", "custom_field2", "custom_field3"]

_SENT_NAMES = tuple(field.name for field in SENT)
_WIRE_NAMES = {wire_name(field).casefold(): field.name for field in FIELDS}
_SAMPLE_DAY = date(1987, 6, 25)  # year, month and day cannot be taken for one another


def check_field_name(name: str) -> str:
    """`name` if it is a field that a row can fill (design, section 3); raises ValueError naming what it may mean."""
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


def _name_column(value: Any) -> Any:
    """`field: column` is short for `field: {column: column}`."""
    return {"column": value} if isinstance(value, str) else value


def _read_nothing_as_empty(value: Any) -> Any:
    return "" if value is None else value


FieldName = Annotated[str, AfterValidator(check_field_name)]
Cell = Annotated[str, BeforeValidator(_read_nothing_as_empty)]


class FieldRule(BaseModel):
    """Where one field comes from: a column of the source or one value for all, and how a cell is read."""

    model_config = STRICT

    column: str | None = Field(default=None, min_length=1, description="the source's column")
    value: str | None = Field(default=None, description="one value for every row, in place of a column")
    values: dict[str, Cell] | None = Field(
        default=None, description="what to take for each cell; others stay as they are"
    )
    split: str | None = Field(default=None, min_length=1, description="tags: what stands between two tags of a cell")
    format: str | None = Field(default=None, min_length=1, description="birthday: how the source writes a date")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.column is None) == (self.value is None):
            raise ValueError("needs either column or value, and not both")
        if self.value is not None and (self.values or self.split or self.format):
            raise ValueError("values, split and format read a column; with value they have nothing to read")
        if self.format is not None and not _gives_a_day(self.format):
            raise ValueError("format must give year, month and day, such as %d/%m/%Y")
        return self


MappedField = Annotated[FieldRule, BeforeValidator(_name_column)]


def _gives_a_day(pattern: str) -> bool:
    try:
        return datetime.strptime(_SAMPLE_DAY.strftime(pattern), pattern).date() == _SAMPLE_DAY  # noqa: DTZ007 - a day
    except ValueError:
        return False


def find_rule_faults(rules: Mapping[str, FieldRule]) -> list[str]:
    """What is wrong with rules in their place: split belongs to tags, format to birthday."""
    faults = [f"{name}: split is for tags" for name, rule in rules.items() if rule.split and name != "tags"]
    faults += [f"{name}: format is for birthday" for name, rule in rules.items() if rule.format and name != "birthday"]
    return faults


def find_mapping_faults(
    mapped: Collection[str], identity: str, required: Collection[str], zip_policy: str
) -> list[str]:
    """Why a mapping to the fields `mapped` cannot serve: an identity or a required field that nothing fills, a zip
    that would go where another column goes already. Each fault says what to do; an empty list is a clean bill."""
    faults = []
    if identity not in mapped:
        faults.append(f"no column is mapped to {identity}, by which subscribers are told apart; map one to it")
    missing = [name for name in required if name not in mapped and name != identity]
    if missing:
        faults.append(f"no column is mapped to {', '.join(missing)}, which required names; map one or require less")
    if zip_policy in mapped:
        faults.append(f"zip: {zip_policy} would overwrite what is mapped to {zip_policy}; choose a free field")
    return faults
