"""The error of a database shows no value of the refused row, and shows names in full."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import sqlalchemy as sa

from connector.driver_errors import describe_error
from connector.errors import ConfigurationError, RunAborted, SourceError
from connector.sources.sql import open_sql
from connector.warehouse.destination import Destination, Format
from connector.warehouse.servers import PostgresDatabase
from tests.databases import Database
from tests.export.test_modes import person, publish
from tests.export.warehouses import into, run_sql, url_of

PLANTED = "ada.lovelace@example.com"
ODD = f"O''Neil \"{PLANTED}\" isn''t to X'' for key ''Y"  # as SQL has it: quotes, and words that go on after one
BIRTH = "18151210"

Refuse = Callable[[str], str]


def build_refuse(run: Callable[[str], Any]) -> Refuse:
    """What is shown of the statement's error."""

    def refuse(statement: str) -> str:
        with pytest.raises(Exception, match=r"(?s).") as caught:  # each driver has its own
            run(statement)
        return describe_error(caught.value)

    return refuse


@pytest.fixture(scope="module")
def duck() -> Iterator[Refuse]:
    with duckdb.connect(":memory:") as connection:
        connection.execute("create table t (id bigint primary key, email varchar unique, n integer check (n > 0))")
        connection.execute(f"insert into t values (1, '{PLANTED}', 1)")
        yield build_refuse(lambda statement: connection.execute(statement).fetchall())


@pytest.fixture(scope="module")
def lite() -> Iterator[Refuse]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("create table t (id integer primary key, email text unique, n integer check (n > 0))")
        connection.execute(
            "create trigger r before insert on t when new.n = 7 begin select raise(abort, 'not ada.lovelace'); end"
        )
        yield build_refuse(connection.execute)


@pytest.fixture(scope="module")
def maria(mariadb: Database) -> Iterator[Refuse]:
    with mariadb.begin() as connection:
        connection.exec_driver_sql("set session sql_mode = 'STRICT_ALL_TABLES'")
        connection.exec_driver_sql("create table t (id bigint primary key, email varchar(90) unique, n integer)")
        connection.exec_driver_sql(f"insert into t values (1, '{PLANTED}', 1)")
        connection.exec_driver_sql(
            "create trigger r before insert on t for each row if new.n = 7 then "
            "signal sqlstate '45000' set message_text = 'not ada.lovelace'; end if"
        )
        yield build_refuse(lambda statement: connection.exec_driver_sql(statement.replace("%", "%%")))


@pytest.fixture(scope="module")
def psycopg(postgres: Database) -> Iterator[Refuse]:
    url = sa.make_url(postgres.url).set(drivername="postgresql+psycopg")
    with open_words(url) as refuse:
        yield refuse


@pytest.fixture(scope="module")
def pg8000(postgres: Database) -> Iterator[Refuse]:
    with open_words(sa.make_url(url_of(postgres, Format.SQL))) as refuse:
        yield refuse


