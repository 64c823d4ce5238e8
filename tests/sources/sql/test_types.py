"""Values of types that only one database has: they are read as usual texts, or their row is rejected."""

from collections.abc import Iterator

import pytest

from connector.sources.sql import open_sql
from tests.databases import DATABASE_OPENERS, Database, read_all_rows

VALUES_AND_TEXTS = {
    "postgresql": [
        ("interval '1 year 2 days'", "1 year 2 days"),
        ("array[interval '1 month']", '["1 mon"]'),
        ("time '24:00'", "24:00:00"),
        ("date 'infinity'", "infinity"),
        ("timestamptz '-infinity'", "-infinity"),
        ("date '0044-03-15 BC'", "0044-03-15 BC"),
        ("array[date 'infinity', date '2001-02-03']", '["infinity","2001-02-03"]'),
        ("timestamp '2001-02-03 04:05'", "2001-02-03T04:05:00"),
        ("inet '10.0.0.1'", "10.0.0.1"),
        ("B'101'", "101"),
        ("timetz '04:05:06+02'", "04:05:06+02:00"),
    ],
    "duckdb": [
        ("0.1::float", "0.1"),
        ("[0.1::float, null]", '["0.1"]'),
        ("[0.1::float, 2]", '["0.1","2"]'),
        ("42::hugeint", "42"),
        ("'04:05:06+02'::timetz", "04:05:06+02"),
        ("['04:05:06+02'::timetz, null]", '["04:05:06+02"]'),
        ("time '24:00'", "24:00:00"),
        ("'101'::bit", "101"),
        ("interval '1 month 2 days'", "1 month 2 days"),
        ("340282366920938463463374607431768211455::uhugeint", "340282366920938463463374607431768211455"),
        ("'12345678901234567890123456789012345678901'::bignum", "12345678901234567890123456789012345678901"),
        ("union_value(s := 'x')", "x"),
        ("timestamp_ns '2001-02-03 04:05:06.123456789'", "2001-02-03T04:05:06.123456789"),
    ],
}


UNREADABLE_VALUES = {
    "postgresql": ["row(1, 'a')::pair", "array[row(1, 'a')::pair]", "int4range(1, 2)"],
    # Arrow cannot hold these values without a loss
    "duckdb": ["[date 'infinity']", "map {'at': '04:05:06+02'::timetz}", "[[1::uhugeint]]", "[{'at': time '04:05'}]"],
}


@pytest.fixture(scope="module", params=sorted(VALUES_AND_TEXTS))
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    with DATABASE_OPENERS[request.param]() as new_database:
        yield new_database


def test_a_value_of_a_type_of_one_database_is_read_as_its_text(database: Database) -> None:
    for value, text in VALUES_AND_TEXTS[database.kind]:
        assert read_all_rows(open_sql(database.url, query=f"select {value} as v")) == [{"v": text}], value


def test_a_value_that_cannot_be_read_rejects_its_row_only_if_its_column_is_used(database: Database) -> None:
    if database.kind == "postgresql":
        database.run("create type pair as (a integer, b text)")
    for value in UNREADABLE_VALUES[database.kind]:
        with open_sql(database.url, query=f"select 'a@x.org' as email, {value} as v") as source:
            (chunk,) = source.read_chunks(["v"])
            assert [row.message.split(" holds")[0] for row in chunk.malformed_rows] == ["column v"], value
            (chunk,) = source.read_chunks(["email"])
            assert chunk.frame["email"].tolist() == ["a@x.org"]
