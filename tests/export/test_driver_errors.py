"""Messages about database errors show no value of a row, and show names in full."""

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
from connector.errors import RunAborted, SourceError
from connector.sources.sql import open_sql
from connector.warehouse.destination import Destination, Format
from connector.warehouse.servers import PostgresDatabase
from tests.databases import Database
from tests.export.test_modes import build_person, publish_people
from tests.export.warehouses import build_url, parametrize_table, run_sql

SECRET_EMAIL = "ada.lovelace@example.com"
# SQL text with doubled quotes, and with words after a quote
TEXT_WITH_QUOTES = f"O''Neil \"{SECRET_EMAIL}\" isn''t to X'' for key ''Y"
SECRET_NUMBER = "18151210"

ErrorDescriber = Callable[[str], str]


def build_error_describer(run: Callable[[str], Any]) -> ErrorDescriber:
    """Return a function that runs a statement and returns the description of its error."""

    def describe_failure(statement: str) -> str:
        with pytest.raises(Exception, match=r"(?s).") as error_info:  # each driver has its own class of errors
            run(statement)
        return describe_error(error_info.value)

    return describe_failure


@pytest.fixture(scope="module")
def duckdb_describer() -> Iterator[ErrorDescriber]:
    with duckdb.connect(":memory:") as connection:
        connection.execute("create table t (id bigint primary key, email varchar unique, n integer check (n > 0))")
        connection.execute(f"insert into t values (1, '{SECRET_EMAIL}', 1)")
        yield build_error_describer(lambda statement: connection.execute(statement).fetchall())


@pytest.fixture(scope="module")
def sqlite_describer() -> Iterator[ErrorDescriber]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("create table t (id integer primary key, email text unique, n integer check (n > 0))")
        connection.execute(
            "create trigger r before insert on t when new.n = 7 begin select raise(abort, 'not ada.lovelace'); end"
        )
        yield build_error_describer(connection.execute)


@pytest.fixture(scope="module")
def mariadb_describer(mariadb: Database) -> Iterator[ErrorDescriber]:
    with mariadb.begin() as connection:
        connection.exec_driver_sql("set session sql_mode = 'STRICT_ALL_TABLES'")
        connection.exec_driver_sql("create table t (id bigint primary key, email varchar(90) unique, n integer)")
        connection.exec_driver_sql(f"insert into t values (1, '{SECRET_EMAIL}', 1)")
        connection.exec_driver_sql(
            "create trigger r before insert on t for each row if new.n = 7 then "
            "signal sqlstate '45000' set message_text = 'not ada.lovelace'; end if"
        )
        yield build_error_describer(lambda statement: connection.exec_driver_sql(statement.replace("%", "%%")))


@pytest.fixture(scope="module")
def psycopg_describer(postgres: Database) -> Iterator[ErrorDescriber]:
    url = sa.make_url(postgres.url).set(drivername="postgresql+psycopg")
    with open_postgres_describer(url) as describe_failure:
        yield describe_failure


@pytest.fixture(scope="module")
def pg8000_describer(postgres: Database) -> Iterator[ErrorDescriber]:
    with open_postgres_describer(sa.make_url(build_url(postgres, Format.SQL))) as describe_failure:
        yield describe_failure


