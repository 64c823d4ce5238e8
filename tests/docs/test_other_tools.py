"""What the pages say of dbt and of orchestrators, run in an environment of each tool's own.

A campaign: it installs hundreds of megabytes, so it runs when CONNECTOR_TEST_TOOLS is set.
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

pytestmark = pytest.mark.skipif("CONNECTOR_TEST_TOOLS" not in os.environ, reason="CONNECTOR_TEST_TOOLS is not set")

_INSTALL_S, _RUN_S = 900, 300


class Run(Protocol):
    """Runs a command of the environment in the test's folder."""

    def __call__(self, command: Sequence[str], stdin: str = "") -> str:
        """Return the output of the command."""


@pytest.fixture
def sandbox() -> Iterator[SandboxProcess]:
    with SandboxProcess() as started:
        yield started


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    return path


def open_environment(folder: Path, sandbox: SandboxProcess, *requirements: str, name: str = "environment") -> Run:
    """Make an environment with these requirements beside the folder, which is the home of its programs."""
    environment = folder.with_name(name)
    # tests/conftest.py leaves no certificates, and uv needs those of the machine
    own = ("CONNECTOR_", "AIRFLOW_", "SSL_CERT_")
    machine = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    settings = machine | {
        "HOME": str(folder),
        "PATH": f"{environment / 'bin'}:{os.environ['PATH']}",
        "CONNECTOR_BASE_URL": sandbox.base_url,
        "CONNECTOR_TOKEN": sandbox.token,
        "CONNECTOR_STATE_DIR": str(folder / "state"),
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder),
    }

    def run(command: Sequence[str], stdin: str = "") -> str:
        program = str(environment / "bin" / command[0])
        ended = subprocess.run(
            [program, *command[1:]],
            cwd=folder,
            env=settings,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_RUN_S,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    python = ("--python", str(environment / "bin" / "python"))
    for command in (("venv", "--python", sys.executable, str(environment)), ("pip", "install", *python, *requirements)):
        subprocess.run(["uv", *command, "--quiet", "--system-certs"], env=machine, check=True, timeout=_INSTALL_S)
    return run


@pytest.mark.parametrize(
    ("file", "requirements", "before"),
    [
        ("airflow_dag.py", ("apache-airflow",), [("airflow", "db", "migrate")]),
        ("dagster_job.py", ("dagster",), []),
        ("prefect_flow.py", ("prefect", "fastapi<0.150"), []),
    ],
)
def test_an_orchestrator_runs_the_job_as_its_page_shows(
    file: str, requirements: tuple[str, ...], before: list[Sequence[str]], sandbox: SandboxProcess, folder: Path
) -> None:
    for block in read_blocks(ROOT / "docs" / "how-to" / "orchestrators.md"):
        if block.name in ("crm_job.py", file):
            (folder / block.name).write_text(block.text, encoding="utf-8")
    for block in read_blocks(ROOT / "docs" / "how-to" / "unattended.md"):
        if block.name in ("crm.yaml", "customers.csv"):
            (folder / block.name).write_text(block.text, encoding="utf-8")
    run = open_environment(folder, sandbox, str(ROOT), *requirements)
    for command in before:
        run(command)
    for _ in range(2):
        run(("python", file))
        assert sandbox.stats()["subscribers"] == 1
    (folder / "crm.yaml").unlink()
    with pytest.raises(AssertionError, match="there is no such job file"):
        run(("python", "-c", "import crm_job; crm_job.sync_crm()"))


def test_dbt_builds_its_models_over_the_history(sandbox: SandboxProcess, folder: Path) -> None:
    # dbt-core 1.12 downloads a part of itself while it is installed, from elsewhere than the package index
    run = open_environment(folder, sandbox, str(ROOT), "dbt-duckdb", "dbt-core<1.12")
    project = str(ROOT / "configs" / "dbt")
    dbt = ("--project-dir", project, "--profiles-dir", project)
    made = ("--target-path", str(folder / "target"), "--log-path", str(folder / "logs"))
    people = folder / "people.csv"
    people.write_text("email\nann@example.com\nbob@example.com\n", encoding="utf-8")
    export = ("connector", "export", "duckdb:///warehouse.duckdb", "--table", "subscribers", "--mode", "history")
    run(("connector", "import", "people.csv", "--base-name", "Newsletter", "--active"))
    run(export)
    run(("dbt", "build", *dbt, *made))
    people.write_text("email\ncem@example.com\n", encoding="utf-8")
    run(("connector", "import", "people.csv", "--base-name", "Newsletter", "--inactive"))
    run(export)
    run(("dbt", "build", *dbt, *made))
    run(("dbt", "source", "freshness", *dbt, *made))
    with duckdb.connect(str(folder / "warehouse.duckdb"), read_only=True) as warehouse:
        emails = warehouse.sql("select email from current_subscribers order by email").fetchall()
        counts = warehouse.sql("select subscribers, active, came, went from daily_counts order by day").fetchall()
    assert emails == [("ann@example.com",), ("bob@example.com",), ("cem@example.com",)]
    assert counts[-1][:2] == (3, 2)
    assert sum(came for *_, came, _ in counts) == 3


def test_a_foreign_tap_and_a_foreign_target_move_each_subscriber_once(sandbox: SandboxProcess, folder: Path) -> None:
    """A thousand records go through two pipes, whose ends are in environments of their own."""
    sandbox.switch(drop_after=0.05, error_after=0.05)
    own = open_environment(folder, sandbox, f"{ROOT}[singer]", name="own")
    tap = open_environment(folder, sandbox, "tap-jsonl", name="tap")
    target = open_environment(folder, sandbox, "target-jsonl", "setuptools", name="target")
    people = [{"email": f"p{number}@example.com", "first_name": f"P{number}"} for number in range(1000)]
    (folder / "people.jsonl").write_text("".join(json.dumps(person) + "\n" for person in people))
    (folder / "tap.json").write_text('{"path": "people.jsonl", "stream_name": "contacts", "primary_keys": ["email"]}')
    (folder / "target.json").write_text('{"job": "job.yaml", "batch_size_rows": 300}')
    (folder / "all.json").write_text("{}")
    (job,) = (block for block in read_blocks(ROOT / "docs" / "how-to" / "singer.md") if block.name == "job.yaml")
    (folder / "job.yaml").write_text(f"{job.text}load: {{quiet_period: 1s}}\n", encoding="utf-8")
    stream = tap(("tap-jsonl", "--config", "tap.json"))
    for _ in range(2):
        own(("target-subscribers", "--config", "target.json"), stream)
    assert sandbox.stats()["subscribers"] == 1000
    listed = own(("tap-subscribers", "--config", "all.json"))
    target(("target-jsonl",), listed)
    own(("connector", "export", "exported.jsonl", "--quiet"))
    (written,) = folder.glob("subscribers-*.jsonl")
    rows, exported = (
        sorted(
            (json.loads(line) | {"_run_id": "", "_exported_at": ""} for line in path.read_text("utf-8").splitlines()),
            key=itemgetter("id"),
        )
        for path in (written, folder / "exported.jsonl")
    )
    assert rows == exported


def test_the_manifest_of_kubernetes_fits_its_schema(sandbox: SandboxProcess, folder: Path) -> None:
    run = open_environment(folder, sandbox, "kubernetes-validate")
    manifest = ROOT / "configs" / "kubernetes" / "sync.yaml"
    run(("kubernetes-validate", str(manifest)))
    (folder / "wrong.yaml").write_text(manifest.read_text("utf-8").replace("completions: 4", "completions: four"))
    with pytest.raises(AssertionError, match="completions"):
        run(("kubernetes-validate", "wrong.yaml"))
