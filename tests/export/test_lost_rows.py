"""Rows that a database keeps out, or keeps against our word, without saying so: nothing is written, and why is told."""

from datetime import timedelta, timezone
from pathlib import Path

import pytest

from connector.errors import RunAborted
from connector.export import Format, parse_destination
from connector.export.columns import build_table
from connector.export.exporter import open_writer
from connector.export.writers import Changes
from tests.export.people import run_of
from tests.export.test_modes import day, person, publish, read
from tests.export.warehouses import DATABASES, open_destination, run_sql

POSTGRESQL = (Format.POSTGRESQL, Format.SQL)
NOBODY = "create function {}nobody() returns trigger language plpgsql as $$ begin return null; end $$"
INSERTS = "create trigger t before insert on {}subscribers for each row execute function {}nobody()"
UPDATES = "create trigger t before update on {}subscribers for each row execute function {}nobody()"
RULE = "create rule r as on insert to {}subscribers do instead nothing"
IGNORES = "create trigger t before %s on subscribers begin select raise(ignore); end"

KEPT_OUT: list[tuple[Format, str, list[str]]] = [
    *((form, mode, [NOBODY, INSERTS]) for form in POSTGRESQL for mode in ("replace", "append", "upsert", "history")),
    *((form, mode, [RULE]) for form in POSTGRESQL for mode in ("replace", "append")),
    *((form, "upsert", [NOBODY, UPDATES]) for form in POSTGRESQL),
    *((Format.SQLITE, mode, [IGNORES % "insert"]) for mode in ("replace", "append", "upsert", "history")),
    (Format.SQLITE, "upsert", [IGNORES % "update"]),
    (Format.SQLITE, "replace", [IGNORES % "delete"]),
]


