"""Values of types that only one database has: a text that a person knows, or a row that is refused with its column."""

import pytest

from connector.sources.sql import open_sql
from tests.databases import OPEN, read_all

TEXTS = {
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
    ],
    "duckdb": [
        ("0.1::float", "0.1"),
        ("[0.1::float, null]", '["0.1"]'),
        ("[0.1::float, 2]", '["0.1","2"]'),
        ("42::hugeint", "42"),
        ("union_value(s := 'x')", "x"),
        ("timestamp_ns '2001-02-03 04:05:06.123456789'", "2001-02-03T04:05:06.123456789"),
    ],
}


@pytest.mark.parametrize(("kind", "value", "text"), [(kind, *pair) for kind, pairs in TEXTS.items() for pair in pairs])
def test_a_value_of_a_databases_own_type_is_read_as_its_text(kind: str, value: str, text: str) -> None:
    with OPEN[kind]() as database:
        assert read_all(open_sql(database.url, query=f"select {value} as v")) == [{"v": text}]


@pytest.mark.parametrize("value", ["row(1, 'a')::pair", "array[row(1, 'a')::pair]", "int4range(1, 2)"])
def test_a_composite_value_or_a_range_costs_its_row_only_if_it_is_used(value: str) -> None:
    with OPEN["postgresql"]() as database:
        database.run("create type pair as (a integer, b text)")
        with open_sql(database.url, query=f"select 'a@x.org' as email, {value} as v") as source:
            (chunk,) = source.chunks(["v"])
            assert [malformed.message.split(" holds")[0] for malformed in chunk.malformed] == ["column v"]
            (chunk,) = source.chunks(["email"])
            assert chunk.frame["email"].tolist() == ["a@x.org"]


def test_a_list_with_an_infinite_date_costs_its_row_only_if_it_is_used() -> None:
    with OPEN["duckdb"]() as database:
        query = "select 'a@x.org' as email, [date 'infinity'] as v"
        with open_sql(database.url, query=query) as source:
            (chunk,) = source.chunks(["v"])
            assert [malformed.message.split(" holds")[0] for malformed in chunk.malformed] == ["column v"]
            (chunk,) = source.chunks(["email"])
            assert chunk.frame["email"].tolist() == ["a@x.org"]
