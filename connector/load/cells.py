"""A value of a subscriber as a cell of a file for people, in the form in which it can be imported again."""

import orjson


def write_cell(value: object) -> str | None:
    """The value of one field as text; None where there is none."""
    if isinstance(value, list):
        return orjson.dumps(value).decode()  # a tag may hold whatever else could separate it from the next
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)
