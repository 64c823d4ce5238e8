"""Two exports to one table at once, through a URL that SQLAlchemy alone knows: one after the other, also the first."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from connector.errors import RunAborted
from connector.export import Destination, Format, parse_destination
from connector.export.columns import SCHEMA, build_table
from connector.export.exporter import open_writer
from connector.export.writers import Mode, Writer
from connector.export.writers.generic_place import GenericPlace
from connector.export.writers.homes import ServerHome
from connector.export.writers.layout import TableName
from connector.export.writers.table_writer import TableWriter
from connector.pages import Verdict
from tests.export.people import run_of
from tests.export.test_modes import day, person, publish, read
from tests.export.warehouses import open_destination, run_sql

MODES = ["replace", "upsert", "append", "history"]
WAITING = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
WAITING_IN_MYSQL = "select count(*) from information_schema.innodb_trx where trx_state = 'LOCK WAIT'"


@pytest.fixture
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Destination:
    return open_destination(request, tmp_path, Format.SQL)


@pytest.fixture
def mysql(request: pytest.FixtureRequest, tmp_path: Path) -> Destination:
    return open_destination(request, tmp_path, Format.MYSQL)


def stage(writer: Writer, number: int) -> Writer:
    """An export of one person, as the run of that day, that is about to publish."""
    writer.start()
    writer.add(build_table([person(1, f"v{number}")], run_id=f"run-{number}", exported_at=day(number)))
    return writer


def finish(
    writer: Writer, number: int, verdict: Verdict = Verdict.COMPLETE, then: Callable[[], None] = lambda: None
) -> None:
    try:
        writer.publish(run_of(1, run_id=f"run-{number}", at=day(number), verdict=verdict))
    finally:
        writer.discard()
        then()


@contextmanager
def once(event: str, is_moment: Callable[[str], bool], act: Callable[[], None]) -> Iterator[list[str]]:
    """Does something else at the first statement of this thread that is the moment; gives that statement."""
    met: list[str] = []
    thread = threading.get_ident()

    def look(_: Any, __: Any, text: str, *___: Any) -> None:
        if not met and threading.get_ident() == thread and is_moment(text):
            met.append(text)
            act()

    sa.event.listen(sa.Engine, event, look)
    try:
        yield met
    finally:
        sa.event.remove(sa.Engine, event, look)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("has_runs", [True, False], ids=["beside another table", "the first of all"])
def test_of_two_first_exports_at_once_the_second_waits_and_finds_the_first(
    table: Destination, mode: str, has_runs: bool
) -> None:
    """The table is there, and empty. The second is let go when the first is about to bring its rows in."""
    if has_runs:
        publish(replace(table, table="others"), [person(5)], 1)
    run_sql(table, "create table {}subscribers (id bigint)")
    ours = replace(table, mode=Mode(mode))
    first, second = (stage(open_writer(ours), number) for number in (2, 3))
    other = threading.Thread(target=finish, args=(second, 3))

    def let_go() -> None:
        other.start()
        while other.is_alive() and run_sql(table, WAITING) == [(0,)]:
            pass  # until it waits for the first, or is through

    with once("before_cursor_execute", lambda text: text.startswith("INSERT INTO") and '"subscribers"' in text, let_go):
        finish(first, 2)
    other.join(30)
    runs = run_sql(table, "select run_id from {}_connector_runs where table_name = 'subscribers' order by run_id")
    assert runs == [("run-2",), ("run-3",)]
    kept = {"replace": [(1, "v3", 3)], "upsert": [(1, "v3", 3)]}.get(mode, [(1, "v2", 2), (1, "v3", 3)])
    assert read(table) == kept
    if mode == "history":
        assert run_sql(table, "select first_name from {}subscribers where is_current") == [("v3",)]


def test_the_first_exports_to_two_tables_make_one_table_of_runs(table: Destination) -> None:
    first, second = (stage(open_writer(replace(table, table=f"table{number}")), number) for number in (1, 2))
    other = threading.Thread(target=finish, args=(second, 2))

    def let_go() -> None:
        other.start()
        while other.is_alive() and run_sql(table, WAITING) == [(0,)]:
            pass  # until it waits for the first, or is through

    with once("before_cursor_execute", makes_runs, let_go):
        finish(first, 1)
    other.join(30)
    assert run_sql(table, "select run_id from {}_connector_runs order by run_id") == [("run-1",), ("run-2",)]


@pytest.mark.parametrize("mode", MODES)
def test_whoever_lost_its_turn_by_making_a_table_waits_for_another(mysql: Destination, mode: str) -> None:
    """In a MariaDB reached as any other database: there every table that is made ends the transaction, and the turn."""
    first, second = (stage(open_generic(mysql, Mode(mode)), number) for number in (2, 3))
    is_writing, is_over = threading.Event(), threading.Event()

    def pause() -> None:
        is_writing.set()
        while not is_over.is_set() and run_sql(mysql, WAITING_IN_MYSQL) == [(0,)]:
            pass  # until the first waits, or is through

    def write() -> None:
        with once("before_cursor_execute", lambda text: text.startswith("INSERT INTO `subscribers`"), pause):
            finish(second, 3)

    def let_go() -> None:
        other.start()
        assert is_writing.wait(10)

    other = threading.Thread(target=write)
    with (
        once("after_cursor_execute", makes_runs, let_go),
        pytest.raises(RunAborted, match="began later has been written meanwhile"),
    ):
        finish(first, 2, then=is_over.set)
    other.join(30)
    assert read(mysql) == [(1, "v3", 3)]


def makes_runs(text: str) -> bool:
    return "CREATE TABLE" in text and "_connector_runs" in text


def test_a_turn_that_was_lost_lets_an_incomplete_export_replace_nothing(mysql: Destination) -> None:
    first, second = (stage(open_generic(mysql, Mode.REPLACE), number) for number in (3, 2))
    with (
        once("after_cursor_execute", makes_runs, lambda: finish(second, 2)),
        pytest.raises(RunAborted, match="made meanwhile"),
    ):
        finish(first, 3, Verdict.INCOMPLETE)

    assert read(mysql) == [(1, "v2", 2)]


def open_generic(table: Destination, mode: Mode) -> TableWriter:
    assert table.url is not None
    return TableWriter(TableName("subscribers"), ServerHome(GenericPlace(table.url)), SCHEMA, mode)


def test_exports_that_make_the_table_of_turns_at_once_find_one(table: Destination) -> None:
    others = [replace(table, table=f"table{number}") for number in range(6)]
    begin = threading.Barrier(len(others))

    def run(destination: Destination) -> None:
        begin.wait()
        stage(open_writer(destination), 1).discard()

    with ThreadPoolExecutor(len(others)) as pool:
        assert list(pool.map(run, others)) == [None] * len(others)
    rows = run_sql(table, "select table_name from {}_connector_turns order by table_name")
    assert rows == [("_connector_runs",), *((f"table{number}",) for number in range(6))]


def test_a_duckdb_file_that_another_program_has_open_can_be_had_later(tmp_path: Path) -> None:
    destination = parse_destination(f"duckdb:///{tmp_path}/w.duckdb", table="subscribers")
    publish(destination, [person(1)], 1)
    opened = f"opened = duckdb.connect({str(tmp_path / 'w.duckdb')!r})"
    hold = f"import duckdb, sys; {opened}; print(1, flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline()
        with pytest.raises(RunAborted, match="cannot be had now"):
            publish(destination, [person(2)], 2)
        holder.communicate()
    publish(destination, [person(2)], 2)
    assert read(destination) == [(2, "Ann", 2)]
