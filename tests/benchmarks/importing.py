"""Runs a command of the connector in its own process, with its settings in the environment, as users run it."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from connector.sandbox import SandboxProcess
from tests.benchmarks.people import BASE_ID
from tests.benchmarks.processes import ResourceUsage, run_process


@dataclass(frozen=True, slots=True)
class ImportResult:
    """The resources that an import used, and the row counts of its report."""

    resource_usage: ResourceUsage
    row_counts: dict[str, int]


def import_file(
    sandbox: SandboxProcess, path: Path, state_folder: Path, *options: str, ledger_url: str = ""
) -> ImportResult:
    """Import a file with the ledger at `ledger_url`, by default in the folder `state_folder`."""
    command = ("import", str(path), "--base-id", str(BASE_ID), "--active", *options)
    resource_usage, report = run_connector(sandbox, state_folder, *command, ledger_url=ledger_url)
    return ImportResult(resource_usage, report["rows"])


def run_connector(
    sandbox: SandboxProcess, state_folder: Path, *arguments: str, ledger_url: str = ""
) -> tuple[ResourceUsage, dict[str, Any]]:
    """Run a command of the connector, and return its resources and its report."""
    environment = build_environment(sandbox, state_folder) | ({"CONNECTOR_LEDGER": ledger_url} if ledger_url else {})
    resource_usage = run_process((sys.executable, "-m", "pipelines", *arguments, "--output", "json"), environment)
    return resource_usage, json.loads(resource_usage.stdout)


def build_environment(sandbox: SandboxProcess, state_folder: Path | None = None) -> dict[str, str]:
    """Return the environment of this process, with the settings of the sandbox and no other settings of the connector.

    Python may store compiled modules, as for an installed package. Otherwise each start would compile the modules.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CONNECTOR_")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment |= {"CONNECTOR_BASE_URL": sandbox.base_url, "CONNECTOR_TOKEN": sandbox.token}
    return environment | ({"CONNECTOR_STATE_DIR": str(state_folder)} if state_folder is not None else {})
