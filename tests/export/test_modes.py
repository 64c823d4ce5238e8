"""What each mode makes of the rows that are there, in every database: the same, from the same statements."""

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from connector.errors import ConfigurationError, RunAborted
from connector.export import Destination, Format, parse_destination
from connector.export.columns import build_table
from connector.export.exporter import open_writer
from connector.export.writers import Changes, Mode
from connector.export.writers.duckdb_place import DUCKDB, DuckdbPlace
from connector.pages import Verdict
from tests.export.people import AT, run_of
from tests.export.warehouses import DATABASES, SERVERS, open_destination, run_sql

README = Path(__file__).parents[2] / "README.md"

Person = dict[str, Any]


def person(number: int, name: str | None = "Ann", **more: Any) -> Person:
    return {"Id": number, "FirstName": name, "Tags": ["a", "b"], **more}


def day(number: int) -> datetime:
    return AT + timedelta(days=number)


def publish(
    destination: Destination,
    people: Iterable[Person],
    number: int,
    *,
    verdict: Verdict = Verdict.COMPLETE,
    asked: dict[str, Any] | None = None,
) -> Changes:
    """Export these people as the run of that day."""
    listed, run_id = list(people), f"run-{number}"
    writer = open_writer(destination)
    try:
        writer.start()
        writer.add(build_table(listed, run_id=run_id, exported_at=day(number)))
        return writer.publish(run_of(len(listed), run_id=run_id, at=day(number), verdict=verdict, asked=asked))
    finally:
        writer.discard()


