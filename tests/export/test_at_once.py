"""Exports to one table at once: they queue by the database's own lock, and numbers say which of them is newer."""

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from connector.errors import RunAborted
from connector.listing import build_columns
from connector.warehouse import (
    PAGE_SCHEMA,
    SCHEMA,
    Destination,
    ExportStart,
    Format,
    Mode,
    Writer,
    open_writer,
    parse_destination,
)
from connector.warehouse.duckdb import DuckdbTables
from connector.warehouse.interruption import Interrupted, Interruption
from connector.warehouse.mysql import MysqlDatabase
from connector.warehouse.other import OtherDatabase
from connector.warehouse.postgres import PostgresDatabase
from connector.warehouse.sql_tables import SqlTables
from connector.warehouse.sqlite import SqliteDatabase
from connector.warehouse.stage import StagedRows
from connector.warehouse.table_writer import TableBackend, TableName, TableWriter
from connector.warehouse.tables import Database
from tests.export.people import beginning_of, build_table, run_of
from tests.export.test_modes import MERGING, day, of_base, person, publish, read
from tests.export.warehouses import DATABASES, SERVERS, connect, open_destination, run_sql

FIRST_LINE = "update {}_connector_runs set job = job where number = 1"


def begin(destination: Destination, number: int, asked: dict[str, Any] | None = None) -> Writer:
    """An export that has read one subscriber, and is about to publish."""
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


@pytest.fixture(params=DATABASES)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Destination:
    return open_destination(request, tmp_path, request.param)


def test_a_run_that_began_earlier_is_not_written_over_a_later_one(table: Destination) -> None:
    """Whatever their clocks say."""
    first, second = begin(table, 9), begin(table, 2)
    finish(second, 2)
    with pytest.raises(RunAborted, match=r"began later \(number 2, this one is 1\)"):
        finish(first, 9)
    assert read(table) == [(1, "v2", 2)]
    publish(table, [person(3)], 1)
    assert read(table) == [(3, "Ann", 1)]


def test_an_export_that_fails_leaves_what_it_made_to_one_that_goes_on(table: Destination) -> None:
    failing, other = begin(table, 1), begin(table, 2)
    failing.discard()
    finish(other, 2)
    assert read(table) == [(1, "v2", 2)]


def test_a_table_that_another_program_filled_meanwhile_is_left_as_it_is(table: Destination) -> None:
    waiting = begin(table, 1)
    publish(table, [person(7)], 2)
    run_sql(table, "delete from {}_connector_runs where number = 2")  # so that nothing says who wrote the row
    with pytest.raises(RunAborted, match=r"did not write.*What was there is as it was"):
        finish(waiting, 1)
    assert read(table) == [(7, "Ann", 2)]


def test_a_table_that_another_export_began_in_another_mode_is_left_as_it_is(table: Destination) -> None:
    waiting = begin(table, 1)
    publish(replace(table, mode=Mode.APPEND), [person(7)], 2)
    with pytest.raises(RunAborted, match=r"kept in the mode append, not replace.*What was there is as it was"):
        finish(waiting, 1)
    assert read(table) == [(7, "Ann", 2)]


