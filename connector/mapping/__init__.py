"""From a source's columns to the fields of a subscriber: guesses, overrides, and the mapping itself. Pure."""

from connector.mapping.apply import apply_mapping
from connector.mapping.guess import Guess, guess_mapping
from connector.mapping.override import override_mapping, require_columns
from connector.mapping.rules import MAPPABLE, ColumnRule, FieldMapping

__all__ = [
    "MAPPABLE",
    "ColumnRule",
    "FieldMapping",
    "Guess",
    "apply_mapping",
    "guess_mapping",
    "override_mapping",
    "require_columns",
]
