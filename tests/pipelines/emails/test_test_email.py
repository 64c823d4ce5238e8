"""`connector mail --test ADDRESS` sends the email of the first valid row to ADDRESS. The campaign does not count this
email."""

from pathlib import Path

import pytest

from tests.pipelines.conftest import Connector
from tests.pipelines.emails.outbox import list_recipients, read_outbox
from tests.pipelines.emails.test_mail_command import write_job


@pytest.fixture
def mailer(connector: Connector, tmp_path: Path) -> Connector:
    """A connector with a job for three people. The address of the first person is invalid."""
    connector.write_people("email,first,order", "nobody,No,1", "ann@example.net,Ann,17", "bob@example.net,Bob,18")
    write_job(tmp_path, {"html": None, "text": {"content": "Order {{ order }}"}, "at": "2036-01-01T00:00:00+00:00"})
    return connector


def test_the_test_email_is_sent_immediately_and_is_not_recorded(mailer: Connector) -> None:
    mailer.run_json("mail", "mail.yaml", "--test", "Me <me@example.com>").expect(0, read=1, sent=1)
    (sent_email,) = read_outbox(mailer.sandbox)
    assert sent_email.message["To"].addresses[0].addr_spec == "me@example.com"
    assert sent_email.message["Subject"] == "Hello Ann"
    assert sent_email.text.strip() == "Order 17"
    assert "X-Sandbox-Send-At" not in sent_email.message
    assert mailer.run_json("status").report["runs"] == []
    mailer.run_json("mail", "mail.yaml").expect_rows(read=3, sent=2, invalid=1)
    assert list_recipients(mailer.sandbox) == ["me@example.com", "ann@example.net", "bob@example.net"]


def test_a_refused_test_email_is_reported_with_the_reason(mailer: Connector) -> None:
    mailer.sandbox.switch(verified_domains="verified.example")
    result = mailer.run_json("mail", "mail.yaml", "--test", "me@example.com").expect(1, read=1, rejected=1)
    assert "the service refused the email" in result.stderr


def test_a_test_email_without_a_valid_row_is_refused(mailer: Connector) -> None:
    mailer.write_people("email,first,order", "nobody,No,1")
    result = mailer.run("mail", "mail.yaml", "--test", "me@example.com")
    assert (result.exit_code, "no row is valid" in result.stderr) == (2, True), result.stderr
    assert read_outbox(mailer.sandbox) == []
