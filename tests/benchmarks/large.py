"""The cost of an unchanged sync with a ledger of millions of entries.

`python -m tests.benchmarks.large [--rows N] [--ledger URL …]` imports N people twice for each ledger. The first import
creates the people and fills the ledger, which takes half an hour for 10 million rows. The second import is measured,
and the benchmark prints a table and a line of JSON. The project promises for 10 million rows: 100,000 rows/s on SQLite,
50,000 on PostgreSQL, and at most 500 MB of memory. For the first import, the project promises at most 400 MB for a
million rows, and 24 bytes for each further row.

`--ledger` is one of these: `sqlite`; `postgresql`, the server that the tests start, with fsync on; or the URL of an
empty PostgreSQL database. A ledger of ten million rows takes 3 GB in PostgreSQL.
"""

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import sqlalchemy as sa

from connector.sandbox import SandboxProcess
from tests.benchmarks.importing import import_file
from tests.benchmarks.machine import describe_machine
from tests.benchmarks.people import write_people
from tests.benchmarks.tables import (
    format_number,
    print_json,
    print_promises,
    print_table,
    promise_at_least,
    promise_at_most,
)
from tests.databases import open_postgres

_FEW_ROW_COUNT = 1_000  # rows of the import that measures the start
_PROMISED_RATE_BY_LEDGER = {"sqlite": 100_000.0, "postgresql": 50_000.0}
_PROMISED_PEAK_MB = 500.0
_PROMISED_FIRST_IMPORT_PEAK_MB = 400.0  # peak memory of the first import of a million rows
_PROMISED_MB_PER_MILLION_ROWS = 24.0  # additional peak memory for each further million rows


@dataclass(frozen=True, slots=True)
class LedgerMeasurement:
    """The measurements of one ledger. The last four values are of an import that finds all rows unchanged. NaN means
    not measured."""

    row_count: int
    first_import_s: float  # seconds of the first import, which fills the ledger
    first_import_peak_mb: float  # peak memory of the first import
    bytes_per_entry: float
    rows_per_s_with_start: float  # over the whole process
    rows_per_s_without_start: float  # without the start of the process
    cpu_us_per_row: float
    peak_mb: float


def measure_unchanged_sync(
    sandbox: SandboxProcess, path: Path, state_folder: Path, url: str, row_count: int
) -> LedgerMeasurement:
    """Fill the ledger by an import. Then measure two imports of unchanged rows: of the first few rows, and of all
    rows."""
    first_import = import_file(sandbox, path, state_folder, ledger_url=url)
    assert first_import.row_counts["created"] == row_count, first_import.row_counts
    short_import = import_file(sandbox, path, state_folder, "--limit", str(_FEW_ROW_COUNT), ledger_url=url)
    full_import = import_file(sandbox, path, state_folder, ledger_url=url)
    assert full_import.row_counts["exists"] == row_count, full_import.row_counts
    resource_usage, row_count_difference = full_import.resource_usage, row_count - _FEW_ROW_COUNT
    return LedgerMeasurement(
        row_count=row_count,
        first_import_s=first_import.resource_usage.wall_s,
        first_import_peak_mb=first_import.resource_usage.peak_mb,
        bytes_per_entry=read_size(url) / row_count,
        rows_per_s_with_start=row_count / resource_usage.wall_s,
        rows_per_s_without_start=row_count_difference / (resource_usage.wall_s - short_import.resource_usage.wall_s),
        cpu_us_per_row=(resource_usage.cpu_s - short_import.resource_usage.cpu_s) / row_count_difference * 1e6,
        peak_mb=resource_usage.peak_mb,
    )


def read_size(url: str) -> int:
    """Return the size of a ledger in bytes: the file of SQLite, or in PostgreSQL the table of the entries with its
    indexes, without the space of deleted rows."""
    if url.startswith("sqlite"):
        return Path(url.removeprefix("sqlite:///")).stat().st_size
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with engine.connect() as connection:
        connection.exec_driver_sql("VACUUM entry")
        return int(connection.exec_driver_sql("SELECT pg_total_relation_size('entry')").scalar_one())


@contextmanager
def open_ledger_url(ledger_option: str, folder: Path) -> Iterator[str]:
    """Yield the URL of an empty ledger."""
    if ledger_option == "postgresql":
        with open_postgres() as database:
            database.run_outside_transaction("alter system reset fsync")
            database.run("select pg_reload_conf()")
            yield database.url
    else:
        yield f"sqlite:///{folder}/ledger.db" if ledger_option == "sqlite" else ledger_option


def print_results(ledger_option: str, measurement: LedgerMeasurement, machine_description: dict[str, object]) -> None:
    """Print the table, the promises and the line of JSON."""
    json_values = asdict(measurement)
    json_values = {"rows": json_values.pop("row_count"), **json_values}
    print_table(
        (ledger_option, ""),
        [(name.replace("_", " "), format_number("{:,.1f}", json_values[name])) for name in json_values],
    )
    promised_rate = _PROMISED_RATE_BY_LEDGER["sqlite" if ledger_option == "sqlite" else "postgresql"]
    further_row_count = max(0, measurement.row_count - 1_000_000)
    promised_first_import_peak_mb = (
        _PROMISED_FIRST_IMPORT_PEAK_MB + _PROMISED_MB_PER_MILLION_ROWS * further_row_count / 1e6
    )
    promises = [
        promise_at_least(
            "rows/s of an unchanged sync, including the start",
            promised_rate,
            measurement.rows_per_s_with_start,
            "{:,.0f}",
        ),
        promise_at_most(
            "peak MB of the first import", promised_first_import_peak_mb, measurement.first_import_peak_mb, "{:.0f}"
        ),
        promise_at_most("peak MB of an unchanged sync", _PROMISED_PEAK_MB, measurement.peak_mb, "{:.0f}"),
    ]
    print_promises(promises)
    print_json("large", machine_description, promises, ledger=ledger_option.partition(":")[0], **json_values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--ledger", action="append")
    options = parser.parse_args()
    if options.rows <= _FEW_ROW_COUNT:
        parser.error(f"--rows must be more than {_FEW_ROW_COUNT}")
    for ledger_option in options.ledger or ["sqlite", "postgresql"]:
        machine_description = describe_machine()
        with tempfile.TemporaryDirectory() as folder_name, SandboxProcess() as sandbox:
            folder = Path(folder_name)
            path = write_people(folder / "people.csv", options.rows)
            with open_ledger_url(ledger_option, folder) as url:
                print_results(
                    ledger_option,
                    measure_unchanged_sync(sandbox, path, folder / "state", url, options.rows),
                    machine_description,
                )


if __name__ == "__main__":
    main()
