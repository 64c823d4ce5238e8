"""Concurrent exports to one table, and readers of the table. Exports wait for the lock of the database."""

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
from connector.paging.certificate import CertificateVerdict
from connector.warehouse.columns import SCHEMA
from connector.warehouse.database import ExportInterrupted, StagedRows, TableName
from connector.warehouse.destination import Destination, Format, parse_destination
from connector.warehouse.duckdb import DuckdbDatabase
from connector.warehouse.opening import open_database, open_writer
from connector.warehouse.runs import ExportStart, WriteMode, Writer
from connector.warehouse.sqlite import SqliteDatabase
from connector.warehouse.table_writer import TableWriter
from tests.export.people import build_run, build_start, build_table
from tests.export.test_modes import build_day_time, build_person, build_person_of_base, publish_people, read_rows
from tests.export.warehouses import FILE_FORMATS, MERGING_FORMATS, SERVER_FORMATS, connect, parametrize_table, run_sql

DATABASES_WITH_READERS = (Format.POSTGRESQL, Format.MYSQL, Format.SQLITE)
"""Databases whose tables other programs may read or lock during an export."""
LOCK_FIRST_RUN_SQL = "update {}_connector_runs set job = job where number = 1"


def begin_export(destination: Destination, run_number: int, filters: dict[str, Any] | None = None) -> Writer:
    """Return the writer of an export that has read one subscriber, and has not published its rows."""
    writer = open_writer(destination)
    writer.prepare(ExportStart(f"run-{run_number}", "nightly", filters or {}, build_day_time(run_number)))
    writer.start()
    base_id = (filters or {}).get("base_id", 1)
    people = [build_person_of_base(base_id, base_id, FirstName=f"v{run_number}")]
    writer.add(build_table(people, run_id=f"run-{run_number}", exported_at=build_day_time(run_number)))
    return writer


def finish_export(writer: Writer, run_number: int, filters: dict[str, Any] | None = None) -> None:
    try:
        writer.publish(
            build_run(1, run_id=f"run-{run_number}", exported_at=build_day_time(run_number), filters=filters)
        )
    finally:
        writer.discard()


@parametrize_table([Format.SQLITE, Format.MYSQL])
def test_an_earlier_run_does_not_overwrite_a_later_run_despite_wrong_clocks(table: Destination) -> None:
    earlier_writer, later_writer = begin_export(table, 9), begin_export(table, 2)
    finish_export(later_writer, 2)
    with pytest.raises(RunAborted, match=r"began later \(number 2; this export has the number 1\)"):
        finish_export(earlier_writer, 9)
    assert read_rows(table) == [(1, "v2", 2)]
    publish_people(table, [build_person(3)], 1)
    assert read_rows(table) == [(3, "Ann", 1)]


@parametrize_table([Format.SQLITE, Format.MYSQL])
def test_a_table_that_another_program_fills_during_an_export_stays_unchanged(table: Destination) -> None:
    writer = begin_export(table, 1)
    publish_people(table, [build_person(7)], 2)
    # Now the table of runs does not show who wrote the row.
    run_sql(table, "delete from {}_connector_runs where number = 2")
    with pytest.raises(RunAborted, match=r"did not write.*The table is unchanged"):
        finish_export(writer, 1)
    assert read_rows(table) == [(7, "Ann", 2)]


@parametrize_table(MERGING_FORMATS, "history", "append", "upsert")
def test_exports_of_different_bases_are_both_written(table: Destination) -> None:
    first_writer, second_writer = begin_export(table, 1, {"base_id": 7}), begin_export(table, 2, {"base_id": 9})
    finish_export(second_writer, 2, {"base_id": 9})
    finish_export(first_writer, 1, {"base_id": 7})
    assert read_rows(table) == [(7, "v1", 1), (9, "v2", 2)]


@parametrize_table(SERVER_FORMATS)
def test_an_export_waits_until_another_export_has_published(table: Destination) -> None:
    publish_people(table, [build_person(1)], 1)
    writer = begin_export(table, 2)
    publishing_thread = threading.Thread(target=finish_export, args=(writer, 2))
    with connect(table) as locking_connection:
        locking_connection.exec_driver_sql(LOCK_FIRST_RUN_SQL.replace("{}", f"{table.schema}." if table.schema else ""))
        publishing_thread.start()
        publishing_thread.join(0.5)
        assert publishing_thread.is_alive()
        assert read_rows(table) == [(1, "Ann", 1)]
    publishing_thread.join(30)
    assert read_rows(table) == [(1, "v2", 2)]


