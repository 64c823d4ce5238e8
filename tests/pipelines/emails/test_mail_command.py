"""`connector mail`: a campaign sends one email for each row, however many runs the campaign needs."""

import os
import shutil
import signal
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml

from connector.errors import ConfigurationError
from connector.mail.campaign import MAX_EMAILS_PER_COMMIT, CampaignHistory, refuse_older_ledger
from tests.pipelines.conftest import Connector, wait_for, wait_for_result
from tests.pipelines.emails.outbox import interrupt_twice, list_recipients, read_outbox
from tests.pipelines.leftovers import read_rejects

KILL_COUNT = int(os.environ.get("CONNECTOR_TEST_KILLS", "5"))

MAIL_KEYS: dict[str, Any] = {
    "campaign": "welcome",
    "to": {"email": "email", "name": "first"},
    "from": "Shop <hello@example.com>",
    "subject": "Hello {{ first }}",
    "html": "welcome.html",
}


def write_job(folder: Path, mail_keys: dict[str, Any] | None = None, **job_keys: Any) -> Path:
    job: dict[str, Any] = {
        "job": "welcome-run",
        "source": {"file": {"path": "people.csv"}},
        "mail": MAIL_KEYS | (mail_keys or {}),
        "load": {"max_rate": 2000},
    }
    path = folder / "mail.yaml"
    path.write_text(yaml.safe_dump(job | job_keys, allow_unicode=True), encoding="utf-8")
    return path


@pytest.fixture
def mailer(connector: Connector, tmp_path: Path) -> Connector:
    """A connector with three people, a template and a job."""
    rows = ("ann@example.net,Ann,17", "bob@example.net,Bob & <b>Bill</b>,18", "cleo@example.net,Клео,19")
    connector.write_people("email,first,order", *rows)
    (tmp_path / "welcome.html").write_text("<p>Hello {{ first }}, order {{ order }}</p>", encoding="utf-8")
    write_job(tmp_path)
    return connector


def write_many_people(mailer: Connector, person_count: int) -> list[str]:
    """Write a file with this many people. Return their addresses."""
    addresses = [f"person{index}@example.net" for index in range(person_count)]
    mailer.write_people("email,first,order", *(f"{address},P,1" for address in addresses))
    return addresses


def test_each_row_gets_its_own_email_once(mailer: Connector) -> None:
    (mailer.folder / "terms.txt").write_text("terms", encoding="utf-8")
    write_job(mailer.folder, {"headers": {"X-Order": "{{ order }}"}, "attach": ["terms.txt"]})
    mailer.run_json("mail", "mail.yaml").expect(0, read=3, sent=3)
    emails_by_recipient = {email.message["To"].addresses[0].addr_spec: email for email in read_outbox(mailer.sandbox)}
    bob = emails_by_recipient["bob@example.net"]
    assert bob.message["Subject"] == "Hello Bob & <b>Bill</b>"
    assert "Hello Bob &amp; &lt;b&gt;Bill&lt;/b&gt;, order 18" in bob.html
    assert bob.text.strip() == "Hello Bob & <b>Bill</b>, order 18"
    assert bob.outbox_entry["tracking"] == dict.fromkeys(bob.outbox_entry["tracking"], False)
    assert sorted(email.message["X-Order"] for email in emails_by_recipient.values()) == ["17", "18", "19"]
    assert [email.attached_files for email in emails_by_recipient.values()] == [{"terms.txt": b"terms"}] * 3
    # Another spelling of the base URL is still the same account.
    respelt_url = mailer.sandbox.base_url.replace("http:", "HTTP:") + "//"
    mailer.run_json("mail", "mail.yaml", environ={"CONNECTOR_BASE_URL": respelt_url}).expect(0, read=3, already_sent=3)
    write_job(mailer.folder, {"campaign": "another"})
    assert mailer.run_json("mail", "mail.yaml").rows == {"read": 3, "sent": 3}
    assert set(Counter(list_recipients(mailer.sandbox)).values()) == {2}


