"""A run with a damaged source ends with exit code 2, because a person must correct the source. tests/sources has a test
for each kind of damage."""

import gzip
from pathlib import Path

import duckdb
import pandas as pd
import pytest

from tests.pipelines.conftest import Connector

ROWS = "".join(f"p{index}@x.org,Pat,yes\n" for index in range(40_000))
HEADER = "email,first_name,is_active\n"


def build_damaged_parquet(path: Path) -> bytes:
    pd.DataFrame({"email": [f"p{index}@x.org" for index in range(1000)], "is_active": True}).to_parquet(path)
    content = bytearray(path.read_bytes())
    content[200:400] = bytes(200)
    return bytes(content)


@pytest.mark.parametrize("name", ["cut.csv.gz", "damaged.parquet"])
def test_a_file_that_is_damaged_in_its_middle_is_refused_before_the_first_request(
    connector: Connector, name: str
) -> None:
    path = connector.folder / name
    cut_csv = gzip.compress((HEADER + ROWS).encode())[:-2000]
    path.write_bytes(cut_csv if name == "cut.csv.gz" else build_damaged_parquet(path))
    result = connector.run_json("import", path, "--base-id", "7")
    assert result.is_refused, result.stderr
    assert name in result.stderr
    assert "fault of the program" not in result.stderr
    assert connector.sandbox.stats()["requests"] == {}


def test_a_file_with_an_unclosed_quote_is_refused_and_the_message_has_the_line_number(connector: Connector) -> None:
    (connector.folder / "people.csv").write_text(HEADER + ROWS + 'eve@x.org,"Eve,yes\n' + ROWS[:2000])
    result = connector.sync(connector.write_job())
    assert result.is_refused
    assert "the record that begins on line 40002 has a quote that is never closed" in result.stderr
    assert "a quote within a cell is written twice" in result.stderr
    assert connector.run_json("status").report["runs"][0]["exit_code"] == 2


def test_a_query_that_cannot_convert_a_value_is_refused(connector: Connector, tmp_path: Path) -> None:
    """tests/sources/sql/test_databases.py tests the same claim for PostgreSQL."""
    duckdb.connect(str(tmp_path / "people.duckdb")).close()
    query = "select 'p' || (case when n = 3 then 'x' else '1' end)::int || '@x.org' as email from range(1, 4) as s(n)"
    result = connector.sync(connector.write_job(source=f'sql: {{url: "duckdb:///people.duckdb", query: "{query}"}}'))
    assert result.is_refused, result.stderr
    assert connector.sandbox.stats()["requests"] == {}
