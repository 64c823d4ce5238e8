"""What an import holds in memory: bounded by the chunk and 24 bytes a row, not by the file."""

import os
from pathlib import Path

from tests.pipelines.conftest import Connector, write_csv

ROWS = int(os.environ.get("CONNECTOR_TEST_ROWS", "30000"))  # 1000000 for the promise itself, in about five minutes
LARGEST_MB = 400


def test_an_import_stays_under_400_megabytes(connector: Connector, tmp_path: Path) -> None:
    rows = (f"person{each}@example.com,Ann {each},Lee,+31{each:09d},true,1980-02-28" for each in range(ROWS))
    path = write_csv(tmp_path / "people.csv", "email,first_name,last_name,phone,is_active,birthday", *rows)
    with connector.start("import", path, "--base-name", "News", "--quiet") as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    assert connector.sandbox.stats()["subscribers"] == ROWS
    assert used.ru_maxrss / 1024 < LARGEST_MB
