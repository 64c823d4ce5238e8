"""The values of an outgoing email, which follow every rule of service-api.md 2.2, and the JSON of an email.

Each value checks itself when it is created, and raises MessageError. No repr shows the content of an email. Only the
service can check protected headers and verified domains.
"""

import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from email import errors, policy
from email.headerregistry import Address
from email.message import EmailMessage
from typing import Literal

import orjson

from connector.errors import ConfigurationError


@dataclass(frozen=True, slots=True, repr=False)
class Recipient:
    """A recipient (To, Cc, Bcc or ReplyTo) or the sender. The name is recommended."""

    email: str
    name: str | None = None

    def __post_init__(self) -> None:
        local_part, _, domain = check_not_blank("Recipient.Email", self.email).rpartition("@")
        if not local_part or not domain or _BLANK_PATTERN.search(self.email):
            raise MessageError("Recipient.Email", "is not an email address; write it like name@example.com")
        if self.name is not None:
            check_text("Recipient.Name", self.name)


@dataclass(frozen=True, slots=True, repr=False)
class Header:
    """An additional header. The service refuses protected headers (service-api.md 7.3)."""

    name: str
    value: str

    def __post_init__(self) -> None:
        if not _HEADER_NAME_PATTERN.fullmatch(check_not_blank("Header.Name", self.name)):
            raise MessageError("Header.Name", "is not a header name; use letters, digits and hyphens, like X-Campaign")
        check_text("Header.Value", self.value)


@dataclass(frozen=True, slots=True, repr=False)
class Attachment:
    """A file of the email: its bytes, and a `mime_type` such as application/pdf. An inline file needs a content id."""

    content: bytes
    filename: str
    mime_type: str
    disposition: Literal["attachment", "inline"] = "attachment"
    content_id: str | None = None

    def __post_init__(self) -> None:
        if not self.content:
            raise MessageError("Attachment.ContentBase64", "is required, but the file is empty")
        check_not_blank("Attachment.Filename", self.filename)
        if not _MIME_TYPE_PATTERN.fullmatch(check_not_blank("Attachment.Type", self.mime_type)):
            raise MessageError("Attachment.Type", "is not a MIME type; write a type such as application/pdf")
        if self.content_id is not None:
            check_not_blank("Attachment.ContentId", self.content_id)
        elif self.disposition == "inline":
            raise MessageError("Attachment.ContentId", "is required when Disposition is `inline`")


@dataclass(frozen=True, slots=True, kw_only=True)
class EmailSettings:
    """All settings of the service's TrackingSettings and EmailSettings. With the defaults, the service
    tracks nobody, does not change the email, and signs the email. If a setting is None, the service decides.

    Two settings are exceptions. If `send_at` (a Unix timestamp in seconds) is None, the service sends the email
    immediately. If `use_dkim_selector` is None, the service uses no selector.
    """

    track_links: bool | None = False
    track_plain_text_links: bool | None = False
    track_open: bool | None = False
    track_unsubscribe: bool | None = False
    inline_images: bool | None = False
    send_at: int | None = None
    use_dkim: bool | None = True
    use_dkim_selector: str | None = None

    def __post_init__(self) -> None:
        for name, key_path in _KEY_PATH_BY_SETTING.items():
            setting_value = getattr(self, name)
            if (
                name not in ("send_at", "use_dkim_selector")
                and setting_value is not None
                and not isinstance(setting_value, bool)
            ):
                raise MessageError(
                    ".".join(key_path), f"must be true, false or null, not {type(setting_value).__name__}"
                )
        send_at: object = self.send_at
        if send_at is not None and (
            not isinstance(send_at, int) or isinstance(send_at, bool) or not 0 <= send_at < SEND_AT_UPPER_LIMIT
        ):
            raise MessageError(
                "EmailSettings.SendAt", "must be a Unix timestamp in whole seconds (not milliseconds), or null"
            )
        if self.use_dkim_selector is not None:
            check_text("EmailSettings.UseDkimSelector", self.use_dkim_selector)