@pytest.fixture(params=[*DATABASES, "duckdb, row by row"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Format:
    if isinstance(request.param, Format):
        return request.param
    monkeypatch.setattr(DuckdbPlace, "dialect", replace(DUCKDB, most_joined=1))
    return Format.DUCKDB


@pytest.fixture
def make(form: Format, request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return lambda mode, **more: open_destination(request, tmp_path, form, mode=mode, **more)


def when(value: Any) -> int | None:
    """A time of the database as the number of its day."""
    if value is None:
        return None
    at = datetime.fromisoformat(value) if isinstance(value, str) else value
    return round(((at if at.tzinfo else at.replace(tzinfo=UTC)) - AT) / timedelta(days=1))


def read(destination: Destination, *times: str) -> list[tuple[Any, ...]]:
    """id, first_name, the number of the run, and the days of these columns."""
    columns = ", ".join(f"cast({each} as varchar)" if destination.format is Format.DUCKDB else each for each in times)
    rows = run_sql(destination, f"select id, first_name, _run_id{', ' + columns if times else ''} from {{}}subscribers")
    read = [(row[0], row[1], int(row[2][4:]), *map(when, row[3:])) for row in rows]
    return sorted(read, key=lambda row: tuple((each is None, each or 0) for each in (row[0], *row[2:])))


def read_tags(destination: Destination) -> list[tuple[Any, ...]]:
    rows = run_sql(destination, "select id, position, tag, _run_id from {}labels")
    return sorted((row[0], row[1], row[2], int(row[3][4:])) for row in rows)


def test_replace_leaves_what_is_listed_now(make: Any) -> None:
    table = make("replace", tags_table="labels")
    publish(table, [person(1), person(2)], 1)
    changes = publish(table, [person(2, "Bo"), person(3)], 2)

    assert read(table) == [(2, "Bo", 2), (3, "Ann", 2)]
    assert changes == Changes(2, 0, 2)
    assert read_tags(table) == [(number, place, tag, 2) for number in (2, 3) for place, tag in ((1, "a"), (2, "b"))]


def test_append_keeps_every_snapshot(make: Any) -> None:
    table = make("append", tags_table="labels")
    publish(table, [person(1), person(2, Tags=["x"])], 1)
    changes = publish(table, [person(2, "Bo", Tags=[])], 2)

    assert read(table) == [(1, "Ann", 1), (2, "Ann", 1), (2, "Bo", 2)]
    assert changes == Changes(1, 0, 0)
    assert read_tags(table) == [(1, 1, "a", 1), (1, 2, "b", 1), (2, 1, "x", 1)]


def test_upsert_keeps_one_row_each_and_marks_who_has_gone_until_they_return(make: Any) -> None:
    table = make("upsert", tags_table="labels")
    publish(table, [person(1), person(2)], 1)
    assert publish(table, [person(2, "Bo", Tags=["x"]), person(3)], 2) == Changes(1, 1, 1)
    assert read(table, "deleted_at") == [(1, "Ann", 1, 2), (2, "Bo", 2, None), (3, "Ann", 2, None)]

    assert publish(table, [person(1), person(2, "Bo")], 3) == Changes(0, 2, 1)
    assert read(table, "deleted_at") == [(1, "Ann", 3, None), (2, "Bo", 3, None), (3, "Ann", 2, 3)]
    assert [row for row in read_tags(table) if row[0] == 2] == [(2, 1, "a", 3), (2, 2, "b", 3)]
    publish(table, [person(2, "Bo")], 4)
    assert read(table, "deleted_at")[-1] == (3, "Ann", 2, 3), "when somebody went is not forgotten"


def test_upsert_leaves_columns_of_somebody_elses_as_they_are(make: Any) -> None:
    table = make("upsert")
    publish(table, [person(1), person(2)], 1)
    run_sql(table, "alter table {}subscribers add column note varchar(20)")
    run_sql(table, "update {}subscribers set note = 'vip' where id = 1")
    publish(table, [person(1, "Bo"), person(3)], 2)

    assert sorted(run_sql(table, "select id, first_name, note from {}subscribers where id <> 2")) == [
        (1, "Bo", "vip"), (3, "Ann", None),
    ]  # fmt: skip


def test_history_keeps_each_version_from_when_to_when(make: Any) -> None:
    table = make("history", tags_table="labels")
    publish(table, [person(1), person(2), person(4)], 1)
    changes = publish(table, [person(1), person(2, "Bo", Tags=["x"]), person(3)], 2)
    assert changes == Changes(2, 0, 2)
    publish(table, [person(1), person(2, "Bo", Tags=["x"]), person(4)], 3)

    assert read(table, "valid_from", "valid_to") == [
        (1, "Ann", 1, 1, None),
        (2, "Ann", 1, 1, 2), (2, "Bo", 2, 2, None),
        (3, "Ann", 2, 2, 3),
        (4, "Ann", 1, 1, 2), (4, "Ann", 3, 3, None),
    ]  # fmt: skip
    current = run_sql(table, "select id from {}subscribers where is_current order by id")
    assert current == [(1,), (2,), (4,)]
    assert [row for row in read_tags(table) if row[0] == 2] == [(2, 1, "a", 1), (2, 1, "x", 2), (2, 2, "b", 1)]
    assert [row for row in read_tags(table) if row[0] == 1] == [(1, 1, "a", 1), (1, 2, "b", 1)]


CHANGES: list[tuple[str, object, object]] = [
    ("FirstName", "ann", "Ann"), ("FirstName", "Ann", "Ann "), ("FirstName", "Zoe", "Zoë"), ("FirstName", None, ""),
    ("FirstName", "e\u0301", "é"), ("Email", "A@x.example", "a@x.example"), ("Tags", ["a"], ["A"]), ("Tags", [], None),
    ("Tags", ["a", "b"], ["b", "a"]), ("IsActive", False, None), ("Birthday", "1990-01-01", None),
    ("Birthday", "1990-02-30", "1990-02-31"),
]  # fmt: skip


def test_a_version_is_new_if_any_byte_of_it_is(make: Any) -> None:
    """Also where the database's own comparison is blind to case, accents, or blanks at the end."""
    table = make("history")
    before = [person(number) | {field: old} for number, (field, old, _) in enumerate(CHANGES, 1)]
    after = [person(number) | {field: new} for number, (field, _, new) in enumerate(CHANGES, 1)]
    publish(table, [*before, person(99, "É", Email="É")], 1)
    changes = publish(table, [*after, person(99, "É", Email="É")], 2)

    assert changes == Changes(len(CHANGES), 0, len(CHANGES))


_BLIND = {  # to case, each as the database has it
    Format.DUCKDB: ["alter table subscribers alter first_name type varchar collate nocase"],
    Format.MYSQL: [
        "alter table subscribers modify first_name longtext character set utf8mb4 collate utf8mb4_general_ci"
    ],
    Format.SQLITE: [
        "pragma writable_schema = 1",
        "update sqlite_master set sql = replace(sql, '\"first_name\" TEXT', '\"first_name\" TEXT COLLATE NOCASE')",
    ],
}


@pytest.mark.parametrize("form", _BLIND, indirect=True)
def test_a_version_is_new_if_the_column_is_blind_to_what_changed(make: Any, form: Format) -> None:
    """The tests' PostgreSQL has no collation of that kind, and no citext."""
    table = make("history")
    publish(table, [person(1, "Ann")], 1)
    run_sql(table, *_BLIND[form])
    assert len(run_sql(table, "select id from {}subscribers where first_name = 'ANN'")) == 1
    publish(table, [person(1, "ANN")], 2)

    assert read(table) == [(1, "Ann", 1), (1, "ANN", 2)]


@pytest.mark.parametrize("mode", ["upsert", "history"])
@pytest.mark.parametrize(
    ("verdict", "asked"),
    [(Verdict.INCOMPLETE, None), (Verdict.COMPLETE, {"base_id": 7})],
    ids=["incomplete", "filtered"],
)
def test_nobody_is_taken_for_gone_who_may_only_be_unlisted(
    make: Any, mode: str, verdict: Verdict, asked: dict[str, Any] | None
) -> None:
    table = make(mode)
    publish(table, [person(1), person(2)], 1)
    publish(table, [person(2, "Bo")], 2, verdict=verdict, asked=asked)

    ended = "deleted_at" if mode == "upsert" else "valid_to"
    assert (1, "Ann", 1, None) in read(table, ended)
    assert (2, "Bo", 2, None) in read(table, ended)


@pytest.mark.parametrize("form", SERVERS, indirect=True)
def test_tables_whose_names_differ_in_case_alone_are_two_if_the_server_says_so(make: Any, form: Format) -> None:
    table = make("history")
    other = replace(table, table="SUBSCRIBERS", mode=Mode.APPEND)
    publish(table, [person(1), person(2), person(3)], 3)
    if form is Format.MYSQL and run_sql(table, "select @@lower_case_table_names") != [(0,)]:
        with pytest.raises(ConfigurationError, match="is kept in the mode history"):
            publish(other, [person(4)], 4)
        return

    publish(other, [person(4)], 2)
    publish(other, [person(5)], 4)

    assert read(table) == [(1, "Ann", 3), (2, "Ann", 3), (3, "Ann", 3)]
    assert open_writer(table).count_last({}) == 3
    assert open_writer(other).count_last({}) == 1


def test_each_run_has_a_line_of_its_own(make: Any) -> None:
    table = make("upsert")
    publish(table, [person(1), person(2)], 1)
    publish(table, [person(2)], 2, asked={"base_id": 7, "email": "ü@x"})

    columns = "run_id, job, table_name, mode, verdict, filters, rows_written, rows_inserted, rows_updated, rows_closed"
    rows = run_sql(table, f"select {columns} from {{}}_connector_runs order by run_id")
    assert rows == [
        ("run-1", "nightly", "subscribers", "upsert", "complete", "{}", 2, 2, 0, 0),
        ("run-2", "nightly", "subscribers", "upsert", "complete", '{"base_id": 7, "email": "ü@x"}', 1, 0, 1, 0),
    ]


def test_a_run_that_began_earlier_is_not_written_over_a_later_one(make: Any) -> None:
    table = make("history")
    publish(table, [person(1)], 3)

    with pytest.raises(RunAborted, match="began later"):
        publish(table, [person(1, "Bo")], 2)
    assert read(table, "valid_from", "valid_to") == [(1, "Ann", 3, 3, None)]


@pytest.mark.parametrize(
    ("first", "then", "may"),
    [
        ("replace", "history", True), ("replace", "upsert", True), ("replace", "append", True),
        ("upsert", "replace", False), ("upsert", "history", False), ("append", "upsert", False),
        ("append", "replace", False), ("history", "replace", False), ("history", "append", False),
    ],
)  # fmt: skip
def test_a_mode_that_would_lose_what_another_kept_is_refused(tmp_path: Path, first: str, then: str, may: bool) -> None:
    table = parse_destination(f"sqlite:///{tmp_path}/w.db", mode=first)
    publish(table, [person(1)], 1)
    other = replace(table, mode=Mode(then))
    if may:
        publish(other, [person(1)], 2)
        return
    with pytest.raises(ConfigurationError, match=f"kept in the mode {first}"):
        publish(other, [person(1)], 2)
    assert read(table) == [(1, "Ann", 1)]


def test_a_history_begins_with_what_a_replaced_table_had(make: Any) -> None:
    table = make("replace")
    publish(table, [person(1), person(2), person(3)], 1)
    other = replace(table, mode=Mode.HISTORY)
    publish(other, [person(1), person(2, "Bo")], 2)

    assert read(other, "valid_from", "valid_to") == [
        (1, "Ann", 1, 1, None), (2, "Ann", 1, 1, 2), (2, "Bo", 2, 2, None), (3, "Ann", 1, 1, 2),
    ]  # fmt: skip


def test_ten_days_of_a_history_come_back_day_by_day(make: Any) -> None:
    """By the query of the README."""
    table, days = make("history"), {}
    (printed,) = re.findall(r"```sql\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    query = printed.replace("select * from ", "select id, first_name from {}")
    for number in range(1, 11):
        people = {  # some come, some go, some change
            each: f"v{(number + each) // (1 + each % 4)}"
            for each in range(1, 30)
            if (each * number) % 7 and each % 5 != number % 5
        }
        days[number] = people
        publish(table, [person(each, name, Birthday="1990-01-01") for each, name in people.items()], number)

    cast = "cast('{}' as timestamptz)" if table.format in (Format.DUCKDB, Format.POSTGRESQL, Format.SQL) else "'{}'"
    for number, people in days.items():
        at = day(number).isoformat(" ") if table.format is not Format.SQLITE else day(number).isoformat()
        moment = cast.replace("{}", at.removesuffix("+00:00") if table.format is Format.MYSQL else at)
        state = run_sql(table, query.replace(":moment", moment))
        assert sorted(state) == sorted(people.items()), number


def test_large_ids_and_every_kind_of_character_come_back(make: Any) -> None:
    table = make("upsert")
    name = "😀 'q' \\ \\' \"d\" %s :x {y} \n\t\x7f"
    for number in (1, 2):
        publish(
            table, [person(2**63 - 1, name, Tags=[name, ""]), person(-(2**63), name, Birthday="0001-01-01")], number
        )

    rows = run_sql(table, "select id, first_name, birthday from {}subscribers order by id")
    assert [(row[0], row[1]) for row in rows] == [(-(2**63), name), (2**63 - 1, name)]
    assert str(rows[0][2]) == str(date(1, 1, 1))


def test_a_text_with_a_nul_is_kept_as_it_is_or_as_invalid(make: Any) -> None:
    table = make("history")
    people = [person(1, "a\0b", Tags=["x\0"], LastName="Lee"), person(2)]
    publish(table, people, 1)
    changes = publish(table, people, 2)

    rows = run_sql(table, "select first_name, last_name, _invalid from {}subscribers where id = 1")
    if table.format in (Format.POSTGRESQL, Format.SQL):
        assert rows == [(None, "Lee", '{"first_name": "a\\u0000b", "tags": ["x\\u0000"]}')]
    else:
        assert rows == [("a\0b", "Lee", None)]
    assert changes == Changes(0, 0, 0), "what did not change is no new version"


def test_tags_of_which_one_has_a_nul_are_in_both_tables_or_in_none(make: Any) -> None:
    table = make("replace", tags_table="labels")
    publish(table, [person(1, Tags=["x", "y\0"]), person(2, "a\0b")], 1)

    rows = run_sql(table, "select id, tags, _invalid from {}subscribers order by id")
    both = [(2, 1, "a", 1), (2, 2, "b", 1)]
    if table.format in (Format.POSTGRESQL, Format.SQL):
        assert rows[0] == (1, None, '{"tags": ["x", "y\\u0000"]}')
        assert read_tags(table) == both
    else:
        assert rows[0][2] is None
        assert read_tags(table) == [(1, 1, "x", 1), (1, 2, "y\0", 1), *both]
