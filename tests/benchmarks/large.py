"""The cost of a ledger with millions of entries.

`python -m tests.benchmarks.large [--rows N] [--ledger URL …] [--folder FOLDER] [--stages …]` writes a file of N rows
and a ledger with an entry for each row, and prints a table and a line of JSON for each ledger. The sandbox has the
subscribers of all rows. The project promises for 10 million rows: 100,000 rows/s on SQLite, 50,000 on PostgreSQL, and
at most 500 MB of memory.

`--ledger` is one of these: `sqlite`; `postgresql`, the server that the tests start, with fsync on; or the URL of a
PostgreSQL server, on which a database is created. With `--folder`, the file and the ledger are kept for the next run.
A ledger of ten million rows takes 3 GB in PostgreSQL.

| stage | measured work |
|---|---|
| `unchanged` | an import of the file, and an import of its first rows, which measures the start |
| `new` | an import of the same rows with 1 % new rows between them |
| `write` | writing intents and answers to the ledger as a load does, without a service |
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from pathlib import Path

import sqlalchemy as sa

from connector.ledger.commits import LedgerWriter, open_commits
from connector.ledger.entries import Intent, Move
from connector.ledger.opening import open_ledger
from connector.ledger.records import find_or_add_base, start_run
from connector.sandbox import SandboxProcess
from connector.sandbox.people import SyntheticSubscribers
from connector.service.wire import encode_subscriber
from connector.states import Event, State
from tests.benchmarks.importing import ImportResult, import_file
from tests.benchmarks.machine import describe_machine
from tests.benchmarks.people import BASE_ID, write_subscribers
from tests.benchmarks.processes import run_process
from tests.benchmarks.tables import Promise, at_least, at_most, print_json, print_promises, print_table, write_number
from tests.databases import Database, start_postgres, stop_postgres

_PORT = 18_471  # always the same, because the address of the service identifies the account in a kept ledger
_STAGES = ("unchanged", "new", "write")
_START_ROWS = 1_000  # rows of the import that measures the start
_PROMISED_PACE = {"sqlite": 100_000.0, "postgresql": 50_000.0}
_PROMISED_MB = 500.0
_COMMIT_SIZE = 256  # intents in one commit of a load at a fast service
_CHUNK_SIZE = 30_000  # rows that a load sorts by their digests together
_MAX_WRITTEN_ROWS = 300_000
_LEAST_DIFFERENCE = 0.5  # of the start's time: a smaller difference between two processes is mostly noise
_NAN = float("nan")
_FIND_DATABASE_SQL = sa.text("SELECT 1 FROM pg_database WHERE datname = :name")


@dataclass(frozen=True, slots=True)
class LedgerMeasurement:
    """The measurements of one ledger. NaN: not measured."""

    ledger: str
    rows: int
    fill_s: float = _NAN
    bytes_per_entry: float = _NAN
    whole_per_s: float = _NAN
    per_s: float = _NAN  # without the start
    cpu_us_per_row: float = _NAN
    peak_mb: float = _NAN
    new_s: float = _NAN  # the sync with 1 % new rows
    new_peak_mb: float = _NAN
    written_per_s: float = _NAN  # entries per second, with an intent and a confirmation each
    written_bytes: float = _NAN  # growth of the ledger for each of these entries


def measure_unchanged(
    sandbox: SandboxProcess, path: Path, state: Path, url: str, measurement: LedgerMeasurement
) -> LedgerMeasurement:
    """Import the first few rows, then all rows."""
    short_import = import_file(sandbox, path, state, "--limit", str(_START_ROWS), ledger=url)
    full_import = import_file(sandbox, path, state, ledger=url)
    assert full_import.rows["exists"] == measurement.rows, full_import.rows
    difference_s, row_difference = full_import.usage.wall_s - short_import.usage.wall_s, measurement.rows - _START_ROWS
    return replace(
        measurement,
        whole_per_s=measurement.rows / full_import.usage.wall_s,
        per_s=row_difference / difference_s if difference_s > _LEAST_DIFFERENCE * short_import.usage.wall_s else _NAN,
        cpu_us_per_row=(full_import.usage.cpu_s - short_import.usage.cpu_s) / row_difference * 1e6,
        peak_mb=_in_mb(full_import),
    )


def measure_new(
    sandbox: SandboxProcess, path: Path, state: Path, url: str, measurement: LedgerMeasurement
) -> LedgerMeasurement:
    """Import the rows with a new row after each hundred."""
    path_with_new_rows = path.with_name("with_new.csv")
    new_count, unique_number = measurement.rows // 100, time.time_ns()
    with path.open(encoding="utf-8") as old_file, path_with_new_rows.open("w", encoding="utf-8") as new_file:
        for line_number, line in enumerate(old_file):
            new_file.write(line)
            if line_number and line_number % 100 == 0:
                new_file.write(f"new.{unique_number}.{line_number}@example.org,Ann,Lee,true\n")
    result = import_file(sandbox, path_with_new_rows, state, ledger=url)
    path_with_new_rows.unlink()
    assert (result.rows["exists"], result.rows["created"]) == (measurement.rows, new_count), result.rows
    return replace(measurement, new_s=result.usage.wall_s, new_peak_mb=_in_mb(result))


def measure_writes(url: str, account: str, measurement: LedgerMeasurement) -> LedgerMeasurement:
    """Write entries as a load does: the answers of one group share the commit of the next group's intents."""
    entry_count, size_before = min(_MAX_WRITTEN_ROWS, measurement.rows), read_size(url)
    body = encode_subscriber(
        {"email": "ann.lee@example.org", "first_name": "Ann", "is_active": True, "base_id": BASE_ID}
    )
    unique_number = time.time_ns()
    digests = [blake2b(b"%d %d" % (unique_number, index), digest_size=16).digest() for index in range(entry_count)]
    chunks = [sorted(digests[start : start + _CHUNK_SIZE]) for start in range(0, entry_count, _CHUNK_SIZE)]
    with open_ledger(url) as ledger:
        with ledger.transaction() as connection:
            base = find_or_add_base(connection, account, BASE_ID, f"Base {BASE_ID}")
            run_key = start_run(connection, f"written {unique_number}", "large", "import", time.time())
        with open_commits(ledger) as commits:
            started_at = time.perf_counter()
            asyncio.run(_write(LedgerWriter(commits, base, run_key), chunks, body))
            duration_s = time.perf_counter() - started_at
    return replace(
        measurement, written_per_s=entry_count / duration_s, written_bytes=(read_size(url) - size_before) / entry_count
    )


