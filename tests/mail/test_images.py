"""Pictures of an HTML body as parts: each local one once, and nothing else of the HTML touched."""

import re
from collections.abc import Iterator
from email.message import EmailMessage
from html import escape
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.mail.images import inline_images
from connector.protocol.email_rules import MessageError

CONTENTS = {
    "a.png": b"AAA",
    "copy of a.png": b"AAA",
    "b&c.jpg": b"BC",
    "img/Größe 100%.gif": b"G",
    "quo\"te's.png": b"Q",
    "a.webp": b"AAA",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("html")
    for name, content in CONTENTS.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def inline(html: str, folder: Path) -> tuple[str, dict[str, bytes]]:
    """The HTML with each content id written as the content that it names, and the parts."""
    made, parts = inline_images(html, folder, most_bytes=1_000)
    contents = {str(part.content_id): part.content for part in parts}
    assert len(contents) == len(parts)
    assert {part.disposition for part in parts} <= {"inline"}
    for content_id, content in contents.items():
        assert f"cid:{content_id}" in made
        made = made.replace(f"cid:{content_id}", f"[{content.decode()}]")
    return made, contents


@pytest.mark.parametrize(
    ("html", "made"),
    [
        ('<img src="a.png">', '<img src="[AAA]">'),
        ("<IMG SRC='a.png'>", "<IMG SRC='[AAA]'>"),
        ("<img src=a.png>", "<img src=[AAA]>"),
        ("<img src=a.png/>", "<img src=[AAA]/>"),
        ('<img src="a.png"/><img src="./a.png" />', '<img src="[AAA]"/><img src="[AAA]" />'),
        ('é\r\n<p\n><img\n  alt = "x > y"\r\n  src\n=\n"a.png"\n>',
         'é\r\n<p\n><img\n  alt = "x > y"\r\n  src\n=\n"[AAA]"\n>'),
        ('<img src=" a.png\n">', '<img src="[AAA]">'),
        ('<img src="b&amp;c.jpg"><img src="b&#38;c.jpg">', '<img src="[BC]"><img src="[BC]">'),
        ('<img src="img/Gr%C3%B6%C3%9Fe%20100%25.gif">', '<img src="[G]">'),
        ('<img src="img/../a.png?v=2#top">', '<img src="[AAA]">'),
        ('<img alt=\'src="x.png"\' data-src="x.png" src="a.png" src="x.png">',
         '<img alt=\'src="x.png"\' data-src="x.png" src="[AAA]" src="x.png">'),
        ('<img src="a.png" srcset="x.png 2x">', '<img src="[AAA]" srcset="x.png 2x">'),
    ],
)  # fmt: skip
def test_a_local_picture_becomes_a_part(folder: Path, html: str, made: str) -> None:
    assert inline(html, folder)[0] == made


@pytest.mark.parametrize(
    "html",
    [
        "",
        "<p>1 < 2 & 3 > 2 &nbsp; &bogus; </P>",
        '<img src="http://x.example/a.png">',
        '<img src="HTTPS://x.example/a.png">',
        '<img src="//x.example/a.png">',
        '<img src="cid:a.png">',
        '<img src="data:image/png;base64,AAAA">',
        '<img src="&#104;ttp://x.example/a.png">',
        "<img src><img src=''><img>",
        '<img src="#top">',
        '<!-- <img src="missing.png"> --><!--[if mso]><img src="missing.png"><![endif]-->',
        '<script>"<img src=missing.png>"</script><style>/*<img src="missing.png">*/</style>',
        '<source srcset="missing.png"><a href="missing.png">x</a><imgs src="missing.png">',
        '<img src="missing.png',
        "&lt;img src='missing.png'&gt;",
    ],
)
def test_what_names_no_local_picture_is_left_as_it_is(folder: Path, html: str) -> None:
    assert inline(html, folder) == (html, {})


def test_a_picture_is_one_part_however_often_and_under_whatever_name_it_is_shown(folder: Path) -> None:
    html = '<img src="a.png"><img src="copy%20of%20a.png"><img src="b&amp;c.jpg"><img src="a.png">'
    made, parts = inline_images(html, folder, most_bytes=9)
    assert [(part.filename, part.content, part.mime_type) for part in parts] == [
        ("a.png", b"AAA", "image/png"),
        ("b&c.jpg", b"BC", "image/jpeg"),
    ]
    assert made == inline_images(html, folder, most_bytes=9)[0]


def test_the_same_bytes_of_another_type_are_another_part(folder: Path) -> None:
    _, parts = inline_images('<img src="a.png"><img src="a.webp">', folder, most_bytes=9)
    assert [part.mime_type for part in parts] == ["image/png", "image/webp"]
    assert len({part.content_id for part in parts}) == 2


def test_a_content_id_can_stand_in_a_header_and_in_an_address(folder: Path) -> None:
    _, parts = inline_images("<img src=a.png>", folder, most_bytes=9)
    message = EmailMessage()
    message["Content-ID"] = f"<{parts[0].content_id}>"
    assert re.fullmatch(r"Content-ID: <[a-z0-9]+@[a-z]+>\n\n", message.as_string())


def _write_attribute(draw: st.DrawFn, value: str) -> str:
    escaped = escape(value, quote=True)
    forms = [f'"{escaped}"', f"'{escaped}'"]
    if re.fullmatch(r"[\w.&;/#%]+", escaped) and not escaped.endswith("/"):
        forms.append(escaped)
    return draw(st.sampled_from(forms))


FILLING = st.sampled_from(
    ["", "text", "\n", "\r\n", "é", "😀", "<p class='x'>", "</p>", "<!-- <img src='no'> -->", "&amp;", "1 < 2", "<br/>"]
)
BLANK = st.sampled_from([" ", "\n", "\r\n\t", "  "])


@st.composite
def pages(draw: st.DrawFn) -> list[tuple[str, str | None]]:
    """An HTML page in pieces: what is to stay, and the `src` values of files that are there."""
    pieces: list[tuple[str, str | None]] = []
    for name in draw(st.lists(st.sampled_from([*CONTENTS, None]), max_size=8)):
        pieces.append(("".join(draw(st.lists(FILLING, max_size=5))), None))
        if name is None:
            continue
        value = _write_attribute(draw, quote(name) if draw(st.booleans()) or "%" in name else name)
        tag = draw(st.sampled_from(["img", "IMG", "Img"]))
        before, after = draw(st.sampled_from(["", "alt='a>b'", 'title="src=no"', "hidden"])), draw(BLANK)
        pieces.append(
            (f"<{tag}{draw(BLANK)}{before}{' ' if before else ''}src{draw(st.sampled_from(['', ' ']))}=", None)
        )
        pieces += [(value, name), (f"{after}/>" if draw(st.booleans()) else f"{after}>", None)]
    return pieces


def _strip_quotes(pieces: list[tuple[str, str | None]]) -> Iterator[str]:
    for text, name in pieces:
        quotes = text[0] if name is not None and text[0] in "\"'" else ""
        yield text if name is None else f"{quotes}[{CONTENTS[name].decode()}]{quotes}"


@given(pages())
def test_nothing_but_the_sources_changes(folder: Path, pieces: list[tuple[str, str | None]]) -> None:
    made, _ = inline("".join(text for text, _ in pieces), folder)
    assert made == "".join(_strip_quotes(pieces))


@given(st.text(alphabet=st.sampled_from("<>!-/ \n\r=\"'imgsrcIMG&;#x?[]")))
def test_whatever_the_html_is_it_is_read(folder: Path, html: str) -> None:
    try:
        made, parts = inline_images(html, folder, most_bytes=9)
    except MessageError as error:
        assert "does not exist" in str(error) or "is outside of" in str(error)  # noqa: PT017 - either will do
        return
    assert (made, parts) == (html, ())


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("missing.png", "does not exist"),
        ("a\0.png", "does not exist"),
        ("loop.png", "does not exist"),
        ("x" * 5000, f"'{'x' * 200}' in line 2 does not exist"),
        ("../secret.png", "is outside of"),
        ("out.png", "is outside of"),
        ("img/%2e%2e/%2E./secret.png", "is outside of"),
        ("/etc/hostname", "is outside of|does not exist"),
        ("FILE:///a.png", "is a path of this machine alone"),
        ("C:\\a.png", "is a path of this machine alone"),
        ("img", "is a folder"),
        ("long.png", "long.png' is larger than the 9 bytes"),
        ("empty.png", "empty.png' is empty"),
    ],
    ids=lambda text: str(text)[:20],
)
def test_a_picture_that_cannot_be_inlined_is_named(tmp_path: Path, source: str, words: str) -> None:
    folder = tmp_path / "html"
    (folder / "img").mkdir(parents=True)
    (tmp_path / "secret.png").write_bytes(b"S")
    (folder / "out.png").symlink_to(tmp_path / "secret.png")
    (folder / "loop.png").symlink_to(folder / "loop.png")
    (folder / "long.png").write_bytes(b"0123456789")
    (folder / "empty.png").touch()
    with pytest.raises(MessageError, match=words) as caught:
        inline_images(f'<p>\n<img src="{source}">', folder, most_bytes=9)
    assert caught.value.field == "Email.Html"


def test_a_link_within_the_folder_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real.png").write_bytes(b"R")
    (tmp_path / "link.png").symlink_to("real.png")
    _, parts = inline_images("<img src=link.png>", tmp_path, most_bytes=9)
    assert [(part.filename, part.content) for part in parts] == [("link.png", b"R")]
