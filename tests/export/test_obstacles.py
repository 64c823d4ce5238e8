"""Tables that are there and would be harmed, or would stop the run once all was read: refused before, with advice."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects.mssql.base import MSDialect
from sqlalchemy.dialects.sqlite.base import SQLiteDialect

from connector.errors import RunAborted
from connector.export import Destination, Format
from connector.export.columns import build_table
from connector.export.exporter import open_writer
from connector.export.writers import Changes, Mode
from connector.export.writers.layout import TableName
from connector.export.writers.reflecting import describe_table
from tests.export.people import run_of
from tests.export.test_fitting import refuse
from tests.export.test_modes import day, person, publish, read
from tests.export.warehouses import DATABASES, open_destination, run_sql

TEXT = {Format.MYSQL: "varchar(50)"}
LABELS = "create table {}labels (id bigint, position bigint, tag varchar(500), _run_id varchar(50), "


@pytest.fixture(params=DATABASES)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Destination:
    return open_destination(request, tmp_path, request.param)


@pytest.fixture
def mysql(request: pytest.FixtureRequest, tmp_path: Path) -> Destination:
    return open_destination(request, tmp_path, Format.MYSQL)


def refer(table: Destination, action: str = "") -> None:
    """An order of each of the two subscribers, in a table that refers to theirs."""
    primary = "" if table.format is Format.DUCKDB else action
    run_sql(
        table,
        f"create table {{}}orders (number integer, buyer bigint, foreign key (buyer) references {{}}subscribers (id) "
        f"{primary})",
        "insert into {}orders values (10, 1), (20, 2)",
    )


def make_with_key(table: Destination, key: str) -> None:
    """The table of an export, with a key besides; made by hand, since SQLite and DuckDB add none later."""
    run_sql(
        table,
        "create table {}subscribers (id bigint not null, base_id bigint, email varchar(200), "
        f"_run_id varchar(50){', ' + key if key else ''})",
    )


def orders_of(table: Destination) -> list[tuple[Any, ...]]:
    return sorted(run_sql(table, "select number, buyer from {}orders"))


@pytest.mark.parametrize("action", ["on delete cascade", "on delete set null", ""])
def test_a_table_that_others_refer_to_is_not_replaced(table: Destination, action: str) -> None:
    make_with_key(table, "primary key (id)")
    publish(table, [person(1), person(2)], 1)
    refer(table, action)

    message = refuse(table)
    assert "orders refer to the table " in message
    assert "replace deletes rows" in message
    assert ("--mode upsert" in message) is (table.format is not Format.DUCKDB)
    assert orders_of(table) == [(10, 1), (20, 2)]


def test_upsert_brings_a_table_that_others_refer_to_up_to_date(table: Destination) -> None:
    make_with_key(table, "primary key (id)")
    other = replace(table, mode=Mode.UPSERT)
    publish(other, [person(1), person(2)], 1)
    refer(table, "on delete cascade")
    if table.format is Format.DUCKDB:  # which deletes and inserts a row to change its list of tags
        assert "drop the foreign keys" in refuse(other)
        return

    assert publish(other, [person(1, "Bo"), person(3)], 2) == Changes(1, 1, 1)
    assert read(other, "deleted_at") == [(1, "Bo", 2, None), (2, "Ann", 1, 2), (3, "Ann", 2, None)]
    assert orders_of(table) == [(10, 1), (20, 2)]


def test_a_table_that_refers_to_itself_or_to_others_is_replaced(table: Destination) -> None:
    run_sql(
        table,
        "create table {}bases (id bigint primary key)",
        "insert into {}bases values (5)",
        "create table {}subscribers (id bigint primary key, base_id bigint, boss bigint, "
        "foreign key (base_id) references {}bases (id), foreign key (boss) references {}subscribers (id))",
    )
    publish(table, [person(1, Base={"Id": 5})], 1)
    publish(table, [person(2, Base={"Id": 5})], 2)

    assert run_sql(table, "select id, base_id from {}subscribers") == [(2, 5)]


@pytest.mark.parametrize("mode", ["replace", "upsert"])
def test_a_table_of_tags_that_others_refer_to_is_not_emptied(table: Destination, mode: str) -> None:
    other = replace(table, mode=Mode(mode), tags_table="labels")
    run_sql(
        table,
        LABELS + "primary key (id, position))",
        "create table {}colours (id bigint, position bigint, foreign key (id, position) references {}labels)"
        if table.format is not Format.MYSQL
        else "create table colours (id bigint, position bigint, foreign key (id, position) references labels "
        "(id, position))",
    )
    publish(table, [person(1)], 1)

    message = refuse(other)
    assert "colours refer to the table " in message
    assert "drop the foreign keys" in message


def test_a_table_that_others_came_to_refer_to_meanwhile_is_left_as_it_was(table: Destination) -> None:
    make_with_key(table, "primary key (id)")
    publish(table, [person(1), person(2)], 1)
    writer = open_writer(table)
    writer.start()
    writer.add(build_table([person(3)], run_id="run-2", exported_at=day(2)))
    refer(table, "on delete cascade")
    with pytest.raises(RunAborted, match="orders refer to the table"):
        writer.publish(run_of(1, run_id="run-2", at=day(2)))
    writer.discard()

    assert read(table) == [(1, "Ann", 1), (2, "Ann", 1)]
    assert orders_of(table) == [(10, 1), (20, 2)]


@pytest.mark.parametrize("mode", ["append", "history"])
@pytest.mark.parametrize("key", ["primary key (id)", "unique (id)", "unique (base_id, id)", "unique (email)"])
def test_a_key_that_takes_a_subscriber_once_is_told_before_the_second_version(
    table: Destination, mode: str, key: str
) -> None:
    make_with_key(table, key)
    message = refuse(replace(table, mode=Mode(mode)))
    assert f"({key.split('(')[1]}" in message
    assert "primary key" in message if "primary" in key else "unique " in message
    assert "drop that key" in message
    publish(table, [person(1)], 1)
    publish(table, [person(1)], 2)


def test_a_unique_index_is_a_key_and_is_named(table: Destination) -> None:
    make_with_key(table, "")
    run_sql(table, "create unique index one_each on {}subscribers (id)")

    assert "one_each (id)" in refuse(replace(table, mode=Mode.HISTORY))


@pytest.mark.parametrize("mode", ["append", "history"])
def test_a_key_with_the_run_in_it_is_none_that_takes_a_subscriber_once(table: Destination, mode: str) -> None:
    make_with_key(table, "primary key (id, _run_id)")
    other = replace(table, mode=Mode(mode))
    for number in (1, 2, 3):
        publish(other, [person(1, f"v{number}")], number)

    assert [row[1] for row in read(other)] == ["v1", "v2", "v3"]


@pytest.mark.parametrize("form", [Format.POSTGRESQL, Format.SQLITE])
def test_a_history_may_have_a_unique_index_of_what_is_current(
    form: Format, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    table = open_destination(request, tmp_path, form, mode="history")
    publish(table, [person(1)], 1)
    run_sql(table, "create unique index one_now on {}subscribers (id) where is_current")
    publish(table, [person(1, "Bo")], 2)

    assert len(read(table)) == 2


def test_a_table_of_tags_that_takes_a_subscriber_once_is_told(table: Destination) -> None:
    run_sql(table, LABELS + "unique (id, position))")

    assert "labels in " in refuse(replace(table, mode=Mode.HISTORY, tags_table="labels"))


LONGEST = {Format.POSTGRESQL: "é" * 31 + "x", Format.SQL: "é" * 31 + "x", Format.MYSQL: "é" * 64}
"""63 bytes of UTF-8, and 64 characters."""


@pytest.mark.parametrize("what", ["table", "tags_table", "schema"])
@pytest.mark.parametrize("form", list(LONGEST))
def test_a_name_that_is_too_long_is_refused_and_the_longest_that_fits_is_not(
    form: Format, what: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    table = open_destination(request, tmp_path, form)
    fits: dict[str, Any] = {what: LONGEST[form]}
    too_long: dict[str, Any] = {what: LONGEST[form] + "x"}
    message = refuse(replace(table, **too_long))
    assert LONGEST[form] in message
    assert "is too long" in message
    assert ("64 characters" if form is Format.MYSQL else "63 bytes") in message
    if what != "schema":
        for number in (1, 2):
            publish(replace(table, **fits), [person(1)], number)


@pytest.mark.parametrize("form", [Format.SQLITE, Format.DUCKDB])
def test_names_in_files_may_be_long(form: Format, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    table = open_destination(request, tmp_path, form, table="é" * 200, tags_table="x" * 200)
    for number in (1, 2):
        publish(table, [person(1)], number)


@pytest.mark.parametrize("name", ["_connector_runs", "labels"])
def test_a_table_beside_that_knows_no_transactions_is_refused(mysql: Destination, name: str) -> None:
    table = replace(mysql, mode=Mode.UPSERT, tags_table="labels")
    publish(table, [person(1)], 1)
    run_sql(mysql, f"alter table {name} engine = MyISAM")

    assert f"{name} ENGINE=InnoDB" in refuse(table)
    run_sql(mysql, f"alter table {name} engine = InnoDB")
    publish(table, [person(1)], 2)


def test_tags_that_cannot_be_swapped_keep_a_table_without_transactions_from_being(mysql: Destination) -> None:
    table = replace(mysql, tags_table="labels")
    publish(table, [person(1)], 1)
    run_sql(mysql, "alter table subscribers engine = MyISAM")
    publish(table, [person(2)], 2)
    run_sql(mysql, "create trigger counts before insert on labels for each row set new.position = 5")

    assert "subscribers ENGINE=InnoDB" in refuse(table)


def test_a_dialect_that_tells_of_no_unique_constraints_tells_of_its_indexes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of SQL Server, whose own word for it is taken here: no server of its can be had."""
    monkeypatch.setattr(SQLiteDialect, "get_unique_constraints", MSDialect.get_unique_constraints)
    with sa.create_engine("sqlite://").begin() as connection:
        connection.exec_driver_sql("create table subscribers (id integer, email text unique)")
        connection.exec_driver_sql("create unique index one_each on subscribers (id)")
        found = describe_table(connection, TableName("subscribers"))

    assert found is not None
    assert ("id",) in [key.columns for key in found.keys]
