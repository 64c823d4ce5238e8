"""A request whose content breaks a rule of api.md, and the small checks that say so by the field's full name."""

from collections.abc import Iterable, Mapping
from typing import Any


class RejectedError(Exception):
    """The request is answered with an error; `status` None means the status that the switches choose."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


def check_object(value: object, name: str) -> dict[str, Any]:
    """`value` if it is a JSON object."""
    if type(value) is not dict:
        raise RejectedError(f"{name} must be an object")
    return value


def check_array(value: object, name: str) -> list[Any]:
    """`value` if it is a JSON array."""
    if type(value) is not list:
        raise RejectedError(f"{name} must be an array")
    return value


def check_text(value: object, name: str) -> str:
    """`value` if it is a JSON string."""
    if type(value) is not str:
        raise RejectedError(f"{name} must be a string")
    return value


def check_known(given: Mapping[str, Any], known: Iterable[str], name: str) -> None:
    """Raises unless each key of `given` is one of `known`."""
    unknown = sorted(given.keys() - set(known))
    if unknown:
        raise RejectedError(f"{name}.{unknown[0]} is not a known field" if name else f"{unknown[0]} is not known")


def is_address(text: str) -> bool:
    """Whether `text` has the outward form of an email address: something, an @, and a domain."""
    local, _, domain = text.rpartition("@")
    return bool(local and domain) and text.isprintable() and not any(each in domain for each in ' <>,;:"()')
