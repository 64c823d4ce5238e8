"""Messages that are made from a message file or from options: recipients, times, attachments, defaults, and errors
that name the field."""

import mimetypes
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import ValidationError

from connector.jobs.mail_models import MessageFile
from connector.mail.draft import (
    UNKNOWN_MIME_TYPE,
    compose_message,
    convert_to_timestamp,
    guess_mime_type,
    parse_recipient,
    read_attachment,
)
from connector.mail.message import SETTING_NAMES, MessageError, Recipient, encode_email

NOW = datetime(2026, 11, 22, 9, 0, tzinfo=UTC)
ANN = Recipient("ann@example.com", "Ann")
MESSAGE_PARTS: dict[str, Any] = {"sender": ANN, "to": (ANN,), "subject": "Hi", "plain_text": "Hello"}


def encode_message_parts(parts: dict[str, Any]) -> dict[str, Any]:
    request_body: dict[str, Any] = orjson.loads(encode_email(compose_message(NOW, **parts)))
    return request_body["SendEmail"]  # type: ignore[no-any-return] # JSON


def test_every_setting_has_a_default_and_is_sent() -> None:
    email = encode_message_parts(MESSAGE_PARTS)
    assert email["TrackingSettings"] == {
        "TrackLinks": False, "TrackPlainTextLinks": False, "TrackOpen": False, "TrackUnsubscribe": False,
    }  # fmt: skip
    assert email["EmailSettings"] == {"InlineImages": False, "SendAt": None, "UseDkim": True, "UseDkimSelector": None}


@pytest.mark.parametrize("setting", sorted({*SETTING_NAMES} - {"use_dkim_selector"}))
@pytest.mark.parametrize("value", [True, False, None])
def test_a_tracking_or_email_setting_is_sent_under_its_json_name(setting: str, value: bool | None) -> None:
    email = encode_message_parts({**MESSAGE_PARTS, "settings": {setting: value}})
    json_name = "".join(word.title() for word in setting.split("_"))
    assert ({**email["TrackingSettings"], **email["EmailSettings"]})[json_name] is value


@pytest.mark.parametrize(
    ("changed_parts", "field"),
    [
        ({"sender": None}, "Email.From"),
        ({"subject": None}, "Email.Subject"),
        ({"send_at": NOW - timedelta(seconds=1)}, "EmailSettings.SendAt"),
        ({"send_at": NOW.replace(tzinfo=None) + timedelta(days=1)}, "EmailSettings.SendAt"),
    ],
)
def test_the_error_for_a_missing_or_impossible_part_shows_its_field(changed_parts: dict[str, Any], field: str) -> None:
    with pytest.raises(MessageError) as error_info:
        compose_message(NOW, **MESSAGE_PARTS | changed_parts)
    assert error_info.value.field == field


@pytest.mark.parametrize(
    ("text", "email", "name"),
    [
        ("ann@example.com", "ann@example.com", None),
        (" ann@example.com ", "ann@example.com", None),
        ("<ann@example.com>", "ann@example.com", None),
        ("Ann <ann@example.com>", "ann@example.com", "Ann"),
        ("  Ann Lee<ann@example.com> ", "ann@example.com", "Ann Lee"),
        ('"Lee, Ann" <ann@example.com>', "ann@example.com", "Lee, Ann"),
        (r'"Ann \"A\" Lee" <ann@example.com>', "ann@example.com", 'Ann "A" Lee'),
        ("Änne Ö <ann@example.com>", "ann@example.com", "Änne Ö"),
        ("Lee, Ann <ann@example.com>", "ann@example.com", "Lee, Ann"),
    ],
)
def test_a_recipient_is_read_with_and_without_a_name(text: str, email: str, name: str | None) -> None:
    recipient = parse_recipient(text, "Email.To[0]")
    assert (recipient.email, recipient.name) == (email, name)


@pytest.mark.parametrize(
    "text", ["", "Ann", "ann@", "@x.org", "<>", "Ann <ann>", "a@x.org b@y.org", "<a@x.org> <b@y.org>"]
)
def test_the_error_for_a_bad_recipient_shows_its_field_without_its_value(text: str) -> None:
    with pytest.raises(MessageError) as error_info:
        parse_recipient(text, "Email.To[0]")
    assert error_info.value.field == "Email.To[0].Email"
    assert text == "" or text not in str(error_info.value)
    with pytest.raises(MessageError) as error_info:
        parse_recipient("Ann\r\nBcc: eve <ann@example.com>", "Email.Cc[1]")
    assert error_info.value.field == "Email.Cc[1].Name"


