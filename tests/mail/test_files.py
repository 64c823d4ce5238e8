"""Files as attachments: whole, typed by their names, never more of them read than is allowed."""

import mimetypes
import os
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from connector.mail.draft import UNKNOWN_TYPE, guess_type, read_attachment
from connector.mail.message import Attachment, MessageError, check_mime_type


@given(st.binary(min_size=1, max_size=2_000), st.integers(0, 2_500))
def test_a_file_is_attached_whole_or_not_at_all(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, most: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "terms.pdf"
    path.write_bytes(content)
    if len(content) <= most:
        assert read_attachment(path, most_bytes=most).content == content
    else:
        with pytest.raises(MessageError, match=f"terms.pdf' is larger than the {most:,} bytes"):
            read_attachment(path, most_bytes=most)


@pytest.mark.parametrize(
    ("name", "mime_type"),
    [
        ("terms.pdf", "application/pdf"),
        ("LOGO.PNG", "image/png"),
        ("rows.tar.gz", "application/gzip"),
        ("plan.xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
        ("invite.ics", "text/calendar"),
        ("mail.eml", "message/rfc822"),
        ("data:text/html,x.pdf", "application/pdf"),
        ("notes", UNKNOWN_TYPE),
        (".profile", UNKNOWN_TYPE),
        ("x.nosuch", UNKNOWN_TYPE),
    ],
)
def test_the_type_is_told_by_the_name(tmp_path: Path, name: str, mime_type: str) -> None:
    path = tmp_path / name.replace("/", "∕")
    path.write_bytes(b"x")
    assert read_attachment(path, most_bytes=1).mime_type == guess_type(name) == mime_type


def test_the_machine_has_no_say_in_the_type() -> None:
    mimetypes.add_type("application/x-of-this-machine", ".connector-test")
    assert guess_type("a.connector-test") == UNKNOWN_TYPE


@given(st.text())
def test_any_name_has_a_type_that_an_attachment_may_have(name: str) -> None:
    check_mime_type("Attachment.Type", guess_type(name))


def test_what_is_said_of_an_attachment_goes_before_what_is_guessed(tmp_path: Path) -> None:
    path = tmp_path / "logo.png"
    path.write_bytes(b"\x89PNG")
    part: Attachment = read_attachment(
        path, most_bytes=9, disposition="inline", content_id="logo", mime_type="image/webp"
    )
    assert (part.filename, part.disposition, part.content_id, part.mime_type) == (
        "logo.png", "inline", "logo", "image/webp",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("missing.pdf", "missing.pdf' does not exist"),
        (".", "is a folder"),
        ("empty.pdf", "empty.pdf' is empty"),
        ("pipe", "pipe' is no ordinary file"),
        ("empty.pdf/x", "cannot be read: Not a directory"),
        ("a\0b", r"a\\x00b' is no path"),
        ("x" * 300, "cannot be read: File name too long"),
    ],
)
def test_a_file_that_cannot_be_attached_is_named(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "empty.pdf").touch()
    os.mkfifo(tmp_path / "pipe")  # to read it would wait for ever
    with pytest.raises(MessageError, match=words) as caught:
        read_attachment(tmp_path / name, most_bytes=9)
    assert caught.value.field == "Email.Attachments"


def test_of_a_file_that_is_too_large_no_more_is_read_than_tells_so(tmp_path: Path) -> None:
    path = tmp_path / "huge.bin"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a terabyte of holes: to read it whole would fail
    with pytest.raises(MessageError, match="larger than the 1,000 bytes"):
        read_attachment(path, most_bytes=1000)


def test_a_name_of_strange_bytes_is_told_in_words_that_can_be_shown(tmp_path: Path) -> None:
    with pytest.raises(MessageError) as caught:
        read_attachment(Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.pdf")), most_bytes=9)
    assert r"\udcff.pdf' does not exist" in str(caught.value).encode().decode()
