"""What a message amounts to as a file is what both Python's own reader and ours find in it."""

import re
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default as python_policy

from hypothesis import given

from connector.mail.draft import Draft
from connector.mail.eml import read_eml, write_eml
from connector.protocol.email import Attachment, Message
from tests.mail.eml.strategies import messages


def to_lf(text: str | None) -> str | None:
    return None if text is None else text.replace("\r\n", "\n").replace("\r", "\n")


def to_draft(message: Message) -> Draft:
    """The draft of which a message is made, but for settings, which are no part of a file."""
    pictures = [each for each in message.attachments if each.disposition == "inline" and message.html]
    return Draft(
        sender=message.sender,
        to=tuple(message.to),
        cc=tuple(message.cc),
        bcc=tuple(message.bcc),
        reply_to=tuple(message.reply_to),
        subject=message.subject,
        html=to_lf(message.html),
        plain_text=to_lf(message.plain_text),
        headers=tuple(message.headers),
        attachments=(*pictures, *(each for each in message.attachments if each not in pictures)),
    )


def tell(draft: Draft) -> dict[str, object]:
    """A draft with its contents to be seen, since none shows them in its repr."""
    return {
        "people": [
            [(each.email, each.name) for each in people]
            for people in ([draft.sender] if draft.sender else [], draft.to, draft.cc, draft.bcc, draft.reply_to)
        ],
        "texts": (draft.subject, draft.html, draft.plain_text),
        "headers": [(each.name, each.value) for each in draft.headers],
        "files": [tell_file(each) for each in draft.attachments],
    }


def tell_file(file: Attachment) -> tuple[object, ...]:
    return (file.content, file.filename, file.mime_type, file.disposition, file.content_id)


@given(messages())
def test_what_is_written_is_read_again(message: Message) -> None:
    read = read_eml(write_eml(message))
    assert tell(read) == tell(to_draft(message))
    assert read == to_draft(message)


@given(messages())
def test_a_file_is_one_that_any_program_takes(message: Message) -> None:
    data = write_eml(message)
    lines = data.split(b"\r\n")
    assert not re.search(rb"(?<!\r)\n|\r(?!\n)", data)
    assert max(map(len, lines)) <= 998
    assert data == write_eml(message)
    head = data.partition(b"\r\n\r\n")[0]
    people = b"".join(each.email.encode() for each in (message.sender, *message.to, *message.cc, *message.bcc))
    assert head.isascii() or not (people + b"".join(each.email.encode() for each in message.reply_to)).isascii()


@given(messages())
def test_pythons_own_reader_finds_the_same_files(message: Message) -> None:
    parsed = message_from_bytes(write_eml(message), policy=python_policy)
    assert isinstance(parsed, EmailMessage)
    found = [part for part in parsed.walk() if part.get("Content-Disposition")]
    contents = [
        part.get_payload(decode=True) for part in found if part.get_content_maintype() not in ("message", "multipart")
    ]
    mine = to_draft(message).attachments
    assert contents == [each.content for each in mine if not each.mime_type.startswith(("message", "multipart"))]
    assert [part["Content-ID"] for part in found] == [
        None if each.content_id is None else f"<{each.content_id}>" for each in mine
    ]
    assert not parsed.defects
