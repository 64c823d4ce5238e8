"""The next steps that a run and `status` show. The commands in the next steps work as printed."""

import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pipelines.report.advice import advise_on_run, advise_on_runs
from tests.pipelines.conftest import Connector
from tests.pipelines.terminal import run_on_terminal

FIELDS = "email: email, first_name: first, is_active: {value: true}"


def test_the_last_line_of_an_import_has_the_options_of_the_import(connector: Connector) -> None:
    lines = ("Who;Nom: 1;Opt in", "ann@example.com;Ann;yes", "nobody;Bob;yes")
    connector.write_people(*lines)
    options = ["--base-name", "News: A & B", "--map", "email=Who", "--map", "first_name=Nom: 1", "--map", "tags="]
    options += ["--ignore", "Opt in", "--inactive", "--zip", "reject", "--quiet-period", "300ms", "--max-rate", "90.5"]
    options += ["--max-concurrency", "7", "--on-unknown", "hold", "--receipts", "out.csv", "--delimiter", ";"]
    result = connector.run("import", "people.csv", *options)
    assert result.exit_code == 1, result.stderr
    advice, command_line = result.stdout.splitlines()[-2:]
    assert advice == "Next: Correct the rows in the rejects file, then import this file:"
    assert connector.run("status").stdout.splitlines()[-2:] == [advice, command_line]
    run_id = connector.run_json("status").report["runs"][0]["run_id"]
    lines_of_run = connector.run("status", run_id).stdout.splitlines()
    assert [line for line in lines_of_run if line.startswith("Next: ")] == [advice]
    arguments = shlex.split(command_line)[1:]
    assert connector.run(*arguments).exit_code == 1
    rejects_path = Path(arguments[1])
    rejects_path.write_text(rejects_path.read_text("utf-8-sig").replace("nobody", "bob@example.com"), "utf-8")
    corrected_result = connector.run_json(*arguments).expect(0, read=1, created=1)
    assert corrected_result.report["receipts"] == {"to": f"{connector.folder}/out.csv", "rows": 1}
    assert shlex.split(corrected_result.report["settings"]["options"]) == arguments[2:]
    for name, value in {"quiet_period": "300ms", "max_rate": "90.5", "on_unknown": "hold"}.items():
        assert value in corrected_result.report["settings"][name]
    assert "Next:" not in connector.run("status").stdout
    subscriber = connector.list_created_subscribers()["bob@example.com"]
    assert subscriber["FirstName"] == "Bob"
    assert not subscriber["IsActive"]
    assert subscriber["Base"]["Name"] == "News: A & B"


def test_held_creates_have_a_next_step_for_each_decision(connector: Connector) -> None:
    connector.sandbox.switch(drop_before=1.0)
    connector.write_job(fields=FIELDS, load="quiet_period: 100ms, on_unknown: hold")
    connector.write_people("email,first", "ann@example.com,Ann")
    connector.run("sync", "job.yaml")  # the run ends early, because the service does not answer
    held_lines, status_lines = (
        connector.run(*command.split()).stdout.splitlines() for command in ("sync job.yaml", "status")
    )
    steps = list_steps(status_lines)
    assert steps == list_steps(held_lines)
    assert steps[0][0].startswith("Next: 1 create is held for your decision. To send the creates again if")
    shortened_commands = [command.removesuffix(f" --job {connector.folder}/job.yaml") for _, command in steps]
    assert shortened_commands == [f"  connector retry --held {name}" for name in ("resend", "accept", "drop")]
    for _, command in steps:
        result = connector.run(*shlex.split(command)[1:])
        assert result.exit_code in (0, 1)
        has_next_step = "drop" not in command
        assert ("Next: 1 create is held" in result.stdout, "--job" in result.stdout) == (has_next_step, has_next_step)
    assert "Next:" not in connector.run("status").stdout
    assert "Nothing to do" in connector.run("explain", "ann@example.com").stdout


def list_steps(lines: list[str]) -> list[tuple[str, str]]:
    """Return the sentence and the command of each next step."""
    return [(sentence, command) for sentence, command in pairwise(lines) if sentence.startswith("Next: ")]


