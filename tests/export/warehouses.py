"""Helpers for destinations of every kind: files, database files, and tables on the servers of the tests."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import pytest
import sqlalchemy as sa

from connector.databases import build_engine
from connector.warehouse.destination import Destination, Format, find_format_traits, parse_destination
from connector.warehouse.runs import WriteMode
from tests.databases import Database
from tests.export.readers import build_target
from tests.stores import Bucket, set_environ

SERVER_FORMATS = (Format.POSTGRESQL, Format.MYSQL, Format.SQL)
DATABASE_FORMATS = (Format.SQLITE, Format.DUCKDB, *SERVER_FORMATS)
MERGING_FORMATS = tuple(
    database_format
    for database_format in DATABASE_FORMATS
    if WriteMode.HISTORY in find_format_traits(database_format).modes
)
DATABASE_FILE_FORMATS = (Format.SQLITE, Format.DUCKDB)
FILE_FORMATS = tuple(file_format for file_format in Format if find_format_traits(file_format).suffix)

_SCHEMA_NUMBERS = count()


def parametrize_table(formats: Sequence[Format], *modes: str) -> pytest.MarkDecorator:
    """Run the test with the fixture `table`: the first mode with each format, and other modes with the first format.

    Other pairs would test nothing new, because a mode has the same statements in all databases.
    """
    first_mode, *other_modes = modes or ("replace",)
    pairs = [(database_format, first_mode) for database_format in formats] + [
        (formats[0], mode) for mode in other_modes
    ]
    return pytest.mark.parametrize("table", pairs, indirect=True, ids=["-".join(pair) for pair in pairs])


def open_destination(
    request: pytest.FixtureRequest, folder: Path, database_format: Format, **options: Any
) -> Destination:
    """Return a new destination of this format. A destination on a server has its own schema, dropped after the test. A
    Delta table is in a new bucket."""
    if database_format is Format.DELTA:
        bucket: Bucket = request.getfixturevalue("bucket")
        set_environ(request.getfixturevalue("monkeypatch"), bucket.environ | {"AWS_ALLOW_HTTP": "true"})
        return parse_destination(f"delta://{bucket.url('lake/subscribers')}", **options)
    if database_format not in SERVER_FORMATS:
        return parse_destination(build_target(folder, database_format), **options)
    if database_format is Format.MYSQL:
        database: Database = request.getfixturevalue("mariadb")
        database_name = f"{sa.make_url(database.url).database}_{next(_SCHEMA_NUMBERS)}"
        database.run(f"create database {database_name} character set utf8mb4")
        request.addfinalizer(lambda: database.run(f"drop database {database_name}"))
        url = sa.make_url(database.url).set(database=database_name).render_as_string(hide_password=False)
        return parse_destination(url, **options)
    server: Database = request.getfixturevalue("postgres")
    database_name = f"esp_{next(_SCHEMA_NUMBERS)}"
    server.run(f"create schema {database_name}")
    request.addfinalizer(lambda: server.run(f"drop schema {database_name} cascade"))
    destination = parse_destination(build_url(server, database_format), **({"schema": database_name} | options))
    assert destination.format is database_format
    return destination


def build_url(server: Database, database_format: Format) -> str:
    """Return the URL of the server. For the format `sql`, the URL names the driver pg8000. The export then treats
    the server like a database that has no format of its own."""
    if database_format is Format.POSTGRESQL:
        return server.url
    pytest.importorskip("pg8000")
    url = sa.make_url(server.url)
    socket_path = f"{url.query['host']}/.s.PGSQL.{url.port or 5432}"
    return url.set(drivername="postgresql+pg8000", query={"unix_sock": socket_path}).render_as_string(
        hide_password=False
    )


def run_sql(destination: Destination, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements as another program, in one transaction, and return the rows of the last statement. `{}` is the
    schema."""
    schema_prefix = f"{destination.schema}." if destination.schema else ""
    rendered_statements = [statement.replace("{}", schema_prefix) for statement in statements]
    if destination.format is Format.DUCKDB:
        with duckdb.connect(str(destination.path)) as duckdb_connection:
            duckdb_connection.execute("set timezone = 'UTC'")
            rows: list[tuple[Any, ...]] = []
            for statement in rendered_statements:
                rows = duckdb_connection.execute(statement).fetchall()
            return rows
    with connect(destination) as connection:
        results = [connection.exec_driver_sql(statement) for statement in rendered_statements]
        return [tuple(row) for row in results[-1].fetchall()] if results[-1].returns_rows else []


@contextmanager
def connect(destination: Destination) -> Iterator[sa.Connection]:
    """Open a connection to a destination as another program would, with SQLAlchemy."""
    url = destination.url or sa.URL.create("sqlite", database=str(destination.path))
    engine = build_engine(url)
    with engine.begin() as connection:
        yield connection
    engine.dispose()