@pytest.mark.parametrize(
    ("form", "mode", "hangs"),
    KEPT_OUT,
    ids=lambda each: "-".join(each[-1].split()[1:5]) if isinstance(each, list) else str(each),
)
def test_rows_that_are_kept_out_are_told_and_nothing_changes(
    form: Format, mode: str, hangs: list[str], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    table = open_destination(request, tmp_path, form, mode=mode)
    publish(table, [person(1), person(2)], 1)
    run_sql(table, *hangs)
    with pytest.raises(RunAborted, match="a trigger, a rule") as told:
        publish(table, [person(2, "Bo"), person(3)], 2)

    assert "as it was" in str(told.value)
    assert read(table) == [(1, "Ann", 1), (2, "Ann", 1)]
    assert run_sql(table, "select run_id from {}_connector_runs") == [("run-1",)]


def test_rows_that_a_policy_keeps_from_being_deleted_are_told(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    table = open_destination(request, tmp_path, Format.POSTGRESQL)
    publish(table, [person(1), person(2)], 1)
    role = f"ruled_{table.schema}"
    run_sql(
        table,
        f"create role {role} login",
        f"grant all on schema {table.schema} to {role}",
        f"grant all on all tables in schema {table.schema} to {role}",
        "alter table {}subscribers enable row level security",
        "create policy i on {}subscribers for insert with check (true)",
        "create policy s on {}subscribers for select using (true)",
        "create policy d on {}subscribers for delete using (id > 1)",
    )
    assert table.url is not None
    url = table.url.set(username=role).render_as_string(hide_password=False)
    with pytest.raises(RunAborted, match="would hold 2 rows, and the export has 1"):
        publish(parse_destination(url, schema=table.schema), [person(3)], 2)

    assert read(table) == [(1, "Ann", 1), (2, "Ann", 1)]
    run_sql(table, f"drop owned by {role}", f"drop role {role}")


@pytest.mark.parametrize("mode", ["replace", "append"])
@pytest.mark.parametrize("form", POSTGRESQL)
def test_rows_that_a_trigger_puts_into_a_part_of_the_table_are_in_it(
    form: Format, mode: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """As tables were partitioned before PostgreSQL could: the count of what was inserted is 0."""
    table = open_destination(request, tmp_path, form, mode=mode)
    publish(table, [person(1)], 1)
    run_sql(
        table,
        "create table {}part () inherits ({}subscribers)",
        "create function {}divert() returns trigger language plpgsql as "
        "$$ begin insert into {}part values (new.*); return null; end $$",
        "create trigger t before insert on {}subscribers for each row execute function {}divert()",
    )
    publish(table, [person(2), person(3)], 2)

    assert read(table)[-2:] == [(2, "Ann", 2), (3, "Ann", 2)]


@pytest.mark.parametrize("form", DATABASES)
def test_a_table_is_never_given_other_rows_than_the_run_tells(
    form: Format, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """In MySQL and DuckDB nothing that hangs on a table keeps rows out; they are counted all the same."""
    table = open_destination(request, tmp_path, form)
    publish(table, [person(1)], 1)
    writer = open_writer(table)
    writer.start()
    writer.add(build_table([person(2)], run_id="run-2", exported_at=day(2)))
    with pytest.raises(RunAborted, match="would hold 1 rows, and the export has 2"):
        writer.publish(run_of(2, run_id="run-2", at=day(2)))
    writer.discard()

    assert read(table) == [(1, "Ann", 1)]
    if form is Format.MYSQL:
        assert sorted(run_sql(table, "show tables")) == [("_connector_runs",), ("subscribers",)]


@pytest.mark.parametrize("mode", ["upsert", "history"])
@pytest.mark.parametrize("form", DATABASES)
def test_an_id_that_the_table_has_twice_is_no_lost_row(
    form: Format, mode: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    table = open_destination(request, tmp_path, form, mode=mode)
    publish(table, [person(1)], 1)
    run_sql(table, "insert into {}subscribers select * from {}subscribers")

    assert publish(table, [person(1, "Bo"), person(2)], 2) in (Changes(1, 2, 0), Changes(2, 0, 2))


AUDIT = (
    "create table {}audit (id bigint, statement text)",
    (
        "create function {}note() returns trigger language plpgsql as $$ "
        "begin insert into {}audit values (new.id, left(current_query(), 4)); return new; end $$"
    ),
    "create trigger n after insert on {}subscribers for each row execute function {}note()",
)


@pytest.mark.parametrize("mode", ["replace", "append"])
@pytest.mark.parametrize(
    ("hangs", "by"),
    [
        ([], "COPY"),
        (["create rule r as on insert to {}subscribers do also insert into {}audit values (new.id, 'rule')"], "INSE"),
        (["alter table {}subscribers enable row level security"], "INSE"),
    ],
    ids=["plain", "rule", "policies"],
)
def test_rows_are_copied_only_where_that_passes_nothing_by(
    mode: str, hangs: list[str], by: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """COPY knows no rules, and is forbidden under row-level security."""
    table = open_destination(request, tmp_path, Format.POSTGRESQL, mode=mode, tags_table="labels")
    publish(table, [person(1), person(2)], 1)
    run_sql(table, *AUDIT, *hangs)
    assert publish(table, [person(3, "Bo")], 2) == Changes(1, 0, 2 if mode == "replace" else 0)

    noted = set(run_sql(table, "select id, statement from {}audit"))
    assert noted == ({(3, by), (3, "rule")} if "rule" in str(hangs) else {(3, by)})
    assert (3, "Bo", 2) in read(table)
    assert run_sql(table, "select count(*) from {}labels where id = 3") == [(2,)]


@pytest.mark.parametrize("mode", ["replace", "append"])
def test_a_table_that_gets_policies_as_it_is_made_is_filled_by_a_stage(
    mode: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """As an event trigger does where everything new is to have them."""
    table = open_destination(request, tmp_path, Format.POSTGRESQL, mode=mode)
    secures = (
        "declare made record; begin for made in select * from pg_event_trigger_ddl_commands() "
        f"where object_type = 'table' and object_identity = '{table.schema}.subscribers' "
        "loop execute 'alter table ' || made.object_identity || ' enable row level security'; end loop; end"
    )
    run_sql(
        table,
        f"create function {{}}secure() returns event_trigger language plpgsql as $${secures}$$",
        f"create event trigger secure_{table.schema} on ddl_command_end when tag in ('CREATE TABLE') "
        "execute function {}secure()",
    )
    try:
        assert publish(table, [person(1), person(2)], 1) == Changes(2, 0, 0)
    finally:
        run_sql(table, f"drop event trigger secure_{table.schema}")
    assert run_sql(table, "select relrowsecurity from pg_class where oid = '{}subscribers'::regclass") == [(True,)]
    assert read(table) == [(1, "Ann", 1), (2, "Ann", 1)]


@pytest.mark.parametrize("mode", ["replace", "upsert"])
def test_a_column_without_a_zone_has_the_time_in_utc_whatever_the_way(
    mode: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    table = open_destination(request, tmp_path, Format.POSTGRESQL, mode=mode)
    run_sql(table, "create table {}subscribers (id bigint, _exported_at timestamp)")
    at = day(1).astimezone(timezone(timedelta(hours=5, minutes=30)))
    writer = open_writer(table)
    writer.start()
    writer.add(build_table([person(1)], run_id="run-1", exported_at=at))
    writer.publish(run_of(1, run_id="run-1", at=at))
    writer.discard()

    assert run_sql(table, "select _exported_at from {}subscribers") == [(day(1).replace(tzinfo=None),)]
