"""The contestants of the load benchmarks. Each loads the same people in its own way, and has its measurements.

A contestant that fails is left out, and has the reason.
"""

import math
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path

from connector.sandbox import SandboxProcess
from tests.benchmarks.creates import read_creates
from tests.benchmarks.importing import build_environment, import_file
from tests.benchmarks.other_tools import Tool, install
from tests.benchmarks.processes import CommandError, Usage, run_process

PACE_FOUND_S = 2.0
"""An import finds its pace within this time after its first create."""


@dataclass(frozen=True, slots=True)
class LoadMeasurement:
    """The measurements of one run. The rates are in creates/s."""

    per_s: float  # from the first create to the last
    steady_per_s: float  # the same rate without the first `PACE_FOUND_S` seconds
    whole_per_s: float  # over the whole process, with its start and its end
    peak_in_flight: float
    cpu_us_per_row: float  # processor time of the whole process

    @property
    def pace(self) -> float:
        """The steady rate, or the rate of the whole run if the run was too short for a steady rate."""
        return self.per_s if math.isnan(self.steady_per_s) else self.steady_per_s


@dataclass(slots=True)
class Contestant:
    """One way to load `rows` people from the file `path`."""

    name: str
    path: Path
    rows: int
    load: Callable[[SandboxProcess, Path], Usage]
    runs: list[LoadMeasurement] = field(default_factory=list)
    exclusion_reason: str | None = None

    def run(self, sandbox: SandboxProcess) -> None:
        """Load the file into the emptied sandbox. Leave the contestant out if it does not create each person once."""
        if self.exclusion_reason is not None:
            return
        sandbox.reset()
        try:
            usage = self.load(sandbox, self.path)
        except CommandError as error:
            self.exclusion_reason = str(error)
            return
        creates = read_creates(sandbox)
        if len(creates.times) != self.rows or creates.duplicates:
            self.exclusion_reason = (
                f"{self.rows} rows made {len(creates.times)} subscribers, {creates.duplicates} of them duplicates"
            )
            return
        paces = creates.compute_rate(), creates.compute_rate(PACE_FOUND_S), self.rows / usage.wall_s
        self.runs.append(LoadMeasurement(*paces, sandbox.stats()["peak_in_flight"], usage.cpu_s / self.rows * 1e6))

    @property
    def median(self) -> LoadMeasurement:
        """The median of each measurement over the runs; NaN for a contestant that was left out."""
        runs = [] if self.exclusion_reason is not None else self.runs
        values = ([getattr(run, figure.name) for run in runs] or [float("nan")] for figure in fields(LoadMeasurement))
        return LoadMeasurement(*map(statistics.median, values))


def enter_import(name: str, path: Path, rows: int, *options: str) -> Contestant:
    """Return `connector import` with a new ledger as a contestant."""

    def load(sandbox: SandboxProcess, file: Path) -> Usage:
        with tempfile.TemporaryDirectory() as state:
            return import_file(sandbox, file, Path(state), *options).usage

    return Contestant(name, path, rows, load)


def enter_bare_loop(name: str, bodies: Path, rows: int) -> Contestant:
    """Return the bare aiohttp loop as a contestant. `bodies` is a file with the request bodies of the people."""

    def load(sandbox: SandboxProcess, file: Path) -> Usage:
        return run_process([sys.executable, "-m", "tests.benchmarks.bare_loop", file], build_environment(sandbox))

    return Contestant(name, bodies, rows, load)


def enter_tool(tool: Tool, path: Path, rows: int) -> Contestant:
    """Install another tool, and return it as a contestant. If the installation fails, the contestant is left out."""
    try:
        client = install(tool)
    except CommandError as error:
        return Contestant(tool.name, path, rows, _refuse_to_load, exclusion_reason=f"installation failed: {error}")
    return Contestant(client.name, path, rows, client.load)


def _refuse_to_load(_sandbox: SandboxProcess, _file: Path) -> Usage:
    raise CommandError("the tool is not installed")
