"""Emails as programs of every kind write them: what is the writer's is read, what cannot be read is named."""

from base64 import b64encode
from email.message import EmailMessage

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.mail.draft import Draft
from connector.mail.eml import read_eml
from connector.mail.eml.kept_headers import is_kept
from connector.protocol.email_rules import MessageError


def read(text: str, encoding: str = "utf-8") -> Draft:
    return read_eml(text.replace("\n", "\r\n").encode(encoding))


def tell_people(draft: Draft) -> list[tuple[str, str | None]]:
    return [(each.email, each.name) for each in draft.to]


THUNDERBIRD = """Message-ID: <1@x.example>
Date: Sun, 22 Nov 2026 08:00:00 +0100
MIME-Version: 1.0
User-Agent: Mozilla Thunderbird
Content-Language: de-DE
To: =?UTF-8?Q?J=C3=BCrgen_M=C3=BCller?= <jm@x.example>,
 "Lee, Ann" <ann@x.example>
From: =?UTF-8?B?S8O2bmln?= <k@x.example>
Subject: =?UTF-8?Q?Gr=C3=BC=C3=9Fe_aus_K?=
 =?UTF-8?Q?=C3=B6ln?=
X-Mozilla-Draft-Info: internal/draft; vcard=0
X-Campaign: =?iso-8859-1?q?Fr=FChling?=
Content-Type: multipart/mixed; boundary="------------A"

This is a multi-part message in MIME format.
--------------A
Content-Type: multipart/alternative; boundary="------------B"

--------------B
Content-Type: text/plain; charset=UTF-8; format=flowed
Content-Transfer-Encoding: 8bit

Grüße aus dem \nNorden, \nund aus Köln.
> so \n> oder so
>> anders
 From hier
-- \nJ.
--------------B
Content-Type: multipart/related; boundary="------------C"

--------------C
Content-Type: text/html; charset=UTF-8
Content-Transfer-Encoding: 8bit

<p>Grüße <img src="cid:part1.X@x.example"></p>
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
Content-Type: message/rfc822; charset=UTF-8; name="old.eml"
Content-Disposition: attachment; filename="old.eml"

Subject: =?utf-8?q?alt?=
X-Long: a
 b

old  text
--------------A--
"""


def test_an_email_of_thunderbird() -> None:
    draft = read(THUNDERBIRD)
    assert draft.sender is not None
    assert (draft.sender.email, draft.sender.name) == ("k@x.example", "König")
    assert tell_people(draft) == [("jm@x.example", "Jürgen Müller"), ("ann@x.example", "Lee, Ann")]
    assert draft.subject == "Grüße aus Köln"
    flowed = "Grüße aus dem Norden, und aus Köln.\n> so oder so\n>> anders\nFrom hier\n-- \nJ."
    assert (draft.plain_text, draft.html) == (flowed, '<p>Grüße <img src="cid:part1.X@x.example"></p>')
    assert [(each.name, each.value) for each in draft.headers] == [("X-Campaign", "Frühling")]
    assert [(f.filename, f.mime_type, f.disposition, f.content_id, f.content) for f in draft.attachments] == [
        ("bild.png", "image/png", "inline", "part1.X@x.example", b"\x89PNG"),
        ("Geschäft.pdf", "application/pdf", "attachment", None, b"%PDF"),
        ("old.eml", "message/rfc822; charset=UTF-8", "attachment", None,
         b"Subject: =?utf-8?q?alt?=\r\nX-Long: a\r\n b\r\n\r\nold  text"),
    ]  # fmt: skip


