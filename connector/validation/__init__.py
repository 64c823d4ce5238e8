"""Which rows are subscribers, and what is wrong with the others: pandera schemas of the field table. Pure."""

from typing import TYPE_CHECKING

from connector.faces import open_face

if TYPE_CHECKING:
    from connector.validation.rows import Validated, validate_rows
    from connector.validation.rules import E164, Rules
    from connector.validation.schemas import build_listed_schema, build_sent_schema

__all__ = ["E164", "Rules", "Validated", "build_listed_schema", "build_sent_schema", "validate_rows"]

__getattr__ = open_face(
    __name__,
    {
        "rows": ("Validated", "validate_rows"),
        "rules": ("E164", "Rules"),
        "schemas": ("build_listed_schema", "build_sent_schema"),
    },
)
