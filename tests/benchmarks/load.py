"""The pace and the cost of creates: `connector import`, a bare aiohttp loop with the same bodies, and a script by hand.

`python -m tests.benchmarks.load [--rows N] [--rounds N] [--fresh]` runs them in turn against one sandbox in its own
process, without latency and with 20 ms. It prints two tables and two lines of JSON. The project promises five figures:

- Without latency: 5,000 creates/s with the ledger on the disk.
- Without latency: at most twice the processor time of the bare loop for each row.
- With latency and the default settings: 90 % of the bound, which is 64 requests in flight divided by 20 ms.
- With latency and 64 requests in flight: 90 % of the bare loop.
- With latency: twice the pace of the script by hand.

Each pace is measured with the times of the sandbox's truth log, so no pace contains the start of a process. `steady`
leaves out the first two seconds, in which an import finds its pace. The processor time of an import is that of an
import of all rows without that of an import of a few rows. The environment of the script is made once and kept in the
user's cache. `--fresh` makes a new environment.
"""

import argparse
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from connector.sandbox import SandboxProcess
from tests.benchmarks.bare_loop import IN_FLIGHT
from tests.benchmarks.creates import read_creates
from tests.benchmarks.importing import build_environment, import_file
from tests.benchmarks.machine import describe_machine
from tests.benchmarks.other_tools import BY_HAND, install, remove_environments
from tests.benchmarks.people import write_bodies, write_people
from tests.benchmarks.processes import CommandError, Usage, run_process
from tests.benchmarks.tables import at_least, at_most, print_json, print_promises, print_table, write_number

_LATENCY_MS = 20
_BOUND_PER_S = IN_FLIGHT * 1000 / _LATENCY_MS  # creates/s
_PACE_FOUND_S = 2.0  # an import finds its pace within this time after its first create
_START_ROWS = 1_000  # rows of the import that measures the start; with this number, each part of a load runs

_COLUMNS = ("creates/s", "steady", "whole process", "most in flight", "CPU µs/row")


@dataclass(frozen=True, slots=True)
class LoadMeasurement:
    """The measurements of one run. The rates are in creates/s."""

    per_s: float  # from the first create to the last
    steady_per_s: float  # the same rate without the first `_PACE_FOUND_S` seconds; NaN for a short run
    whole_per_s: float  # over the whole process, with its start and its end
    peak_in_flight: float
    cpu_us_per_row: float  # processor time; NaN if the process cannot leave out its start

    @property
    def pace(self) -> float:
        """The steady rate, or the rate of the whole run if the run was too short for a steady rate."""
        return self.per_s if math.isnan(self.steady_per_s) else self.steady_per_s


@dataclass(slots=True)
class Contestant:
    """One way to create `rows` people. `load` returns the resources of the process, and the processor time of the rows
    without the start. A contestant that fails is left out, and has the reason."""

    name: str
    rows: int
    load: Callable[[SandboxProcess], tuple[Usage, float]]
    runs: list[LoadMeasurement] = field(default_factory=list)
    exclusion_reason: str | None = None

    def run(self, sandbox: SandboxProcess) -> None:
        """Create the people in the emptied sandbox. Leave the contestant out if a person is not created once."""
        if self.exclusion_reason is not None:
            return
        try:
            usage, cpu_s = self.load(sandbox)
        except CommandError as error:
            self.exclusion_reason = str(error)
            return
        creates = read_creates(sandbox)
        if len(creates.times) != self.rows or creates.duplicates:
            self.exclusion_reason = f"{len(creates.times)} of {self.rows} created, {creates.duplicates} of them twice"
            return
        paces = creates.compute_rate(), creates.compute_rate(_PACE_FOUND_S), self.rows / usage.wall_s
        self.runs.append(LoadMeasurement(*paces, sandbox.stats()["peak_in_flight"], cpu_s / self.rows * 1e6))

    @property
    def median(self) -> LoadMeasurement:
        """The median of each measurement over the runs; NaN for a contestant that was left out."""
        runs = [] if self.exclusion_reason is not None else self.runs
        values = ([getattr(run, figure.name) for run in runs] or [math.nan] for figure in fields(LoadMeasurement))
        return LoadMeasurement(*map(statistics.median, values))

    def compare(self, other: "Contestant", figure: str) -> float:
        """Return the median ratio of this figure to the other contestant's figure in the same round."""
        if self.exclusion_reason is not None or other.exclusion_reason is not None:
            return math.nan
        pairs = zip(self.runs, other.runs, strict=True)
        ratios: list[float] = [getattr(run, figure) / getattr(other_run, figure) for run, other_run in pairs]
        return statistics.median(ratios)


