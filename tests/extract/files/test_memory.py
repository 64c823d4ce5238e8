"""Memory is bounded by the chunk whatever the format, measured in a process of its own."""

import gzip
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

_READ = """
import resource, sys
from connector.extract import open_file
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
before = peak()
with open_file(sys.argv[1]) as source:
    rows = sum(len(chunk.frame) for chunk in source.chunks())
print(rows, peak() - before)
"""
ROWS = 400_000


def build_people() -> Iterator[dict[str, object]]:
    for n in range(ROWS):
        yield {"email": f"person{n}@example.com", "first": "Anna", "phone": f"+316{n:08}", "city": "Utrecht", "n": n}


def write_gzip(path: Path) -> None:
    with gzip.open(path, "wt", encoding="utf-8", compresslevel=1) as file:
        file.write("email,first,phone,city,n\n")
        file.writelines(",".join(map(str, person.values())) + "\n" for person in build_people())


def write_json_lines(path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(person) + "\n" for person in build_people())


def write_parquet(path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(list(build_people())), path)


@pytest.mark.parametrize("write", [write_gzip, write_json_lines, write_parquet], ids=["csv.gz", "jsonl", "parquet"])
def test_a_file_many_times_the_chunk_costs_only_chunks(tmp_path: Path, write: Callable[[Path], None]) -> None:
    write(tmp_path / "people")
    ran = subprocess.run([sys.executable, "-c", _READ, tmp_path / "people"], check=True, capture_output=True, text=True)
    rows, megabytes = map(int, ran.stdout.split())
    assert rows == ROWS
    assert megabytes < 120
