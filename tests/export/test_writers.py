"""The writers of all destinations: a reader finds all rows of an export, or none."""

import os
import random
import re
import resource
import stat
import subprocess
from collections.abc import Iterator
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
from connector.warehouse.destination import Destination, Format, parse_destination
from connector.warehouse.opening import open_writer
from connector.warehouse.runs import EXPORTED_AT, ExportRun, Writer
from tests.export.people import AT, BARE, FULL, MIXED, beginning_of, run_of, table_of
from tests.export.readers import hold_in_excel, place_in, read_back
from tests.export.warehouses import DATABASE_FILES, FILES, run_sql

_MINUTES = count()


def read_in_order(destination: Destination) -> pa.Table:
    """Return the rows in the order of their ids: a database keeps no other order."""
    return read_back(destination).sort_by("id")


def count_target(destination: Destination) -> int | None:
    """Return the rows of the last export as its next export counts them, or None if there is no target."""
    writer = open_writer(destination)
    writer.prepare(beginning_of(next_run(0)))
    try:
        return writer.count_last({}) if writer.has_target else None
    finally:
        writer.discard()


def begin(writer: Writer) -> None:
    writer.prepare(beginning_of(run_of(1)))
    writer.start()


def next_run(rows: int) -> ExportRun:
    """Return a run that begins after every other run."""
    return run_of(rows, at=AT + timedelta(minutes=next(_MINUTES)))


def write(destination: Destination, *tables: pa.Table) -> pa.Table:
    """Export these rows, and return the rows that a reader must find."""
    run = next_run(sum(table.num_rows for table in tables))
    stamped = [_stamp(table, run) for table in tables]
    writer = open_writer(destination)
    writer.prepare(beginning_of(run))
    writer.start()
    for table in stamped:
        writer.add(table)
    writer.publish(run)
    writer.discard()
    return as_held(destination, pa.concat_tables([SCHEMA.empty_table(), *stamped]))


def as_held(destination: Destination, table: pa.Table) -> pa.Table:
    """The table as the format holds it."""
    return hold_in_excel(table) if destination.format is Format.EXCEL else table


def _stamp(table: pa.Table, run: ExportRun) -> pa.Table:
    times = pa.array([run.exported_at] * table.num_rows, SCHEMA.field(EXPORTED_AT).type)
    return table.set_column(SCHEMA.get_field_index(EXPORTED_AT), EXPORTED_AT, times)


def test_an_export_replaces_the_last_export_and_counts_its_rows(destination: Destination) -> None:
    assert count_target(destination) is None
    written = write(destination, MIXED, table_of({**FULL, "Id": 4}))
    assert read_in_order(destination).equals(written.sort_by("id"))
    assert count_target(destination) == 4
    written = write(destination, table_of(BARE))
    assert read_in_order(destination).equals(written.sort_by("id"))
    write(destination)
    assert read_back(destination).equals(SCHEMA.empty_table())


def test_a_second_start_discards_the_staged_rows(destination: Destination) -> None:
    writer = open_writer(destination)
    writer.prepare(beginning_of(run_of(1)))
    writer.start()
    writer.add(MIXED)
    writer.start()
    writer.add(table_of(BARE))
    writer.publish(run_of(1))

    assert read_back(destination).equals(as_held(destination, table_of(BARE)))


def test_a_discarded_export_leaves_the_target_unchanged_and_no_file(destination: Destination) -> None:
    for written in (None, MIXED):
        expected = None if written is None else write(destination, written)
        before = {path.name for path in destination.path.parent.iterdir()}
        writer = open_writer(destination)
        writer.prepare(beginning_of(run_of(1)))
        writer.start()
        for _ in range(3):
            writer.add(pa.concat_tables([MIXED] * 100))
        writer.discard()
        writer.discard()

        created = {destination.path.name} if destination.format in DATABASE_FILES else set()  # a file without a table
        assert {path.name for path in destination.path.parent.iterdir()} == before | created
        if expected is not None:
            assert read_in_order(destination).equals(expected.sort_by("id"))


def test_an_export_that_fails_leaves_the_target_unchanged_and_no_file(destination: Destination) -> None:
    written = write(destination, MIXED)
    before = sorted(file.name for file in destination.path.parent.iterdir())
    writer = open_writer(destination)
    writer.prepare(beginning_of(run_of(1)))
    writer.start()
    writer.add(table_of(BARE))
    with _broken(destination), pytest.raises(RunAborted, match="as it was"):
        writer.publish(next_run(1))
    writer.discard()

    assert sorted(entry.name for entry in destination.path.parent.iterdir()) == before
    assert read_in_order(destination).equals(written.sort_by("id"))


class _broken:  # noqa: N801 - reads as a state of the destination
    """Removes what an export needs: the partial file, or a column of the table."""

    def __init__(self, destination: Destination) -> None:
        self._destination = destination

    def __enter__(self) -> None:
        if self._destination.is_database:
            run_sql(self._destination, "alter table {}subscribers rename column first_name to renamed")
        else:
            (partial,) = self._destination.path.parent.glob(".*.partial")
            partial.unlink()

    def __exit__(self, *_: object) -> None:
        if self._destination.is_database:
            run_sql(self._destination, "alter table {}subscribers rename column renamed to first_name")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system of 24 KB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24k", "tmpfs", folder], capture_output=True)
    if mount.returncode:
        pytest.skip("needs the right to mount a file system")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_full_disk_under_a_new_database_can_be_tried_again(small_disk: Path, kind: str) -> None:
    (small_disk / "other").write_bytes(bytes(20_000))
    destination = parse_destination(f"{kind}:///{small_disk}/new.db")

    with pytest.raises(RunAborted, match=r"no space left on device|full"):
        write(destination, MIXED)


