"""`connector export` as its users run it, in its own process."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from connector.sandbox import SandboxProcess
from tests.benchmarks.importing import build_environment
from tests.benchmarks.processes import CommandError, Spent, run_process


@dataclass(frozen=True, slots=True)
class Target:
    """Where an export goes: a path or a URL, and the table in a database."""

    name: str
    place: str
    table: str | None = None

    @property
    def is_database(self) -> bool:
        """Whether the place is a URL."""
        return "://" in self.place


def export_list(sandbox: SandboxProcess, target: Target, rows: int, state: Path) -> Spent:
    """Export the sandbox's list of `rows` people. Raises CommandError, also if that is not what was written."""
    options = ("--table", target.table) if target.is_database and target.table else ()
    command = (sys.executable, "-m", "pipelines", "export", target.place, "--output", "json", *options)
    spent = run_process(command, build_environment(sandbox, state))
    report = json.loads(spent.stdout)
    if report["status"] != "ok" or report["rows"] != {"read": rows, "written": rows}:
        raise CommandError(f"the export of {rows} came to {report['status']}, {report['rows']}")
    return spent
