"""The speed of `connector export` to each destination, beside a script by hand with requests and pandas.

`python -m tests.benchmarks.export [--rows N …] [--rounds N] [--others N]` seeds a sandbox with N people and exports
them to a new target in each round. It prints a table for each N, the promises, and a line of JSON. The pace is that of
the whole process with its start, and the peak of memory is the kernel's count. The script by hand exports `--others`
people to Parquet, DuckDB and SQLite in turns with the connector (0: no script).
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
from tests.benchmarks.processes import CommandError, Spent
from tests.benchmarks.tables import Promise, at_least, at_most, print_json, print_promises, print_table, write_number
from tests.databases import open_mariadb, open_postgres

_PROMISED = {"DuckDB": 150_000.0, "Parquet": 150_000.0, "PostgreSQL": 100_000.0}  # rows/s
_PROMISED_BY_HAND = {"Parquet": 5.0, "DuckDB": 5.0, "SQLite": 4.0}
"""How many times as fast as the script by hand that exports to the same, start included."""
_PROMISED_PEAK_MB = 350.0
_PEAK_ROWS = 1_000_000
"""The promise of memory is for so many."""

_NUMBERS = count(1)  # of targets: a server keeps those of all rounds

Place = Callable[[int], Target]
"""A new target for the export of that number."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One export, in rows/s over the whole process."""

    per_s: float
    peak_mb: float
    cpu_us_per_row: float


@dataclass(slots=True)
class Entry:
    """A destination, or a tool with one: what was measured of each number of rows, and why it was left out."""

    name: str
    runs: list[Measured] = field(default_factory=list)
    left_out: str | None = None

    @property
    def median(self) -> Measured:
        """Of its runs, each figure for itself; NaN without any."""
        names = [figure.name for figure in fields(Measured)]
        values = ([getattr(run, name) for run in self.runs] or [float("nan")] for name in names)
        return Measured(*map(statistics.median, values))


def open_places(folder: Path, stack: ExitStack) -> dict[str, Place | str]:
    """Each destination by its name, or why it cannot be had."""
    places: dict[str, Place | str] = {
        "DuckDB": lambda number: Target("DuckDB", f"duckdb:///{folder}/{number}.duckdb", "subscribers"),
        "Parquet": lambda number: Target("Parquet", f"{folder}/{number}.parquet"),
        "SQLite": lambda number: Target("SQLite", f"sqlite:///{folder}/{number}.db", "subscribers"),
    }
    for name, open_database in (("PostgreSQL", open_postgres), ("MariaDB", open_mariadb)):
        try:
            url = stack.enter_context(open_database()).url
            parse_destination(url)
        except ConfigurationError:
            places[name] = "the connector does not write to it yet"
        except (pytest.skip.Exception, OSError) as error:
            places[name] = f"there is none: {error}"
        else:
            places[name] = _build_place(name, url)
    return places


def _build_place(name: str, url: str) -> Place:
    return lambda number: Target(name, url, f"subscribers_{number}")


def run_round(
    entries: dict[str, Entry], sandbox: SandboxProcess, folder: Path, rows: int, places: dict[str, Place | str]
) -> None:
    """Export once to each destination; one that fails is left out."""
    for name, entry in entries.items():
        place = places[name]
        if not isinstance(place, str) and entry.left_out is None:
            try:
                entry.runs.append(measure_export(place, sandbox, folder, rows))
            except CommandError as error:
                entry.left_out = str(error)


def measure_export(place: Place, sandbox: SandboxProcess, folder: Path, rows: int) -> Measured:
    """Export to a new target, and remove it. Raises CommandError."""
    target = place(next(_NUMBERS))
    spent = export_list(sandbox, target, rows, folder / "state")
    _remove(target)
    return _measure(spent, rows)


