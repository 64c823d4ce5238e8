"""The speed of `connector export` to each destination, and of a handwritten script with requests and pandas.

`python -m tests.benchmarks.export [--rows N …] [--rounds N] [--others N]` seeds a sandbox with N people and exports
them to a new target in each round. It prints a table for each N, the promises, and a line of JSON. The pace is measured
over the whole process with its start, and the kernel measures the peak memory. The handwritten script and the connector
take turns to export `--others` people to Parquet, DuckDB and SQLite (0: no script).
"""

import argparse
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, fields
from itertools import count
from pathlib import Path

import pytest

from connector.errors import ConfigurationError
from connector.sandbox import SandboxProcess
from connector.warehouse.destination import parse_destination
from tests.benchmarks.exporting import Target, export_list
from tests.benchmarks.machine import describe_machine
from tests.benchmarks.other_tools import BY_HAND_EXPORT, install
from tests.benchmarks.people import BASE_ID
from tests.benchmarks.processes import CommandError, Usage
from tests.benchmarks.tables import Promise, at_least, at_most, print_json, print_promises, print_table, write_number
from tests.databases import open_mariadb, open_postgres

_PROMISED_RATES = {"DuckDB": 150_000.0, "Parquet": 150_000.0, "PostgreSQL": 100_000.0}  # rows/s
_PROMISED_RATES_BY_HAND = {"Parquet": 5.0, "DuckDB": 5.0, "SQLite": 4.0}
"""The promised ratio of the connector's pace to the script's pace with the same destination, start included."""
_PROMISED_PEAK_MB = 350.0
_PEAK_ROWS = 1_000_000  # rows of the export whose peak memory is promised

_TARGET_NUMBERS = count(1)  # a server keeps the tables of all rounds, so each table needs its own number

TargetFactory = Callable[[int], Target]
"""Returns a new target with this number."""


@dataclass(frozen=True, slots=True)
class ExportMeasurement:
    """The measurements of one export."""

    per_s: float  # rows/s over the whole process
    peak_mb: float
    cpu_us_per_row: float


@dataclass(slots=True)
class Entry:
    """The measurements of a destination or a program, or the reason why it is left out."""

    name: str
    runs: list[ExportMeasurement] = field(default_factory=list)
    exclusion_reason: str | None = None

    @property
    def median(self) -> ExportMeasurement:
        """The median of each measurement over the runs; NaN without runs."""
        names = [figure.name for figure in fields(ExportMeasurement)]
        values = ([getattr(run, name) for run in self.runs] or [float("nan")] for name in names)
        return ExportMeasurement(*map(statistics.median, values))


def open_destinations(folder: Path, stack: ExitStack) -> dict[str, TargetFactory | str]:
    """Return a factory of targets for each destination, by name, or the reason why the destination is left out."""
    factories: dict[str, TargetFactory | str] = {
        "DuckDB": lambda number: Target("DuckDB", f"duckdb:///{folder}/{number}.duckdb", "subscribers"),
        "Parquet": lambda number: Target("Parquet", f"{folder}/{number}.parquet"),
        "SQLite": lambda number: Target("SQLite", f"sqlite:///{folder}/{number}.db", "subscribers"),
    }
    for name, open_database in (("PostgreSQL", open_postgres), ("MariaDB", open_mariadb)):
        try:
            url = stack.enter_context(open_database()).url
            parse_destination(url)
        except ConfigurationError:
            factories[name] = "the connector does not write to this database"
        except (pytest.skip.Exception, OSError) as error:
            factories[name] = f"no server: {error}"
        else:
            factories[name] = _build_factory(name, url)
    return factories


def _build_factory(name: str, url: str) -> TargetFactory:
    return lambda number: Target(name, url, f"subscribers_{number}")


def run_round(
    entries: dict[str, Entry],
    sandbox: SandboxProcess,
    folder: Path,
    rows: int,
    factories: dict[str, TargetFactory | str],
) -> None:
    """Export once to each destination. Leave out a destination that fails."""
    for name, entry in entries.items():
        factory = factories[name]
        if not isinstance(factory, str) and entry.exclusion_reason is None:
            try:
                entry.runs.append(measure_export(factory, sandbox, folder, rows))
            except CommandError as error:
                entry.exclusion_reason = str(error)


def measure_export(factory: TargetFactory, sandbox: SandboxProcess, folder: Path, rows: int) -> ExportMeasurement:
    """Export to a new target, and remove the target. Raise CommandError if the export fails."""
    target = factory(next(_TARGET_NUMBERS))
    usage = export_list(sandbox, target, rows, folder / "state")
    _remove_file(target)
    return _measure(usage, rows)


