"""Cursors and time zones: values and columns with and without a zone, in a session with another zone than UTC.

The times are around the end of summer time in Berlin.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from itertools import product

import pytest

from connector.imports.increments import Increment, find_start_value
from connector.sources.cursor import CursorKind
from connector.sources.sql import IncrementalSource
from tests.databases import DATABASE_OPENER_BY_KIND, Database

# In Berlin, clocks go back from 03:00 (+02:00) to 02:00 (+01:00) at 01:00 UTC of this day.
MOMENT_TEXTS = [
    "2026-10-25 00:10:00",
    "2026-10-25 00:59:00",
    "2026-10-25 01:10:00",
    "2026-10-25 01:59:00",
    "2026-10-25 02:10:00",
]
COLUMN_TYPES_BY_DATABASE = {
    "postgresql": ("timestamptz", "timestamp"),
    "mariadb": ("timestamp(6) null", "datetime(6)"),
    "duckdb": ("timestamptz", "timestamp"),
    "sqlite": ("text", "text"),
}


@pytest.fixture(params=sorted(DATABASE_OPENER_BY_KIND))
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A table with moments in a column with a time zone, and the same moments in UTC in a column without a time zone.
    Connections have the time zone of Berlin in PostgreSQL, and the time zone +02:00 in MariaDB."""
    database_kind = request.param
    with DATABASE_OPENER_BY_KIND[database_kind]() as new_database:
        type_with_zone, type_without_zone = COLUMN_TYPES_BY_DATABASE[database_kind]
        row_texts = [
            f"({index}, '{moment}{'' if database_kind == 'mariadb' else '+00:00'}', '{moment}')"
            for index, moment in enumerate(MOMENT_TEXTS)
        ]
        new_database.run(
            *(["set time_zone = '+00:00'"] if database_kind == "mariadb" else []),
            f"create table t (id integer, moment {type_with_zone}, moment_without_zone {type_without_zone})",
            f"insert into t values {', '.join(row_texts)}",
        )
        url = new_database.url
        if database_kind == "postgresql":
            database_name = url.partition("?")[0].rpartition("/")[2]
            new_database.run_outside_transaction(f"alter database {database_name} set timezone = 'Europe/Berlin'")
        if database_kind == "mariadb":
            url += "?init_command=set time_zone = '+02:00'".replace(" ", "%20").replace("+", "%2B")
        yield Database(database_kind, url)


def test_the_time_zone_of_the_session_does_not_change_the_moment_of_a_cursor(
    database: Database,
) -> None:
    for (row_id, moment), column, is_table, has_zone in product(
        enumerate(MOMENT_TEXTS), ("moment", "moment_without_zone"), (True, False), (True, False)
    ):
        cursor_value = datetime.fromisoformat(moment)
        if has_zone:
            cursor_value = cursor_value.replace(tzinfo=UTC).astimezone(timezone(timedelta(hours=-5)))
        source_options = {"table": "t"} if is_table else {"query": f"select * from t where {column} >= :cursor"}
        with IncrementalSource(database.url, column=column, kind=CursorKind.TIMESTAMP, **source_options) as source:
            source.set_start(cursor_value)
            row_ids = sorted(int(read_id) for chunk in source.read_chunks() for read_id in chunk.frame["id"])
        assert row_ids == list(range(row_id, len(MOMENT_TEXTS))), cursor_value
        largest_value = source.watch.largest_value
        assert isinstance(largest_value, datetime)
        assert largest_value.replace(tzinfo=largest_value.tzinfo or UTC) == datetime(2026, 10, 25, 2, 10, tzinfo=UTC)
        is_column_with_zone = column == "moment" and COLUMN_TYPES_BY_DATABASE[database.kind][0] != "text"
        assert not is_column_with_zone or largest_value.tzinfo is not None


def test_a_cursor_that_an_earlier_version_saved_in_the_zone_of_mysql_misses_no_row() -> None:
    with DATABASE_OPENER_BY_KIND["mariadb"]() as database:
        database.run("create table t (id integer, moment timestamp null, moment_without_zone datetime)")
        for column, expected_start in (
            ("moment", datetime(2026, 11, 20, 22, tzinfo=UTC)),
            ("moment_without_zone", None),
        ):
            source = IncrementalSource(database.url, table="t", column=column, kind=CursorKind.TIMESTAMP)
            saved_value = datetime(2026, 11, 21, 12)  # noqa: DTZ001 - the earlier version saved no zone
            assert source.convert_saved_value(saved_value) == (expected_start or saved_value)
            assert source.convert_saved_value(saved_value.replace(tzinfo=UTC)) == saved_value.replace(tzinfo=UTC)
            increment = Increment("crm", b"", source, datetime(2020, 1, 1, tzinfo=UTC), 0.0, False, None)
            assert find_start_value(increment, source.convert_saved_value(saved_value)) == (
                expected_start or saved_value
            )