def test_no_email_is_sent_with_an_empty_or_shrunken_suppression_list(mailer: Connector) -> None:
    addresses = write_many_people(mailer, 40)
    write_job(mailer.folder, suppress={"file": {"path": "gone.csv", "column": "email"}})

    def write_suppression_list(suppressed_count: int) -> None:
        mailer.write_csv("gone.csv", "email", *addresses[:suppressed_count])

    # The refused run records no emails in the ledger, so the next run finds no unknown emails.
    write_suppression_list(0)
    assert mailer.run_json("mail", "mail.yaml").is_refused
    write_suppression_list(40)
    assert mailer.run_json("mail", "mail.yaml").rows == {"read": 40, "suppressed": 40}
    for suppressed_count in (0, 20):
        write_suppression_list(suppressed_count)
        assert mailer.run_json("mail", "mail.yaml").is_refused
    assert mailer.run_json("mail", "mail.yaml", "--preview", "1").is_refused
    assert list_recipients(mailer.sandbox) == []
    write_suppression_list(30)
    assert mailer.run_json("mail", "mail.yaml").rows == {"read": 40, "suppressed": 30, "sent": 10}


def test_a_row_that_is_invalid_or_a_duplicate_or_suppressed_gets_no_email(mailer: Connector) -> None:
    rows = ["ann@example.net,Ann,1", "nobody,Bob,1", "ANN@example.net ,Ann again,1"]
    rows += ('eve@example.net,"Eve\nBcc: x@y.org",1', "gone@example.net,Gone,1")
    mailer.write_people("email,first,order", *rows)
    mailer.write_csv("gone.csv", "email", "GONE@example.net")
    write_job(mailer.folder, suppress={"file": {"path": "gone.csv", "column": "email"}})
    preview_result = mailer.run_json("mail", "mail.yaml", "--preview", "1")
    assert "row 5 is invalid: Email." in preview_result.stderr
    assert "Bcc" not in preview_result.stderr + preview_result.stdout
    result = mailer.run_json("mail", "mail.yaml")
    assert result.exit_code == 1
    assert result.rows == {"read": 5, "sent": 1, "invalid": 2, "duplicate": 1, "suppressed": 1}
    assert list_recipients(mailer.sandbox) == ["ann@example.net"]
    fields_by_name = {reject["first"].split("\n")[0]: reject["_field"] for reject in read_rejects(result)}
    assert set(fields_by_name) == {"Bob", "Eve"}
    assert fields_by_name["Eve"] in ("Email.Subject", "Email.To[0].Name")


def test_a_row_whose_subject_is_empty_gets_no_email(mailer: Connector) -> None:
    mailer.write_people("email,first,order", "ann@example.net,,17", "bob@example.net,Bob,18")
    write_job(mailer.folder, {"subject": "{{ first }}"})
    result = mailer.run_json("mail", "mail.yaml").expect(1, read=2, sent=1, invalid=1)
    assert "Email.Subject" in str(result.report["causes"])
    assert read_rejects(result)[0]["_message"].startswith("Email.Subject is empty for this row: fill the column first")
    assert list_recipients(mailer.sandbox) == ["bob@example.net"]


def test_the_key_max_invalid_ends_a_run_with_many_invalid_rows(mailer: Connector) -> None:
    mailer.write_people("email,first,order", *["nobody,P,1"] * 10)
    write_job(mailer.folder, guard={"max_invalid": "10%"})
    result = mailer.run_json("mail", "mail.yaml")
    assert (result.exit_code, "guard.max_invalid" in result.stderr) == (3, True)


def test_a_refusal_of_the_first_email_stops_the_run(mailer: Connector) -> None:
    mailer.sandbox.switch(verified_domains="other.org")
    result = mailer.run_json("mail", "mail.yaml").expect(3, read=3, rejected=1, unsent=2)
    assert mailer.sandbox.stats()["requests"]["send"]["received"] == 1
    (reject,) = read_rejects(result)
    assert "not registered and verified" in reject["_message"]
    assert reject["_http_status"] == "400"
    assert [cause["message"] for cause in result.report["causes"]] == [
        "400 SendEmail.Email.From.Email: the domain '…' is not registered and verified"
    ]
    mailer.sandbox.switch(verified_domains="*")
    mailer.run_json("mail", "mail.yaml").expect(1, read=3, sent=2, rejected=1)
    preview_options = ("--preview", "1", "--preview-dir")
    preview_result = mailer.run_json("mail", "mail.yaml", *preview_options, "emails")
    preview_result.expect(0, read=3, already_sent=2, rejected=1)
    preview_result = mailer.run_json("mail", "mail.yaml", "--rejected", *preview_options, "all-emails")
    preview_result.expect(0, read=3, already_sent=2, sent=1)
    mailer.run_json("mail", "mail.yaml", "--rejected").expect(0, read=3, sent=1, already_sent=2)


