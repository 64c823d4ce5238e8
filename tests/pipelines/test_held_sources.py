"""A slow load closes the connection to its source and keeps the rows on disk, so other programs can write."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.databases import DATABASE_OPENER_BY_KIND, Database
from tests.pipelines.conftest import Connector, wait_for, wait_for_result
from tests.pipelines.emails.test_mail_command import write_job as write_mail_job

PEOPLE_COUNT = int(os.environ.get("CONNECTOR_TEST_HELD_PEOPLE", "200"))
CREATES_PER_S = 250 if PEOPLE_COUNT > 10_000 else 100  # max_rate of the job
DATABASE_TIMEOUT_S = 1  # the database closes the connection of a client that reads nothing for this long

_QUERIES_OF_PEOPLE = {
    "postgresql": "select 'p' || n || '@example.com', true from generate_series(1, {number}) as s(n)",
    "sqlite": (
        "with recursive s(n) as (select 1 union all select n + 1 from s where n < {number}) "
        "select 'p' || n || '@example.com', 1 from s"
    ),
}
_CONNECTION_COUNT_QUERY = (
    "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
)


@contextmanager
def open_impatient_database(database_kind: str) -> Iterator[Database]:
    """Open a database with rows. The database soon closes the connection of a client that does not read its result."""
    with DATABASE_OPENER_BY_KIND[database_kind]() as database:
        if database_kind == "postgresql":
            name = database.url.rpartition("/")[2].partition("?")[0]
            database.run(f"alter database {name} set idle_in_transaction_session_timeout = '{DATABASE_TIMEOUT_S}s'")
        database.run(
            "create table customers (email varchar(80), is_active boolean)",
            f"insert into customers {_QUERIES_OF_PEOPLE[database_kind].format(number=PEOPLE_COUNT)}",
        )
        yield database


def count_readers(database: Database) -> int:
    """Return the number of other connections to the database, or of processes that have the SQLite file open."""
    if database.kind == "sqlite":
        path = database.url.removeprefix("sqlite:///")
        return sum(_has_file_open(process_folder, path) for process_folder in Path("/proc").glob("[0-9]*"))
    with database.begin() as connection:
        return int(connection.exec_driver_sql(_CONNECTION_COUNT_QUERY).scalar_one())


def _has_file_open(process_folder: Path, path: str) -> bool:
    try:
        return any(os.path.realpath(link) == path for link in (process_folder / "fd").iterdir())
    except OSError:
        return False


def write_job(connector: Connector, database: Database, guard_line: str = "") -> Path:
    return connector.write_job(
        guard_line,
        source=f"sql: {{url: '{database.url}', table: customers}}",
        base="id: 7",
        fields="email: email, is_active: is_active",
        load=f"quiet_period: 300ms, max_rate: {CREATES_PER_S}",
    )


@pytest.mark.parametrize(("database_kind", "guard_line"), [("postgresql", ""), ("sqlite", "guard: {max_invalid: 10%}")])
def test_a_slow_load_holds_no_connection_and_no_lock(connector: Connector, database_kind: str, guard_line: str) -> None:
    with open_impatient_database(database_kind) as database:
        write_job(connector, database, guard_line)
        with connector.start("sync", "job.yaml", "--output", "json") as process:
            wait_for(lambda: connector.sandbox.stats()["subscribers"] >= 5 or process.poll() is not None)
            assert count_readers(database) == 0
            if database_kind == "sqlite":  # if the load held a lock, this update would fail
                path = database.url.removeprefix("sqlite:///")
                with closing(sqlite3.connect(path, timeout=0)) as other_connection, other_connection:
                    other_connection.execute("update customers set is_active = 1")
            else:
                database.run("set lock_timeout = '1s'", "update customers set is_active = true")
            result = wait_for_result(process)
        result.expect(0, read=PEOPLE_COUNT, created=PEOPLE_COUNT)
        assert set(connector.count_creates_by_email().values()) == {1}


def test_a_campaign_closes_its_source_before_the_first_email(connector: Connector) -> None:
    with open_impatient_database("postgresql") as database:
        source = {"sql": {"url": database.url, "table": "customers"}}
        mail = {"to": "email", "subject": "Hello", "html": {"content": "Hi"}, "retry_limited": True}
        job = write_mail_job(connector.folder, mail, source=source, load={"max_rate": 100})
        with connector.start("mail", job, "--output", "json") as process:
            wait_for(lambda: connector.sandbox.stats()["emails"] > 0 or process.poll() is not None)
            assert count_readers(database) == 0
            result = wait_for_result(process)
        result.expect(0, read=PEOPLE_COUNT, sent=PEOPLE_COUNT)


def test_a_reconciliation_closes_its_source_before_it_reads_the_list(connector: Connector) -> None:
    with open_impatient_database("sqlite") as database:
        write_job(connector, database)
        connector.sandbox.switch(latency_ms=700)
        with connector.start("reconcile", "job.yaml", "--output", "json") as process:
            wait_for(lambda: "list" in connector.sandbox.stats()["requests"] or process.poll() is not None)
            assert count_readers(database) == 0
            result = wait_for_result(process)
        assert result.rows == {"read": PEOPLE_COUNT, "valid": PEOPLE_COUNT}, result.stderr
