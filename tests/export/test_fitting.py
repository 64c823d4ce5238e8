"""A table that is there: what hangs on it stays, what it lacks is added, and what does not fit is told in time."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from connector.errors import ConfigurationError, RunAborted
from connector.export import Destination, Format, parse_destination
from connector.export.exporter import open_writer
from tests.export.people import run_of
from tests.export.test_modes import day, person, publish, read
from tests.export.warehouses import DATABASES, SERVERS, connect, open_destination, run_sql


@pytest.fixture(params=DATABASES)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Destination:
    return open_destination(request, tmp_path, request.param)


@pytest.fixture
def postgresql(request: pytest.FixtureRequest, tmp_path: Path) -> Destination:
    return open_destination(request, tmp_path, Format.POSTGRESQL)


@pytest.fixture
def mysql(request: pytest.FixtureRequest, tmp_path: Path) -> Destination:
    return open_destination(request, tmp_path, Format.MYSQL)


def refuse(table: Destination) -> str:
    """Why the table cannot be had, told before anything is staged."""
    writer = open_writer(table)
    with pytest.raises(ConfigurationError) as refusal:
        writer.start()
    writer.discard()
    return str(refusal.value)


def test_indexes_and_columns_of_somebody_elses_survive_a_replace(table: Destination) -> None:
    publish(table, [person(1)], 1)
    run_sql(table, "create index by_run on {}subscribers (id, base_id)")
    run_sql(table, "alter table {}subscribers add column note varchar(20)")
    publish(table, [person(2, "Bo")], 2)

    assert run_sql(table, "select id, note from {}subscribers") == [(2, None)]
    with pytest.raises(Exception, match=r"(?i)exist|duplicate"):
        run_sql(table, "create index by_run on {}subscribers (id, base_id)")


def count_indexes(table: Destination) -> int:
    """Of this destination's own table; each of ours is on the id."""
    with connect(table) as connection:
        return len(sa.inspect(connection).get_indexes(table.table, schema=table.schema))


