"""SQL sources on each supported database."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from connector.errors import ConfigurationError, ContentError, SourceError
from connector.sources.sql import open_sql
from connector.subscribers.mapping import apply_mapping
from connector.subscribers.rules import ColumnRule, FieldMapping
from tests.databases import DATABASE_OPENER_BY_KIND, Database, read_all_rows


@pytest.fixture(scope="module", params=sorted(DATABASE_OPENER_BY_KIND))
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    with DATABASE_OPENER_BY_KIND[request.param]() as new_database:
        new_database.run(
            "create table people (id integer, email varchar(80), note varchar(80))",
            "insert into people values (1, 'ann@example.com', 'é 😀'), (2, 'bob@example.com', null), (3, null, '')",
        )
        yield new_database


def test_a_table_is_read_with_its_nulls_and_all_characters(database: Database) -> None:
    rows = read_all_rows(open_sql(database.url, table="people"))
    assert sorted(rows, key=str) == [
        {"id": "1", "email": "ann@example.com", "note": "é 😀"},
        {"id": "2", "email": "bob@example.com", "note": None},
        {"id": "3", "email": None, "note": ""},
    ]


def test_a_query_keeps_its_colons(database: Database) -> None:
    query = "select email, '12:30 :draft 100%' as t from people where id >= 2 order by id"
    rows = read_all_rows(open_sql(database.url, query=query))
    assert [(row["email"], row["t"]) for row in rows] == [
        ("bob@example.com", "12:30 :draft 100%"), (None, "12:30 :draft 100%"),
    ]  # fmt: skip


WRITING_QUERIES = [
    "insert into people values (9, 'x', 'y') returning id",
    "update people set note = 'x' returning id",
    "delete from people",
    "delete from people returning id",
    "replace into people values (1, 'x', 'y')",
    "with gone as (delete from people returning id) select id from gone",
    "with new as (select 9 as id) insert into people select id, 'x', 'y' from new returning id",
    "/* select */ delete from people",
    "select 1 as id; delete from people",
    "drop table people",
    "create temporary table other (id integer)",
    "truncate people",
]


def test_a_query_that_writes_is_refused_and_nothing_is_written(database: Database) -> None:
    for query in WRITING_QUERIES:
        with pytest.raises((SourceError, ConfigurationError)):
            read_all_rows(open_sql(database.url, query=query))
        assert len(read_all_rows(open_sql(database.url, table="people"))) == 3, query
        with pytest.raises(SourceError, match="other"):
            open_sql(database.url, table="other")


def test_a_statement_of_sqlite_that_writes_files_is_refused(tmp_path: Path) -> None:
    with DATABASE_OPENER_BY_KIND["sqlite"]() as database:
        bytes_before = Path(database.url.removeprefix("sqlite:///")).read_bytes()
        for query in ("vacuum into '{}/copy.db'", "attach '{}/new.db' as new", "pragma journal_mode = wal"):
            with pytest.raises(ConfigurationError, match="a source only reads"):
                open_sql(database.url, query=query.format(tmp_path))
            assert Path(database.url.removeprefix("sqlite:///")).read_bytes() == bytes_before, query
    assert list(tmp_path.iterdir()) == []


def test_a_procedure_with_its_own_transaction_is_refused() -> None:
    with DATABASE_OPENER_BY_KIND["mariadb"]() as database:
        database.run(
            "create table t (id integer)",
            "create procedure p() begin start transaction read write; insert into t values (1); commit; select 1; end",
        )
        with pytest.raises(ConfigurationError, match="begins with CALL"):
            open_sql(database.url, query="call p()")
        assert read_all_rows(open_sql(database.url, table="t")) == []


@pytest.fixture
def unknown_database() -> Iterator[Database]:
    """SQLite under a name that the connector does not know, as an example of a database without read-only sessions."""
    sa.dialects.registry.register("othersql", "sqlalchemy.dialects.sqlite.pysqlite", "SQLiteDialect_pysqlite")
    with DATABASE_OPENER_BY_KIND["sqlite"]() as database:
        database.run("create table people (id integer)", "insert into people values (1), (2), (3)")
        yield Database("othersql", database.url.replace("sqlite", "othersql"))


def test_a_query_that_writes_is_refused_for_a_database_that_the_connector_does_not_know(
    unknown_database: Database,
) -> None:
    for query in WRITING_QUERIES:
        if "temporary" not in query:
            with pytest.raises(ConfigurationError, match="a source only reads"):
                open_sql(unknown_database.url, query=query)
            assert len(read_all_rows(open_sql(unknown_database.url, table="people"))) == 3, query


@pytest.mark.parametrize(
    "query",
    [
        "select id from people;",
        "  -- customers; delete\n select id from people",
        "with p as (select * from people) select id, 'insert; delete' as \"update\" from p; -- delete",
        "select id, 1 as [delete], 2 as updated_at from people /* merge into */",
        "values (1), (2), (3)",
    ],
)
def test_a_query_may_have_the_word_delete_in_a_text_or_a_name_or_a_comment(
    unknown_database: Database, query: str
) -> None:
    assert len(read_all_rows(open_sql(unknown_database.url, query=query))) == 3


ENDLESS_QUERY_BY_DATABASE = {
    "postgresql": "select generate_series(1, 1000000000000) as n, repeat('x', 100) as t",
    "mariadb": "select seq as n, repeat('x', 100) as t from seq_1_to_1000000000000",
    "sqlite": (
        "with recursive c(n) as (select 1 union all select n + 1 from c where n < 1000000000000) "
        "select n, printf('%0100d', 0) as t from c"
    ),
    "duckdb": "select range as n, repeat('x', 100) as t from range(1000000000000)",
}

READ_CHUNKS_SCRIPT = """
import resource, sys
from connector.sources.sql import open_sql
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))  # a process that buffers the whole result ends here
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
with open_sql(sys.argv[1], query=sys.argv[2]) as source:
    chunks = source.read_chunks()
    rows = len(next(chunks).frame)
    before = peak()
    for _ in range(9):
        rows += len(next(chunks).frame)
