"""What nobody said of an email is stated all the same, and what is missing is named."""

from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from connector.choices import SETTINGS, TRACKING
from connector.mail import MessageError, Recipient, encode_email
from connector.mail.draft import DEFAULT_SETTINGS, Draft, compose_draft

NOW = datetime(2026, 11, 22, 9, 0, tzinfo=UTC)
ANN = Recipient("ann@example.com", "Ann")
WHOLE: dict[str, Any] = {"sender": ANN, "to": (ANN,), "subject": "Hi", "plain_text": "Hello"}


def encode(draft: Draft) -> dict[str, Any]:
    body: dict[str, Any] = orjson.loads(encode_email(compose_draft(draft, NOW)))
    return body["SendEmail"]  # type: ignore[no-any-return] # JSON


def test_every_setting_is_stated_and_none_is_null_but_those_whose_null_is_ordinary() -> None:
    sent = encode(Draft(**WHOLE))

    assert sent["TrackingSettings"] == {
        "TrackLinks": False, "TrackPlainTextLinks": False, "TrackOpen": False, "TrackUnsubscribe": False,
    }  # fmt: skip
    assert sent["EmailSettings"] == {"InlineImages": False, "SendAt": None, "UseDkim": True, "UseDkimSelector": None}
    assert set(DEFAULT_SETTINGS) == {*TRACKING, *SETTINGS}


@pytest.mark.parametrize("name", [each for each in (*TRACKING, *SETTINGS) if each != "use_dkim_selector"])
@pytest.mark.parametrize("value", [True, False, None])
def test_what_is_said_is_sent(name: str, value: bool | None) -> None:
    sent = encode(Draft(**WHOLE, settings={name: value}))
    wire = "".join(part.title() for part in name.split("_"))
    assert ({**sent["TrackingSettings"], **sent["EmailSettings"]})[wire] is value


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"sender": None}, "Email.From"),
        ({"to": ()}, "Email.To"),
        ({"subject": None}, "Email.Subject"),
        ({"plain_text": None}, "Email.Html"),
        ({"plain_text": ""}, "Email.Html"),
        ({"subject": "a\r\nBcc: b@c.org"}, "Email.Subject"),
        ({"send_at": NOW - timedelta(seconds=1)}, "EmailSettings.SendAt"),
        ({"send_at": NOW.replace(tzinfo=None) + timedelta(days=1)}, "EmailSettings.SendAt"),
        ({"settings": {"track_open": "yes"}}, "TrackingSettings.TrackOpen"),
        ({"settings": {"use_dkim_selector": True}}, "EmailSettings.UseDkimSelector"),
    ],
)
def test_what_cannot_be_sent_is_named(change: dict[str, Any], field: str) -> None:
    with pytest.raises(MessageError) as raised:
        compose_draft(Draft(**WHOLE | change), NOW)
    assert raised.value.field == field


def test_an_empty_selector_is_none() -> None:
    assert encode(Draft(**WHOLE, settings={"use_dkim_selector": ""}))["EmailSettings"]["UseDkimSelector"] is None
