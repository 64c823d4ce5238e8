"""Every destination passes the same tests: what is read back is what was written, all of it or nothing."""

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connector.errors import ConfigurationError, RunAborted
from connector.export import Destination, Format, parse_destination
from connector.export.columns import SCHEMA
from connector.export.exporter import open_writer
from tests.export.people import BARE, FULL, MIXED, table_of
from tests.export.readers import place_in, read_back

DATABASES = (Format.DUCKDB, Format.SQLITE)


@pytest.fixture(params=list(Format))
def destination(request: pytest.FixtureRequest, tmp_path: Path) -> Destination:
    return parse_destination(place_in(tmp_path, request.param))


def write(destination: Destination, *tables: pa.Table) -> None:
    writer = open_writer(destination)
    writer.start()
    for table in tables:
        writer.add(table)
    writer.publish()
    writer.discard()


def test_what_is_read_back_is_what_was_written(destination: Destination) -> None:
    write(destination, MIXED, table_of(FULL))

    assert read_back(destination).equals(pa.concat_tables([MIXED, table_of(FULL)]))


def test_no_rows_are_an_export_too(destination: Destination) -> None:
    write(destination)

    assert read_back(destination).equals(SCHEMA.empty_table())


def test_many_rows_come_back_in_their_order(destination: Destination) -> None:
    tables = [table_of(*({**BARE, "Id": 1000 * page + row} for row in range(1000))) for page in range(40)]
    write(destination, *tables)

    assert read_back(destination)["id"].to_pylist() == list(range(40_000))


def test_another_export_replaces_the_one_before(destination: Destination) -> None:
    assert not open_writer(destination).has_target
    write(destination, MIXED)
    assert open_writer(destination).has_target
    write(destination, table_of(BARE))

    assert read_back(destination).equals(table_of(BARE))


def test_starting_again_forgets_what_was_staged(destination: Destination) -> None:
    writer = open_writer(destination)
    writer.start()
    writer.add(MIXED)
    writer.start()
    writer.add(table_of(BARE))
    writer.publish()

    assert read_back(destination).equals(table_of(BARE))


@pytest.mark.parametrize("is_there", [False, True])
def test_what_is_discarded_leaves_the_target_as_it_was_and_no_file(destination: Destination, is_there: bool) -> None:
    if is_there:
        write(destination, MIXED)
    before = sorted(each.name for each in destination.path.parent.iterdir())
    writer = open_writer(destination)
    writer.start()
    for _ in range(30):
        writer.add(pa.concat_tables([MIXED] * 1000))
    writer.discard()
    writer.discard()

    assert sorted(each.name for each in destination.path.parent.iterdir()) == before
    if is_there:
        assert read_back(destination).equals(MIXED)


def test_a_publish_that_fails_leaves_the_target_as_it_was_and_no_file(destination: Destination) -> None:
    write(destination, MIXED)
    before = sorted(each.name for each in destination.path.parent.iterdir())
    writer = open_writer(destination)
    writer.start()
    writer.add(table_of(BARE))
    with _broken(destination), pytest.raises(RunAborted, match="as it was"):
        writer.publish()
    writer.discard()

    assert sorted(each.name for each in destination.path.parent.iterdir()) == before
    assert read_back(destination).equals(MIXED)


class _broken:  # noqa: N801 - reads as a state of the destination
    """Takes away what publishing needs: the partial file, or, by a view of its name, the table's place."""

    def __init__(self, destination: Destination) -> None:
        self._destination = destination

    def __enter__(self) -> None:
        if self._destination.is_database:
            rename, view = "alter table subscribers rename to kept", "create view subscribers as select * from kept"
            _run(self._destination, rename, view)
        else:
            (partial,) = self._destination.path.parent.glob(".*.partial")
            partial.unlink()

    def __exit__(self, *_: object) -> None:
        if self._destination.is_database:
            _run(self._destination, "drop view subscribers", "alter table kept rename to subscribers")


def test_only_its_owner_may_read_a_file_or_a_database_that_is_new(destination: Destination) -> None:
    mask = os.umask(0)
    try:
        write(destination, MIXED)
    finally:
        os.umask(mask)

    assert stat.S_IMODE(destination.path.stat().st_mode) == 0o600