@contextmanager
def open_words(url: sa.URL) -> Iterator[Refuse]:
    """A schema of PostgreSQL with a table, and functions that raise."""
    engine = sa.create_engine(url, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        schema = f"words_{url.get_driver_name()}"
        connection.exec_driver_sql(f"create schema {schema}")
        connection.exec_driver_sql(f"set search_path = {schema}")
        connection.exec_driver_sql("create table t (id bigint primary key, email varchar(90) unique, n integer)")
        connection.exec_driver_sql(f"insert into t values (1, '{PLANTED}', 1)")
        for name, rank in (("raises", ""), ("pretends", " using errcode = 'unique_violation'")):
            connection.exec_driver_sql(
                f"create function {name}() returns int language plpgsql as "
                f"$$ begin raise exception 'not ada.lovelace'{rank}; end $$"
            )
        yield build_refuse(connection.exec_driver_sql)
        connection.exec_driver_sql(f"drop schema {schema} cascade")


def check_holds_no_value(message: str) -> None:
    for piece in ("ada", "lovelace", "example", "Neil", "isn", BIRTH):
        assert piece not in message
    assert "\n" not in message


NO_VALUE = {
    "duck": [
        (f"insert into t values (2, '{PLANTED}', 1)", "Constraint Error: Duplicate key '…' violates unique constraint"),
        (f"insert into t values (2, 'x', '{PLANTED}')", "Conversion Error: Could not convert string '…' to INT32"),
        (f"select '{ODD}'::int", "Could not convert string '…' to INT32"),
        (f"select '{PLANTED}\n{PLANTED}'::int", "Could not convert string '…'"),
        (f"select '{PLANTED}'::date", "invalid date field format: '…'"),
        (f"select {BIRTH}::tinyint", "is out of range for the destination type INT8"),
        (f"select error('{PLANTED} +4930 1234567')", "Invalid Input Error"),
    ],
    "lite": [
        (f"select '{PLANTED}", "unrecognized token: '…'"),
        (f"insert into t values (2, '{PLANTED}', 7)", "such as a trigger"),
        (f"select json_extract('[]', '{PLANTED}')", "JSON path"),
    ],
    "maria": [
        (f"insert into t values (2, '{PLANTED}', 1)", "Duplicate entry '…' for key 'email' (error 1062)"),
        (f"insert into t values (2, 'x', '{PLANTED}')", "Incorrect integer value: '…' for column `"),
        (f"insert into t values (2, 'x', '{ODD}')", "for column `"),
        (f"insert into t values (2, 'x', '{PLANTED}\n{PLANTED}')", "Incorrect integer value: '…'"),
        (f"update t set n = 2 where email = {BIRTH}", "Truncated incorrect DECIMAL value: '…' (error 1292)"),
        (f"insert into t values (2, 'x', 7) -- {PLANTED}", "such as a trigger"),
        (f"insert into t values (2, 'x', '{PLANTED}' '' 1)", "right syntax to use near '…'"),
    ],
    "psycopg pg8000": [
        (f"insert into t values (2, '{PLANTED}', 1)", 'duplicate key value violates unique constraint "t_email_key"'),
        (f"insert into t values (2, 'x', '{PLANTED}')", "invalid input syntax for type integer: '…' (SQLSTATE 22P02)"),
        (f"select '{ODD}'::int", "invalid input syntax for type integer: '…' (SQLSTATE 22P02)"),
        (f"select '{PLANTED}\n{PLANTED}'::int", "invalid input syntax for type integer: '…' (SQLSTATE 22P02)"),
        (f"select '{{{PLANTED}'::text[]", "malformed array literal: '…' (SQLSTATE 22P02)"),
        ("select raises()", "such as a trigger"),
        ("select pretends()", "such as a trigger"),
    ],
}
NAMES_WHOLE = {
    "duck": [
        ("select * from nowhere", "Catalog Error: Table with name nowhere does not exist!"),
        ("select nothing from t", 'Binder Error: Referenced column "nothing" not found in FROM clause!'),
        ("selec 1", 'Parser Error: syntax error at or near "selec"'),
        (
            "insert into t values (2, 'x', 0)",
            'Constraint Error: CHECK constraint failed on table "t" with expression CHECK((n > 0))',
        ),
        ("attach '/nowhere/x.duckdb'", 'IO Error: Cannot open file "/nowhere/x.duckdb": No such file or directory'),
    ],
    "lite": [
        ("select * from nowhere", "no such table: nowhere"),
        ("selec 1", 'near "selec": syntax error'),
        ("insert into t values (2, 'x', 0)", "CHECK constraint failed: n > 0"),
        ("attach '/nowhere/x.db' as x", "unable to open database: /nowhere/x.db"),
    ],
    "maria": [
        ("select * from nowhere", ".nowhere' doesn't exist (error 1146)"),
        ("select nothing from t", "Unknown column 'nothing' in 'SELECT' (error 1054)"),
        (f"insert into t values (2, repeat('x', 91), 1) -- {PLANTED}", "Data too long for column 'email' at row 1"),
        ("use nowhere_at_all", "Unknown database 'nowhere_at_all' (error 1049)"),
    ],
    "psycopg pg8000": [
        ("select * from nowhere", 'relation "nowhere" does not exist'),
        ("select nothing from t", 'column "nothing" does not exist'),
        ("create table t (i int)", 'relation "t" already exists'),
        ("drop database nowhere", 'database "nowhere" does not exist'),
    ],
}


def each_of(table: dict[str, list[tuple[str, str]]]) -> pytest.MarkDecorator:
    """Each driver with its statements, and what must be in what is shown."""
    return pytest.mark.parametrize(
        ("driver", "statement", "shown"),
        [(driver, *pair) for drivers, pairs in table.items() for driver in drivers.split() for pair in pairs],
    )


@each_of(NO_VALUE)
def test_no_value_is_shown(driver: str, statement: str, shown: str, request: pytest.FixtureRequest) -> None:
    message = request.getfixturevalue(driver)(statement)
    assert shown in message
    check_holds_no_value(message)


@each_of(NAMES_WHOLE)
def test_names_are_shown_whole(driver: str, statement: str, shown: str, request: pytest.FixtureRequest) -> None:
    message = request.getfixturevalue(driver)(statement)
    assert message == shown if driver in ("duck", "lite") else shown in message


class IntegrityError(Exception):
    """As a driver that is not known raises it: here SQL Server's, by ODBC."""


def test_of_a_driver_that_is_not_known_little_is_shown() -> None:
    cases: list[tuple[Exception, str]] = [
        (
            IntegrityError("23000", f"Violation of UNIQUE KEY 'u'. The duplicate key value is ({PLANTED}). (2627)"),
            "Violation of UNIQUE KEY '…' (SQLSTATE 23000)",
        ),
        (IntegrityError("42S02", "Invalid object name 'nowhere'."), "Invalid object name 'nowhere'."),
        (IntegrityError(f"unique constraint violated ({PLANTED})"), "unique constraint violated (…)"),
        (IntegrityError(f"Numeric value „{PLANTED}“ is not recognized"), "Numeric value '…'"),
        (OSError(28, "No space left on device"), "[Errno 28] No space left on device"),
    ]
    for error, message in cases:
        assert describe_error(error) == message


@pytest.mark.parametrize("kind", ["postgresql", "duckdb"])
def test_a_source_tells_no_value(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if kind == "duckdb":
        duckdb.connect(str(tmp_path / "crm.duckdb")).close()
    url = f"duckdb:///{tmp_path}/crm.duckdb" if kind == "duckdb" else request.getfixturevalue("postgres").url
    with pytest.raises(SourceError, match="'…'") as caught, open_sql(url, query=f"select '{PLANTED}'::int") as source:
        list(source.chunks())
    check_holds_no_value(str(caught.value).removeprefix(f"{url}: "))


_ONE_EACH = "create unique index u on {}subscribers (email)"
_RULES = {
    Format.DUCKDB: [_ONE_EACH],
    Format.SQLITE: [
        f"create trigger r before insert on {{}}subscribers when new.id = 3 begin select raise(abort, '{PLANTED}'); end"
    ],
    Format.MYSQL: ["alter table {}subscribers modify email varchar(90)", _ONE_EACH],
    Format.POSTGRESQL: [
        "create function {}r() returns trigger language plpgsql as $$ begin raise using message = new.email; end $$",
        "create trigger r before insert on {}subscribers for each row execute function {}r()",
    ],
}
_RULES[Format.SQL] = _RULES[Format.POSTGRESQL]


def test_an_export_whose_row_is_refused_tells_none_of_its_values(table: Destination) -> None:
    publish(table, [person(1)], 1)
    run_sql(table, *_RULES[table.format])

    with pytest.raises((ConfigurationError, RunAborted), match="as it was") as caught:
        publish(table, [person(number, Email=PLANTED) for number in (2, 3)], 2)
    assert PLANTED not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


TERMINATE = "select pg_terminate_backend(pid) from pg_stat_activity where starts_with(query, 'COPY')"


@into([Format.POSTGRESQL])
def test_a_copy_that_is_broken_off_logs_no_value(
    table: Destination, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """psycopg logs by itself what it meets while it ends a COPY, the row that the server was at among it."""
    people = [person(number, Email=PLANTED) for number in range(200_000)]
    write = PostgresDatabase._write_csv
    ended: list[object] = []

    def end_the_server_and_write(database: PostgresDatabase, batch: pa.RecordBatch, shared: Mapping[str, str]) -> bytes:
        if not ended:
            ended.append(run_sql(table, TERMINATE))
        return write(database, batch, shared)

    monkeypatch.setattr(PostgresDatabase, "_write_csv", end_the_server_and_write)
    with pytest.raises(RunAborted, match="as it was") as caught:
        publish(table, people, 1)
    assert PLANTED not in str(caught.value)
    assert ended == [[(True,)]]
    assert caplog.messages == []
