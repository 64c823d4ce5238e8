"""An outgoing email as values that hold every rule of api.md 2.2, and its JSON.

A value that exists can be sent: each checks itself when made and raises MessageError. None shows its content in its
repr. What the service alone knows (protected headers, verified domains) is left to it.
"""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import orjson

from connector.protocol.email_rules import (
    MessageError,
    check_address,
    check_filled,
    check_flag,
    check_header_name,
    check_mime_type,
    check_send_at,
    check_text,
)


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
    """An extra header; a protected one is the service's to refuse (api.md 7.3)."""

    name: str
    value: str

    def __post_init__(self) -> None:
        check_header_name("Header.Name", self.name)
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
        check_mime_type("Attachment.Type", self.mime_type)
        if self.disposition not in ("attachment", "inline"):
            raise MessageError("Attachment.Disposition", "must be attachment or inline")
        if self.content_id is not None:
            check_filled("Attachment.ContentId", self.content_id)
        elif self.disposition == "inline":
            raise MessageError("Attachment.ContentId", "is required when Disposition is inline")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackingSettings:
    """All four must be said: None leaves the handling to the service, and only None does."""

    track_links: bool | None
    track_plain_text_links: bool | None
    track_open: bool | None
    track_unsubscribe: bool | None

    def __post_init__(self) -> None:
        check_flag("TrackingSettings.TrackLinks", self.track_links)
        check_flag("TrackingSettings.TrackPlainTextLinks", self.track_plain_text_links)
        check_flag("TrackingSettings.TrackOpen", self.track_open)
        check_flag("TrackingSettings.TrackUnsubscribe", self.track_unsubscribe)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmailSettings:
    """All four must be said: None leaves the handling to the service. `send_at` is a Unix timestamp in seconds."""

    inline_images: bool | None
    send_at: int | None
    use_dkim: bool | None
    use_dkim_selector: str | None

    def __post_init__(self) -> None:
        check_flag("EmailSettings.InlineImages", self.inline_images)
        check_send_at("EmailSettings.SendAt", self.send_at)
        check_flag("EmailSettings.UseDkim", self.use_dkim)
        if self.use_dkim_selector is not None:
            check_text("EmailSettings.UseDkimSelector", self.use_dkim_selector)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Message:
    """One email (the object SendEmail of api.md 2.2): someone in To, and a text, HTML or plain, that is not empty."""

    tracking: TrackingSettings
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
        _check_content_ids(self.attachments)


def _check_content_ids(attachments: Sequence[Attachment]) -> None:
    seen: set[str] = set()
    for place, attachment in enumerate(attachments):
        if attachment.content_id is None:
            continue
        if attachment.content_id in seen:
            raise MessageError(f"Email.Attachments[{place}].ContentId", "is used twice; it must be unique in an email")
        seen.add(attachment.content_id)


def encode_email(message: Message) -> bytes:
    """The whole body of a send (api.md 4.1): every setting is written, null where it is None; empty options are not."""
    email: dict[str, object] = {"To": _encode_recipients(message.to)}
    for key, recipients in (("Cc", message.cc), ("Bcc", message.bcc), ("ReplyTo", message.reply_to)):
        if recipients:
            email[key] = _encode_recipients(recipients)
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
    tracking = _encode_tracking(message.tracking)
    settings = _encode_settings(message.settings)
    return orjson.dumps({"SendEmail": {"TrackingSettings": tracking, "EmailSettings": settings, "Email": email}})


def _encode_recipients(recipients: Sequence[Recipient]) -> list[dict[str, str]]:
    return [_encode_recipient(recipient) for recipient in recipients]


def _encode_recipient(recipient: Recipient) -> dict[str, str]:
    encoded = {"Email": recipient.email}
    if recipient.name:
        encoded["Name"] = recipient.name
    return encoded


def _encode_tracking(tracking: TrackingSettings) -> dict[str, bool | None]:
    return {
        "TrackLinks": tracking.track_links,
        "TrackPlainTextLinks": tracking.track_plain_text_links,
        "TrackOpen": tracking.track_open,
        "TrackUnsubscribe": tracking.track_unsubscribe,
    }


def _encode_settings(settings: EmailSettings) -> dict[str, bool | int | str | None]:
    return {
        "InlineImages": settings.inline_images,
        "SendAt": settings.send_at,
        "UseDkim": settings.use_dkim,
        "UseDkimSelector": settings.use_dkim_selector,
    }


def _encode_attachment(attachment: Attachment) -> dict[str, str]:
    encoded = {"ContentBase64": b64encode(attachment.content).decode("ascii")}
    if attachment.content_id is not None:
        encoded["ContentId"] = attachment.content_id
    encoded["Disposition"] = attachment.disposition
    encoded["Filename"] = attachment.filename
    encoded["Type"] = attachment.mime_type
    return encoded