@pytest.mark.parametrize("kind", ["sqlite:///", "duckdb:///", ""])
def test_a_disk_without_inodes_can_be_tried_again(small_disk: Path, kind: str) -> None:
    subprocess.run(["mount", "-o", "remount,nr_inodes=1", small_disk], check=True)

    with pytest.raises(RunAborted, match="free some room"):
        write(parse_destination(f"{kind}{small_disk}/new.parquet"), MIXED)


def test_a_disk_that_fills_up_leaves_the_last_export_unchanged(file: Destination) -> None:
    """The disk under the exported file is full. The state of the connector may be on another disk."""
    written = write(file, MIXED)
    chance = random.Random(7)
    people = [{**FULL, "Id": number, "FirstName": chance.randbytes(200).hex()} for number in range(1000)]
    writer, before = open_writer(file), resource.getrlimit(resource.RLIMIT_FSIZE)
    writer.prepare(beginning_of(run_of(1000)))
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(RunAborted, match=r"Could not write .*File too large.* as it was; run it again"):
            fill(writer, people)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        writer.discard()
    assert [entry.name for entry in file.path.parent.iterdir()] == [file.path.name]
    assert read_in_order(file).equals(written.sort_by("id"))


def fill(writer: Writer, people: list[dict[str, Any]]) -> None:
    """Write these subscribers, and publish."""
    for first in range(0, len(people), 100):
        writer.add(table_of(*people[first : first + 100]))
    writer.publish(next_run(len(people)))


def test_only_the_owner_may_read_a_new_file_or_database(file: Destination) -> None:
    mask = os.umask(0)
    try:
        write(file, MIXED)
    finally:
        os.umask(mask)

    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600


def test_an_export_to_a_link_replaces_the_target_of_the_link(file: Destination, tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    file.path.symlink_to(real / file.path.name)
    written = write(file, MIXED)

    assert file.path.is_symlink()
    assert [path.name for path in real.iterdir()] == [file.path.name]
    assert read_in_order(file).equals(written.sort_by("id"))


def test_a_missing_directory_is_refused_before_the_list_is_read(tmp_path: Path) -> None:
    for form in (*FILES, *DATABASE_FILES):
        room = tmp_path / form
        room.mkdir()
        writer = open_writer(parse_destination(place_in(room, form)))
        room.rmdir()
        with pytest.raises(ConfigurationError, match="Cannot write in"):
            begin(writer)


@pytest.mark.parametrize("form", DATABASE_FILES)
def test_a_file_that_is_not_a_database_is_refused_before_the_list_is_read(form: Format, tmp_path: Path) -> None:
    destination = parse_destination(place_in(tmp_path, form))
    destination.path.write_bytes(b"id,email\n" * 1000)

    with pytest.raises(ConfigurationError, match="Cannot open or write"):
        count_target(destination)


def test_other_tables_and_views_of_a_database_stay_unchanged(table: Destination) -> None:
    run_sql(table, "create table {}other (x integer)", "insert into {}other values (1)")
    write(table, MIXED)
    run_sql(table, "create view {}active as select id from {}subscribers where is_active")
    write(table, table_of(FULL))

    assert run_sql(table, "select x from {}other") == [(1,)]
    assert run_sql(table, "select id from {}active") == [(FULL["Id"],)]


def test_a_table_may_have_any_name(table: Destination) -> None:
    for name in ('odd "name"; drop table x -- 100%', "Select 日本"):
        destination = replace(table, table=name)
        write(destination, MIXED)
        write(destination, table_of(BARE))
        assert read_back(destination).num_rows == 1, name


@pytest.mark.parametrize("schema", ["w", "memory"])
def test_a_schema_of_duckdb_may_have_the_name_of_its_database(tmp_path: Path, schema: str) -> None:
    destination = parse_destination(f"duckdb:///{tmp_path}/w.duckdb", schema=schema)
    for _ in range(2):
        write(destination, MIXED)
    assert run_sql(destination, f"select count(*) from w.{schema}.subscribers") == [(3,)]


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


CELLS = st.tuples(TEXT, st.none() | TEXT, st.none() | st.lists(TEXT, max_size=3))


@settings(max_examples=settings().max_examples // 3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(CELLS, max_size=15))
def test_any_text_comes_back_unchanged(file: Destination, rows: list[tuple[str, str | None, list[str] | None]]) -> None:
    if file.format is Format.EXCEL:  # XML excludes some characters
        keep = partial(re.sub, "[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]", "")
        rows = [
            (keep(first), last and keep(last), None if tags is None else [keep(tag) for tag in tags])
            for first, last, tags in rows
        ]
    wires = [
        {"Id": number, "FirstName": first, "LastName": last, "Tags": tags}
        for number, (first, last, tags) in enumerate(rows)
    ]
    written = write(file, table_of(*wires))

    assert read_in_order(file).equals(written.sort_by("id"))
