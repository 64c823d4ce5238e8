"""An incomplete export replaces nothing, also not what was made after it had looked and while it read."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from connector.errors import RunAborted
from connector.paging import Verdict
from connector.warehouse import Destination, ExportStart, Writer, open_writer
from tests.export.people import build_table, run_of
from tests.export.readers import read_back
from tests.export.test_modes import day, person, publish, read
from tests.export.warehouses import DATABASES, FILES, open_destination, run_sql


@pytest.fixture(params=DATABASES)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Destination:
    return open_destination(request, tmp_path, request.param)


@pytest.fixture(params=FILES)
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Destination:
    return open_destination(request, tmp_path, request.param)


def stage(destination: Destination, *people: dict[str, Any]) -> Writer:
    """An export that has found nothing there, and has read these people as the run of day 5."""
    writer = open_writer(destination)
    writer.prepare(ExportStart("run-5", "nightly", {}, day(5)))
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
    with pytest.raises(RunAborted, match="filled meanwhile, and an incomplete export replaces nothing"):
        publish_incomplete(writer)
    writer.discard()

    assert read(table) == [(1, "Ann", 1), (2, "Ann", 1)]
    assert run_sql(table, "select run_id from {}_connector_runs where finished_at is not null") == [("run-1",)]


def test_an_incomplete_export_makes_the_first_table(table: Destination) -> None:
    with closing_writer(stage(table, person(9))) as writer:
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
