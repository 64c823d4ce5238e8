"""Recipients as people write them: an address, with a name before it or without."""

import re

from connector.protocol.email import Recipient
from connector.protocol.email_rules import MessageError

_WITH_NAME = re.compile(r"(?P<name>[^<>]*)<(?P<email>[^<>]*)>")
_QUOTED = re.compile(r'"(?P<inside>(?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")


def parse_recipient(text: str, field: str) -> Recipient:
    """`ann@example.com`, `Ann Lee <ann@example.com>` or `"Lee, Ann" <ann@example.com>`.

    Raises MessageError with `field`, never with the text.
    """
    found = _WITH_NAME.fullmatch(text.strip())
    email, name = (found["email"], found["name"].strip()) if found else (text, "")
    quoted = _QUOTED.fullmatch(name)
    if quoted:
        name = _ESCAPED.sub(r"\1", quoted["inside"])
    return build_recipient(email, name or None, field)


def build_recipient(email: str, name: str | None, field: str) -> Recipient:
    """A recipient of this address and name. Raises MessageError with `field` before what is wrong."""
    try:
        return Recipient(email.strip(), name)
    except MessageError as error:
        part = error.field.rpartition(".")[2]
        raise MessageError(f"{field}.{part}", error.problem) from None
