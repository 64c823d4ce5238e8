"""The types of a cursor column and the kinds of `start` on every database.

A value that cannot be compared with the cursor ends the run. The message has the number of rows and an example.
"""

from collections.abc import Iterator, Sequence
from itertools import product

import pytest

from connector.errors import ConfigurationError, SourceError
from connector.sources.cursor import ColumnType, CursorKind, find_cursor_kind, parse_cursor
from connector.sources.cursor_columns import COMPARABLE_TYPES_BY_KIND, explain_type
from connector.sources.sql import IncrementalSource
from tests.databases import DATABASE_OPENER_BY_KIND, Database

START_BY_KIND = {CursorKind.TIMESTAMP: "1970-01-01T00:00:00", CursorKind.DATE: "1970-01-01", CursorKind.INTEGER: "0"}
START_WITH_ZONE = "1970-01-01T00:00:00+00:00"
TIME_KINDS = {CursorKind.TIMESTAMP, CursorKind.DATE}
NUMBER_KINDS = {CursorKind.INTEGER}
REFUSAL_PATTERN = (
    r"cannot be compared|Correct the row|; compare :cursor with|Illegal parameter data types|Could not convert"
)
UUID = "018f0000-0000-7000-8000-000000000001"
ISO_TIME = "2026-11-21 10:00:00"

COLUMN_TYPES_BY_DATABASE: dict[str, list[tuple[str, str, set[CursorKind]]]] = {
    # Each case: the type of the column, a value, and the kinds of `start` that the column can be compared with.
    "postgresql": [
        ("integer", "7", NUMBER_KINDS), ("bigint", "1764000000", NUMBER_KINDS), ("numeric(12, 2)", "7.5", NUMBER_KINDS),
        ("double precision", "7.5", NUMBER_KINDS),
        ("text", f"'{ISO_TIME}'", set()), ("varchar(40)", f"'{ISO_TIME}'", set()),
        ("date", "'2026-11-21'", TIME_KINDS), ("timestamp", f"'{ISO_TIME}'", TIME_KINDS),
        ("timestamptz", f"'{ISO_TIME}+00'", TIME_KINDS),
        ("boolean", "true", set()), ("uuid", f"'{UUID}'", set()), ("time", "'10:00'", set()),
        ("jsonb", "'{}'", set()), ("bytea", "'a'", set()), ("interval", "'1 day'", set()),
    ],
    "mariadb": [
        ("integer", "7", NUMBER_KINDS), ("bigint", "1764000000", NUMBER_KINDS), ("decimal(12, 2)", "7.5", NUMBER_KINDS),
        ("double", "7.5", NUMBER_KINDS),
        ("text", f"'{ISO_TIME}'", TIME_KINDS), ("varchar(40)", f"'{ISO_TIME}'", TIME_KINDS),
        ("date", "'2026-11-21'", TIME_KINDS), ("datetime(6)", f"'{ISO_TIME}'", TIME_KINDS),
        ("timestamp(6) null", f"'{ISO_TIME}'", TIME_KINDS),
        ("boolean", "true", NUMBER_KINDS), ("uuid", f"'{UUID}'", set()), ("time", "'10:00'", set()),
        ("varchar(40)", "'24.11.2026 10:00'", set()), ("varchar(40)", "'2026-11-21T10:00:00+02:00'", set()),
        ("varchar(40)", "''", set()), ("varchar(40)", "'1764000000'", set()), ("varchar(40)", "'2026-13-01'", set()),
    ],
    "sqlite": [
        ("integer", "7", NUMBER_KINDS), ("integer", "1764000000", NUMBER_KINDS), ("numeric", "7.5", NUMBER_KINDS),
        ("real", "7.5", NUMBER_KINDS), ("text", f"'{ISO_TIME}'", TIME_KINDS), ("date", "'2026-11-21'", TIME_KINDS),
        ("datetime", f"'{ISO_TIME}'", TIME_KINDS), ("", "'2026-11-21T10:00:00+02:00'", TIME_KINDS),
        ("boolean", "true", NUMBER_KINDS), ("text", f"'{UUID}'", set()), ("text", "'24.11.2026 10:00'", set()),
        ("text", "'2026-11-21T10:00:00.000Z'", TIME_KINDS), ("text", "'2026-11-21 10:00:00+0200'", TIME_KINDS),
        ("text", "'10:00'", set()), ("text", "''", set()), ("text", "'0000-00-00'", set()), ("", "x'ff'", set()),
        ("text", "'2026-02-30 10:00'", set()), ("text", "' 2026-11-21'", set()), ("text", "'now'", set()),
        ("text", "'2026-11-21 soon'", set()), ("text", "'1764000000'", set()), ("text", "'21/11/2026'", set()),
    ],
    "duckdb": [
        ("integer", "7", NUMBER_KINDS), ("bigint", "1764000000", NUMBER_KINDS), ("decimal(12, 2)", "7.5", NUMBER_KINDS),
        ("double", "7.5", NUMBER_KINDS), ("varchar", f"'{ISO_TIME}'", set()), ("date", "'2026-11-21'", TIME_KINDS),
        ("timestamp", f"'{ISO_TIME}'", TIME_KINDS), ("timestamp_s", f"'{ISO_TIME}'", TIME_KINDS),
        ("timestamptz", f"'{ISO_TIME}+00'", TIME_KINDS),
        ("boolean", "true", set()), ("uuid", f"'{UUID}'", set()), ("time", "'10:00'", set()),
        ("blob", "'a'", set()), ("integer[]", "[1]", set()), ("interval", "interval 1 day", set()),
    ],
}  # fmt: skip


