"""The speed of `connector export` to each destination, and of a handwritten script with the package `requests`.

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
from tests.benchmarks.importing import run_connector
from tests.benchmarks.machine import describe_machine
from tests.benchmarks.other_tools import BY_HAND_EXPORT, install
from tests.benchmarks.people import BASE_ID
from tests.benchmarks.processes import CommandError, ResourceUsage
from tests.benchmarks.tables import (
    PromisedFigure,
    format_number,
    print_json,
    print_promises,
    print_table,
    promise_at_least,
    promise_at_most,
)
from tests.databases import open_mariadb, open_postgres

_PROMISED_RATE_BY_DESTINATION = {"DuckDB": 150_000.0, "Parquet": 150_000.0, "PostgreSQL": 100_000.0}  # rows/s
_PROMISED_RATIO_BY_DESTINATION = {"Parquet": 5.0, "DuckDB": 5.0, "SQLite": 4.0}
"""The promised ratio of the connector's rows/s to the script's rows/s with the same destination. Both rates include the
start of the process."""
_PROMISED_PEAK_MB = 350.0
_MIN_ROW_COUNT_FOR_PEAK = 1_000_000  # the promise of the peak memory is for exports of at least this many rows

_TARGET_NUMBERS = count(1)  # a server keeps the tables of all rounds, so each table needs its own number


@dataclass(frozen=True, slots=True)
class Target:
    """The target of an export: a path, or a URL and a table."""

    name: str
    address: str
    table: str | None = None

    @property
    def is_database(self) -> bool:
        """Whether the address is the URL of a database."""
        return "://" in self.address


TargetFactory = Callable[[int], Target]
"""A function that returns a new target of an export. The argument is the number of the target."""


@dataclass(frozen=True, slots=True)
class ExportMeasurement:
    """The measurements of one export."""

    rows_per_s: float  # over the whole process
    peak_mb: float
    cpu_us_per_row: float


@dataclass(slots=True)
class MeasurementSeries:
    """The measurements of one destination or program, or the reason why the destination or program is left out."""

    name: str
    runs: list[ExportMeasurement] = field(default_factory=list)
    exclusion_reason: str | None = None

    @property
    def median(self) -> ExportMeasurement:
        """The median of each measurement over the runs, or NaN without runs."""
        measurement_names = [measurement_field.name for measurement_field in fields(ExportMeasurement)]
        values_of_runs = ([getattr(run, name) for run in self.runs] or [float("nan")] for name in measurement_names)
        return ExportMeasurement(*map(statistics.median, values_of_runs))


def open_destinations(folder: Path, exit_stack: ExitStack) -> dict[str, TargetFactory | str]:
    """Open the destinations. Return a dict from the name of each destination to a function that makes targets. For an
    excluded destination, the value is the reason instead of a function."""
    factories: dict[str, TargetFactory | str] = {
        "DuckDB": lambda export_number: Target("DuckDB", f"duckdb:///{folder}/{export_number}.duckdb", "subscribers"),
        "Parquet": lambda export_number: Target("Parquet", f"{folder}/{export_number}.parquet"),
        "SQLite": lambda export_number: Target("SQLite", f"sqlite:///{folder}/{export_number}.db", "subscribers"),
    }
    for name, open_database in (("PostgreSQL", open_postgres), ("MariaDB", open_mariadb)):
        try:
            url = exit_stack.enter_context(open_database()).url
            parse_destination(url)
        except ConfigurationError:
            factories[name] = "the connector does not write to this database"
        except (pytest.skip.Exception, OSError) as error:
            factories[name] = f"no server: {error}"
        else:
            factories[name] = _build_factory(name, url)
    return factories


def _build_factory(name: str, url: str) -> TargetFactory:
    return lambda export_number: Target(name, url, f"subscribers_{export_number}")


def run_round(
    series_by_name: dict[str, MeasurementSeries],
    sandbox: SandboxProcess,
    folder: Path,
    row_count: int,
    factories: dict[str, TargetFactory | str],
) -> None:
    """Export once to each destination. Leave out a destination that fails."""
    for name, series in series_by_name.items():
        factory = factories[name]
        if not isinstance(factory, str) and series.exclusion_reason is None:
            try:
                series.runs.append(measure_export(factory, sandbox, folder, row_count))
            except CommandError as error:
                series.exclusion_reason = str(error)


def export_list(sandbox: SandboxProcess, target: Target, row_count: int, state_folder: Path) -> ResourceUsage:
    """Export the sandbox's list. Raise CommandError if the command fails or does not write `row_count` rows."""
    options = ("--table", target.table) if target.is_database and target.table else ()
    resource_usage, report = run_connector(sandbox, state_folder, "export", target.address, *options)
    if report["status"] != "ok" or report["rows"] != {"read": row_count, "written": row_count}:
        raise CommandError(f"the export of {row_count} rows ended with {report['status']}, {report['rows']}")
    return resource_usage


