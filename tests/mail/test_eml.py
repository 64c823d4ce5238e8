"""The .eml file and the preview page of a message. Python's own parser reads each field of the file unchanged."""

from email import message_from_bytes, message_from_string
from email.message import EmailMessage, Message as Part
from email.policy import default as python_policy
from typing import Any

import pytest

from connector.mail.message import Attachment, EmailSettings, Header, Message, MessageError, Recipient, format_eml

DEFAULT_SETTINGS = EmailSettings()
PDF_ATTACHMENT = Attachment(b"%PDF", "terms.pdf", "application/pdf")
LOGO_ATTACHMENT = Attachment(b"\x89PNG", "logo.png", "image/png", "inline", "logo")
EML_ATTACHMENT = Attachment(b"Subject: x\r\n\r\ny", "old.eml", "message/rfc822")
# Python loses spaces of this subject when it breaks the header into lines.
LONG_SUBJECT = "word " * 40 + "longerwordlongerwordlongerword😀:ü ß>  éтест ("


def build_message(**changes: Any) -> Message:
    required_fields: dict[str, Any] = {
        "sender": Recipient("shop@x.example", "Shop"),
        "to": [Recipient("ann@x.example")],
        "subject": "Hello",
        "plain_text": "Hi\nAnn",
    }
    return Message(settings=DEFAULT_SETTINGS, **{**required_fields, **changes})


def write_message(**changes: Any) -> bytes:
    return format_eml(build_message(**changes))


def parse_email(message_bytes: bytes) -> EmailMessage:
    parsed_email = message_from_bytes(message_bytes, policy=python_policy)
    assert isinstance(parsed_email, EmailMessage)
    assert [part.defects for part in parsed_email.walk() if part.defects] == []
    return parsed_email


@pytest.mark.parametrize(
    "people",
    [
        [Recipient("a.b@x.example", 'Lee, "Ann" <x> (é😀)'), Recipient('"a,b"@x.example')],
        [Recipient("имя@пример.example", "Größe, Ann"), Recipient("c@x.example", "_a\\ b")],
        [Recipient(f"a{index}@x.example", "Größe, Ann") for index in range(100)],
    ],
    ids=["quotes", "scripts", "many"],
)
def test_a_parser_reads_each_recipient_and_each_header(people: list[Recipient]) -> None:
    headers = [Header("X-Campaign", "Frühling  <1>"), Header("Date", "Sun, 22 Nov 2026 08:00:00 +0000")]
    message_bytes = write_message(
        to=people, cc=people, bcc=people, reply_to=people, subject=LONG_SUBJECT, headers=headers
    )
    # Python's parser of bytes does not decode headers in UTF-8.
    parsed_email = message_from_string(message_bytes.decode(), policy=python_policy)
    for name in ("To", "Cc", "Bcc", "Reply-To"):
        parsed_people = [(address.addr_spec, address.display_name or None) for address in parsed_email[name].addresses]
        assert parsed_people == [(person.email, person.name) for person in people]
    assert (parsed_email["Subject"], parsed_email["X-Campaign"], parsed_email["Date"]) == (
        LONG_SUBJECT,
        "Frühling  <1>",
        headers[1].value,
    )
    header_lines = message_bytes.partition(b"\r\n\r\n")[0].split(b"\r\n")
    assert [line for line in header_lines if line.startswith(b" ")] == []
    assert message_bytes.isascii() == all(person.email.isascii() for person in people)


@pytest.mark.parametrize("text", ["From \n.\n..\n", "x" * 2000, " \n \n ", "é" * 600, "\ufeffx", "a\tb \r\nc = d"])
def test_a_parser_reads_any_text_unchanged(text: str) -> None:
    text_parts: list[Any] = [
        part for part in parse_email(write_message(plain_text=text, html=text)).walk() if not part.is_multipart()
    ]
    texts = [part.get_content().replace("\r\n", "\n").rstrip("\n") for part in text_parts]
    assert texts == [text.replace("\r\n", "\n").rstrip("\n")] * 2


@pytest.mark.parametrize("name", ["terms.pdf", "a%20b.pdf", "a'b''c.pdf", "名前" * 60 + ".pdf", "; x=y"])
@pytest.mark.parametrize("content", [b"\r\n", b"\n" * 100, b"x" * 1000, bytes(range(256))])
def test_a_parser_reads_each_file_with_its_name_and_type(name: str, content: bytes) -> None:
    parsed_email: Any = parse_email(
        write_message(attachments=[Attachment(content, name, "text/html; charset=koi8-r", "inline", "logo")])
    )
    (part,) = (mail_part for mail_part in parsed_email.walk() if mail_part.get_filename() is not None)
    assert (part.get_payload(decode=True), part.get_filename(), part["Content-ID"]) == (content, name, "<logo>")
    assert (part.get_content_type(), part.get_param("charset")) == ("text/html", "koi8-r")


def list_content_types(part: Part) -> Any:
    payload = part.get_payload()
    mime_type = part.get_content_type()
    if not isinstance(payload, list):
        return mime_type
    return (mime_type, *(list_content_types(inner_part) for inner_part in payload))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "expected_types"),
    [
        ({}, "text/plain"),
        ({"plain_text": None, "html": "<p>"}, "text/html"),
        ({"html": "<p>"}, ("multipart/alternative", "text/plain", "text/html")),
        ({"attachments": [LOGO_ATTACHMENT]}, ("multipart/mixed", "text/plain", "image/png")),
        ({"attachments": [EML_ATTACHMENT]}, ("multipart/mixed", "text/plain", "application/octet-stream")),
        (
            {"plain_text": None, "html": "<p>", "attachments": [LOGO_ATTACHMENT]},
            ("multipart/related", "text/html", "image/png"),
        ),
        (
            {"html": "<p>", "attachments": [PDF_ATTACHMENT, LOGO_ATTACHMENT]},
            (
                "multipart/mixed",
                ("multipart/alternative", "text/plain", ("multipart/related", "text/html", "image/png")),
                "application/pdf",
            ),
        ),
    ],
)  # fmt: skip
def test_the_mime_parts_of_an_email_have_the_standard_structure(changes: dict[str, Any], expected_types: Any) -> None:
    assert list_content_types(message_from_bytes(write_message(**changes))) == expected_types


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"to": [Recipient("ann@x.example"), Recipient("a,b@x.example")]}, "Email.To[1].Email"),
        ({"cc": [Recipient("a@x<y>.example")]}, "Email.Cc[0].Email"),
        ({"sender": Recipient('"a@x.example')}, "Email.From[0].Email"),
        ({"headers": [Header("X-Tag", "1"), Header("subject", "x")]}, "Email.Headers[1].Name"),
        ({"headers": [Header("Content-Type", "text/html")]}, "Email.Headers[0].Name"),
        ({"headers": [Header("MIME-Version", "1.0")]}, "Email.Headers[0].Name"),
    ],
)
def test_the_error_for_a_forbidden_recipient_or_header_shows_its_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(MessageError) as error_info:
        write_message(**changes)
    assert error_info.value.field == field
