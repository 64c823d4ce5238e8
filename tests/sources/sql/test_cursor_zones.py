"""Bounds with a zone and without one, on columns of moments and of times without a zone, in sessions of other zones
than UTC and around the end of summer time."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

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
ZONES = {
    "postgresql": ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu"],
    "mariadb": ["+00:00", "+02:00", "-05:00", "+05:45"],
    "duckdb": ["UTC"],
    "sqlite": ["UTC"],
}


@pytest.fixture(params=[(kind, zone) for kind in sorted(OPEN) for zone in ZONES[kind]], ids="-".join)
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A table of moments and the same times in UTC without a zone; sessions are in the zone."""
    kind, zone = request.param
    with OPEN[kind]() as opened:
        moment, plain = TYPES[kind]
        rows = [
            f"({number}, '{each}{'' if kind == 'mariadb' else '+00:00'}', '{each}')"
            for number, each in enumerate(MOMENTS)
        ]
        opened.run(
            *(["set time_zone = '+00:00'"] if kind == "mariadb" else []),
            f"create table t (id integer, moment {moment}, plain {plain})",
            f"insert into t values {', '.join(rows)}",
        )
        url = opened.url
        if kind == "postgresql":
            name = url.partition("?")[0].rpartition("/")[2]
            opened.run_alone(f"alter database {name} set timezone = '{zone}'")
        if kind == "mariadb":
            url += f"?init_command=set time_zone = '{zone}'".replace(" ", "%20").replace("+", "%2B")
        yield Database(kind, url)


def read(database: Database, column: str, since: str, *, is_table: bool) -> tuple[list[int], IncrementalSource]:
    what = {"table": "t"} if is_table else {"query": f"select * from t where {column} >= :cursor"}
    with IncrementalSource(database.url, column=column, kind=CursorKind.TIMESTAMP, **what) as source:
        source.begin_at(parse_cursor(since, CursorKind.TIMESTAMP))
        return sorted(int(each) for chunk in source.chunks() for each in chunk.frame["id"]), source


@pytest.mark.parametrize("is_table", [True, False])
@pytest.mark.parametrize("column", ["moment", "plain"])
def test_a_bound_is_the_same_moment_in_each_session_and_for_each_column(
    database: Database, column: str, *, is_table: bool
) -> None:
    for number, moment in enumerate(MOMENTS):
        for zone in (None, UTC, timezone(timedelta(hours=2)), timezone(timedelta(hours=-5))):
            bound = datetime.fromisoformat(moment)
            if zone is not None:
                bound = bound.replace(tzinfo=UTC).astimezone(zone)
            ids, source = read(database, column, bound.isoformat(), is_table=is_table)
            assert ids == list(range(number, len(MOMENTS))), bound
            largest = source.watch.largest
            assert isinstance(largest, datetime)
            assert largest.replace(tzinfo=largest.tzinfo or UTC) == datetime(2026, 10, 25, 2, 10, tzinfo=UTC)
            is_moment = column == "moment" and TYPES[database.kind][0] != "text"
            assert not is_moment or largest.tzinfo is not None


def test_a_cursor_that_an_earlier_version_kept_in_the_zone_of_a_session_of_mysql_leaves_out_no_row() -> None:
    with OPEN["mariadb"]() as database:
        database.run("create table t (id integer, moment timestamp null, plain datetime)")
        for column, begins in (("moment", datetime(2026, 11, 20, 22, tzinfo=UTC)), ("plain", None)):
            source = IncrementalSource(database.url, table="t", column=column, kind=CursorKind.TIMESTAMP)
            kept = datetime(2026, 11, 21, 12)  # noqa: DTZ001 - as it was kept
            assert source.convert_saved(kept) == (begins or kept)
            assert source.convert_saved(kept.replace(tzinfo=UTC)) == kept.replace(tzinfo=UTC)
            increment = Increment("crm", b"", source, datetime(2020, 1, 1, tzinfo=UTC), 0.0, False, None)
            assert find_beginning(increment, source.convert_saved(kept)) == (begins or kept)