def measure_by_hand(entry: Entry, place: str, sandbox: SandboxProcess, rows: int) -> None:
    """Export by the script; a script that cannot be installed, or fails, is left out."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            spent = install(BY_HAND_EXPORT).export(sandbox, place.format(folder))
        entry.runs.append(_measure(spent, rows))
    except CommandError as error:
        entry.left_out = str(error)


def _measure(spent: Spent, rows: int) -> Measured:
    peak_mb = float("nan") if spent.peak_bytes is None else spent.peak_bytes / 1e6
    return Measured(rows / spent.wall_s, peak_mb, spent.cpu_s / rows * 1e6)


def _remove(target: Target) -> None:
    """Room for the next; tables go with their database."""
    path = Path(target.place.partition(":///")[2] if target.is_database else target.place)
    if target.name not in ("PostgreSQL", "MariaDB"):
        path.unlink(missing_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[200_000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--others", type=int, default=200_000, help="people that the script by hand exports; 0: none")
    options = parser.parse_args()
    machine = describe_machine()
    values: dict[str, object] = {}
    by_size: dict[int, dict[str, Entry]] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        places = open_places(Path(folder), stack)
        for rows in options.rows:
            left_out = {name: place if isinstance(place, str) else None for name, place in places.items()}
            entries = by_size[rows] = {name: Entry(name, left_out=reason) for name, reason in left_out.items()}
            with seeded(rows) as sandbox:
                for _ in range(options.rounds):
                    run_round(entries, sandbox, Path(folder), rows, places)
            show_table(f"{rows:,} rows, {options.rounds} rounds", list(entries.values()))
            values[f"of_{rows}"] = [asdict(entry) for entry in entries.values()]
        others = measure_others(options.others, options.rounds, Path(folder), places) if options.others else {}
    values["others"] = [asdict(entry) for entry in others.values()]
    promises = build_promises(by_size[max(by_size)], max(by_size)) + build_ratios(others, options.others)
    print_promises(promises)
    print_json("export", machine, promises, rows=options.rows, others_rows=options.others, **values)


@contextmanager
def seeded(rows: int) -> Iterator[SandboxProcess]:
    """A sandbox with so many people, which somebody has asked for before: it has them in order by then."""
    with SandboxProcess() as sandbox, tempfile.TemporaryDirectory() as name:
        sandbox.seed(rows, base_id=BASE_ID)
        export_list(sandbox, Target("warm-up", f"{name}/people.parquet"), rows, Path(name) / "state")
        yield sandbox


def measure_others(rows: int, rounds: int, folder: Path, places: dict[str, Place | str]) -> dict[str, Entry]:
    """Export by the connector and by the script in turns, so that other work of the machine slows both."""
    by_hand = {"Parquet": "{}/people.parquet", "DuckDB": "{}/people.duckdb", "SQLite": "sqlite:///{}/people.db"}
    entries = {name: Entry(f"connector export, {name}") for name in _PROMISED_BY_HAND}
    entries |= {f"by hand, {name}": Entry(f"by hand, {name}") for name in by_hand}
    with seeded(rows) as sandbox:
        for _ in range(rounds):
            for name in _PROMISED_BY_HAND:
                place = places[name]
                assert not isinstance(place, str), place  # they are files
                entries[name].runs.append(measure_export(place, sandbox, folder, rows))
            for name, place in by_hand.items():
                measure_by_hand(entries[f"by hand, {name}"], place, sandbox, rows)
    print()
    show_table(f"{rows:,} rows, {rounds} rounds", list(entries.values()))
    return entries


def show_table(title: str, entries: list[Entry]) -> None:
    header = (title, "rows/s", "peak MB", "CPU µs/row")
    print_table(header, [_build_line(entry) for entry in entries if entry.left_out is None])
    for entry in entries:
        if entry.left_out is not None:
            print(f"{entry.name} was left out: {entry.left_out}")


def _build_line(entry: Entry) -> tuple[str, ...]:
    median = entry.median
    numbers = (median.per_s, median.peak_mb, median.cpu_us_per_row)
    forms = zip(("{:,.0f}", "{:.0f}", "{:.1f}"), numbers, strict=True)
    return (entry.name, *(write_number(form, number) for form, number in forms))


def build_promises(entries: dict[str, Entry], rows: int) -> list[Promise]:
    """What was promised of the largest number of rows; NaN, and so not measured, where it was not."""
    promises = [
        at_least(f"rows/s to {name}, whole process, of {rows:,}", bound, entries[name].median.per_s, "{:,.0f}")
        for name, bound in _PROMISED.items()
    ]
    peaks = [entry.median.peak_mb for entry in entries.values() if entry.runs]
    peak_mb = max(peaks) if peaks and rows >= _PEAK_ROWS else float("nan")
    promises.append(at_most(f"MB at most, of {rows:,}", _PROMISED_PEAK_MB, peak_mb, "{:.0f}"))
    return promises


def build_ratios(entries: dict[str, Entry], rows: int) -> list[Promise]:
    """What was promised beside the script by hand; NaN without it."""
    nothing = Entry("nothing")
    return [
        at_least(
            f"times as fast as by hand, to {name}, of {rows:,}",
            bound,
            entries.get(name, nothing).median.per_s / entries.get(f"by hand, {name}", nothing).median.per_s,
            "{:.1f}",
        )
        for name, bound in _PROMISED_BY_HAND.items()
    ]


if __name__ == "__main__":
    main()
