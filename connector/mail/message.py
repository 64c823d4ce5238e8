"""An outgoing email as values that hold every rule of service-api.md 2.2, and its JSON.

A value that exists can be sent: each checks itself when made and raises MessageError. None shows its content in its
repr. What the service alone knows (protected headers, verified domains) is left to it.
"""

import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import orjson

from connector.errors import ConfigurationError


@dataclass(frozen=True, slots=True, repr=False)
class Recipient:
    """An element of To, Cc, Bcc or ReplyTo, or the sender; the name is recommended when known."""

    email: str
    name: str | None = None

    def __post_init__(self) -> None:
        check_address("Recipient.Email", self.email)
        if self.name is not None:
            check_text("Recipient.Name", self.name)


@dataclass(frozen=True, slots=True, repr=False)
class Header:
    """An extra header; a protected one is the service's to refuse (service-api.md 7.3)."""

    name: str
    value: str

    def __post_init__(self) -> None:
        if not _HEADER_NAME.fullmatch(check_filled("Header.Name", self.name)):
            raise MessageError("Header.Name", "is no header name; use letters, digits and hyphens, like X-Campaign")
        check_text("Header.Value", self.value)


@dataclass(frozen=True, slots=True, repr=False)
class Attachment:
    """A file with the email: `content` its bytes, `mime_type` like application/pdf; inline needs a content id."""

    content: bytes
    filename: str
    mime_type: str
    disposition: Literal["attachment", "inline"] = "attachment"
    content_id: str | None = None

    def __post_init__(self) -> None:
        if not self.content:
            raise MessageError("Attachment.ContentBase64", "is required and the file is empty")
        check_filled("Attachment.Filename", self.filename)
        check_mime_type(self.mime_type)
        if self.disposition not in ("attachment", "inline"):
            raise MessageError("Attachment.Disposition", "must be attachment or inline")
        if self.content_id is not None:
            check_filled("Attachment.ContentId", self.content_id)
        elif self.disposition == "inline":
            raise MessageError("Attachment.ContentId", "is required when Disposition is inline")


@dataclass(frozen=True, slots=True, kw_only=True)
class EmailSettings:
    """All of TrackingSettings and EmailSettings must be said: None leaves the handling to the service, and only None
    does; `send_at` (a Unix timestamp in seconds) and `use_dkim_selector` apart, whose None means at once, and no
    selector."""

    track_links: bool | None
    track_plain_text_links: bool | None
    track_open: bool | None
    track_unsubscribe: bool | None
    inline_images: bool | None
    send_at: int | None
    use_dkim: bool | None
    use_dkim_selector: str | None

    def __post_init__(self) -> None:
        for name, path in _SETTINGS.items():
            flag = getattr(self, name)
            if name not in ("send_at", "use_dkim_selector") and flag is not None and not isinstance(flag, bool):
                raise MessageError(".".join(path), f"must be true, false or null, not {type(flag).__name__}")
        at: object = self.send_at
        if at is not None and (not isinstance(at, int) or isinstance(at, bool) or not 0 <= at < LATEST_SEND_AT):
            raise MessageError(
                "EmailSettings.SendAt", "must be a Unix timestamp in whole seconds (not milliseconds), or null"
            )
        if self.use_dkim_selector is not None:
            check_text("EmailSettings.UseDkimSelector", self.use_dkim_selector)


TRACKING = ("track_links", "track_plain_text_links", "track_open", "track_unsubscribe")
SETTINGS = ("inline_images", "use_dkim", "use_dkim_selector")
"""The settings of an email that a person may state, as keys of a message file; `send_at` apart."""

