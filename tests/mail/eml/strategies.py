"""Messages of every shape, for round trips."""

from typing import Any

from hypothesis import strategies as st

from connector.protocol.email import Attachment, EmailSettings, Header, Message, Recipient, TrackingSettings

TRACKING = TrackingSettings(track_links=True, track_plain_text_links=False, track_open=None, track_unsubscribe=True)
SETTINGS = EmailSettings(inline_images=False, send_at=None, use_dkim=True, use_dkim_selector=None)

LETTERS = st.characters(exclude_categories=["Cs"], exclude_characters=[*map(chr, range(32)), "\x7f"])
LINES = st.text(LETTERS, max_size=120) | st.text(st.sampled_from('a =?_"\\,<>()é😀\u2028\x85'), max_size=200)
BODIES = st.text(LETTERS | st.sampled_from("\n\t .=-\r"), min_size=1, max_size=300) | st.sampled_from(
    ["--=_mixed--\n", "From \n.\n..\n", "x" * 2000, " \n \n", "é" * 600, "\ufeffx"]
)
NAMES = st.none() | LINES.map(str.strip).filter(bool)
LOCALS = st.from_regex(r"[a-zA-Z0-9.!#$%&'*+/=?^_`{|}~é-]{1,30}", fullmatch=True) | st.sampled_from(
    ['"a b"'.replace(" ", ","), r'"a\"b"', "имя"]
)
DOMAINS = st.sampled_from(["example.com", "x.y.example", "пример.example", "[192.0.2.1]"])
PEOPLE = st.builds(lambda local, domain, name: Recipient(f"{local}@{domain}", name), LOCALS, DOMAINS, NAMES)
FILENAMES = LINES.filter(lambda name: bool(name.strip())).map(str.strip) | st.sampled_from(
    ["terms.pdf", "a%20b.pdf", "a'b''c.pdf", "名前" * 60 + ".pdf", '"; x="y', "UTF-8''x", "=?utf-8?q?x?="]
)
TYPES = st.sampled_from(
    ["application/pdf", "image/png", "text/plain", "text/html; charset=koi8-r", "text/calendar; method=REQUEST",
     "message/rfc822", "message/delivery-status", "multipart/mixed"]
)  # fmt: skip
CONTENTS = st.binary(min_size=1, max_size=200) | st.sampled_from([b"\r\n", b"--=_mixed--", b"\n" * 100, b"x" * 1000])
HEADERS = st.builds(Header, st.from_regex(r"(X-Campaign|List-[A-Z][a-z-]{1,30})", fullmatch=True), LINES.map(str.strip))


@st.composite
def attachments(draw: st.DrawFn) -> list[Attachment]:
    made = []
    for place in range(draw(st.integers(0, 4))):
        content_id = draw(st.none() | st.sampled_from([f"logo{place}", f"{place}@x.example", f"a/b+c!{place}"]))
        disposition: Any = "attachment" if content_id is None else draw(st.sampled_from(["attachment", "inline"]))
        made.append(Attachment(draw(CONTENTS), draw(FILENAMES), draw(TYPES), disposition, content_id))
    return made


@st.composite
def messages(draw: st.DrawFn) -> Message:
    html, plain_text = draw(st.tuples(st.none() | BODIES, st.none() | BODIES).filter(any))
    return Message(
        tracking=TRACKING,
        settings=SETTINGS,
        sender=draw(PEOPLE),
        to=draw(st.lists(PEOPLE, min_size=1, max_size=4)),
        cc=draw(st.lists(PEOPLE, max_size=2)),
        bcc=draw(st.lists(PEOPLE, max_size=2)),
        reply_to=draw(st.lists(PEOPLE, max_size=2)),
        subject=draw(LINES.map(str.strip)),
        html=html,
        plain_text=plain_text,
        headers=draw(st.lists(HEADERS, max_size=3)),
        attachments=draw(attachments()),
    )
