"""Files of emails: what is written is what Python's reader and ours find, what is read is the writer's, or an error."""

import re
from base64 import b64encode
from email import message_from_bytes
from email.message import Message as Part
from email.policy import default as python_policy
from typing import Any

import pytest
from hypothesis import given, strategies as st

from connector.mail.draft import Draft
from connector.mail.eml import read_eml, write_eml
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


def describe(email: Draft | Message) -> dict[str, object]:
    """With contents to be seen, since an email shows none in its repr."""
    assert email.sender is not None
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


@given(messages())
def test_what_is_written_is_read_again_and_pythons_own_reader_finds_no_defect(message: Message) -> None:
    data = write_eml(message)
    assert describe(read_eml(data)) == describe(message)
    parsed = message_from_bytes(data, policy=python_policy)
    assert [part.defects for part in parsed.walk() if part.defects] == []
    found: list[Any] = [part.get_payload(decode=True) for part in parsed.walk() if part.get_filename()]
    assert sorted(found) == sorted(each.content for each in message.attachments)


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
    assert read_eml(data).subject == subject
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


def read(text: str, encoding: str = "utf-8") -> Draft:
    return read_eml(text.replace("\n", "\r\n").encode(encoding))


THUNDERBIRD = """Message-ID: <1@x.example>
Date: Sun, 22 Nov 2026 08:00:00 +0100
MIME-Version: 1.0
User-Agent: Mozilla Thunderbird
Content-Language: de-DE
To: =?UTF-8?Q?J=C3=BCrgen_M=C3=BCller?= <jm@x.example>,
 "Lee, Ann" <ann@x.example>
From: =?UTF-8?B?S8O2bmln?= <k@x.example>
Cc: Team: Ann <ann@x.example>, bob@x.example;
Subject: =?UTF-8?Q?Gr=C3=BC=C3=9Fe_aus_K?=
 =?UTF-8?Q?=C3=B6ln?=
X-Mozilla-Draft-Info: internal/draft; vcard=0
X-Campaign: =?iso-8859-1?q?Fr=FChling?=
Received: by 2002:a05:1 with SMTP id x;
        Sun, 22 Nov 2026 00:00:00 -0800 (PST)
DKIM-Signature: v=1; a=rsa-sha256
List-Unsubscribe: <https://x.example/u>
Content-Type: multipart/mixed; boundary="------------A"

This is a multi-part message in MIME format.
--------------A
Content-Type: multipart/alternative; boundary="------------B"

--------------B
Content-Type: text/plain; charset=UTF-8
Content-Transfer-Encoding: 8bit

Grüße aus dem Norden
--------------B
Content-Type: multipart/related; boundary="------------C"

--------------C
Content-Type: text/html; charset=windows-1252
Content-Transfer-Encoding: quoted-printable

<p>Gr=FC=DFe <img src=3D"cid:part1.X@x.example"></p>
--------------C
Content-Type: image/png; name="bild.png"
Content-Disposition: inline; filename="bild.png"
Content-Id: <part1.X@x.example>
Content-Transfer-Encoding: base64

iVBORw==
--------------C--

--------------B--
--------------A
Content-Type: application/pdf; name="=?UTF-8?Q?Gesch=C3=A4ft=2Epdf?="
Content-Disposition: attachment; filename*0*=UTF-8''%47%65%73%63%68%C3%A4;
 filename*1*=%66%74%2E%70%64%66
Content-Transfer-Encoding: base64

JVBERg==
--------------A
Content-Type: message/rfc822; name="old.eml"
Content-Disposition: attachment; filename="old.eml"

Subject: =?utf-8?q?alt?=
X-Long: a
 b

old  text
--------------A
Content-Type: text/calendar; charset=UTF-8; method=REQUEST

BEGIN:VCALENDAR
--------------A--
"""