@pytest.mark.parametrize("form", MERGING)
@pytest.mark.parametrize("mode", ["append", "upsert", "history"])
def test_exports_of_different_bases_do_not_hinder_each_other(
    form: Format, mode: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    table = open_destination(request, tmp_path, form, mode=mode)
    first, second = begin(table, 1, {"base_id": 7}), begin(table, 2, {"base_id": 9})
    finish(second, 2, {"base_id": 9})
    finish(first, 1, {"base_id": 7})
    assert read(table) == [(7, "v1", 1), (9, "v2", 2)]


@pytest.mark.parametrize("form", SERVERS)
def test_an_export_waits_for_another_that_publishes(
    form: Format, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    table = open_destination(request, tmp_path, form)
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


@pytest.mark.parametrize("form", SERVERS)
def test_first_exports_that_begin_at_once_all_get_a_number(
    form: Format, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    table = open_destination(request, tmp_path, form, mode="append")
    ready, failures = threading.Barrier(3), []

    def run(number: int) -> None:
        ready.wait(30)
        try:
            finish(begin(table, number), number)
        except RunAborted as error:  # a fourth attempt would have to follow
            failures.append(str(error))

    threads = [threading.Thread(target=run, args=(number,)) for number in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    numbers = run_sql(table, "select number from {}_connector_runs where finished_at is not null order by number")
    assert len(numbers) + len(failures) == 3
    assert len(failures) == 0, failures
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


def open_impatient(table: Destination) -> TableWriter:
    """A writer that waits for no lock."""
    name = TableName("subscribers")
    if table.format is Format.DUCKDB:
        duck = DuckdbTables(table.path, name, SCHEMA, Mode.REPLACE, overwrite=False, lock_s=0)
        return TableWriter(duck, SCHEMA, Mode.REPLACE)
    lite = SqlTables(name, SCHEMA, Mode.REPLACE, SqliteDatabase(table.path, lock_s=0), overwrite=False)
    return TableWriter(lite, SCHEMA, Mode.REPLACE)


@pytest.mark.parametrize("scheme", ["sqlite", "duckdb"])
def test_a_file_that_another_program_has_locked_can_be_written_later(tmp_path: Path, scheme: str) -> None:
    table = parse_destination(f"{scheme}:///{tmp_path}/w.db")
    publish(table, [person(1)], 1)
    writer = open_impatient(table)
    with (
        (locked_sqlite if scheme == "sqlite" else locked_duckdb)(table.path),
        pytest.raises(RunAborted, match=r"cannot be written now.*run it again"),
    ):
        writer.prepare(ExportStart("run-2", "nightly", {}, day(2)))
    writer.discard()
    publish(table, [person(2)], 2)
    assert read(table) == [(2, "Ann", 2)]


@pytest.mark.parametrize("form", [Format.POSTGRESQL, Format.MYSQL, Format.SQLITE])
def test_an_interruption_ends_a_publishing_that_waits_for_a_lock(
    form: Format, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    table = open_destination(request, tmp_path, form)
    publish(table, [person(1)], 1)
    writer = begin(table, 2)
    ends: list[BaseException] = []

    def run() -> None:
        try:
            finish(writer, 2)
        except BaseException as error:  # noqa: BLE001 - looked at below
            ends.append(error)

    waiting = threading.Thread(target=run)
    with connect(table) as holder:
        holder.exec_driver_sql(FIRST_LINE.replace("{}", f"{table.schema}." if table.schema else ""))
        waiting.start()
        waiting.join(0.5)
        assert waiting.is_alive()
        writer.interrupt()
        waiting.join(5)
        assert not waiting.is_alive()
    assert len(ends) == 1
    assert read(table) == [(1, "Ann", 1)]
    publish(replace(table), [person(3)], 3)
    assert read(table) == [(3, "Ann", 3)]


@pytest.mark.parametrize("form", DATABASES)
def test_an_interruption_before_the_commit_leaves_the_table_as_it_was(
    form: Format, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    table = open_destination(request, tmp_path, form)
    publish(table, [person(1)], 1)
    writer = begin(table, 2)
    writer.interrupt()
    with pytest.raises(Interrupted):
        finish(writer, 2)
    assert read(table) == [(1, "Ann", 1)]


def open_backend(table: Destination) -> TableBackend:
    name = TableName(table.table, table.schema)
    if table.format is Format.DUCKDB:
        return DuckdbTables(table.path, name, SCHEMA, table.mode, overwrite=False)
    servers: dict[Format, Callable[[Any], Database]] = {
        Format.POSTGRESQL: PostgresDatabase, Format.MYSQL: MysqlDatabase, Format.SQL: OtherDatabase,
    }  # fmt: skip
    database = SqliteDatabase(table.path) if table.url is None else servers[table.format](table.url)
    return SqlTables(name, SCHEMA, table.mode, database, overwrite=False)


@pytest.mark.parametrize("mode", ["replace", "history"])
@pytest.mark.parametrize("form", DATABASES)
def test_an_interruption_among_the_rows_leaves_the_table_as_it_was(
    form: Format, mode: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if form is Format.SQL and mode == "history":
        return
    table = open_destination(request, tmp_path, form, mode=mode)
    publish(table, [person(1)], 1)
    backend, interruption, run = open_backend(table), Interruption(), run_of(500, run_id="run-2", at=day(2))
    read_batches: list[int] = []

    def read_on() -> Iterator[pa.RecordBatch]:
        for number in range(50):
            read_batches.append(number)
            yield build_columns([person(each) for each in range(number * 10, number * 10 + 10)])
            if number == 0:  # the rows are on their way: a signal is heard by another thread
                other = threading.Thread(target=interruption.interrupt)
                other.start()
                other.join()

    backend.prepare(beginning_of(run), interruption)
    with pytest.raises((Interrupted, RunAborted, *backend.errors)):
        backend.publish(StagedRows(PAGE_SCHEMA, read_on), run, interruption)
    assert 1 < len(read_batches) < 50, "it was not the commit alone that was given up"
    assert read(table) == [(1, "Ann", 1)]
    if table.url is None:
        assert list(table.path.parent.iterdir()) == [table.path]
    publish(table, [person(1), person(3)], 3)
    assert (3, "Ann", 3) in read(table)
