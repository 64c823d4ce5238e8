"""Which column, or which constant, becomes which field, and how; it refuses to know any row."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from connector.errors import ConfigurationError
from connector.fields import BY_NAME, SENT, Kind

MAPPABLE: tuple[str, ...] = tuple(field.name for field in SENT)
"""The fields that a column may become: all that describe the person. The base is the job's to say."""


@dataclass(frozen=True, slots=True)
class ColumnRule:
    """Where one field's values come from: a `column` of the source or one constant `value` for all rows.

    `values` replaces whole cells (after trimming; a cell that it does not name stays as it is), `split` is what
    separates the tags in a cell, `format` (strptime's letters) how the source writes a date. With
    `is_apostrophe_dropped` a cell loses an apostrophe that stands before a digit or a plus at its beginning.
    Raises ConfigurationError unless exactly one of column and value is given.
    """

    column: str | None = None
    value: str | None = None
    values: Mapping[str, str] | None = None
    split: str | None = None
    format: str | None = None
    is_apostrophe_dropped: bool = False

    def __post_init__(self) -> None:
        if (self.column is None) == (self.value is None):
            raise ConfigurationError("a field takes either a column or a value: give exactly one of the two")
        if self.split == "":
            raise ConfigurationError("split must be at least one character")
        if not all(_is_text(word) for word in (self.value or "", *(self.values or {}), *(self.values or {}).values())):
            raise ConfigurationError("value and values must be text that can be sent: one holds half a character")
        if self.values is not None:
            object.__setattr__(self, "values", MappingProxyType(dict(self.values)))


@dataclass(frozen=True, slots=True)
class FieldMapping:
    """The rules by field name, in the order of the field table.

    Raises ConfigurationError for a field that cannot be mapped, and for a rule that does not fit its field.
    """

    rules: Mapping[str, ColumnRule]

    def __post_init__(self) -> None:
        for name, rule in self.rules.items():
            _check_rule(name, rule)
        ordered = {name: self.rules[name] for name in MAPPABLE if name in self.rules}
        object.__setattr__(self, "rules", MappingProxyType(ordered))

    @property
    def columns(self) -> tuple[str, ...]:
        """The source's columns that are used, each once."""
        return tuple(dict.fromkeys(rule.column for rule in self.rules.values() if rule.column is not None))


def _check_rule(name: str, rule: ColumnRule) -> None:
    if name not in MAPPABLE:
        raise ConfigurationError(f"no field {name!r} can be mapped; there are: {', '.join(MAPPABLE)}")
    if rule.split is not None and BY_NAME[name].kind is not Kind.TAGS:
        raise ConfigurationError(f"{name}: split is for tags only")
    if rule.format is not None and BY_NAME[name].kind is not Kind.DATE:
        raise ConfigurationError(f"{name}: format is for birthday only")


def _is_text(word: str) -> bool:
    """Whether it can be written as UTF-8: YAML's "\\ud800" is a surrogate alone, which no request can hold."""
    return word == word.encode("utf-8", "replace").decode("utf-8")
