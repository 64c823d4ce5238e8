"""Emails (service-api.md 2.2, 4.1 and 7): the rules of a SendEmail request, the .eml file, and the outbox that keeps
it.

Nothing leaves the machine.
"""

import base64
import binascii
import os
import re
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP, SMTPUTF8
from itertools import islice
from pathlib import Path
from typing import Any

from connector.sandbox.subscriber import RejectedError, check_array, check_known, check_object, check_text, is_address

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
    """Return the email of a request's body; raises RejectedError naming the first field that breaks a rule."""
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


def _parse_mailbox(value: object, name: str, rules: EmailRules) -> tuple[str, str]:
    """Return (Email, Name) of a recipient or sender; the email is required, the name recommended."""
    mailbox = check_object(value, name)
    if rules.is_strict:
        check_known(mailbox, ("Email", "Name"), name)
    email = check_text(mailbox.get("Email", ""), f"{name}.Email")
    if not is_address(email):
        raise RejectedError(f"{name}.Email must be an email address")
    return email, _check_one_line(check_text(mailbox.get("Name", ""), f"{name}.Name"), f"{name}.Name")


def _parse_recipients(email: dict[str, Any], name: str, rules: EmailRules) -> tuple[tuple[str, str], ...]:
    full = f"SendEmail.Email.{name}"
    given = check_array(email.get(name, []), full)
    return tuple(_parse_mailbox(each, f"{full}[{place}]", rules) for place, each in enumerate(given))


def _parse_sender(email: dict[str, Any], rules: EmailRules) -> tuple[str, str]:
    sender = _parse_mailbox(email.get("From"), "SendEmail.Email.From", rules)
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


_SINGLE = frozenset({"subject", "from", "sender", "to", "cc", "bcc", "reply-to", "date", "message-id"})


def compose_eml(email: Email, message_id: str, at: float) -> bytes:
    """Return the bytes of an .eml file (RFC 5322, MIME); `at` is the moment of acceptance in Unix seconds."""
    mailboxes = (*email.to, *email.cc, *email.bcc, *email.reply_to, email.sender)
    is_ascii = all(address.isascii() for address, _ in mailboxes)
    message = EmailMessage(policy=SMTP if is_ascii else SMTPUTF8)
    message["Message-ID"] = message_id
    message["Date"] = datetime.fromtimestamp(at, UTC)
    message["From"] = _address(email.sender)
    for name, group in (("To", email.to), ("Cc", email.cc), ("Bcc", email.bcc), ("Reply-To", email.reply_to)):
        if group:
            message[name] = tuple(_address(each) for each in group)
    message["Subject"] = email.subject
    for name, value in email.headers:
        if name.lower().startswith(("content-", "mime-")):
            continue  # even unprotected: they say what the parts below are
        if name.lower() in _SINGLE:  # only when the switches do not protect it: then it overrides
            del message[name]
        message[name] = value
    if email.settings["SendAt"] is not None:
        message["X-Sandbox-Send-At"] = datetime.fromtimestamp(email.settings["SendAt"], UTC).isoformat()
    _add_bodies(message, email)
    return message.as_bytes()


def _address(mailbox: tuple[str, str]) -> Address:
    email, name = mailbox
    local, _, domain = email.rpartition("@")
    return Address(name, username=local.strip('"'), domain=domain)


def _add_bodies(message: EmailMessage, email: Email) -> None:
    """Add alternatives of text and page, inline files related to the page, and the other files around them."""
    if email.plain_text:
        message.set_content(email.plain_text)
    if email.html and email.plain_text:
        message.add_alternative(email.html, subtype="html")
    elif email.html:
        message.set_content(email.html, subtype="html")
    inline = [each for each in email.attachments if each.is_inline]
    page = message
    if inline and email.html and email.plain_text:
        parts = message.get_payload()
        page = parts[-1]  # type: ignore[index,assignment]  # an alternative's payload is a list of its parts
    for each in inline:
        main, _, sub = each.mime_type.partition("/")
        page.add_related(
            each.content, main, sub, cid=f"<{each.content_id}>", filename=each.filename, disposition="inline"
        )
    for each in email.attachments:
        if not each.is_inline:
            _attach(message, each)


def _attach(message: EmailMessage, each: Attachment) -> None:
    main, _, sub = each.mime_type.partition("/")
    cid = f"<{each.content_id}>" if each.content_id else None
    message.add_attachment(each.content, main, sub, filename=each.filename, cid=cid)


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


def describe_email(email: Email) -> dict[str, object]:
    """Return what the truth log and the outbox say of an email besides its file."""
    return {
        "from": email.sender[0],
        "to": [address for address, _ in email.to],
        "cc": [address for address, _ in email.cc],
        "bcc": [address for address, _ in email.bcc],
        "reply_to": [address for address, _ in email.reply_to],
        "subject": email.subject,
        "attachments": [each.filename for each in email.attachments],
        "tracking": email.tracking,
        "settings": email.settings,
    }
