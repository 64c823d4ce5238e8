"""The writers of all destinations: a reader finds all rows of an export or no row of it."""

import gzip
import io
import os
import random
import re
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from connector.errors import ConfigurationError, RunAborted
from connector.warehouse.columns import SCHEMA
from connector.warehouse.database import ColumnKind, Interruption, StagedRows, Statement, TableName
from connector.warehouse.destination import Destination, Format, find_format_traits, parse_destination
from connector.warehouse.opening import find_format, open_database, open_writer
from connector.warehouse.runs import EXPORTED_AT, ExportRun, Writer
from tests.export.people import (
    BARE_SUBSCRIBER,
    EXPORT_TIME,
    FULL_SUBSCRIBER,
    MIXED_TABLE,
    build_run,
    build_start,
    build_test_table,
)
from tests.export.readers import build_target, convert_for_excel, read_exported_table
from tests.export.warehouses import DATABASE_FILE_FORMATS, DATABASE_FORMATS, FILE_FORMATS, parametrize_table, run_sql

_MINUTE_NUMBERS = count()  # each run begins one minute after the previous run


def read_sorted_table(destination: Destination) -> pa.Table:
    """Return the rows in the order of their ids, because a database has no order of rows."""
    return read_exported_table(destination).sort_by("id")


def read_last_row_count(destination: Destination, filters: dict[str, Any] | None = None) -> int | None:
    """Return the row count of the last export with these filters as the next export reads it, or None if there is no
    target."""
    writer = open_writer(destination)
    writer.prepare(build_start(build_next_run(0)))
    try:
        return writer.find_last_row_count(filters or {}) if writer.has_target else None
    finally:
        writer.discard()


def begin_export(writer: Writer) -> None:
    writer.prepare(build_start(build_run(1)))
    writer.start()


def build_next_run(row_count: int) -> ExportRun:
    """Return a run that begins after every other run."""
    return build_run(row_count, exported_at=EXPORT_TIME + timedelta(minutes=next(_MINUTE_NUMBERS)))


def export_tables(destination: Destination, *tables: pa.Table) -> pa.Table:
    """Export these tables, and return the table that a reader must find."""
    run = build_next_run(sum(table.num_rows for table in tables))
    exported_tables = [_set_export_time(table, run) for table in tables]
    writer = open_writer(destination)
    writer.prepare(build_start(run))
    writer.start()
    for table in exported_tables:
        writer.add(table)
    writer.publish(run)
    writer.discard()
    return convert_for_format(destination, pa.concat_tables([SCHEMA.empty_table(), *exported_tables]))


def convert_for_format(destination: Destination, table: pa.Table) -> pa.Table:
    """Return the table as the format stores it."""
    return convert_for_excel(table) if destination.format is Format.EXCEL else table


def _set_export_time(table: pa.Table, run: ExportRun) -> pa.Table:
    exported_times = pa.array([run.exported_at] * table.num_rows, SCHEMA.field(EXPORTED_AT).type)
    return table.set_column(SCHEMA.get_field_index(EXPORTED_AT), EXPORTED_AT, exported_times)


def test_an_export_replaces_the_last_export(destination: Destination) -> None:
    assert read_last_row_count(destination) is None
    written_table = export_tables(destination, MIXED_TABLE, build_test_table({**FULL_SUBSCRIBER, "Id": 4}))
    assert read_sorted_table(destination).equals(written_table.sort_by("id"))
    assert read_last_row_count(destination) == 4
    written_table = export_tables(destination, build_test_table(BARE_SUBSCRIBER))
    assert read_sorted_table(destination).equals(written_table.sort_by("id"))
    export_tables(destination)
    assert read_exported_table(destination).equals(SCHEMA.empty_table())


@pytest.mark.parametrize("destination", FILE_FORMATS, indirect=True)
def test_the_traits_of_a_file_format_match_the_files_that_the_format_writes(destination: Destination) -> None:
    traits, file_format = find_format_traits(destination.format), find_format(destination)
    repeated_table = pa.concat_tables([MIXED_TABLE] * 100).combine_chunks()
    file_writer = file_format(export_file := io.BytesIO(), SCHEMA, destination.file_options)
    file_writer.write(repeated_table)
    file_writer.close(build_run(repeated_table.num_rows))
    content = export_file.getvalue()
    assert (len(gzip.compress(content)) > len(content) / 10) is traits.is_compressed

    receipts_writer = file_format(io.BytesIO(), SCHEMA, destination.file_options)
    receipts_writer.write(MIXED_TABLE)
    with nullcontext() if traits.can_hold_receipts else pytest.raises(ValueError, match="needs a run"):
        receipts_writer.close(None)
    receipts_writer.discard()


