"""Helpers for tests of plans: a job, the rows of a plan, and checks that a plan changes nothing."""

from collections.abc import Mapping
from pathlib import Path

from connector.sandbox import SandboxProcess
from tests.pipelines.conftest import CommandResult, Connector, read_rows

JOB_FIELDS = "email: email, first_name: name, is_active: {value: true}"


def write_job(connector: Connector, *job_lines: str, **job_values: str) -> Path:
    """Write a job that loads emails and names."""
    return connector.write_job(*job_lines, **{"fields": JOB_FIELDS, **job_values})


def read_outcomes(path: Path) -> dict[str, str]:
    """Return the planned outcome of each record, by the number of the record."""
    return {row["_row"]: row["_outcome"] for row in read_rows(path)}


def read_file_states(folder: Path) -> Mapping[str, tuple[bytes, int]]:
    """Return the bytes and the modification time of each file below a folder."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def count_creates(sandbox: SandboxProcess) -> int:
    """Return how many create requests the sandbox has received."""
    return count_requests(sandbox, "create")


def count_requests(sandbox: SandboxProcess, operation: str) -> int:
    """Return how many requests for this operation the sandbox has received."""
    request_counts = sandbox.stats()["requests"].get(operation, {"received": 0})
    return int(request_counts["received"])


def plan(connector: Connector, job_or_file: str | Path, *options: str | Path) -> CommandResult:
    """Run a plan, and check that the plan sends no create and leaves the state folder unchanged."""
    state_folder, create_count = connector.folder / "state", count_creates(connector.sandbox)
    states_before = read_file_states(state_folder) if state_folder.exists() else None
    result = connector.run_json("plan", job_or_file, *options)
    assert count_creates(connector.sandbox) == create_count
    assert (read_file_states(state_folder) if state_folder.exists() else None) == states_before
    return result
