"""Sources with damaged content end with exit code 2, because a person must correct the source."""

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import duckdb
import pandas as pd
import pytest

from tests.pipelines.conftest import Connector

ROWS = "".join(f"p{index}@x.org,Pat,yes\n" for index in range(40_000))
HEADER = "email,first_name,is_active\n"


def damage_parquet(path: Path) -> None:
    pd.DataFrame({"email": [f"p{index}@x.org" for index in range(1000)], "is_active": True}).to_parquet(path)
    content = bytearray(path.read_bytes())
    content[200:400] = bytes(200)
    path.write_bytes(content)


SOURCES = {
    "unclosed.csv": (HEADER + ROWS + 'eve@x.org,"Eve,yes\n' + ROWS[:2000]).encode(),
    "endless.csv": (HEADER + 'eve@x.org,"Eve,yes\n' + ROWS * 30).encode(),
    "spaces.csv": (HEADER + ROWS + 'eve@x.org, "Eve",yes\n').encode(),
    "no_header.csv": b"p1@x.org,Pat,yes\np2@x.org,Pat,yes\n",
    "empty.csv": b"",
    "binary.csv": bytes(range(32)) * 100,
    "cut.csv.gz": gzip.compress((HEADER + ROWS).encode())[:-2000],
    "array.json": b'[{"email": "p1@x.org"}]',
    "long.jsonl": b'{"email": "p1@x.org", "is_active": true}\n' + b'{"email": "' + b"x" * (20 << 20) + b'"}\n',
    "page.csv": b"<html><body>Sign in</body></html>",
    "cut.parquet": b"PAR1" + bytes(100),
    "cut.xlsx": b"PK\x03\x04" + bytes(100),
    "locked.xls": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600),
}


@pytest.mark.parametrize("name", [*SOURCES, "damaged.parquet"])
def test_a_damaged_file_is_refused(connector: Connector, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name in SOURCES:
        path.write_bytes(SOURCES[name])
    else:
        damage_parquet(path)
    command = ("import", path, "--base-id", "7") if name == "cut.csv.gz" else ("validate", path)
    result = connector.run_json(*command)
    assert result.is_refused, result.stderr
    assert name in result.stderr
    assert "fault of the program" not in result.stderr
    assert connector.sandbox.stats()["requests"] == {}


def test_a_job_with_an_unclosed_quote_is_refused_with_the_line_and_recorded(
    connector: Connector, tmp_path: Path
) -> None:
    (tmp_path / "people.csv").write_bytes(SOURCES["unclosed.csv"])
    job = tmp_path / "job.yaml"
    job.write_text("job: j\nsource: {file: {path: people.csv}}\nsubscriber: {base: {id: 7}}\n", encoding="utf-8")
    result = connector.run_json("sync", job)
    assert result.is_refused
    assert "the record that begins on line 40002 has a quote that is never closed" in result.stderr
    assert "a quote within it is written twice" in result.stderr
    (status,) = json.loads(connector.run("status", "--output", "json").stdout)["runs"][:1]
    assert status["exit_code"] == 2


def test_a_query_that_cannot_convert_a_value_is_refused(connector: Connector, tmp_path: Path) -> None:
    """test_incremental_databases has the same claim for PostgreSQL."""
    duckdb.connect(str(tmp_path / "people.duckdb")).close()
    query = "select 'p' || (case when n = 3 then 'x' else '1' end)::int || '@x.org' as email from range(1, 4) as s(n)"
    (tmp_path / "job.yaml").write_text(
        f'job: j\nsource: {{sql: {{url: "duckdb:///people.duckdb", query: "{query}"}}}}\n'
        "subscriber: {base: {id: 7}, fields: {email: email, is_active: {value: true}}}\n",
        encoding="utf-8",
    )
    result = connector.run_json("sync", "job.yaml")
    assert result.is_refused, result.stderr
    assert connector.sandbox.stats()["requests"] == {}


def test_a_file_that_is_not_a_sqlite_database_is_refused(connector: Connector, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "x.db")) as database:
        database.execute("create table t (email)")
    (tmp_path / "x.db").write_bytes(b"SQLite format 3\0" + bytes(5000))
    (tmp_path / "job.yaml").write_text(
        'job: j\nsource: {sql: {url: "sqlite:///x.db", table: t}}\nsubscriber: {base: {id: 7}}\n', encoding="utf-8"
    )
    assert connector.run_json("sync", "job.yaml").exit_code == 2
