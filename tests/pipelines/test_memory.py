"""The memory of an import depends on the size of a chunk, with 24 bytes more for each row, and not on the file."""

import os
import subprocess
import sys
from pathlib import Path

from tests.pipelines.conftest import ROOT, Connector, write_csv

# The promise is for 1000000 rows, which take five minutes.
ROW_COUNT = int(os.environ.get("CONNECTOR_TEST_ROWS", "3000"))
MAX_MEMORY_MB = 400

# A small process starts the import, because the peak of a child includes the memory of its parent at the fork.
MEASURING_PROGRAM = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def test_an_import_stays_under_400_megabytes(connector: Connector, tmp_path: Path) -> None:
    rows = (f"person{index}@example.com,Ann {index},Lee,+31{index:09d},true,1980-02-28" for index in range(ROW_COUNT))
    path = write_csv(tmp_path / "people.csv", "email,first_name,last_name,phone,is_active,birthday", *rows)
    arguments = ["import", str(path), "--base-name", "News", "--quiet"]
    result = subprocess.run(
        [sys.executable, "-c", MEASURING_PROGRAM, sys.executable, "-m", "pipelines", *arguments],
        env=os.environ | connector.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    exit_code, peak_kb = map(int, result.stdout.split())
    assert exit_code == 0, result.stderr
    assert connector.sandbox.stats()["subscribers"] == ROW_COUNT
    assert 50 < peak_kb / 1024 < MAX_MEMORY_MB
