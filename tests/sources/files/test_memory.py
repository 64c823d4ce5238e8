"""Memory is bounded by the chunk whatever the format, measured in a process of its own."""

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

_READ = """
import resource, sys
from connector.sources import open_file
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
before = peak()
with open_file(sys.argv[1]) as source:
    rows = sum(len(chunk.frame) for chunk in source.chunks())
print(rows, peak() - before)
"""
ROWS, ROWS_AT_ONCE = 60_000, 3_000  # of two kilobytes each: 120 MB, forty times a chunk


def build_people() -> list[dict[str, object]]:
    return [{"email": f"p{n}@example.com", "n": n, "notes": os.urandom(1000).hex()} for n in range(ROWS_AT_ONCE)]


def write_csv(path: Path) -> None:
    text = "".join(",".join(map(str, person.values())) + "\n" for person in build_people())
    path.write_text("email,n,notes\n" + text * (ROWS // ROWS_AT_ONCE), encoding="utf-8")


def write_gzip(path: Path) -> None:
    write_csv(path)
    path.write_bytes(gzip.compress(path.read_bytes(), compresslevel=1))


def write_json_lines(path: Path) -> None:
    text = "".join(json.dumps(person) + "\n" for person in build_people())
    path.write_text(text * (ROWS // ROWS_AT_ONCE), encoding="utf-8")


def write_parquet(path: Path) -> None:
    table = pa.Table.from_pylist(build_people())
    pq.write_table(pa.concat_tables([table] * (ROWS // ROWS_AT_ONCE)), path, use_dictionary=False)


@pytest.mark.parametrize("write", [write_csv, write_gzip, write_json_lines, write_parquet])
def test_a_file_many_times_the_chunk_costs_only_chunks(tmp_path: Path, write: Callable[[Path], None]) -> None:
    write(tmp_path / "people")
    ran = subprocess.run([sys.executable, "-c", _READ, tmp_path / "people"], check=True, capture_output=True, text=True)
    rows, megabytes = map(int, ran.stdout.split())
    assert rows == ROWS
    assert megabytes < 150  # 170 and more if the chunks were kept
