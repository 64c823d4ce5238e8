"""The report on a terminal ends with the next command, which works when it is copied."""

import shlex
from itertools import pairwise
from pathlib import Path

from tests.pipelines.conftest import Connector, count_stored_emails, list_stored_subscribers, write_csv
from tests.pipelines.terminal import run_on_terminal

JOB = """\
job: crm
source: {file: {path: people.csv}}
subscriber:
  base: {name: News}
  fields: {email: email, first_name: first, is_active: {value: true}}
load: {quiet_period: 100ms}
"""


def test_the_last_line_of_a_sync_is_the_command_that_imports_the_corrected_rejects(
    connector: Connector, tmp_path: Path
) -> None:
    (tmp_path / "crm.yaml").write_text(JOB)
    write_csv(tmp_path / "people.csv", "email,first", "ann@example.com,Ann", "nobody,Bob")
    result = connector.run("sync", "crm.yaml")
    assert result.exit_code == 1
    advice, command_line = result.stdout.splitlines()[-2:]
    assert advice == "Next: Correct the rows in the rejects file, then import it:"
    program, *arguments = shlex.split(command_line)
    assert program == "connector"
    rejects_path = Path(arguments[1])
    second_lines = connector.run(*arguments).stdout.splitlines()
    assert second_lines[-1].startswith(f"  connector import {tmp_path}/state/rejects/")
    assert second_lines[-1].endswith(f" --job {tmp_path}/crm.yaml")
    rejects_path.write_text(rejects_path.read_text("utf-8-sig").replace("nobody", "bob@example.com"), "utf-8")
    assert connector.run(*arguments).exit_code == 0
    assert count_stored_emails(connector.sandbox).total() == 2


def test_the_last_line_of_the_plan_of_a_file_shows_how_to_carry_out_the_plan(
    connector: Connector, tmp_path: Path
) -> None:
    write_csv(tmp_path / "people.csv", "Who;Opt in", "ann@example.com;yes")
    options = ["--base-name", "News", "--map", "email=Who", "--map", "is_active=Opt in", "--delimiter", ";"]
    last_line = "Next: To carry out the plan, run the same command with import instead of plan."
    plan_result = connector.run("plan", "people.csv", *options)
    assert (
        plan_result.exit_code,
        " ".join(" ".join(plan_result.stdout.splitlines()[-2:]).split())[-len(last_line) :],
    ) == (0, last_line)
    assert connector.run("import", "people.csv", *options).exit_code == 0
    assert count_stored_emails(connector.sandbox) == {"ann@example.com": 1}


def test_the_last_line_of_an_import_has_the_options_of_the_import(connector: Connector, tmp_path: Path) -> None:
    lines = ("Who;Nom: 1;Opt in", "ann@example.com;Ann;yes", "nobody;Bob;yes")
    write_csv(tmp_path / "people.csv", *lines)
    options = ["--base-name", "News: A & B", "--map", "email=Who", "--map", "first_name=Nom: 1", "--map", "tags="]
    options += ["--ignore", "Opt in", "--inactive", "--zip", "reject", "--quiet-period", "300ms", "--max-rate", "90.5"]
    options += ["--max-concurrency", "7", "--on-unknown", "hold", "--receipts", "out.csv", "--delimiter", ";"]
    result = connector.run("import", "people.csv", *options)
    assert result.exit_code == 1, result.stderr
    advice, command_line = result.stdout.splitlines()[-2:]
    assert advice == "Next: Correct the rows in the rejects file, then import it:"
    assert connector.run("status").stdout.splitlines()[-2:] == [advice, command_line]
    arguments = shlex.split(command_line)[1:]
    assert connector.run(*arguments).exit_code == 1
    rejects_path = Path(arguments[1])
    rejects_path.write_text(rejects_path.read_text("utf-8-sig").replace("nobody", "bob@example.com"), "utf-8")
    corrected_result = connector.run_json(*arguments)
    assert (corrected_result.exit_code, corrected_result.rows) == (0, {"read": 1, "created": 1}), (
        corrected_result.stderr
    )
    assert corrected_result.report["receipts"] == {"to": f"{tmp_path}/out.csv", "rows": 1}
    assert shlex.split(corrected_result.report["settings"]["options"]) == arguments[2:]
    for name, value in {"quiet_period": "300ms", "max_rate": "90.5", "on_unknown": "hold"}.items():
        assert value in corrected_result.report["settings"][name]
    assert "Next:" not in connector.run("status").stdout
    subscriber = list_stored_subscribers(connector.sandbox)["bob@example.com"]
    assert (subscriber["FirstName"], subscriber["IsActive"], subscriber["Base"]["Name"]) == (
        "Bob",
        False,
        "News: A & B",
    )


def test_a_plan_of_a_job_ends_with_the_sync_that_carries_it_out(connector: Connector, tmp_path: Path) -> None:
    (tmp_path / "crm.yaml").write_text(JOB)
    write_csv(tmp_path / "people.csv", "email,first", "ann@example.com,Ann")
    command_line = connector.run("plan", "crm.yaml").stdout.splitlines()[-1]
    assert command_line == f"  connector sync {tmp_path}/crm.yaml"
    assert connector.run(*shlex.split(command_line)[1:]).exit_code == 0
    assert "Next:" not in connector.run("plan", "crm.yaml").stdout


