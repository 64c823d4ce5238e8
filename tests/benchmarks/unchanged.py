"""What a sync costs in which nothing changed: the same file imported again, and pandas that only reads it.

`python -m tests.benchmarks.unchanged [--rows N] [--rounds N] [--seeded]` imports a file once, which takes its time, and
then again and again with that ledger, in turn with `pandas.read_csv` (by pyarrow) of the same file, and prints a table
and a line of JSON. Promised are 150,000 rows/s.

With `--seeded` the people are in the service before the first import, which finds them by listing the base: that is
how ten million come into a ledger in minutes.

`without start` is the process less one that imports only the first rows of the file with the same ledger (`--limit`):
the rows that it had more, by the time that they took more. pandas' time is of the reading alone. The peak of memory is
the process's, by the kernel's count.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from connector.sandbox import SandboxProcess
from connector.sandbox.store import SyntheticSubscribers
from tests.benchmarks.importing import import_file
from tests.benchmarks.machine import describe_machine
from tests.benchmarks.people import BASE_ID, write_people, write_seeded
from tests.benchmarks.processes import run_process
from tests.benchmarks.tables import at_least, print_json, print_promises, print_table, write_number

_PROMISED_PACE = 150_000.0  # rows/s

_FEW = 1_000
"""Rows of the import that stands for the start."""

_LEAST_SHARE = 0.5  # of the start: a difference of two processes that is smaller than half of either is mostly noise


@dataclass(frozen=True, slots=True)
class Measured:
    """One round: rows/s over the whole process, without its start (NaN: too few to tell), and read by pandas."""

    whole_per_s: float
    per_s: float
    pandas_per_s: float
    peak_mb: float  # NaN when it cannot be told
    pandas_peak_mb: float
    start_s: float
    cpu_us_per_row: float  # without the start


def prepare(sandbox: SandboxProcess, path: Path, rows: int, *, is_seeded: bool) -> str:
    """Write the file; returns what its rows are to the first import: created, or there already."""
    if not is_seeded:
        write_people(path, rows)
        return "created"
    write_seeded(path, SyntheticSubscribers(**sandbox.seed(rows, base_id=BASE_ID)))
    return "exists"


def measure(sandbox: SandboxProcess, path: Path, state: Path, rows: int) -> Measured:
    """Import the first few rows, then all, then read all by pandas."""
    few = import_file(sandbox, path, state, "--limit", str(_FEW))
    full = import_file(sandbox, path, state)
    assert full.rows["exists"] == rows, full.rows
    read = run_process([sys.executable, "-m", "tests.benchmarks.pandas_read", path], os.environ)
    answer = json.loads(read.stdout)
    assert answer["rows"] == rows, answer
    start, whole, more = few.spent, full.spent, rows - _FEW
    longer_s = whole.wall_s - start.wall_s
    return Measured(
        rows / whole.wall_s,
        more / longer_s if longer_s > _LEAST_SHARE * start.wall_s else float("nan"),
        rows / answer["wall_s"],
        _in_mb(whole.peak_bytes),
        _in_mb(read.peak_bytes),
        start.wall_s,
        (whole.cpu_s - start.cpu_s) / more * 1e6,
    )


def _in_mb(peak_bytes: int | None) -> float:
    return float("nan") if peak_bytes is None else peak_bytes / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seeded", action="store_true")
    options = parser.parse_args()
    if options.rows <= _FEW:
        parser.error(f"--rows must be more than {_FEW}")
    machine, rows = describe_machine(), options.rows
    with tempfile.TemporaryDirectory() as name, SandboxProcess() as sandbox:
        folder = Path(name)
        path, state = folder / "people.csv", folder / "state"
        outcome = prepare(sandbox, path, rows, is_seeded=options.seeded)
        first = import_file(sandbox, path, state)
        assert first.rows[outcome] == rows, first.rows
        print(
            f"the first import: {rows:,} {outcome} in {first.spent.wall_s:.0f} s, {rows / first.spent.wall_s:,.0f}/s\n"
        )
        measured = [measure(sandbox, path, state, rows) for _ in range(options.rounds)]
        stored = sandbox.stats()["subscribers"]
        assert stored == rows, f"{stored} are there after all, for {rows} rows"
    show(rows, measured, machine)


def show(rows: int, measured: list[Measured], machine: dict[str, object]) -> None:
    median = Measured(*(statistics.median(getattr(run, each.name) for run in measured) for each in fields(Measured)))
    whole = statistics.median(run.whole_per_s / run.pandas_per_s for run in measured)
    ratio = statistics.median(run.per_s / run.pandas_per_s for run in measured)
    print_table(
        (f"{rows:,} rows, {len(measured)} rounds", "rows/s", "of pandas' pace", "peak MB", "CPU µs/row"),
        [
            _build_line("import, whole process", median.whole_per_s, whole, median.peak_mb, float("nan")),
            _build_line("import, without start", median.per_s, ratio, float("nan"), median.cpu_us_per_row),
            _build_line("pandas.read_csv", median.pandas_per_s, 1.0, median.pandas_peak_mb, float("nan")),
        ],
    )
    print(f"\nstart: an import of {_FEW:,} of the rows, {median.start_s:.2f} s")
    promises = [
        at_least("rows/s, whole process", _PROMISED_PACE, median.whole_per_s, "{:,.0f}"),
        at_least("rows/s, without start", _PROMISED_PACE, median.per_s, "{:,.0f}"),
    ]
    print_promises(promises)
    rounds = list(map(asdict, measured))
    print_json("unchanged", machine, promises, rows=rows, whole_by_pandas=whole, by_pandas=ratio, rounds=rounds)


def _build_line(name: str, per_s: float, ratio: float, peak_mb: float, cpu_us: float) -> tuple[str, ...]:
    forms = zip(("{:,.0f}", "{:.3f}", "{:.0f}", "{:.2f}"), (per_s, ratio, peak_mb, cpu_us), strict=True)
    return (name, *(write_number(form, number) for form, number in forms))


if __name__ == "__main__":
    main()
