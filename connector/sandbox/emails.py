"""The rules of a SendEmail request (api.md 2.2 and 7): what must be given, what may be, and by whom it may be sent.

It checks; composing and keeping the email is done elsewhere.
"""

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Any

from connector.sandbox.rejection import (
    RejectedError,
    check_array,
    check_known,
    check_object,
    check_text,
    is_address,
)

TRACKING = ("TrackLinks", "TrackPlainTextLinks", "TrackOpen", "TrackUnsubscribe")
_SETTINGS = ("InlineImages", "SendAt", "UseDkim", "UseDkimSelector")
_EMAIL = ("To", "Cc", "Bcc", "ReplyTo", "From", "Headers", "Html", "PlainText", "Subject", "Attachments")
_ATTACHMENT = ("ContentBase64", "ContentId", "Disposition", "Filename", "Type")
_LAST_SECOND = 253_402_300_799  # the end of the year 9999
_MIME_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+")
_HEADER_NAME = re.compile(r"[!-9;-~]+")  # RFC 5322, 2.2: printable ASCII without the colon


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file of an email, decoded."""

    content: bytes
    content_id: str
    is_inline: bool
    filename: str
    mime_type: str


@dataclass(frozen=True, slots=True)
class Email:
    """An email that breaks no rule; `tracking` and `settings` hold None where the service decides on its own."""

    to: tuple[tuple[str, str], ...]
    cc: tuple[tuple[str, str], ...]
    bcc: tuple[tuple[str, str], ...]
    reply_to: tuple[tuple[str, str], ...]
    sender: tuple[str, str]
    headers: tuple[tuple[str, str], ...]
    html: str
    plain_text: str
    subject: str
    attachments: tuple[Attachment, ...]
    tracking: dict[str, bool | None]
    settings: dict[str, Any]


@dataclass(frozen=True, slots=True)
class EmailRules:
    """The parts of the rules that are switches."""

    verified_domains: frozenset[str]
    protected_headers: frozenset[str]
    is_strict: bool


def parse_email(body: dict[str, Any], rules: EmailRules) -> Email:
    """The email of a request's body; raises RejectedError naming the first field that breaks a rule."""
    root = check_object(body.get("SendEmail"), "SendEmail")
    email = check_object(root.get("Email"), "SendEmail.Email")
    if rules.is_strict:
        check_known(body, ("SendEmail",), "")
        check_known(root, ("TrackingSettings", "EmailSettings", "Email"), "SendEmail")
        check_known(email, _EMAIL, "SendEmail.Email")
    to = _parse_recipients(email, "To", rules)
    if not to:
        raise RejectedError("SendEmail.Email.To must have at least one recipient")
    html, plain_text = _parse_text(email, "Html"), _parse_text(email, "PlainText")
    if not html and not plain_text:
        raise RejectedError("SendEmail.Email.Html or SendEmail.Email.PlainText must be given")
    return Email(
        to,
        _parse_recipients(email, "Cc", rules),
        _parse_recipients(email, "Bcc", rules),
        _parse_recipients(email, "ReplyTo", rules),
        _parse_sender(email, rules),
        _parse_headers(email, rules),
        html,
        plain_text,
        _check_one_line(_parse_text(email, "Subject"), "SendEmail.Email.Subject"),
        _parse_attachments(email, rules),
        _parse_tracking(root.get("TrackingSettings"), rules),
        _parse_settings(root.get("EmailSettings"), rules),
    )


def _parse_text(email: dict[str, Any], name: str) -> str:
    return check_text(email.get(name, ""), f"SendEmail.Email.{name}")


def _check_one_line(text: str, name: str) -> str:
    if any(each in text for each in "\r\n\0"):
        raise RejectedError(f"{name} must be on one line")
    return text


def _parse_person(value: object, name: str, rules: EmailRules) -> tuple[str, str]:
    """(Email, Name) of a recipient or sender; the email is required, the name recommended."""
    person = check_object(value, name)
    if rules.is_strict:
        check_known(person, ("Email", "Name"), name)
    email = check_text(person.get("Email", ""), f"{name}.Email")
    if not is_address(email):
        raise RejectedError(f"{name}.Email must be an email address")
    return email, _check_one_line(check_text(person.get("Name", ""), f"{name}.Name"), f"{name}.Name")


def _parse_recipients(email: dict[str, Any], name: str, rules: EmailRules) -> tuple[tuple[str, str], ...]:
    full = f"SendEmail.Email.{name}"
    given = check_array(email.get(name, []), full)
    return tuple(_parse_person(each, f"{full}[{place}]", rules) for place, each in enumerate(given))


