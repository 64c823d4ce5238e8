"""An email that service-api.md 2.2 forbids raises an error. An allowed email has the JSON of service-api.md."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from connector.mail.message import Attachment, EmailSettings, Header, Message, MessageError, Recipient, encode_email

EMAIL_SETTINGS: dict[str, Any] = {
    "track_links": True,
    "track_plain_text_links": False,
    "track_open": None,
    "track_unsubscribe": True,
    "inline_images": False,
    "send_at": 1_800_000_000,
    "use_dkim": True,
    "use_dkim_selector": "s1",
}
ANN = Recipient("ann@example.com", "Ann Lee")
MESSAGE_FIELDS: dict[str, Any] = {
    "settings": EmailSettings(**EMAIL_SETTINGS),
    "sender": Recipient("shop@example.com", "Shop"),
    "to": [ANN],
    "subject": "Hello",
    "plain_text": "Hi\nAnn",
}
PDF_ATTACHMENT = Attachment(b"%PDF", "terms.pdf", "application/pdf")


def encode_message(**changes: Any) -> dict[str, Any]:
    request_body = orjson.loads(encode_email(Message(**{**MESSAGE_FIELDS, **changes})))
    assert list(request_body) == ["SendEmail"]
    email: dict[str, Any] = request_body["SendEmail"]
    return email


def test_an_email_without_optional_fields_has_the_json_of_the_interface_document() -> None:
    assert encode_message()["Email"] == {
        "To": [{"Email": "ann@example.com", "Name": "Ann Lee"}],
        "From": {"Email": "shop@example.com", "Name": "Shop"},
        "PlainText": "Hi\nAnn",
        "Subject": "Hello",
    }


def test_an_email_with_optional_fields_has_the_json_of_the_interface_document() -> None:
    email = encode_message(
        cc=[Recipient("c@example.com")],
        bcc=[Recipient("b@example.com", "")],
        reply_to=[Recipient("r@example.com", "R")],
        headers=[Header("X-Campaign", "Größe")],
        html="<p>Hi</p>",
        attachments=[
            PDF_ATTACHMENT,
            Attachment(b"\x00\xff", "logo.png", "image/png", "inline", "logo"),
            PDF_ATTACHMENT,
        ],
    )["Email"]
    assert email["Cc"] == [{"Email": "c@example.com"}]
    assert email["Bcc"] == [{"Email": "b@example.com"}]
    assert email["ReplyTo"] == [{"Email": "r@example.com", "Name": "R"}]
    assert email["Headers"] == [{"Name": "X-Campaign", "Value": "Größe"}]
    assert (email["Html"], email["PlainText"]) == ("<p>Hi</p>", "Hi\nAnn")
    assert email["Attachments"][:2] == [
        {"ContentBase64": "JVBERg==", "Disposition": "attachment", "Filename": "terms.pdf", "Type": "application/pdf"},
        {
            "ContentBase64": "AP8=",
            "ContentId": "logo",
            "Disposition": "inline",
            "Filename": "logo.png",
            "Type": "image/png",
        },
    ]


def build_message_function(**changes: Any) -> Callable[[], object]:
    return lambda: Message(**{**MESSAGE_FIELDS, **changes})


def build_settings_function(**changes: Any) -> Callable[[], object]:
    return lambda: EmailSettings(**{**EMAIL_SETTINGS, **changes})


LOGO_ATTACHMENT = Attachment(b"x", "a.png", "image/png", "inline", "logo")

FORBIDDEN_PARTS: list[tuple[str, Callable[[], object]]] = [
    ("Email.To", build_message_function(to=[])),
    ("Email.Subject", build_message_function(subject="Hello\r\nBcc: x@example.com")),
    ("Email.Subject", build_message_function(subject=None)),
    ("Email.Html", build_message_function(plain_text=None)),
    ("Email.Html", build_message_function(plain_text="", html="")),
    ("Email.PlainText", build_message_function(plain_text="\ud800")),
    ("Email.Attachments[1].ContentId", build_message_function(attachments=[LOGO_ATTACHMENT, LOGO_ATTACHMENT])),
    ("Recipient.Email", lambda: Recipient("")),
    ("Recipient.Email", lambda: Recipient("ann")),
    ("Recipient.Email", lambda: Recipient("@example.com")),
    ("Recipient.Email", lambda: Recipient("ann@")),
    ("Recipient.Email", lambda: Recipient("Ann <ann@example.com>")),
    ("Recipient.Email", lambda: Recipient("ann@example.com\n")),
    ("Recipient.Email", lambda: Recipient(None)),  # type: ignore[arg-type] # as an untyped caller would
    ("Recipient.Name", lambda: Recipient("ann@example.com", "Ann\r\nBcc: x")),
    ("Header.Name", lambda: Header("", "v")),
    ("Header.Name", lambda: Header("X Campaign", "v")),
    ("Header.Name", lambda: Header("X:", "v")),
    ("Header.Name", lambda: Header("Größe", "v")),
    ("Header.Value", lambda: Header("X-A", "v\r\nX-B: w")),
    ("Attachment.ContentBase64", lambda: Attachment(b"", "a", "a/b")),
    ("Attachment.Filename", lambda: Attachment(b"x", " ", "a/b")),
    ("Attachment.Type", lambda: Attachment(b"x", "a", "")),
    ("Attachment.Type", lambda: Attachment(b"x", "a", "pdf")),
    ("Attachment.ContentId", lambda: Attachment(b"x", "a", "a/b", "inline")),
    ("Attachment.ContentId", lambda: Attachment(b"x", "a", "a/b", "inline", "")),
    ("TrackingSettings.TrackLinks", build_settings_function(track_links=1)),
    ("TrackingSettings.TrackPlainTextLinks", build_settings_function(track_plain_text_links="yes")),
    ("TrackingSettings.TrackOpen", build_settings_function(track_open=0)),
    ("TrackingSettings.TrackUnsubscribe", build_settings_function(track_unsubscribe=[])),
    ("EmailSettings.InlineImages", build_settings_function(inline_images=1)),
    ("EmailSettings.UseDkim", build_settings_function(use_dkim=1)),
    ("EmailSettings.UseDkimSelector", build_settings_function(use_dkim_selector=5)),
    ("EmailSettings.SendAt", build_settings_function(send_at=True)),
    ("EmailSettings.SendAt", build_settings_function(send_at=1.5)),
    ("EmailSettings.SendAt", build_settings_function(send_at=-1)),
    ("EmailSettings.SendAt", build_settings_function(send_at=1_800_000_000_000)),
]


@pytest.mark.parametrize(
    ("field", "build_part"), FORBIDDEN_PARTS, ids=[f"{i}-{field}" for i, (field, _) in enumerate(FORBIDDEN_PARTS)]
)
def test_the_error_for_a_forbidden_part_of_an_email_shows_the_field(
    field: str, build_part: Callable[[], object]
) -> None:
    with pytest.raises(MessageError) as error_info:
        build_part()
    assert error_info.value.field == field
    assert str(error_info.value).startswith(f"{field}: ")
    assert "example.com\n" not in str(error_info.value)


def test_the_error_for_an_email_without_a_body_is_one_sentence() -> None:
    with pytest.raises(
        MessageError, match=r"is empty, and Email\.PlainText is also empty; set at least one of the two$"
    ):
        build_message_function(plain_text="")()


def test_the_repr_of_a_part_shows_no_personal_data() -> None:
    message = Message(**{**MESSAGE_FIELDS, "headers": [Header("X-A", "Ann")], "attachments": [PDF_ATTACHMENT]})
    representations = " ".join(map(repr, (message, ANN, PDF_ATTACHMENT, message.headers, message.to)))
    assert "ann" not in representations.lower()
    assert "PDF" not in representations
