"""The speed and the cost of creates: `connector import`, a bare aiohttp loop with the same bodies, and a simple script.

`python -m tests.benchmarks.load [--rows N] [--rounds N] [--fresh]` runs the clients in turn against one sandbox
in its own process, without latency and with 20 ms. The benchmark prints two tables and two lines of JSON. The project
promises five figures:

- Without latency: 5,000 creates/s with the ledger on the disk.
- Without latency: at most twice the processor time of the bare loop for each row.
- With latency and the default settings: 90 % of 3,200 creates/s (64 requests in flight divided by 20 ms).
- With latency and 64 requests in flight: 90 % of the bare loop.
- With latency: twice the speed of the handwritten script.

Each speed is computed from the times in the sandbox's truth log, so it does not contain the start of a process.
`steady` leaves out the first two seconds, in which an import finds its rate. The processor time of an import is the
time for all rows minus the time for a few rows. The environment of the script is made once and kept in the user's
cache. `--fresh` makes a new environment."""

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
from tests.benchmarks.bare_loop import MAX_IN_FLIGHT
from tests.benchmarks.creates import read_creates
from tests.benchmarks.importing import build_environment, import_file
from tests.benchmarks.machine import describe_machine
from tests.benchmarks.other_tools import BY_HAND, install, remove_environments
from tests.benchmarks.people import write_bodies, write_people
from tests.benchmarks.processes import CommandError, ResourceUsage, run_process
from tests.benchmarks.tables import (
    format_number,
    print_json,
    print_promises,
    print_table,
    promise_at_least,
    promise_at_most,
)

_LATENCY_MS = 20
_MAX_RATE = MAX_IN_FLIGHT * 1000 / _LATENCY_MS  # creates/s
_PACE_SEARCH_S = 2.0  # an import finds its rate within this time after its first create
_FEW_ROW_COUNT = 1_000  # rows of the import that measures the start. Fewer rows would not use each part of a load.

_COLUMN_TITLES = ("creates/s", "steady", "whole process", "most in flight", "CPU µs/row")


@dataclass(frozen=True, slots=True)
class LoadMeasurement:
    """The measurements of one run. The rates are in creates/s."""

    creates_per_s: float  # from the first create to the last
    steady_creates_per_s: float  # without the first `_PACE_SEARCH_S` seconds; NaN for a short run
    creates_per_s_with_start: float  # over the whole process, with its start and its end
    peak_in_flight: float
    cpu_us_per_row: float  # processor time without the start of the process, or NaN if the start was not measured

    @property
    def pace(self) -> float:
        """The steady rate, or the rate of the whole run if the run was too short for a steady rate."""
        return self.creates_per_s if math.isnan(self.steady_creates_per_s) else self.steady_creates_per_s


@dataclass(slots=True)
class MeasuredClient:
    """A client that creates `row_count` people, and its measurements.

    `load_people` runs the client, and returns the resources and the processor time (s) of its process. The processor
    time does not include the start of the process. `exclusion_reason` is the message of a failure. A client that has
    failed has no results.
    """

    name: str
    row_count: int
    load_people: Callable[[SandboxProcess], tuple[ResourceUsage, float]]
    measurements: list[LoadMeasurement] = field(default_factory=list)
    exclusion_reason: str | None = None

    def run(self, sandbox: SandboxProcess) -> None:
        """Let the client create the people in an empty sandbox, and measure the client. If the client does not create
        each person exactly once, set `exclusion_reason`."""
        if self.exclusion_reason is not None:
            return
        try:
            resource_usage, cpu_s = self.load_people(sandbox)
        except CommandError as error:
            self.exclusion_reason = str(error)
            return
        creates = read_creates(sandbox)
        if len(creates.stored_times) != self.row_count or creates.duplicate_count:
            self.exclusion_reason = (
                f"{len(creates.stored_times)} of {self.row_count} created, {creates.duplicate_count} of them twice"
            )
            return
        rates = creates.compute_rate(), creates.compute_rate(_PACE_SEARCH_S), self.row_count / resource_usage.wall_s
        self.measurements.append(
            LoadMeasurement(*rates, sandbox.stats()["peak_in_flight"], cpu_s / self.row_count * 1e6)
        )

    @property
    def median(self) -> LoadMeasurement:
        """The median of each measurement over the runs, or NaN for a client that was left out."""
        measurements = [] if self.exclusion_reason is not None else self.measurements
        values_of_runs = (
            [getattr(measurement, measurement_field.name) for measurement in measurements] or [math.nan]
            for measurement_field in fields(LoadMeasurement)
        )
        return LoadMeasurement(*map(statistics.median, values_of_runs))

    def compute_median_ratio(self, other_client: "MeasuredClient", measurement_field: str) -> float:
        """Return the median ratio of this client's measurement to the other client's measurement in the same round."""
        if self.exclusion_reason is not None or other_client.exclusion_reason is not None:
            return math.nan
        measurement_pairs = zip(self.measurements, other_client.measurements, strict=True)
        ratios: list[float] = [
            getattr(measurement, measurement_field) / getattr(other_measurement, measurement_field)
            for measurement, other_measurement in measurement_pairs
        ]
        return statistics.median(ratios)