GMAIL = """Delivered-To: ann@x.example
Received: by 2002:a05:1 with SMTP id x;
        Sun, 22 Nov 2026 00:00:00 -0800 (PST)
X-Google-DKIM-Signature: v=1
ARC-Seal: i=1
ARC-Authentication-Results: i=1
Authentication-Results: mx.google.com
Return-Path: <a@gmail.example>
DKIM-Signature: v=1; a=rsa-sha256
X-Gm-Message-State: x
MIME-Version: 1.0
List-Unsubscribe: <https://x.example/u>
In-Reply-To: <0@x.example>
From: A B <a@gmail.example>
To: undisclosed-recipients:;
Cc: Team: Ann <ann@x.example>, bob@x.example;
Bcc: "=?UTF-8?B?w6k=?=" <e@x.example>
Subject: Hi
Content-Type: multipart/mixed; boundary="000"

--000
Content-Type: multipart/related; boundary="111"

--111
Content-Type: multipart/alternative; boundary="222"

--222
Content-Type: text/plain; charset="UTF-8"

Hi
[image: logo.png]

--222
Content-Type: text/html; charset="UTF-8"
Content-Transfer-Encoding: quoted-printable

<div dir=3D"ltr">Hi=20<img src=3D"cid:ii_1"></div>

--222--
--111
Content-Type: image/png; name="logo.png"
Content-Disposition: inline; filename="logo.png"
Content-Transfer-Encoding: base64
X-Attachment-Id: ii_1
Content-ID: <ii_1>

iVBORw==
--111--
--000
Content-Type: text/calendar; method=REQUEST; charset="UTF-8"
Content-Transfer-Encoding: 7bit

BEGIN:VCALENDAR
--000
Content-Type: image/png
Content-ID: <ii_1>
Content-Transfer-Encoding: base64

iVBORw==
--000--
"""


def test_an_email_of_gmail() -> None:
    draft = read(GMAIL)
    assert (draft.to, draft.plain_text) == ((), "Hi\n[image: logo.png]\n")
    assert [(each.email, each.name) for each in draft.cc] == [("ann@x.example", "Ann"), ("bob@x.example", None)]
    assert [(each.email, each.name) for each in draft.bcc] == [("e@x.example", "é")]
    assert draft.html == '<div dir="ltr">Hi <img src="cid:ii_1"></div>\n'
    assert [(each.name, each.value) for each in draft.headers] == [
        ("List-Unsubscribe", "<https://x.example/u>"),
        ("In-Reply-To", "<0@x.example>"),
    ]
    assert [(f.filename, f.mime_type, f.disposition, f.content_id) for f in draft.attachments] == [
        ("logo.png", "image/png", "inline", "ii_1"),
        ("part-2.ics", "text/calendar; method=REQUEST; charset=UTF-8", "attachment", None),
        ("part-3.png", "image/png", "attachment", None),
    ]


@pytest.mark.parametrize(
    ("charset", "codec", "text"),
    [
        ("utf-8", "utf-8", "Grüße 😀"),
        ("ISO-8859-1", "cp1252", "“Grüße” €"),
        ("windows-1251", "cp1251", "Привет"),
        ("CP-1251", "cp1251", "Привет"),
        ("koi8-r", "koi8-r", "Привет"),
        ("gb2312", "gb18030", "你好鎔"),
        ("iso-2022-jp", "iso-2022-jp", "こんにちは"),
        ("ks_c_5601-1987", "cp949", "안녕똠"),
        ("iso-8859-8-i", "iso8859-8", "שלום"),
        ("us-ascii", "utf-8", "Grüße"),
        ("unknown-8bit", "utf-8", "Grüße"),
        ("x-nosuch", "utf-8", "Grüße"),
        ("utf-7", "utf-7", "Grüße"),
    ],
)
def test_any_character_set_is_read_in_bodies_and_headers(charset: str, codec: str, text: str) -> None:
    word = f"=?{charset}?b?{b64encode(text.encode(codec)).decode()}?="
    body = b64encode(text.encode(codec)).decode()
    draft = read(
        f"Subject: {word}\nTo: {word} <a@x.example>\nContent-Type: text/html; charset={charset}\n"
        f"Content-Transfer-Encoding: base64\n\n{body}\n"
    )
    assert (draft.subject, draft.html, tell_people(draft)) == (text, text, [("a@x.example", text)])


