"""The .eml file of a message: Python's own parser finds every field of the message."""

import re
from email import message_from_bytes, message_from_string
from email.message import EmailMessage, Message as Part
from email.policy import default as python_policy
from typing import Any

import pytest
from hypothesis import given, strategies as st

from connector.mail.eml import write_eml
from connector.mail.message import Attachment, EmailSettings, Header, Message, MessageError, Recipient

SETTINGS = EmailSettings(
    **dict.fromkeys(("track_links", "track_plain_text_links", "track_open", "track_unsubscribe", "inline_images")),
    send_at=None,
    use_dkim=True,
    use_dkim_selector=None,
)

# No text that is an encoded word itself, which means another; no name with blanks side by side, which it may lose.
LETTERS = st.characters(
    exclude_categories=["Cs"], exclude_characters=[*map(chr, range(32)), "\x7f", "\x85", "\u2028", "\u2029", "\ufffd"]
)
LINES = (
    (st.text(LETTERS, max_size=120) | st.text(st.sampled_from('a _"\\,<>()é😀'), max_size=200))
    .map(lambda text: text.replace("=?", "").strip())
)  # fmt: skip
NAMES = st.none() | LINES.map(lambda text: " ".join(text.split())).filter(bool)
BODIES = st.text(LETTERS | st.sampled_from("\n\t .=-\r"), min_size=1, max_size=300).filter(
    lambda text: text.strip("\r\n")
) | (st.sampled_from(["From \n.\n..\n", "x" * 2000, " \n \n ", "é" * 600, "\ufeffx"]))
LOCALS = st.from_regex(r"[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]{1,30}", fullmatch=True) | st.sampled_from(
    ['"a,b"', "имя", "a.b"]
)
DOMAINS = st.sampled_from(["example.com", "x.y.example", "пример.example"])
PEOPLE = st.builds(lambda local, domain, name: Recipient(f"{local}@{domain}", name), LOCALS, DOMAINS, NAMES)
FILENAMES = LINES.map(lambda text: re.sub(r'["\\<>]', "", text).strip()).filter(bool) | st.sampled_from(
    ["terms.pdf", "a%20b.pdf", "a'b''c.pdf", "名前" * 60 + ".pdf", '"; x="y']
)
TYPES = st.sampled_from(["application/pdf", "image/png", "text/plain", "text/html; charset=koi8-r"])
CONTENTS = st.binary(min_size=1, max_size=200) | st.sampled_from([b"\r\n", b"\n" * 100, b"x" * 1000])
HEADERS = st.builds(Header, st.from_regex(r"(X-Campaign|List-[A-Z][a-z-]{1,30})", fullmatch=True), LINES)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    html, plain_text = draw(st.tuples(st.none() | BODIES, st.none() | BODIES).filter(any))
    files = []
    for index in range(draw(st.integers(0, 3))):
        content_id = draw(st.none() | st.sampled_from([f"logo{index}", f"{index}@x.example"]))
        files.append(
            Attachment(
                draw(CONTENTS),
                draw(FILENAMES),
                draw(TYPES),
                "attachment" if content_id is None else "inline",
                content_id,
            )
        )
    return Message(
        settings=SETTINGS,
        sender=draw(PEOPLE),
        to=draw(st.lists(PEOPLE, min_size=1, max_size=4)),
        cc=draw(st.lists(PEOPLE, max_size=2)),
        bcc=draw(st.lists(PEOPLE, max_size=2)),
        reply_to=draw(st.lists(PEOPLE, max_size=2)),
        subject=draw(LINES),
        html=html,
        plain_text=plain_text,
        headers=draw(st.lists(HEADERS, max_size=3)),
        attachments=files,
    )


def describe_text(text: str | None) -> str | None:
    return None if text is None else text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n")


def describe(email: Message) -> dict[str, object]:
    """Return the contents of a message as plain values, since its repr shows none."""
    return {
        "people": [
            [(each.email, each.name) for each in people]
            for people in ((email.sender,), email.to, email.cc, email.bcc, email.reply_to)
        ],
        "texts": (email.subject, describe_text(email.html), describe_text(email.plain_text)),
        "headers": [(each.name, each.value) for each in email.headers],
        "files": sorted(
            (each.content, each.filename, each.mime_type, each.disposition, each.content_id or "")
            for each in email.attachments
        ),
    }