def test_an_email_answered_with_429_is_sent_again_only_if_the_job_sets_retry_limited(mailer: Connector) -> None:
    write_many_people(mailer, 60)
    mailer.sandbox.switch(refuse=0.2, retry_after="none")
    result = mailer.run_json("mail", "mail.yaml")
    assert result.exit_code == 3
    assert result.rows["rejected"] >= 1
    assert {reject["_http_status"] for reject in read_rejects(result)} == {"429"}
    assert "retry_limited" in result.stderr
    write_job(mailer.folder, {"retry_limited": True, "campaign": "second"})
    result = mailer.run_json("mail", "mail.yaml").expect(0, read=60, sent=60)
    assert "sent them again" in result.stderr


def test_an_email_is_unsent_if_its_only_attempt_was_refused_with_429(mailer: Connector) -> None:
    write_job(mailer.folder, {"retry_limited": True})
    mailer.sandbox.switch(refuse=1, refuse_retry_after_s=86_400)
    result = mailer.run_json("mail", "mail.yaml").expect(3, read=3, unsent=3)
    assert "run again after" in result.report["messages"][-1]
    assert mailer.sandbox.stats()["requests"]["send"]["received"] == 1
    assert "sent them again" not in result.stderr


def test_a_service_that_does_not_answer_leaves_at_most_three_unknown_emails(mailer: Connector) -> None:
    write_many_people(mailer, 60)
    mailer.sandbox.switch(error_before=1)
    mailer.run_json("mail", "mail.yaml").expect(3, read=60, unknown=3, unsent=57)
    mailer.sandbox.switch(error_before=0)
    result = mailer.run_json("mail", "mail.yaml").expect(1, read=60, sent=57, unknown=3)
    assert len(read_rejects(result)) == 3
    mailer.write_people("email,first,order", "zoe@example.net,Zoe,1")
    result = mailer.run_json("mail", "mail.yaml")  # the source no longer has the rows of the unknown emails
    result.expect(1, read=1, sent=1)
    assert "3 more recipients of this campaign" in result.stderr
    assert "example.net" in read_rejects(result)[0]["_message"]
    assert [cause["rows"] for cause in result.report["causes"]] == [3]
    assert "example.net" not in str(result.report["causes"])


def test_a_preview_writes_emails_and_sends_no_email(mailer: Connector) -> None:
    result = mailer.run_json("mail", "mail.yaml", "--preview", "2").expect(0, read=3, sent=3)
    assert result.report["planned"]
    assert sorted(path.name for path in (mailer.folder / "preview").iterdir()) == ["0001.eml", "0002.eml"]
    assert "Hello Ann" in (mailer.folder / "preview" / "0001.eml").read_text(encoding="utf-8")
    assert not (mailer.folder / "state").exists()
    assert mailer.sandbox.stats()["requests"] == {}
    assert mailer.run("mail", "mail.yaml", "--preview", "1").exit_code == 2
    mailer.run_json("mail", "mail.yaml", "--limit", "2")
    ledger_bytes = (mailer.folder / "state" / "ledger-emails.db").read_bytes()
    (mailer.folder / "preview").rename(mailer.folder / "earlier")
    mailer.run_json("mail", "mail.yaml", "--preview", "1").expect_rows(read=3, sent=1, already_sent=2)
    assert (mailer.folder / "state" / "ledger-emails.db").read_bytes() == ledger_bytes


def test_a_campaign_locks_out_only_other_runs_of_the_same_campaign(mailer: Connector) -> None:
    mailer.sandbox.switch(latency_ms=500)
    with mailer.start("mail", "mail.yaml", "--output", "json") as first_process:
        wait_for(lambda: mailer.sandbox.stats()["requests"].get("send", {}).get("received", 0) > 0)
        assert mailer.run_json("mail", "mail.yaml").exit_code == 4
        write_job(mailer.folder, {"campaign": "other"})
        assert mailer.run_json("mail", "mail.yaml").exit_code == 0
        first_process.communicate()
    assert sorted(Counter(list_recipients(mailer.sandbox)).values()) == [2, 2, 2]


def test_after_a_signal_the_run_waits_for_the_answers_to_open_requests(mailer: Connector) -> None:
    write_many_people(mailer, 400)
    write_job(mailer.folder, load={"max_rate": 100})
    with mailer.start("mail", "mail.yaml", "--output", "json") as process:
        wait_for(lambda: mailer.sandbox.stats()["emails"] >= 20)
        os.kill(process.pid, signal.SIGINT)
        result = wait_for_result(process)
    rows = result.report["rows"]
    assert result.exit_code == 130
    assert rows["sent"] == mailer.sandbox.stats()["emails"] == 400 - rows["unsent"]
    assert rows["unknown"] == 0


