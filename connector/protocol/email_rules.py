"""The checks that an outgoing email's parts share; each names the field as api.md 2.2 writes it.

They hold what api.md states and what would corrupt a header; deliverability is not their business.
"""

import re

from connector.errors import ConfigurationError

# RFC 5322, 3.6.8: a header's name is printable ASCII without the colon.
_HEADER_NAME = re.compile(r"[!-9;-~]+")
_MIME_TYPE = re.compile(r"[A-Za-z0-9][\w!#$&^.+-]*/[A-Za-z0-9][\w!#$&^.+-]*(\s*;.*)?", re.ASCII)
_CONTROL = re.compile("[\x00-\x1f\x7f\x85\u2028\u2029]")  # the last three end a line, too
_BLANK = re.compile(r"\s")

LATEST_SEND_AT = 32_503_680_000
"""Seconds to the year 3000: a larger SendAt is a time in milliseconds."""


class MessageError(ConfigurationError):
    """An email cannot be sent as composed: `field` is the field's place, written as api.md writes it, and `problem`
    what is wrong there."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


def check_text(field: str, text: object, *, is_one_line: bool = True) -> str:
    """The text as given, if it is one that can be written; a value is never quoted in the error."""
    if not isinstance(text, str):
        raise MessageError(field, f"must be text, not {type(text).__name__}")
    if is_one_line and _CONTROL.search(text):
        raise MessageError(field, "holds a line break or another control character; give it as one line")
    try:
        text.encode()
    except UnicodeEncodeError:
        # `from None`: the codec's error holds the text itself, which may be personal.
        raise MessageError(field, "holds a broken character (a lone surrogate)") from None
    return text


def check_filled(field: str, text: object) -> str:
    """The one-line text as given, if it is more than blanks."""
    if not check_text(field, text).strip():
        raise MessageError(field, "is required and is empty")
    return str(text)


def check_address(field: str, text: object) -> str:
    """The address as given, if it has the outline of one: something, one @, a domain, and no blanks."""
    address = check_filled(field, text)
    local, _, domain = address.rpartition("@")
    if not local or not domain or _BLANK.search(address):
        raise MessageError(field, "is no email address; write it like name@example.com")
    return address


def check_flag(field: str, flag: object) -> None:
    """A setting is true, false or null (api.md 2.2); 0 and 1 are not taken for them."""
    if flag is not None and not isinstance(flag, bool):
        raise MessageError(field, f"must be true, false or null, not {type(flag).__name__}")


def check_send_at(field: str, send_at: object) -> None:
    """A Unix timestamp in whole seconds, or null."""
    if send_at is None:
        return
    if not isinstance(send_at, int) or isinstance(send_at, bool):
        raise MessageError(field, f"must be a Unix timestamp in whole seconds or null, not {type(send_at).__name__}")
    if not 0 <= send_at < LATEST_SEND_AT:
        raise MessageError(field, f"must be a Unix timestamp in seconds (not milliseconds), not {send_at}")


def check_header_name(field: str, name: object) -> None:
    """A header's name as RFC 5322 has it; which ones are protected is the service's to say."""
    if not _HEADER_NAME.fullmatch(check_filled(field, name)):
        raise MessageError(field, "is no header name; use letters, digits and hyphens, like X-Campaign")


def check_mime_type(field: str, mime_type: object) -> None:
    """A MIME type, like application/pdf."""
    if not _MIME_TYPE.fullmatch(check_filled(field, mime_type)):
        raise MessageError(field, "is no MIME type; give one like application/pdf")
