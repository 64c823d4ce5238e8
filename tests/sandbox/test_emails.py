import base64
import email
import email.policy
import time
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from connector.sandbox import SandboxProcess
from tests.sandbox.client import SandboxClient

PLAIN_EMAIL: dict[str, Any] = {
    "To": [{"Email": "ana@example.net", "Name": "Ana"}],
    "From": {"Email": "hello@example.com", "Name": "Shop"},
    "PlainText": "Hello\n",
    "Subject": "Hi",
}
PDF = {
    "ContentBase64": base64.b64encode(b"%PDF \x00").decode(),
    "Disposition": "attachment",
    "Filename": "terms.pdf",
    "Type": "application/pdf",
}
LOGO = PDF | {"Disposition": "inline", "ContentId": "logo", "Filename": "logo.png", "Type": "image/png"}


def read_eml(text: str) -> EmailMessage:
    message = email.message_from_string(text, policy=email.policy.default)
    assert isinstance(message, EmailMessage)
    return message


def test_a_sent_email_is_in_the_outbox(client: SandboxClient) -> None:
    reply = client.send(PLAIN_EMAIL)
    answer = reply.json["SendEmail"]
    assert (reply.status, reply.json["success"], answer["SendMessageRequestId"]) == (200, True, 1)
    (entry,) = client.sandbox.outbox()
    message = read_eml(entry["eml"])
    assert message["Message-ID"] == answer["MessageId"] == entry["message_id"]
    assert (message["To"], message["From"], message["Subject"]) == (
        "Ana <ana@example.net>", "Shop <hello@example.com>", "Hi",
    )  # fmt: skip
    assert message.get_content().splitlines() == ["Hello"]
    assert [event["request_id"] for event in client.list_events("sent")] == [1]


def test_the_outbox_has_all_parts_of_an_email(client: SandboxClient) -> None:
    complete_email = PLAIN_EMAIL | {
        "Cc": [{"Email": "bob@example.net"}],
        "Bcc": [{"Email": "cleo@example.net", "Name": "Клео"}],
        "ReplyTo": [{"Email": "help@example.com", "Name": "Help"}],
        "Headers": [{"Name": "X-Campaign", "Value": "Frühling"}, {"Name": "List-Unsubscribe", "Value": "<https://x>"}],
        "Html": '<p>Hello <img src="cid:logo"></p>',
        "Attachments": [PDF, LOGO],
    }
    assert client.send(complete_email).status == 200
    message = read_eml(client.sandbox.outbox()[0]["eml"])
    assert (message["Cc"], message["Reply-To"], message["X-Campaign"]) == (
        "bob@example.net", "Help <help@example.com>", "Frühling",
    )  # fmt: skip
    assert message["Bcc"].addresses[0].display_name == "Клео"
    content_types = [part.get_content_type() for part in message.walk() if not part.is_multipart()]
    assert content_types == ["text/plain", "text/html", "image/png", "application/pdf"]
    parts = {part.get_content_type(): part for part in message.walk()}
    assert isinstance(pdf := parts["application/pdf"], EmailMessage)
    assert (pdf.get_content(), pdf.get_filename()) == (b"%PDF \x00", "terms.pdf")
    assert (parts["image/png"]["Content-ID"], parts["image/png"].get_content_disposition()) == ("<logo>", "inline")