def test_a_campaign_of_another_account_is_refused_without_the_option_new_account(mailer: Connector) -> None:
    assert mailer.run_json("mail", "mail.yaml").rows == {"read": 3, "sent": 3}
    write_job(mailer.folder, service={"account": "main"})
    for arguments in (("mail", "mail.yaml"), ("mail", "mail.yaml", "--preview", "1")):
        refused_result = mailer.run_json(*arguments)
        assert (refused_result.exit_code, "--new-account" in refused_result.stderr) == (2, True)
    assert mailer.sandbox.stats()["emails"] == 3
    assert mailer.run_json("mail", "mail.yaml", "--new-account").rows == {"read": 3, "sent": 3}
    assert mailer.run_json("mail", "mail.yaml").rows == {"read": 3, "already_sent": 3}


def test_a_restored_ledger_closes_campaigns_until_a_person_reopens_them(mailer: Connector) -> None:
    mailer.run_json("mail", "mail.yaml", "--limit", "1")
    assert mailer.run_json("ledger", "backup", "copy.db").exit_code == 0
    mailer.run_json("mail", "mail.yaml")
    write_job(mailer.folder, {"campaign": "begun after the backup"})
    mailer.run_json("mail", "mail.yaml")
    assert mailer.sandbox.stats()["emails"] == 6
    for path in (mailer.folder / "state").glob("ledger*"):
        path.unlink()
    result = mailer.run_json("ledger", "restore", "copy.db")
    assert (result.exit_code, result.report["emails"], "--reopen" in result.stderr) == (0, 1, True)
    for campaign in ("begun after the backup", "welcome"):
        write_job(mailer.folder, {"campaign": campaign})
        for arguments in (("mail", "mail.yaml"), ("mail", "mail.yaml", "--preview", "1")):
            refused_result = mailer.run_json(*arguments)
            assert (refused_result.exit_code, "--reopen" in refused_result.stderr) == (2, True)
    assert mailer.sandbox.stats()["emails"] == 6
    mailer.write_people("email,first,order", "ann@example.net,Ann,17", "new@example.net,New,20")
    mailer.run_json("mail", "mail.yaml", "--reopen").expect(0, read=2, sent=1, already_sent=1)
    assert mailer.run_json("mail", "mail.yaml").rows == {"read": 2, "already_sent": 2}


def test_each_recipient_gets_only_one_email_if_runs_are_killed(mailer: Connector) -> None:
    """The sandbox sends each email, and loses the answer to 2 % of the requests."""
    recipient_count = 5000 if KILL_COUNT >= 50 else 1000
    addresses = write_many_people(mailer, recipient_count)
    write_job(mailer.folder, {"html": None, "text": {"content": "Hello {{ first }}"}})
    mailer.sandbox.switch(drop_after=0.02)
    for index in range(KILL_COUNT):
        with mailer.start("mail", "mail.yaml", "--output", "json") as process:
            target_count = mailer.sandbox.stats()["emails"] + 7 * index
            wait_for(lambda: mailer.sandbox.stats()["emails"] > target_count or process.poll() is not None)  # noqa: B023
            time.sleep(0.003 * index)
            process.kill()  # has no effect if the process has just ended
            process.communicate()
    result = mailer.run_json("mail", "mail.yaml")
    counts_by_recipient = Counter(list_recipients(mailer.sandbox))
    assert set(counts_by_recipient.values()) == {1}
    assert result.exit_code == 1
    rows = result.report["rows"]  # includes counts that are 0
    assert rows["read"] == recipient_count == rows["sent"] + rows["already_sent"] + rows["unknown"]
    unknown_recipients = {reject["email"] for reject in read_rejects(result)}
    assert len(unknown_recipients) == rows["unknown"] > recipient_count // 200
    sent_events = [event for event in mailer.sandbox.truth()["events"] if event["kind"] == "sent"]
    recipients_without_answer = {event["email"]["to"][0] for event in sent_events if event["answered"] != "answered"}
    assert recipients_without_answer | (set(addresses) - set(counts_by_recipient)) <= unknown_recipients
    assert len(unknown_recipients) <= len(recipients_without_answer) + KILL_COUNT * 2 * MAX_EMAILS_PER_COMMIT


