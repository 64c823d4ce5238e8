"""Messages: only an email that service-api.md 2.2 allows can be composed, and its JSON is that of the document."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from connector.mail.message import (
    Attachment,
    EmailSettings,
    Header,
    Message,
    MessageError,
    Recipient,
    encode_email,
)

SAID: dict[str, Any] = {
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
PLAIN: dict[str, Any] = {
    "settings": EmailSettings(**SAID),
    "sender": Recipient("shop@example.com", "Shop"),
    "to": [ANN],
    "subject": "Hello",
    "plain_text": "Hi\nAnn",
}
PDF = Attachment(b"%PDF", "terms.pdf", "application/pdf")


def sent(**changes: Any) -> dict[str, Any]:
    body = orjson.loads(encode_email(Message(**{**PLAIN, **changes})))
    assert list(body) == ["SendEmail"]
    email: dict[str, Any] = body["SendEmail"]
    return email


def test_the_smallest_email_has_the_json_of_the_document() -> None:
    assert sent()["Email"] == {
        "To": [{"Email": "ann@example.com", "Name": "Ann Lee"}],
        "From": {"Email": "shop@example.com", "Name": "Shop"},
        "PlainText": "Hi\nAnn",
        "Subject": "Hello",
    }


def test_the_largest_email_has_the_json_of_the_document() -> None:
    email = sent(
        cc=[Recipient("c@example.com")],
        bcc=[Recipient("b@example.com", "")],
        reply_to=[Recipient("r@example.com", "R")],
        headers=[Header("X-Campaign", "Größe")],
        html="<p>Hi</p>",
        attachments=[PDF, Attachment(b"\x00\xff", "logo.png", "image/png", "inline", "logo"), PDF],
    )["Email"]
    assert email["Cc"] == [{"Email": "c@example.com"}]
    assert email["Bcc"] == [{"Email": "b@example.com"}]
    assert email["ReplyTo"] == [{"Email": "r@example.com", "Name": "R"}]
    assert email["Headers"] == [{"Name": "X-Campaign", "Value": "Größe"}]
    assert (email["Html"], email["PlainText"]) == ("<p>Hi</p>", "Hi\nAnn")
    assert email["Attachments"][:2] == [
        {
            "ContentBase64": "JVBERg==",
            "Disposition": "attachment",
            "Filename": "terms.pdf",
            "Type": "application/pdf",
        },
        {
            "ContentBase64": "AP8=",
            "ContentId": "logo",
            "Disposition": "inline",
            "Filename": "logo.png",
            "Type": "image/png",
        },
    ]


def message(**changes: Any) -> Callable[[], object]:
    return lambda: Message(**{**PLAIN, **changes})


def settings(**changes: Any) -> Callable[[], object]:
    return lambda: EmailSettings(**{**SAID, **changes})


TWICE = Attachment(b"x", "a.png", "image/png", "inline", "logo")

WRONG: list[tuple[str, Callable[[], object]]] = [
    ("Email.To", message(to=[])),
    ("Email.Subject", message(subject="Hello\r\nBcc: x@example.com")),
    ("Email.Subject", message(subject=None)),
    ("Email.Html", message(plain_text=None)),
    ("Email.Html", message(plain_text="", html="")),
    ("Email.PlainText", message(plain_text="\ud800")),
    ("Email.Attachments[1].ContentId", message(attachments=[TWICE, TWICE])),
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
    ("Attachment.Disposition", lambda: Attachment(b"x", "a", "a/b", "Inline", "c")),  # type: ignore[arg-type] # as above
    ("Attachment.ContentId", lambda: Attachment(b"x", "a", "a/b", "inline")),
    ("Attachment.ContentId", lambda: Attachment(b"x", "a", "a/b", "inline", "")),
    ("TrackingSettings.TrackLinks", settings(track_links=1)),
    ("TrackingSettings.TrackPlainTextLinks", settings(track_plain_text_links="yes")),
    ("TrackingSettings.TrackOpen", settings(track_open=0)),
    ("TrackingSettings.TrackUnsubscribe", settings(track_unsubscribe=[])),
    ("EmailSettings.InlineImages", settings(inline_images=1)),
    ("EmailSettings.UseDkim", settings(use_dkim=1)),
    ("EmailSettings.UseDkimSelector", settings(use_dkim_selector=5)),
    ("EmailSettings.SendAt", settings(send_at=True)),
    ("EmailSettings.SendAt", settings(send_at=1.5)),
    ("EmailSettings.SendAt", settings(send_at=-1)),
    ("EmailSettings.SendAt", settings(send_at=1_800_000_000_000)),
]


@pytest.mark.parametrize(("field", "compose"), WRONG, ids=[f"{i}-{field}" for i, (field, _) in enumerate(WRONG)])
def test_a_part_that_the_document_forbids_is_refused_with_its_field(field: str, compose: Callable[[], object]) -> None:
    with pytest.raises(MessageError) as error_info:
        compose()
    assert error_info.value.field == field
    assert str(error_info.value).startswith(f"{field}: ")
    assert "example.com\n" not in str(error_info.value)


def test_the_repr_of_a_part_shows_no_personal_data() -> None:
    whole = Message(**{**PLAIN, "headers": [Header("X-A", "Ann")], "attachments": [PDF]})
    shown = " ".join(map(repr, (whole, ANN, PDF, whole.headers, whole.to)))
    assert "ann" not in shown.lower()
    assert "PDF" not in shown