def measure_by_hand(entry: Entry, target_pattern: str, sandbox: SandboxProcess, rows: int) -> None:
    """Export with the script. Leave the script out if it cannot be installed or fails."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            usage = install(BY_HAND_EXPORT).export(sandbox, target_pattern.format(folder))
        entry.runs.append(_measure(usage, rows))
    except CommandError as error:
        entry.exclusion_reason = str(error)


def _measure(usage: Usage, rows: int) -> ExportMeasurement:
    peak_mb = float("nan") if usage.peak_bytes is None else usage.peak_bytes / 1e6
    return ExportMeasurement(rows / usage.wall_s, peak_mb, usage.cpu_s / rows * 1e6)


def _remove_file(target: Target) -> None:
    """Remove the file of a target. Tables on a server are removed with their database."""
    path = Path(target.address.partition(":///")[2] if target.is_database else target.address)
    if target.name not in ("PostgreSQL", "MariaDB"):
        path.unlink(missing_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[200_000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--others", type=int, default=200_000, help="number of people that the handwritten script exports; 0: no script"
    )
    options = parser.parse_args()
    machine = describe_machine()
    values: dict[str, object] = {}
    entries_by_size: dict[int, dict[str, Entry]] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        factories = open_destinations(Path(folder), stack)
        for rows in options.rows:
            exclusion_reason = {
                name: factory if isinstance(factory, str) else None for name, factory in factories.items()
            }
            entries = entries_by_size[rows] = {
                name: Entry(name, exclusion_reason=reason) for name, reason in exclusion_reason.items()
            }
            with open_sandbox(rows) as sandbox:
                for _ in range(options.rounds):
                    run_round(entries, sandbox, Path(folder), rows, factories)
            show_table(f"{rows:,} rows, {options.rounds} rounds", list(entries.values()))
            values[f"of_{rows}"] = [asdict(entry) for entry in entries.values()]
        script_entries = (
            compare_with_script(options.others, options.rounds, Path(folder), factories) if options.others else {}
        )
    values["others"] = [asdict(entry) for entry in script_entries.values()]
    promises = build_promises(entries_by_size[max(entries_by_size)], max(entries_by_size)) + build_ratios(
        script_entries, options.others
    )
    print_promises(promises)
    print_json("export", machine, promises, rows=options.rows, others_rows=options.others, **values)


@contextmanager
def open_sandbox(rows: int) -> Iterator[SandboxProcess]:
    """Start a sandbox with this number of subscribers. A first request has already sorted the subscribers."""
    with SandboxProcess() as sandbox, tempfile.TemporaryDirectory() as name:
        sandbox.seed(rows, base_id=BASE_ID)
        export_list(sandbox, Target("warm-up", f"{name}/people.parquet"), rows, Path(name) / "state")
        yield sandbox


def compare_with_script(
    rows: int, rounds: int, folder: Path, factories: dict[str, TargetFactory | str]
) -> dict[str, Entry]:
    """Export by the connector and by the script in turns, so that other work of the machine slows both down."""
    target_patterns = {"Parquet": "{}/people.parquet", "DuckDB": "{}/people.duckdb", "SQLite": "sqlite:///{}/people.db"}
    entries = {name: Entry(f"connector export, {name}") for name in _PROMISED_RATES_BY_HAND}
    entries |= {f"by hand, {name}": Entry(f"by hand, {name}") for name in target_patterns}
    with open_sandbox(rows) as sandbox:
        for _ in range(rounds):
            for name in _PROMISED_RATES_BY_HAND:
                factory = factories[name]
                assert not isinstance(factory, str), factory  # these destinations are files, which are always available
                entries[name].runs.append(measure_export(factory, sandbox, folder, rows))
            for name, target_pattern in target_patterns.items():
                measure_by_hand(entries[f"by hand, {name}"], target_pattern, sandbox, rows)
    print()
    show_table(f"{rows:,} rows, {rounds} rounds", list(entries.values()))
    return entries


def show_table(title: str, entries: list[Entry]) -> None:
    header = (title, "rows/s", "peak MB", "CPU µs/row")
    print_table(header, [_build_line(entry) for entry in entries if entry.exclusion_reason is None])
    for entry in entries:
        if entry.exclusion_reason is not None:
            print(f"{entry.name} was left out: {entry.exclusion_reason}")


def _build_line(entry: Entry) -> tuple[str, ...]:
    median = entry.median
    numbers = (median.per_s, median.peak_mb, median.cpu_us_per_row)
    formats = zip(("{:,.0f}", "{:.0f}", "{:.1f}"), numbers, strict=True)
    return (entry.name, *(write_number(number_format, number) for number_format, number in formats))


def build_promises(entries: dict[str, Entry], rows: int) -> list[Promise]:
    """Return the promises for the largest number of rows. A value that was not measured is NaN."""
    promises = [
        at_least(f"rows/s to {name}, whole process, {rows:,} rows", min_rate, entries[name].median.per_s, "{:,.0f}")
        for name, min_rate in _PROMISED_RATES.items()
    ]
    peaks = [entry.median.peak_mb for entry in entries.values() if entry.runs]
    peak_mb = max(peaks) if peaks and rows >= _PEAK_ROWS else float("nan")
    promises.append(at_most(f"peak MB, {rows:,} rows", _PROMISED_PEAK_MB, peak_mb, "{:.0f}"))
    return promises


def build_ratios(entries: dict[str, Entry], rows: int) -> list[Promise]:
    """Return the promised ratios to the handwritten script. A ratio is NaN without the script."""
    missing_entry = Entry("nothing")
    return [
        at_least(
            f"times the script's pace, to {name}, {rows:,} rows",
            min_rate,
            entries.get(name, missing_entry).median.per_s / entries.get(f"by hand, {name}", missing_entry).median.per_s,
            "{:.1f}",
        )
        for name, min_rate in _PROMISED_RATES_BY_HAND.items()
    ]


if __name__ == "__main__":
    main()