def test_a_reconciliation_with_differences_ends_with_the_command_that_lists_them(
    connector: Connector, tmp_path: Path
) -> None:
    (tmp_path / "crm.yaml").write_text(JOB)
    write_csv(tmp_path / "people.csv", "email,first", "ann@example.com,Ann")
    command_line = connector.run("reconcile", "crm.yaml").stdout.splitlines()[-1]
    assert command_line == f"  connector reconcile {tmp_path}/crm.yaml --to differences.csv"
    second_result = connector.run(*shlex.split(command_line)[1:])
    assert (second_result.exit_code, len((tmp_path / "differences.csv").read_text().splitlines())) == (1, 2)
    assert "differences.csv" not in second_result.stdout.partition("Next: ")[2]


def test_the_report_of_a_sync_advises_a_retry_with_its_job(connector: Connector, tmp_path: Path) -> None:
    (tmp_path / "crm.yaml").write_text(JOB)
    write_csv(tmp_path / "people.csv", "email,first", "ann@example.com,Ann")
    connector.sandbox.switch(required="Phone", error_status=422)
    report_text = connector.run("sync", "crm.yaml").stdout
    assert f"connector retry --rejected --job {tmp_path}/crm.yaml" in report_text.splitlines()[-1]


def test_held_creates_have_a_next_step_for_each_decision(connector: Connector, tmp_path: Path) -> None:
    connector.sandbox.switch(drop_before=1.0)
    (tmp_path / "crm.yaml").write_text(JOB.replace("100ms", "100ms, on_unknown: hold"))
    write_csv(tmp_path / "people.csv", "email,first", "ann@example.com,Ann")
    connector.run("sync", "crm.yaml")  # the run ends early, because the service does not answer
    held_lines, status_lines = (
        connector.run(*command.split()).stdout.splitlines() for command in ("sync crm.yaml", "status")
    )
    steps = list_steps(status_lines)
    assert steps == list_steps(held_lines)
    assert steps[0][0].startswith("Next: 1 create is held for your decision. To send the creates again if")
    expected_commands = [
        f"  connector retry --held {name} --job {tmp_path}/crm.yaml" for name in ("resend", "accept", "drop")
    ]
    assert [command for _, command in steps] == expected_commands
    for _, command in steps:
        result = connector.run(*shlex.split(command)[1:])
        assert result.exit_code in (0, 1)
        has_held_create = "drop" not in command
        assert ("Next: 1 create is held" in result.stdout, "--job" in result.stdout) == (
            has_held_create,
            has_held_create,
        )
    assert "Next:" not in connector.run("status").stdout
    assert "Nothing to do" in connector.run("explain", "ann@example.com").stdout


def list_steps(lines: list[str]) -> list[tuple[str, str]]:
    """Return the sentence and the command of each next step."""
    return [(sentence, command) for sentence, command in pairwise(lines) if sentence.startswith("Next: ")]


def test_status_of_one_run_ends_with_each_next_command_once(connector: Connector, tmp_path: Path) -> None:
    (tmp_path / "crm.yaml").write_text(JOB)
    write_csv(tmp_path / "people.csv", "email,first", "ann@example.com,Ann", "nobody,Bob")
    report = connector.run_json("sync", "crm.yaml").report
    lines = connector.run("status", report["run_id"]).stdout.splitlines()
    assert lines[-1] == f"  connector import {report['rejects_file']} --job {tmp_path}/crm.yaml"
    assert [line for line in lines if line.startswith("Next: ")] == [lines[-2]]


def test_a_validation_does_not_advise_connector_status(connector: Connector, tmp_path: Path) -> None:
    (tmp_path / "crm.yaml").write_text(JOB)
    write_csv(tmp_path / "people.csv", "email,first", "nobody,Bob")
    result = connector.run("validate", "crm.yaml")
    assert (result.exit_code, "connector status" in result.stdout) == (1, False), result.stdout


def test_a_run_that_is_ok_names_no_next_step(connector: Connector, tmp_path: Path) -> None:
    write_csv(tmp_path / "people.csv", "email,first", "ann@example.com,Ann")
    result = connector.run("import", "people.csv", "--base-name", "News", "--active")
    assert result.exit_code == 0
    assert "Next:" not in result.stdout


def test_a_terminal_of_80_columns_breaks_no_word(connector: Connector, tmp_path: Path) -> None:
    connector.sandbox.switch(required="FirstName", error_status=422)
    (tmp_path / "crm.yaml").write_text(JOB)
    (tmp_path / "wrong.yaml").write_text(JOB + "receipts: {to: out.txt}\n")
    write_csv(tmp_path / "people.csv", "email,first,notes", "ann@example.com,,x", "nobody,Bob,", "bob@example.com,Bob,")
    run_id = connector.run_json("sync", "crm.yaml").report["run_id"]
    commands = [
        "sync crm.yaml", "status", f"status {run_id}", "explain ann@example.com", "reconcile crm.yaml",
        "retry --rejected --job crm.yaml", "sync wrong.yaml", "check crm.yaml",
    ]  # fmt: skip
    for command_line in commands:
        _, output = run_on_terminal(connector, *command_line.split())
        wide_lines = [line for line in output.splitlines() if len(line) > 80 and not is_unbreakable(line)]
        assert (command_line, wide_lines) == (command_line, [])


def is_unbreakable(line: str) -> bool:
    """Return whether a line cannot be broken: it is a command to copy, or a single word such as a path."""
    return line.lstrip().startswith(("connector ", "less ")) or " " not in line.strip()
