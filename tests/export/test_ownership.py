"""Tables of other programs, tables that refuse rows, and missing permissions: the export ends, and the table stays
unchanged. Each problem that can be found early is found before the list is read."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
import sqlalchemy as sa

from connector.errors import ConfigurationError, RunAborted
from connector.warehouse.destination import Destination, Format, parse_destination
from connector.warehouse.opening import open_writer
from connector.warehouse.runs import WriteMode
from tests.databases import Database
from tests.export.people import build_run, build_start
from tests.export.test_modes import build_person, publish_people, read_rows
from tests.export.warehouses import parametrize_table, run_sql


def prepare_export(destination: Destination) -> None:
    """Prepare an export up to the point at which it reads the list."""
    writer = open_writer(destination)
    try:
        writer.prepare(build_start(build_run(0)))
    finally:
        writer.discard()


@parametrize_table([Format.SQLITE, Format.POSTGRESQL])
def test_a_table_of_another_program_is_refused_and_stays_unchanged(table: Destination) -> None:
    run_sql(
        table, "create table {}subscribers (id bigint, note varchar(9))", "insert into {}subscribers values (7, 'x')"
    )
    bytes_before = table.path.read_bytes() if table.url is None else b""
    with pytest.raises(ConfigurationError, match=r"has rows that the connector did not write.*--overwrite"):
        prepare_export(table)
    with pytest.raises(
        ConfigurationError, match=r"lacks columns of this export: base_id, .*Add the columns to this table"
    ):
        prepare_export(replace(table, overwrite=True))
    assert run_sql(table, "select * from {}subscribers") == [(7, "x")]
    if table.format is Format.SQLITE:
        assert table.path.read_bytes() == bytes_before


@parametrize_table([Format.SQLITE, Format.POSTGRESQL])
def test_a_view_is_refused_before_the_list_is_read(table: Destination) -> None:
    publish_people(replace(table, table="people"), [build_person(1)], 1)
    run_sql(table, "create view {}subscribers as select * from {}people")
    with pytest.raises(ConfigurationError, match=r"is a view|because it is a view"):
        prepare_export(replace(table, overwrite=True))
    assert read_rows(table) == [(1, "Ann", 1)]


@parametrize_table([Format.SQLITE, Format.POSTGRESQL])
def test_a_table_of_unknown_origin_must_be_empty_or_overwritten(table: Destination) -> None:
    publish_people(table, [build_person(1)], 1)
    run_sql(table, "delete from {}_connector_runs")
    with pytest.raises(ConfigurationError, match="did not write"):
        publish_people(table, [build_person(2)], 2)
    publish_people(replace(table, overwrite=True), [build_person(2)], 2)
    assert read_rows(table) == [(2, "Ann", 2)]
    publish_people(table, [build_person(3)], 3)
    run_sql(table, "delete from {}_connector_runs", "delete from {}subscribers")
    publish_people(table, [build_person(4)], 4)
    assert read_rows(table) == [(4, "Ann", 4)]


def test_a_table_is_not_replaced_if_a_foreign_key_refers_to_the_table(table: Destination) -> None:
    publish_people(table, [build_person(1)], 1)
    run_sql(table, "create table {}orders (of bigint references {}subscribers (id))"
            if table.format is not Format.MYSQL
            else "create table orders (of bigint, foreign key (of) references subscribers (id))")  # fmt: skip
    with pytest.raises(ConfigurationError, match="orders refer to"):
        publish_people(table, [build_person(2)], 2)
    assert read_rows(table) == [(1, "Ann", 1)]


@parametrize_table([Format.POSTGRESQL], "replace", "history")
def test_a_column_of_another_type_is_refused_before_the_list_is_read(table: Destination) -> None:
    publish_people(table, [build_person(1)], 1)
    run_sql(table, "alter table {}subscribers alter birthday type integer using null")
    with pytest.raises(ConfigurationError, match="birthday"):
        prepare_export(table)


@pytest.mark.parametrize("scheme", ["sqlite", "duckdb"])
def test_a_table_name_in_another_case_is_refused_with_the_existing_name(tmp_path: Path, scheme: str) -> None:
    table = parse_destination(f"{scheme}:///{tmp_path}/w.db")
    publish_people(table, [build_person(1)], 1)
    with pytest.raises(ConfigurationError, match=r"exists as subscribers, .*--table subscribers"):
        publish_people(replace(table, table="Subscribers"), [build_person(2)], 2)
    assert read_rows(table) == [(1, "Ann", 1)]


def test_a_table_with_a_column_that_needs_a_value_is_refused(table: Destination) -> None:
    publish_people(table, [build_person(1)], 1)
    run_sql(table, "alter table {}subscribers add column stamp varchar(9) default 'new'")
    publish_people(table, [build_person(2)], 2)
    # SQLite and DuckDB cannot add a required column without a default.
    if column_names_sql := _COLUMN_NAMES_SQL_BY_FORMAT.get(table.format):
        columns_sql = ", ".join(f"{name} text" for (name,) in run_sql(table, column_names_sql))
        table = replace(table, table="other")
        run_sql(table, f"create table other ({columns_sql}, note text not null)")
    else:
        run_sql(table, "delete from {}subscribers", "alter table {}subscribers add column note varchar(9) not null")
    with pytest.raises(ConfigurationError, match="needs a value in note for each row"):
        prepare_export(table)


_COLUMN_NAMES_SQL_BY_FORMAT = {
    Format.SQLITE: "select name from pragma_table_info('subscribers')",
    Format.DUCKDB: "select column_name from duckdb_columns() where table_name = 'subscribers'",
}


RULES_BY_FORMAT: dict[Format, dict[str, tuple[str, str]]] = {
    # For each kind of rule: the SQL that adds the rule, and a text in the error.
    Format.POSTGRESQL: {
        "check": ("alter table {}subscribers add constraint no_ann check (first_name <> 'Ann')", "no_ann"),
        "foreign key": ("alter table {}subscribers add constraint f foreign key (base_id) references {}b (id)", '"f"'),
        "unique": ("create unique index one_name on {}subscribers (first_name)", "one_name"),
        "length": ("alter table {}subscribers alter column first_name type varchar(2)", "first_name"),
        "not null": ("alter table {}subscribers alter column last_name set not null", "last_name"),
    },
    Format.MYSQL: {
        "check": ("alter table subscribers add constraint no_ann check (first_name <> 'Ann')", "no_ann"),
        "foreign key": ("alter table subscribers add constraint of_b foreign key (base_id) references b (id)", "of_b"),
        "unique": ("create unique index one_name on subscribers (first_name(20))", "one_name"),
        "length": ("alter table subscribers modify first_name varchar(2)", "first_name"),
        "enum": ("alter table subscribers modify first_name enum('x', 'y')", "first_name"),
        "type": ("alter table subscribers modify first_name integer", "first_name"),
        "not null": ("alter table subscribers modify last_name varchar(9) not null", "last_name"),
        "trigger": ("create trigger t before insert on subscribers for each row signal sqlstate '45000'", "trigger"),
    },
    Format.SQLITE: {
        "unique": ("create unique index one_name on subscribers (first_name)", "first_name"),
        "trigger": ("create trigger t before insert on subscribers begin select raise(abort, 'no'); end", "trigger"),
    },
    Format.DUCKDB: {
        "not null": ("alter table subscribers alter last_name set not null", "last_name"),
        "unique": ("create unique index one_name on subscribers (first_name)", "UNIQUE"),
        "type": ("alter table subscribers alter first_name type integer", "INT32"),
    },
}  # fmt: skip


@parametrize_table(list(RULES_BY_FORMAT))
def test_a_row_that_the_table_refuses_is_a_configuration_error(table: Destination) -> None:
    for rule_kind, (change_sql, expected_text) in RULES_BY_FORMAT[table.format].items():
        run_sql(table, "drop table if exists {}subscribers", "drop table if exists {}b")
        publish_people(table, [], 1)
        run_sql(table, "create table {}b (id bigint primary key)", change_sql)
        with pytest.raises(ConfigurationError, match=f"refused a row: .*{expected_text}") as error_info:
            publish_people(table, [build_person(1, Base={"Id": 7}), build_person(2, Base={"Id": 7})], 2)
        assert "The table is unchanged" in str(error_info.value), rule_kind
        assert "Ann" not in str(error_info.value), rule_kind
        assert error_info.value.__cause__ is None, rule_kind
        assert error_info.value.__suppress_context__, (
            "the output must not show the error of the driver, because that error contains the row"
        )
        assert read_rows(table) == [], rule_kind


@parametrize_table([Format.SQLITE, Format.MYSQL, Format.POSTGRESQL])
def test_a_table_with_a_generated_column_is_written(table: Destination) -> None:
    publish_people(table, [], 1)
    storage_kind = "stored" if table.format is Format.POSTGRESQL else "virtual"
    run_sql(
        table, f"alter table {{}}subscribers add column double_id bigint generated always as (id * 2) {storage_kind}"
    )
    publish_people(table, [build_person(1)], 2)
    assert read_rows(table) == [(1, "Ann", 2)]


def test_a_filtered_history_that_leaves_out_the_filtered_column_is_refused(tmp_path: Path) -> None:
    table = parse_destination(f"sqlite:///{tmp_path}/w.db", mode="history", columns=["email"])
    with pytest.raises(ConfigurationError, match="filtered by base_id, which its columns lack"):
        publish_people(table, [], 1, filters={"base_id": 7})
    assert list(tmp_path.iterdir()) == []


@parametrize_table([Format.SQLITE, Format.POSTGRESQL])
def test_a_table_has_only_the_chosen_columns_until_it_is_replaced(table: Destination) -> None:
    publish_people(replace(table, columns=("id", "email")), [build_person(1, Email="a@x.example")], 1)
    assert run_sql(table, "select id, email, _run_id from {}subscribers") == [(1, "a@x.example", "run-1")]
    with pytest.raises(
        ConfigurationError,
        match=r"lacks columns of this export: base_id, .*first_name.*list only columns of this table with --columns",
    ):
        prepare_export(table)
    with pytest.raises((sa.exc.DBAPIError, duckdb.Error), match="first_name"):
        run_sql(table, "select first_name from {}subscribers")


DOCUMENTED_PERMISSIONS_BY_DATABASE = {
    "postgresql": ["usage, create on schema {}"],
    "mariadb": ["select, insert, update, delete, create, drop on {}.*"],
}
"""The permissions that every export needs, as the documentation lists them."""
MERGING_PERMISSION_BY_DATABASE = {
    "mariadb": "create temporary tables on {}.*"
}  # the modes `upsert` and `history` also need this permission


@contextmanager
def open_destination_with_grants(
    server: Database, schema_name: str, grants: list[str], **options: Any
) -> Iterator[Destination]:
    """Yield a destination in this schema (MariaDB: this database) for a user with only these permissions."""
    is_mysql, user = server.kind == "mariadb", f"limited_{schema_name}"
    user_sql = f"{user}@'%%'" if is_mysql else user
    server.run(f"create user {user_sql} " + ("identified by 'pw'" if is_mysql else "password 'pw'"))
    try:
        server.run(*(f"grant {grant.format(schema_name)} to {user_sql}" for grant in grants))
        url = sa.make_url(server.url).set(username=user, password="pw")
        url = url.set(database=schema_name) if is_mysql else url
        schema = None if is_mysql else schema_name
        yield parse_destination(url.render_as_string(hide_password=False), schema=schema, **options)
    finally:
        server.run(*([] if is_mysql else [f"drop owned by {user}"]), f"drop user {user_sql}")


@pytest.fixture(params=list(DOCUMENTED_PERMISSIONS_BY_DATABASE))
def schema_on_server(request: pytest.FixtureRequest) -> Iterator[tuple[Database, str]]:
    """A server, and the name of an empty schema (MariaDB: database) on the server."""
    database: Database = request.getfixturevalue("postgres" if request.param == "postgresql" else "mariadb")
    schema_name = f"rights_{id(request) % 10**6}"
    database.run(f"create schema {schema_name}")
    yield database, schema_name
    database.run(f"drop schema {schema_name}" + (" cascade" if request.param == "postgresql" else ""))


@pytest.mark.parametrize("mode", [WriteMode.REPLACE, WriteMode.HISTORY])
def test_the_documented_permissions_are_enough(schema_on_server: tuple[Database, str], mode: WriteMode) -> None:
    database, schema_name = schema_on_server
    grants = [
        *DOCUMENTED_PERMISSIONS_BY_DATABASE[database.kind],
        *(
            [MERGING_PERMISSION_BY_DATABASE[database.kind]]
            if mode.merges_by_id and database.kind in MERGING_PERMISSION_BY_DATABASE
            else []
        ),
    ]
    with open_destination_with_grants(database, schema_name, grants, mode=mode) as table:
        publish_people(table, [build_person(1), build_person(2)], 1)
        publish_people(table, [build_person(2, "Bo")], 2)
        assert (2, "Bo", 2) in read_rows(table)


INCOMPLETE_PERMISSIONS_BY_DATABASE = {
    "postgresql": [["usage on schema {}"], ["create on schema {}"]],
    "mariadb": [
        ["insert, update, delete, create, drop on {}.*"], ["select, update, delete, create, drop on {}.*"],
        ["select, insert, delete, create, drop on {}.*"], ["select, insert, update, create, drop on {}.*"],
        ["select, insert, update, delete, drop on {}.*"],
    ],
}  # fmt: skip


def test_a_missing_permission_is_found_before_the_list_is_read(schema_on_server: tuple[Database, str]) -> None:
    database, schema_name = schema_on_server
    for grants in INCOMPLETE_PERMISSIONS_BY_DATABASE[database.kind]:
        database.run(*(f"drop table if exists {schema_name}.{name}" for name in ("subscribers", "_connector_runs")))
        with (
            open_destination_with_grants(database, schema_name, grants) as table,
            pytest.raises(ConfigurationError, match=r"denied|permission"),
        ):
            prepare_export(table)


def test_a_missing_permission_for_temporary_tables_is_found_before_the_list_is_read(
    schema_on_server: tuple[Database, str],
) -> None:
    database, schema_name = schema_on_server
    database_name = sa.make_url(database.url).database
    if database.kind == "postgresql":
        database.run(f'revoke temporary on database "{database_name}" from public')
    try:
        with (
            open_destination_with_grants(
                database, schema_name, DOCUMENTED_PERMISSIONS_BY_DATABASE[database.kind], mode="history"
            ) as table,
            pytest.raises(ConfigurationError, match=r"denied|permission"),
        ):
            prepare_export(table)
    finally:
        if database.kind == "postgresql":
            database.run(f'grant temporary on database "{database_name}" to public')


def test_a_missing_schema_is_created_or_refused_before_the_list_is_read(postgres: Database) -> None:
    destination = parse_destination(postgres.url, schema="made_by_an_export")
    publish_people(destination, [build_person(1)], 1)
    assert read_rows(destination) == [(1, "Ann", 1)]
    postgres.run("drop schema made_by_an_export cascade", "create schema rights_0")
    with (
        open_destination_with_grants(postgres, "rights_0", DOCUMENTED_PERMISSIONS_BY_DATABASE["postgresql"]) as table,
        pytest.raises(ConfigurationError, match="permission denied for database"),
    ):
        prepare_export(replace(table, schema="nowhere"))
    postgres.run("drop schema rights_0")


@parametrize_table([Format.SQLITE])
def test_an_export_writes_nothing_if_its_row_in_the_table_of_runs_was_deleted(table: Destination) -> None:
    publish_people(table, [build_person(1)], 1)
    writer, run = open_writer(table), build_run(0, run_id="run-2")
    writer.prepare(build_start(run))
    writer.start()
    run_sql(table, "delete from {}_connector_runs where number = 2")
    with pytest.raises(RunAborted, match="row of this run in _connector_runs was deleted"):
        writer.publish(run)
    writer.discard()
    assert read_rows(table) == [(1, "Ann", 1)]
