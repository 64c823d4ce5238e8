"""Errors while rows are written or committed. The writer finds out which rows the table has, and the error shows the
result."""

import dataclasses
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from connector.arrow import PAGE_SCHEMA
from connector.databases import parse_url
from connector.errors import RunAborted
from connector.listing.columns import build_columns
from connector.paging.certificate import TotalCountCheck
from connector.warehouse.columns import SCHEMA
from connector.warehouse.database import Interruption, StagedRows, Statement, TableName
from connector.warehouse.destination import parse_destination
from connector.warehouse.runs import CommitUnknown, WriteMode
from connector.warehouse.servers import PostgresDatabase
from connector.warehouse.sqlite import SqliteDatabase
from connector.warehouse.statements import TableStatements
from connector.warehouse.table_writer import TableWriter
from tests.databases import Database
from tests.export.people import build_run, build_start, build_table
from tests.export.test_modes import build_day_time, build_person, publish_people, read_rows


class CommitLosingDatabase(SqliteDatabase):
    """A database that loses the answer to a commit."""

    is_losing_commits = False
    is_committed = True  # whether a commit takes effect although its answer is lost
    is_reachable = True  # whether the file can be opened after the loss
    _has_lost_commit = False

    @contextmanager
    def connect(self, interruption: Interruption) -> Iterator[None]:
        if self._has_lost_commit and not self.is_reachable:
            raise sqlite3.OperationalError("unable to open database file")
        with super().connect(interruption):
            yield

    def commit(self, interruption: Interruption) -> None:
        if self.is_committed or not self.is_losing_commits:
            super().commit(interruption)
        if not self.is_losing_commits:
            return
        self._has_lost_commit = True
        raise sqlite3.OperationalError("disk I/O error")


def publish_with_lost_commit(path: Path, *, is_committed: bool, is_reachable: bool = True) -> None:
    database = CommitLosingDatabase(path)
    database.is_committed, database.is_reachable = is_committed, is_reachable
    writer = TableWriter(TableName("subscribers"), SCHEMA, WriteMode.REPLACE, database)
    run = build_run(1, run_id="run-2", exported_at=build_day_time(2))
    try:
        writer.prepare(build_start(run))
        database.is_losing_commits = True
        writer.start()
        writer.add(build_table([build_person(2)], run_id="run-2", exported_at=build_day_time(2)))
        writer.publish(run)
    finally:
        writer.discard()


def test_a_commit_without_an_answer_is_checked_if_the_database_is_reachable(tmp_path: Path) -> None:
    table = parse_destination(f"sqlite:///{tmp_path}/w.db")
    publish_people(table, [build_person(1)], 1)
    with pytest.raises(RunAborted, match=r"disk I/O error.*unchanged"):
        publish_with_lost_commit(table.path, is_committed=False)
    assert read_rows(table) == [(1, "Ann", 1)]
    publish_with_lost_commit(table.path, is_committed=True)
    assert read_rows(table) == [(2, "Ann", 2)]
    with pytest.raises(CommitUnknown, match=r"the row of the run run-2 .* has a finished_at; otherwise .* unchanged"):
        publish_with_lost_commit(table.path, is_committed=True, is_reachable=False)


def test_a_list_with_an_ignored_total_count_marks_no_subscriber_as_deleted() -> None:
    run = build_run(3)
    assert run.proves_absence
    certificate = dataclasses.replace(run.certificate, total_count=TotalCountCheck.IGNORED)
    assert not dataclasses.replace(run, certificate=certificate).proves_absence


def test_a_transaction_in_postgresql_sees_rows_that_were_committed_after_its_start(postgres: Database) -> None:
    """By default, a transaction of this session sees only rows that were committed before its start."""
    url = parse_url(postgres.url).update_query_dict({"options": "-c default_transaction_isolation=serializable"})
    database = PostgresDatabase(url)
    with database.connect(Interruption()):
        assert database.fetch(Statement("show transaction_isolation"), 1) == [("read committed",)]


def test_the_error_of_a_connection_that_is_lost_during_a_copy_shows_the_loss(postgres: Database) -> None:
    """The rollback that follows fails, too. The error does not show this failure."""
    database = PostgresDatabase(parse_url(postgres.url))
    statements = TableStatements(database.dialect, TableName("subscribers"), SCHEMA, WriteMode.UPSERT)

    def lose_connection_during_copy() -> None:
        ((pid,),) = database.fetch(Statement("select pg_backend_pid()"), 1)

        def read_batches() -> Iterator[pa.RecordBatch]:
            postgres.run(f"select pg_terminate_backend({pid}, 10000)")
            yield build_columns([build_person(2)])

        database.run(statements.build_stage_creation())
        database.load(statements.stage_table, StagedRows(PAGE_SCHEMA, read_batches), {})

    with pytest.raises(database.errors) as error_info, database.connect(Interruption()):
        lose_connection_during_copy()
    assert "terminating connection due to administrator command" in database.explain(error_info.value)
    assert database.is_transient(error_info.value)


def test_an_export_to_duckdb_leaves_no_other_file_in_the_folder(tmp_path: Path) -> None:
    """A log or a temporary folder of DuckDB would contain data of subscribers that other users might read."""
    table = parse_destination(f"duckdb:///{tmp_path}/w.duckdb")
    for export_number in (1, 2):
        publish_people(table, [build_person(1)], export_number)
        assert [path.name for path in tmp_path.iterdir()] == ["w.duckdb"]
