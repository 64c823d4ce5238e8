"""Emails (service-api.md 2.2, 4.1 and 7): the rules of a SendEmail request, the .eml file, and the outbox.

No email leaves the machine.
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

from connector.sandbox.subscriber import RejectedError, build_rejection, is_address
from connector.sandbox.switches import SandboxSettings

_LARGEST_TIMESTAMP = 253_402_300_799  # the end of the year 9999
_MIME_TYPE = r"^[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+$"
_HEADER_NAME_PATTERN = r"^[!-9;-~]+$"  # RFC 5322, 2.2: printable ASCII without the colon


# The rules of a SendEmail request


def _check_one_line(text: str) -> str:
    if any(control_character in text for control_character in "\r\n\0"):
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


class _EmailModel(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, alias_generator=to_pascal, defer_build=True)


class Mailbox(_EmailModel):
    """A recipient or the sender. The email is required, and the name is recommended."""

    email: Annotated[str, AfterValidator(_check_address)]
    name: _OneLine = ""


class Header(_EmailModel):
    """An extra header."""

    name: Annotated[str, Field(pattern=_HEADER_NAME_PATTERN)]
    value: _OneLine


class Attachment(_EmailModel):
    """A decoded file of an email."""

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


class TrackingSettings(_EmailModel):
    """The kinds of tracking, each switched on or off. If a kind is None, the service decides."""

    track_links: bool | None = None
    track_plain_text_links: bool | None = None
    track_open: bool | None = None
    track_unsubscribe: bool | None = None


class EmailSettings(_EmailModel):
    """Settings for the sending of an email. If a setting is None, the service decides."""

    inline_images: bool | None = None
    send_at: Annotated[int, Field(ge=0, le=_LARGEST_TIMESTAMP)] | None = None
    use_dkim: bool | None = None
    use_dkim_selector: _OneLine | None = None


class Email(_EmailModel):
    """An email without its settings."""

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
        content_ids = [attachment.content_id for attachment in self.attachments if attachment.content_id]
        if len(content_ids) != len(set(content_ids)):
            raise ValueError("each ContentId of Attachments must be unique within the email")
        return self


class SendEmail(_EmailModel):
    """An email with its settings."""

    tracking_settings: TrackingSettings | None = None
    email_settings: EmailSettings | None = None
    email: Email


class _SendBody(_EmailModel):
    send_email: SendEmail


def parse_email(body: bytes, settings: SandboxSettings) -> SendEmail:
    """Return the email of a request's body. Raise RejectedError with the first field that breaks a rule."""
    try:
        send_email = _SendBody.model_validate_json(body, extra=settings.extra_fields_policy).send_email
    except ValidationError as error:
        raise build_rejection(error) from None
    domain = send_email.email.sender.email.rpartition("@")[2].lower()
    if not {domain, "*"} & {verified_domain.lower() for verified_domain in settings.verified_domains}:
        raise RejectedError(f"SendEmail.Email.From.Email: the domain {domain!r} is not registered and verified")
    protected_names = {protected_header.lower() for protected_header in settings.protected_headers}
    for header in send_email.email.headers:
        if header.name.lower() in protected_names:
            raise RejectedError(f"SendEmail.Email.Headers: the header {header.name!r} is protected")
    return send_email


# The .eml file of an email


def compose_eml(send_email: SendEmail, message_id: str, accepted_at: float) -> bytes:
    """Return the bytes of an .eml file (RFC 5322, MIME). `accepted_at` is the time at which the service accepted the
    email (Unix seconds)."""
    email = send_email.email
    mailboxes = (*email.to, *email.cc, *email.bcc, *email.reply_to, email.sender)
    is_ascii = all(mailbox.email.isascii() for mailbox in mailboxes)
    message = EmailMessage(policy=SMTP if is_ascii else SMTPUTF8)
    message["Message-ID"] = message_id
    message["Date"] = datetime.fromtimestamp(accepted_at, UTC)
    message["From"] = _build_address(email.sender)
    mailboxes_by_header = {"To": email.to, "Cc": email.cc, "Bcc": email.bcc, "Reply-To": email.reply_to}
    for name, mailboxes_of_header in mailboxes_by_header.items():
        if mailboxes_of_header:
            message[name] = tuple(_build_address(mailbox) for mailbox in mailboxes_of_header)
    message["Subject"] = email.subject
    for header in email.headers:
        if header.name.lower().startswith(("content-", "mime-")):
            continue  # the code below sets these headers for the text, the HTML and the attachments
        if message.policy.header_max_count(header.name) == 1:
            # A header that is not protected replaces the earlier header.
            del message[header.name]
        message[header.name] = header.value
    if send_email.email_settings is not None and send_email.email_settings.send_at is not None:
        message["X-Sandbox-Send-At"] = datetime.fromtimestamp(send_email.email_settings.send_at, UTC).isoformat()
    # The text and the HTML are parts of a multipart/alternative. Inline files and the HTML are parts of a
    # multipart/related. Other files are attached to the whole email.
    parent_of_inline_files = message
    if email.plain_text:
        message.set_content(email.plain_text)
    if email.html and email.plain_text:
        message.add_alternative(email.html, subtype="html")
        message_parts = message.get_payload()
        parent_of_inline_files = message_parts[-1]  # type: ignore[index,assignment]  # the payload of an alternative is the list of its parts
    elif email.html:
        message.set_content(email.html, subtype="html")
    for file in sorted(email.attachments, key=lambda file: file.disposition == "attachment"):  # inline files first
        main_type, _, subtype = file.type.partition("/")
        add_part = parent_of_inline_files.add_related if file.disposition == "inline" else message.add_attachment
        cid = f"<{file.content_id}>" if file.content_id else None
        add_part(file.content, main_type, subtype, cid=cid, filename=file.filename, disposition=file.disposition)
    return message.as_bytes()


