"""A connection that is lost at the very commit: what became of the rows is asked, and not guessed."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from connector.errors import RunAborted
from connector.export import parse_destination
from connector.export.columns import SCHEMA, build_table
from connector.export.writers import FileHome, SqlitePlace, TableName, TableWriter
from connector.export.writers.session import Session
from connector.export.writers.sql_session import SqlSession
from tests.export.people import run_of
from tests.export.test_modes import day, person, publish, read


class _LosesCommits(SqlitePlace):
    """The answer to a commit is lost, after or before it was done; afterwards the file may be out of reach."""

    is_done = True
    is_reachable = True
    _lost = False

    @contextmanager
    def connect(self, *, is_reading: bool = False) -> Iterator[Session]:
        if self._lost and not self.is_reachable:
            raise sqlite3.OperationalError("unable to open database file")
        with super().connect(is_reading=is_reading) as session:
            assert isinstance(session, SqlSession)
            commit = session.commit

            def lose() -> None:
                if self.is_done:
                    commit()
                self._lost = True
                raise sqlite3.OperationalError("disk I/O error")

            session.commit = lose  # type: ignore[method-assign]
            yield session


def publish_and_lose(path: Path, *, is_done: bool, is_reachable: bool = True) -> None:
    place = _LosesCommits(path)
    place.is_done, place.is_reachable = is_done, is_reachable
    writer = TableWriter(TableName("subscribers"), FileHome(path, lambda _: place), SCHEMA)
    try:
        writer.start()
        writer.add(build_table([person(2)], run_id="run-2", exported_at=day(2)))
        writer.publish(run_of(1, run_id="run-2", at=day(2)))
    finally:
        writer.discard()


def test_a_commit_that_was_done_is_a_success(tmp_path: Path) -> None:
    table = parse_destination(f"sqlite:///{tmp_path}/w.db")
    publish(table, [person(1)], 1)
    publish_and_lose(table.path, is_done=True)

    assert read(table) == [(2, "Ann", 2)]


def test_a_commit_that_was_not_done_left_the_table_as_it_was(tmp_path: Path) -> None:
    table = parse_destination(f"sqlite:///{tmp_path}/w.db")
    publish(table, [person(1)], 1)
    with pytest.raises(RunAborted, match=r"disk I/O error.*as it was"):
        publish_and_lose(table.path, is_done=False)

    assert read(table) == [(1, "Ann", 1)]


def test_where_it_cannot_be_told_that_is_what_is_told(tmp_path: Path) -> None:
    table = parse_destination(f"sqlite:///{tmp_path}/w.db")
    publish(table, [person(1)], 1)
    with pytest.raises(RunAborted, match="as before, or as after if _connector_runs has the run run-2"):
        publish_and_lose(table.path, is_done=True, is_reachable=False)