async def _write(writer: LedgerWriter, chunks: list[list[bytes]], body: bytes) -> None:
    for chunk in chunks:
        for start in range(0, len(chunk), _COMMIT_SIZE):
            intents = [Intent(identity, identity[:8], body) for identity in chunk[start : start + _COMMIT_SIZE]]
            await writer.intend([(State.NONE, intent) for intent in intents])
            for intent in intents:
                writer.record(intent.identity, Move(Event.ANSWERED, 1))
    await writer.flush()


def read_size(url: str) -> int:
    """Return the size of a ledger's entries and their indexes in bytes, without the space of deleted rows."""
    if url.startswith("sqlite"):
        return Path(url.removeprefix("sqlite:///")).stat().st_size
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with engine.connect() as connection:
        connection.exec_driver_sql("VACUUM entry")
        return int(connection.exec_driver_sql("SELECT pg_total_relation_size('entry')").scalar_one())


@contextmanager
def open_database(ledger: str, folder: Path, rows: int, *, is_kept: bool) -> Iterator[tuple[str, str, bool]]:
    """Yield the ledger's URL, its name in the printed table, and whether an earlier run has kept this ledger."""
    if ledger == "sqlite":
        yield f"sqlite:///{folder}/ledger.db", "SQLite", (folder / "ledger.db").exists()
        return
    server = start_postgres() if ledger == "postgresql" else Database("postgresql", ledger)
    if ledger == "postgresql":
        server.run_alone("alter system reset fsync")
        server.run("select pg_reload_conf()")
    name = f"connector_large_{rows}"
    with server.begin() as connection:
        version = connection.exec_driver_sql("show server_version").scalar_one().split()[0]
        exists = connection.execute(_FIND_DATABASE_SQL, {"name": name}).first() is not None
    if not exists:
        server.run_alone(f"create database {name}")
    try:
        url = sa.make_url(server.url).set(database=name, drivername="postgresql+psycopg")
        yield url.render_as_string(hide_password=False), f"PostgreSQL {version}", exists
    finally:
        if not is_kept:
            server.run_alone(f"drop database {name} with (force)")
        if ledger == "postgresql":
            stop_postgres()


