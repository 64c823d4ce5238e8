"""What a ledger of millions costs: its size, an unchanged sync over it, new entries, and a sync with 1 % new rows.

`python -m tests.benchmarks.large [--rows N] [--ledger URL …] [--folder FOLDER] [--stages …]` makes a file of N rows and
a ledger with an entry for each, whose subscribers the sandbox has, and prints a table and a line of JSON for each
ledger. Promised at 10 million are 100,000 rows/s on SQLite, 50,000 on PostgreSQL, and 500 MB.

A ledger is `sqlite`, the URL of a database at a PostgreSQL server, in which a database is made, or `postgresql`: the
server that the tests bring along, with fsync on. With `--folder` the file is kept there, and so are the ledger in
SQLite and the database at the server of a URL: the next run need not make them. Ten million rows take 3 GB in
PostgreSQL.

The stages: `unchanged` imports the file again, and the first rows of it, for the start; `new` imports the same rows
with 1 % more between them; `write` writes intents and answers to the ledger as a load does, with no service behind it.
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
from tests.benchmarks.importing import Imported, import_file
from tests.benchmarks.machine import describe_machine
from tests.benchmarks.people import BASE_ID, write_seeded
from tests.benchmarks.processes import run_process
from tests.benchmarks.tables import Promise, at_least, at_most, print_json, print_promises, print_table, write_number
from tests.databases import Database, start_postgres, stop_postgres

_PORT = 18_471  # the same each time: a kept ledger knows the account by it
_STAGES = ("unchanged", "new", "write")
_FEW = 1_000  # rows of the import that stands for the start
_PROMISED_PACE = {"sqlite": 100_000.0, "postgresql": 50_000.0}
_PROMISED_MB = 500.0
_GROUP = 256  # intents that share a commit, of a fast service
_CHUNK = 30_000  # rows that a load takes in the order of their digests
_MOST_WRITTEN = 300_000
_LEAST_SHARE = 0.5  # of the start: a difference of two processes that is smaller than half of either is mostly noise
_NAN = float("nan")
_HAS_DATABASE = sa.text("SELECT 1 FROM pg_database WHERE datname = :name")


@dataclass(frozen=True, slots=True)
class Measured:
    """What one ledger took; NaN: not measured."""

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
    written_per_s: float = _NAN  # entries, each intended and confirmed
    written_bytes: float = _NAN  # that an entry written so takes


def measure_unchanged(sandbox: SandboxProcess, path: Path, state: Path, url: str, found: Measured) -> Measured:
    """Import the first few rows, then all."""
    few = import_file(sandbox, path, state, "--limit", str(_FEW), ledger=url)
    full = import_file(sandbox, path, state, ledger=url)
    assert full.rows["exists"] == found.rows, full.rows
    longer_s, more = full.spent.wall_s - few.spent.wall_s, found.rows - _FEW
    return replace(
        found,
        whole_per_s=found.rows / full.spent.wall_s,
        per_s=more / longer_s if longer_s > _LEAST_SHARE * few.spent.wall_s else _NAN,
        cpu_us_per_row=(full.spent.cpu_s - few.spent.cpu_s) / more * 1e6,
        peak_mb=_in_mb(full),
    )


def measure_new(sandbox: SandboxProcess, path: Path, state: Path, url: str, found: Measured) -> Measured:
    """Import the rows with one new one after each hundred."""
    with_new = path.with_name("with_new.csv")
    number, mark = found.rows // 100, time.time_ns()
    with path.open(encoding="utf-8") as old, with_new.open("w", encoding="utf-8") as new:
        for line_number, line in enumerate(old):
            new.write(line)
            if line_number and line_number % 100 == 0:
                new.write(f"new.{mark}.{line_number}@example.org,Ann,Lee,true\n")
    imported = import_file(sandbox, with_new, state, ledger=url)
    with_new.unlink()
    assert (imported.rows["exists"], imported.rows["created"]) == (found.rows, number), imported.rows
    return replace(found, new_s=imported.spent.wall_s, new_peak_mb=_in_mb(imported))


def measure_writes(url: str, account: str, found: Measured) -> Measured:
    """Write entries as a load does: the answers of one group share the commit of the next group's intents."""
    number, before = min(_MOST_WRITTEN, found.rows), read_size(url)
    body = encode_subscriber(
        {"email": "ann.lee@example.org", "first_name": "Ann", "is_active": True, "base_id": BASE_ID}
    )
    mark = time.time_ns()
    digests = [blake2b(b"%d %d" % (mark, index), digest_size=16).digest() for index in range(number)]
    chunks = [sorted(digests[start : start + _CHUNK]) for start in range(0, number, _CHUNK)]
    with open_ledger(url) as ledger:
        with ledger.transaction() as connection:
            base = find_or_add_base(connection, account, BASE_ID, f"Base {BASE_ID}")
            run_key = start_run(connection, f"written {mark}", "large", "import", time.time())
        with open_commits(ledger) as commits:
            began = time.perf_counter()
            asyncio.run(_write(LedgerWriter(commits, base, run_key), chunks, body))
            took_s = time.perf_counter() - began
    return replace(found, written_per_s=number / took_s, written_bytes=(read_size(url) - before) / number)


