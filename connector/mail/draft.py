"""What was said of an email, and the whole message that it makes with what holds where nothing was said.

The service decides on its own whatever setting is null or left out (service-api.md 2.2), so each is stated: by the
draft, else by DEFAULT_SETTINGS. A null is sent only for a null that a person wrote; SendAt and
UseDkimSelector apart, whose null means at once, and no selector.
"""

import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from mimetypes import MimeTypes
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from connector.mail.message import Attachment, EmailSettings, Header, Message, MessageError, Recipient
from connector.mail.plain_text import html_to_text
from connector.rows import Row

if TYPE_CHECKING:  # a single email has no template and does not pay for Jinja2
    from connector.templates import Template

# Recipients as a person writes them: an address, with a name before it or without

_WITH_NAME = re.compile(r"(?P<name>[^<>]*)<(?P<email>[^<>]*)>")
_QUOTED = re.compile(r'"(?P<inside>(?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")


def parse_recipient(text: str, field: str) -> Recipient:
    """Parse `ann@example.com`, `Ann Lee <ann@example.com>` or `"Lee, Ann" <ann@example.com>`.

    Raises MessageError with `field`, never with the text.
    """
    found = _WITH_NAME.fullmatch(text.strip())
    email, name = (found["email"], found["name"].strip()) if found else (text, "")
    quoted = _QUOTED.fullmatch(name)
    if quoted:
        name = _ESCAPED.sub(r"\1", quoted["inside"])
    return build_recipient(email, name or None, field)


def build_recipient(email: str, name: str | None, field: str) -> Recipient:
    """Return a recipient of this address and name. Raises MessageError with `field` before what is wrong."""
    try:
        return Recipient(email.strip(), name)
    except MessageError as error:
        part = error.field.rpartition(".")[2]
        raise MessageError(f"{field}.{part}", error.problem) from None


def to_timestamp(at: datetime | None, now: datetime) -> int | None:
    """Return the Unix timestamp of a time that is not past (both aware); None for at once. A part of a second is
    rounded up: it is the earliest time. Raises MessageError."""
    if at is None:
        return None
    if at.tzinfo is None:
        raise MessageError("EmailSettings.SendAt", "has no zone; give a time that is aware of its zone")
    if at < now:
        raise MessageError("EmailSettings.SendAt", "is past; give a later time, or none to send at once")
    return int(at.timestamp()) + bool(at.microsecond)


# A file as a part of an email: read whole, bounded, its type guessed by its name

ATTACHMENTS = "Email.Attachments"
UNKNOWN_TYPE = "application/octet-stream"

MOST_ATTACHED = 20_000_000
"""Largest attached file by default, in bytes: the service's own limit is unknown (service-api.md 8)."""

# A new table holds Python's own types only. The types of the machine's files stay in the global table of `mimetypes`.
_TABLE = MimeTypes()
_TYPES = _TABLE.types_map[False] | _TABLE.types_map[True]  # by suffix; standard types replace common ones


def guess_type(name: str) -> str:
    """Return the MIME type of a file of this name, or UNKNOWN_TYPE if Python's table lacks the suffix."""
    return _TYPES.get(PurePath(name).suffix.lower(), UNKNOWN_TYPE)


def read_attachment(
    path: Path,
    *,
    most_bytes: int,
    disposition: Literal["attachment", "inline"] = "attachment",
    content_id: str | None = None,
    mime_type: str | None = None,
) -> Attachment:
    """Return the file as a part of an email, under its own name; of a larger one no more than `most_bytes` + 1 are
    read.

    Raises MessageError with the path: it is missing, unreadable, no ordinary file, empty or too large.
    """
    shown = repr(str(path))  # safe for a terminal, whatever the name holds
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise MessageError(ATTACHMENTS, f"{shown} is a folder; name a file, or pack the folder into one")
        if not stat.S_ISREG(mode):  # a pipe or a device: reading it may wait, or never end
            raise MessageError(ATTACHMENTS, f"{shown} is no ordinary file; name one")
        with path.open("rb") as file:
            content = file.read(most_bytes + 1)
    except FileNotFoundError:
        raise MessageError(ATTACHMENTS, f"{shown} does not exist; check the path") from None
    except OSError as error:
        raise MessageError(ATTACHMENTS, f"{shown} cannot be read: {error.strerror}") from None
    except ValueError:
        raise MessageError(ATTACHMENTS, f"{shown} is no path: it holds a NUL") from None
    if len(content) > most_bytes:
        raise MessageError(
            ATTACHMENTS, f"{shown} is larger than the {most_bytes:,} bytes that are allowed; attach less"
        )
    if not content:
        raise MessageError(ATTACHMENTS, f"{shown} is empty; attach a file that holds something")
    return Attachment(content, path.name, mime_type or guess_type(path.name), disposition, content_id)


# The draft, and the message

Stated = Mapping[str, bool | str | None]
"""Settings by the names of TRACKING and SETTINGS; what is not in it was not said."""

DEFAULT_SETTINGS: Stated = MappingProxyType(
    {
        "track_links": False,
        "track_plain_text_links": False,
        "track_open": False,
        "track_unsubscribe": False,
        "inline_images": False,
        "use_dkim": True,
        "use_dkim_selector": None,
    }
)
"""No recipient is tracked, and nothing in the email altered, unless the job or the draft says so; and it is signed."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Draft:
    """What was said of an email; None and empty where nothing was. `settings` as `Stated`, `send_at` aware."""

    sender: Recipient | None = None
    to: tuple[Recipient, ...] = ()
    cc: tuple[Recipient, ...] = ()
    bcc: tuple[Recipient, ...] = ()
    reply_to: tuple[Recipient, ...] = ()
    subject: str | None = None
    html: str | None = None
    plain_text: str | None = None
    headers: tuple[Header, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    settings: Stated = field(default_factory=dict)
    send_at: datetime | None = None


def compose_draft(draft: Draft, now: datetime) -> Message:
    """Return the message of a draft, with a plain-text body made from its HTML where it has none; `now` is aware.

    Raises MessageError, which names the first field that is missing or breaks a rule.
    """
    if draft.sender is None:
        raise MessageError("Email.From", "is missing: every email needs a sender's address")
    if draft.subject is None:
        raise MessageError("Email.Subject", "is missing; an empty one is written as an empty text")
    stated: dict[str, Any] = {**DEFAULT_SETTINGS, **draft.settings}
    stated["use_dkim_selector"] = stated["use_dkim_selector"] or None
    plain_text = draft.plain_text
    if plain_text is None and draft.html:
        plain_text = html_to_text(draft.html) or None
    return Message(
        settings=EmailSettings(**stated, send_at=to_timestamp(draft.send_at, now)),
        sender=draft.sender,
        to=draft.to,
        cc=draft.cc,
        bcc=draft.bcc,
        reply_to=draft.reply_to,
        subject=draft.subject,
        html=draft.html,
        plain_text=plain_text,
        headers=draft.headers,
        attachments=draft.attachments,
    )


# the texts of a mail job


@dataclass(frozen=True, slots=True)
class MailTexts:
    """The email of a mail job before any row: the part that all rows share, and the templates."""

    shared: Draft
    address_column: str
    name_column: str | None
    subject: "Template"
    html: "Template | None"
    text: "Template | None"
    headers: tuple[tuple[str, "Template"], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the addresses and the templates use."""
        asked = [self.address_column, *([self.name_column] if self.name_column else [])]
        for template in self._templates():
            asked += template.columns
        return tuple(dict.fromkeys(asked))

    def name_place(self, column: str) -> str:
        """Return the key of the job whose text uses a column."""
        if column in (self.address_column, self.name_column):
            return "mail.to"
        return next(each.name for each in self._templates() if column in each.columns)

    def read_address(self, row: Row) -> str:
        """Return the address that a row's email goes to, as it is sent."""
        return _read_cells(row).get(self.address_column, "").strip()

    def compose(self, row: Row, now: datetime) -> Message:
        """Return the email of a row; `now` is aware. Raises MessageError and TemplateError."""
        cells = _read_cells(row)
        name = cells.get(self.name_column, "").strip() if self.name_column else ""
        recipient = build_recipient(self.read_address(row), name or None, "Email.To[0]")
        draft = replace(
            self.shared,
            to=(recipient,),
            subject=self.subject.render(cells),
            html=self.html.render(cells) if self.html else None,
            plain_text=self.text.render(cells) if self.text else None,
            headers=tuple(Header(header, template.render(cells)) for header, template in self.headers),
        )
        return compose_draft(draft, now)

    def _templates(self) -> "list[Template]":
        found = [self.subject, self.html, self.text, *(each for _, each in self.headers)]
        return [each for each in found if each is not None]


def _read_cells(row: Row) -> dict[str, str]:
    """Return a row's cells by column, "" for an empty one."""
    return {column: cell or "" for column, cell in zip(row.columns, row.cells, strict=True)}