@pytest.mark.parametrize(
    ("value", "people"),
    [
        ("ann@x.example", [("ann@x.example", None)]),
        ("<ann@x.example>", [("ann@x.example", None)]),
        ("Ann Lee <ann@x.example>,", [("ann@x.example", "Ann Lee")]),
        ('"Lee, Ann \\"A\\"" <ann@x.example>', [("ann@x.example", 'Lee, Ann "A"')]),
        ("ann@x.example (Ann (A), Lee), b@x.example", [("ann@x.example", "Ann (A), Lee"), ("b@x.example", None)]),
        ("Dr. Ann <ann@x.example>, , b@x.example", [("ann@x.example", "Dr. Ann"), ("b@x.example", None)]),
        ("=?utf-8?q?Lee=2C_Ann?= <ann@x.example>", [("ann@x.example", "Lee, Ann")]),
        ("Grüße <ann@x.example>", [("ann@x.example", "Grüße")]),
        ('"a,b"@x.example, c@[192.0.2.1]', [('"a,b"@x.example', None), ("c@[192.0.2.1]", None)]),
        (
            "A: a@x.example, B <b@x.example>; c@x.example",
            [("a@x.example", None), ("b@x.example", "B"), ("c@x.example", None)],
        ),
        ("a@x.example; b@x.example", [("a@x.example", None), ("b@x.example", None)]),
        ("undisclosed-recipients:;", []),
        ("<@relay.example:ann@x.example>", [("ann@x.example", None)]),
        ("", []),
    ],
)
def test_people_are_read_in_every_spelling(value: str, people: list[tuple[str, str | None]]) -> None:
    assert tell_people(read(f"To: {value}\nSubject: x\n\n")) == people


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1), st.binary(min_size=1))
def test_what_pythons_own_writer_makes_is_read(text: str, content: bytes) -> None:
    message = EmailMessage()
    message["To"] = "a@x.example"
    message.set_content(text)
    message.add_alternative(text, subtype="html")
    message.add_attachment(content, "application", "x", filename="é.bin")
    draft = read_eml(message.as_bytes())
    assert draft.plain_text == draft.html == "\n".join(text.splitlines()) + "\n"
    assert [(each.filename, each.content) for each in draft.attachments] == [("é.bin", content)]


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        ("Subject: a\n b\n\tc", "a b c"),
        ("Subject: =?utf-8?q?a?= =?utf-8?q?b?=", "ab"),
        ("Subject: =?utf-8?q?a?= b =?utf-8?q?c?=", "a b c"),
        ("Subject: =?utf-8?b?w6k?=", "é"),
        ("Subject: =?utf-8?b?w?=\n =?utf-8?b?w6k=?=", "=?utf-8?b?w?= é"),
        ("Subject: =?utf-8*en?q?a_b?=", "a b"),
        ("Subject: =?utf-8?b?8J+Y?= =?utf-8?b?gA==?=", "😀"),
        ("Subject: Grüße", "Grüße"),
        ("Subject: =?utf-8?q?a=0D=0Ab?=", "a  b"),
        ("Subject:", ""),
        ("X: y\nTo: a@x.example", None),
    ],
)
def test_a_subject_is_read_as_it_was_meant(text: str, subject: str | None) -> None:
    assert read(f"{text}\n\nbody").subject == subject


@pytest.mark.parametrize(
    ("head", "name"),
    [
        ('Content-Disposition: attachment; filename="=?utf-8?q?=C3=A9=2Epdf?="', "é.pdf"),
        ("Content-Disposition: attachment; filename=é.pdf", "é.pdf"),
        ("Content-Disposition: attachment; filename*=iso-8859-1'de'%E9%2Epdf", "é.pdf"),
        ('Content-Disposition: attachment; filename="a \\"b\\".pdf"', 'a "b".pdf'),
        ('Content-Disposition: attachment; filename*0="a b"; filename*1=".pdf"', "a b.pdf"),
        ('Content-Type: application/pdf; name="c.pdf"', "c.pdf"),
        ("Content-Type: application/pdf", "part-1.pdf"),
        ("Content-Type: application/x-nosuch", "part-1.bin"),
        ("Content-Disposition: attachment", "part-1.txt"),
        ("Content-Type: image/a b c", "part-1.bin"),
    ],
)
def test_a_file_has_its_name_or_one_made_of_its_place(head: str, name: str) -> None:
    assert [each.filename for each in read(f"To: a@x.example\n{head}\n\nx").attachments] == [name]


def test_a_second_text_a_signature_and_a_byte_order_mark() -> None:
    parts = (
        "To: a@x.example\nContent-Type: multipart/signed; boundary=A\n\n--A\n"
        "Content-Type: multipart/mixed; boundary=B\n\n--B\n\none\n--B\nContent-Type: text/plain\n\ntwo\n--B--\n"
        "--A\nContent-Type: application/pgp-signature\n\nS\n--A--\n"
    )
    draft = read_eml(b"\xef\xbb\xbf\r\n" + parts.encode())
    assert draft.plain_text == "one"
    assert [(each.filename, each.content) for each in draft.attachments] == [("part-1.2.txt", b"two")]


def test_a_page_that_names_its_own_character_set() -> None:
    page = '<meta http-equiv="Content-Type" content="text/html; charset=windows-1251">Привет'
    assert read(f"To: a@x.example\nContent-Type: text/html\n\n{page}", "cp1251").html == page


