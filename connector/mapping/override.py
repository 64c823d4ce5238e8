"""A person's word on the mapping, above the guess; and whether a mapping's columns are there at all."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from connector.errors import ConfigurationError
from connector.mapping.guess import Guess, build_column_rule, find_unmapped
from connector.mapping.rules import MAPPABLE, FieldMapping


def override_mapping(guess: Guess, overrides: Mapping[str, str], columns: Sequence[str]) -> Guess:
    """Put `overrides` (field name to column, as `--map` has them) in place of what was guessed for these fields.

    An empty column leaves its field unmapped. Other fields stay as they were, so that one column may fill two.
    Raises ConfigurationError for a field or a column that does not exist.
    """
    rules = dict(guess.mapping.rules)
    for field, column in overrides.items():
        if field not in MAPPABLE:
            raise ConfigurationError(_explain_missing("field", field, MAPPABLE))
        if not column:
            rules.pop(field, None)
            continue
        if column not in columns:
            raise ConfigurationError(_explain_missing("column", column, columns))
        rules[field] = build_column_rule(field, column, columns)
    mapping = FieldMapping(rules)
    return Guess(mapping, find_unmapped(mapping, columns))


def require_columns(mapping: FieldMapping, columns: Sequence[str]) -> None:
    """Raise ConfigurationError, naming every column that the mapping uses and the source does not have."""
    missing = [column for column in mapping.columns if column not in columns]
    if missing:
        raise ConfigurationError("; ".join(_explain_missing("column", column, columns) for column in missing))


def _explain_missing(what: str, name: str, there_are: Sequence[str]) -> str:
    by_folded = {known.casefold(): known for known in there_are}
    close = [by_folded[folded] for folded in get_close_matches(name.strip().casefold(), list(by_folded), n=3)]
    meant = f" Did you mean {' or '.join(close)}?" if close else ""
    return f"there is no {what} {name!r}.{meant} There are: {', '.join(there_are)}"
