"""No command imports a library that the command does not use."""

import json
import sys
from collections.abc import Sequence

from pipelines.cli import COMMANDS
from tests.pipelines.conftest import Connector, run_process

OPTIONAL_LIBRARIES = (
    "duckdb", "email_validator", "jinja2", "pandas", "pandera", "psycopg", "pyarrow.parquet", "pydantic", "pymysql",
    "python_calamine", "sqlalchemy", "xml.etree", "yaml",
)  # fmt: skip
COMMON_LIBRARIES = ("aiohttp", "pyarrow", "rich", "uvloop")  # libraries that most runs need
LIBRARIES_FOR_ROWS = {"pandas", "pandera", "pydantic", "pymysql", "sqlalchemy", "yaml"}
DIALECT_MODULES = ("sqlalchemy.dialects.postgresql",)
_PROGRAM = f"""
import json, os, sys
from pipelines.cli import run
codes = []
for sys.argv[1:] in json.loads(sys.argv[1]):
    try:
        run()
        codes.append(0)
    except SystemExit as exit_error:
        codes.append(exit_error.code or 0)
imported = [library for library in {OPTIONAL_LIBRARIES + COMMON_LIBRARIES + DIALECT_MODULES} if library in sys.modules]
print(json.dumps([codes, imported]), file=sys.stderr, flush=True)
os._exit(0)
"""


def run_commands(connector: Connector, commands: Sequence[Sequence[str]]) -> tuple[list[int], list[str]]:
    """Run commands in one new process, and return their exit codes and the imported libraries."""
    command = [sys.executable, "-c", _PROGRAM, json.dumps(commands)]
    result = run_process(command, cwd=connector.folder, env=connector.build_environ())
    assert "Traceback" not in result.stderr, result.stderr
    exit_codes, libraries = json.loads(result.stderr.splitlines()[-1])
    return exit_codes, libraries


def run_and_list_libraries(connector: Connector, *arguments: str) -> tuple[int, list[str]]:
    """Run a command in a new process, and return its exit code and the imported libraries."""
    (exit_code,), libraries = run_commands(connector, [arguments])
    return exit_code, libraries


def test_the_help_and_usage_errors_are_shown_without_loading_a_library(connector: Connector) -> None:
    command_lines: list[list[str]] = [[], *([command] for command in COMMANDS)]
    argument_lists = [[*arguments, option] for arguments in command_lines for option in ("--help", "--nonsense")]
    argument_lists.append(["export", "nowhere/out.parquet"])
    assert run_commands(connector, argument_lists) == ([*([0, 2] * len(command_lines)), 2], [])


def test_an_export_does_not_load_the_libraries_of_the_ledger(connector: Connector) -> None:
    """With the option --output json, the command also imports no library for the text report."""
    # The list is so long that the export gathers evidence that the list is complete.
    connector.sandbox.seed(12_000, base_name="News")
    exit_code, libraries = run_and_list_libraries(connector, "export", "out.parquet", "--output", "json")
    assert (exit_code, libraries) == (0, ["pyarrow.parquet", "aiohttp", "pyarrow", "uvloop"])


def test_an_import_of_plain_rows_does_not_load_libraries_for_other_formats(connector: Connector) -> None:
    (connector.folder / "people.csv").write_text("email\nann@example.com\n", encoding="utf-8")
    options = ("--base-id", "1", "--active", "--quiet-period", "1ms")
    exit_code, libraries = run_and_list_libraries(connector, "import", "people.csv", *options)
    unused_libraries = {*OPTIONAL_LIBRARIES, *DIALECT_MODULES} - LIBRARIES_FOR_ROWS
    assert (exit_code, unused_libraries & set(libraries)) == (0, set())