def test_an_email_within_an_email_may_be_encoded_though_none_should() -> None:
    inner = b"Subject: x\r\n\r\n" + bytes(range(256))
    head = "To: a@x.example\nContent-Type: message/rfc822\nContent-Transfer-Encoding: base64\n\n"
    assert [each.content for each in read(head + b64encode(inner).decode()).attachments] == [inner]


CUT = THUNDERBIRD.partition("JVBERg==")[0]


@pytest.mark.parametrize(
    ("text", "field", "words"),
    [
        ("", "Email", "no .eml file|none of an email's headers"),
        ("%PDF-1.7\nxyz", "Email", "none of an email's headers"),
        (CUT, "Email, part 1", "cut short"),
        ("Content-Type: multipart/mixed\n\nx", "Email, part 1", "cut short"),
        ("Content-Type: multipart/mixed; boundary=A\n\nx", "Email, part 1", "cut short"),
        ("From: a@x.example, b@x.example\n\n", "Email.From", "names 2 people"),
        ("To: Ann\n\n", "Email.To[0].Email", "no email address"),
        ("To: a@x.example, b@\n\n", "Email.To[1].Email", "no email address"),
        ("To: <\n\n", "Email.To[0].Email", "no email address"),
        ("To: Team: ann@x.example, Bob;\n\n", "Email.To[1].Email", "no email address"),
        ("To: Ann <>\n\n", "Email.To[0].Email", "is empty"),
        ("Subject: =?x-nosuch?b?/w==?=\n\n", "Email.Subject", "'x-nosuch'"),
        ("Subject: \xff\n\n", "Email.Subject", "broken character"),
        ("To: a@x.example\nX-Tag: =?utf-8?b?/w==?=\n\n", "Email.Headers, X-Tag", "'utf-8'"),
        ("To: a@x.example\n\n\xff", "Email, part 1", "names no character set"),
        ("To: a@x.example\nContent-Type: text/plain; charset=utf-8\n\n\xff", "Email, part 1", "'utf-8'"),
        ("To: a@x.example\nContent-Transfer-Encoding: x-uuencode\n\nx", "Email, part 1", "encoding that is not known"),
        ("To: a@x.example\nContent-Transfer-Encoding: base64\n\nAAAAA", "Email, part 1", "damaged"),
        ("To: a@x.example\nContent-Disposition: attachment\n\n", "Email, part 1", "an empty file"),
        (
            "".join(f"Content-Type: multipart/mixed; boundary=A{n}\n\n--A{n}\n" for n in range(2000)),
            "Email",
            "too deep",
        ),
    ],
    ids=lambda text: str(text)[:30],
)
def test_what_cannot_be_read_is_named(text: str, field: str, words: str) -> None:
    with pytest.raises(MessageError, match=words) as caught:
        read(text, "latin-1" if "\xff" in text else "utf-8")
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("X-Campaign", True),
        ("List-Unsubscribe-Post", True),
        ("References", True),
        ("Importance", True),
        ("X-Priority", True),
        ("date", False),
        ("MESSAGE-ID", False),
        ("Content-Type", False),
        ("Received", False),
        ("X-Spam-Score", False),
        ("ARC-Seal", False),
        ("DKIM-Signature", False),
        ("Return-Path", False),
        ("Bcc", False),
        ("Tox", True),
    ],
)
def test_headers_of_the_writer_are_kept_and_no_others(name: str, kept: bool) -> None:
    assert is_kept(name) == kept


MESS = st.lists(
    st.sampled_from(
        [
            "To:",
            "From:",
            "Subject:",
            "Content-Type:",
            " multipart/mixed; boundary=A",
            " text/html; charset=",
            " message/rfc822",
            "Content-Transfer-Encoding: base64",
            "Content-Disposition: attachment; filename*=",
            "--A",
            "--A--",
            "\n",
            "\n\n",
            "a@x.example",
            '"',
            "<",
            ">",
            ",",
            ";",
            ":",
            "(",
            "=?utf-8?q?",
            "?=",
            "é",
            "\x00",
            "\udcff",
        ]
    ),
    max_size=30,
)


@given(MESS.map(" ".join) | MESS.map("".join) | MESS.map("\n".join))
def test_whatever_the_file_is_it_is_read_or_refused(text: str) -> None:
    try:
        read_eml(text.encode("utf-8", "surrogateescape"))
    except MessageError as error:
        str(error).encode()