@pytest.mark.parametrize("destination", [*FILE_FORMATS, Format.SQLITE], indirect=True)
def test_a_second_start_discards_the_staged_rows(destination: Destination) -> None:
    writer = open_writer(destination)
    begin_export(writer)
    writer.add(MIXED_TABLE)
    writer.start()
    writer.add(build_test_table(BARE_SUBSCRIBER))
    writer.publish(build_run(1))
    assert read_exported_table(destination).equals(convert_for_format(destination, build_test_table(BARE_SUBSCRIBER)))


@pytest.mark.parametrize("destination", [*FILE_FORMATS, *DATABASE_FILE_FORMATS], indirect=True)
def test_a_discarded_export_does_not_change_the_target(destination: Destination) -> None:
    for table in (None, MIXED_TABLE):
        expected_table = None if table is None else export_tables(destination, table)
        names_before = {path.name for path in destination.path.parent.iterdir()}
        writer = open_writer(destination)
        begin_export(writer)
        for _ in range(3):
            writer.add(pa.concat_tables([MIXED_TABLE] * 100))
        writer.discard()
        writer.discard()
        # The database file remains, without a table.
        created_names = {destination.path.name} if destination.format in DATABASE_FILE_FORMATS else set()
        assert {path.name for path in destination.path.parent.iterdir()} == names_before | created_names
        if expected_table is not None:
            assert read_sorted_table(destination).equals(expected_table.sort_by("id"))


@pytest.mark.parametrize(
    "destination", [Format.CSV, Format.SQLITE, Format.DUCKDB, Format.POSTGRESQL, Format.MYSQL], indirect=True
)
def test_an_export_that_fails_does_not_change_the_target(destination: Destination) -> None:
    written_table = export_tables(destination, MIXED_TABLE)
    names_before = sorted(file.name for file in destination.path.parent.iterdir())
    writer = open_writer(destination)
    begin_export(writer)
    writer.add(build_test_table(BARE_SUBSCRIBER))
    with break_destination(destination), pytest.raises(RunAborted, match="unchanged"):
        writer.publish(build_next_run(1))
    writer.discard()
    assert sorted(entry.name for entry in destination.path.parent.iterdir()) == names_before
    assert read_sorted_table(destination).equals(written_table.sort_by("id"))


@contextmanager
def break_destination(destination: Destination) -> Iterator[None]:
    """Remove the partial file of a destination, or rename a column of its table until the `with` block ends."""
    if destination.is_database:
        run_sql(destination, "alter table {}subscribers rename column first_name to renamed")
        yield
        run_sql(destination, "alter table {}subscribers rename column renamed to first_name")
    else:
        (partial_file,) = destination.path.parent.glob(".*.partial")
        partial_file.unlink()
        yield


def test_a_disk_that_fills_up_leaves_the_last_export_unchanged(file: Destination) -> None:
    """A limit on the size of files imitates a full disk."""
    written_table = export_tables(file, MIXED_TABLE)
    random_source = random.Random(7)
    people = [
        {**FULL_SUBSCRIBER, "Id": index, "FirstName": random_source.randbytes(200).hex()} for index in range(1000)
    ]
    writer, limits_before = open_writer(file), resource.getrlimit(resource.RLIMIT_FSIZE)
    writer.prepare(build_start(build_run(1000)))
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits_before[1]))
    try:
        with pytest.raises(RunAborted, match=r"Could not write .*File too large.*unchanged. Run again"):
            write_and_publish(writer, people)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits_before)
        writer.discard()
    assert [entry.name for entry in file.path.parent.iterdir()] == [file.path.name]
    assert read_sorted_table(file).equals(written_table.sort_by("id"))


def write_and_publish(writer: Writer, people: list[dict[str, Any]]) -> None:
    """Write these subscribers in tables of 100 rows, and publish the export."""
    for first_index in range(0, len(people), 100):
        writer.add(build_test_table(*people[first_index : first_index + 100]))
    writer.publish(build_next_run(len(people)))


def test_only_the_owner_may_read_a_new_file_or_database(file: Destination) -> None:
    umask_before = os.umask(0)
    try:
        export_tables(file, MIXED_TABLE)
    finally:
        os.umask(umask_before)
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600


def test_an_export_to_a_link_replaces_the_target_of_the_link(file: Destination, tmp_path: Path) -> None:
    real_folder = tmp_path / "real"
    real_folder.mkdir()
    file.path.symlink_to(real_folder / file.path.name)
    written_table = export_tables(file, MIXED_TABLE)
    assert file.path.is_symlink()
    assert [path.name for path in real_folder.iterdir()] == [file.path.name]
    assert read_sorted_table(file).equals(written_table.sort_by("id"))


