"""Ways to load the same people, what each run of them measured, and why one was left out, if it was."""

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
from tests.benchmarks.processes import CommandError, Spent, run_process

PACE_FOUND_S = 2.0
"""After its first create an import has found its pace."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One run, in creates/s: from the first to the last, the same without the time in which an import finds its pace,
    and over the whole process, its start and its end among it."""

    per_s: float
    steady_per_s: float
    whole_per_s: float
    peak_in_flight: float
    cpu_us_per_row: float  # of the whole process

    @property
    def pace(self) -> float:
        """The steady one, of a run that was long enough to have one."""
        return self.per_s if math.isnan(self.steady_per_s) else self.steady_per_s


@dataclass(slots=True)
class Contestant:
    """One way to load `rows` people from the file `path`."""

    name: str
    path: Path
    rows: int
    load: Callable[[SandboxProcess, Path], Spent]
    runs: list[Measured] = field(default_factory=list)
    left_out: str | None = None

    def run(self, sandbox: SandboxProcess) -> None:
        """Load the file into the emptied sandbox; whoever fails, or does not create each of them once, is left out."""
        if self.left_out is not None:
            return
        sandbox.reset()
        try:
            spent = self.load(sandbox, self.path)
        except CommandError as error:
            self.left_out = str(error)
            return
        creates = read_creates(sandbox)
        if len(creates.times) != self.rows or creates.duplicates:
            self.left_out = f"it created {len(creates.times)} for {self.rows} rows, {creates.duplicates} repeatedly"
            return
        paces = creates.compute_rate(), creates.compute_rate(PACE_FOUND_S), self.rows / spent.wall_s
        self.runs.append(Measured(*paces, sandbox.stats()["peak_in_flight"], spent.cpu_s / self.rows * 1e6))

    @property
    def median(self) -> Measured:
        """Of its runs, each figure for itself; NaN if it was left out."""
        runs = [] if self.left_out is not None else self.runs
        values = ([getattr(run, figure.name) for run in runs] or [float("nan")] for figure in fields(Measured))
        return Measured(*map(statistics.median, values))


def enter_import(name: str, path: Path, rows: int, *options: str) -> Contestant:
    """`connector import` with a fresh ledger."""

    def load(sandbox: SandboxProcess, file: Path) -> Spent:
        with tempfile.TemporaryDirectory() as state:
            return import_file(sandbox, file, Path(state), *options).spent

    return Contestant(name, path, rows, load)


def enter_bare_loop(name: str, bodies: Path, rows: int) -> Contestant:
    """The bare aiohttp loop, with the bodies of those people."""

    def load(sandbox: SandboxProcess, file: Path) -> Spent:
        return run_process([sys.executable, "-m", "tests.benchmarks.bare_loop", file], build_environment(sandbox))

    return Contestant(name, bodies, rows, load)


def enter_tool(tool: Tool, path: Path, rows: int) -> Contestant:
    """Another tool, installed if need be; one that cannot be is left out."""
    try:
        installed = install(tool)
    except CommandError as error:
        return Contestant(tool.name, path, rows, _load_nothing, left_out=f"it could not be installed: {error}")
    return Contestant(installed.name, path, rows, installed.load)


def _load_nothing(_sandbox: SandboxProcess, _file: Path) -> Spent:
    raise CommandError("it is not installed")