_SETTINGS = {  # where each is in the JSON
    "track_links": ("TrackingSettings", "TrackLinks"),
    "track_plain_text_links": ("TrackingSettings", "TrackPlainTextLinks"),
    "track_open": ("TrackingSettings", "TrackOpen"),
    "track_unsubscribe": ("TrackingSettings", "TrackUnsubscribe"),
    "inline_images": ("EmailSettings", "InlineImages"),
    "send_at": ("EmailSettings", "SendAt"),
    "use_dkim": ("EmailSettings", "UseDkim"),
    "use_dkim_selector": ("EmailSettings", "UseDkimSelector"),
}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Message:
    """One email (the object SendEmail of service-api.md 2.2): someone in To, and a text, HTML or plain, that is not
    empty."""

    settings: EmailSettings
    sender: Recipient
    to: Sequence[Recipient]
    subject: str
    html: str | None = None
    plain_text: str | None = None
    cc: Sequence[Recipient] = ()
    bcc: Sequence[Recipient] = ()
    reply_to: Sequence[Recipient] = ()
    headers: Sequence[Header] = ()
    attachments: Sequence[Attachment] = ()

    def __post_init__(self) -> None:
        for name in ("to", "cc", "bcc", "reply_to", "headers", "attachments"):
            object.__setattr__(self, name, tuple(getattr(self, name)))  # a list that the caller keeps may change
        if not self.to:
            raise MessageError("Email.To", "needs at least one recipient")
        check_text("Email.Subject", self.subject)
        for field, text in (("Email.Html", self.html), ("Email.PlainText", self.plain_text)):
            if text is not None:
                check_text(field, text, is_one_line=False)
        if not self.html and not self.plain_text:
            raise MessageError("Email.Html", "and Email.PlainText are both empty; give at least one of them")
        seen: set[str] = set()
        for index, attachment in enumerate(self.attachments):
            if attachment.content_id in seen:
                field = f"Email.Attachments[{index}].ContentId"
                raise MessageError(field, "is used twice; it must be unique in an email")
            if attachment.content_id is not None:
                seen.add(attachment.content_id)


def encode_email(message: Message) -> bytes:
    """Return the whole body of a send (service-api.md 4.1): every setting is written, null where it is None; empty
    options are not."""
    email: dict[str, object] = {"To": [_encode_recipient(each) for each in message.to]}
    for key, recipients in (("Cc", message.cc), ("Bcc", message.bcc), ("ReplyTo", message.reply_to)):
        if recipients:
            email[key] = [_encode_recipient(each) for each in recipients]
    email["From"] = _encode_recipient(message.sender)
    if message.headers:
        email["Headers"] = [{"Name": header.name, "Value": header.value} for header in message.headers]
    if message.html:
        email["Html"] = message.html
    if message.plain_text:
        email["PlainText"] = message.plain_text
    email["Subject"] = message.subject
    if message.attachments:
        email["Attachments"] = [_encode_attachment(attachment) for attachment in message.attachments]
    sent: dict[str, dict[str, object]] = {"TrackingSettings": {}, "EmailSettings": {}, "Email": email}
    for name, (group, key) in _SETTINGS.items():
        sent[group][key] = getattr(message.settings, name)
    return orjson.dumps({"SendEmail": sent})


def _encode_recipient(recipient: Recipient) -> dict[str, str]:
    encoded = {"Email": recipient.email}
    if recipient.name:
        encoded["Name"] = recipient.name
    return encoded


def _encode_attachment(attachment: Attachment) -> dict[str, str]:
    encoded = {"ContentBase64": b64encode(attachment.content).decode("ascii")}
    if attachment.content_id is not None:
        encoded["ContentId"] = attachment.content_id
    encoded["Disposition"] = attachment.disposition
    encoded["Filename"] = attachment.filename
    encoded["Type"] = attachment.mime_type
    return encoded


# The checks that the parts share

# RFC 5322, 3.6.8: a header's name is printable ASCII without the colon.
_HEADER_NAME = re.compile(r"[!-9;-~]+")
_MIME_TYPE = re.compile(r"[A-Za-z0-9][\w!#$&^.+-]*/[A-Za-z0-9][\w!#$&^.+-]*(\s*;.*)?", re.ASCII)
_CONTROL = re.compile("[\x00-\x1f\x7f\x85\u2028\u2029]")  # the last three end a line, too
_BLANK = re.compile(r"\s")

LATEST_SEND_AT = 32_503_680_000
"""Seconds to the year 3000: a larger SendAt is a time in milliseconds."""


class MessageError(ConfigurationError):
    """An email cannot be sent as composed: `field` is the field's place, written as service-api.md writes it, and
    `problem` what is wrong there."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


def check_text(field: str, text: object, *, is_one_line: bool = True) -> str:
    """Return the text as given, if it is one that can be written; a value is never quoted in the error."""
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
    """Return the one-line text as given, if it is more than blanks."""
    if not check_text(field, text).strip():
        raise MessageError(field, "is required and is empty")
    return str(text)


def check_address(field: str, text: object) -> str:
    """Return the address as given, if it has the outline of one: something, one @, a domain, and no blanks."""
    address = check_filled(field, text)
    local, _, domain = address.rpartition("@")
    if not local or not domain or _BLANK.search(address):
        raise MessageError(field, "is no email address; write it like name@example.com")
    return address


def check_mime_type(mime_type: object) -> None:
    """A MIME type, like application/pdf."""
    if not _MIME_TYPE.fullmatch(check_filled("Attachment.Type", mime_type)):
        raise MessageError("Attachment.Type", "is no MIME type; give one like application/pdf")
