"""What an export takes: `connector export` to each destination, beside the bounds of its two halves and other tools.

`python -m tests.benchmarks.export [--rows N …] [--rounds N] [--others N]` seeds the sandbox, a process of its own, with
N people and exports them all, to a new target each time; it prints a table for each N, what was promised, and a line of
JSON. The pace is that of the whole process, its start among it, and the peak of memory is the kernel's count.

`of reading` is the pace as a share of a bare loop that gets and decodes every page and does nothing with it; `of
writing` as a share of a bare driver that writes the same rows from memory into the same kind of database. Both bounds
are without the start of their process, so the shares are what a whole export is of the least that it could take. The
script that one writes by hand, to Parquet, DuckDB and SQLite, and dlt's rest_api source, which takes so long, and
gigabytes, export fewer people in turns with the connector (`--others`; 0: neither of them runs).
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
from tests.benchmarks.exporting import Target, export_list, fetch_bare, write_bare
from tests.benchmarks.machine import describe_machine
from tests.benchmarks.other_tools import BY_HAND_EXPORT, DLT_EXPORT, Tool, install
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
    """One export, in rows/s over the whole process, and as shares of the two bounds."""

    per_s: float
    of_reading: float
    of_writing: float
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
        names = [each.name for each in fields(Measured)]
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


class Export:
    """The rounds of one number of rows."""

    def __init__(self, sandbox: SandboxProcess, folder: Path, rows: int, places: dict[str, Place | str]) -> None:
        self._sandbox, self._folder, self._rows = sandbox, folder, rows
        self._places = places
        self.entries = {name: Entry(name, left_out=_reason(place)) for name, place in places.items()}
        self.reading_s: list[float] = []
        self._source = folder / f"rows_{rows}.parquet"

    def run_round(self) -> None:
        """The bound of reading, then each destination, with its bound of writing after it."""
        if not self._source.exists():
            export_list(self._sandbox, Target("rows", str(self._source)), self._rows, self._folder / "state")
        reading_s = float(fetch_bare(self._sandbox, self._rows).stdout)
        self.reading_s.append(reading_s)
        for name, place in self._places.items():
            if not isinstance(place, str) and self.entries[name].left_out is None:
                try:
                    self.entries[name].runs.append(self._measure(place, reading_s))
                except CommandError as error:
                    self.entries[name].left_out = str(error)

    def _measure(self, place: Place, reading_s: float) -> Measured:
        target, bare = place(next(_NUMBERS)), place(next(_NUMBERS))
        spent = export_list(self._sandbox, target, self._rows, self._folder / "state")
        writing_s = float(write_bare(self._sandbox, bare, self._source).stdout)
        for each in (target, bare):
            _remove(each)
        return _measure(spent, self._rows, reading_s, writing_s)


def measure_tool(entry: Entry, tool: Tool, place: str, sandbox: SandboxProcess, rows: int) -> None:
    """Export by another tool; one that cannot be installed, or fails, is left out."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            spent = install(tool).export(sandbox, place.format(folder))
        entry.runs.append(_measure(spent, rows, float("nan"), float("nan")))
    except CommandError as error:
        entry.left_out = str(error)


def _measure(spent: Spent, rows: int, reading_s: float, writing_s: float) -> Measured:
    peak_mb = float("nan") if spent.peak_bytes is None else spent.peak_bytes / 1e6
    return Measured(
        rows / spent.wall_s, reading_s / spent.wall_s, writing_s / spent.wall_s, peak_mb, spent.cpu_s / rows * 1e6
    )


def _reason(place: Place | str) -> str | None:
    return place if isinstance(place, str) else None


def _remove(target: Target) -> None:
    """Room for the next; tables go with their database."""
    path = Path(target.place.partition(":///")[2] if target.is_database else target.place)
    if target.name not in ("PostgreSQL", "MariaDB"):
        path.unlink(missing_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[200_000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--others", type=int, default=200_000, help="people that the other tools export; 0: none")
    options = parser.parse_args()
    machine = describe_machine()
    values: dict[str, object] = {}
    by_size: dict[int, dict[str, Entry]] = {}
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        places = open_places(Path(name), stack)
        for rows in options.rows:
            with seeded(rows) as sandbox:
                export = Export(sandbox, Path(name), rows, places)
                for _ in range(options.rounds):
                    export.run_round()
            by_size[rows] = export.entries
            show(rows, options.rounds, statistics.median(export.reading_s), list(export.entries.values()))
            values[f"of_{rows}"] = [asdict(entry) for entry in export.entries.values()]
        others = measure_others(options.others, options.rounds, Path(name), places) if options.others else {}
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
    """The connector and the other tools in turns, so that what else the machine does is to the cost of all."""
    by_hand = {"Parquet": "{}/people.parquet", "DuckDB": "{}/people.duckdb", "SQLite": "sqlite:///{}/people.db"}
    entries = {name: Entry(f"connector export, {name}") for name in _PROMISED_BY_HAND}
    entries |= {f"by hand, {name}": Entry(f"by hand, {name}") for name in by_hand}
    entries["dlt"] = Entry("dlt rest_api, DuckDB")
    with seeded(rows) as sandbox:
        for _ in range(rounds):
            for name in _PROMISED_BY_HAND:
                place = places[name]
                assert not isinstance(place, str), place  # they are files
                target = place(next(_NUMBERS))
                spent = export_list(sandbox, target, rows, folder / "state")
                entries[name].runs.append(_measure(spent, rows, float("nan"), float("nan")))
                _remove(target)
            for name, place in by_hand.items():
                measure_tool(entries[f"by hand, {name}"], BY_HAND_EXPORT, place, sandbox, rows)
        measure_tool(entries["dlt"], DLT_EXPORT, "{}/people.duckdb", sandbox, rows)
    print()
    show_table(f"{rows:,} rows, {rounds} rounds", list(entries.values()))
    return entries


def show(rows: int, rounds: int, reading_s: float, entries: list[Entry]) -> None:
    show_table(f"{rows:,} rows, {rounds} rounds", entries)
    print(f"\ngetting and decoding alone: {rows / reading_s:,.0f} rows/s\n")


def show_table(title: str, entries: list[Entry]) -> None:
    header = (title, "rows/s", "of reading", "of writing", "peak MB", "CPU µs/row")
    print_table(header, [_build_line(entry) for entry in entries if entry.left_out is None])
    for entry in entries:
        if entry.left_out is not None:
            print(f"{entry.name} was left out: {entry.left_out}")


def _build_line(entry: Entry) -> tuple[str, ...]:
    median = entry.median
    numbers = (median.per_s, median.of_reading, median.of_writing, median.peak_mb, median.cpu_us_per_row)
    forms = zip(("{:,.0f}", "{:.2f}", "{:.2f}", "{:.0f}", "{:.1f}"), numbers, strict=True)
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
