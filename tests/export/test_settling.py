"""A connection that is lost during the commit: the writer asks the database whether the commit succeeded."""

import dataclasses
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from connector.databases import parse_url
from connector.errors import RunAborted
from connector.listing.columns import build_columns
from connector.paging.certificate import TotalCount
from connector.warehouse.columns import PAGE_SCHEMA, SCHEMA
from connector.warehouse.database import Interruption, StagedRows, Statement, TableName
from connector.warehouse.destination import parse_destination
from connector.warehouse.duckdb import DuckdbDatabase
from connector.warehouse.runs import CommitUnknown, Mode
from connector.warehouse.servers import PostgresDatabase
from connector.warehouse.sqlite import SqliteDatabase
from connector.warehouse.statements import TableStatements
from connector.warehouse.table_writer import TableWriter
from tests.databases import Database
from tests.export.people import beginning_of, build_table, run_of
from tests.export.test_modes import day, person, publish, read


class _LosesCommits(SqliteDatabase):
    """The answer to a commit is lost, after or before it was done; afterwards the file may be out of reach."""

    is_losing = False
    is_done = True
    is_reachable = True
    _lost = False

    @contextmanager
    def connect(self, interruption: Interruption) -> Iterator[None]:
        if self._lost and not self.is_reachable:
            raise sqlite3.OperationalError("unable to open database file")
        with super().connect(interruption):
            yield

    def commit(self, interruption: Interruption) -> None:
        if self.is_done or not self.is_losing:
            super().commit(interruption)
        if not self.is_losing:
            return
        self._lost = True
        raise sqlite3.OperationalError("disk I/O error")


def publish_and_lose(path: Path, *, is_done: bool, is_reachable: bool = True) -> None:
    database = _LosesCommits(path)
    database.is_done, database.is_reachable = is_done, is_reachable
    writer = TableWriter(TableName("subscribers"), SCHEMA, Mode.REPLACE, database)
    run = run_of(1, run_id="run-2", at=day(2))
    try:
        writer.prepare(beginning_of(run))
        database.is_losing = True
        writer.start()
        writer.add(build_table([person(2)], run_id="run-2", exported_at=day(2)))
        writer.publish(run)
    finally:
        writer.discard()


def test_a_commit_without_an_answer_is_settled_or_the_error_names_the_row_to_check(tmp_path: Path) -> None:
    table = parse_destination(f"sqlite:///{tmp_path}/w.db")
    publish(table, [person(1)], 1)
    with pytest.raises(RunAborted, match=r"disk I/O error.*as it was"):
        publish_and_lose(table.path, is_done=False)
    assert read(table) == [(1, "Ann", 1)]
    publish_and_lose(table.path, is_done=True)
    assert read(table) == [(2, "Ann", 2)]
    with pytest.raises(CommitUnknown, match=r"the line of the run run-2 .* has a finished_at; otherwise .* unchanged"):
        publish_and_lose(table.path, is_done=True, is_reachable=False)


def test_a_list_with_an_ignored_total_count_marks_no_subscriber_as_deleted() -> None:
    run = run_of(3)
    assert run.is_whole
    ignored = dataclasses.replace(run.certificate, total_count=TotalCount.IGNORED)
    assert not dataclasses.replace(run, certificate=ignored).is_whole


def test_an_export_that_waited_for_another_export_sees_its_rows(postgres: Database) -> None:
    """Also where the role's default is a snapshot of its beginning."""
    url = parse_url(postgres.url).update_query_dict({"options": "-c default_transaction_isolation=serializable"})
    database = PostgresDatabase(url)
    with database.connect(Interruption()):
        assert database.fetch(Statement("show transaction_isolation"), 1) == [("read committed",)]


def test_of_a_connection_that_is_lost_while_rows_are_copied_the_loss_is_shown(postgres: Database) -> None:
    """And not that it cannot be rolled back."""
    database = PostgresDatabase(parse_url(postgres.url))
    statements = TableStatements(database.dialect, TableName("subscribers"), SCHEMA, Mode.UPSERT)

    def load() -> None:
        ((pid,),) = database.fetch(Statement("select pg_backend_pid()"), 1)

        def read() -> Iterator[pa.RecordBatch]:
            postgres.run(f"select pg_terminate_backend({pid}, 10000)")
            yield build_columns([person(2)])

        database.run(statements.create_stage())
        database.load(statements.stage, StagedRows(PAGE_SCHEMA, read), {})

    with pytest.raises(database.errors) as ended, database.connect(Interruption()):
        load()
    assert "terminating connection due to administrator command" in database.explain(ended.value)
    assert database.is_passing(ended.value)


def test_the_error_of_changes_beyond_the_memory_of_duckdb_names_the_remedy(tmp_path: Path) -> None:
    path, people = tmp_path / "w.duckdb", [person(number) for number in range(20_000)]
    table = parse_destination(f"duckdb:///{path}", mode="history")
    publish(table, people, 1)
    database = DuckdbDatabase(path, memory="16MB")
    writer = TableWriter(TableName("subscribers"), SCHEMA, Mode.HISTORY, database)
    run = run_of(len(people), run_id="run-2", at=day(2))
    writer.prepare(beginning_of(run))
    writer.start()
    changed = [wire | {"FirstName": "Bo"} for wire in people]
    writer.add(build_table(changed, run_id="run-2", exported_at=day(2)))
    with pytest.raises(RunAborted, match=r"left as it was: DuckDB may use 16MB.*base by base") as ended:
        writer.publish(run)
    writer.discard()
    assert "run it again" not in str(ended.value)
    assert list(tmp_path.iterdir()) == [path]
    with duckdb.connect(str(path)) as connection:
        assert connection.execute("select count(*) from subscribers where is_current").fetchall() == [(20_000,)]


def test_duckdb_keeps_no_log_and_no_folder_beside_the_file(tmp_path: Path) -> None:
    """They would hold subscribers, and the log would be readable by every user that may read the folder."""
    table = parse_destination(f"duckdb:///{tmp_path}/w.duckdb")
    for number in (1, 2):
        publish(table, [person(1)], number)
        assert [path.name for path in tmp_path.iterdir()] == ["w.duckdb"]