@contextmanager
def open_postgres_describer(url: sa.URL) -> Iterator[ErrorDescriber]:
    """Yield an ErrorDescriber for a schema of PostgreSQL with a table and functions that raise."""
    engine = sa.create_engine(url, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        schema = f"words_{url.get_driver_name()}"
        connection.exec_driver_sql(f"create schema {schema}")
        connection.exec_driver_sql(f"set search_path = {schema}")
        connection.exec_driver_sql("create table t (id bigint primary key, email varchar(90) unique, n integer)")
        connection.exec_driver_sql(f"insert into t values (1, '{SECRET_EMAIL}', 1)")
        for name, error_code_sql in (("raises", ""), ("pretends", " using errcode = 'unique_violation'")):
            connection.exec_driver_sql(
                f"create function {name}() returns int language plpgsql as "
                f"$$ begin raise exception 'not ada.lovelace'{error_code_sql}; end $$"
            )
        yield build_error_describer(connection.exec_driver_sql)
        connection.exec_driver_sql(f"drop schema {schema} cascade")


def check_message_has_no_value(message: str) -> None:
    for fragment in ("ada", "lovelace", "example", "Neil", "isn", SECRET_NUMBER):
        assert fragment not in message
    assert "\n" not in message


STATEMENTS_WITH_SECRETS_BY_DRIVER = {
    "duckdb": [
        (
            f"insert into t values (2, '{SECRET_EMAIL}', 1)",
            "Constraint Error: Duplicate key '…' violates unique constraint",
        ),
        (f"insert into t values (2, 'x', '{SECRET_EMAIL}')", "Conversion Error: Could not convert string '…' to INT32"),
        (f"select '{TEXT_WITH_QUOTES}'::int", "Could not convert string '…' to INT32"),
        (f"select '{SECRET_EMAIL}\n{SECRET_EMAIL}'::int", "Could not convert string '…'"),
        (f"select '{SECRET_EMAIL}'::date", "invalid date field format: '…'"),
        (f"select {SECRET_NUMBER}::tinyint", "is out of range for the destination type INT8"),
        (f"select error('{SECRET_EMAIL} +4930 1234567')", "Invalid Input Error"),
    ],
    "sqlite": [
        (f"select '{SECRET_EMAIL}", "unrecognized token: '…'"),
        (f"insert into t values (2, '{SECRET_EMAIL}', 7)", "such as a trigger"),
        (f"select json_extract('[]', '{SECRET_EMAIL}')", "JSON path"),
    ],
    "mariadb": [
        (f"insert into t values (2, '{SECRET_EMAIL}', 1)", "Duplicate entry '…' for key 'email' (error 1062)"),
        (f"insert into t values (2, 'x', '{SECRET_EMAIL}')", "Incorrect integer value: '…' for column `"),
        (f"insert into t values (2, 'x', '{TEXT_WITH_QUOTES}')", "for column `"),
        (f"insert into t values (2, 'x', '{SECRET_EMAIL}\n{SECRET_EMAIL}')", "Incorrect integer value: '…'"),
        (f"update t set n = 2 where email = {SECRET_NUMBER}", "Truncated incorrect DECIMAL value: '…' (error 1292)"),
        (f"insert into t values (2, 'x', 7) -- {SECRET_EMAIL}", "such as a trigger"),
        (f"insert into t values (2, 'x', '{SECRET_EMAIL}' '' 1)", "right syntax to use near '…'"),
    ],
    "psycopg pg8000": [
        (
            f"insert into t values (2, '{SECRET_EMAIL}', 1)",
            'duplicate key value violates unique constraint "t_email_key"',
        ),
        (
            f"insert into t values (2, 'x', '{SECRET_EMAIL}')",
            "invalid input syntax for type integer: '…' (SQLSTATE 22P02)",
        ),
        (f"select '{TEXT_WITH_QUOTES}'::int", "invalid input syntax for type integer: '…' (SQLSTATE 22P02)"),
        (
            f"select '{SECRET_EMAIL}\n{SECRET_EMAIL}'::int",
            "invalid input syntax for type integer: '…' (SQLSTATE 22P02)",
        ),
        (f"select '{{{SECRET_EMAIL}'::text[]", "malformed array literal: '…' (SQLSTATE 22P02)"),
        ("select raises()", "such as a trigger"),
        ("select pretends()", "such as a trigger"),
    ],
}
STATEMENTS_WITH_SQL_NAMES_BY_DRIVER = {
    "duckdb": [
        ("select * from nowhere", "Catalog Error: Table with name nowhere does not exist!"),
        ("select nothing from t", 'Binder Error: Referenced column "nothing" not found in FROM clause!'),
        ("selec 1", 'Parser Error: syntax error at or near "selec"'),
        (
            "insert into t values (2, 'x', 0)",
            'Constraint Error: CHECK constraint failed on table "t" with expression CHECK((n > 0))',
        ),
        ("attach '/nowhere/x.duckdb'", 'IO Error: Cannot open file "/nowhere/x.duckdb": No such file or directory'),
    ],
    "sqlite": [
        ("select * from nowhere", "no such table: nowhere"),
        ("selec 1", 'near "selec": syntax error'),
        ("insert into t values (2, 'x', 0)", "CHECK constraint failed: n > 0"),
        ("attach '/nowhere/x.db' as x", "unable to open database: /nowhere/x.db"),
    ],
    "mariadb": [
        ("select * from nowhere", ".nowhere' doesn't exist (error 1146)"),
        ("select nothing from t", "Unknown column 'nothing' in 'SELECT' (error 1054)"),
        (
            f"insert into t values (2, repeat('x', 91), 1) -- {SECRET_EMAIL}",
            "Data too long for column 'email' at row 1",
        ),
        ("use nowhere_at_all", "Unknown database 'nowhere_at_all' (error 1049)"),
    ],
    "psycopg pg8000": [
        ("select * from nowhere", 'relation "nowhere" does not exist'),
        ("select nothing from t", 'column "nothing" does not exist'),
        ("create table t (i int)", 'relation "t" already exists'),
        ("drop database nowhere", 'database "nowhere" does not exist'),
    ],
}


def parametrize_statements(statements_by_drivers: dict[str, list[tuple[str, str]]]) -> pytest.MarkDecorator:
    """Run the test with each driver and each of its statements. `statements_by_drivers` has several drivers in one key,
    separated by spaces. `expected_text` is a part of the message."""
    return pytest.mark.parametrize(
        ("driver", "statement", "expected_text"),
        [
            (driver, *statement_and_text)
            for drivers, statements_and_texts in statements_by_drivers.items()
            for driver in drivers.split()
            for statement_and_text in statements_and_texts
        ],
    )


@parametrize_statements(STATEMENTS_WITH_SECRETS_BY_DRIVER)
def test_the_message_of_a_refused_statement_shows_no_value(
    driver: str, statement: str, expected_text: str, request: pytest.FixtureRequest
) -> None:
    message = request.getfixturevalue(f"{driver}_describer")(statement)
    assert expected_text in message
    check_message_has_no_value(message)


@parametrize_statements(STATEMENTS_WITH_SQL_NAMES_BY_DRIVER)
def test_the_message_of_a_refused_statement_shows_names_in_full(
    driver: str, statement: str, expected_text: str, request: pytest.FixtureRequest
) -> None:
    message = request.getfixturevalue(f"{driver}_describer")(statement)
    if driver == "duckdb":  # DuckDB 1 shows the table of a violated CHECK without quotes
        message = message.replace("on table t ", 'on table "t" ')
    assert message == expected_text if driver in ("duckdb", "sqlite") else expected_text in message


class IntegrityError(Exception):
    """An error in the format of the ODBC driver of SQL Server, a driver that the connector does not know."""


def test_the_message_of_an_unknown_driver_is_shown_without_values() -> None:
    errors_and_messages: list[tuple[Exception, str]] = [
        (
            IntegrityError(
                "23000", f"Violation of UNIQUE KEY 'u'. The duplicate key value is ({SECRET_EMAIL}). (2627)"
            ),
            "Violation of UNIQUE KEY '…' (SQLSTATE 23000)",
        ),
        (IntegrityError("42S02", "Invalid object name 'nowhere'."), "Invalid object name 'nowhere'."),
        (IntegrityError(f"unique constraint violated ({SECRET_EMAIL})"), "unique constraint violated (…)"),
        (IntegrityError(f"Numeric value „{SECRET_EMAIL}“ is not recognized"), "Numeric value '…'"),
        (OSError(28, "No space left on device"), "[Errno 28] No space left on device"),
    ]
    for error, message in errors_and_messages:
        assert describe_error(error) == message


@pytest.mark.parametrize("kind", ["postgresql", "duckdb"])
def test_the_error_of_a_source_shows_no_value(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if kind == "duckdb":
        duckdb.connect(str(tmp_path / "crm.duckdb")).close()
    url = f"duckdb:///{tmp_path}/crm.duckdb" if kind == "duckdb" else request.getfixturevalue("postgres").url
    with (
        pytest.raises(SourceError, match="'…'") as error_info,
        open_sql(url, query=f"select '{SECRET_EMAIL}'::int") as source,
    ):
        list(source.read_chunks())
    check_message_has_no_value(str(error_info.value).removeprefix(f"{url}: "))


TERMINATE_SQL = "select pg_terminate_backend(pid) from pg_stat_activity where starts_with(query, 'COPY')"


@parametrize_table([Format.POSTGRESQL])
def test_an_interrupted_copy_logs_no_value(
    table: Destination, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By default, psycopg logs the error of a failed COPY. The error contains the row that the server was reading."""
    people = [build_person(index, Email=SECRET_EMAIL) for index in range(20_000)]
    original_format_csv = PostgresDatabase._format_csv
    termination_results: list[object] = []

    def terminate_and_write(database: PostgresDatabase, batch: pa.RecordBatch, arguments: Mapping[str, str]) -> bytes:
        if not termination_results:
            termination_results.append(run_sql(table, TERMINATE_SQL))
        return original_format_csv(database, batch, arguments)

    monkeypatch.setattr(PostgresDatabase, "_format_csv", terminate_and_write)
    with pytest.raises(RunAborted, match="unchanged") as error_info:
        publish_people(table, people, 1)
    assert SECRET_EMAIL not in str(error_info.value)
    assert termination_results == [[(True,)]]
    assert caplog.messages == []
