"""Bounds with and without a zone, on columns with and without a zone, in a session of another zone than UTC, and around
the end of summer time."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from itertools import product

import pytest

from connector.imports.increments import Increment, find_beginning
from connector.sources.cursor import CursorKind, parse_cursor
from connector.sources.sql import IncrementalSource
from tests.databases import OPEN, Database

# In Berlin, clocks go back from 03:00 (+02:00) to 02:00 (+01:00) at 01:00 UTC of this day.
MOMENTS = ["2026-10-25 00:10", "2026-10-25 00:59", "2026-10-25 01:10", "2026-10-25 01:59", "2026-10-25 02:10"]
TYPES = {
    "postgresql": ("timestamptz", "timestamp"),
    "mariadb": ("timestamp(6) null", "datetime(6)"),
    "duckdb": ("timestamptz", "timestamp"),
    "sqlite": ("text", "text"),
}


@pytest.fixture(params=sorted(OPEN))
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A table of moments and of the same times in UTC without a zone. Sessions of servers are in the zone of Berlin."""
    kind = request.param
    with OPEN[kind]() as opened:
        moment, plain = TYPES[kind]
        rows = [
            f"({number}, '{time}{'' if kind == 'mariadb' else '+00:00'}', '{time}')"
            for number, time in enumerate(MOMENTS)
        ]
        opened.run(
            *(["set time_zone = '+00:00'"] if kind == "mariadb" else []),
            f"create table t (id integer, moment {moment}, plain {plain})",
            f"insert into t values {', '.join(rows)}",
        )
        url = opened.url
        if kind == "postgresql":
            name = url.partition("?")[0].rpartition("/")[2]
            opened.run_alone(f"alter database {name} set timezone = 'Europe/Berlin'")
        if kind == "mariadb":
            url += "?init_command=set time_zone = '+02:00'".replace(" ", "%20").replace("+", "%2B")
        yield Database(kind, url)


def read(database: Database, column: str, since: str, *, is_table: bool) -> tuple[list[int], IncrementalSource]:
    what = {"table": "t"} if is_table else {"query": f"select * from t where {column} >= :cursor"}
    with IncrementalSource(database.url, column=column, kind=CursorKind.TIMESTAMP, **what) as source:
        source.begin_at(parse_cursor(since, CursorKind.TIMESTAMP))
        return sorted(int(number) for chunk in source.chunks() for number in chunk.frame["id"]), source


def test_a_bound_is_the_same_moment_in_a_session_of_another_zone_for_both_columns(database: Database) -> None:
    for (number, moment), column, is_table, has_zone in product(
        enumerate(MOMENTS), ("moment", "plain"), (True, False), (True, False)
    ):
        bound = datetime.fromisoformat(moment)
        if has_zone:
            bound = bound.replace(tzinfo=UTC).astimezone(timezone(timedelta(hours=-5)))
        ids, source = read(database, column, bound.isoformat(), is_table=is_table)
        assert ids == list(range(number, len(MOMENTS))), bound
        largest = source.watch.largest
        assert isinstance(largest, datetime)
        assert largest.replace(tzinfo=largest.tzinfo or UTC) == datetime(2026, 10, 25, 2, 10, tzinfo=UTC)
        is_moment = column == "moment" and TYPES[database.kind][0] != "text"
        assert not is_moment or largest.tzinfo is not None


def test_a_cursor_that_an_earlier_version_saved_in_the_zone_of_a_mysql_session_leaves_out_no_row() -> None:
    with OPEN["mariadb"]() as database:
        database.run("create table t (id integer, moment timestamp null, plain datetime)")
        for column, begins in (("moment", datetime(2026, 11, 20, 22, tzinfo=UTC)), ("plain", None)):
            source = IncrementalSource(database.url, table="t", column=column, kind=CursorKind.TIMESTAMP)
            saved = datetime(2026, 11, 21, 12)  # noqa: DTZ001 - the earlier version saved no zone
            assert source.convert_saved(saved) == (begins or saved)
            assert source.convert_saved(saved.replace(tzinfo=UTC)) == saved.replace(tzinfo=UTC)
            increment = Increment("crm", b"", source, datetime(2020, 1, 1, tzinfo=UTC), 0.0, False, None)
            assert find_beginning(increment, source.convert_saved(saved)) == (begins or saved)
