"""What a command waits for, and holds in memory: no library that it has no use for."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.pipelines.conftest import ROOT, Connector

HEAVY = ("duckdb", "pandas", "pandera", "psycopg", "pydantic", "pymysql", "sqlalchemy", "yaml")
_RUN = (
    "import sys\nfrom pipelines.cli import main\n"
    "try:\n    main()\n"
    f"finally:\n    print(*(each for each in {HEAVY} if each in sys.modules), file=sys.stderr)\n"
)


def run_and_list(connector: Connector, *arguments: str) -> tuple[int, Sequence[str]]:
    """The exit code of a new process, and which of these libraries it had imported at its end."""
    ended = subprocess.run(
        [sys.executable, "-c", _RUN, *arguments],
        cwd=connector.folder,
        env=os.environ | connector.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended.returncode, ended.stderr.splitlines()[-1].split()


def test_an_export_to_a_file_asks_for_its_first_page_without_any_of_them(connector: Connector) -> None:
    assert run_and_list(connector, "export", "nowhere/out.parquet") == (2, [])


@pytest.mark.parametrize(
    ("target", "needed"),
    [
        ("out.parquet", []),
        ("out.csv", []),
        ("out.jsonl", []),
        ("sqlite:///w.db", ["sqlalchemy"]),
        ("duckdb:///w.duckdb", ["duckdb", "sqlalchemy"]),
    ],
)
def test_an_export_by_options_imports_what_its_destination_needs(
    connector: Connector, target: str, needed: list[str]
) -> None:
    connector.sandbox.seed(20, base_name="News")

    assert run_and_list(connector, "export", target) == (0, needed)


def test_an_export_by_a_job_needs_no_package_of_databases_either(connector: Connector, tmp_path: Path) -> None:
    connector.sandbox.seed(20, base_name="News")
    (tmp_path / "job.yaml").write_text("job: w\nexport: {to: out.parquet}\n", encoding="utf-8")

    code, imported = run_and_list(connector, "export", "job.yaml")
    assert code == 0
    assert not {"duckdb", "psycopg", "pymysql"} & set(imported)
