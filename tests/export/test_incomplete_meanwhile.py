"""An incomplete export replaces nothing, also not what was made after it had looked and while it read."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from connector.errors import RunAborted
from connector.export import Destination, Format, parse_destination
from connector.export.columns import build_table
from connector.export.exporter import open_writer
from connector.export.writers import Mode, Writer
from connector.export.writers.staging import put_in_free_place
from connector.pages import Verdict
from tests.export.people import run_of
from tests.export.readers import read_back
from tests.export.test_modes import day, person, publish, read
from tests.export.warehouses import DATABASES, FILES, open_destination, run_sql


@pytest.fixture(params=DATABASES)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Destination:
    return open_destination(request, tmp_path, request.param)


@pytest.fixture(params=FILES)
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Destination:
    return open_destination(request, tmp_path, request.param)


@pytest.fixture
def mysql(request: pytest.FixtureRequest, tmp_path: Path) -> Destination:
    return open_destination(request, tmp_path, Format.MYSQL)


def stage(destination: Destination, *people: dict[str, Any]) -> Writer:
    """An export that has found nothing there, and has read these people as the run of day 5."""
    writer = open_writer(destination)
    writer.start()
    assert not writer.has_target
    writer.add(build_table(people, run_id="run-5", exported_at=day(5)))
    return writer


@contextmanager
def closing_writer(writer: Writer) -> Iterator[Writer]:
    try:
        yield writer
    finally:
        writer.discard()


def publish_incomplete(writer: Writer) -> None:
    writer.publish(run_of(1, run_id="run-5", at=day(5), verdict=Verdict.INCOMPLETE))


def test_an_incomplete_export_leaves_a_table_that_was_made_meanwhile(table: Destination) -> None:
    writer = stage(table, person(9))
    publish(table, [person(1), person(2)], 1)
    with pytest.raises(RunAborted, match="made meanwhile, and an incomplete export replaces nothing"):
        publish_incomplete(writer)
    writer.discard()

    assert read(table) == [(1, "Ann", 1), (2, "Ann", 1)]
    assert run_sql(table, "select run_id from {}_connector_runs") == [("run-1",)]


def test_an_incomplete_export_leaves_tags_that_were_made_meanwhile(table: Destination) -> None:
    writer = stage(replace(table, tags_table="labels"), person(9))
    run_sql(table, "create table {}labels (id bigint, position bigint, tag varchar(50), _run_id varchar(50))")
    with pytest.raises(RunAborted, match="labels was made meanwhile"):
        publish_incomplete(writer)
    writer.discard()

    assert not open_writer(table).has_target


def test_an_incomplete_export_makes_the_first_table(table: Destination) -> None:
    with closing_writer(stage(replace(table, tags_table="labels"), person(9))) as writer:
        publish_incomplete(writer)

    assert read(table) == [(9, "Ann", 5)]


def test_an_incomplete_export_leaves_a_file_that_was_made_meanwhile(file: Destination) -> None:
    writer = stage(file, person(9))
    file.path.write_bytes(b"another's")
    with pytest.raises(RunAborted, match="made by another program meanwhile and was left as it is"):
        publish_incomplete(writer)
    writer.discard()

    assert file.path.read_bytes() == b"another's"
    assert [each.name for each in file.path.parent.iterdir()] == [file.path.name]


def test_an_incomplete_export_makes_the_first_file_for_its_owner_alone(file: Destination) -> None:
    with closing_writer(stage(file, person(9))) as writer:
        publish_incomplete(writer)

    assert read_back(file)["id"].to_pylist() == [9]
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in file.path.parent.iterdir()] == [file.path.name]


def test_a_new_database_does_not_take_the_place_of_a_file_that_came_at_the_last_moment(tmp_path: Path) -> None:
    """After the look, and before the new one is moved there."""
    table = parse_destination(f"sqlite:///{tmp_path}/w.db")
    writer = stage(table, person(1))

    def come(connection: sa.Connection) -> None:
        table.path.write_bytes(b"somebody's")

    sa.event.listen(sa.Engine, "commit", come)
    try:
        with pytest.raises(RunAborted, match="made by another program meanwhile"):
            writer.publish(run_of(1, run_id="run-5", at=day(5)))
    finally:
        sa.event.remove(sa.Engine, "commit", come)
        writer.discard()

    assert table.path.read_bytes() == b"somebody's"
    assert list(tmp_path.iterdir()) == [table.path]


@pytest.mark.parametrize("moment", ["INSERT", "RENAME"])
@pytest.mark.parametrize("mode", ["replace", "append", "upsert", "history"])
def test_a_table_of_mysql_that_came_while_another_was_filled_is_not_put_aside(
    mysql: Destination, mode: str, moment: str
) -> None:
    """Made by somebody who takes no turns."""
    writer = stage(replace(mysql, mode=Mode(mode)), person(9))
    came: list[str] = []

    def come(_: Any, __: Any, text: str, *___: Any) -> None:
        begins = "SELECT @@max_allowed_packet" if moment == "INSERT" else moment
        if text.startswith(begins) and not came:
            came.append(text)
            run_sql(mysql, "create table subscribers (id bigint)", "insert into subscribers values (77)")

    sa.event.listen(sa.Engine, "before_cursor_execute", come)
    try:
        with pytest.raises(RunAborted, match=r"already exists|made meanwhile"):
            publish_incomplete(writer)
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", come)
        writer.discard()

    assert came
    assert run_sql(mysql, "select id from subscribers") == [(77,)]


def test_where_files_have_no_second_names_a_look_has_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)  # no file system without them can be had here
    partial, target = tmp_path / "partial", tmp_path / "target"
    partial.write_text("new")
    target.write_text("old")
    with pytest.raises(RunAborted):
        put_in_free_place(partial, target)
    assert target.read_text() == "old"

    target.unlink()
    put_in_free_place(partial, target)
    assert target.read_text() == "new"