def test_no_word_is_split_on_a_terminal_of_80_columns(connector: Connector) -> None:
    connector.sandbox.switch(required="FirstName", error_status=422)
    connector.write_job(fields=FIELDS)
    connector.write_job("receipts: {to: out.txt}", file_name="wrong.yaml", fields=FIELDS)
    connector.write_people("email,first,notes", "ann@example.com,,x", "nobody,Bob,", "bob@example.com,Bob,")
    run_id = connector.sync().report["run_id"]
    commands = [
        "sync job.yaml", "status", f"status {run_id}", "explain ann@example.com", "reconcile job.yaml",
        "retry --rejected --job job.yaml", "sync wrong.yaml", "check job.yaml",
    ]  # fmt: skip
    for command_line in commands:
        _, output = run_on_terminal(connector, *command_line.split())
        wide_lines = [line for line in output.splitlines() if len(line) > 80 and not is_unbreakable(line)]
        assert (command_line, wide_lines) == (command_line, [])


def is_unbreakable(line: str) -> bool:
    """Return whether a line cannot be broken: it is a command to copy, or a single word such as a path."""
    return line.lstrip().startswith(("connector ", "less ")) or " " not in line.strip()


EXISTING_FILE = __file__
"""The path of any existing file. It stands for a job file or a rejects file."""

RUN = {"run_id": "R", "job": "crm", "command": "sync", "status": "partial", "started_at": "2026-11-23T08:00:00+00:00"}
RUN_OF_JOB = RUN | {"settings": {"job_file": EXISTING_FILE}}
REPORT_PART_OF_PLAN = {"command": "plan", "status": "ok", "planned": True, "rows": {"created": 1}}
REPORT_PART_WITH_DIFFERENCE = {"command": "reconcile", "differences": {"missing": 1}}
REPORT_PART_WITH_INVALID_ROW = {"rows": {"invalid": 1}, "rejects_file": EXISTING_FILE}
INVALID_ROW_STEP = (
    "Correct the rows in the rejects file, then import this file: "
    f"connector import {EXISTING_FILE} --job {EXISTING_FILE}"
)
REJECTED_ROW_STEP = (
    "The service rejected 1 row. Correct the row in the rejects file, and import this file. "
    f"Or, to send the row unchanged, run: connector retry --rejected --job {EXISTING_FILE}"
)
READ_MESSAGES_STEP = "Read the messages of the run: connector status R"


@pytest.mark.parametrize(
    ("run", "expected_steps"),
    [
        (RUN | REPORT_PART_OF_PLAN, ["To carry out the plan, run the same command with `import` instead of `plan`."]),
        (RUN_OF_JOB | REPORT_PART_OF_PLAN, [f"To carry out the plan, run: connector sync {EXISTING_FILE}"]),
        (RUN_OF_JOB | REPORT_PART_OF_PLAN | {"rows": {"exists": 1}}, []),
        (
            RUN_OF_JOB | REPORT_PART_WITH_DIFFERENCE,
            [f"To list each difference, run: connector reconcile {EXISTING_FILE} --to differences.csv"],
        ),
        (RUN_OF_JOB | REPORT_PART_WITH_DIFFERENCE | {"differences_file": "d.csv"}, [READ_MESSAGES_STEP]),
        (RUN_OF_JOB | REPORT_PART_WITH_INVALID_ROW, [INVALID_ROW_STEP]),
        (RUN_OF_JOB | REPORT_PART_WITH_INVALID_ROW | {"rows": {"rejected": 1}}, [INVALID_ROW_STEP, REJECTED_ROW_STEP]),
        (RUN_OF_JOB | {"command": "validate", "rows": {"invalid": 1}}, []),
        (RUN | {"status": "ok", "rows": {"created": 1}}, []),
        (RUN | {"rows": {"created": 1}}, [READ_MESSAGES_STEP]),  # a partial run that has no rows to correct
    ],
)
def test_the_next_steps_after_a_run_follow_from_its_report(run: dict[str, Any], expected_steps: list[str]) -> None:
    assert advise_on_run(run) == expected_steps