_KEY_PATH_BY_SETTING = {  # the group and the name of a setting in the JSON
    "track_links": ("TrackingSettings", "TrackLinks"),
    "track_plain_text_links": ("TrackingSettings", "TrackPlainTextLinks"),
    "track_open": ("TrackingSettings", "TrackOpen"),
    "track_unsubscribe": ("TrackingSettings", "TrackUnsubscribe"),
    "inline_images": ("EmailSettings", "InlineImages"),
    "send_at": ("EmailSettings", "SendAt"),
    "use_dkim": ("EmailSettings", "UseDkim"),
    "use_dkim_selector": ("EmailSettings", "UseDkimSelector"),
}
SETTING_NAMES = tuple(name for name in _KEY_PATH_BY_SETTING if name != "send_at")
"""The settings that a person may set, by their keys in a message file, without `send_at`."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Message:
    """One email (the object SendEmail of service-api.md 2.2), with at least one recipient in To and one body that is
    not empty."""

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
            object.__setattr__(self, name, tuple(getattr(self, name)))  # the caller may change its list later
        if not self.to:
            raise MessageError("Email.To", "needs at least one recipient")
        check_text("Email.Subject", self.subject)
        for field, text in (("Email.Html", self.html), ("Email.PlainText", self.plain_text)):
            if text is not None:
                check_text(field, text, is_one_line=False)
        if not self.html and not self.plain_text:
            raise MessageError("Email.Html", "is empty, and Email.PlainText is also empty; set at least one of the two")
        content_ids: set[str] = set()
        for index, attachment in enumerate(self.attachments):
            if attachment.content_id in content_ids:
                field = f"Email.Attachments[{index}].ContentId"
                raise MessageError(field, "is used twice; it must be unique in an email")
            if attachment.content_id is not None:
                content_ids.add(attachment.content_id)


def encode_email(message: Message) -> bytes:
    """Return the JSON of a send request (service-api.md 4.1). The JSON has all settings, with null for None. The JSON
    has no empty lists and no empty bodies."""
    email: dict[str, object] = {"To": [_encode_recipient(recipient) for recipient in message.to]}
    for key, recipients in (("Cc", message.cc), ("Bcc", message.bcc), ("ReplyTo", message.reply_to)):
        if recipients:
            email[key] = [_encode_recipient(recipient) for recipient in recipients]
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
    settings_by_group: dict[str, dict[str, object]] = {"TrackingSettings": {}, "EmailSettings": {}, "Email": email}
    for name, (group, key) in _KEY_PATH_BY_SETTING.items():
        settings_by_group[group][key] = getattr(message.settings, name)
    return orjson.dumps({"SendEmail": settings_by_group})


def _encode_recipient(recipient: Recipient) -> dict[str, str]:
    recipient_json = {"Email": recipient.email}
    if recipient.name:
        recipient_json["Name"] = recipient.name
    return recipient_json


def _encode_attachment(attachment: Attachment) -> dict[str, str]:
    attachment_json = {"ContentBase64": b64encode(attachment.content).decode("ascii")}
    if attachment.content_id is not None:
        attachment_json["ContentId"] = attachment.content_id
    attachment_json["Disposition"] = attachment.disposition
    attachment_json["Filename"] = attachment.filename
    attachment_json["Type"] = attachment.mime_type
    return attachment_json


# Checks of texts

# RFC 5322, 3.6.8: a header's name is printable ASCII without the colon.
_HEADER_NAME_PATTERN = re.compile(r"[!-9;-~]+")
_MIME_TYPE_PATTERN = re.compile(r"[A-Za-z0-9][\w!#$&^.+-]*/[A-Za-z0-9][\w!#$&^.+-]*(\s*;.*)?", re.ASCII)
_CONTROL_CHARACTER_PATTERN = re.compile("[\x00-\x1f\x7f\x85\u2028\u2029]")  # the last three are Unicode line ends
_BLANK_PATTERN = re.compile(r"\s")

SEND_AT_UPPER_LIMIT = 32_503_680_000
"""The year 3000 as a Unix timestamp. A larger SendAt is probably a time in milliseconds."""


class MessageError(ConfigurationError):
    """The error of an email that breaks a rule. `field` is the name of the field in service-api.md, and `problem`
    describes the fault."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


