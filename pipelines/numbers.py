"""Cells of a workbook that are numbers where a text belongs: a phone that has lost its plus, a zip its zero."""

from collections.abc import Iterator, Mapping

from connector.mapping import FieldMapping

_TEXT_FIELDS = ("phone", "client_user_id", "address_zip")
"""Fields whose values look like numbers, and are none."""


def describe_numbers(mapping: FieldMapping, number_cells: Mapping[str, int]) -> Iterator[str]:
    """What a person should know of such cells (how many, by column) in the columns of these fields."""
    for name in _TEXT_FIELDS:
        rule = mapping.rules.get(name)
        number = number_cells.get(rule.column or "", 0) if rule is not None else 0
        if rule is not None and number:
            yield (
                f"{number:,} cells of the column {rule.column} ({name}) are numbers in the workbook, not texts: "
                "leading zeros, a plus sign and digits beyond the fifteenth are lost there; if it matters, format the "
                "column as text and enter them anew"
            )