def _parse_sender(email: dict[str, Any], rules: EmailRules) -> tuple[str, str]:
    sender = _parse_person(email.get("From"), "SendEmail.Email.From", rules)
    domain = sender[0].rpartition("@")[2].lower()
    if not rules.verified_domains & {domain, "*"}:
        raise RejectedError(f"SendEmail.Email.From.Email: the domain {domain!r} is not registered and verified")
    return sender


def _parse_headers(email: dict[str, Any], rules: EmailRules) -> tuple[tuple[str, str], ...]:
    headers = []
    for place, each in enumerate(check_array(email.get("Headers", []), "SendEmail.Email.Headers")):
        full = f"SendEmail.Email.Headers[{place}]"
        header = check_object(each, full)
        if rules.is_strict:
            check_known(header, ("Name", "Value"), full)
        name = check_text(header.get("Name"), f"{full}.Name")
        if not _HEADER_NAME.fullmatch(name):
            raise RejectedError(f"{full}.Name cannot be the name of a header")
        if name.lower() in rules.protected_headers:
            raise RejectedError(f"{full}.Name: the header {name!r} is protected")
        headers.append((name, _check_one_line(check_text(header.get("Value"), f"{full}.Value"), f"{full}.Value")))
    return tuple(headers)


def _parse_attachments(email: dict[str, Any], rules: EmailRules) -> tuple[Attachment, ...]:
    given = check_array(email.get("Attachments", []), "SendEmail.Email.Attachments")
    attachments = tuple(
        _parse_attachment(each, f"SendEmail.Email.Attachments[{place}]", rules) for place, each in enumerate(given)
    )
    content_ids = [each.content_id for each in attachments if each.content_id]
    if len(content_ids) != len(set(content_ids)):
        raise RejectedError("SendEmail.Email.Attachments: each ContentId must be unique within the email")
    return attachments


def _parse_attachment(value: object, full: str, rules: EmailRules) -> Attachment:
    given = check_object(value, full)
    if rules.is_strict:
        check_known(given, _ATTACHMENT, full)
    texts = {name: check_text(given.get(name, ""), f"{full}.{name}") for name in _ATTACHMENT}
    for name in ("Disposition", "Filename", "Type"):
        if not texts[name]:
            raise RejectedError(f"{full}.{name} is required")
    if "ContentBase64" not in given:  # an empty file has an empty content, but it must say so
        raise RejectedError(f"{full}.ContentBase64 is required")
    if texts["Disposition"] not in ("attachment", "inline"):
        raise RejectedError(f'{full}.Disposition must be "attachment" or "inline"')
    if texts["Disposition"] == "inline" and not texts["ContentId"]:
        raise RejectedError(f"{full}.ContentId is required when Disposition is inline")
    if not _MIME_TYPE.fullmatch(texts["Type"]):
        raise RejectedError(f"{full}.Type must be a MIME type, as application/pdf is")
    return Attachment(
        _decode_content(texts["ContentBase64"], full),
        _check_one_line(texts["ContentId"], f"{full}.ContentId"),
        texts["Disposition"] == "inline",
        _check_one_line(texts["Filename"], f"{full}.Filename"),
        texts["Type"],
    )


def _decode_content(text: str, full: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise RejectedError(f"{full}.ContentBase64 is not base64") from None


def _parse_tracking(value: object, rules: EmailRules) -> dict[str, bool | None]:
    given = check_object({} if value is None else value, "SendEmail.TrackingSettings")
    if rules.is_strict:
        check_known(given, TRACKING, "SendEmail.TrackingSettings")
    return {name: _check_flag_or_null(given.get(name), f"SendEmail.TrackingSettings.{name}") for name in TRACKING}


def _parse_settings(value: object, rules: EmailRules) -> dict[str, Any]:
    full = "SendEmail.EmailSettings"
    given = check_object({} if value is None else value, full)
    if rules.is_strict:
        check_known(given, _SETTINGS, full)
    send_at, selector = given.get("SendAt"), given.get("UseDkimSelector")
    if send_at is not None and (type(send_at) is not int or not 0 <= send_at <= _LAST_SECOND):
        raise RejectedError(f"{full}.SendAt must be a Unix timestamp, a whole number of seconds")
    if selector is not None:
        _check_one_line(check_text(selector, f"{full}.UseDkimSelector"), f"{full}.UseDkimSelector")
    use_dkim = _check_flag_or_null(given.get("UseDkim"), f"{full}.UseDkim")
    return {
        "InlineImages": _check_flag_or_null(given.get("InlineImages"), f"{full}.InlineImages"),
        "SendAt": send_at,
        "UseDkim": True if selector else use_dkim,  # a selector makes UseDkim count as enabled, even when it is false
        "UseDkimSelector": selector,
    }


def _check_flag_or_null(value: object, name: str) -> bool | None:
    if value is not None and type(value) is not bool:
        raise RejectedError(f"{name} must be true, false or null")
    return value
