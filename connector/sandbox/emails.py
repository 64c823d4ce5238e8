"""Emails (service-api.md 2.2, 4.1 and 7): the rules of a SendEmail request, the .eml file, and the outbox that keeps
it.

Nothing leaves the machine.
"""

import base64
import os
import uuid
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP, SMTPUTF8
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, ValidationError, model_validator
from pydantic.alias_generators import to_pascal

from connector.sandbox.subscriber import RejectedError, is_address, reject
from connector.sandbox.switches import SandboxSettings

_LAST_SECOND = 253_402_300_799  # the end of the year 9999
_MIME_TYPE = r"^[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+$"
_HEADER_NAME = r"^[!-9;-~]+$"  # RFC 5322, 2.2: printable ASCII without the colon


# the request


def _check_one_line(text: str) -> str:
    if any(each in text for each in "\r\n\0"):
        raise ValueError("the text must be on one line")
    return text


def _check_address(text: str) -> str:
    if not is_address(text):
        raise ValueError("this must be an email address")
    return text


def _decode_content(value: object) -> bytes:
    if not isinstance(value, str):
        raise ValueError("this must be a text in base64")  # noqa: TRY004 - pydantic reports ValueError alone
    return base64.b64decode(value, validate=True)


_OneLine = Annotated[str, AfterValidator(_check_one_line)]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, alias_generator=to_pascal, defer_build=True)


class Mailbox(_Part):
    """A recipient or the sender; the email is required, the name recommended."""

    email: Annotated[str, AfterValidator(_check_address)]
    name: _OneLine = ""


class Header(_Part):
    """An extra header."""

    name: Annotated[str, Field(pattern=_HEADER_NAME)]
    value: _OneLine


class Attachment(_Part):
    """A file of an email, decoded."""

    content: Annotated[bytes, PlainValidator(_decode_content)] = Field(alias="ContentBase64")
    content_id: _OneLine = ""
    disposition: Literal["attachment", "inline"]
    filename: Annotated[_OneLine, Field(min_length=1)]
    type: Annotated[str, Field(pattern=_MIME_TYPE)]

    @model_validator(mode="after")
    def _check_content_id(self) -> Self:
        if self.disposition == "inline" and not self.content_id:
            raise ValueError("ContentId is required when Disposition is inline")
        return self


class TrackingSettings(_Part):
    """The kinds of tracking. None leaves the choice to the service."""

    track_links: bool | None = None
    track_plain_text_links: bool | None = None
    track_open: bool | None = None
    track_unsubscribe: bool | None = None


class EmailSettings(_Part):
    """The settings of sending. None leaves the choice to the service."""

    inline_images: bool | None = None
    send_at: Annotated[int, Field(ge=0, le=_LAST_SECOND)] | None = None
    use_dkim: bool | None = None
    use_dkim_selector: _OneLine | None = None


class Email(_Part):
    """The email itself."""

    to: Annotated[list[Mailbox], Field(min_length=1)]
    cc: list[Mailbox] = []
    bcc: list[Mailbox] = []
    reply_to: list[Mailbox] = []
    sender: Mailbox = Field(alias="From")
    headers: list[Header] = []
    html: str = ""
    plain_text: str = ""
    subject: _OneLine = ""
    attachments: list[Attachment] = []

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        if not self.html and not self.plain_text:
            raise ValueError("Html or PlainText must be given")
        content_ids = [each.content_id for each in self.attachments if each.content_id]
        if len(content_ids) != len(set(content_ids)):
            raise ValueError("each ContentId of Attachments must be unique within the email")
        return self


class SendEmail(_Part):
    """An email with its settings."""

    tracking_settings: TrackingSettings | None = None
    email_settings: EmailSettings | None = None
    email: Email


class _SendBody(_Part):
    send_email: SendEmail


def parse_email(body: bytes, settings: SandboxSettings) -> SendEmail:
    """Return the email of a request's body; raises RejectedError naming the first field that breaks a rule."""
    try:
        sending = _SendBody.model_validate_json(body, extra=settings.extra_fields).send_email
    except ValidationError as error:
        raise reject(error) from None
    domain = sending.email.sender.email.rpartition("@")[2].lower()
    if not {domain, "*"} & {each.lower() for each in settings.verified_domains}:
        raise RejectedError(f"SendEmail.Email.From.Email: the domain {domain!r} is not registered and verified")
    protected = {each.lower() for each in settings.protected_headers}
    for header in sending.email.headers:
        if header.name.lower() in protected:
            raise RejectedError(f"SendEmail.Email.Headers: the header {header.name!r} is protected")
    return sending


# the .eml file

_SINGLE = frozenset({"subject", "from", "sender", "to", "cc", "bcc", "reply-to", "date", "message-id"})


def compose_eml(sending: SendEmail, message_id: str, at: float) -> bytes:
    """Return the bytes of an .eml file (RFC 5322, MIME); `at` is the moment of acceptance in Unix seconds."""
    email = sending.email
    mailboxes = (*email.to, *email.cc, *email.bcc, *email.reply_to, email.sender)
    is_ascii = all(each.email.isascii() for each in mailboxes)
    message = EmailMessage(policy=SMTP if is_ascii else SMTPUTF8)
    message["Message-ID"] = message_id
    message["Date"] = datetime.fromtimestamp(at, UTC)
    message["From"] = _address(email.sender)
    for name, group in (("To", email.to), ("Cc", email.cc), ("Bcc", email.bcc), ("Reply-To", email.reply_to)):
        if group:
            message[name] = tuple(_address(each) for each in group)
    message["Subject"] = email.subject
    for header in email.headers:
        if header.name.lower().startswith(("content-", "mime-")):
            continue  # even unprotected: they say what the parts below are
        if header.name.lower() in _SINGLE:  # only when the switches do not protect it: then it overrides
            del message[header.name]
        message[header.name] = header.value
    settings = sending.email_settings
    if settings is not None and settings.send_at is not None:
        message["X-Sandbox-Send-At"] = datetime.fromtimestamp(settings.send_at, UTC).isoformat()
    _add_bodies(message, email)
    return message.as_bytes()