def parse(data: bytes) -> EmailMessage:
    mail = message_from_bytes(data, policy=python_policy)
    assert isinstance(mail, EmailMessage)
    return mail


def describe_eml(data: bytes) -> dict[str, object]:
    """Return the contents of an .eml file in the form of `describe`, as Python's own parser finds them."""
    head = message_from_string(data.decode(), policy=python_policy)  # the bytes parser does not decode UTF-8 headers
    people = [
        [(each.addr_spec, each.display_name or None) for each in getattr(head[name], "addresses", ())]
        for name in ("From", "To", "Cc", "Bcc", "Reply-To")
    ]
    leaves: list[Any] = [part for part in parse(data).walk() if not part.is_multipart()]
    bodies = {part.get_content_subtype(): part.get_content() for part in leaves if part.get_filename() is None}
    return {
        "people": people,
        "texts": (head["Subject"], describe_text(bodies.get("html")), describe_text(bodies.get("plain"))),
        "headers": [(name, str(value)) for name, value in head.items() if name.startswith(("X-", "List-"))],
        "files": sorted(
            (
                part.get_payload(decode=True),
                part.get_filename(),
                "; ".join([part.get_content_type(), *(f"{key}={value}" for key, value in _list_params(part))]),
                part.get_content_disposition(),
                part.get("Content-ID", "").strip("<>"),
            )
            for part in leaves
            if part.get_filename() is not None
        ),
    }


def _list_params(part: Any) -> list[tuple[str, str]]:
    return [(key, value) for key, value in part["Content-Type"].params.items() if key != "name"]


@given(messages())
def test_pythons_parser_finds_all_that_was_written_and_no_defect(message: Message) -> None:
    data = write_eml(message)
    assert describe_eml(data) == describe(message)
    assert [part.defects for part in parse(data).walk() if part.defects] == []


def write(**changes: Any) -> bytes:
    least: dict[str, Any] = {
        "sender": Recipient("shop@x.example", "Shop"),
        "to": [Recipient("ann@x.example")],
        "subject": "Hello",
        "plain_text": "Hi\nAnn",
    }
    return write_eml(Message(settings=SETTINGS, **{**least, **changes}))


PDF = Attachment(b"%PDF", "terms.pdf", "application/pdf")
LOGO = Attachment(b"\x89PNG", "logo.png", "image/png", "inline", "logo")
MAIL = Attachment(b"Subject: x\r\n\r\ny", "old.eml", "message/rfc822")


def show_shape(part: Part) -> Any:
    payload = part.get_payload()
    kind = part.get_content_type()
    return (kind, *(show_shape(each) for each in payload)) if isinstance(payload, list) else kind  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "shape"),
    [
        ({}, "text/plain"),
        ({"plain_text": None, "html": "<p>"}, "text/html"),
        ({"html": "<p>"}, ("multipart/alternative", "text/plain", "text/html")),
        ({"attachments": [LOGO]}, ("multipart/mixed", "text/plain", "image/png")),
        ({"attachments": [MAIL]}, ("multipart/mixed", "text/plain", "application/octet-stream")),
        ({"plain_text": None, "html": "<p>", "attachments": [LOGO]}, ("multipart/related", "text/html", "image/png")),
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
    assert show_shape(message_from_bytes(write(**changes))) == shape


def test_headers_are_ascii_and_each_stands_in_one_line() -> None:
    subject = "word " * 40 + "longerwordlongerwordlongerword😀:ü ß>  éтест ("  # of which Python's folding loses blanks
    data = write(
        to=[Recipient(f"a{index}@x.example", "Größe, Ann") for index in range(100)],
        subject=subject,
        headers=[Header("Date", "Sun, 22 Nov 2026 08:00:00 +0000")],
    )
    head = data.partition(b"\r\n\r\n")[0].split(b"\r\n")
    assert head[1].startswith(b"To: =?utf-8?")
    assert b"Date: Sun, 22 Nov 2026 08:00:00 +0000" in head
    assert data.isascii()
    assert parse(data)["Subject"] == subject
    assert [line for line in head if line.startswith(b" ")] == []


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
def test_what_no_email_can_hold_is_named(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(MessageError) as caught:
        write(**changes)
    assert caught.value.field == field
