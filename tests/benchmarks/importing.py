"""`connector import` as its users run it: a process of its own, with its settings in the environment."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from connector.sandbox import SandboxProcess
from tests.benchmarks.people import BASE_ID
from tests.benchmarks.processes import Spent, run_process


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import took, and its report's rows."""

    spent: Spent
    rows: dict[str, int]


def import_file(sandbox: SandboxProcess, path: Path, state: Path, *options: str, ledger: str = "") -> Imported:
    """Import a file with the ledger of the folder `state`, or with the one at the URL `ledger`. Raises CommandError."""
    command = (
        sys.executable,
        "-m",
        "pipelines",
        "import",
        path,
        "--base-id",
        str(BASE_ID),
        "--active",
        "--output",
        "json",
    )
    environment = build_environment(sandbox, state) | ({"CONNECTOR_LEDGER": ledger} if ledger else {})
    spent = run_process((*command, *options), environment)
    report: dict[str, Any] = json.loads(spent.stdout)
    return Imported(spent, report["rows"])


def build_environment(sandbox: SandboxProcess, state: Path | None = None) -> dict[str, str]:
    """This process's own environment with none of its settings but the sandbox's. Modules may be kept compiled, as they
    are where a package is installed: else each start would compile them, and other tools' starts would not."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CONNECTOR_")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment |= {"CONNECTOR_BASE_URL": sandbox.base_url, "CONNECTOR_TOKEN": sandbox.token}
    return environment | ({"CONNECTOR_STATE_DIR": str(state)} if state is not None else {})
