"""A message file, or an .eml that somebody has written, as a draft: its texts read, its files attached."""

from dataclasses import fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from connector.errors import ConfigurationError
from connector.mail.draft import Composed, Draft, compose
from connector.mail.eml import read_eml
from connector.mail.files import read_attachment
from connector.mail.plain_text import html_to_text
from connector.mail.send_times import parse_send_at
from connector.protocol.email import Attachment, Header
from pipelines.jobs.emails import AttachedFile, EmailText, MessageFile, read_stated

LARGEST_EML = 50_000_000
"""Bytes; an .eml holds its files a third larger than they are."""


def draft_file(file: MessageFile) -> Draft:
    """The draft that a message file makes.

    Raises ConfigurationError and its MessageError: a file that is missing, too large or no text, an inline part without
    id.
    """
    attached = [attach(each, "attachment", file.max_attached) for each in file.attach]
    inline = [attach(each, "inline", file.max_attached) for each in file.inline]
    return Draft(
        sender=file.from_,
        to=file.to,
        cc=file.cc,
        bcc=file.bcc,
        reply_to=file.reply_to,
        subject=file.subject,
        html=read_text(file.html) if file.html else None,
        plain_text=read_text(file.text) if file.text else None,
        headers=tuple(Header(name, value) for name, value in file.headers.items()),
        attachments=(*inline, *attached),
        settings=read_stated(file.tracking, file.settings),
        send_at=parse_send_at(file.at) if file.at is not None else None,
    )


def draft_eml(path: Path) -> Draft:
    """The draft of an .eml file. Raises ConfigurationError."""
    return read_eml(read_bytes(path, LARGEST_EML, "email"))


def lay_over(base: Draft, over: Draft) -> Draft:
    """`base` with what `over` says in its place; settings one by one, attachments and headers besides. A new page
    brings a plain-text body of its own."""
    said: dict[str, Any] = {
        each.name: value for each in fields(over) if (value := getattr(over, each.name)) not in (None, (), {})
    }
    together: dict[str, Any] = {
        "settings": {**base.settings, **over.settings},
        "attachments": base.attachments + over.attachments,
        "headers": base.headers + over.headers,
    }
    if over.html is not None and over.plain_text is None:
        together["plain_text"] = None  # made anew from the new page: the old one says something else
    return replace(base, **said | together)


def compose_draft(draft: Draft, now: datetime) -> Composed:
    """The message of a draft, with a plain-text body made from its HTML where it has none: not everybody reads HTML.

    Raises MessageError, which names the field.
    """
    if draft.plain_text is None and draft.html:
        draft = replace(draft, plain_text=html_to_text(draft.html) or None)
    return compose(draft, {}, now)


def read_text(text: EmailText) -> str:
    """A body, from its file if it has one. Raises ConfigurationError."""
    if text.path is None:
        return text.content or ""
    try:
        return read_bytes(text.path, LARGEST_EML, "text").decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{text.path}: a body is UTF-8 text; byte {error.start + 1} is not") from None


def read_bytes(path: Path, most: int, what: str) -> bytes:
    """A whole file of at most so many bytes. Raises ConfigurationError."""
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise ConfigurationError(f"{path}: the {what} cannot be read: {error.strerror}") from None
    if len(content) > most:
        raise ConfigurationError(f"{path}: the {what} has more than {most:,} bytes; is it the right file?")
    return content


def attach(file: AttachedFile, disposition: Literal["attachment", "inline"], most: int) -> Attachment:
    """A file as a part of an email. Raises MessageError."""
    return read_attachment(file.path, most_bytes=most, disposition=disposition, content_id=file.id, mime_type=file.type)
