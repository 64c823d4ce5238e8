"""Fixtures and helpers that run the commands against the sandbox."""

import csv
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest

from connector.clock import Clock
from connector.fields import normalise_email
from connector.sandbox import SandboxProcess
from tests.databases import Database, open_postgres
from tests.pipelines.forked import ForkedProcess
from tests.pipelines.hooks import WebhookReceiver, serve_webhook
from tests.pipelines.in_process import run_in_process

ROOT = Path(__file__).parents[2]
NEWS_IMPORT_OPTIONS = ("--base-name", "News", "--active", "--quiet-period", "200ms")
"""The options that most imports of the tests have."""


@dataclass(frozen=True)
class CommandResult:
    """The exit code and the output of a command that has ended."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def report(self) -> dict[str, Any]:
        report: dict[str, Any] = json.loads(self.stdout)
        return report

    @property
    def is_refused(self) -> bool:
        """Whether the command ended with a usage error. Output on stdout must be JSON with the message of stderr."""
        if self.exit_code != 2 or not self.stdout:
            return self.exit_code == 2
        report = self.report
        is_error_object = list(report) == ["status", "message"] and report["status"] == "usage"
        return is_error_object and report["message"] in self.stderr

    @property
    def rows(self) -> dict[str, int]:
        """The row counts of the report that are not 0."""
        return {name: row_count for name, row_count in self.report["rows"].items() if row_count}

    def find_messages(self, expected_text: str) -> list[str]:
        """Return the messages of the report that contain this text."""
        return [message for message in self.report["messages"] if expected_text in message]

    def expect(self, exit_code: int, **rows: int) -> Self:
        """Check the exit code and the row counts that are not 0. Return the result."""
        __tracebackhide__ = True
        assert (self.exit_code, self.rows) == (exit_code, rows), self.stderr
        return self

    def expect_rows(self, **rows: int) -> Self:
        """Check the row counts that are not 0. Return the result."""
        __tracebackhide__ = True
        assert self.rows == rows, self.stderr
        return self


@dataclass
class Connector:
    """Runs commands of `connector`. The settings are in the environment, and the state is in the folder of the test."""

    sandbox: SandboxProcess
    folder: Path
    environ: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.environ = {
            "CONNECTOR_BASE_URL": self.sandbox.base_url,
            "CONNECTOR_TOKEN": self.sandbox.token,
            "CONNECTOR_STATE_DIR": str(self.folder / "state"),
        }

    def start(
        self,
        *arguments: str | Path,
        environ: Mapping[str, str | None] | None = None,
        stdin: str | bytes = "",
        **fork_options: Any,
    ) -> ForkedProcess:
        """Start a command in a fork. A value None in `environ` removes the setting. `fork_options` are options of
        `ForkedProcess`."""
        return ForkedProcess(list(map(str, arguments)), self.build_environ(environ), self.folder, stdin, **fork_options)

    def start_new_interpreter(self, *arguments: str | Path) -> subprocess.Popen[str]:
        """Start a command in a new process, like a user does. Stdout and stderr are pipes."""
        return subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "pipelines", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            cwd=self.folder,
            env=self.build_environ(),
        )

    def run(
        self,
        *arguments: str | Path,
        environ: Mapping[str, str | None] | None = None,
        stdin: str | bytes = "",
        clock: Clock | None = None,
    ) -> CommandResult:
        """Run a command to its end: in this process, or in a fork if the command reads standard input."""
        if stdin:
            with self.start(*arguments, environ=environ, stdin=stdin) as process:
                return wait_for_result(process)
        exit_code, stdout, stderr = run_in_process(
            list(map(str, arguments)), self.build_environ(environ), self.folder, clock
        )
        assert "Traceback" not in stderr, stderr
        return CommandResult(exit_code, stdout, stderr)

    def run_json(self, *arguments: str | Path, **run_options: Any) -> CommandResult:
        """Run a command with `--output json` to its end, as `run` does."""
        return self.run(*arguments, "--output", "json", **run_options)

    def sync(self, job: str | Path = "job.yaml", *options: str | Path, **run_options: Any) -> CommandResult:
        """Run `connector sync` for the job, and return the result."""
        return self.run_json("sync", job, *options, **run_options)

    @property
    def crm(self) -> Database:
        """The SQLite file crm.db."""
        return Database("sqlite", f"sqlite:///{self.folder}/crm.db")

    @property
    def ledger(self) -> Database:
        """The SQLite file of the ledger."""
        return Database("sqlite", f"sqlite:///{self.folder}/state/ledger.db")

    def build_environ(self, environ: Mapping[str, str | None] | None = None) -> dict[str, str]:
        settings = os.environ | self.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "200"} | dict(environ or {})
        return {name: value for name, value in settings.items() if value is not None}

    def import_file(self, path: Path, *options: str | Path, **run_options: Any) -> CommandResult:
        """Import all rows into the base News as active, with a short quiet period unless the options give another."""
        return self.run_json("import", path, *NEWS_IMPORT_OPTIONS, *options, **run_options)

    def list_created_subscribers(self) -> dict[str, dict[str, Any]]:
        """Return the subscribers that creates have stored in the sandbox, by email."""
        events = self.sandbox.truth()["events"]
        subscribers = [event["subscriber"] for event in events if event["kind"] == "created"]
        return {subscriber["Email"]: subscriber for subscriber in subscribers}

    def read_is_active_by_email(self) -> dict[str, bool]:
        """Return whether each created subscriber is active, by email."""
        return {email: subscriber["IsActive"] for email, subscriber in self.list_created_subscribers().items()}

    def count_creates_by_email(self) -> Counter[str]:
        return count_creates_by_email(self.sandbox)

    def wait_for_subscribers(self, subscriber_count: int) -> None:
        """Wait until the sandbox has at least this many subscribers."""
        wait_for(lambda: self.sandbox.stats()["subscribers"] >= subscriber_count)

    def write_job(self, *job_lines: str, file_name: str = "job.yaml", **job_values: str) -> Path:
        """Write a job file with the text that `build_job` returns. Return the path of the file."""
        path = self.folder / file_name
        path.write_text(build_job(*job_lines, **job_values), encoding="utf-8")
        return path

    def write_csv(self, name: str | Path, *lines: str) -> Path:
        """Write a file with these lines into the folder of the test. Return the path of the file."""
        return write_csv(self.folder / name, *lines)

    def write_people(self, *lines: str) -> Path:
        """Write people.csv with these lines. Return the path of the file."""
        return self.write_csv("people.csv", *lines)

    def write_addresses(self, person_count: int, first_index: int = 0, name: str | Path = "people.csv") -> Path:
        """Write a CSV file with this many valid people. Return its path."""
        indexes = range(first_index, first_index + person_count)
        people = [f"person{index}@example.com,Ann {index},Lee,true" for index in indexes]
        return self.write_csv(name, "email,first_name,last_name,is_active", *people)


@pytest.fixture
def connector(sandbox: SandboxProcess, tmp_path: Path) -> Connector:
    return Connector(sandbox, tmp_path)


@pytest.fixture
def postgres_connector(connector: Connector) -> Iterator[Connector]:
    """A connector whose ledger is in PostgreSQL."""
    with open_postgres() as database:
        connector.environ["CONNECTOR_LEDGER"] = database.url
        yield connector


@pytest.fixture
def webhook() -> Iterator[WebhookReceiver]:
    with serve_webhook() as receiver:
        yield receiver


def run_process(command: Sequence[str | Path], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program to its end. `options` are options of `subprocess.run`."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "check": False, **options}
    result: subprocess.CompletedProcess[str] = subprocess.run(command, **options)
    return result


def build_job(
    *job_lines: str,
    job: str = "crm",
    source: str = "file: {path: people.csv}",
    base: str = "name: News",
    fields: str = "email: email, is_active: {value: true}",
    subscriber: str = "",
    load: str = "quiet_period: 200ms",
) -> str:
    """Return the text of the job file of a load.

    `job`, `source`, `base`, `fields` and `load` are the values of these keys, without the outer braces. `subscriber`
    has additional keys of the section `subscriber`, and `job_lines` are additional lines of the file.
    """
    mapping = f"fields: {{{fields}}}, " if fields else ""
    lines = (
        f"job: {job}",
        f"source: {{{source}}}",
        f"subscriber: {{base: {{{base}}}, {mapping}{subscriber}}}",
        f"load: {{{load}}}",
    )
    return "\n".join((*lines, *job_lines, ""))


def write_csv(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def count_creates_by_email(sandbox: SandboxProcess) -> Counter[str]:
    """Return how many subscribers the sandbox has created, by email."""
    return Counter(
        normalise_email(event["subscriber"]["Email"])
        for event in sandbox.truth()["events"]
        if event["kind"] == "created"
    )


def wait_for_result(process: ForkedProcess) -> CommandResult:
    """Wait for the end of a command, and return its result."""
    stdout, stderr = process.communicate()
    assert "Traceback" not in stderr, stderr
    return CommandResult(process.returncode, stdout, stderr)


def wait_for(is_fulfilled: Callable[[], bool]) -> None:
    """Return as soon as the condition is true. Fail after two minutes: a busy machine needs a long limit."""
    deadline = time.monotonic() + 120
    while not is_fulfilled():
        assert time.monotonic() < deadline
        time.sleep(0.02)
