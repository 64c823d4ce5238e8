"""Each mode changes existing rows in the same way in every database."""

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
import sqlalchemy as sa
from deltalake import DeltaTable

from connector.errors import ConfigurationError, RunAborted
from connector.paging.certificate import CertificateVerdict
from connector.warehouse.columns import narrow_table, select_columns
from connector.warehouse.destination import Destination, Format
from connector.warehouse.opening import open_writer
from connector.warehouse.runs import ExportStart, RowChanges, WriteMode
from tests.export.people import EXPORT_TIME, build_run, build_table
from tests.export.warehouses import DATABASE_FORMATS, MERGING_FORMATS, parametrize_table, run_sql

HISTORY_PAGE_PATH = Path(__file__).parents[2] / "docs" / "how-to" / "history.md"

Person = dict[str, Any]


def build_person(subscriber_id: int, name: str | None = "Ann", **other_fields: Any) -> Person:
    return {"Id": subscriber_id, "FirstName": name, "Tags": ["a", "b"], **other_fields}


def build_day_time(day_number: float) -> datetime:
    return EXPORT_TIME + timedelta(days=day_number)


def publish_people(
    destination: Destination,
    people: Iterable[Person],
    run_number: float,
    *,
    verdict: CertificateVerdict = CertificateVerdict.COMPLETE,
    filters: dict[str, Any] | None = None,
) -> RowChanges:
    """Export these people as run `run_number`, which takes place on day `run_number`."""
    person_list, run_id = list(people), f"run-{run_number}"
    writer = open_writer(destination)
    try:
        writer.prepare(ExportStart(run_id, "nightly", filters or {}, build_day_time(run_number)))
        writer.start()
        table = build_table(person_list, run_id=run_id, exported_at=build_day_time(run_number))
        writer.add(narrow_table(table, select_columns(destination.columns)))
        return writer.publish(
            build_run(
                len(person_list),
                run_id=run_id,
                exported_at=build_day_time(run_number),
                verdict=verdict,
                filters=filters,
            )
        )
    finally:
        writer.discard()


def read_day_number(value: Any) -> int | None:
    """Return the number of days from `EXPORT_TIME` to a time from the database, or None for null."""
    if value is None:
        return None
    row_time = datetime.fromisoformat(value) if isinstance(value, str) else value
    return round(((row_time if row_time.tzinfo else row_time.replace(tzinfo=UTC)) - EXPORT_TIME) / timedelta(days=1))


def read_rows(destination: Destination, *time_columns: str) -> list[tuple[Any, ...]]:
    """Return for each row the id, first_name, the number of the run, and the day numbers of these columns."""
    if destination.format is Format.DELTA:
        delta_table = DeltaTable(str(destination).removeprefix("delta://")).to_pyarrow_table()
        selected_rows = delta_table.select(["id", "first_name", "_run_id", *time_columns]).to_pylist()
        return convert_rows(tuple(row.values()) for row in selected_rows)
    columns_sql = ", ".join(
        f"cast({time_column} as varchar)" if destination.format is Format.DUCKDB else time_column
        for time_column in time_columns
    )
    return convert_rows(
        run_sql(
            destination,
            f"select id, first_name, _run_id{', ' + columns_sql if time_columns else ''} from {{}}subscribers",
        )
    )