def _address(mailbox: Mailbox) -> Address:
    local, _, domain = mailbox.email.rpartition("@")
    return Address(mailbox.name, username=local.strip('"'), domain=domain)


def _add_bodies(message: EmailMessage, email: Email) -> None:
    """Add alternatives of text and page, inline files related to the page, and the other files around them."""
    if email.plain_text:
        message.set_content(email.plain_text)
    if email.html and email.plain_text:
        message.add_alternative(email.html, subtype="html")
    elif email.html:
        message.set_content(email.html, subtype="html")
    page = message
    if email.html and email.plain_text:
        parts = message.get_payload()
        page = parts[-1]  # type: ignore[index,assignment]  # an alternative's payload is a list of its parts
    for each in sorted(email.attachments, key=lambda each: each.disposition == "attachment"):  # inline files first
        main, _, sub = each.type.partition("/")
        add = page.add_related if each.disposition == "inline" else message.add_attachment
        cid = f"<{each.content_id}>" if each.content_id else None
        add(each.content, main, sub, cid=cid, filename=each.filename, disposition=each.disposition)


# the outbox


class Outbox:
    """Keeps emails under their SendMessageRequestId; `directory` None keeps them in memory."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._entries: dict[int, dict[str, Any]] = {}
        self._in_memory: dict[int, bytes] = {}
        self.last_id = 0
        if directory is not None:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def __len__(self) -> int:
        return len(self._entries)

    def take_ids(self) -> tuple[int, str]:
        """Return a new SendMessageRequestId and a Message-ID that nothing else in the world has."""
        self.last_id += 1
        return self.last_id, f"<{uuid.uuid4().hex}@sandbox.invalid>"

    def keep(self, request_id: int, message_id: str, entry: dict[str, Any], eml: bytes) -> None:
        """Write the .eml file whole, then add its entry."""
        if self._directory is None:
            self._in_memory[request_id] = eml
        else:
            path = self._path(self._directory, request_id)
            staged = path.with_suffix(".part")
            handle = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(eml)
            staged.replace(path)
        self.restore(request_id, message_id, entry)

    def restore(self, request_id: int, message_id: str, entry: dict[str, Any]) -> None:
        """Add the entry of an email whose file is there already, or was never kept on disk."""
        self._entries[request_id] = {"request_id": request_id, "message_id": message_id} | entry
        self.last_id = max(self.last_id, request_id)

    def read_entries(self, now: float) -> list[dict[str, Any]]:
        """Return each email, oldest first: what the truth log says of it, its `state` at Unix second `now` (scheduled
        until SendAt, then sent), its `file` (None in memory) and the text of the .eml."""
        return [
            entry
            | {
                "state": _describe_state(entry, now),
                "file": str(self._path(self._directory, each)) if self._directory is not None else None,
                "eml": self.read_eml(each).decode("utf-8", "replace"),
            }
            for each, entry in self._entries.items()
        ]

    def read_last(self, most: int, now: float) -> list[dict[str, Any]]:
        """Return the last so many emails, the latest first, without file and text."""
        last = islice(reversed(self._entries.values()), most)
        return [entry | {"state": _describe_state(entry, now)} for entry in last]

    def read_eml(self, request_id: int) -> bytes:
        """Return the .eml of an email; nothing if there is no such email, or its file was taken away."""
        if self._directory is None:
            return self._in_memory.get(request_id, b"")
        path = self._path(self._directory, request_id)
        return path.read_bytes() if path.exists() else b""

    def clear(self) -> None:
        """Delete all of them."""
        if self._directory is not None:
            for path in self._directory.glob("*.eml"):
                path.unlink()
        self._entries, self._in_memory, self.last_id = {}, {}, 0

    @staticmethod
    def _path(directory: Path, request_id: int) -> Path:
        return directory / f"{request_id:08d}.eml"


def _describe_state(entry: dict[str, Any], now: float) -> str:
    return "scheduled" if (entry["settings"]["SendAt"] or 0) > now else "sent"


def describe_email(sending: SendEmail) -> dict[str, object]:
    """Return what the truth log and the outbox say of an email besides its file."""
    email = sending.email
    settings = (sending.email_settings or EmailSettings()).model_dump(by_alias=True)
    if settings["UseDkimSelector"]:
        settings["UseDkim"] = True  # a selector makes UseDkim count as enabled, even when it is false
    return {
        "from": email.sender.email,
        "to": [each.email for each in email.to],
        "cc": [each.email for each in email.cc],
        "bcc": [each.email for each in email.bcc],
        "reply_to": [each.email for each in email.reply_to],
        "subject": email.subject,
        "attachments": [each.filename for each in email.attachments],
        "tracking": (sending.tracking_settings or TrackingSettings()).model_dump(by_alias=True),
        "settings": settings,
    }
