"""Concurrent exports to one table, and its readers. Exports queue by the lock of the database."""

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from connector.errors import RunAborted
from connector.paging.certificate import Verdict
from connector.warehouse.columns import SCHEMA
from connector.warehouse.database import Database, Interrupted, StagedRows, TableName
from connector.warehouse.destination import Destination, Format, parse_destination
from connector.warehouse.duckdb import DuckdbDatabase
from connector.warehouse.opening import open_writer
from connector.warehouse.runs import ExportStart, Mode, Writer
from connector.warehouse.servers import MysqlDatabase, PostgresDatabase, SqlalchemyDatabase
from connector.warehouse.sqlite import SqliteDatabase
from connector.warehouse.table_writer import TableWriter
from tests.export.people import beginning_of, build_table, run_of
from tests.export.test_modes import day, of_base, person, publish, read
from tests.export.warehouses import DATABASES, FILES, MERGING, SERVERS, connect, into, run_sql

OPEN_TO_READERS = (Format.POSTGRESQL, Format.MYSQL, Format.SQLITE)
"""Others may read or lock the table while it is written."""
FIRST_LINE = "update {}_connector_runs set job = job where number = 1"


def begin(destination: Destination, number: int, asked: dict[str, Any] | None = None) -> Writer:
    """Return an export that has read one subscriber and has not published."""
    writer = open_writer(destination)
    writer.prepare(ExportStart(f"run-{number}", "nightly", asked or {}, day(number)))
    writer.start()
    base = (asked or {}).get("base_id", 1)
    rows = [of_base(base, base, FirstName=f"v{number}")]
    writer.add(build_table(rows, run_id=f"run-{number}", exported_at=day(number)))
    return writer


def finish(writer: Writer, number: int, asked: dict[str, Any] | None = None) -> None:
    try:
        writer.publish(run_of(1, run_id=f"run-{number}", at=day(number), asked=asked))
    finally:
        writer.discard()


def test_a_run_that_began_earlier_does_not_overwrite_a_later_run_with_any_clocks(table: Destination) -> None:
    first, second = begin(table, 9), begin(table, 2)
    finish(second, 2)
    with pytest.raises(RunAborted, match=r"began later \(number 2, this one is 1\)"):
        finish(first, 9)
    assert read(table) == [(1, "v2", 2)]
    publish(table, [person(3)], 1)
    assert read(table) == [(3, "Ann", 1)]


def test_a_table_that_another_program_has_filled_is_left_unchanged(table: Destination) -> None:
    waiting = begin(table, 1)
    publish(table, [person(7)], 2)
    run_sql(table, "delete from {}_connector_runs where number = 2")  # so that nothing says who wrote the row
    with pytest.raises(RunAborted, match=r"did not write.*What was there is as it was"):
        finish(waiting, 1)
    assert read(table) == [(7, "Ann", 2)]


@into(MERGING, "history", "append", "upsert")
def test_exports_of_different_bases_are_both_written(table: Destination) -> None:
    first, second = begin(table, 1, {"base_id": 7}), begin(table, 2, {"base_id": 9})
    finish(second, 2, {"base_id": 9})
    finish(first, 1, {"base_id": 7})
    assert read(table) == [(7, "v1", 1), (9, "v2", 2)]


@into(SERVERS)
def test_an_export_waits_for_another_that_publishes(table: Destination) -> None:
    publish(table, [person(1)], 1)
    writer = begin(table, 2)
    other = threading.Thread(target=finish, args=(writer, 2))
    with connect(table) as holder:
        holder.exec_driver_sql(FIRST_LINE.replace("{}", f"{table.schema}." if table.schema else ""))
        other.start()
        other.join(0.5)
        assert other.is_alive()
        assert read(table) == [(1, "Ann", 1)]
    other.join(30)
    assert read(table) == [(1, "v2", 2)]


