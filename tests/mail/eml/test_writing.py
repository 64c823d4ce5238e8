"""The file that a message amounts to: how it is put together, and what no email can hold."""

from email import message_from_bytes
from email.message import Message as Part
from typing import Any

import pytest

from connector.mail.eml import write_eml
from connector.protocol.email import Attachment, Header, Message, Recipient
from connector.protocol.email_rules import MessageError
from tests.mail.eml.strategies import SETTINGS, TRACKING

PDF = Attachment(b"%PDF", "terms.pdf", "application/pdf")
LOGO = Attachment(b"\x89PNG", "logo.png", "image/png", "inline", "logo")


def write(**changes: Any) -> bytes:
    least: dict[str, Any] = {
        "sender": Recipient("shop@x.example", "Shop"),
        "to": [Recipient("ann@x.example")],
        "subject": "Hello",
        "plain_text": "Hi\nAnn",
    }
    return write_eml(Message(tracking=TRACKING, settings=SETTINGS, **{**least, **changes}))


def tell_shape(part: Part) -> Any:
    payload = part.get_payload()
    kind = part.get_content_type()
    return (kind, *(tell_shape(each) for each in payload)) if isinstance(payload, list) else kind  # type: ignore[arg-type]


def test_the_least_email_is_a_text() -> None:
    assert write() == (
        b"From: Shop\r\n <shop@x.example>\r\n"
        b"To: ann@x.example\r\n"
        b"Subject: Hello\r\n"
        b"MIME-Version: 1.0\r\n"
        b'Content-Type: text/plain; charset="utf-8"\r\n'
        b"Content-Transfer-Encoding: quoted-printable\r\n"
        b"\r\n"
        b"Hi\r\nAnn"
    )


@pytest.mark.parametrize(
    ("changes", "shape"),
    [
        ({}, "text/plain"),
        ({"plain_text": None, "html": "<p>"}, "text/html"),
        ({"html": "<p>"}, ("multipart/alternative", "text/plain", "text/html")),
        ({"attachments": [PDF]}, ("multipart/mixed", "text/plain", "application/pdf")),
        ({"attachments": [LOGO]}, ("multipart/mixed", "text/plain", "image/png")),
        (
            {"html": "<p>", "attachments": [PDF, LOGO]},
            (
                "multipart/mixed",
                ("multipart/alternative", "text/plain", ("multipart/related", "text/html", "image/png")),
                "application/pdf",
            ),
        ),
    ],
)  # fmt: skip
def test_parts_stand_where_mail_programs_look_for_them(changes: dict[str, Any], shape: Any) -> None:
    assert tell_shape(message_from_bytes(write(**changes))) == shape


def test_there_is_a_date_only_if_one_is_given() -> None:
    assert b"Date" not in write()
    assert b"\r\nDate: Sun, 22 Nov 2026 08:00:00 +0000\r\n" in write(
        headers=[Header("Date", "Sun, 22 Nov 2026 08:00:00 +0000")]
    )


def test_what_is_not_ascii_is_encoded_and_long_lines_are_folded() -> None:
    data = write(
        to=[Recipient("a@x.example", "Größe, Ann"), Recipient("b@x.example", "Lee, Bob")],
        subject="word " * 40 + "end",
        headers=[Header("X-Tag", "ü")],
        attachments=[Attachment(b"x", "é.pdf", "application/pdf")],
    )
    assert b'To: =?utf-8?b?R3LDtsOfZSwgQW5u?=\r\n <a@x.example>,\r\n "Lee, Bob"\r\n <b@x.example>\r\n' in data
    assert b"X-Tag: =?utf-8?b?w7w=?=\r\n" in data
    assert b"filename*=utf-8''%C3%A9.pdf\r\n" in data
    assert data.isascii()
    assert max(map(len, data.split(b"\r\n"))) <= 78


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"to": [Recipient("ann@x.example"), Recipient("a,b@x.example")]}, "Email.To[1].Email"),
        ({"cc": [Recipient("a@x<y>.example")]}, "Email.Cc[0].Email"),
        ({"sender": Recipient('"a@x.example')}, "Email.From[0].Email"),
        ({"headers": [Header("X-Tag", "1"), Header("subject", "x")]}, "Email.Headers[1].Name"),
        ({"headers": [Header("Content-Type", "text/html")]}, "Email.Headers[0].Name"),
        ({"headers": [Header("MIME-Version", "1.0")]}, "Email.Headers[0].Name"),
        ({"attachments": [PDF, Attachment(b"x", "x", "image/png", "inline", "a b")]}, "Email.Attachments[1].ContentId"),
        ({"attachments": [Attachment(b"x", "x", "image/png", "inline", "<a>")]}, "Email.Attachments[0].ContentId"),
        ({"attachments": [Attachment(b"x", "x", "text/plain; x=é")]}, "Email.Attachments[0].Type"),
    ],
)
def test_what_no_email_can_hold_is_named(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(MessageError) as caught:
        write(**changes)
    assert caught.value.field == field
