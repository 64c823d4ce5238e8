"""A MySQL server that is silent, or whose table somebody else has locked, ends an export with a clear error, and leaves
nothing behind."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from connector.errors import RunAborted
from connector.export import Destination, Format
from connector.export.columns import SCHEMA, build_table
from connector.export.writers import Mode
from connector.export.writers.homes import ServerHome
from connector.export.writers.layout import TableName, build_layout
from connector.export.writers.mysql_place import MysqlPlace, Patience
from connector.export.writers.mysql_publishing import publish_to_mysql, settle_in_mysql
from connector.export.writers.table_writer import TableWriter, Way
from tests.export.people import run_of
from tests.export.relay import open_relay
from tests.export.test_modes import Person, day, person, publish, read
from tests.export.warehouses import connect, open_destination, run_sql


@pytest.fixture
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Destination:
    """With one row of the first run."""
    destination = open_destination(request, tmp_path, Format.MYSQL)
    publish(destination, [person(1)], 1)
    return destination


def publish_impatiently(url: sa.URL, patience: Patience, *people: Person, mode: Mode = Mode.REPLACE) -> None:
    """As the second run."""
    home, way = ServerHome(MysqlPlace(url, patience)), Way(publish_to_mysql, settle_in_mysql)
    writer = TableWriter(TableName("subscribers"), home, SCHEMA, mode, way=way)
    try:
        writer.start()
        writer.add(build_table(people, run_id="run-2", exported_at=day(2)))
        writer.publish(run_of(len(people), run_id="run-2", at=day(2)))
    finally:
        writer.discard()


def list_tables(table: Destination) -> list[Any]:
    return sorted(name for (name,) in run_sql(table, "show tables"))


def url_of(table: Destination) -> sa.URL:
    assert table.url is not None
    return table.url


@contextmanager
def reading(table: Destination) -> Iterator[None]:
    """Somebody's open transaction that has read the table: a RENAME, or a DROP, waits for its end."""
    with connect(table) as reader:
        reader.exec_driver_sql("select * from subscribers").fetchall()
        yield


def test_a_lock_of_somebody_elses_ends_a_replace_and_leaves_no_table_behind(table: Destination) -> None:
    with reading(table), pytest.raises(RunAborted, match=r"Lock wait timeout exceeded.*was there is as it was; run it"):
        publish_impatiently(url_of(table), Patience(lock=1), person(2))

    assert list_tables(table) == ["_connector_runs", "subscribers"]
    assert read(table) == [(1, "Ann", 1)]
    publish(table, [person(3)], 3)
    assert read(table) == [(3, "Ann", 3)]


def test_rows_that_are_refused_leave_no_table_behind(table: Destination) -> None:
    run_sql(table, "alter table subscribers modify first_name varchar(5)")
    with pytest.raises(RunAborted, match="Data too long for column 'first_name'"):
        publish(table, [person(2, "longer than that")], 2)

    assert list_tables(table) == ["_connector_runs", "subscribers"]
    assert read(table) == [(1, "Ann", 1)]


def test_a_run_that_came_too_late_leaves_no_table_behind(table: Destination) -> None:
    publish(table, [person(3)], 3)
    with pytest.raises(RunAborted, match="began later"):
        publish(table, [person(2)], 2)

    assert list_tables(table) == ["_connector_runs", "subscribers"]


def test_the_turn_of_another_export_is_not_waited_for_for_ever(table: Destination) -> None:
    publishing, done = threading.Event(), threading.Event()

    def hold() -> None:
        with MysqlPlace(url_of(table)).connect() as session:
            session.take_turn(build_layout(SCHEMA, TableName("subscribers"), Mode.REPLACE, session.dialect))
            publishing.set()
            done.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert publishing.wait(30)
        with pytest.raises(RunAborted, match="Another export is writing"):
            publish_impatiently(url_of(table), Patience(lock=1), person(2))
    finally:
        done.set()
        holder.join()


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (b"", "cannot be had now: .*It is as it was; run it again"),
        (b"INSERT INTO `_connector_stage", "Could not write .*What was there is as it was; run it again"),
        (b"INSERT INTO `_connector_new", "Could not write .*What was there is as it was; run it again"),
        (b"RENAME TABLE", "it is as before, or as after if _connector_runs has the run run-2"),
    ],
    ids=["at once", "while it is staged", "while it is filled", "at the swap"],
)
def test_a_server_that_falls_silent_is_given_up(
    table: Destination, after: bytes, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    url, mode = url_of(table), Mode.UPSERT if b"stage" in after else Mode.REPLACE
    with open_relay(url.host or "127.0.0.1", url.port or 3306, after) as relay:
        if not after:
            relay.silence()
        silent = url.set(host="127.0.0.1", port=relay.port)
        with pytest.raises(RunAborted, match=told) as ended:
            publish_impatiently(silent, Patience(lock=1, look=1, write=1, send=1), person(2), mode=mode)

    assert "timed out" in str(ended.value)
    assert caplog.records == []
    assert read(table) == [(1, "Ann", 1)]


def test_a_url_may_set_how_long_a_server_is_waited_for(table: Destination) -> None:
    url = url_of(table)
    with open_relay(url.host or "127.0.0.1", url.port or 3306) as relay:
        relay.silence()
        silent = url.set(host="127.0.0.1", port=relay.port).update_query_dict({"read_timeout": "1"})
        with pytest.raises(RunAborted, match="timed out"):
            publish_impatiently(silent, Patience(), person(2))
