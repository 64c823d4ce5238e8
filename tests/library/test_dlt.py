"""The resource and the destination of dlt. Each pipeline runs in its own process."""

import signal
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

from connector.sandbox import SandboxProcess
from tests.pipelines.conftest import Connector, count_creates_by_email, wait_for
from tests.pipelines.forked import ForkedProcess
from tests.pipelines.test_singer import BATCH_ROW_COUNT, JOB, ROW_COUNT

LOAD_SCRIPT = f"""
import sys
import dlt
from connector.dlt import subscriber_destination

people = [
    {{"number": number, "mail": f"p{{number}}@example.com", "first": f"P{{number}}"}} for number in range({ROW_COUNT})
]
destination = subscriber_destination("job.yaml", batch_rows={BATCH_ROW_COUNT})
pipeline = dlt.pipeline("contacts", destination=destination, pipelines_dir="pipelines")
if not pipeline.has_pending_data:
    pipeline.extract(people, table_name="contacts")
    pipeline.normalize()
pipeline.load(raise_on_failed_jobs=True)
"""
READ_SCRIPT = """
import sys
import dlt
from connector.dlt import subscribers

pipeline = dlt.pipeline("lists", destination=dlt.destinations.duckdb("lists.duckdb"), pipelines_dir="pipelines",
                        dataset_name="esp")
pipeline.run(subscribers(is_active=True))
"""


def run_script() -> None:
    """Run the script that the first argument of the process contains."""
    exec(sys.argv[1], {"__name__": "__main__"})


def start_script(script: str, sandbox: SandboxProcess, folder: Path) -> ForkedProcess:
    (folder / "job.yaml").write_text(JOB)
    settings = {
        "RUNTIME__DLTHUB_TELEMETRY": "false",
        "HOME": str(folder),
        "DLT_DATA_DIR": str(folder / "dlt"),  # without this setting, dlt as root writes into /var/dlt
    }
    return Connector(sandbox, folder).start(script, environ=settings, program=run_script)


def run_scripts(sandbox: SandboxProcess, folder: Path, *scripts: str) -> None:
    """Run scripts in one process. Raises AssertionError if a script fails."""
    with start_script("\n".join(scripts), sandbox, folder) as process:
        _, errors = process.communicate()
    assert process.returncode == 0, errors


def test_a_load_after_a_killed_load_creates_no_subscriber_twice(sandbox: SandboxProcess, tmp_path: Path) -> None:
    sandbox.switch(latency_ms=20, drop_after=0.1, error_after=0.1, seed=5)
    with start_script(LOAD_SCRIPT, sandbox, tmp_path) as process:
        wait_for(lambda: process.poll() is not None or sandbox.stats()["subscribers"] >= 21)
        process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    run_scripts(sandbox, tmp_path, LOAD_SCRIPT)
    assert sorted(count_creates_by_email(sandbox).values()) == [1] * ROW_COUNT


def test_a_later_load_completes_a_load_whose_run_ended_early(sandbox: SandboxProcess, tmp_path: Path) -> None:
    sandbox.switch(blocked_from=30, blocked_status=403)
    with pytest.raises(AssertionError, match="403"):
        run_scripts(sandbox, tmp_path, LOAD_SCRIPT)
    sandbox.switch(blocked_from=0)
    run_scripts(sandbox, tmp_path, LOAD_SCRIPT)
    assert sorted(count_creates_by_email(sandbox).values()) == [1] * ROW_COUNT


def test_the_resource_replaces_the_rows_of_a_table_only_by_a_certified_list(
    sandbox: SandboxProcess, tmp_path: Path
) -> None:
    run_scripts(sandbox, tmp_path, LOAD_SCRIPT, READ_SCRIPT, READ_SCRIPT)
    assert query_warehouse(tmp_path, "select count(*), count(distinct id), min(email) from esp.subscribers") == [
        (ROW_COUNT, ROW_COUNT, "p0@example.com")
    ]
    sandbox.switch(order="shuffled", max_limit=20)
    with pytest.raises(AssertionError, match="The list is incomplete"):
        run_scripts(sandbox, tmp_path, READ_SCRIPT)
    assert query_warehouse(tmp_path, "select count(*) from esp.subscribers") == [(ROW_COUNT,)]


def query_warehouse(folder: Path, statement: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(folder / "lists.duckdb"), read_only=True) as warehouse:
        return warehouse.execute(statement).fetchall()
