"""A run with a fault of the program does not end as partial, and its messages have no personal data."""

import os
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from connector.ledger.entries import UnfinishedEntry
from connector.load.candidates import read_body
from connector.mail.campaign import CampaignEmail, CampaignSender, SendResult
from connector.outcomes import MailOutcome
from pipelines.cli import CommandGroup
from tests.pipelines.conftest import ROOT, Connector, run_process
from tests.pipelines.leftovers import produce_three_unknown_creates, read_states


def test_an_unexpected_error_ends_with_one_line_and_exit_code_3(
    connector: Connector, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> NoReturn:
        raise KeyError("ann@example.com")

    monkeypatch.setattr(CommandGroup, "get_command", fail)
    result = connector.run("sync", "job.yaml")
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (3, "", 1)
    assert "KeyError" in result.stderr
    assert "ann@example.com" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "stdout"),
    [
        (["--help"], "/dev/full"),
        (["import", "--help"], "a closed pipe"),
        (["export", "-"], "closed"),
        (["export", "out.csv", "--output", "json"], "/dev/full"),
    ],
)
def test_output_that_cannot_be_written_ends_with_exit_code_3_and_a_message(
    connector: Connector, arguments: list[str], stdout: str
) -> None:
    connector.sandbox.seed(20, base_name="News")
    read_end, write_end = os.pipe()
    os.close(read_end)
    close_stdout = ["sh", "-c", '"$@" >&-', "sh"] if stdout == "closed" else []
    with Path(stdout).open("w") if stdout == "/dev/full" else os.fdopen(write_end, "w") as stream:
        command = [*close_stdout, sys.executable, "-m", "pipelines", *arguments]
        result = run_process(command, cwd=connector.folder, env=connector.build_environ(), stdout=stream)
    assert result.returncode == 3, result.stderr
    assert not any(text in result.stderr for text in ("Traceback", "fault of the program"))
    assert len(result.stderr.splitlines()) == 1 or "--help" not in arguments
    assert "No space left on device" in result.stderr or "tandard output" in result.stderr


def test_a_start_on_windows_is_refused_in_one_line() -> None:
    program = "import os, runpy; os.name = 'nt'; runpy.run_module('pipelines', run_name='__main__')"
    result = run_process([sys.executable, "-c", program], cwd=ROOT)
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "Windows" in result.stderr


def test_a_fault_of_the_program_ends_the_run_with_a_report(
    connector: Connector, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce_three_unknown_creates(connector, connector.write_addresses(3), drop_after=1)
    identities_of_read_entries: set[bytes] = set()

    def read_body_of_first_entry(entry: UnfinishedEntry) -> dict[str, object]:
        identities_of_read_entries.add(entry.identity)
        if len(identities_of_read_entries) > 1:
            raise KeyError("person1@example.com")
        return read_body(entry)

    monkeypatch.setattr("connector.load.retry.read_body", read_body_of_first_entry)
    result = connector.run_json("retry")
    report = result.report
    assert (result.exit_code, report["status"], report["rows"]["read"]) == (3, "aborted", 3)
    assert "a fault of the program: KeyError" in result.stderr
    assert "rows read: 3, rows with an outcome: 2. The counts of this report are wrong" in result.stderr
    assert (report["rows"]["unknown"], report["rows"]["unsent"]) == (2, 1)  # the run did not reach the third entry
    assert "person1@" not in result.stdout + result.stderr
    assert len(read_states(connector)) == 3  # a later retry finds all three unknown entries


def test_an_email_without_an_outcome_counts_as_unknown(connector: Connector, monkeypatch: pytest.MonkeyPatch) -> None:
    connector.write_people("email", "ann@x.org", "eve@x.org")
    (connector.folder / "welcome.html").write_text("<p>Hello</p>")
    (connector.folder / "job.yaml").write_text(
        "job: mails\nsource: {file: {path: people.csv}}\nmail: {campaign: may, from: news@unverified.org, "
        "to: {email: email}, subject: Hello, html: welcome.html}\n"
    )
    original_report_email = CampaignSender._report_email

    def report_unless_refused(sender: CampaignSender, email: CampaignEmail, result: SendResult) -> None:
        if result.outcome is not MailOutcome.REJECTED:
            original_report_email(sender, email, result)

    monkeypatch.setattr(CampaignSender, "_report_email", report_unless_refused)
    result = connector.run_json("mail", "job.yaml")
    assert "the service refused the first email" in result.stderr
    assert "The counts of this report are wrong. Rows without an outcome, which count as unknown: 1" in result.stderr
    assert result.rows == {"read": 2, "unknown": 1, "unsent": 1}
