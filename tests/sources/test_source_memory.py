"""Memory is bounded by the chunk, measured in a process of its own."""

import subprocess
import sys
from pathlib import Path

_READ = """
import resource, sys
from connector.sources import open_file
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
before = peak()
with open_file(sys.argv[1]) as source:
    rows = sum(len(chunk.frame) for chunk in source.chunks())
print(rows, peak() - before)
"""


def test_a_file_many_times_the_block_costs_only_blocks(tmp_path: Path) -> None:
    path = tmp_path / "big.csv"
    lines = "".join(
        f"person{n}@example.com,Anna,Schmidt,+316{n:08},Utrecht,NL,3511,1980-01-01,yes,{n}\n" for n in range(5000)
    )
    path.write_text("email,first,last,phone,city,country,zip,birthday,active,id\n" + lines * 100)
    ran = subprocess.run([sys.executable, "-c", _READ, path], check=True, capture_output=True, text=True)
    rows, megabytes = map(int, ran.stdout.split())
    assert rows == 500_000
    assert megabytes < 100
