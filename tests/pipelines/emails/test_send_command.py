"""`connector send`: every field arrives, and no request is sent twice."""

import email
import email.policy
import json
from pathlib import Path

import pytest
import yaml

from connector.runs.run_log import list_runs
from connector.sandbox import SandboxProcess
from tests.pipelines.conftest import Connector, wait_for
from tests.pipelines.emails.outbox import interrupt_twice, read_outbox
from tests.pipelines.virtual_time import skip_waits

PNG_BYTES = bytes.fromhex("89504e470d0a1a0a") + bytes(range(256))
SEND_ARGUMENTS = (
    "--to",
    "ann@example.net",
    "--from",
    "Shop <hello@example.com>",
    "--subject",
    "Hi",
    "--text",
    "hi.txt",
)


@pytest.fixture
def mailer(connector: Connector, tmp_path: Path) -> Connector:
    """A connector whose folder has the text of an email in hi.txt."""
    (tmp_path / "hi.txt").write_text("Hello Ann\n", encoding="utf-8")
    return connector


def test_the_report_of_send_has_the_ids_of_the_sent_email(mailer: Connector) -> None:
    result = mailer.run_json("send", *SEND_ARGUMENTS)
    (sent_email,) = read_outbox(mailer.sandbox)
    result.expect(0, read=1, sent=1)
    ids = {"request_id": sent_email.outbox_entry["request_id"], "message_id": sent_email.message["Message-ID"]}
    assert result.report["email"] == {"state": "sent", **ids}
    assert [sent_email.message[name] for name in ("To", "Subject")] == ["ann@example.net", "Hi"]
    assert (sent_email.message["From"], sent_email.text.strip()) == ("Shop <hello@example.com>", "Hello Ann")
    assert next(list_runs(mailer.folder / "state"))["email"] == result.report["email"]


def test_send_transmits_every_field_of_the_service_api(mailer: Connector) -> None:
    """The message file has every field of service-api.md 2.2."""
    (mailer.folder / "logo.png").write_bytes(PNG_BYTES)
    (mailer.folder / "übersicht.pdf").write_bytes(b"%PDF-1.7 \x00\xff" * 999)
    (mailer.folder / "hi.html").write_text('<p>Hallo <b>Änne</b> <img src="cid:stamp"></p>', "utf-8")
    message = {
        "from": "Größe & Söhne <hello@example.com>", "cc": "cleo@example.net", "bcc": ["Клео <dan@example.net>"],
        "to": ["Änne Ö <ann@example.net>", {"email": "bob@example.net", "name": "Lee, Bob"}],
        "reply_to": "help@example.com", "subject": "Frühling 🌷 für alle", "headers": {"X-Campaign": "Frühling"},
        "html": "hi.html", "text": {"content": "Hallo Änne\n"}, "attach": ["übersicht.pdf"],
        "inline": [{"path": "logo.png", "id": "stamp"}], "at": "2099-12-24T09:00+01:00",
        "tracking": {"track_links": True, "track_open": None},
        "settings": {"use_dkim": False, "use_dkim_selector": "s1"},
    }  # fmt: skip
    (mailer.folder / "message.yaml").write_text(yaml.safe_dump(message, allow_unicode=True), encoding="utf-8")
    result = mailer.run_json("send", "message.yaml")
    assert result.exit_code == 0, result.stderr
    (sent_email,) = read_outbox(mailer.sandbox)
    recipients = [(address.display_name, address.addr_spec) for address in sent_email.message["To"].addresses]
    assert recipients == [("Änne Ö", "ann@example.net"), ("Lee, Bob", "bob@example.net")]
    assert sent_email.message["Cc"] == "cleo@example.net"
    assert sent_email.message["Reply-To"] == "help@example.com"
    assert sent_email.message["From"].addresses[0].display_name == "Größe & Söhne"
    assert sent_email.message["Subject"] == "Frühling 🌷 für alle"
    assert sent_email.message["X-Campaign"] == "Frühling"
    assert sent_email.text.strip() == "Hallo Änne"
    assert sent_email.attached_files["übersicht.pdf"] == b"%PDF-1.7 \x00\xff" * 999
    (inline_part,) = (part for part in sent_email.message.walk() if part["Content-ID"])
    assert (inline_part["Content-ID"], inline_part.get_payload(decode=True)) == ("<stamp>", PNG_BYTES)
    assert 'src="cid:stamp"' in sent_email.html
    assert sent_email.outbox_entry["state"] == "scheduled"
    assert sent_email.outbox_entry["settings"] | sent_email.outbox_entry["tracking"] == {
        "InlineImages": False, "SendAt": 4101782400, "UseDkim": True, "UseDkimSelector": "s1",
        "TrackLinks": True, "TrackPlainTextLinks": False, "TrackOpen": None, "TrackUnsubscribe": False,
    }  # fmt: skip
    assert "dan@example.net" in json.dumps(sent_email.outbox_entry), "Bcc"