@parametrize_table(SERVER_FORMATS, "append")
def test_first_exports_that_begin_together_have_different_numbers(table: Destination) -> None:
    barrier, failure_messages = threading.Barrier(3), []

    def run(export_number: int) -> None:
        barrier.wait(30)
        try:
            finish_export(begin_export(table, export_number), export_number)
        except RunAborted as error:
            failure_messages.append(str(error))

    threads = [threading.Thread(target=run, args=(export_number,)) for export_number in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failure_messages == []
    assert run_sql(table, "select number from {}_connector_runs where finished_at is not null order by number") == [
        (1,),
        (2,),
        (3,),
    ]
    assert len(read_rows(table)) == 3


@contextmanager
def lock_sqlite(path: Path) -> Iterator[None]:
    with closing(sqlite3.connect(path, isolation_level=None)) as lock_connection:
        lock_connection.execute("begin immediate")
        yield


@contextmanager
def lock_duckdb(path: Path) -> Iterator[None]:
    script = f"import duckdb, sys; opened = duckdb.connect({str(path)!r}); print(1, flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield
        process.communicate()


@contextmanager
def lock_duckdb_in_this_process(path: Path) -> Iterator[None]:
    """Keep the file open in this process. DuckDB then refuses to attach the file a second time."""
    with duckdb.connect(str(path)):
        yield


@pytest.mark.parametrize(
    ("database_class", "lock_file"),
    [(SqliteDatabase, lock_sqlite), (DuckdbDatabase, lock_duckdb), (DuckdbDatabase, lock_duckdb_in_this_process)],
)
def test_an_export_to_a_locked_database_file_ends_and_a_later_export_succeeds(
    tmp_path: Path,
    database_class: type[SqliteDatabase | DuckdbDatabase],
    lock_file: Callable[[Path], AbstractContextManager[None]],
) -> None:
    table = parse_destination(f"{'sqlite' if database_class is SqliteDatabase else 'duckdb'}:///{tmp_path}/w.db")
    publish_people(table, [build_person(1)], 1)
    writer = TableWriter(
        TableName("subscribers"), SCHEMA, WriteMode.REPLACE, database_class(table.path, max_lock_wait_s=0)
    )
    with lock_file(table.path), pytest.raises(RunAborted, match=r"cannot be written now.*Run again"):
        writer.prepare(ExportStart("run-2", "nightly", {}, build_day_time(2)))
    writer.discard()
    publish_people(table, [build_person(2)], 2)
    assert read_rows(table) == [(2, "Ann", 2)]


def interrupt_waiting_export(writer: Writer) -> None:
    """Publish in a thread, interrupt the export while the thread waits, and check that the thread ends."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            finish_export(writer, 2)
        except BaseException as error:  # noqa: BLE001 - the number of errors is checked below
            errors.append(error)

    publishing_thread = threading.Thread(target=run)
    publishing_thread.start()
    publishing_thread.join(0.5)
    assert publishing_thread.is_alive()
    writer.interrupt()
    publishing_thread.join(5)
    assert not publishing_thread.is_alive()
    assert len(errors) == 1


@parametrize_table(DATABASES_WITH_READERS)
def test_an_interruption_ends_an_export_that_waits_for_a_lock(table: Destination) -> None:
    publish_people(table, [build_person(1)], 1)
    writer = begin_export(table, 2)
    with connect(table) as locking_connection:
        locking_connection.exec_driver_sql(LOCK_FIRST_RUN_SQL.replace("{}", f"{table.schema}." if table.schema else ""))
        interrupt_waiting_export(writer)
    assert read_rows(table) == [(1, "Ann", 1)]
    publish_people(replace(table), [build_person(3)], 3)
    assert read_rows(table) == [(3, "Ann", 3)]


def test_an_interruption_ends_a_commit_that_waits_for_a_reader_of_the_file(tmp_path: Path) -> None:
    table = parse_destination(f"sqlite:///{tmp_path}/w.db")
    publish_people(table, [build_person(1)], 1)
    writer = begin_export(table, 2)
    with closing(sqlite3.connect(table.path, isolation_level=None)) as reading_connection:
        reading_connection.execute("begin")
        reading_connection.execute("select count(*) from subscribers").fetchone()
        interrupt_waiting_export(writer)
    assert read_rows(table) == [(1, "Ann", 1)]


@parametrize_table([Format.DUCKDB, Format.POSTGRESQL])
def test_an_interruption_while_rows_are_loaded_leaves_the_table_unchanged(
    table: Destination, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connector.warehouse.database._MIN_BATCH_ROWS", 100)
    publish_people(table, [build_person(1)], 1)
    database, run = open_database(table), build_run(300, run_id="run-2", exported_at=build_day_time(2))
    writer = TableWriter(TableName(table.table, table.schema), SCHEMA, table.mode, database)
    original_load, batch_numbers = database.load, count()

    def interrupt_after_first_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
        if next(batch_numbers) == 0:  # a signal arrives in another thread
            interrupting_thread = threading.Thread(target=writer.interrupt)
            interrupting_thread.start()
            interrupting_thread.join()
        return batch

    def load_and_interrupt(table_url: str, rows: StagedRows, arguments: Mapping[str, object]) -> int:
        return original_load(table_url, rows.map(interrupt_after_first_batch), arguments)

    writer.prepare(build_start(run))
    writer.start()
    people = build_table([build_person(2)], run_id="run-2", exported_at=build_day_time(2))
    for first_id in range(0, run.row_count, 100):
        ids = pa.array(range(first_id, first_id + 100), pa.int64())
        rows = people.take(pa.array([0] * len(ids)))
        writer.add(rows.set_column(0, people.schema.field("id"), ids))
    monkeypatch.setattr(database, "load", load_and_interrupt)
    with pytest.raises((ExportInterrupted, RunAborted)):
        writer.publish(run)
    writer.discard()
    assert next(batch_numbers) < 3, "the interruption came after the rows were loaded"
    assert read_rows(table) == [(1, "Ann", 1)]
    if table.url is None:
        assert list(table.path.parent.iterdir()) == [table.path]
    publish_people(table, [build_person(1), build_person(3)], 3)
    assert (3, "Ann", 3) in read_rows(table)


parametrize_files = pytest.mark.parametrize("file", FILE_FORMATS, indirect=True)


def publish_incomplete_export(writer: Writer) -> None:
    writer.publish(build_run(1, run_id="run-5", exported_at=build_day_time(5), verdict=CertificateVerdict.INCOMPLETE))


@parametrize_table([Format.SQLITE, Format.MYSQL])
def test_an_incomplete_export_does_not_replace_a_table_that_was_filled_during_the_export(table: Destination) -> None:
    writer = begin_export(table, 5)
    assert not writer.has_target
    publish_people(table, [build_person(1), build_person(2)], 1)
    with pytest.raises(RunAborted, match="An incomplete export replaces no rows"):
        publish_incomplete_export(writer)
    writer.discard()
    assert read_rows(table) == [(1, "Ann", 1), (2, "Ann", 1)]
    assert run_sql(table, "select run_id from {}_connector_runs where finished_at is not null") == [("run-1",)]


@parametrize_files
def test_an_incomplete_export_does_not_replace_a_file_that_was_written_during_the_export(file: Destination) -> None:
    writer = begin_export(file, 5)
    assert not writer.has_target
    file.path.write_bytes(b"another's")
    with pytest.raises(RunAborted, match="while the list was read"):
        publish_incomplete_export(writer)
    writer.discard()
    assert file.path.read_bytes() == b"another's"
    assert [entry.name for entry in file.path.parent.iterdir()] == [file.path.name]


PERSON_COUNT = 400


@parametrize_table([Format.MYSQL])
def test_a_reader_sees_only_complete_exports(table: Destination) -> None:
    publish_people(table, [build_person(index) for index in range(PERSON_COUNT)], 1)
    seen_count_pairs: set[tuple[int, int]] = set()
    finished_event, read_event = threading.Event(), threading.Event()

    def read_until_finished() -> None:
        while not finished_event.is_set():
            ((run_count, row_count),) = run_sql(table, "select count(distinct _run_id), count(*) from {}subscribers")
            seen_count_pairs.add((run_count, row_count))
            read_event.set()

    reader_thread = threading.Thread(target=read_until_finished)
    reader_thread.start()
    try:
        for export_number in range(2, 6):
            read_event.clear()
            publish_people(
                table, [build_person(index, f"v{export_number}") for index in range(PERSON_COUNT)], export_number
            )
            assert read_event.wait(30)
    finally:
        finished_event.set()
        reader_thread.join()
    assert seen_count_pairs == {(1, PERSON_COUNT)}