print(rows, peak() - before)
"""


def test_an_endless_result_is_read_in_chunks_and_closed(database: Database) -> None:
    """A source would never end if it buffered the result, or if it read the rest before it closed the connection."""
    command = [sys.executable, "-c", READ_CHUNKS_SCRIPT, database.url, ENDLESS_QUERY_BY_DATABASE[database.kind]]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.stderr == ""
    # DuckDB takes a process of `python -c` for an interactive process, and prints a progress bar before the numbers
    row_count, memory_mb = map(int, result.stdout.split()[-2:])
    assert row_count == 200_000
    assert memory_mb < 30  # ten chunks have 25 MB, and the source keeps two chunks


def test_the_error_of_a_missing_table_shows_the_table_and_the_kind_of_the_database(database: Database) -> None:
    with pytest.raises(SourceError, match="nobody") as error_info:
        open_sql(database.url, table="nobody")
    assert database.kind in str(error_info.value)


VALUES_AND_TEXTS_BY_DATABASE: dict[str, list[tuple[str, str]]] = {
    "mariadb": [
        ("cast(12.50 as decimal(10, 2))", "12.5"),
        ("cast(100000000000000000000 as decimal(30, 0))", "100000000000000000000"),
        ("cast(0.00001 as decimal(10, 9))", "0.00001"),
        ("cast('2001-02-03' as date)", "2001-02-03"),
        ("cast('2001-02-03 04:05:06.5' as datetime(6))", "2001-02-03T04:05:06.500000"),
        ("cast('04:05:06' as time)", "04:05:06"),
        ("true", "1"),
        ("json_array('a', 'b')", '["a", "b"]'),
        ("json_object('k', 1)", '{"k": 1}'),
        ("x'4142'", "AB"),
        ("1e20", "100000000000000000000"),
        ("1.5e-9", "0.0000000015"),
        ("cast(9223372036854775808 as unsigned)", "9223372036854775808"),
    ],
    "postgresql": [
        ("12.50::numeric", "12.5"),
        ("1e20::numeric", "100000000000000000000"),
        ("0.00001::float8", "0.00001"),
        ("date '2001-02-03'", "2001-02-03"),
        ("timestamp '2001-02-03 04:05:06.5'", "2001-02-03T04:05:06.500000"),
        ("timestamptz '2001-02-03 04:05:06+02' at time zone 'UTC'", "2001-02-03T02:05:06"),
        ("time '04:05:06'", "04:05:06"),
        ("interval '90 minutes'", "01:30:00"),
        ("true", "true"),
        ("array['a', 'b']", '["a","b"]'),
        ("array[1, null]", "[1,null]"),
        ("""'{"k": [1, "é"]}'::jsonb""", '{"k":[1,"é"]}'),
        ("""'["VIP", "a"]'::json""", '["VIP","a"]'),
        ("'\\x4142'::bytea", "AB"),
        ("'6ba7b810-9dad-11d1-80b4-00c04fd430c8'::uuid", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"),
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
    "sqlite": [
        ("12.5", "12.5"),
        ("1e20", "100000000000000000000"),
        ("0.00001", "0.00001"),
        ("3.0", "3"),
        ("x'4142'", "AB"),
        ("""json_array('a', 'b')""", '["a","b"]'),
    ],
    "duckdb": [
        ("12.50::decimal(10, 2)", "12.5"),
        ("sum(100000000000000000000::hugeint)", "100000000000000000000"),
        ("0.00001::double", "0.00001"),
        ("date '2001-02-03'", "2001-02-03"),
        ("timestamp '2001-02-03 04:05:06.5'", "2001-02-03T04:05:06.500000"),
        ("timestamptz '2001-02-03 04:05:06+00' at time zone 'UTC'", "2001-02-03T04:05:06"),
        ("'infinity'::timestamp is not null", "true"),
        ("time '04:05:06'", "04:05:06"),
        ("true", "true"),
        ("['a', 'b']", '["a","b"]'),
        ("{'k': 1}", '{"k":1}'),
        ("'AB'::blob", "AB"),
        ("""'["a"]'::json""", '["a"]'),
        ("'6ba7b810-9dad-11d1-80b4-00c04fd430c8'::uuid", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"),
        ("'x'::enum('x', 'y')", "x"),
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


def test_a_value_of_every_type_is_read_as_a_person_would_write_it(database: Database) -> None:
    text_by_expression = dict(VALUES_AND_TEXTS_BY_DATABASE[database.kind])
    query = "select " + ", ".join(f"{expression} as c{index}" for index, expression in enumerate(text_by_expression))
    (row,) = read_all_rows(open_sql(database.url, query=query))
    assert dict(zip(text_by_expression, row.values(), strict=True)) == text_by_expression


UNREADABLE_VALUES_BY_DATABASE = {
    "postgresql": ["row(1, 'a')::pair", "array[row(1, 'a')::pair]", "int4range(1, 2)"],
    # Arrow cannot hold these values without a loss
    "duckdb": ["[date 'infinity']", "map {'at': '04:05:06+02'::timetz}", "[[1::uhugeint]]", "[{'at': time '04:05'}]"],
}


@pytest.mark.parametrize("database", UNREADABLE_VALUES_BY_DATABASE, indirect=True)
def test_a_value_that_cannot_be_read_rejects_its_row_only_if_its_column_is_used(database: Database) -> None:
    if database.kind == "postgresql":
        database.run("create type pair as (a integer, b text)")
    for value in UNREADABLE_VALUES_BY_DATABASE[database.kind]:
        with open_sql(database.url, query=f"select 'a@x.org' as email, {value} as v") as source:
            (chunk,) = source.read_chunks(["v"])
            assert [row.message.split(" holds")[0] for row in chunk.malformed_rows] == ["column v"], value
            (chunk,) = source.read_chunks(["email"])
            assert chunk.frame["email"].tolist() == ["a@x.org"]


def test_a_column_of_flags_in_mariadb_is_read_as_numbers() -> None:
    """MariaDB stores flags as TINYINT(1), which can contain other small numbers."""
    with DATABASE_OPENER_BY_KIND["mariadb"]() as database:
        database.run("create table t (a boolean, b bit(1), c tinyint(1))", "insert into t values (true, b'0', 5)")
        assert read_all_rows(open_sql(database.url, table="t")) == [{"a": "1", "b": "0", "c": "5"}]


def test_arrays_of_user_defined_types_in_postgresql_are_read_as_tags() -> None:
    with DATABASE_OPENER_BY_KIND["postgresql"]() as database:
        database.run(
            "create type seg as enum ('vip', 'news, weekly')",
            "create domain word as text",
            "create table t (a seg[], b word[], c seg[])",
            "insert into t values (array['vip', 'news, weekly']::seg[], array['x', null, 'a'], '{}')",
        )
        with open_sql(database.url, table="t") as source:
            (chunk,) = source.read_chunks()
    mapped_chunk_by_column = {
        column: apply_mapping(chunk.frame, FieldMapping({"tags": ColumnRule(column=column)})) for column in "abc"
    }
    assert [list(mapped_chunk.frame["tags"].iloc[0]) for mapped_chunk in mapped_chunk_by_column.values()] == [
        ["vip", "news, weekly"],
        ["x", "a"],
        [],
    ]


@pytest.mark.parametrize(
    ("url", "expected_text"),
    [
        ("duckdb:///:memory:", "needs a file"),
        ("duckdb://host/crm.duckdb", "needs a file"),
        ("duckdb:///crm.duckdb?access_mode=read_write", "needs a file"),
        ("duckdb:///none.duckdb", "no such DuckDB database"),
    ],
)
def test_the_error_of_a_duckdb_url_that_cannot_be_opened_shows_the_reason(url: str, expected_text: str) -> None:
    with pytest.raises((ConfigurationError, SourceError), match=expected_text):
        open_sql(url, table="people")


def test_a_statement_of_duckdb_that_is_not_a_select_is_refused() -> None:
    with DATABASE_OPENER_BY_KIND["duckdb"]() as database:
        for query in ("copy t to 'out.csv'", "attach 'o.db'", "select 1; select 2", "set threads = 1"):
            with pytest.raises(ConfigurationError, match="not a SELECT"):
                open_sql(database.url, query=query)


FAILING_QUERY_BY_DATABASE = {
    "postgresql": "select 1 / (25000 - n) as n from generate_series(1, 30000) as n",
    "mariadb": "select if(seq = 25000, (select 1 union select 2), seq) as n from seq_1_to_30000",
    "duckdb": "select case when range = 25000 then error('broken') else range end as n from range(30000000)",
}


@pytest.mark.parametrize("kind", sorted(FAILING_QUERY_BY_DATABASE))
def test_an_error_in_the_middle_of_a_result_is_raised_as_a_source_error(kind: str) -> None:
    with (
        DATABASE_OPENER_BY_KIND[kind]() as database,
        pytest.raises(SourceError, match=r"after row 20000|broken|more than 1 row") as error_info,
    ):
        read_all_rows(open_sql(database.url, query=FAILING_QUERY_BY_DATABASE[kind]))
    # A ContentError means that a value is wrong. Only the query for PostgreSQL has a wrong value: it divides by zero.
    assert isinstance(error_info.value, ContentError) is (kind == "postgresql")


KILL_SQL_BY_DATABASE = {
    "postgresql": "select pg_terminate_backend(pid, 5000) from pg_stat_activity "
    "where backend_type = 'client backend' and pid <> pg_backend_pid()",
    "mariadb": "begin not atomic for each_ in (select id from information_schema.processlist where info like "
    "'%1000000000000%' and id <> connection_id()) do kill each_.id; end for; end",
}


@pytest.mark.parametrize("kind", sorted(KILL_SQL_BY_DATABASE))
def test_a_connection_that_is_lost_in_the_middle_of_a_result_raises_one_error(
    kind: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with DATABASE_OPENER_BY_KIND[kind]() as database:
        source = open_sql(database.url, query=ENDLESS_QUERY_BY_DATABASE[kind])
        chunks = source.read_chunks()
        assert len(next(chunks).frame) == 20_000
        database.run(KILL_SQL_BY_DATABASE[kind].replace("%", "%%"))
        with pytest.raises(SourceError, match="reading stopped after row"):
            for _ in zip(range(50), chunks, strict=False):  # the chunks that the server has already sent are read first
                pass
        source.close()
    assert caplog.records == []
    assert capsys.readouterr() == ("", "")
