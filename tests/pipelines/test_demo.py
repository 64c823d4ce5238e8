"""`connector demo`: the story ends well, and would not if something were wrong."""

import re
from pathlib import Path

from tests.pipelines.conftest import Connector


def test_the_demo_ends_with_a_verdict_and_leaves_its_files(connector: Connector, tmp_path: Path) -> None:
    ended = connector.run("demo", "--folder", "demo", "--people", "400")
    assert ended.code == 0, ended.stdout
    assert "verdict: service, ledger and warehouse agree" in ended.stdout
    assert len(re.findall(r"^yes ", ended.stdout, re.MULTILINE)) == 5
    assert {path.name for path in (tmp_path / "demo").iterdir()} == {
        "people.csv", "crm.db", "crm.yaml", "warehouse.duckdb", "warehouse.yaml", "state", "service",
    }  # fmt: skip
    assert (tmp_path / "demo").stat().st_mode & 0o077 == 0