async def _write(journal: LedgerWriter, chunks: list[list[bytes]], body: bytes) -> None:
    for chunk in chunks:
        for start in range(0, len(chunk), _GROUP):
            intents = [Intent(identity, identity[:8], body) for identity in chunk[start : start + _GROUP]]
            await journal.intend([(State.NONE, intent) for intent in intents])
            for created in intents:
                journal.record(created.identity, Move(Event.ANSWERED, 1))
    await journal.flush()


def read_size(url: str) -> int:
    """The bytes of a ledger's entries and their indexes, after what has gone is taken up again."""
    if url.startswith("sqlite"):
        return Path(url.removeprefix("sqlite:///")).stat().st_size
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with engine.connect() as connection:
        connection.exec_driver_sql("VACUUM entry")
        return int(connection.exec_driver_sql("SELECT pg_total_relation_size('entry')").scalar_one())


@contextmanager
def open_place(ledger: str, folder: Path, rows: int, *, is_kept: bool) -> Iterator[tuple[str, str, bool]]:
    """The URL of a ledger of this kind, its name in the table, and whether it was kept by an earlier run."""
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
        is_there = connection.execute(_HAS_DATABASE, {"name": name}).first() is not None
    if not is_there:
        server.run_alone(f"create database {name}")
    try:
        url = sa.make_url(server.url).set(database=name, drivername="postgresql+psycopg")
        yield url.render_as_string(hide_password=False), f"PostgreSQL {version}", is_there
    finally:
        if not is_kept:
            server.run_alone(f"drop database {name} with (force)")
        if ledger == "postgresql":
            stop_postgres()


def measure(
    sandbox: SandboxProcess,
    seeded: SyntheticSubscribers,
    ledger: str,
    folder: Path,
    stages: list[str],
    *,
    is_kept: bool,
) -> Measured:
    """Make the ledger, unless it is kept, and carry the stages out."""
    path, state = folder / "people.csv", folder / "state"
    with open_place(ledger, folder, seeded.count, is_kept=is_kept) as (url, name, is_there):
        found = Measured(name, seeded.count)
        if not is_there:
            fill: list[str | Path] = [
                sys.executable,
                "-m",
                "tests.benchmarks.large_ledger",
                url,
                sandbox.base_url,
                path,
            ]
            filled = run_process([*fill, str(seeded.first_id)], os.environ)
            found = replace(found, fill_s=float(json.loads(filled.stdout)))
        found = replace(found, bytes_per_entry=read_size(url) / seeded.count)
        if "unchanged" in stages:
            found = measure_unchanged(sandbox, path, state, url, found)
        if "new" in stages:
            found = measure_new(sandbox, path, state, url, found)
        if "write" in stages:
            found = measure_writes(url, sandbox.base_url, found)
        return found


def _in_mb(imported: Imported) -> float:
    return _NAN if imported.spent.peak_bytes is None else imported.spent.peak_bytes / 1e6


def show(found: Measured, machine: dict[str, object]) -> None:
    """Print the table, the promises and the line of JSON."""
    forms = {"per_entry": "{:.0f}", "us_per_row": "{:.1f}"}
    lines = [
        (
            name.replace("_", " "),
            write_number(next((forms[end] for end in forms if name.endswith(end)), "{:,.0f}"), value),
        )
        for name, value in asdict(found).items()
        if name != "ledger"
    ]
    print_table((found.ledger, ""), lines)
    pace = _PROMISED_PACE["sqlite" if found.ledger == "SQLite" else "postgresql"]
    promises: list[Promise] = [
        at_least("rows/s of an unchanged sync, with its start", pace, found.whole_per_s, "{:,.0f}"),
        at_most("MB of an unchanged sync", _PROMISED_MB, found.peak_mb, "{:.0f}"),
    ]
    print_promises(promises)
    print_json("large", machine, promises, **asdict(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--ledger", action="append")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--stages", nargs="+", choices=_STAGES, default=list(_STAGES))
    options = parser.parse_args()
    if options.rows <= _FEW:
        parser.error(f"--rows must be more than {_FEW}")
    with tempfile.TemporaryDirectory() as name, SandboxProcess(port=_PORT) as sandbox:
        folder = options.folder or Path(name)
        folder.mkdir(exist_ok=True)
        for ledger in options.ledger or ["sqlite", "postgresql"]:
            machine = describe_machine()
            sandbox.reset()
            seeded = SyntheticSubscribers(**sandbox.seed(options.rows, base_id=BASE_ID))
            if not (folder / "people.csv").exists():
                write_seeded(folder / "people.csv", seeded)
            found = measure(sandbox, seeded, ledger, folder, options.stages, is_kept=options.folder is not None)
            show(found, machine)


if __name__ == "__main__":
    main()