@pytest.fixture(scope="module", params=sorted(DATABASE_OPENER_BY_KIND))
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    with DATABASE_OPENER_BY_KIND[request.param]() as new_database:
        yield new_database


def fill_table(database: Database, sql_type: str, values: Sequence[str]) -> None:
    rows_sql = ", ".join(f"({index}, {value})" for index, value in enumerate(values))
    database.run(
        "drop table if exists t", f"create table t (id integer, v {sql_type})", f"insert into t values {rows_sql}"
    )  # fmt: skip


def read_ids(database: Database, start: str, *, is_table: bool = True) -> list[str]:
    """Read the rows from `start` on, and return their ids."""
    kind = find_cursor_kind(start)
    source_options = {"table": "t"} if is_table else {"query": "select * from t where v >= :cursor"}
    with IncrementalSource(database.url, column="v", kind=kind, **source_options) as source:
        source.set_start(parse_cursor(start, kind))
        ids = [str(row_id) for chunk in source.read_chunks() for row_id in chunk.frame["id"]]
        assert source.watch.largest_value is not None
    return ids


def test_a_start_value_must_fit_the_type_of_the_cursor_column(database: Database) -> None:
    for index, (sql_type, value, comparable_kinds) in enumerate(COLUMN_TYPES_BY_DATABASE[database.kind]):
        fill_table(database, sql_type, [value])
        for start_index, (kind, start) in enumerate(START_BY_KIND.items()):
            if kind in comparable_kinds:
                for is_table in (True, False):
                    assert read_ids(database, start, is_table=is_table) == ["0"], (sql_type, value, start)
                continue
            with pytest.raises((ConfigurationError, SourceError), match=REFUSAL_PATTERN):
                read_ids(database, start, is_table=(index + start_index) % 2 == 0)
        if CursorKind.TIMESTAMP in comparable_kinds:
            assert read_ids(database, START_WITH_ZONE) == ["0"], (sql_type, value)


MIXED_VALUES = [
    "'2026-11-21 10:00:00'",
    "'2026-11-21T10:00:00Z'",
    "'13.11.2026 10:00'",
    "1764000000",
    "null",
    "'24.11.2026'",
]


def test_values_that_cannot_be_compared_are_counted_with_an_example() -> None:
    with DATABASE_OPENER_BY_KIND["sqlite"]() as database:
        fill_table(database, "", MIXED_VALUES)
        for is_table in (True, False):
            with pytest.raises(
                ConfigurationError, match=r"3 rows have no timestamp in the column v .*for example \"1764000000\""
            ):
                read_ids(database, "2026-01-01T00:00:00", is_table=is_table)
            with pytest.raises(ConfigurationError, match=r"4 rows have no whole number in the column v"):
                read_ids(database, "0", is_table=is_table)


def test_a_zero_date_of_mysql_is_counted_and_refused() -> None:
    with DATABASE_OPENER_BY_KIND["mariadb"]() as database:
        for sql_type, is_table in (("datetime(6) null", True), ("date null", False), ("timestamp null", True)):
            database.run(
                "set sql_mode = ''",
                "drop table if exists t",
                f"create table t (id integer, v {sql_type})",
                "insert into t values (1, '0000-00-00'), (2, '2026-11-21'), (3, null), (4, '0000-00-00')",
            )
            with pytest.raises(
                ConfigurationError, match=r"2 rows have no timestamp in the column v .*for example \"0000-00-00"
            ):
                read_ids(database, "1970-01-01T00:00:00", is_table=is_table)
            database.run("delete from t where id in (1, 4)")
            assert read_ids(database, "1970-01-01T00:00:00", is_table=is_table) == (["2", "3"] if is_table else ["2"])


def test_a_query_of_mysql_can_have_two_columns_of_one_name_and_end_with_a_comment() -> None:
    with DATABASE_OPENER_BY_KIND["mariadb"]() as database:
        fill_table(database, "datetime", [f"'{ISO_TIME}'"])
        query = (
            "with everybody as (select * from t) select a.id, b.id, a.v from everybody a join t b on b.id = a.id "
            "where a.v >= :cursor -- what is new"
        )
        with IncrementalSource(database.url, query=query, column="v", kind=CursorKind.DATE) as source:
            assert source.columns == ("id", "id (2)", "v")


def test_values_of_another_kind_than_the_cursor_are_counted_and_refused_at_the_end() -> None:
    with DATABASE_OPENER_BY_KIND["postgresql"]() as database:
        fill_table(database, "double precision", ["1", "'NaN'", "'NaN'"])
        with pytest.raises(ConfigurationError, match=r"2 rows have no whole number in the column v .*row 2: \"nan\""):
            read_ids(database, "0")


def test_an_example_that_may_be_an_address_is_not_shown() -> None:
    with DATABASE_OPENER_BY_KIND["sqlite"]() as database:
        fill_table(database, "", ["'ann@secret.example'"])
        with pytest.raises(ConfigurationError, match="a text that is not shown") as error_info:
            read_ids(database, "2026-01-01")
        assert "secret" not in str(error_info.value)


def test_the_message_about_a_column_type_shows_the_type_and_a_remedy() -> None:
    for kind, sql_type in product(CursorKind, ColumnType):
        message = explain_type("v", kind, sql_type, "postgresql", is_table=True)
        assert (message == "") is (sql_type in COMPARABLE_TYPES_BY_KIND[kind])
        if message:
            assert sql_type in message
            assert any(remedy in message for remedy in ("write `start` as", "choose a column", "use a query"))
