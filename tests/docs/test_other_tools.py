"""The instructions of the pages for dbt, orchestrators, Singer and Kubernetes. Each tool has its own environment.

These tests install hundreds of megabytes, so they run only if CONNECTOR_TEST_TOOLS is set.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Protocol

import duckdb
import pytest

from connector.sandbox import SandboxProcess
from tests.docs.test_pages import ROOT, read_blocks

pytestmark = pytest.mark.skipif("CONNECTOR_TEST_TOOLS" not in os.environ, reason="set CONNECTOR_TEST_TOOLS to run")

_INSTALLATION_LIMIT_S, _COMMAND_LIMIT_S = 900, 300


class RunCommand(Protocol):
    """A function that runs a command of an environment in the folder of the test."""

    def __call__(self, command: Sequence[str], stdin: str = "") -> str:
        """Return the output of the command."""


@pytest.fixture
def sandbox() -> Iterator[SandboxProcess]:
    with SandboxProcess() as sandbox:
        yield sandbox


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def open_environment(
    folder: Path, sandbox: SandboxProcess, *requirements: str, name: str = "environment"
) -> RunCommand:
    """Make an environment with `requirements` next to `folder`. The programs use `folder` as their home folder."""
    environment_folder = folder.with_name(name)
    # uv needs the TLS certificates of the machine, so the SSL_CERT_* settings of tests/conftest.py are left out.
    excluded_prefixes = ("CONNECTOR_", "AIRFLOW_", "SSL_CERT_")
    machine_settings = {name: value for name, value in os.environ.items() if not name.startswith(excluded_prefixes)}
    settings = machine_settings | {
        "HOME": str(folder),
        "PATH": f"{environment_folder / 'bin'}:{os.environ['PATH']}",
        "CONNECTOR_BASE_URL": sandbox.base_url,
        "CONNECTOR_TOKEN": sandbox.token,
        "CONNECTOR_STATE_DIR": str(folder / "state"),
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder),
    }

    def run(command: Sequence[str], stdin: str = "") -> str:
        program = str(environment_folder / "bin" / command[0])
        completed_process = subprocess.run(
            [program, *command[1:]],
            cwd=folder,
            env=settings,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_COMMAND_LIMIT_S,
            check=False,
        )
        assert completed_process.returncode == 0, completed_process.stdout + completed_process.stderr
        return completed_process.stdout

    python_options = ("--python", str(environment_folder / "bin" / "python"))
    for command in (
        ("venv", "--python", sys.executable, str(environment_folder)),
        ("pip", "install", *python_options, *requirements),
    ):
        subprocess.run(
            ["uv", *command, "--quiet", "--system-certs"],
            env=machine_settings,
            check=True,
            timeout=_INSTALLATION_LIMIT_S,
        )
    return run


@pytest.mark.parametrize(
    ("file", "requirements", "setup_commands"),
    [
        ("airflow_dag.py", ("apache-airflow",), [("airflow", "db", "migrate")]),
        ("dagster_job.py", ("dagster",), []),
        ("prefect_flow.py", ("prefect", "fastapi<0.150"), []),
    ],
)
def test_an_orchestrator_runs_the_job_as_its_page_shows(
    file: str, requirements: tuple[str, ...], setup_commands: list[Sequence[str]], sandbox: SandboxProcess, folder: Path
) -> None:
    for block in read_blocks(ROOT / "docs" / "how-to" / "orchestrators.md"):
        if block.name in ("crm_job.py", file):
            (folder / block.name).write_text(block.text, encoding="utf-8")
    for block in read_blocks(ROOT / "docs" / "how-to" / "unattended.md"):
        if block.name in ("crm.yaml", "customers.csv"):
            (folder / block.name).write_text(block.text, encoding="utf-8")
    run_command = open_environment(folder, sandbox, str(ROOT), *requirements)
    for command in setup_commands:
        run_command(command)
    for _ in range(2):
        run_command(("python", file))
        assert sandbox.stats()["subscribers"] == 1
    (folder / "crm.yaml").unlink()
    with pytest.raises(AssertionError, match="there is no such job file"):
        run_command(("python", "-c", "import crm_job; crm_job.sync_crm()"))


def test_dbt_builds_its_models_from_the_history(sandbox: SandboxProcess, folder: Path) -> None:
    # The installation of dbt-core 1.12 downloads a part of dbt-core from outside the package index.
    run_command = open_environment(folder, sandbox, str(ROOT), "dbt-duckdb", "dbt-core<1.12")
    project_folder = str(ROOT / "configs" / "dbt")
    project_options = ("--project-dir", project_folder, "--profiles-dir", project_folder)
    output_options = ("--target-path", str(folder / "target"), "--log-path", str(folder / "logs"))
    people_file = folder / "people.csv"
    people_file.write_text("email\nann@example.com\nbob@example.com\n", encoding="utf-8")
    export_command = (
        "connector",
        "export",
        "duckdb:///warehouse.duckdb",
        "--table",
        "subscribers",
        "--mode",
        "history",
    )
    run_command(("connector", "import", "people.csv", "--base-name", "Newsletter", "--active"))
    run_command(export_command)
    run_command(("dbt", "build", *project_options, *output_options))
    people_file.write_text("email\ncem@example.com\n", encoding="utf-8")
    run_command(("connector", "import", "people.csv", "--base-name", "Newsletter", "--inactive"))
    run_command(export_command)
    run_command(("dbt", "build", *project_options, *output_options))
    run_command(("dbt", "source", "freshness", *project_options, *output_options))
    with duckdb.connect(str(folder / "warehouse.duckdb"), read_only=True) as warehouse:
        emails = warehouse.sql("select email from current_subscribers order by email").fetchall()
        daily_counts = warehouse.sql("select subscribers, active, came, went from daily_counts order by day").fetchall()
    assert emails == [("ann@example.com",), ("bob@example.com",), ("cem@example.com",)]
    assert daily_counts[-1][:2] == (3, 2)
    assert sum(new_count for *_, new_count, _ in daily_counts) == 3


def test_singer_programs_of_other_projects_move_each_subscriber_once(sandbox: SandboxProcess, folder: Path) -> None:
    """Copy a thousand records through two pipes. Each program has its own environment."""
    sandbox.switch(drop_after=0.05, error_after=0.05)
    run_connector = open_environment(folder, sandbox, f"{ROOT}[singer]", name="own")
    run_tap = open_environment(folder, sandbox, "tap-jsonl", name="tap")
    run_target = open_environment(folder, sandbox, "target-jsonl", "setuptools", name="target")
    people = [{"email": f"p{index}@example.com", "first_name": f"P{index}"} for index in range(1000)]
    (folder / "people.jsonl").write_text("".join(json.dumps(person) + "\n" for person in people))
    (folder / "tap.json").write_text('{"path": "people.jsonl", "stream_name": "contacts", "primary_keys": ["email"]}')
    (folder / "target.json").write_text('{"job": "job.yaml", "batch_size_rows": 300}')
    (folder / "all.json").write_text("{}")
    (job_block,) = (block for block in read_blocks(ROOT / "docs" / "how-to" / "singer.md") if block.name == "job.yaml")
    (folder / "job.yaml").write_text(f"{job_block.text}load: {{quiet_period: 1s}}\n", encoding="utf-8")
    people_stream = run_tap(("tap-jsonl", "--config", "tap.json"))
    for _ in range(2):
        run_connector(("target-subscribers", "--config", "target.json"), people_stream)
    assert sandbox.stats()["subscribers"] == 1000
    subscribers_stream = run_connector(("tap-subscribers", "--config", "all.json"))
    run_target(("target-jsonl",), subscribers_stream)
    run_connector(("connector", "export", "exported.jsonl", "--quiet"))
    (target_file,) = folder.glob("subscribers-*.jsonl")
    target_rows, exported_rows = (
        sorted(
            (json.loads(line) | {"_run_id": "", "_exported_at": ""} for line in path.read_text("utf-8").splitlines()),
            key=itemgetter("id"),
        )
        for path in (target_file, folder / "exported.jsonl")
    )
    assert target_rows == exported_rows


def test_the_manifest_of_kubernetes_has_a_valid_schema(sandbox: SandboxProcess, folder: Path) -> None:
    run_command = open_environment(folder, sandbox, "kubernetes-validate")
    manifest = ROOT / "configs" / "kubernetes" / "sync.yaml"
    run_command(("kubernetes-validate", str(manifest)))
    (folder / "wrong.yaml").write_text(manifest.read_text("utf-8").replace("completions: 4", "completions: four"))
    with pytest.raises(AssertionError, match="completions"):
        run_command(("kubernetes-validate", "wrong.yaml"))
