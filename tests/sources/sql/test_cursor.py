"""Cursors: their kinds, the order of their values, and the parameter `:cursor` in a query."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given, strategies as st

from connector.sources.cursor import (
    CursorKind,
    CursorValue,
    CursorWatch,
    find_cursor_kind,
    find_latest_allowed_value,
    format_cursor,
    is_larger,
    parse_cursor,
    read_cursor_value,
    subtract_lookback,
    uses_cursor,
)
from connector.sources.sql import IncrementalSource
from tests.databases import DATABASE_OPENER_BY_KIND, read_all_rows

NOON = datetime(2026, 11, 21, 12, 0)  # noqa: DTZ001 - databases return it without a time zone
ZONE_TWO_HOURS_EAST = timezone(timedelta(hours=2))


def test_the_start_value_of_a_cursor_decides_the_kind_of_the_cursor() -> None:
    starts_and_kinds: list[tuple[str, CursorKind]] = [
        ("0", CursorKind.INTEGER),
        ("-7", CursorKind.INTEGER),
        ("2026-11-21", CursorKind.DATE),
        ("2026-11-21T10:00:00", CursorKind.TIMESTAMP),
        ("2026-11-21 10:00:00.5+01:00", CursorKind.TIMESTAMP),
        ("1970-01-01T00:00:00Z", CursorKind.TIMESTAMP),
        ("20261121", CursorKind.INTEGER),
    ]
    for text, kind in starts_and_kinds:
        assert find_cursor_kind(text) is kind


def test_an_invalid_start_value_of_a_cursor_is_refused() -> None:
    for text in ["2026-13-01", "2026-02-30T10:00:00", "2026-11-21T25:00", "9" * 30, "", "A-1", "1.5"]:
        with pytest.raises(ValueError, match="must be"):
            parse_cursor(text, find_cursor_kind(text))


VALUES_BY_KIND: dict[CursorKind, st.SearchStrategy[CursorValue]] = {
    CursorKind.TIMESTAMP: st.datetimes(timezones=st.sampled_from([None, UTC, ZONE_TWO_HOURS_EAST])),
    CursorKind.DATE: st.dates(),
    CursorKind.INTEGER: st.integers(-(2**63) + 1, 2**63 - 1),
}


@given(st.sampled_from(CursorKind).flatmap(lambda kind: st.tuples(st.just(kind), VALUES_BY_KIND[kind])))
def test_a_cursor_value_that_is_saved_as_text_is_read_back_unchanged(
    kind_and_value: tuple[CursorKind, CursorValue],
) -> None:
    kind, value = kind_and_value
    assert parse_cursor(format_cursor(value), kind) == value


@given(
    st.sampled_from(CursorKind).flatmap(
        lambda kind: st.tuples(st.just(kind), st.lists(VALUES_BY_KIND[kind], min_size=1))
    )
)
def test_a_cursor_watch_finds_the_largest_value_in_any_order_of_rows(
    kind_and_value: tuple[CursorKind, list[CursorValue]],
) -> None:
    kind, values = kind_and_value
    values = [value for value in values if read_cursor_value(value, kind) is not None]
    cursor_watch = CursorWatch("c", kind)
    for start in range(0, len(values), 3):
        cursor_watch.record([*values[start : start + 3], None], start + 1)
    assert all(
        cursor_watch.largest_value is not None and not is_larger(value, cursor_watch.largest_value) for value in values
    )
    assert cursor_watch.largest_value is None or cursor_watch.largest_value in values
    assert cursor_watch.wrong_kind_count == 0


def test_a_value_of_a_database_is_converted_to_the_kind_of_the_cursor() -> None:
    database_values: list[tuple[object, CursorKind, CursorValue | None]] = [
        (NOON, CursorKind.TIMESTAMP, NOON),
        (date(2026, 11, 21), CursorKind.TIMESTAMP, datetime(2026, 11, 21)),  # noqa: DTZ001
        ("2026-11-21 12:00:00", CursorKind.TIMESTAMP, NOON),
        (b"2026-11-21T12:00:00Z", CursorKind.TIMESTAMP, NOON.replace(tzinfo=UTC)),
        ("0000-00-00 00:00:00", CursorKind.TIMESTAMP, None),
        ("yesterday", CursorKind.TIMESTAMP, None),
        (20261121, CursorKind.TIMESTAMP, None),
        ("20261121", CursorKind.TIMESTAMP, None),
        (NOON, CursorKind.DATE, date(2026, 11, 21)),
        ("2026-11-21", CursorKind.DATE, date(2026, 11, 21)),
        (7, CursorKind.INTEGER, 7),
        (Decimal("1.90"), CursorKind.INTEGER, 1),
        (-1.5, CursorKind.INTEGER, -2),
        (b"42", CursorKind.INTEGER, 42),
        (True, CursorKind.INTEGER, None),
        (float("nan"), CursorKind.INTEGER, None),
        (Decimal("Infinity"), CursorKind.INTEGER, None),
        (2**63, CursorKind.INTEGER, None),
        (b"\xff", CursorKind.TIMESTAMP, None),
        (None, CursorKind.INTEGER, None),
    ]
    for value, kind, expected_value in database_values:
        assert read_cursor_value(value, kind) == expected_value


def test_values_are_compared_by_the_kind_of_the_cursor_and_not_as_text() -> None:
    columns: list[tuple[list[object], CursorKind, CursorValue | None]] = [
        ([9, 10], CursorKind.INTEGER, 10),
        (["9", "10"], CursorKind.INTEGER, 10),
        ([Decimal("9.9"), Decimal("10.10")], CursorKind.INTEGER, 10),
        ([b"2026-11-21 09:00:00", b"2026-11-21T08:00:00"], CursorKind.TIMESTAMP, NOON.replace(hour=9)),
        (
            ["2026-11-21T12:00:00+02:00", "2026-11-21T11:00:00Z"],
            CursorKind.TIMESTAMP,
            NOON.replace(hour=11, tzinfo=UTC),
        ),
        ([NOON, NOON.replace(tzinfo=ZONE_TWO_HOURS_EAST)], CursorKind.TIMESTAMP, NOON),
        ([None, None], CursorKind.INTEGER, None),
    ]
    for values, kind, largest_value in columns:
        cursor_watch = CursorWatch("c", kind)
        cursor_watch.record(values, 1)
        assert cursor_watch.largest_value == largest_value


def test_a_value_beyond_tomorrow_is_counted_as_future_and_not_as_the_largest_value() -> None:
    tomorrow_s = int((NOON.replace(tzinfo=UTC) + timedelta(days=1)).timestamp())
    columns: list[tuple[str, list[object], str, int]] = [
        ("2000-01-01T00:00:00", ["2026-11-22 23:00:00", "2026-11-23 01:00:00"], "2026-11-22T23:00:00", 1),
        ("2000-01-01", ["2026-11-22", "2026-11-23", "2062-01-01"], "2026-11-22", 2),
        ("20000101", [20261122, 20261123], "20261122", 1),
        ("20000101000000", [20261122100000, 20620101000000], "20261122100000", 1),
        ("0", [tomorrow_s, tomorrow_s, 2903299200], str(tomorrow_s), 1),
        ("0", [tomorrow_s * 1000, tomorrow_s * 1000, 2903299200000], f"{tomorrow_s}000", 1),
        ("0", [*range(1, 9), 2903299200], "2903299200", 0),  # a large id is not a time
    ]
    for start, values, largest_value, future_value_count in columns:
        kind, now = find_cursor_kind(start), NOON.replace(tzinfo=UTC)
        latest_allowed_value = find_latest_allowed_value(parse_cursor(start, kind), now)
        cursor_watch = CursorWatch("c", kind, now, latest_allowed_value)
        cursor_watch.record(values, 1)
        assert cursor_watch.largest_value is not None
        assert (format_cursor(cursor_watch.largest_value), cursor_watch.future_value_count) == (
            largest_value,
            future_value_count,
        )


def test_values_of_another_kind_are_counted_and_the_first_value_is_the_example() -> None:
    cursor_watch = CursorWatch("moment", CursorKind.TIMESTAMP)
    cursor_watch.record([NOON, None], 1)
    cursor_watch.record([None, "soon", "later", NOON], 3)
    assert (cursor_watch.wrong_kind_count, cursor_watch.wrong_kind_example, cursor_watch.largest_value) == (
        2,
        (4, "soon"),
        NOON,
    )
    assert cursor_watch.missing_value_count == 2


def test_a_lookback_moves_the_start_back() -> None:
    lookbacks: list[tuple[CursorValue, float, CursorValue]] = [
        (NOON, 600, NOON - timedelta(minutes=10)),
        (datetime(1, 1, 1, 0, 5, tzinfo=UTC), 600, datetime(1, 1, 2, 0, 5, tzinfo=UTC)),
        (date(2026, 11, 21), 600, date(2026, 11, 20)),
        (date(2026, 11, 21), 86_401, date(2026, 11, 19)),
        (date(2026, 11, 21), 0, date(2026, 11, 21)),
        (7, 0, 7),
    ]
    for value, lookback_s, earlier_value in lookbacks:
        assert subtract_lookback(value, lookback_s) == earlier_value


QUERIES_FOR_ALL_DATABASES = [
    ("a >= :cursor", True),
    ("a::date > :cursor::date", True),
    ("a = ':cursor'", False),
    ("a = 'it''s :cursor' and b >= :b", False),
    ('":cursor" >= :b', False),
    ("`:cursor` >= :b", False),
    ("a >= :b -- :cursor", False),
    ("-- it's\na >= :cursor", True),
    ("a >= :b /* :cursor\n:cursor */", False),
    ("a = '12:30' and b = :cursor", True),
    ("a = 'never closed and b = :cursor", True),
    ("a = :cursors or a[1:cursor] = ::cursor", False),
]
QUERIES_FOR_SOME_DATABASES = [
    ("postgresql", "a = $x$ it's :cursor $x$ and b = :b", False),
    ("postgresql", "a = $$ :cursor $$", False),
    ("postgresql", "a = 'C:\\' and b = :cursor and c = 'x'", True),
    ("postgresql", "a #> '{b}' = :cursor", True),
    ("mysql", r"a = 'it\'s' and b >= :cursor and c = 'it\'s'", True),
    ("mariadb", "a >= :b # it's :cursor", False),
    ("mariadb", "a = 5--:cursor", True),
]  # fmt: skip


@pytest.mark.parametrize(
    ("dialect_name", "query", "is_parameter"),
    [
        *((dialect_name, *case) for dialect_name in ("sqlite", "mariadb") for case in QUERIES_FOR_ALL_DATABASES),
        *QUERIES_FOR_SOME_DATABASES,
    ],
)
def test_the_word_cursor_in_a_text_or_a_comment_of_a_query_is_not_the_parameter(
    dialect_name: str, query: str, is_parameter: bool
) -> None:
    assert uses_cursor(query, dialect_name) is is_parameter


def test_the_word_cursor_in_a_text_or_a_comment_is_not_replaced() -> None:
    for database_kind in sorted(DATABASE_OPENER_BY_KIND):
        cursor_sql = ":cursor::integer" if database_kind in ("postgresql", "duckdb") else ":cursor"
        comments_sql = "/* not :cursor */ -- nor it's :cursor"
        query = f"select id, ':cursor 12:30 :draft' as t from people where id >= {cursor_sql} {comments_sql}"
        with DATABASE_OPENER_BY_KIND[database_kind]() as database:
            database.run("create table people (id integer)", "insert into people values (1), (2), (3)")
            with IncrementalSource(database.url, query=query, column="id", kind=CursorKind.INTEGER) as source:
                source.set_start(2)
                rows = read_all_rows(source)
        assert sorted(row["id"] or "" for row in rows) == ["2", "3"]
        assert {row["t"] for row in rows} == {":cursor 12:30 :draft"}