@into(SERVERS, "append")
def test_first_exports_that_begin_together_have_different_numbers(table: Destination) -> None:
    ready, failures = threading.Barrier(3), []

    def run(number: int) -> None:
        ready.wait(30)
        try:
            finish(begin(table, number), number)
        except RunAborted as error:
            failures.append(str(error))

    threads = [threading.Thread(target=run, args=(number,)) for number in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert run_sql(table, "select number from {}_connector_runs where finished_at is not null order by number") == [
        (1,),
        (2,),
        (3,),
    ]
    assert len(read(table)) == 3


@contextmanager
def locked_sqlite(path: Path) -> Iterator[None]:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin immediate")
        yield


@contextmanager
def locked_duckdb(path: Path) -> Iterator[None]:
    hold = f"import duckdb, sys; opened = duckdb.connect({str(path)!r}); print(1, flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline()
        yield
        holder.communicate()


@contextmanager
def locked_duckdb_here(path: Path) -> Iterator[None]:
    """Open the file in this process: the lock of DuckDB does not separate connections of one process."""
    with duckdb.connect(str(path)):
        yield


@pytest.mark.parametrize(
    ("kind", "lock"),
    [(SqliteDatabase, locked_sqlite), (DuckdbDatabase, locked_duckdb), (DuckdbDatabase, locked_duckdb_here)],
)
def test_a_locked_database_file_is_refused_and_written_later(
    tmp_path: Path,
    kind: type[SqliteDatabase | DuckdbDatabase],
    lock: Callable[[Path], AbstractContextManager[None]],
) -> None:
    table = parse_destination(f"{'sqlite' if kind is SqliteDatabase else 'duckdb'}:///{tmp_path}/w.db")
    publish(table, [person(1)], 1)
    writer = TableWriter(TableName("subscribers"), SCHEMA, Mode.REPLACE, kind(table.path, lock_s=0))
    with lock(table.path), pytest.raises(RunAborted, match=r"cannot be written now.*run it again"):
        writer.prepare(ExportStart("run-2", "nightly", {}, day(2)))
    writer.discard()
    publish(table, [person(2)], 2)
    assert read(table) == [(2, "Ann", 2)]


def interrupt_while_it_waits(writer: Writer) -> None:
    """Publish in a thread, interrupt the thread while it waits, and check that it ends."""
    ends: list[BaseException] = []

    def run() -> None:
        try:
            finish(writer, 2)
        except BaseException as error:  # noqa: BLE001 - looked at below
            ends.append(error)

    waiting = threading.Thread(target=run)
    waiting.start()
    waiting.join(0.5)
    assert waiting.is_alive()
    writer.interrupt()
    waiting.join(5)
    assert not waiting.is_alive()
    assert len(ends) == 1


@into(OPEN_TO_READERS)
def test_an_interruption_ends_an_export_that_waits_for_a_lock(table: Destination) -> None:
    publish(table, [person(1)], 1)
    writer = begin(table, 2)
    with connect(table) as holder:
        holder.exec_driver_sql(FIRST_LINE.replace("{}", f"{table.schema}." if table.schema else ""))
        interrupt_while_it_waits(writer)
    assert read(table) == [(1, "Ann", 1)]
    publish(replace(table), [person(3)], 3)
    assert read(table) == [(3, "Ann", 3)]


def test_an_interruption_ends_a_commit_that_waits_for_a_reader_of_the_file(tmp_path: Path) -> None:
    table = parse_destination(f"sqlite:///{tmp_path}/w.db")
    publish(table, [person(1)], 1)
    writer = begin(table, 2)
    with closing(sqlite3.connect(table.path, isolation_level=None)) as reader:
        reader.execute("begin")
        reader.execute("select count(*) from subscribers").fetchone()
        interrupt_while_it_waits(writer)
    assert read(table) == [(1, "Ann", 1)]


def open_database(table: Destination) -> Database:
    kinds: dict[Format, Callable[[Any], Database]] = {
        Format.POSTGRESQL: PostgresDatabase, Format.MYSQL: MysqlDatabase, Format.SQL: SqlalchemyDatabase,
        Format.SQLITE: SqliteDatabase, Format.DUCKDB: DuckdbDatabase,
    }  # fmt: skip
    return kinds[table.format](table.url or table.path)


@into(DATABASES, "replace", "history")
def test_an_interruption_while_rows_are_loaded_leaves_the_table_unchanged(
    table: Destination, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connector.warehouse.database._STAGED_BATCH", 100)
    publish(table, [person(1)], 1)
    database, run = open_database(table), run_of(300, run_id="run-2", at=day(2))
    writer = TableWriter(TableName(table.table, table.schema), SCHEMA, table.mode, database)
    load, batches = database.load, count()

    def interrupt_after_the_first(batch: pa.RecordBatch) -> pa.RecordBatch:
        if next(batches) == 0:  # a signal arrives in another thread
            other = threading.Thread(target=writer.interrupt)
            other.start()
            other.join()
        return batch

    def load_and_interrupt(into: str, rows: StagedRows, shared: Mapping[str, object]) -> int:
        return load(into, rows.map(interrupt_after_the_first), shared)

    writer.prepare(beginning_of(run))
    writer.start()
    people = build_table([person(2)], run_id="run-2", exported_at=day(2))
    for first in range(0, run.rows, 100):
        ids = pa.array(range(first, first + 100), pa.int64())
        rows = people.take(pa.array([0] * len(ids)))
        writer.add(rows.set_column(0, people.schema.field("id"), ids))
    monkeypatch.setattr(database, "load", load_and_interrupt)
    with pytest.raises((Interrupted, RunAborted)):
        writer.publish(run)
    writer.discard()
    assert next(batches) < 3, "the commit alone was interrupted"
    assert read(table) == [(1, "Ann", 1)]
    if table.url is None:
        assert list(table.path.parent.iterdir()) == [table.path]
    publish(table, [person(1), person(3)], 3)
    assert (3, "Ann", 3) in read(table)


only_files = pytest.mark.parametrize("file", FILES, indirect=True)


def stage(destination: Destination, *people: dict[str, Any]) -> Writer:
    """Return an export that has found no target, and has read these people as the run of day 5."""
    writer = open_writer(destination)
    writer.prepare(ExportStart("run-5", "nightly", {}, day(5)))
    writer.start()
    assert not writer.has_target
    writer.add(build_table(people, run_id="run-5", exported_at=day(5)))
    return writer


def publish_incomplete(writer: Writer) -> None:
    writer.publish(run_of(1, run_id="run-5", at=day(5), verdict=Verdict.INCOMPLETE))


def test_an_incomplete_export_does_not_replace_a_table_that_was_filled_meanwhile(table: Destination) -> None:
    writer = stage(table, person(9))
    publish(table, [person(1), person(2)], 1)
    with pytest.raises(RunAborted, match="filled meanwhile, and an incomplete export replaces nothing"):
        publish_incomplete(writer)
    writer.discard()

    assert read(table) == [(1, "Ann", 1), (2, "Ann", 1)]
    assert run_sql(table, "select run_id from {}_connector_runs where finished_at is not null") == [("run-1",)]


@only_files
def test_an_incomplete_export_does_not_replace_a_file_that_was_written_meanwhile(file: Destination) -> None:
    writer = stage(file, person(9))
    file.path.write_bytes(b"another's")
    with pytest.raises(RunAborted, match="made by another program meanwhile and was left as it is"):
        publish_incomplete(writer)
    writer.discard()

    assert file.path.read_bytes() == b"another's"
    assert [entry.name for entry in file.path.parent.iterdir()] == [file.path.name]


PEOPLE = 400


@into(OPEN_TO_READERS)
def test_a_reader_never_sees_half_a_table(table: Destination) -> None:
    publish(table, [person(index) for index in range(PEOPLE)], 1)
    seen: set[tuple[int, int]] = set()
    is_over, has_read = threading.Event(), threading.Event()

    def read() -> None:
        while not is_over.is_set():
            ((runs, rows),) = run_sql(table, "select count(distinct _run_id), count(*) from {}subscribers")
            seen.add((runs, rows))
            has_read.set()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(2, 6):
            has_read.clear()
            publish(table, [person(place, f"v{number}") for place in range(PEOPLE)], number)
            assert has_read.wait(30)
    finally:
        is_over.set()
        reader.join()
    assert seen == {(1, PEOPLE)}
