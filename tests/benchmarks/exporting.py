"""Runs `connector export` in its own process, as users run it."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from connector.sandbox import SandboxProcess
from tests.benchmarks.importing import build_environment
from tests.benchmarks.processes import CommandError, ResourceUsage, run_process


@dataclass(frozen=True, slots=True)
class Target:
    """The target of an export: a path, or a URL and a table."""

    name: str
    address: str
    table: str | None = None

    @property
    def is_database(self) -> bool:
        """Whether the address is the URL of a database."""
        return "://" in self.address


def export_list(sandbox: SandboxProcess, target: Target, row_count: int, state_folder: Path) -> ResourceUsage:
    """Export the sandbox's list. Raise CommandError if the command fails or does not write `row_count` rows."""
    options = ("--table", target.table) if target.is_database and target.table else ()
    command = (sys.executable, "-m", "pipelines", "export", target.address, "--output", "json", *options)
    resource_usage = run_process(command, build_environment(sandbox, state_folder))
    report = json.loads(resource_usage.stdout)
    if report["status"] != "ok" or report["rows"] != {"read": row_count, "written": row_count}:
        raise CommandError(f"the export of {row_count} rows ended with {report['status']}, {report['rows']}")
    return resource_usage
