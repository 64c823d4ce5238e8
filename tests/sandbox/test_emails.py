"""The emails of the sandbox: the outbox, the checks of a request, and the truth log."""

import base64
import email
import email.policy
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
PDF_ATTACHMENT = {
    "ContentBase64": base64.b64encode(b"%PDF \x00").decode(),
    "Disposition": "attachment",
    "Filename": "terms.pdf",
    "Type": "application/pdf",
}
LOGO_ATTACHMENT = PDF_ATTACHMENT | {
    "Disposition": "inline",
    "ContentId": "logo",
    "Filename": "logo.png",
    "Type": "image/png",
}


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
        ({"Attachments": [PDF_ATTACHMENT | {"ContentBase64": "???"}]}, "Attachments[0].ContentBase64"),
        ({"Attachments": [PDF_ATTACHMENT | {"Disposition": "inline"}]}, "ContentId is required"),
        ({"Attachments": [LOGO_ATTACHMENT, LOGO_ATTACHMENT]}, "unique"),
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


def test_switches_set_the_verified_domains_and_the_protected_headers(client: SandboxClient) -> None:
    client.sandbox.switch(verified_domains=["*"], protected_headers=["x-mine"])
    email_of_other_domain = PLAIN_EMAIL | {"From": {"Email": "a@Elsewhere.org"}}
    assert client.send(email_of_other_domain | {"Headers": [{"Name": "Subject", "Value": "Other"}]}).status == 200
    assert (
        client.send(email_of_other_domain | {"Headers": [{"Name": "Content-Type", "Value": "text/odd"}]}).status == 200
    )
    assert client.send(email_of_other_domain | {"Headers": [{"Name": "X-Mine", "Value": "x"}]}).status == 400
    assert read_eml(client.sandbox.outbox()[0]["eml"])["Subject"] == "Other"


def test_the_truth_log_has_an_email_with_a_lost_answer(client: SandboxClient) -> None:
    client.sandbox.switch(error_after=1)
    assert client.send(PLAIN_EMAIL).status == 500
    assert [event["answered"] for event in client.list_events("sent")] == ["server_error"]


def test_a_sandbox_with_a_data_folder_stores_each_email_as_a_file(tmp_path: Path) -> None:
    with SandboxProcess(data_folder=tmp_path) as sandbox:
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
