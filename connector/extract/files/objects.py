"""A JSON object as a row: nested objects flattened, `address.city`; all else stays the value that it is. Pure."""

import json
from collections.abc import Mapping
from decimal import Decimal

import orjson

from connector.extract.texts import write_text

_DEEPEST = 20  # objects within objects; people's are two or three deep
_NO_OBJECT = 'is JSON, and no object: a row looks like {"email": "ann@example.com"}'
_EXACT = 2.0**53  # from here on a float no longer holds every whole number


def parse_object(text: bytes) -> dict[str, object]:
    """The keys and values of a line. Raises ValueError, in words for a person, for one that is no object.

    Numbers are exact: one that a float cannot hold comes as a Decimal.
    """
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"is no JSON: {str(error).partition(': line')[0]}") from None
    if not isinstance(found, dict):
        raise ValueError(_NO_OBJECT)  # noqa: TRY004 - a line's fault, as the others are
    row = flatten(found)
    inexact = [key for key, value in row.items() if type(value) is float and abs(value) >= _EXACT]
    if inexact:
        exact = flatten(json.loads(text, parse_float=Decimal))
        row |= {key: exact[key] for key in inexact}
    return row


def write_lists(values: list[object]) -> list[object]:
    """Lists of plain values as lists of texts, null left out, as tags are one; any other value as it is, and so is a
    list of which one cannot be a text: who writes it tells that."""
    return [_write_list(value) if type(value) is list else value for value in values]


def _write_list(items: list[object]) -> list[object]:
    if any(isinstance(item, list | dict | tuple) for item in items):
        return items
    try:
        return [write_text(item) for item in items if item is not None]
    except ValueError:
        return items


def flatten(found: Mapping[str, object]) -> dict[str, object]:
    """Every value by its path; a list is a value. Raises ValueError for a path that is there twice, or too deep."""
    if dict not in map(type, found.values()):
        return dict(found)
    row: dict[str, object] = {}
    _add(row, "", found, 1)
    return row


def _add(row: dict[str, object], prefix: str, found: Mapping[str, object], depth: int) -> None:
    if depth > _DEEPEST:
        raise ValueError(f"holds objects nested more than {_DEEPEST} deep")
    for key, value in found.items():
        path = prefix + key
        if isinstance(value, dict):
            _add(row, f"{path}.", value, depth + 1)
        elif path in row:
            raise ValueError(f"has {path} twice, as a key and as a key within another")
        else:
            row[path] = value