def measure(
    sandbox: SandboxProcess,
    seeded_subscribers: SyntheticSubscribers,
    ledger: str,
    folder: Path,
    stages: list[str],
    *,
    is_kept: bool,
) -> LedgerMeasurement:
    """Create the ledger unless an earlier run has kept it, and carry out the stages."""
    path, state = folder / "people.csv", folder / "state"
    with open_database(ledger, folder, seeded_subscribers.count, is_kept=is_kept) as (url, name, exists):
        measurement = LedgerMeasurement(name, seeded_subscribers.count)
        if not exists:
            fill_command: list[str | Path] = [
                sys.executable,
                "-m",
                "tests.benchmarks.large_ledger",
                url,
                sandbox.base_url,
                path,
            ]
            fill_process = run_process([*fill_command, str(seeded_subscribers.first_id)], os.environ)
            measurement = replace(measurement, fill_s=float(json.loads(fill_process.stdout)))
        measurement = replace(measurement, bytes_per_entry=read_size(url) / seeded_subscribers.count)
        if "unchanged" in stages:
            measurement = measure_unchanged(sandbox, path, state, url, measurement)
        if "new" in stages:
            measurement = measure_new(sandbox, path, state, url, measurement)
        if "write" in stages:
            measurement = measure_writes(url, sandbox.base_url, measurement)
        return measurement


def _in_mb(result: ImportResult) -> float:
    return _NAN if result.usage.peak_bytes is None else result.usage.peak_bytes / 1e6


def show(measurement: LedgerMeasurement, machine: dict[str, object]) -> None:
    """Print the table, the promises and the line of JSON."""
    formats = {"per_entry": "{:.0f}", "us_per_row": "{:.1f}"}
    lines = [
        (
            name.replace("_", " "),
            write_number(next((formats[suffix] for suffix in formats if name.endswith(suffix)), "{:,.0f}"), value),
        )
        for name, value in asdict(measurement).items()
        if name != "ledger"
    ]
    print_table((measurement.ledger, ""), lines)
    pace = _PROMISED_PACE["sqlite" if measurement.ledger == "SQLite" else "postgresql"]
    promises: list[Promise] = [
        at_least("rows/s of an unchanged sync, start included", pace, measurement.whole_per_s, "{:,.0f}"),
        at_most("peak MB of an unchanged sync", _PROMISED_MB, measurement.peak_mb, "{:.0f}"),
    ]
    print_promises(promises)
    print_json("large", machine, promises, **asdict(measurement))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--ledger", action="append")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--stages", nargs="+", choices=_STAGES, default=list(_STAGES))
    options = parser.parse_args()
    if options.rows <= _START_ROWS:
        parser.error(f"--rows must be more than {_START_ROWS}")
    with tempfile.TemporaryDirectory() as name, SandboxProcess(port=_PORT) as sandbox:
        folder = options.folder or Path(name)
        folder.mkdir(exist_ok=True)
        for ledger in options.ledger or ["sqlite", "postgresql"]:
            machine = describe_machine()
            sandbox.reset()
            seeded_subscribers = SyntheticSubscribers(**sandbox.seed(options.rows, base_id=BASE_ID))
            if not (folder / "people.csv").exists():
                write_subscribers(folder / "people.csv", seeded_subscribers)
            measurement = measure(
                sandbox, seeded_subscribers, ledger, folder, options.stages, is_kept=options.folder is not None
            )
            show(measurement, machine)


if __name__ == "__main__":
    main()
