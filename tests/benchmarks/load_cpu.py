"""What a create costs: `connector import`, its ledger on the disk, and a bare aiohttp loop that posts the same bodies.

`python -m tests.benchmarks.load_cpu [--rows N] [--rounds N]` runs the two in turn, without latency, against one sandbox
that is a process of its own, and prints a table and a line of JSON. Promised are 5,000 creates/s with the ledger, and
at most twice the processor time of the bare loop for each row.

The import's processor time for a row is that of its process less that of one with few rows, divided by the rows that it
had more: reading, checking, ledger and sending are in it, the start is not. The bare loop's is what it measures itself
around its posting, its bodies being ready before.
"""

import argparse
import json
import statistics
import sys
import tempfile
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from connector.sandbox import SandboxProcess
from tests.benchmarks.bare_loop import IN_FLIGHT
from tests.benchmarks.creates import Creates, read_creates
from tests.benchmarks.importing import build_environment, import_file
from tests.benchmarks.machine import describe_machine
from tests.benchmarks.people import write_bodies, write_people
from tests.benchmarks.processes import Spent, run_process
from tests.benchmarks.tables import at_least, at_most, print_json, print_promises, print_table

_PROMISED_PACE = 5000.0  # creates/s
_PROMISED_RATIO = 2.0

_FEW = 1_000
"""Rows of the import that stands for the start: enough that each part of a load has run."""

OURS, BARE = "connector import", f"bare aiohttp loop, {IN_FLIGHT} in flight"


@dataclass(frozen=True, slots=True)
class Measured:
    """One run: creates/s from the first to the last, and over the whole process; processor time."""

    sending_per_s: float
    whole_per_s: float
    cpu_us_per_row: float
    cores: float  # processor time of the whole process by its wall time


def measure_import(sandbox: SandboxProcess, folder: Path, rows: int) -> tuple[Measured, Creates]:
    """Import few people, then all, each with a fresh ledger into an empty sandbox."""
    start = _import_afresh(sandbox, folder / "few.csv", _FEW)
    spent = _import_afresh(sandbox, folder / "people.csv", rows)
    cpu_s = (spent.cpu_s - start.cpu_s) / (rows - _FEW)
    return _measure(sandbox, spent, rows, cpu_s)


def measure_bare(sandbox: SandboxProcess, folder: Path, rows: int) -> tuple[Measured, Creates]:
    """Post the same bodies by the bare loop."""
    sandbox.reset()
    command = (sys.executable, "-m", "tests.benchmarks.bare_loop", folder / "bodies.jsonl")
    spent = run_process(command, build_environment(sandbox))
    return _measure(sandbox, spent, rows, json.loads(spent.stdout)["cpu_s"] / rows)


def _import_afresh(sandbox: SandboxProcess, path: Path, rows: int) -> Spent:
    sandbox.reset()
    with tempfile.TemporaryDirectory() as state:
        imported = import_file(sandbox, path, Path(state))
    assert imported.rows["created"] == rows, imported.rows
    return imported.spent


def _measure(sandbox: SandboxProcess, spent: Spent, rows: int, cpu_s: float) -> tuple[Measured, Creates]:
    creates = read_creates(sandbox)
    assert len(creates.times) == rows, f"{len(creates.times)} of {rows} rows were created"
    assert creates.duplicates == 0
    return Measured(creates.compute_rate(), rows / spent.wall_s, cpu_s * 1e6, spent.cpu_s / spent.wall_s), creates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if options.rows <= _FEW:
        parser.error(f"--rows must be more than {_FEW}")
    machine = describe_machine()
    measured: dict[str, list[Measured]] = {OURS: [], BARE: []}
    with tempfile.TemporaryDirectory() as name, SandboxProcess() as sandbox:
        folder = Path(name)
        write_people(folder / "few.csv", _FEW)
        write_people(folder / "people.csv", options.rows)
        write_bodies(folder / "bodies.jsonl", options.rows)
        for _ in range(options.rounds):
            ours, created = measure_import(sandbox, folder, options.rows)
            bare, posted = measure_bare(sandbox, folder, options.rows)
            assert created.stored == posted.stored, "the two did not send the same bodies"
            measured[OURS].append(ours)
            measured[BARE].append(bare)
    show(options.rows, measured, machine)


def show(rows: int, measured: dict[str, list[Measured]], machine: dict[str, object]) -> None:
    figures = {name: _take_medians(runs) for name, runs in measured.items()}
    print_table(
        (f"{rows:,} rows, {len(measured[OURS])} rounds", "creates/s sending", "whole process", "CPU µs/row", "cores"),
        (
            (name, f"{it.sending_per_s:,.0f}", f"{it.whole_per_s:,.0f}", f"{it.cpu_us_per_row:.0f}", f"{it.cores:.2f}")
            for name, it in figures.items()
        ),
    )
    pairs = list(zip(measured[OURS], measured[BARE], strict=True))
    cpu = statistics.median(ours.cpu_us_per_row / bare.cpu_us_per_row for ours, bare in pairs)
    wall = statistics.median(ours.sending_per_s / bare.sending_per_s for ours, bare in pairs)
    print(f"\nof the bare loop's pace: {wall:.2f}; both share the machine with the sandbox, a process of its own")
    promises = [
        at_least(
            "creates/s while sending, the ledger on the disk", _PROMISED_PACE, figures[OURS].sending_per_s, "{:,.0f}"
        ),
        at_most("CPU a row, as a multiple of the bare loop's", _PROMISED_RATIO, cpu, "{:.2f} x"),
    ]
    print_promises(promises)
    rounds = {name: [asdict(run) for run in runs] for name, runs in measured.items()}
    values = {"rows": rows, "cpu_ratio": cpu, "pace_ratio": wall, "rounds": rounds}
    print_json("load_cpu", machine, promises, **values)


def _take_medians(runs: list[Measured]) -> Measured:
    return Measured(*(statistics.median(getattr(run, field.name) for run in runs) for field in fields(Measured)))


if __name__ == "__main__":
    main()
