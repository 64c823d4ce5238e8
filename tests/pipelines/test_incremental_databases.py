"""Incremental syncs from real databases that change between and during runs: each row is created once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.databases import DATABASE_OPENERS, Database
from tests.pipelines.conftest import Connector, count_stored_emails, has_stored_subscribers, wait_for

_CREATE_TABLE_SQL = {
    "postgresql": "create table customers (email text, updated_at timestamptz default clock_timestamp())",
    "mariadb": "create table customers (email varchar(80), updated_at datetime(6) default now(6))",
}
QUERY = "select email, updated_at from customers where updated_at >= :cursor"


@pytest.fixture(params=sorted(_CREATE_TABLE_SQL))
def crm_database(request: pytest.FixtureRequest) -> Iterator[Database]:
    with DATABASE_OPENERS[request.param]() as database:
        database.run(_CREATE_TABLE_SQL[request.param])
        yield database


def write_job(folder: Path, crm_database: Database, *, query: str = QUERY, cursor_keys: str = "lookback: 1m") -> Path:
    path = folder / "crm.yaml"
    path.write_text(
        f'job: crm\nsource:\n  sql:\n    url: "{crm_database.url}"\n    query: "{query}"\n'
        f"    cursor: {{column: updated_at, start: 2000-01-01T00:00:00, {cursor_keys}}}\n"
        "subscriber: {base: {name: News}, fields: {email: email, is_active: {value: true}}}\n"
        "load: {quiet_period: 300ms, max_concurrency: 8}\n",
        encoding="utf-8",
    )
    return path


def add_people(crm_database: Database, names: list[str]) -> None:
    with crm_database.begin() as connection:
        for name in names:
            connection.exec_driver_sql("insert into customers (email) values (%s)", (f"{name}@example.com",))


def read_people(crm_database: Database) -> set[str]:
    with crm_database.begin() as connection:
        return {str(row[0]) for row in connection.exec_driver_sql("select email from customers")}


def kill_in_the_middle(connector: Connector, job: Path, subscriber_count: int) -> None:
    """Kill the run as soon as the sandbox has this many subscribers."""
    with connector.start("sync", job, "--quiet") as process:
        wait_for(lambda: has_stored_subscribers(connector.sandbox, subscriber_count) or process.poll() is not None)
        process.kill()
        process.communicate()


def test_a_cursor_moves_only_at_the_end_of_a_run(connector: Connector, tmp_path: Path, crm_database: Database) -> None:
    """All rows have the same time, and no look-back reads them again, so a row that one run misses would be lost."""
    sandbox, job = connector.sandbox, write_job(tmp_path, crm_database, cursor_keys="lookback: 0s")
    sandbox.switch(latency_ms=20)
    add_people(crm_database, [f"first-{index}" for index in range(60)])
    for subscriber_count in (1, 30, 60):
        kill_in_the_middle(connector, job, subscriber_count)
    result = connector.run_json("sync", job)
    assert result.rows["read"] in (1, 60)  # 1 if the last run was killed after it had moved the cursor
    add_people(crm_database, ["second"])
    result_after_commit = connector.run_json("sync", job)
    assert result_after_commit.rows == {"read": 2, "created": 1, "exists": 1}
    assert count_stored_emails(sandbox) == dict.fromkeys(read_people(crm_database), 1)


def test_a_lookback_reads_a_row_that_is_committed_late(
    connector: Connector, tmp_path: Path, crm_database: Database
) -> None:
    job = write_job(tmp_path, crm_database, cursor_keys="lookback: 0s")
    with crm_database.begin() as slow_transaction:
        # The row's time is now, and no other session sees the row yet.
        slow_transaction.exec_driver_sql("insert into customers (email) values (%s)", ("late@example.com",))
        add_people(crm_database, ["early"])
        assert connector.run_json("sync", job).rows == {"read": 1, "created": 1}
    assert connector.run_json("sync", job).rows == {"read": 1, "exists": 1}
    write_job(tmp_path, crm_database, cursor_keys="lookback: 1m")
    assert connector.run_json("sync", job).rows == {"read": 2, "created": 1, "exists": 1}
    assert count_stored_emails(connector.sandbox) == dict.fromkeys(read_people(crm_database), 1)


FAILING_QUERIES = {
    "postgresql": "select email, updated_at, 1 / divisor as n from customers where updated_at >= :cursor",
    "mariadb": (
        "select email, updated_at, if(divisor = 0, (select 1 union select 2), 1) as n from customers "
        "where updated_at >= :cursor"
    ),
}


def test_a_source_that_fails_in_the_middle_ends_the_run_before_the_first_create(
    connector: Connector, tmp_path: Path, crm_database: Database
) -> None:
    """The first chunk is 20,000 rows of fifty people. The second chunk has a row that cannot be computed."""
    series_sql = {"postgresql": "generate_series(1, 20100) as s(seq)", "mariadb": "seq_1_to_20100"}[crm_database.kind]
    crm_database.run(
        "alter table customers add column divisor integer",
        "insert into customers (email, updated_at, divisor) select concat('p', case when seq <= 20000 then "
        "mod(seq, 50) else seq end, '@example.com'), '2026-11-20 10:00:00', case when seq = 20050 then 0 else 1 end "
        f"from {series_sql}",
    )
    job = write_job(tmp_path, crm_database, query=FAILING_QUERIES[crm_database.kind])
    failed_result = connector.run_json("sync", job)
    if crm_database.kind == "postgresql":  # the driver says that a value is at fault, which a person must correct
        assert failed_result.is_refused
    else:
        assert (failed_result.exit_code, failed_result.report["status"]) == (3, "aborted")
        assert failed_result.rows == {"read": 20_000, "unsent": 20_000}
        assert failed_result.report["messages"][-1].startswith("no cursor is kept: the run did not finish")
    assert "reading stopped after row 20000" in failed_result.stderr
    assert count_stored_emails(connector.sandbox) == {}
    crm_database.run("update customers set divisor = 1")
    corrected_result = connector.run_json("sync", job)
    assert (corrected_result.exit_code, corrected_result.rows) == (
        0, {"read": 20_100, "created": 150, "duplicate": 19_950},
    )  # fmt: skip
    assert corrected_result.report["messages"][-1].startswith("the cursor stands at 2026-11-20T10:00:00")
    assert count_stored_emails(connector.sandbox) == dict.fromkeys(read_people(crm_database), 1)