def build_import_client(name: str, folder: Path, row_count: int, *options: str) -> MeasuredClient:
    """Return the client `connector import`, which starts with a new ledger."""

    def import_into_empty_sandbox(sandbox: SandboxProcess, file_name: str) -> ResourceUsage:
        sandbox.reset()
        with tempfile.TemporaryDirectory() as state_folder:
            return import_file(sandbox, folder / file_name, Path(state_folder), *options).resource_usage

    def load_people(sandbox: SandboxProcess) -> tuple[ResourceUsage, float]:
        start_cpu_s = import_into_empty_sandbox(sandbox, "few.csv").cpu_s
        resource_usage = import_into_empty_sandbox(sandbox, "people.csv")
        return resource_usage, (resource_usage.cpu_s - start_cpu_s) * row_count / (row_count - _FEW_ROW_COUNT)

    return MeasuredClient(name, row_count, load_people)


def build_bare_loop_client(name: str, folder: Path, row_count: int) -> MeasuredClient:
    """Return the bare aiohttp loop as a client. The loop itself measures the processor time of its requests."""

    def load_people(sandbox: SandboxProcess) -> tuple[ResourceUsage, float]:
        sandbox.reset()
        command = (sys.executable, "-m", "tests.benchmarks.bare_loop", folder / "bodies.jsonl")
        resource_usage = run_process(command, build_environment(sandbox))
        return resource_usage, float(json.loads(resource_usage.stdout)["cpu_s"])

    return MeasuredClient(name, row_count, load_people)


def build_script_client(folder: Path, row_count: int) -> MeasuredClient:
    """Install the handwritten script, and return the script as a client."""

    def load_people(sandbox: SandboxProcess) -> tuple[ResourceUsage, float]:
        sandbox.reset()
        return install(BY_HAND).load(sandbox, folder / "people.csv"), math.nan

    return MeasuredClient(BY_HAND.name, row_count, load_people)


def measure_clients(folder: Path, row_count: int, round_count: int, latency_ms: int) -> None:
    """Run all clients in turn, and print the table, the promises and the line of JSON."""
    machine_description = describe_machine()
    default_client = build_import_client("connector import", folder, row_count)
    limited_client = build_import_client(
        f"connector import, {MAX_IN_FLIGHT} in flight", folder, row_count, "--max-concurrency", str(MAX_IN_FLIGHT)
    )
    bare_loop_client = build_bare_loop_client(f"bare aiohttp loop, {MAX_IN_FLIGHT} in flight", folder, row_count)
    script_client = build_script_client(folder, row_count)
    clients = [default_client, limited_client, bare_loop_client, script_client]
    with SandboxProcess(latency_ms=latency_ms) as sandbox:
        for _ in range(round_count):
            for client in clients:
                client.run(sandbox)
    rows = [
        (client.name, *(format_number("{:,.0f}", value) for value in asdict(client.median).values()))
        for client in clients
    ]
    print_table((f"{row_count:,} rows, {latency_ms} ms latency, {round_count} rounds", *_COLUMN_TITLES), rows)
    for client in clients:
        if client.exclusion_reason is not None:
            print(f"left out: {client.name}: {client.exclusion_reason}")
    if latency_ms:
        promises = [
            promise_at_least(
                f"speed as a share of {_MAX_RATE:,.0f} creates/s, default settings",
                0.9,
                default_client.median.pace / _MAX_RATE,
                "{:.1%}",
            ),
            promise_at_least(
                "share of the bare loop's speed",
                0.9,
                limited_client.compute_median_ratio(bare_loop_client, "pace"),
                "{:.1%}",
            ),
            promise_at_least(
                "times the speed of the handwritten script",
                2.0,
                default_client.compute_median_ratio(script_client, "pace"),
                "{:.2f} x",
            ),
        ]
    else:
        cpu_ratio = default_client.compute_median_ratio(bare_loop_client, "cpu_us_per_row")
        promises = [
            promise_at_least(
                "creates/s with the ledger on the disk", 5000.0, default_client.median.creates_per_s, "{:,.0f}"
            ),
            promise_at_most("CPU time per row, as a multiple of the bare loop's", 2.0, cpu_ratio, "{:.2f} x"),
        ]
    print_promises(promises)
    measurements_by_client = {
        client.name: [asdict(measurement) for measurement in client.measurements] for client in clients
    }
    print_json(
        "load", machine_description, promises, latency_ms=latency_ms, rows=row_count, rounds=measurements_by_client
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--fresh", action="store_true")
    options = parser.parse_args()
    if options.rows <= _FEW_ROW_COUNT:
        parser.error(f"--rows must be more than {_FEW_ROW_COUNT}")
    if options.fresh:
        remove_environments()
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        write_people(folder / "few.csv", _FEW_ROW_COUNT)
        write_people(folder / "people.csv", options.rows)
        write_bodies(folder / "bodies.jsonl", options.rows)
        for latency_ms in (0, _LATENCY_MS):
            measure_clients(folder, options.rows, options.rounds, latency_ms)


if __name__ == "__main__":
    main()
