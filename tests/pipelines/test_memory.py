"""Memory of an import: bounded by the chunk and 24 bytes for each row, not by the file."""

import os
import subprocess
import sys
from pathlib import Path

from tests.pipelines.conftest import ROOT, Connector, write_csv

ROWS = int(os.environ.get("CONNECTOR_TEST_ROWS", "3000"))  # 1000000 for the promise itself, in about five minutes
LARGEST_MB = 400

# A small process starts the import: the peak of a child counts from the fork, and pytest may hold more memory.
MEASURE = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def test_an_import_stays_under_400_megabytes(connector: Connector, tmp_path: Path) -> None:
    rows = (f"person{index}@example.com,Ann {index},Lee,+31{index:09d},true,1980-02-28" for index in range(ROWS))
    path = write_csv(tmp_path / "people.csv", "email,first_name,last_name,phone,is_active,birthday", *rows)
    arguments = ["import", str(path), "--base-name", "News", "--quiet"]
    result = subprocess.run(
        [sys.executable, "-c", MEASURE, sys.executable, "-m", "pipelines", *arguments],
        env=os.environ | connector.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    code, peak_kb = map(int, result.stdout.split())
    assert code == 0, result.stderr
    assert connector.sandbox.stats()["subscribers"] == ROWS
    assert 50 < peak_kb / 1024 < LARGEST_MB
