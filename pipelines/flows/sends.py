"""The dry run of `connector send`: shows an email, and writes it to an .eml file."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from connector.atomic_file import create_private
from connector.errors import ConfigurationError
from connector.mail.message import SETTINGS, TRACKING, Message, Recipient, write_eml

_BODY_LENGTH = 300  # characters of a body that are shown


class DraftedAttachment(TypedDict):
    """An attachment in the report of `send --dry-run`."""

    filename: Annotated[str, "File name."]
    type: Annotated[str, "MIME type."]
    bytes: Annotated[int, "Size in bytes."]
    disposition: Annotated[str, "`attachment` or `inline`."]
    id: Annotated[str | None, "Id that the HTML body uses for an inline attachment. Null without one."]


_Sender = TypedDict("_Sender", {"from": Annotated[str, "Sender."]})  # `from` is a keyword


class DraftedEmail(_Sender):
    """The email in the report of `send --dry-run`."""

    to: Annotated[list[str], "Recipients."]
    cc: Annotated[list[str], "Recipients of copies."]
    bcc: Annotated[list[str], "Recipients of hidden copies."]
    reply_to: Annotated[list[str], "Addresses for replies."]
    subject: Annotated[str, "Subject line."]
    html: Annotated[str | None, "HTML body. Null without one."]
    text: Annotated[str | None, "Plain-text body. Null without one."]
    headers: Annotated[list[str], "Further headers: `Name: value`."]
    attachments: Annotated[list[DraftedAttachment], "Attachments, without their content."]
    tracking: Annotated[dict[str, bool | None], "Tracking settings. Null: the service decides."]
    settings: Annotated[dict[str, bool | str | None], "Other settings. Null: the service decides."]
    send_at: Annotated[int | None, "Earliest time of sending, in Unix seconds. Null: at once."]
    eml: Annotated[str, "Path of the written .eml file."]


class DryRunReport(TypedDict):
    """The report of `send --dry-run`."""

    command: Annotated[Literal["send"], "Name of the command."]
    planned: Annotated[Literal[True], "The command sent nothing."]
    email: Annotated[DraftedEmail, "The email as it would be sent."]


def write_new(path: Path, message: Message) -> Path:
    """Write the message to a new .eml file that only its owner can read. Raises ConfigurationError, also if the file
    exists."""
    try:
        file = create_private(path)
    except FileExistsError:
        raise ConfigurationError(f"{path} exists already: name another file with --eml") from None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}; name another file with --eml") from None
    with file:
        file.write(write_eml(message))
    return path


def show_email(email_fields: dict[str, Any], console: Console) -> None:
    """Print the values that `describe_message` returns."""
    console.print("send (planned: nothing was sent)", style="bold")
    table = Table(show_header=False)
    table.add_column("what")
    table.add_column("value", overflow="fold")
    for name, value in email_fields.items():
        if value not in (None, [], ""):
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            # A terminal would obey control characters, so they are shown as escapes.
            plain_text = "".join(
                character if character.isprintable() or character == "\n" else ascii(character)[1:-1]
                for character in text[:_BODY_LENGTH]
            )
            table.add_row(name, Text(f"{plain_text}…" if len(text) > _BODY_LENGTH else plain_text))
    console.print(table)


def describe_message(message: Message) -> dict[str, Any]:
    """Return every field of the message as plain values, and the properties of its attachments without their
    content."""
    return {
        "from": _describe_person(message.sender),
        "to": [_describe_person(recipient) for recipient in message.to],
        "cc": [_describe_person(recipient) for recipient in message.cc],
        "bcc": [_describe_person(recipient) for recipient in message.bcc],
        "reply_to": [_describe_person(recipient) for recipient in message.reply_to],
        "subject": message.subject,
        "html": message.html,
        "text": message.plain_text,
        "headers": [f"{header.name}: {header.value}" for header in message.headers],
        "attachments": [
            {
                "filename": attachment.filename,
                "type": attachment.mime_type,
                "bytes": len(attachment.content),
                "disposition": attachment.disposition,
                "id": attachment.content_id,
            }
            for attachment in message.attachments
        ],
        "tracking": {name: getattr(message.settings, name) for name in TRACKING},
        "settings": {name: getattr(message.settings, name) for name in SETTINGS},
        "send_at": message.settings.send_at,
    }


def _describe_person(person: Recipient) -> str:
    return f"{person.name} <{person.email}>" if person.name else person.email