def test_a_time_is_rounded_up_and_a_past_time_is_refused() -> None:
    assert convert_to_timestamp(None, NOW) is None
    assert convert_to_timestamp(NOW, NOW) == NOW.timestamp()
    assert convert_to_timestamp(NOW + timedelta(microseconds=1), NOW) == NOW.timestamp() + 1
    with pytest.raises(MessageError, match="past"):
        convert_to_timestamp(NOW - timedelta(microseconds=1), NOW)


def test_a_file_above_the_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "terms.pdf"
    path.write_bytes(bytes(range(256)))
    assert read_attachment(path, max_bytes=256).content == bytes(range(256))
    with pytest.raises(MessageError, match=r"terms\.pdf' is larger than 255 bytes"):
        read_attachment(path, max_bytes=255)
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a terabyte of zeros, of which only the bytes up to the limit may be read
    with pytest.raises(MessageError, match="larger than 1,000 bytes"):
        read_attachment(path, max_bytes=1000)


@pytest.mark.parametrize(
    ("name", "mime_type"),
    [
        ("terms.pdf", "application/pdf"),
        ("LOGO.PNG", "image/png"),
        ("rows.csv", "text/csv"),
        ("rows.tar.gz", UNKNOWN_MIME_TYPE),
        ("mail.eml", "message/rfc822"),
        ("data:text/html,x.pdf", "application/pdf"),
        ("notes", UNKNOWN_MIME_TYPE),
        (".profile", UNKNOWN_MIME_TYPE),
        ("x.nosuch", UNKNOWN_MIME_TYPE),
    ],
)
def test_the_mime_type_of_a_file_follows_from_its_name(tmp_path: Path, name: str, mime_type: str) -> None:
    path = tmp_path / name.replace("/", "∕")
    path.write_bytes(b"x")
    assert read_attachment(path, max_bytes=1).mime_type == guess_mime_type(name) == mime_type


def test_the_mime_types_of_the_machine_have_no_effect() -> None:
    mimetypes.add_type("application/x-of-this-machine", ".connector-test")
    assert guess_mime_type("a.connector-test") == UNKNOWN_MIME_TYPE


@pytest.mark.parametrize(
    ("name", "expected_text"),
    [
        ("missing.pdf", "missing.pdf' does not exist"),
        (".", "is a folder"),
        ("empty.pdf", "empty.pdf' is empty"),
        ("pipe", "pipe' is not a regular file"),
        ("empty.pdf/x", "cannot be read: Not a directory"),
        ("a\0b", r"a\\x00b' is not a path"),
        ("x" * 300, "cannot be read: File name too long"),
        ("\udcff.pdf", r"\\udcff\.pdf' does not exist"),
    ],
)
def test_the_error_for_a_file_that_cannot_be_attached_shows_the_file(
    tmp_path: Path, name: str, expected_text: str
) -> None:
    (tmp_path / "empty.pdf").touch()
    os.mkfifo(tmp_path / "pipe")  # a program that reads this pipe waits for ever
    with pytest.raises(MessageError, match=expected_text) as error_info:
        read_attachment(tmp_path / name, max_bytes=9)
    assert error_info.value.field == "Email.Attachments"


# The time in a message file.


@pytest.mark.parametrize(
    ("text", "expected_time"),
    [
        ("2026-12-24T09:00+01:00", "2026-12-24T08:00"),
        ("2026-12-24T09:00:30Z", "2026-12-24T09:00:30"),
        ("2026-12-24 09:00+01:00", "2026-12-24T08:00"),
        ("1798099200", "2026-12-24T08:00"),
    ],
)
def test_a_time_with_an_offset_and_a_unix_timestamp_are_read(text: str, expected_time: str) -> None:
    assert MessageFile.model_validate({"at": text}).at == datetime.fromisoformat(expected_time).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "2026-12-24T09:00",
        "2026-12-24",
        "tomorrow",
        "",
        "2026-12-24T09:00 Europe/Berlin",
        "1798099200000",
        "9" * 40,
        "-1",
    ],
)
def test_a_time_without_an_offset_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match=r"must be a time with an offset, .* time zone is not"):
        MessageFile.model_validate({"at": text})