@pytest.mark.parametrize("form", [form for form in DATABASES if form is not Format.DUCKDB])  # it needs no index
def test_tables_whose_names_begin_alike_have_an_index_each(
    form: Format, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    one = open_destination(
        request, tmp_path, form, mode="upsert", table="subscribers_of_the_weekly_newsletter_in_france"
    )
    other = replace(one, table="subscribers_of_the_weekly_newsletter_in_finland")
    for number in (1, 2):
        publish(one, [person(1)], number)
        publish(other, [person(1)], number)

    assert (count_indexes(one), count_indexes(other)) == (1, 1)


@pytest.mark.parametrize("form", [form for form in DATABASES if form is not Format.DUCKDB])
def test_a_renamed_table_keeps_its_index_and_the_next_one_of_its_name_has_another(
    form: Format, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    table = open_destination(request, tmp_path, form, mode="upsert")
    publish(table, [person(1)], 1)
    run_sql(table, "alter table {}subscribers rename to subscribers_2025")
    for number in (2, 3):
        publish(table, [person(2)], number)

    assert read(table) == [(2, "Ann", 3)]
    assert (count_indexes(table), count_indexes(replace(table, table="subscribers_2025"))) == (1, 1)


def test_missing_columns_are_added(table: Destination) -> None:
    publish(table, [person(1)], 1)
    for column in ("tags", "birthday", "_invalid"):
        run_sql(table, f"alter table {{}}subscribers drop column {column}")
    publish(table, [person(1, Birthday="1990-02-30")], 2)

    (row,) = run_sql(table, "select tags, birthday, _invalid from {}subscribers")
    assert row[0] in (["a", "b"], '["a","b"]')
    assert row[1:] == (None, '{"birthday":"1990-02-30"}')


CLASHES = [("first_name", "bigint", "text"), ("birthday", "boolean", "date"), ("id", "varchar(20)", "whole number")]


@pytest.mark.parametrize(("column", "kind", "meant"), CLASHES)
def test_a_clash_of_types_is_told_with_the_statement_that_mends_it(
    table: Destination, column: str, kind: str, meant: str
) -> None:
    publish(table, [person(1)], 1)
    run_sql(table, f"alter table {{}}subscribers drop column {column}")
    run_sql(table, f"alter table {{}}subscribers add column {column} {kind}")
    message = refuse(table)
    assert f"its column {column} is " in message
    assert f"holds no {meant}" in message

    run_sql(table, message.split("mend it by: ")[1].rstrip(")"))
    publish(table, [person(2, "Bo", Birthday="1990-01-01")], 2)
    assert read(table) == [(2, "Bo", 2)]


def test_a_char_is_no_column_for_texts_where_it_loses_blanks(table: Destination) -> None:
    run_sql(table, "create table {}subscribers (id bigint, first_name char(20))")
    if table.format in SERVERS:
        message = refuse(table)
        assert "its column first_name is CHAR(20), and holds no text as it is" in message
        run_sql(table, message.split("mend it by: ")[1].rstrip(")"))
    publish(table, [person(1, "Ann  ")], 1)

    assert read(table) == [(1, "Ann  ", 1)]


COARSE = {Format.MYSQL: ("datetime", "timestamp(3)"), Format.POSTGRESQL: ("timestamp(0)", "timestamptz(3)")}


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("form", SERVERS)
def test_a_time_is_not_cut_off_in_a_column_that_keeps_less_of_it(
    form: Format, number: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    table = open_destination(request, tmp_path, form)
    kind = COARSE[Format.MYSQL if form is Format.MYSQL else Format.POSTGRESQL][number]
    run_sql(table, f"create table {{}}subscribers (id bigint, _exported_at {kind} null)")
    message = refuse(table)
    assert "its column _exported_at is " in message
    assert "holds no time as it is" in message

    run_sql(table, message.split("mend it by: ")[1].removesuffix(")"))
    publish(table, [person(1)], 1)
    ((at,),) = run_sql(table, "select _exported_at from {}subscribers")
    assert at.microsecond == day(1).microsecond > 0


def test_a_view_is_no_target(table: Destination) -> None:
    run_sql(table, "create view {}subscribers as select 1 as id")

    assert "is a view" in refuse(table)


def test_a_column_that_nobody_fills_is_told(table: Destination) -> None:
    publish(table, [person(1)], 1)
    if table.format is Format.SQLITE:  # it adds no such column
        run_sql(table, "drop table subscribers", "create table subscribers (id integer, boss text not null)")
    else:
        run_sql(table, "delete from {}subscribers", "alter table {}subscribers add column boss integer")
        if table.format is Format.MYSQL:
            run_sql(table, "alter table {}subscribers modify column boss integer not null")
        else:
            run_sql(table, "alter table {}subscribers alter column boss set not null")

    assert "its column boss must be given a value" in refuse(table)


def test_grants_and_triggers_of_postgresql_survive_a_replace(postgresql: Destination) -> None:
    publish(postgresql, [person(1)], 1)
    schema = postgresql.schema
    run_sql(
        postgresql,
        f"create role reader_{schema}",
        f"grant select on {{}}subscribers to reader_{schema}",
        "create function {}count_one() returns trigger language plpgsql as $$ begin return new; end $$",
        "create trigger counts before insert on {}subscribers for each row execute function {}count_one()",
    )
    publish(postgresql, [person(2)], 2)

    assert run_sql(postgresql, f"select has_table_privilege('reader_{schema}', '{schema}.subscribers', 'select')") == [
        (True,)
    ]
    assert run_sql(postgresql, "select count(*) from pg_trigger where tgrelid = '{}subscribers'::regclass") == [(1,)]
    run_sql(postgresql, f"drop owned by reader_{schema}", f"drop role reader_{schema}")


@pytest.mark.parametrize("grants", ["select", "select, insert", "select, update, delete"])
def test_a_missing_grant_of_postgresql_is_told_in_time(postgresql: Destination, grants: str) -> None:
    publish(postgresql, [person(1)], 1)
    schema = postgresql.schema
    role = f"writer_{schema}_{len(grants)}"
    run_sql(
        postgresql,
        f"create role {role} login",
        f"grant usage on schema {schema} to {role}",
        f"grant {grants} on {{}}subscribers to {role}",
        f"grant select, insert on {{}}_connector_runs to {role}",
    )
    assert postgresql.url is not None
    theirs = parse_destination(postgresql.url.set(username=role).render_as_string(hide_password=False), schema=schema)
    assert "permission denied for table subscribers" in refuse(theirs)
    run_sql(postgresql, f"drop owned by {role}", f"drop role {role}")


def test_a_schema_of_postgresql_is_made_when_missing(postgresql: Destination) -> None:
    assert postgresql.url is not None
    other = parse_destination(postgresql.url.render_as_string(hide_password=False), schema=f"{postgresql.schema}_new")
    publish(other, [person(1)], 1)

    assert read(other) == [(1, "Ann", 1)]
    run_sql(other, f"drop schema {other.schema} cascade")


@pytest.mark.parametrize(
    "hangs",
    [
        ["create trigger counts before insert on {}subscribers for each row set new.base_id = 5"],
        [
            "create table {}bases (id bigint primary key) engine=InnoDB",
            "insert into {}bases values (5)",
            "alter table {}subscribers add constraint of_base foreign key (base_id) references {}bases (id)",
        ],
    ],
    ids=["trigger", "foreign key"],
)
def test_what_hangs_on_a_table_of_mysql_survives_a_replace(mysql: Destination, hangs: list[str]) -> None:
    publish(mysql, [person(1, Base={"Id": 5})], 1)
    run_sql(mysql, *hangs)
    publish(mysql, [person(2, Base={"Id": 5})], 2)

    assert run_sql(mysql, "select id, base_id from subscribers") == [(2, 5)]
    (created,) = run_sql(mysql, "show create table subscribers")
    triggers = run_sql(mysql, "select count(*) from information_schema.triggers where trigger_schema = database()")
    assert "of_base" in created[1] or triggers == [(1,)]


def test_a_replace_of_mysql_leaves_no_table_behind(mysql: Destination) -> None:
    for number in (1, 2):
        publish(mysql, [person(number)], number)

    assert sorted(run_sql(mysql, "show tables")) == [("_connector_runs",), ("subscribers",)]


def test_a_view_of_another_name_is_no_obstacle(mysql: Destination) -> None:
    publish(mysql, [person(1)], 1)
    if run_sql(mysql, "select @@lower_case_table_names") == [(0,)]:  # names in other letters are others
        run_sql(mysql, "create view SUBSCRIBERS as select 1 as one")
    run_sql(mysql, "create view subscribed as select 1 as one")
    publish(mysql, [person(2)], 2)

    assert read(mysql) == [(2, "Ann", 2)]


def test_an_engine_without_transactions_is_swapped_or_refused(mysql: Destination, request: Any, tmp_path: Path) -> None:
    publish(mysql, [person(1)], 1)
    run_sql(mysql, "alter table subscribers engine = MyISAM")
    publish(mysql, [person(2)], 2)
    assert read(mysql) == [(2, "Ann", 2)]

    assert mysql.url is not None
    other = parse_destination(mysql.url.render_as_string(hide_password=False), mode="upsert")
    assert "without transactions" in refuse(other)


@pytest.mark.parametrize("form", SERVERS)
def test_a_server_that_cannot_be_reached_or_a_wrong_password_shows_no_password(form: Format) -> None:
    scheme = {Format.POSTGRESQL: "postgresql", Format.MYSQL: "mysql", Format.SQL: "postgresql+pg8000"}[form]
    if form is Format.SQL:
        pytest.importorskip("pg8000")
    writer = open_writer(parse_destination(f"{scheme}://ann:hunter2@127.0.0.1:1/shop"))
    with pytest.raises((ConfigurationError, RunAborted)) as told:
        writer.start()

    assert "hunter2" not in str(told.value)
    assert "127.0.0.1:1/shop" in str(told.value)
    assert told.value.__cause__ is None


def test_a_column_that_came_in_the_meantime_is_no_fault_of_the_settings(tmp_path: Path) -> None:
    table = parse_destination(f"sqlite:///{tmp_path}/w.db")
    publish(table, [person(1)], 1)
    writer = open_writer(table)
    writer.start()
    run_sql(table, "drop table subscribers", "create table subscribers (id text)")
    with pytest.raises(RunAborted, match="its column id is TEXT"):
        writer.publish(run_of(0, at=day(2)))
    writer.discard()
