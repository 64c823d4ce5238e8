"""Incremental sources on every database: the source reads the rows from the cursor on and finds the largest value."""

from collections.abc import Iterator
from datetime import date, datetime

import duckdb
import pytest

from connector.errors import ConfigurationError, SourceError
from connector.sources.cursor import CursorKind, CursorValue, find_cursor_kind, parse_cursor
from connector.sources.sql import IncrementalSource
from tests.databases import DATABASE_OPENER_BY_KIND, Database

NOON = datetime(2026, 11, 21, 12, 0)  # noqa: DTZ001 - databases return it without a time zone


@pytest.fixture(scope="module", params=sorted(DATABASE_OPENER_BY_KIND))
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A table of times, days and numbers. The third row has only nulls."""
    with DATABASE_OPENER_BY_KIND[request.param]() as new_database:
        time_type = {"mariadb": "datetime(6)", "sqlite": "text"}.get(new_database.kind, "timestamp")
        day_type = {"sqlite": "text"}.get(new_database.kind, "date")
        new_database.run(f"create table people (id integer, moment {time_type}, day {day_type}, number bigint)")
        new_database.insert_rows(
            "people",
            [
                (1, "2026-11-21 09:00:00", "2026-11-20", 9),
                (2, "2026-11-21 10:00:00.500000", "2026-11-21", 10),
                (3, None, None, None),
            ],
        )
        yield new_database


STARTS_AND_ROWS: list[tuple[str, str, list[str], CursorValue]] = [
    # Each case: the column, the start, the ids of the rows from the start on, and the largest value.
    ("moment", "1970-01-01T00:00:00", ["1", "2", "3"], datetime(2026, 11, 21, 10, 0, 0, 500_000)),  # noqa: DTZ001
    ("moment", "2026-11-21T09:00:00", ["1", "2", "3"], datetime(2026, 11, 21, 10, 0, 0, 500_000)),  # noqa: DTZ001
    ("moment", "2026-11-21T09:00:00.000001", ["2", "3"], datetime(2026, 11, 21, 10, 0, 0, 500_000)),  # noqa: DTZ001
    ("moment", "2026-11-21T10:00:00.500000", ["2", "3"], datetime(2026, 11, 21, 10, 0, 0, 500_000)),  # noqa: DTZ001
    ("day", "2026-11-21", ["2", "3"], date(2026, 11, 21)),
    ("number", "9", ["1", "2", "3"], 10),
    ("number", "10", ["2", "3"], 10),
]


def test_an_incremental_source_starts_at_the_value_of_its_cursor(database: Database) -> None:
    for column, start, expected_ids, largest_value in STARTS_AND_ROWS:
        kind = find_cursor_kind(start)
        query = f"select people.* from people where {column} >= :cursor or {column} is null"
        for source_options in ({"table": "people"}, {"query": query}):
            with IncrementalSource(database.url, column=column, kind=kind, **source_options) as source:
                source.set_start(parse_cursor(start, kind))
                row_ids = [row_id for chunk in source.read_chunks() for row_id in chunk.frame["id"]]
            assert sorted(row_ids) == expected_ids, (source_options, start)
            assert (source.watch.largest_value, source.watch.wrong_kind_count, source.is_read_to_end) == (
                largest_value,
                0,
                True,
            ), start


def test_a_cursor_column_that_the_result_lacks_is_refused(database: Database) -> None:
    for column, query, expected_text in (
        ("changed_a", "select id, number as changed_at from people where moment >= :cursor", "did you mean changed_at"),
        ("changed_a", "select id, number from people where moment >= :cursor", "select it, too"),
        (
            "changed",
            "select moment as changed, moment as changed from people where moment >= :cursor",
            "several columns",
        ),
    ):
        if database.kind == "duckdb" and expected_text == "several columns" and duckdb.__version__ < "2":
            continue  # DuckDB 1 names the second column `changed_1`, so the names of the columns differ
        with pytest.raises(ConfigurationError, match=expected_text):
            IncrementalSource(database.url, query=query, column=column, kind=CursorKind.TIMESTAMP)
    with pytest.raises((ConfigurationError, SourceError), match="changed"):
        IncrementalSource(database.url, table="people", column="changed", kind=CursorKind.TIMESTAMP)


def test_all_spellings_of_a_moment_are_equal_in_sqlite() -> None:
    spellings = (
        "2026-11-21 10:00:00", "2026-11-21T10:00:00", "2026-11-21 10:00:00.000000", "2026-11-21T10:00:00Z",
        "2026-11-21T10:00:00+00:00", "2026-11-21T10:00:00.000Z",
    )  # fmt: skip
    with DATABASE_OPENER_BY_KIND["sqlite"]() as database:
        database.run("create table t (moment text)", *(f"insert into t values ('{moment}')" for moment in spellings))
        with IncrementalSource(database.url, table="t", column="moment", kind=CursorKind.TIMESTAMP) as source:
            source.set_start(datetime(2026, 11, 21, 10))  # noqa: DTZ001
            assert sum(len(chunk.frame) for chunk in source.read_chunks()) == len(spellings)
            assert source.watch.largest_value is not None