def check_text(field: str, text: object, *, is_one_line: bool = True) -> str:
    """Return the text. Raises MessageError if the text cannot be sent. The error does not show the text."""
    if not isinstance(text, str):
        raise MessageError(field, f"must be text, not {type(text).__name__}")
    if is_one_line and _CONTROL_CHARACTER_PATTERN.search(text):
        raise MessageError(field, "has a line break or another control character; write one line")
    try:
        text.encode()
    except UnicodeEncodeError:
        # `from None`: the codec's error holds the text, which may be personal data.
        raise MessageError(field, "has a broken character (a lone surrogate)") from None
    return text


def check_not_blank(field: str, text: object) -> str:
    """Return the text. Raises MessageError if the text is blank or has more than one line."""
    if not check_text(field, text).strip():
        raise MessageError(field, "is required and is empty")
    return str(text)


# The .eml file of an email


# Python would parse attached files of these types, and encode parts that must not be encoded.
_MIME_TYPES_THAT_PYTHON_PARSES = ("message", "multipart")


def format_eml(message: Message) -> bytes:
    """Return the bytes of the .eml file, with CRLF line ends. Raises MessageError for a field that an email cannot
    contain."""
    email_message = EmailMessage(policy=policy.SMTP)
    recipient_headers: list[tuple[str, str, Sequence[Recipient]]] = [
        ("From", "Email.From", [message.sender]),
        ("To", "Email.To", message.to),
        ("Cc", "Email.Cc", message.cc),
        ("Bcc", "Email.Bcc", message.bcc),
        ("Reply-To", "Email.ReplyTo", message.reply_to),
    ]
    for name, field, recipients in recipient_headers:
        if recipients:
            email_message[name] = [
                _build_address(person, f"{field}[{index}]") for index, person in enumerate(recipients)
            ]
    email_message["Subject"] = message.subject
    _add_contents(email_message, message)
    for index, header in enumerate(message.headers):
        try:
            email_message[header.name] = header.value
        except (ValueError, errors.MessageError):
            raise MessageError(
                f"Email.Headers[{index}].Name", f"is {header.name}, which every email has already; remove this header"
            ) from None
    addresses = "".join(person.email for _, _, recipients in recipient_headers for person in recipients)
    return email_message.as_bytes(policy=policy.SMTP.clone(max_line_length=0, utf8=not addresses.isascii()))


def _build_address(recipient: Recipient, field: str) -> Address:
    local_part, _, domain = recipient.email.rpartition("@")
    try:
        if not local_part.isascii():
            # Python can write this local part, but cannot parse an address with this local part.
            return Address(recipient.name or "", local_part, domain)
        return Address(recipient.name or "", addr_spec=recipient.email)
    except (ValueError, IndexError, errors.MessageError):
        raise MessageError(
            f"{field}.Email", "holds a character that an address cannot have outside of quotes"
        ) from None


def _add_contents(email_message: EmailMessage, message: Message) -> None:
    """Add the two bodies as alternatives. Add inline files to the HTML part, and other files to the email."""
    parent_of_inline_files = email_message
    if message.plain_text:
        email_message.set_content(message.plain_text)
    if message.plain_text and message.html:
        email_message.add_alternative(message.html, subtype="html")
        parent_of_inline_files = email_message.get_payload()[-1]  # type: ignore[assignment, index] # the HTML part
    elif message.html:
        email_message.set_content(message.html, subtype="html")
    for file in sorted(message.attachments, key=lambda file: file.disposition != "inline" or not message.html):
        content_type = policy.SMTP.header_factory("Content-Type", file.mime_type)
        is_parsed_type = content_type.maintype in _MIME_TYPES_THAT_PYTHON_PARSES
        add_file = (
            parent_of_inline_files.add_related
            if file.disposition == "inline" and message.html
            else email_message.add_attachment
        )
        add_file(
            file.content,
            maintype="application" if is_parsed_type else content_type.maintype,
            subtype="octet-stream" if is_parsed_type else content_type.subtype,
            params={} if is_parsed_type else dict(content_type.params),
            disposition=file.disposition,
            filename=file.filename,
            cid=None if file.content_id is None else f"<{file.content_id}>",
        )