def measure_export(factory: TargetFactory, sandbox: SandboxProcess, folder: Path, row_count: int) -> ExportMeasurement:
    """Export to a new target, and remove the target. Raise CommandError if the export fails."""
    target = factory(next(_TARGET_NUMBERS))
    resource_usage = export_list(sandbox, target, row_count, folder / "state")
    _remove_file(target)
    return _build_measurement(resource_usage, row_count)


def measure_script(series: MeasurementSeries, target_pattern: str, sandbox: SandboxProcess, row_count: int) -> None:
    """Export with the script. Leave the script out if it cannot be installed or fails."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            resource_usage = install(BY_HAND_EXPORT).export(sandbox, target_pattern.format(folder))
        series.runs.append(_build_measurement(resource_usage, row_count))
    except CommandError as error:
        series.exclusion_reason = str(error)


def _build_measurement(resource_usage: ResourceUsage, row_count: int) -> ExportMeasurement:
    cpu_us_per_row = resource_usage.cpu_s / row_count * 1e6
    return ExportMeasurement(row_count / resource_usage.wall_s, resource_usage.peak_mb, cpu_us_per_row)


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
    machine_description = describe_machine()
    json_values: dict[str, object] = {}
    series_by_row_count: dict[int, dict[str, MeasurementSeries]] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as exit_stack:
        factories = open_destinations(Path(folder), exit_stack)
        for row_count in options.rows:
            exclusion_reason_by_name = {
                name: factory if isinstance(factory, str) else None for name, factory in factories.items()
            }
            series_by_name = series_by_row_count[row_count] = {
                name: MeasurementSeries(name, exclusion_reason=reason)
                for name, reason in exclusion_reason_by_name.items()
            }
            with open_sandbox(row_count) as sandbox:
                for _ in range(options.rounds):
                    run_round(series_by_name, sandbox, Path(folder), row_count, factories)
            print_series(f"{row_count:,} rows, {options.rounds} rounds", list(series_by_name.values()))
            json_values[f"of_{row_count}"] = [asdict(series) for series in series_by_name.values()]
        script_series = (
            compare_with_script(options.others, options.rounds, Path(folder), factories) if options.others else {}
        )
    json_values["others"] = [asdict(series) for series in script_series.values()]
    promises = build_promises(
        series_by_row_count[max(series_by_row_count)], max(series_by_row_count)
    ) + build_ratio_promises(script_series, options.others)
    print_promises(promises)
    print_json("export", machine_description, promises, rows=options.rows, others_rows=options.others, **json_values)


@contextmanager
def open_sandbox(row_count: int) -> Iterator[SandboxProcess]:
    """Start a sandbox with this number of subscribers, and export them once. The first request sorts the subscribers,
    so no measured export contains the time of the sorting."""
    with SandboxProcess() as sandbox, tempfile.TemporaryDirectory() as folder_name:
        sandbox.seed(row_count, base_id=BASE_ID)
        export_list(sandbox, Target("warm-up", f"{folder_name}/people.parquet"), row_count, Path(folder_name) / "state")
        yield sandbox


def compare_with_script(
    row_count: int, round_count: int, folder: Path, factories: dict[str, TargetFactory | str]
) -> dict[str, MeasurementSeries]:
    """Export with the connector and with the script in turn, so that other load on the machine slows both."""
    pattern_by_destination = {
        "Parquet": "{}/people.parquet",
        "DuckDB": "{}/people.duckdb",
        "SQLite": "sqlite:///{}/people.db",
    }
    series_by_name = {name: MeasurementSeries(f"connector export, {name}") for name in _PROMISED_RATIO_BY_DESTINATION}
    series_by_name |= {f"by hand, {name}": MeasurementSeries(f"by hand, {name}") for name in pattern_by_destination}
    with open_sandbox(row_count) as sandbox:
        for _ in range(round_count):
            for name in _PROMISED_RATIO_BY_DESTINATION:
                factory = factories[name]
                assert not isinstance(factory, str), factory  # these destinations are files, which are always available
                series_by_name[name].runs.append(measure_export(factory, sandbox, folder, row_count))
            for name, target_pattern in pattern_by_destination.items():
                measure_script(series_by_name[f"by hand, {name}"], target_pattern, sandbox, row_count)
    print()
    print_series(f"{row_count:,} rows, {round_count} rounds", list(series_by_name.values()))
    return series_by_name


def print_series(title: str, series_list: list[MeasurementSeries]) -> None:
    header = (title, "rows/s", "peak MB", "CPU µs/row")
    print_table(header, [_build_table_row(series) for series in series_list if series.exclusion_reason is None])
    for series in series_list:
        if series.exclusion_reason is not None:
            print(f"{series.name} was left out: {series.exclusion_reason}")


def _build_table_row(series: MeasurementSeries) -> tuple[str, ...]:
    median = series.median
    median_values = (median.rows_per_s, median.peak_mb, median.cpu_us_per_row)
    formats_and_values = zip(("{:,.0f}", "{:.0f}", "{:.1f}"), median_values, strict=True)
    return (series.name, *(format_number(number_format, value) for number_format, value in formats_and_values))


def build_promises(series_by_name: dict[str, MeasurementSeries], row_count: int) -> list[PromisedFigure]:
    """Return the promises about the speed to each destination, and about the peak memory. `row_count` is the number of
    exported rows. If a value was not measured, the value is NaN."""
    promises = [
        promise_at_least(
            f"rows/s to {name}, whole process, {row_count:,} rows",
            min_rate,
            series_by_name[name].median.rows_per_s,
            "{:,.0f}",
        )
        for name, min_rate in _PROMISED_RATE_BY_DESTINATION.items()
    ]
    peaks_mb = [series.median.peak_mb for series in series_by_name.values() if series.runs]
    peak_mb = max(peaks_mb) if peaks_mb and row_count >= _MIN_ROW_COUNT_FOR_PEAK else float("nan")
    promises.append(promise_at_most(f"peak MB, {row_count:,} rows", _PROMISED_PEAK_MB, peak_mb, "{:.0f}"))
    return promises


def build_ratio_promises(series_by_name: dict[str, MeasurementSeries], row_count: int) -> list[PromisedFigure]:
    """Return the promises about the speed compared with the handwritten script. A ratio is NaN without the script."""
    empty_series = MeasurementSeries("nothing")
    return [
        promise_at_least(
            f"times the script's speed, to {name}, {row_count:,} rows",
            min_ratio,
            series_by_name.get(name, empty_series).median.rows_per_s
            / series_by_name.get(f"by hand, {name}", empty_series).median.rows_per_s,
            "{:.1f}",
        )
        for name, min_ratio in _PROMISED_RATIO_BY_DESTINATION.items()
    ]


if __name__ == "__main__":
    main()
