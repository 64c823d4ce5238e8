"""From a source's columns to the fields of a subscriber: guesses, overrides, and the mapping itself. Pure."""

from typing import TYPE_CHECKING

from connector.faces import open_face

if TYPE_CHECKING:
    from connector.mapping.apply import Mapped, apply_mapping
    from connector.mapping.bases import (
        AskedBase,
        BaseColumn,
        RowBases,
        list_columns,
        parse_base,
        read_bases,
        refuse_mixed,
    )
    from connector.mapping.guess import Guess, find_whole_name, guess_mapping
    from connector.mapping.override import override_mapping, require_columns
    from connector.mapping.rules import MAPPABLE, Case, ColumnRule, FieldMapping, Join, Part, find_misfits

__all__ = [
    "MAPPABLE",
    "AskedBase",
    "BaseColumn",
    "Case",
    "ColumnRule",
    "FieldMapping",
    "Guess",
    "Join",
    "Mapped",
    "Part",
    "RowBases",
    "apply_mapping",
    "find_misfits",
    "find_whole_name",
    "guess_mapping",
    "list_columns",
    "override_mapping",
    "parse_base",
    "read_bases",
    "refuse_mixed",
    "require_columns",
]

__getattr__ = open_face(
    __name__,
    {
        "apply": ("Mapped", "apply_mapping"),
        "bases": ("AskedBase", "BaseColumn", "RowBases", "list_columns", "parse_base", "read_bases", "refuse_mixed"),
        "guess": ("Guess", "find_whole_name", "guess_mapping"),
        "override": ("override_mapping", "require_columns"),
        "rules": ("MAPPABLE", "Case", "ColumnRule", "FieldMapping", "Join", "Part", "find_misfits"),
    },
)
