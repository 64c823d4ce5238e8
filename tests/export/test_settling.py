"""A connection that is lost at the very commit: what became of the rows is asked, and not guessed."""

import dataclasses
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
import sqlalchemy as sa

from connector.databases import parse_url
from connector.errors import RunAborted
from connector.export import Destination, Format, parse_destination
from connector.export.columns import PAGE_SCHEMA, SCHEMA, build_columns, build_table
from connector.export.exporter import open_writer
from connector.export.writers import Mode
from connector.export.writers.duckdb_place import DuckdbPlace
from connector.export.writers.homes import FileHome
from connector.export.writers.layout import STAGE, TableName, build_layout
from connector.export.writers.postgres_place import POSTGRESQL, PostgresPlace
from connector.export.writers.session import Session
from connector.export.writers.sql_session import SqlSession
from connector.export.writers.sqlite_place import SqlitePlace
from connector.export.writers.staged import Rows
from connector.export.writers.table_writer import TableWriter
from connector.pages import TotalCount
from tests.databases import Database
from tests.export.people import run_of
from tests.export.test_modes import day, person, publish, read
from tests.export.warehouses import connect, open_destination, run_sql


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


def test_nobody_is_taken_for_gone_by_a_list_whose_total_was_ignored() -> None:
    run = run_of(3)
    assert run.is_whole
    ignored = dataclasses.replace(run.certificate, total_count=TotalCount.IGNORED)
    assert not dataclasses.replace(run, certificate=ignored).is_whole


def test_whoever_waited_for_another_export_sees_what_it_wrote(postgres: Database) -> None:
    """Also where the role's default is a snapshot of its beginning."""
    place = PostgresPlace(
        sa.make_url(postgres.url).update_query_dict({"options": "-c default_transaction_isolation=serializable"})
    )
    with place.connect() as session:
        assert session.fetch(sa.text("show transaction_isolation"))[0][0] == "read committed"


def test_of_a_connection_that_is_lost_while_rows_are_copied_the_loss_is_told(postgres: Database) -> None:
    """And not that it cannot be rolled back."""
    place = PostgresPlace(sa.make_url(postgres.url).set(drivername="postgresql+psycopg"))
    layout = build_layout(SCHEMA, TableName("subscribers"), Mode.REPLACE, place.dialect)

    def fill(session: Session) -> None:
        session.begin()
        pid = session.fetch(sa.text("select pg_backend_pid()"))[0][0]

        def read() -> Iterator[pa.RecordBatch]:
            postgres.run(f"select pg_terminate_backend({pid}, 10000)")
            yield build_columns([person(2)])

        session.fill(layout.stage, Rows(PAGE_SCHEMA, read))

    with pytest.raises(place.errors) as told, place.connect() as session:
        fill(session)
    assert "terminating connection due to administrator command" in place.explain(told.value)
    assert place.is_passing(told.value)


def test_duckdb_keeps_no_log_beside_the_file(tmp_path: Path) -> None:
    """It would hold people, readable by whoever may read the folder."""
    table = parse_destination(f"duckdb:///{tmp_path}/w.duckdb")
    publish(table, [person(1)], 1)
    with DuckdbPlace(table.path).connect() as session:
        session.begin()
        session.execute(sa.text("create table more as select 1 as a"))
        session.commit()
        assert sorted(each.name for each in tmp_path.iterdir() if each.suffix == ".wal") == []


def test_a_stage_of_postgresql_ends_with_its_transaction(postgres: Database) -> None:
    """Behind a pooler the connection goes on: the next export would find a stage of its own name, and people in it."""
    layout = build_layout(SCHEMA, TableName("subscribers"), Mode.REPLACE, POSTGRESQL)
    batch = build_columns([person(1)])
    with PostgresPlace(parse_url(postgres.url)).connect() as session:
        for _ in range(2):
            session.begin()
            session.fill(layout.stage, Rows(PAGE_SCHEMA, lambda: iter([batch])))
            assert session.fetch(sa.text(f"select count(*) from pg_temp.{STAGE}")) == [(1,)]
            session.commit()
            session.begin()
            assert session.fetch(sa.text(f"select to_regclass('pg_temp.{STAGE}')")) == [(None,)]
            session.commit()


def test_a_swap_of_mysql_that_failed_is_not_taken_for_done_when_another_export_has_cleared_its_table_away(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """It is killed while it waits for a reader; the next export, which waits for its turn, then goes first."""
    table = open_destination(request, tmp_path, Format.MYSQL)
    publish(table, [person(1)], 1)
    following = open_writer(table)
    following.start()
    following.add(build_table([person(3)], run_id="run-3", exported_at=day(3)))
    with ThreadPoolExecutor(2) as pool:
        with connect(table) as reader:
            reader.exec_driver_sql("select id from subscribers")
            killed = pool.submit(publish, table, [person(2)], 2)
            number = wait_for(table, "RENAME TABLE")
            followed = pool.submit(following.publish, run_of(1, run_id="run-3", at=day(3)))
            wait_for(table, "SELECT get_lock")
            run_sql(table, f"kill {number}")
            wait_for(table, "RENAME TABLE", other_than=number)  # it has cleared away what the killed one had filled
        followed.result(60)
        with pytest.raises(RunAborted, match="as it was"):
            killed.result(60)

    assert read(table) == [(3, "Ann", 3)]
    assert run_sql(table, "select run_id from _connector_runs order by run_id") == [("run-1",), ("run-3",)]


def wait_for(table: Destination, statement: str, other_than: int = 0) -> int:
    """The number of the connection to this database that is at such a statement."""
    look = (
        "select id from information_schema.processlist where db = database() and id <> connection_id() "
        f"and info like '{statement}%%' and id <> {other_than}"
    )
    for _ in range(600):
        if found := run_sql(table, look):
            return int(found[0][0])
        time.sleep(0.05)
    raise AssertionError(f"no connection came to {statement}")