@pytest.mark.parametrize(
    ("change", "expected_text"),
    [
        ({"TrackingSettings": {"TrackLinks": "yes"}}, "TrackLinks"),
        ({"TrackingSettings": {"TrackAll": True}}, "TrackAll"),
        ({"EmailSettings": {"SendAt": True}}, "SendAt"),
        ({"EmailSettings": {"SendAt": 10**13}}, "SendAt"),
        ({"To": []}, "Email.To: "),
        ({"To": [{"Name": "x"}]}, "Email.To[0].Email"),
        ({"From": None}, "Email.From"),
        ({"From": {"Email": "a@elsewhere.org"}}, "elsewhere.org"),
        ({"PlainText": ""}, "Html or PlainText"),
        ({"Subject": "a\r\nBcc: x@example.com"}, "Email.Subject"),
        ({"Headers": [{"Name": "message-id", "Value": "x"}]}, "protected"),
        ({"Headers": [{"Name": "X-Y", "Value": "x\ny"}]}, "Headers[0].Value"),
        ({"Attachments": [PDF | {"ContentBase64": "???"}]}, "Attachments[0].ContentBase64"),
        ({"Attachments": [PDF | {"Disposition": "inline"}]}, "ContentId is required"),
        ({"Attachments": [LOGO, LOGO]}, "unique"),
        ({"Priority": 1}, "Email.Priority"),
    ],
)
def test_the_refusal_of_a_wrong_email_names_the_field(
    client: SandboxClient, change: dict[str, Any], expected_text: str
) -> None:
    reply = (
        client.send(PLAIN_EMAIL, **change) if "Settings" in next(iter(change)) else client.send(PLAIN_EMAIL | change)
    )
    assert (reply.status, reply.json["success"]) == (400, False)
    assert expected_text in reply.json["message"]
    assert client.sandbox.outbox() == []


def test_the_settings_of_an_email_are_stored_and_a_dkim_selector_switches_dkim_on(client: SandboxClient) -> None:
    send_at = int(time.time()) + 1000
    client.send(
        PLAIN_EMAIL,
        TrackingSettings={"TrackOpen": False, "TrackLinks": None},
        EmailSettings={"UseDkim": False, "UseDkimSelector": "s1", "SendAt": send_at},
    )
    client.send(PLAIN_EMAIL, EmailSettings={"SendAt": 5, "UseDkim": False, "UseDkimSelector": ""})
    first_entry, second_entry = client.sandbox.outbox()
    assert (first_entry["tracking"]["TrackOpen"], first_entry["tracking"]["TrackLinks"]) == (False, None)
    assert (first_entry["settings"]["UseDkim"], first_entry["state"], first_entry["settings"]["SendAt"]) == (
        True,
        "scheduled",
        send_at,
    )
    assert (second_entry["settings"]["UseDkim"], second_entry["state"]) == (False, "sent")


def test_switches_set_the_verified_domains_and_the_protected_headers(client: SandboxClient) -> None:
    client.sandbox.switch(verified_domains=["*"], protected_headers=["x-mine"])
    email_of_other_domain = PLAIN_EMAIL | {"From": {"Email": "a@Elsewhere.org"}}
    assert client.send(email_of_other_domain | {"Headers": [{"Name": "Subject", "Value": "Other"}]}).status == 200
    assert (
        client.send(email_of_other_domain | {"Headers": [{"Name": "Content-Type", "Value": "text/odd"}]}).status == 200
    )
    assert client.send(email_of_other_domain | {"Headers": [{"Name": "X-Mine", "Value": "x"}]}).status == 400
    assert read_eml(client.sandbox.outbox()[0]["eml"])["Subject"] == "Other"


def test_the_truth_log_has_an_email_whose_answer_was_lost(client: SandboxClient) -> None:
    client.sandbox.switch(error_after=1)
    assert client.send(PLAIN_EMAIL).status == 500
    assert [event["answered"] for event in client.list_events("sent")] == ["server_error"]


def test_a_sandbox_with_a_data_folder_stores_each_email_as_a_file(tmp_path: Path) -> None:
    with SandboxProcess(data=tmp_path) as sandbox:
        client = SandboxClient(sandbox)
        first_id = client.send(PLAIN_EMAIL).json["SendEmail"]["SendMessageRequestId"]
        sandbox.kill()
        sandbox.start()
        second_id = client.send(PLAIN_EMAIL).json["SendEmail"]["SendMessageRequestId"]
        entries = sandbox.outbox()
    files = sorted((tmp_path / "outbox").iterdir())
    assert second_id == first_id + 1
    assert [entry["file"] for entry in entries] == [str(path) for path in files]
    assert all(path.suffix == ".eml" and read_eml(path.read_text())["Subject"] == "Hi" for path in files)