def test_an_email_of_a_mail_program_is_read_whole() -> None:
    draft = read(THUNDERBIRD)
    assert draft.sender is not None
    assert (draft.sender.email, draft.sender.name) == ("k@x.example", "König")
    assert [(each.email, each.name) for each in draft.to] == [
        ("jm@x.example", "Jürgen Müller"), ("ann@x.example", "Lee, Ann"),
    ]  # fmt: skip
    assert [each.email for each in draft.cc] == ["ann@x.example", "bob@x.example"]
    assert draft.subject == "Grüße aus Köln"
    assert (draft.plain_text, draft.html) == (
        "Grüße aus dem Norden", '<p>Grüße <img src="cid:part1.X@x.example"></p>',
    )  # fmt: skip
    assert [(each.name, each.value) for each in draft.headers] == [
        ("X-Campaign", "Frühling"), ("List-Unsubscribe", "<https://x.example/u>"),
    ]  # fmt: skip
    assert [(f.filename, f.mime_type, f.disposition, f.content_id, f.content) for f in draft.attachments] == [
        ("bild.png", "image/png", "inline", "part1.X@x.example", b"\x89PNG"),
        ("Geschäft.pdf", "application/pdf", "attachment", None, b"%PDF"),
        ("old.eml", "message/rfc822", "attachment", None,
         b"Subject: =?utf-8?q?alt?=\r\nX-Long: a\r\n b\r\n\r\nold  text"),
        ("part-4.ics", "text/calendar; charset=UTF-8; method=REQUEST", "attachment", None, b"BEGIN:VCALENDAR"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hello\n", "is not an .eml file"),
        ("", "is not an .eml file"),
        ("From: a@x.example, b@x.example\n\nx", "Email.From: names 2 senders"),
        ("From: a@x.example\nTo: ann\n\nx", "Email.To[0].Email: is no email address"),
        ("From: a@x.example\nTo: ann@x.example, <broken\n\nx", "Email.To[1]"),
        ("From: a@x.example\nContent-Type: text/plain; charset=nosuch\n\nx", "'nosuch'"),
        ("From: a@x.example\nContent-Type: text/plain; charset=ascii\n\n\xff", "Email.PlainText"),
        ("From: a@x.example\nContent-Type: multipart/mixed; boundary=A\n\n--A\n\nx", "is cut short or damaged"),
        ("From: a@x.example\nContent-Type: multipart/mixed\n\n--A\n\nx", "is cut short or damaged"),
        (
            "From: a@x.example\nContent-Type: image/png\nContent-Transfer-Encoding: base64\n\niVBOR",
            "Email, part 1",
        ),
        ("From: a@x.example\nContent-Type: image/png\n\n", "Email, part 1"),
        ("From: a@x.example\nReferences: " + "<1@x.example>\n " * 20_000 + "\n\nx", "a header References of more than"),
        ("From: a@x.example\nSubject: caf\xe9\n\nx", "a header Subject in no character set"),
        ("From: a@x.example\nSubject: =?nosuch?Q?caf=E9?=\n\nx", "a header Subject in no character set"),
        ("From: Zo\xeb <a@x.example>\n\nx", "a header From in no character set"),
        ("From: a@x.example\n" + "Content-Type: message/rfc822\n\n" * 3000 + "x", "too deep to read"),
    ],
)
def test_what_cannot_be_read_is_an_error(text: str, words: str) -> None:
    with pytest.raises(MessageError) as caught:
        read(text, "latin-1")
    assert words in str(caught.value)


def test_headers_that_stand_as_utf_8_are_read() -> None:
    draft = read("From: König <k@x.example>\nTo: имя@пример.example\nSubject: Grüße\n\nGrüße")
    assert draft.sender is not None
    assert (draft.sender.name, draft.subject, draft.plain_text) == ("König", "Grüße", "Grüße")
    assert draft.to[0].email == "имя@пример.example"


PIECES = st.sampled_from(
    ["From: a@x.example\r\n", "To: ", "é", "=?utf-8?b?w6k=?=", "<", ">", ",", "@", "\r\n", "\r\n\r\n", "--A\r\n",
     "--A--\r\n",
     "Content-Type: multipart/mixed; boundary=A\r\n",
     "Content-Type: message/rfc822\r\n", "Content-Type: ", "text/html",
     "Content-Transfer-Encoding: base64\r\n", b64encode(b"xyz").decode(), "Subject: x\r\n", "Content-ID: <x>\r\n", ":",
     '"',
     "; charset=utf-8", "; charset=x", "\udcff"]
)  # fmt: skip


@given(st.lists(PIECES, max_size=20).map("".join))
def test_any_file_is_a_draft_or_an_error_that_can_be_shown(text: str) -> None:
    try:
        read_eml(("From: a@x.example\r\n" + text).encode("utf-8", "surrogateescape"))
    except MessageError as error:
        str(error).encode()