def test_a_missing_directory_is_refused_before_the_list_is_read(tmp_path: Path) -> None:
    for file_format in (*FILE_FORMATS, *DATABASE_FILE_FORMATS):
        folder = tmp_path / file_format
        folder.mkdir()
        writer = open_writer(parse_destination(build_target(folder, file_format)))
        folder.rmdir()
        with pytest.raises(ConfigurationError, match="Cannot write in"):
            begin_export(writer)


@pytest.mark.parametrize("file_format", DATABASE_FILE_FORMATS)
def test_a_file_that_is_not_a_database_is_refused_before_the_list_is_read(file_format: Format, tmp_path: Path) -> None:
    destination = parse_destination(build_target(tmp_path, file_format))
    destination.path.write_bytes(b"id,email\n" * 1000)
    with pytest.raises(ConfigurationError, match="Cannot open or write"):
        read_last_row_count(destination)


def test_other_tables_and_views_of_a_database_stay_unchanged(table: Destination) -> None:
    run_sql(table, "create table {}other (x integer)", "insert into {}other values (1)")
    export_tables(table, MIXED_TABLE)
    run_sql(table, "create view {}active as select id from {}subscribers where is_active")
    export_tables(table, build_test_table(FULL_SUBSCRIBER))
    assert run_sql(table, "select x from {}other") == [(1,)]
    assert run_sql(table, "select id from {}active") == [(FULL_SUBSCRIBER["Id"],)]


@parametrize_table([Format.DUCKDB, Format.POSTGRESQL, Format.MYSQL])
def test_a_table_may_have_any_name(table: Destination) -> None:
    for name in ('odd "name"; drop table x -- 100%', "Select 日本"):
        destination = replace(table, table=name)
        export_tables(destination, MIXED_TABLE)
        export_tables(destination, build_test_table(BARE_SUBSCRIBER))
        assert read_exported_table(destination).num_rows == 1, name


@pytest.mark.parametrize("schema", ["w", "memory"])
def test_a_schema_in_duckdb_may_have_the_name_of_its_database(tmp_path: Path, schema: str) -> None:
    destination = parse_destination(f"duckdb:///{tmp_path}/w.duckdb", schema=schema)
    for _ in range(2):
        export_tables(destination, MIXED_TABLE)
    assert run_sql(destination, f"select count(*) from w.{schema}.subscribers") == [(3,)]


TEXT_STRATEGY = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


ROW_STRATEGY = st.tuples(TEXT_STRATEGY, st.none() | TEXT_STRATEGY, st.none() | st.lists(TEXT_STRATEGY, max_size=3))


@settings(max_examples=settings().max_examples // 3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(ROW_STRATEGY, max_size=15))
def test_any_text_is_read_back_unchanged(
    file: Destination, rows: list[tuple[str, str | None, list[str] | None]]
) -> None:
    if file.format is Format.EXCEL:  # XML does not allow some characters
        remove_forbidden = partial(re.sub, "[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]", "")
        rows = [
            (
                remove_forbidden(first_name),
                last_name and remove_forbidden(last_name),
                None if tags is None else [remove_forbidden(tag) for tag in tags],
            )
            for first_name, last_name, tags in rows
        ]
    subscriber_objects = [
        {"Id": index, "FirstName": first_name, "LastName": last_name, "Tags": tags}
        for index, (first_name, last_name, tags) in enumerate(rows)
    ]
    written_table = export_tables(file, build_test_table(*subscriber_objects))
    assert read_sorted_table(file).equals(written_table.sort_by("id"))


@parametrize_table(DATABASE_FORMATS)
def test_row_times_and_the_export_time_are_stored_in_the_same_way(table: Destination) -> None:
    database, name = open_database(table), TableName("moments", table.schema)
    table_sql, type_sql = database.dialect.format_name(name), database.dialect.type_by_kind[ColumnKind.TIME]
    batch = pa.record_batch({"row_time": pa.array([EXPORT_TIME, None], ColumnKind.TIME.value.arrow)})
    with database.connect(Interruption()):
        database.run(Statement(f"CREATE TABLE {table_sql} (row_time {type_sql}, export_time {type_sql})"))
        rows = StagedRows(batch.schema, lambda: iter([batch]))
        database.load(table_sql, rows, {"export_time": database.convert_time(EXPORT_TIME)})
        count_sql = (
            f"SELECT count(*), count(row_time) FROM {table_sql} WHERE COALESCE(row_time, export_time) = export_time"
        )
        assert [tuple(row) for row in database.fetch(Statement(count_sql), 1)] == [(2, 1)]
