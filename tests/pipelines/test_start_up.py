"""Imports of commands: no command imports a library that it does not use."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from pipelines.cli import COMMANDS
from tests.pipelines.conftest import ROOT, Connector

HEAVY = (
    "duckdb", "email_validator", "pandas", "pandera", "psycopg", "pyarrow.parquet", "pydantic", "pymysql",
    "python_calamine", "sqlalchemy", "xml.etree", "yaml",
)  # fmt: skip
HEAVIER = ("aiohttp", "pyarrow", "rich", "uvloop")  # libraries that most runs need
DIALECTS = ("sqlalchemy.dialects.postgresql",)
_RUN = f"""
import json, os, sys
from pipelines.cli import run
codes = []
for sys.argv[1:] in json.loads(sys.argv[1]):
    try:
        run()
        codes.append(0)
    except SystemExit as end:
        codes.append(end.code or 0)
imported = [each for each in {HEAVY + HEAVIER + DIALECTS} if each in sys.modules]
print(json.dumps([codes, imported]), file=sys.stderr, flush=True)
os._exit(0)
"""


def run_all(connector: Connector, commands: Sequence[Sequence[str]]) -> tuple[list[int], list[str]]:
    """Run commands in one new process, and return their exit codes and the imported libraries."""
    result = subprocess.run(
        [sys.executable, "-c", _RUN, json.dumps(commands)],
        cwd=connector.folder,
        env=os.environ | connector.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in result.stderr, result.stderr
    codes, imported = json.loads(result.stderr.splitlines()[-1])
    return codes, imported


def run_and_list(connector: Connector, *arguments: str) -> tuple[int, list[str]]:
    """Run a command in a new process, and return its exit code and the imported libraries."""
    (code,), imported = run_all(connector, [arguments])
    return code, imported


def test_help_and_usage_errors_import_no_library(connector: Connector) -> None:
    named: list[list[str]] = [[], *([command] for command in COMMANDS)]
    asked = [[*arguments, option] for arguments in named for option in ("--help", "--nonsense")]
    asked.append(["export", "nowhere/out.parquet"])
    assert run_all(connector, asked) == ([*([0, 2] * len(named)), 2], [])


@pytest.mark.parametrize(("target", "needed"), [("out.csv", []), ("duckdb:///w.db", ["duckdb"])])
def test_an_export_by_options_imports_what_its_destination_needs(
    connector: Connector, target: str, needed: list[str]
) -> None:
    connector.sandbox.seed(20, base_name="News")

    code, imported = run_and_list(connector, "export", target)
    assert (code, [each for each in imported if each in HEAVY + DIALECTS]) == (0, needed)


def test_an_export_without_a_ledger_needs_no_library_of_ledgers(connector: Connector) -> None:
    """JSON needs no library that draws reports."""
    connector.sandbox.seed(12_000, base_name="News")  # long enough for evidence of its size

    code, imported = run_and_list(connector, "export", "out.parquet", "--output", "json")
    assert (code, imported) == (0, ["pyarrow.parquet", "aiohttp", "pyarrow", "uvloop"])


def test_an_import_of_plain_rows_imports_no_library_of_other_formats(connector: Connector, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("email\nann@example.com\n", encoding="utf-8")
    options = ("--base-id", "1", "--active", "--quiet-period", "1ms")

    code, imported = run_and_list(connector, "import", "people.csv", *options)
    unneeded = {"duckdb", "email_validator", "psycopg", "pyarrow.parquet", "python_calamine", "xml.etree", *DIALECTS}
    assert (code, unneeded & set(imported)) == (0, set())
