"""The cost of a create: `connector import` with its ledger on the disk, and a bare aiohttp loop with the same bodies.

`python -m tests.benchmarks.load_cpu [--rows N] [--rounds N]` runs the two in turn, without latency, against one sandbox
in its own process, and prints a table and a line of JSON. The project promises 5,000 creates/s with the ledger, and at
most twice the processor time of the bare loop for each row.

The import's processor time for a row is the difference between an import of all rows and an import of a few rows,
divided by the difference of the row counts. It contains reading, checking, the ledger and sending, but not the start.
The bare loop measures the processor time of its posting itself; its bodies were written before.
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
from tests.benchmarks.processes import Usage, run_process
from tests.benchmarks.tables import at_least, at_most, print_json, print_promises, print_table

_PROMISED_PACE = 5000.0  # creates/s
_PROMISED_RATIO = 2.0

_START_ROWS = 1_000
"""The number of rows of the import that measures the start. With this number, each part of a load runs."""

IMPORT, BARE_LOOP = "connector import", f"bare aiohttp loop, {IN_FLIGHT} in flight"


@dataclass(frozen=True, slots=True)
class ImportMeasurement:
    """The measurements of one run of the import or of the bare loop. The rates are in creates/s."""

    sending_per_s: float  # from the first create to the last
    whole_per_s: float  # over the whole process
    cpu_us_per_row: float  # processor time
    cores: float  # processor time of the whole process divided by its wall time


def measure_import(sandbox: SandboxProcess, folder: Path, rows: int) -> tuple[ImportMeasurement, Creates]:
    """Import a few people, then all. Each import has a new ledger and an empty sandbox."""
    short_run = _import_into_empty(sandbox, folder / "few.csv", _START_ROWS)
    usage = _import_into_empty(sandbox, folder / "people.csv", rows)
    cpu_s = (usage.cpu_s - short_run.cpu_s) / (rows - _START_ROWS)
    return _measure(sandbox, usage, rows, cpu_s)


def measure_bare(sandbox: SandboxProcess, folder: Path, rows: int) -> tuple[ImportMeasurement, Creates]:
    """Post the same bodies with the bare loop."""
    sandbox.reset()
    command = (sys.executable, "-m", "tests.benchmarks.bare_loop", folder / "bodies.jsonl")
    usage = run_process(command, build_environment(sandbox))
    return _measure(sandbox, usage, rows, json.loads(usage.stdout)["cpu_s"] / rows)


def _import_into_empty(sandbox: SandboxProcess, path: Path, rows: int) -> Usage:
    sandbox.reset()
    with tempfile.TemporaryDirectory() as state:
        result = import_file(sandbox, path, Path(state))
    assert result.rows["created"] == rows, result.rows
    return result.usage


def _measure(sandbox: SandboxProcess, usage: Usage, rows: int, cpu_s: float) -> tuple[ImportMeasurement, Creates]:
    creates = read_creates(sandbox)
    assert len(creates.times) == rows, f"{len(creates.times)} of {rows} rows were created"
    assert creates.duplicates == 0
    return ImportMeasurement(
        creates.compute_rate(), rows / usage.wall_s, cpu_s * 1e6, usage.cpu_s / usage.wall_s
    ), creates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if options.rows <= _START_ROWS:
        parser.error(f"--rows must be more than {_START_ROWS}")
    machine = describe_machine()
    runs_by_tool: dict[str, list[ImportMeasurement]] = {IMPORT: [], BARE_LOOP: []}
    with tempfile.TemporaryDirectory() as name, SandboxProcess() as sandbox:
        folder = Path(name)
        write_people(folder / "few.csv", _START_ROWS)
        write_people(folder / "people.csv", options.rows)
        write_bodies(folder / "bodies.jsonl", options.rows)
        for _ in range(options.rounds):
            import_run, import_creates = measure_import(sandbox, folder, options.rows)
            loop_run, bare_creates = measure_bare(sandbox, folder, options.rows)
            assert import_creates.stored_values == bare_creates.stored_values, "the two did not send the same bodies"
            runs_by_tool[IMPORT].append(import_run)
            runs_by_tool[BARE_LOOP].append(loop_run)
    show(options.rows, runs_by_tool, machine)


def show(rows: int, runs_by_tool: dict[str, list[ImportMeasurement]], machine: dict[str, object]) -> None:
    medians_by_tool = {name: _take_medians(runs) for name, runs in runs_by_tool.items()}
    print_table(
        (
            f"{rows:,} rows, {len(runs_by_tool[IMPORT])} rounds",
            "creates/s sending",
            "whole process",
            "CPU µs/row",
            "cores",
        ),
        (
            (
                name,
                f"{medians.sending_per_s:,.0f}",
                f"{medians.whole_per_s:,.0f}",
                f"{medians.cpu_us_per_row:.0f}",
                f"{medians.cores:.2f}",
            )
            for name, medians in medians_by_tool.items()
        ),
    )
    pairs = list(zip(runs_by_tool[IMPORT], runs_by_tool[BARE_LOOP], strict=True))
    cpu_ratio = statistics.median(import_run.cpu_us_per_row / loop_run.cpu_us_per_row for import_run, loop_run in pairs)
    pace_ratio = statistics.median(import_run.sending_per_s / loop_run.sending_per_s for import_run, loop_run in pairs)
    print(f"\npace of the import / pace of the bare loop: {pace_ratio:.2f}; the sandbox runs on the same machine")
    promises = [
        at_least(
            "creates/s while sending, with the ledger on the disk",
            _PROMISED_PACE,
            medians_by_tool[IMPORT].sending_per_s,
            "{:,.0f}",
        ),
        at_most("CPU per row, as a multiple of the bare loop's", _PROMISED_RATIO, cpu_ratio, "{:.2f} x"),
    ]
    print_promises(promises)
    rounds = {name: [asdict(run) for run in runs] for name, runs in runs_by_tool.items()}
    values = {"rows": rows, "cpu_ratio": cpu_ratio, "pace_ratio": pace_ratio, "rounds": rounds}
    print_json("load_cpu", machine, promises, **values)


def _take_medians(runs: list[ImportMeasurement]) -> ImportMeasurement:
    return ImportMeasurement(
        *(statistics.median(getattr(run, field.name) for run in runs) for field in fields(ImportMeasurement))
    )


if __name__ == "__main__":
    main()
