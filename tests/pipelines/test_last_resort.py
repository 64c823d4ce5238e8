"""Faults of the program: no fault ends as a partial run, and no message holds personal data."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipelines.conftest import ROOT, Connector, write_addresses, write_csv
from tests.pipelines.leftovers import leave_three_unknown_creates, read_states

FAILING_COMMAND_PROGRAM = """
import sys
import pipelines.cli
sys.argv = ["connector", "sync", "job.yaml"]
class Broken(pipelines.cli.Commands):
    def get_command(self, ctx, name):
        raise KeyError("ann@example.com")
pipelines.cli.cli.__class__ = Broken
pipelines.cli.main()
"""


def test_an_unexpected_error_is_one_line_and_exit_code_3() -> None:
    result = subprocess.run(
        [sys.executable, "-c", FAILING_COMMAND_PROGRAM], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout) == (3, "")
    assert "KeyError" in result.stderr
    assert "ann@example.com" not in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(("arguments", "stdout"), [(["--help"], "/dev/full"), (["import", "--help"], "a closed pipe")])
def test_help_that_cannot_be_written_ends_with_exit_code_3_and_a_message(arguments: list[str], stdout: str) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with Path(stdout).open("w") if stdout == "/dev/full" else os.fdopen(write_end, "w") as stream:
        result = subprocess.run(
            [sys.executable, "-m", "pipelines", *arguments], cwd=ROOT, stdout=stream, stderr=-1, text=True, check=False
        )
    assert result.returncode == 3
    assert len(result.stderr.splitlines()) == 1
    assert "No space left on device" in result.stderr or "standard output is closed" in result.stderr


def test_a_start_on_windows_is_refused_in_one_line() -> None:
    program = "import os, runpy; os.name = 'nt'; runpy.run_module('pipelines', run_name='__main__')"
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "Windows" in result.stderr


FAILING_RETRY_PROGRAM = """
import sys
import pipelines.cli
import connector.load.retry as retrying
sys.argv = ["connector", "retry", "--output", "json"]
read_body, read = retrying.read_body, []
def read_only_the_first(entry):
    read.append(entry)
    if len({each.identity for each in read}) > 1:
        raise KeyError("person1@example.com")
    return read_body(entry)
retrying.read_body = read_only_the_first
pipelines.cli.main()
"""


def test_a_fault_during_a_run_ends_in_a_report(connector: Connector, tmp_path: Path) -> None:
    leave_three_unknown_creates(connector, write_addresses(tmp_path / "people.csv", 3), drop_after=1)
    command = [sys.executable, "-c", FAILING_RETRY_PROGRAM]
    result = subprocess.run(
        command, cwd=ROOT, env=os.environ | connector.environ, capture_output=True, text=True, check=False, timeout=60
    )
    report = json.loads(result.stdout)
    assert (result.returncode, report["status"], report["rows"]["read"]) == (3, "aborted", 3)
    assert "a fault of the program: KeyError" in result.stderr
    assert "rows read: 3, rows with an outcome: 2. The counts of this report are wrong" in result.stderr
    assert (report["rows"]["unknown"], report["rows"]["unsent"]) == (2, 1)  # the run did not reach the third entry
    assert "person1@" not in result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    assert len(read_states(connector)) == 3  # a later retry finds all three unknown entries


FAILING_MAIL_PROGRAM = """
import sys
import pipelines.cli
from connector.mail.campaign import CampaignSender
from connector.outcomes import MailOutcome
report_email = CampaignSender._report_email
def report_all_but_refused(self, email, result):
    if result.outcome is not MailOutcome.REJECTED:
        report_email(self, email, result)
sys.argv = ["connector", "mail", "job.yaml", "--output", "json"]
CampaignSender._report_email = report_all_but_refused
pipelines.cli.main()
"""


def test_a_lost_outcome_of_an_email_counts_as_unknown_and_is_reported(connector: Connector, tmp_path: Path) -> None:
    write_csv(tmp_path / "people.csv", "email", "ann@x.org", "eve@x.org")
    (tmp_path / "welcome.html").write_text("<p>Hello</p>")
    (tmp_path / "job.yaml").write_text(
        "job: mails\nsource: {file: {path: people.csv}}\nmail: {campaign: may, from: news@unverified.org, "
        "to: {email: email}, subject: Hello, html: welcome.html}\n"
    )
    command, environ = (
        [sys.executable, "-c", FAILING_MAIL_PROGRAM],
        os.environ | connector.environ | {"PYTHONPATH": str(ROOT)},
    )
    result = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=60)
    rows = json.loads(result.stdout)["rows"]
    assert "the service refused the first email" in result.stderr
    assert "The counts of this report are wrong. Rows without an outcome, which count as unknown: 1" in result.stderr
    assert (rows["read"], rows["unknown"], rows["unsent"]) == (2, 1, 1)