def _build_address(mailbox: Mailbox) -> Address:
    local_part, _, domain = mailbox.email.rpartition("@")
    return Address(mailbox.name, username=local_part.strip('"'), domain=domain)


# The outbox of accepted emails


class Outbox:
    """The store of emails by SendMessageRequestId. If `directory` is None, the emails are only in memory."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._entry_by_id: dict[int, dict[str, Any]] = {}
        self._eml_by_id: dict[int, bytes] = {}
        self.last_id = 0
        if directory is not None:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def __len__(self) -> int:
        return len(self._entry_by_id)

    def add(self, send_email: SendEmail, now: float) -> dict[str, Any]:
        """Write the .eml file, then add and return the entry of the email. The entry has a new SendMessageRequestId, a
        new Message-ID, and the values of the email for the truth log. `now` is in Unix seconds."""
        email, request_id = send_email.email, self.last_id + 1
        settings = (send_email.email_settings or EmailSettings()).model_dump(by_alias=True)
        if settings["UseDkimSelector"]:
            settings["UseDkim"] = True  # a selector enables DKIM, even if the request has UseDkim false
        entry = {
            "request_id": request_id,
            "message_id": f"<{uuid.uuid4().hex}@sandbox.invalid>",
            "from": email.sender.email,
            "to": [mailbox.email for mailbox in email.to],
            "cc": [mailbox.email for mailbox in email.cc],
            "bcc": [mailbox.email for mailbox in email.bcc],
            "reply_to": [mailbox.email for mailbox in email.reply_to],
            "subject": email.subject,
            "attachments": [file.filename for file in email.attachments],
            "tracking": (send_email.tracking_settings or TrackingSettings()).model_dump(by_alias=True),
            "settings": settings,
        }
        eml_bytes = compose_eml(send_email, str(entry["message_id"]), now)
        if self._directory is None:
            self._eml_by_id[request_id] = eml_bytes
        else:
            path = self._directory / f"{request_id:08d}.eml"
            partial_path = path.with_suffix(".part")
            descriptor = os.open(partial_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(eml_bytes)
            partial_path.replace(path)
        self.restore_email(entry)
        return entry

    def restore_email(self, entry: dict[str, Any]) -> None:
        """Add the entry of an email whose file exists already, or was never on disk."""
        self._entry_by_id[entry["request_id"]] = entry
        self.last_id = max(self.last_id, entry["request_id"])

    def read_entries(self, now: float) -> list[dict[str, Any]]:
        """Return all emails, the oldest first. An email has the values of its entry, its `state` at `now` (Unix
        seconds), its `file` (None in memory), and the text of the .eml file as `eml`. The state is scheduled until
        SendAt, and then sent."""
        return [
            self._describe_email(entry, now)
            | {
                "file": str(self._directory / f"{request_id:08d}.eml") if self._directory is not None else None,
                "eml": self.read_eml(request_id).decode("utf-8", "replace"),
            }
            for request_id, entry in self._entry_by_id.items()
        ]

    def read_last_emails(self, count: int, now: float) -> list[dict[str, Any]]:
        """Return the last `count` emails, the latest first, without `file` and `eml`."""
        return [self._describe_email(entry, now) for entry in islice(reversed(self._entry_by_id.values()), count)]

    @staticmethod
    def _describe_email(entry: dict[str, Any], now: float) -> dict[str, Any]:
        return entry | {"state": "scheduled" if (entry["settings"]["SendAt"] or 0) > now else "sent"}

    def read_eml(self, request_id: int) -> bytes:
        """Return the content of the .eml file, or no bytes if the email or its file does not exist."""
        if self._directory is None:
            return self._eml_by_id.get(request_id, b"")
        path = self._directory / f"{request_id:08d}.eml"
        return path.read_bytes() if path.exists() else b""

    def clear(self) -> None:
        """Delete all emails."""
        if self._directory is not None:
            for path in self._directory.glob("*.eml"):
                path.unlink()
        self._entry_by_id, self._eml_by_id, self.last_id = {}, {}, 0