IMPORT_RUN = RUN | {"command": "import", "job": "people"}
IMPORT_RUN_WITH_REJECTS = RUN_OF_JOB | IMPORT_RUN | REPORT_PART_WITH_INVALID_ROW
RETRY_STEP = "1 create is unresolved. To look up and finish the create, run: connector retry"
REPEAT_TEXT = "No finished create or email is repeated. Run the same command again."
ACTIVE_RUN_STEP = "1 create is unresolved. Wait until run R ends. The run may resolve the create."
LATER_REFUSED_RUN, LATER_LOCKED_RUN = (
    IMPORT_RUN | {"run_id": run_id, "status": status} for run_id, status in (("U", "usage"), ("L", "locked"))
)
REFUSED_RUN_STEP = (
    "Run U (import people) was refused. Correct the fault that the message names. To find other faults, run: "
    "connector check"
)
LOCKED_RUN_STEP = f"Run L (import people) found the ledger locked. {REPEAT_TEXT}"
ABORTED_EXPORT_STEP = "Run R (export) was aborted. Follow the message of the run, and run the command again."
ABORTED_SYNC_STEP = (
    "Run R (sync crm) was aborted. Follow the message of the run, and run the command again: "
    f"connector sync {EXISTING_FILE}"
)
REFUSED_SYNC_STEP = f"{REFUSED_RUN_STEP.replace('U (import people)', 'R (sync crm)')} {EXISTING_FILE}"
ABORTED_MAIL_STEP = ABORTED_EXPORT_STEP.replace("export", "mail")
KILLED_SEND = RUN | {"command": "send", "job": "", "status": "killed"}


@pytest.mark.parametrize(
    ("shown_run_count", "runs", "unresolved_count", "expected_steps"),
    [
        (1, [RUN | {"command": "export", "job": "", "status": "aborted"}], 0, [ABORTED_EXPORT_STEP]),
        (1, [RUN | {"command": "mail", "job": "", "status": "aborted"}], 0, [ABORTED_MAIL_STEP]),
        (1, [IMPORT_RUN | {"status": "aborted"}], 0, [ABORTED_EXPORT_STEP.replace("export", "import people")]),
        (1, [RUN_OF_JOB | {"status": "aborted"}], 0, [ABORTED_SYNC_STEP]),
        (1, [RUN_OF_JOB | {"status": "usage"}], 0, [REFUSED_SYNC_STEP]),
        (1, [IMPORT_RUN | {"status": "running"}], 1, [ACTIVE_RUN_STEP]),
        (1, [LATER_LOCKED_RUN, IMPORT_RUN | {"status": "running"}], 1, [ACTIVE_RUN_STEP, LOCKED_RUN_STEP]),
        (1, [IMPORT_RUN | {"status": "killed"}], 1, [RETRY_STEP, f"Run R (import people) was killed. {REPEAT_TEXT}"]),
        (
            1,
            [KILLED_SEND],
            0,
            ["Run R (send) was killed. Before you send the email again, check whether the email arrived."],
        ),
        (
            3,
            [LATER_LOCKED_RUN, LATER_LOCKED_RUN | {"run_id": "L1"}, IMPORT_RUN | {"status": "ok"}],
            0,
            [LOCKED_RUN_STEP],
        ),
        (3, [LATER_LOCKED_RUN, LATER_LOCKED_RUN, IMPORT_RUN_WITH_REJECTS], 0, [LOCKED_RUN_STEP, INVALID_ROW_STEP]),
        (3, [LATER_REFUSED_RUN, LATER_REFUSED_RUN, IMPORT_RUN_WITH_REJECTS], 0, [REFUSED_RUN_STEP, INVALID_ROW_STEP]),
    ],
)
def test_the_next_steps_of_status_follow_from_its_runs_and_open_entries(
    shown_run_count: int, runs: list[dict[str, Any]], unresolved_count: int, expected_steps: list[str]
) -> None:
    entries = (
        [{"account": "", "run_id": "R", "state": "unknown", "entries": unresolved_count}] if unresolved_count else []
    )
    assert list(advise_on_runs(runs[:shown_run_count], entries, runs)) == expected_steps
