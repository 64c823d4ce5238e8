"""Whether a listed subscriber is what was asked for: how the service's own filters match is not shown (api.md 4.3)."""

from collections.abc import Callable, Mapping
from typing import Any

from connector.fields import BY_NAME, normalise_client_user_id, normalise_email

Match = Callable[[Mapping[str, Any]], bool]


def build_match(asked: Mapping[str, object]) -> Match | None:
    """A test of wire objects for `asked`, field name to value; None where nothing is asked.

    Emails are compared as identities, a client_user_id trimmed, the gender "" as none at all (null or absent),
    everything else exactly.
    """
    tests = [(BY_NAME[name].path, name, _plain(name, value)) for name, value in asked.items()]
    if not tests:
        return None
    return lambda wire: all(_plain(name, _value_at(wire, path)) == value for path, name, value in tests)


def _value_at(wire: Mapping[str, Any], path: tuple[str, ...]) -> object:
    value: Any = wire
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _plain(name: str, value: object) -> object:
    """The form in which two values of the field are equal; the type is part of it, since True is not 1."""
    if name == "gender" and value is None:
        value = ""
    if isinstance(value, str):
        if name == "email":
            return normalise_email(value)
        return normalise_client_user_id(value) if name == "client_user_id" else value
    return (type(value), value)
