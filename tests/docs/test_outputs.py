"""The page `docs/reference/outputs.md` shows the current output of the commands."""

import runpy
from collections.abc import Sequence
from pathlib import Path

from connector.sandbox import SandboxProcess
from tests.pipelines.conftest import Connector

SCRIPT = Path(__file__).parents[2] / "docs" / "capture_reports.py"


def test_the_page_of_outputs_has_the_current_output_of_the_commands(sandbox: SandboxProcess, tmp_path: Path) -> None:
    connector, script_variables = Connector(sandbox, tmp_path), runpy.run_path(str(SCRIPT))

    def run_command(arguments: Sequence[str]) -> str:
        result = connector.run(*arguments, environ={"COLUMNS": "80"})
        return result.stderr + result.stdout

    page = script_variables["PAGE_PATH"].read_text("utf-8")
    assert script_variables["build_page"](run_command, tmp_path) == page, "run: python docs/capture_reports.py"