def test_sent_emails_are_not_reported_as_unsent_after_a_second_signal(mailer: Connector) -> None:
    write_many_people(mailer, 20)
    write_job(mailer.folder, load={"max_rate": 10})
    with mailer.start("mail", "mail.yaml", "--output", "json") as process:
        wait_for(lambda: mailer.sandbox.stats()["emails"] >= 5)
        mailer.sandbox.switch(hang_after=1)
        wait_for(lambda: mailer.sandbox.stats()["emails"] == 20)
        time.sleep(0.3)
        result = interrupt_twice(process)
    rows = result.report["rows"]
    assert result.exit_code == 130
    assert (rows["unsent"], rows["sent"] + rows["unknown"]) == (0, 20)
    assert rows["unknown"] > 5


def test_a_campaign_is_refused_while_an_older_copy_of_the_ledger_is_in_use(mailer: Connector) -> None:
    mailer.run_json("mail", "mail.yaml", "--limit", "1")
    shutil.copytree(mailer.folder / "state", mailer.folder / "copy", ignore=shutil.ignore_patterns("runs", "rejects"))
    assert mailer.run_json("mail", "mail.yaml").rows["sent"] == 2
    for path in (mailer.folder / "state").glob("ledger*"):
        path.unlink()
    shutil.copytree(mailer.folder / "copy", mailer.folder / "state", dirs_exist_ok=True)
    for options in ((), ("--preview", "1", "--preview-dir", "out")):
        refused_result = mailer.run_json("mail", "mail.yaml", *options)
        assert refused_result.is_refused
        assert "an older copy of the ledger is in use" in refused_result.stderr
    assert len(list_recipients(mailer.sandbox)) == 3
    assert mailer.run_json("mail", "mail.yaml", "--reopen", "--limit", "1").exit_code == 0
    assert mailer.run_json("mail", "mail.yaml").exit_code == 0  # later runs do not need --reopen


def test_a_preview_accepts_a_lost_ledger_only_with_reopen(mailer: Connector) -> None:
    mailer.run_json("mail", "mail.yaml")
    for path in (mailer.folder / "state").glob("ledger*"):
        path.unlink()
    preview_command = ("mail", "mail.yaml", "--preview", "1", "--preview-dir", "out")
    assert mailer.run_json(*preview_command).is_refused
    assert mailer.run_json(*preview_command, "--reopen").rows["sent"] == 3


@pytest.mark.parametrize(
    ("report", "history", "is_refused"),
    [
        ({"rows": {"sent": 2}}, CampaignHistory({}, "", ""), True),
        ({"rows": {"sent": 2}}, CampaignHistory({"r2": 1}, "2026-02", ""), True),
        ({"rows": {"sent": 2}}, CampaignHistory({"r2": 2}, "2026-02", ""), False),
        ({"rows": {"sent": 2}}, CampaignHistory({}, "", "2026-03"), False),
        ({"rows": {"sent": 0}}, CampaignHistory({}, "", ""), False),
        ({"requests": {"send": {"failed": 1}}}, CampaignHistory({}, "", ""), True),
        ({"requests": {"send": {"failed": 1}}}, CampaignHistory({"r2": 0}, "", ""), False),
        ({"status": "killed"}, CampaignHistory({"r1": 1}, "2026-01", ""), True),
        ({"status": "killed"}, CampaignHistory({"r1": 1}, "2026-02", ""), False),
        ({"rows": {"sent": 2}, "account": "other"}, CampaignHistory({}, "", ""), False),
        ({"rows": {"sent": 2}, "settings": {"campaign": "other"}}, CampaignHistory({}, "", ""), False),
    ],
)
def test_a_ledger_is_refused_if_it_lacks_emails_that_a_report_counts(
    report: dict[str, Any], history: CampaignHistory, is_refused: bool
) -> None:
    run = {"run_id": "r2", "started_at": "2026-02", "command": "mail", "status": "ok", "account": "a"}
    run |= {"settings": {"campaign": "may"}} | report
    with pytest.raises(ConfigurationError, match="older copy") if is_refused else nullcontext():
        refuse_older_ledger("ledger", "a", "may", [run], history)


def test_send_creates_no_ledger(mailer: Connector) -> None:
    write_job(mailer.folder, ledger="must_exist")
    assert mailer.run_json("mail", "mail.yaml").exit_code == 2
    send_options = ("--from", "a@example.com", "--to", "b@example.net", "--subject", "S", "--html", "welcome.html")
    assert mailer.run("send", *send_options).exit_code == 0
    result = mailer.run_json("mail", "mail.yaml")
    assert (result.exit_code, "there is no ledger at" in result.stderr) == (2, True)
    assert list_recipients(mailer.sandbox) == ["b@example.net"]