def convert_rows(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return the rows in a fixed order. Run ids become run numbers, and times become day numbers: `run-3` → 3.0."""
    converted_rows = [(row[0], row[1], float(row[2][4:]), *map(read_day_number, row[3:])) for row in rows]
    return sorted(converted_rows, key=lambda row: tuple((cell is None, cell or 0) for cell in (row[0], *row[2:])))


@parametrize_table([*DATABASE_FORMATS, Format.DELTA])
def test_replace_leaves_only_the_rows_of_the_new_list(table: Destination) -> None:
    publish_people(table, [build_person(1), build_person(2)], 1)
    row_changes = publish_people(table, [build_person(2, "Bo"), build_person(3)], 2)
    assert read_rows(table) == [(2, "Bo", 2), (3, "Ann", 2)]
    assert row_changes == RowChanges(2, 0, 0 if table.format is Format.DELTA else 2)
    publish_people(table, [], 3)
    assert read_rows(table) == []


@parametrize_table([*DATABASE_FORMATS, Format.DELTA], "append")
def test_append_keeps_the_rows_of_earlier_exports(table: Destination) -> None:
    publish_people(table, [build_person(1), build_person(2, Tags=["x"])], 1)
    row_changes = publish_people(table, [build_person(2, "Bo", Tags=[])], 2)
    assert read_rows(table) == [(1, "Ann", 1), (2, "Ann", 1), (2, "Bo", 2)]
    assert row_changes == RowChanges(1, 0, 0)


@parametrize_table([*MERGING_FORMATS, Format.DELTA], "upsert")
def test_upsert_has_one_row_for_each_id_and_marks_deleted_rows_until_they_return(table: Destination) -> None:
    """`_run_id` and `_exported_at` belong to the run that last changed the row."""
    ann, changed_bo, cem, dan = build_person(1), build_person(2, "Bo", Tags=["x"]), build_person(3), build_person(4)
    # In the counts of Delta, a new deletion mark is an update.
    updated_row_count, closed_row_count = (2, 0) if table.format is Format.DELTA else (1, 1)
    publish_people(table, [ann, build_person(2), dan], 1)
    assert publish_people(table, [changed_bo, cem, dan], 2) == RowChanges(1, updated_row_count, closed_row_count)
    assert read_rows(table, "deleted_at", "_exported_at") == [
        (1, "Ann", 2, 2, 2), (2, "Bo", 2, None, 2), (3, "Ann", 2, None, 2), (4, "Ann", 1, None, 1),
    ]  # fmt: skip
    assert publish_people(table, [ann, changed_bo, dan], 3) == RowChanges(0, updated_row_count, closed_row_count)
    assert read_rows(table, "deleted_at") == [
        (1, "Ann", 3, None), (2, "Bo", 2, None), (3, "Ann", 3, 3), (4, "Ann", 1, None),
    ]  # fmt: skip
    assert publish_people(table, [ann, changed_bo, dan], 4) == RowChanges(0, 0, 0)
    assert read_rows(table, "deleted_at")[2] == (3, "Ann", 3, 3), "the time of the deletion does not change"


@parametrize_table(MERGING_FORMATS, "upsert")
def test_upsert_keeps_the_values_of_other_columns(table: Destination) -> None:
    """The table has a column that the user added, and a column that --columns leaves out."""
    publish_people(table, [build_person(1), build_person(2)], 1)
    run_sql(table, "alter table {}subscribers add column mine varchar(9) default 'new'")
    run_sql(table, "update {}subscribers set mine = 'kept'")
    publish_people(
        replace(table, columns=("id", "first_name")), [build_person(1, "Bo"), build_person(2), build_person(3)], 2
    )
    rows = run_sql(table, "select id, first_name, mine, tags is null from {}subscribers order by id")
    assert [(*row[:3], bool(row[3])) for row in rows] == [
        (1, "Bo", "kept", False),
        (2, "Ann", "kept", False),
        (3, "Ann", "new", True),
    ]


@parametrize_table(MERGING_FORMATS, "history")
def test_history_has_each_version_with_its_period(table: Destination) -> None:
    publish_people(table, [build_person(1), build_person(2), build_person(4)], 1)
    row_changes = publish_people(table, [build_person(1), build_person(2, "Bo", Tags=["x"]), build_person(3)], 2)
    assert row_changes == RowChanges(2, 0, 2)
    publish_people(table, [build_person(1), build_person(2, "Bo", Tags=["x"]), build_person(4)], 3)
    assert read_rows(table, "valid_from", "valid_to") == [
        (1, "Ann", 1, 1, None),
        (2, "Ann", 2, 1, 2), (2, "Bo", 2, 2, None),
        (3, "Ann", 3, 2, 3),
        (4, "Ann", 2, 1, 2), (4, "Ann", 3, 3, None),
    ]  # fmt: skip
    current_rows = run_sql(table, "select id from {}subscribers where is_current order by id")
    assert current_rows == [(1,), (2,), (4,)]


SMALL_CHANGES: list[tuple[str, object, object]] = [
    ("FirstName", "ann", "Ann"), ("FirstName", "Ann", "Ann "), ("FirstName", "Zoe", "Zoë"), ("FirstName", None, ""),
    ("FirstName", "e\u0301", "é"), ("Email", "A@x.example", "a@x.example"), ("Tags", ["a"], ["A"]), ("Tags", [], None),
    ("Tags", ["a", "b"], ["b", "a"]), ("IsActive", False, None), ("Birthday", "1990-01-01", None),
    ("Birthday", "1990-02-30", "1990-02-31"),
]  # fmt: skip


@parametrize_table(MERGING_FORMATS, "history")
def test_the_smallest_change_of_a_value_makes_a_new_version(table: Destination) -> None:
    """The database itself may ignore case, accents, or trailing blanks in comparisons."""
    unchanged_person = build_person(99, "É", Email="É")
    people_before, people_after = (
        [build_person(index) | {field: values[day]} for index, (field, *values) in enumerate(SMALL_CHANGES, 1)]
        for day in (0, 1)
    )
    publish_people(table, [*people_before, unchanged_person], 1)
    row_changes = publish_people(table, [*people_after, unchanged_person], 2)
    assert row_changes == RowChanges(len(SMALL_CHANGES), 0, len(SMALL_CHANGES))


@parametrize_table([Format.SQLITE, Format.POSTGRESQL, Format.DELTA], "upsert", "history")
def test_an_incomplete_export_marks_no_subscriber_as_deleted(table: Destination) -> None:
    publish_people(table, [build_person(1), build_person(2)], 1)
    publish_people(table, [build_person(2, "Bo")], 2, verdict=CertificateVerdict.INCOMPLETE)
    deletion_column = "deleted_at" if table.mode is WriteMode.UPSERT else "valid_to"
    assert (1, "Ann", 1, None) in read_rows(table, deletion_column)
    assert (2, "Bo", 2, None) in read_rows(table, deletion_column)


def build_person_of_base(base_id: int, subscriber_id: int, **other_fields: Any) -> Person:
    return build_person(subscriber_id, Base={"Id": base_id}, **other_fields)


FILTERS_AND_PEOPLE: list[tuple[dict[str, Any], Person]] = [
    ({"base_id": 7}, build_person_of_base(7, 1)),
    ({"base_id": 7, "is_active": True}, build_person_of_base(7, 1, IsActive=True)),
    ({"first_name": "Zoë"}, build_person(1, "Zoë")),
    ({"gender": ""}, build_person(1, Gender="")),
]


@parametrize_table(MERGING_FORMATS, "upsert")
def test_a_filtered_export_marks_deleted_rows_within_its_filter_only(table: Destination) -> None:
    other_people = [
        build_person_of_base(9, 2, Gender="male"),
        build_person_of_base(9, 3, FirstName="zoë"),
        build_person_of_base(7, 4, FirstName="Zoe", Gender=None),
    ]
    for index, (filters, deleted_person) in enumerate(FILTERS_AND_PEOPLE):
        mode = WriteMode.UPSERT if index % 2 else WriteMode.HISTORY
        target = replace(table, table=f"filtered_{index}", mode=mode)
        publish_people(target, [deleted_person, *other_people[: 2 if filters == {"base_id": 7} else 3]], 1)
        publish_people(target, [{**deleted_person, "Id": 5}], 2, filters=filters)
        is_deleted_sql = "deleted_at is not null" if mode is WriteMode.UPSERT else "not is_current"
        assert run_sql(target, f"select id from {{}}{target.table} where {is_deleted_sql}") == [(1,)], filters


@parametrize_table([Format.SQLITE, Format.POSTGRESQL], "upsert")
def test_each_run_has_a_row_in_the_table_of_runs(table: Destination) -> None:
    publish_people(table, [build_person(1), build_person(2)], 1)
    publish_people(table, [build_person(2, "Bo")], 2, filters={"base_id": 7, "email": "ü@x"})
    columns_sql = "number, run_id, job, table_name, mode, verdict, filters, rows_written, rows_inserted, rows_updated"
    rows = run_sql(table, f"select {columns_sql} from {{}}_connector_runs order by number")
    assert rows == [
        (1, "run-1", "nightly", "subscribers", "upsert", "complete", "{}", 2, 2, 0),
        (2, "run-2", "nightly", "subscribers", "upsert", "complete", '{"base_id": 7, "email": "ü@x"}', 1, 0, 1),
    ]


@parametrize_table([Format.SQLITE, Format.POSTGRESQL])
def test_an_export_in_another_mode_is_refused(table: Destination) -> None:
    publish_people(table, [build_person(1)], 1)
    for other_mode in (WriteMode.HISTORY, WriteMode.UPSERT, WriteMode.APPEND):
        if table.format in MERGING_FORMATS or other_mode is WriteMode.APPEND:
            with pytest.raises(ConfigurationError, match=f"has the mode replace, not {other_mode}"):
                publish_people(replace(table, mode=other_mode), [build_person(1)], 2)
    assert read_rows(table) == [(1, "Ann", 1)]


DUPLICATE_ROW_SQL_BY_MODE = {
    WriteMode.REPLACE: "insert into {}subscribers (id) values (1)",
    WriteMode.UPSERT: "insert into {}subscribers (id) values (1)",
    WriteMode.APPEND: "insert into {}subscribers (_run_id, id) values ('run-1', 1)",
    WriteMode.HISTORY: "insert into {}subscribers (id, valid_from) select id, valid_from from {}subscribers",
}


@parametrize_table([Format.SQLITE, Format.POSTGRESQL])
def test_the_primary_key_of_each_mode_refuses_a_second_row(table: Destination) -> None:
    for mode, insert_sql in DUPLICATE_ROW_SQL_BY_MODE.items():
        if table.format in MERGING_FORMATS or not mode.merges_by_id:
            target = replace(table, table=f"in_{mode}", mode=mode)
            publish_people(target, [build_person(1)], 1)
            with pytest.raises((sa.exc.DBAPIError, duckdb.Error), match=r"(?i)duplicate|unique"):
                run_sql(target, insert_sql.replace("{}subscribers", f"{{}}{target.table}"))


NOW_SQL_BY_FORMAT = {Format.SQLITE: "datetime('now')", Format.MYSQL: "utc_timestamp(6)"}
SET_ZONE_SQL_BY_FORMAT = {
    Format.POSTGRESQL: "set time zone '{}'",
    Format.DUCKDB: "set timezone = '{}'",
    Format.MYSQL: "set time_zone = '{}'",
}
ZONE_NAMES_BY_FORMAT = {Format.MYSQL: ["+00:00", "-11:00", "+13:00"]}


@parametrize_table(MERGING_FORMATS, "history")
def test_the_documented_query_of_a_history_works_in_any_time_zone(table: Destination) -> None:
    """A new version began an hour ago. The query for two hours ago finds the old version, and the query for now finds
    the new version."""
    query = read_documented_query()
    change_day_number = (datetime.now(UTC) - timedelta(hours=1) - EXPORT_TIME) / timedelta(days=1)
    publish_people(table, [build_person(1, "old")], change_day_number - 1)
    publish_people(table, [build_person(1, "new")], change_day_number)
    now_sql = NOW_SQL_BY_FORMAT.get(table.format, "now()")
    past_time_sql = {Format.SQLITE: "datetime('now', '-2 hours')"}.get(table.format, f"{now_sql} - interval '2' hour")
    for zone in (
        ZONE_NAMES_BY_FORMAT.get(table.format, ["UTC", "Pacific/Pago_Pago", "Pacific/Apia"])
        if table.format in SET_ZONE_SQL_BY_FORMAT
        else ["UTC"]
    ):
        set_zone_statements = (
            [SET_ZONE_SQL_BY_FORMAT[table.format].format(zone)] if table.format in SET_ZONE_SQL_BY_FORMAT else []
        )
        for time_sql, name in ((now_sql, "new"), (past_time_sql, "old")):
            assert run_sql(table, *set_zone_statements, query.replace(":moment", time_sql)) == [(1, name)], (
                zone,
                time_sql,
            )


@parametrize_table([Format.MYSQL], "upsert", "history")
def test_an_export_after_january_2038_is_written(table: Destination) -> None:
    day_number_of_2043 = 6000.0
    publish_people(table, [build_person(1), build_person(2)], day_number_of_2043)
    publish_people(table, [build_person(2, "Bo")], day_number_of_2043 + 1)
    time_columns = {"upsert": ["deleted_at"], "history": ["valid_from", "valid_to"]}.get(table.mode, [])
    latest_row = read_rows(table, "_exported_at", *time_columns)[-1]
    assert latest_row[:4] == (2, "Bo", day_number_of_2043 + 1, day_number_of_2043 + 1)


@parametrize_table([Format.MYSQL], "upsert", "history")
def test_an_export_keeps_the_timestamps_of_a_table_of_an_earlier_version(table: Destination) -> None:
    publish_people(table, [build_person(1), build_person(2)], 1)
    time_columns = {"upsert": ["deleted_at"], "history": ["valid_to", "valid_from"]}.get(table.mode, [])
    for name in ("_exported_at", *time_columns):
        is_key_column = name == "valid_from"
        type_sql = "timestamp(6) default current_timestamp(6) not null" if is_key_column else "timestamp(6) null"
        run_sql(table, "set time_zone = '+00:00'", f"alter table subscribers modify {name} {type_sql}")
    run_sql(table, "alter table _connector_runs modify started_at timestamp(6) null, "
            "modify finished_at timestamp(6) null")  # fmt: skip
    publish_people(table, [build_person(2, "Bo"), build_person(3)], 2)
    assert (2, "Bo", 2, 2) in [row[:4] for row in read_rows(table, "_exported_at", *time_columns)]
    (finished_run_count_row,) = run_sql(table, "select count(finished_at) from _connector_runs")
    assert finished_run_count_row == (2,)
    with pytest.raises((ConfigurationError, RunAborted), match="_at"):
        publish_people(table, [build_person(2, "Bo")], 6000)


def read_documented_query() -> str:
    """Return the query of the page about histories, with only the columns id and first_name."""
    (query,) = re.findall(r"```sql\n(.*?)```", HISTORY_PAGE_PATH.read_text(encoding="utf-8"), re.DOTALL)
    return str(query).replace("select * from ", "select id, first_name from {}")


@parametrize_table([Format.SQLITE], "history")
def test_the_documented_query_returns_each_day_of_a_history(table: Destination) -> None:
    people_by_day, query = {}, read_documented_query()
    for day_number in range(1, 6):
        people = {  # on each day, some subscribers are new, some are gone, and some have changed
            index: f"v{(day_number + index) // (1 + index % 4)}"
            for index in range(1, 30)
            if (index * day_number) % 7 and index % 5 != day_number % 5
        }
        people_by_day[day_number] = people
        publish_people(
            table, [build_person(index, name, Birthday="1990-01-01") for index, name in people.items()], day_number
        )
    for day_number, people in people_by_day.items():
        time_text = build_day_time(day_number).isoformat(" ").removesuffix("+00:00")
        history_rows = run_sql(table, query.replace(":moment", f"'{time_text}'"))
        assert sorted(history_rows) == sorted(people.items()), day_number


@parametrize_table(MERGING_FORMATS, "upsert")
def test_large_ids_and_odd_characters_are_stored_unchanged(table: Destination) -> None:
    name = "😀 'q' \\ \\' \"d\" %s :x {y} \n\t\x7f"
    for run_number in (1, 2):
        publish_people(
            table,
            [build_person(2**63 - 1, name, Tags=[name, ""]), build_person(-(2**63), name, Birthday="0001-01-01")],
            run_number,
        )
    rows = run_sql(table, "select id, first_name, birthday from {}subscribers order by id")
    assert [(row[0], row[1]) for row in rows] == [(-(2**63), name), (2**63 - 1, name)]
    assert str(rows[0][2]) == str(date(1, 1, 1))


@parametrize_table(MERGING_FORMATS, "history")
def test_a_text_with_a_nul_is_stored_or_moved_to_the_invalid_values(table: Destination) -> None:
    people = [build_person(1, "a\0b", Tags=["x\0"], LastName="Lee"), build_person(2)]
    publish_people(table, people, 1)
    row_changes = publish_people(table, people, 2)
    rows = run_sql(table, "select first_name, last_name, _invalid from {}subscribers where id = 1")
    if table.format in (Format.POSTGRESQL, Format.SQL):
        assert rows == [(None, "Lee", '{"first_name": "a\\u0000b", "tags": ["x\\u0000"]}')]
    else:
        assert rows == [("a\0b", "Lee", None)]
    assert row_changes == RowChanges(0, 0, 0), "an unchanged row is not a new version"