def test_send_with_dry_run_sends_no_email(mailer: Connector) -> None:
    (mailer.folder / "a.bin").write_bytes(PNG_BYTES)
    result = mailer.run_json("send", *SEND_ARGUMENTS, "--attach", "a.bin", "--dry-run", "--eml", "out.eml")
    assert (result.exit_code, mailer.sandbox.outbox()) == (0, [])
    (attachment,) = result.report["request"]["SendEmail"]["Email"]["Attachments"]
    assert attachment == {"Disposition": "attachment", "Filename": "a.bin", "Type": "application/octet-stream"}
    eml_message = email.message_from_bytes((mailer.folder / "out.eml").read_bytes(), policy=email.policy.default)
    assert (eml_message["To"], eml_message["Subject"]) == ("ann@example.net", "Hi")
    assert (mailer.folder / "out.eml").stat().st_mode & 0o077 == 0
    assert not (mailer.folder / "state").exists()
    second_result = mailer.run("send", *SEND_ARGUMENTS, "--dry-run", "--eml", "out.eml")
    assert (second_result.exit_code, "--eml" in second_result.stderr) == (2, True)


def test_options_replace_keys_of_a_message_file_and_add_attachments(mailer: Connector) -> None:
    (mailer.folder / "a.bin").write_bytes(PNG_BYTES)
    (mailer.folder / "b.bin").write_bytes(PNG_BYTES[1:])
    (mailer.folder / "message.yaml").write_text(
        "from: hello@example.com\nto: [bob@example.net]\ncc: [cleo@example.net]\nsubject: First\n"
        "html: {content: <p>Old</p>}\ntext: {content: Old}\nheaders: {X-A: b}\nattach: [a.bin]\n"
    )
    (mailer.folder / "new.html").write_text("<p>Something else</p>", encoding="utf-8")
    options = ("--to", "ann@example.net", "--subject", "Another", "--html", "new.html", "--attach", "b.bin")
    result = mailer.run_json("send", "message.yaml", *options)
    assert result.exit_code == 0, result.stderr
    (sent_email,) = read_outbox(mailer.sandbox)
    assert (sent_email.message["To"], sent_email.message["Cc"]) == ("ann@example.net", "cleo@example.net")
    assert (sent_email.message["Subject"], sent_email.message["X-A"]) == ("Another", "b")
    assert sent_email.attached_files == {"a.bin": PNG_BYTES, "b.bin": PNG_BYTES[1:]}
    assert "Something else" in sent_email.html
    assert sent_email.text.strip() == "Something else", "the old text is not sent with the new HTML"


@pytest.mark.parametrize(
    ("faults", "state", "exit_code", "sent_count"),
    [({"drop_after": 1}, "unknown", 1, 1), ({"refuse": 1}, "rejected", 1, 0)],
)
def test_a_failed_send_is_not_tried_again(
    mailer: Connector, faults: dict[str, object], state: str, exit_code: int, sent_count: int
) -> None:
    mailer.sandbox.switch(**faults)
    result = mailer.run_json("send", *SEND_ARGUMENTS)
    assert (result.exit_code, result.report["email"]["state"]) == (exit_code, state)
    assert len(mailer.sandbox.outbox()) == sent_count
    assert mailer.sandbox.stats()["requests"]["send"]["received"] == 1


def test_an_email_that_cannot_be_recorded_is_not_sent(mailer: Connector) -> None:
    (mailer.folder / "state").mkdir()
    (mailer.folder / "state" / "runs").write_text("a file in the way")
    result = mailer.run_json("send", *SEND_ARGUMENTS)
    assert (result.exit_code, mailer.sandbox.outbox(), result.rows) == (3, [], {"read": 1, "unsent": 1})
    assert "cannot be recorded in" in result.report["messages"][0]
    assert result.report["email"]["state"] == "unsent"


def test_an_email_is_reported_as_unsent_if_the_service_cannot_be_reached(
    mailer: Connector, sandbox: SandboxProcess
) -> None:
    result = mailer.run_json(
        "send", *SEND_ARGUMENTS, environ={"CONNECTOR_BASE_URL": "http://127.0.0.1:1"}, clock=skip_waits()
    )
    assert (result.exit_code, result.report["email"]["state"], result.rows) == (3, "unsent", {"read": 1, "unsent": 1})
    status_line = mailer.run("status").stdout.splitlines()[-1]
    assert status_line.endswith("was aborted, and the email was not sent. Run the same command again.")


def test_a_second_signal_leaves_the_email_unknown(mailer: Connector) -> None:
    mailer.sandbox.switch(hang_after=1)
    with mailer.start("send", *SEND_ARGUMENTS, "--output", "json") as process:
        wait_for(lambda: mailer.sandbox.stats()["emails"] == 1)
        result = interrupt_twice(process)
    assert (result.exit_code, result.report["status"], result.report["email"]["state"]) == (130, "stopped", "unknown")
    assert result.report["rows"]["unknown"] == 1
    assert "The service may have sent this email already" in result.stderr