def test_a_link_stays_a_link_and_what_it_points_to_is_replaced(destination: Destination, tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    destination.path.symlink_to(real / destination.path.name)
    write(destination, MIXED)

    assert destination.path.is_symlink()
    assert [each.name for each in real.iterdir()] == [destination.path.name]
    assert read_back(destination).equals(MIXED)


def test_a_directory_that_vanished_is_told_before_anything_is_read(tmp_path: Path) -> None:
    for form in Format:
        room = tmp_path / form
        room.mkdir()
        writer = open_writer(parse_destination(place_in(room, form)))
        room.rmdir()
        with pytest.raises(ConfigurationError, match="Cannot write in"):
            writer.start()


@pytest.mark.parametrize("form", DATABASES)
def test_a_file_that_is_no_database_is_told_before_anything_is_read(form: Format, tmp_path: Path) -> None:
    destination = parse_destination(place_in(tmp_path, form))
    destination.path.write_bytes(b"id,email\n" * 1000)

    with pytest.raises(ConfigurationError, match="another file"):
        _ = open_writer(destination).has_target


@pytest.mark.parametrize("form", DATABASES)
def test_other_tables_and_views_of_a_database_stay(form: Format, tmp_path: Path) -> None:
    destination = parse_destination(place_in(tmp_path, form))
    statements = ["create table other (x integer)", "insert into other values (1)"]
    _run(destination, *statements)
    write(destination, MIXED)
    _run(destination, "create view active as select id from subscribers where is_active")
    write(destination, table_of(FULL))

    assert _run(destination, "select x from other") == [(1,)]
    assert _run(destination, "select id from active") == [(FULL["Id"],)]


@pytest.mark.parametrize("table", ['odd "name"; drop table x --', "Select", "日本"])
@pytest.mark.parametrize("form", DATABASES)
def test_any_name_is_only_a_name(form: Format, table: str, tmp_path: Path) -> None:
    destination = parse_destination(place_in(tmp_path, form), table=table)
    write(destination, MIXED)
    write(destination, MIXED)

    quoted = '"' + table.replace('"', '""') + '"'
    assert _run(destination, f"select count(*) from {quoted}") == [(3,)]
    assert open_writer(destination).has_target


def test_a_schema_of_duckdb_is_made_when_missing(tmp_path: Path) -> None:
    destination = parse_destination(f"duckdb:///{tmp_path}/w.duckdb", schema="esp")
    write(destination, MIXED)

    assert _run(destination, "select count(*) from esp.subscribers") == [(3,)]
    assert open_writer(destination).has_target
    assert not open_writer(parse_destination(f"duckdb:///{tmp_path}/w.duckdb")).has_target


def test_a_reader_of_sqlite_sees_the_old_rows_until_the_new_ones_are_whole(tmp_path: Path) -> None:
    destination = parse_destination(f"sqlite:///{tmp_path}/w.db")
    write(destination, MIXED)
    writer = open_writer(destination)
    writer.start()
    writer.add(table_of(BARE))

    assert _run(destination, "select count(*) from subscribers") == [(3,)], "staging takes no lock and shows nothing"
    writer.publish()
    assert _run(destination, "select count(*) from subscribers") == [(1,)]


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@pytest.mark.parametrize("form", list(Format))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.tuples(TEXT, st.none() | TEXT, st.none() | st.lists(TEXT, max_size=3)), max_size=5))
def test_any_text_comes_back_as_it_was(
    form: Format, tmp_path: Path, texts: list[tuple[str, str | None, list[str] | None]]
) -> None:
    destination = parse_destination(place_in(tmp_path, form))
    wires = [
        {"Id": number, "FirstName": first, "LastName": last, "Tags": tags}
        for number, (first, last, tags) in enumerate(texts)
    ]
    write(destination, table_of(*wires))

    assert read_back(destination).equals(table_of(*wires))


def _run(destination: Destination, *statements: str) -> list[tuple[object, ...]]:
    """Run statements on the destination's database; gives the rows of the last."""
    rows: list[tuple[object, ...]] = []
    for connection in _connections(destination):
        for statement in statements:
            rows = connection.execute(statement).fetchall()
    return rows


def _connections(destination: Destination) -> Iterator[sqlite3.Connection | duckdb.DuckDBPyConnection]:
    if destination.format is Format.DUCKDB:
        with duckdb.connect(str(destination.path)) as duck:
            yield duck
    else:
        with closing(sqlite3.connect(destination.path)) as lite, lite:
            yield lite