def enter_import(name: str, folder: Path, rows: int, *options: str) -> Contestant:
    """Return `connector import` with a new ledger as a contestant."""

    def import_into_empty(sandbox: SandboxProcess, file_name: str) -> Usage:
        sandbox.reset()
        with tempfile.TemporaryDirectory() as state:
            return import_file(sandbox, folder / file_name, Path(state), *options).usage

    def load(sandbox: SandboxProcess) -> tuple[Usage, float]:
        start_cpu_s = import_into_empty(sandbox, "few.csv").cpu_s
        usage = import_into_empty(sandbox, "people.csv")
        return usage, (usage.cpu_s - start_cpu_s) * rows / (rows - _START_ROWS)

    return Contestant(name, rows, load)


def enter_bare_loop(name: str, folder: Path, rows: int) -> Contestant:
    """Return the bare aiohttp loop as a contestant. The loop measures the processor time of its posting itself."""

    def load(sandbox: SandboxProcess) -> tuple[Usage, float]:
        sandbox.reset()
        command = (sys.executable, "-m", "tests.benchmarks.bare_loop", folder / "bodies.jsonl")
        usage = run_process(command, build_environment(sandbox))
        return usage, float(json.loads(usage.stdout)["cpu_s"])

    return Contestant(name, rows, load)


def enter_script(folder: Path, rows: int) -> Contestant:
    """Install the script by hand, and return the script as a contestant."""

    def load(sandbox: SandboxProcess) -> tuple[Usage, float]:
        sandbox.reset()
        return install(BY_HAND).load(sandbox, folder / "people.csv"), math.nan

    return Contestant(BY_HAND.name, rows, load)


def measure(folder: Path, rows: int, rounds: int, latency_ms: int) -> None:
    """Run all contestants in turn, and print the table, the promises and the line of JSON."""
    machine = describe_machine()
    default_import = enter_import("connector import", folder, rows)
    limited_import = enter_import(
        f"connector import, {IN_FLIGHT} in flight", folder, rows, "--max-concurrency", str(IN_FLIGHT)
    )
    bare_loop = enter_bare_loop(f"bare aiohttp loop, {IN_FLIGHT} in flight", folder, rows)
    script = enter_script(folder, rows)
    contestants = [default_import, limited_import, bare_loop, script]
    with SandboxProcess(latency_ms=latency_ms) as sandbox:
        for _ in range(rounds):
            for contestant in contestants:
                contestant.run(sandbox)
    lines = [
        (contestant.name, *(write_number("{:,.0f}", value) for value in asdict(contestant.median).values()))
        for contestant in contestants
    ]
    print_table((f"{rows:,} rows, {latency_ms} ms away, {rounds} rounds", *_COLUMNS), lines)
    for contestant in contestants:
        if contestant.exclusion_reason is not None:
            print(f"left out: {contestant.name}: {contestant.exclusion_reason}")
    if latency_ms:
        promises = [
            at_least("share of the bound, default settings", 0.9, default_import.median.pace / _BOUND_PER_S, "{:.1%}"),
            at_least("share of the bare loop's pace", 0.9, limited_import.compare(bare_loop, "pace"), "{:.1%}"),
            at_least("times the pace of the script by hand", 2.0, default_import.compare(script, "pace"), "{:.2f} x"),
        ]
    else:
        cpu_ratio = default_import.compare(bare_loop, "cpu_us_per_row")
        promises = [
            at_least("creates/s with the ledger on the disk", 5000.0, default_import.median.per_s, "{:,.0f}"),
            at_most("CPU per row, as a multiple of the bare loop's", 2.0, cpu_ratio, "{:.2f} x"),
        ]
    print_promises(promises)
    rounds_by_name = {contestant.name: [asdict(run) for run in contestant.runs] for contestant in contestants}
    print_json("load", machine, promises, latency_ms=latency_ms, rows=rows, rounds=rounds_by_name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--fresh", action="store_true")
    options = parser.parse_args()
    if options.rows <= _START_ROWS:
        parser.error(f"--rows must be more than {_START_ROWS}")
    if options.fresh:
        remove_environments()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_people(folder / "few.csv", _START_ROWS)
        write_people(folder / "people.csv", options.rows)
        write_bodies(folder / "bodies.jsonl", options.rows)
        for latency_ms in (0, _LATENCY_MS):
            measure(folder, options.rows, options.rounds, latency_ms)


if __name__ == "__main__":
    main()
