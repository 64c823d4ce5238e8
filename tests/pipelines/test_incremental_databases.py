"""Incremental syncs from real databases that change between and during runs: each row is created once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.databases import DATABASE_OPENERS, Database
from tests.pipelines.conftest import Connector, count_stored, has_stored, wait_for

_TABLE = {
    "postgresql": "create table customers (email text, updated_at timestamptz default clock_timestamp())",
    "mariadb": "create table customers (email varchar(80), updated_at datetime(6) default now(6))",
}
QUERY = "select email, updated_at from customers where updated_at >= :cursor"


@pytest.fixture(params=sorted(_TABLE))
def crm(request: pytest.FixtureRequest) -> Iterator[Database]:
    with DATABASE_OPENERS[request.param]() as database:
        database.run(_TABLE[request.param])
        yield database


def write_job(folder: Path, crm: Database, *, query: str = QUERY, cursor: str = "lookback: 1m") -> Path:
    path = folder / "crm.yaml"
    path.write_text(
        f'job: crm\nsource:\n  sql:\n    url: "{crm.url}"\n    query: "{query}"\n'
        f"    cursor: {{column: updated_at, start: 2000-01-01T00:00:00, {cursor}}}\n"
        "subscriber: {base: {name: News}, fields: {email: email, is_active: {value: true}}}\n"
        "load: {quiet_period: 300ms, max_concurrency: 8}\n",
        encoding="utf-8",
    )
    return path


def add_people(crm: Database, names: list[str]) -> None:
    with crm.begin() as connection:
        for name in names:
            connection.exec_driver_sql("insert into customers (email) values (%s)", (f"{name}@example.com",))


def read_people(crm: Database) -> set[str]:
    with crm.begin() as connection:
        return {str(row[0]) for row in connection.exec_driver_sql("select email from customers")}


def kill_in_the_middle(connector: Connector, job: Path, target: int) -> None:
    """Kill the run as soon as the sandbox has this many subscribers."""
    with connector.start("sync", job, "--quiet") as process:
        wait_for(lambda: has_stored(connector.sandbox, target) or process.poll() is not None)
        process.kill()
        process.communicate()


def test_a_cursor_moves_only_at_the_end_of_a_run(connector: Connector, tmp_path: Path, crm: Database) -> None:
    """All rows have one time and no look-back reads them again: a row that one run misses is lost."""
    sandbox, job = connector.sandbox, write_job(tmp_path, crm, cursor="lookback: 0s")
    sandbox.switch(latency_ms=20)
    add_people(crm, [f"first-{number}" for number in range(60)])
    for target in (1, 30, 60):
        kill_in_the_middle(connector, job, target)
    result = connector.run_json("sync", job)
    assert result.rows["read"] in (1, 60)  # 1: the last run was killed after its end
    add_people(crm, ["second"])
    after = connector.run_json("sync", job)
    assert after.rows == {"read": 2, "created": 1, "exists": 1}
    assert count_stored(sandbox) == dict.fromkeys(read_people(crm), 1)


def test_a_lookback_reads_a_row_that_is_committed_late(connector: Connector, tmp_path: Path, crm: Database) -> None:
    job = write_job(tmp_path, crm, cursor="lookback: 0s")
    with crm.begin() as slow:
        slow.exec_driver_sql(
            "insert into customers (email) values (%s)", ("late@example.com",)
        )  # the row's time is now, and no other session sees the row yet
        add_people(crm, ["early"])
        assert connector.run_json("sync", job).rows == {"read": 1, "created": 1}
    assert connector.run_json("sync", job).rows == {"read": 1, "exists": 1}
    write_job(tmp_path, crm, cursor="lookback: 1m")
    assert connector.run_json("sync", job).rows == {"read": 2, "created": 1, "exists": 1}
    assert count_stored(connector.sandbox) == dict.fromkeys(read_people(crm), 1)


BREAKING = {
    "postgresql": "select email, updated_at, 1 / divisor as n from customers where updated_at >= :cursor",
    "mariadb": (
        "select email, updated_at, if(divisor = 0, (select 1 union select 2), 1) as n from customers "
        "where updated_at >= :cursor"
    ),
}


def test_a_source_that_fails_in_the_middle_ends_the_run_before_the_first_create(
    connector: Connector, tmp_path: Path, crm: Database
) -> None:
    """Its first 20,000 rows are a chunk, of fifty people; the second chunk has a row that cannot be computed."""
    series = {"postgresql": "generate_series(1, 20100) as s(seq)", "mariadb": "seq_1_to_20100"}[crm.kind]
    crm.run(
        "alter table customers add column divisor integer",
        "insert into customers (email, updated_at, divisor) select concat('p', case when seq <= 20000 then "
        "mod(seq, 50) else seq end, '@example.com'), '2026-11-20 10:00:00', case when seq = 20050 then 0 else 1 end "
        f"from {series}",
    )
    job = write_job(tmp_path, crm, query=BREAKING[crm.kind])
    failed = connector.run_json("sync", job)
    if crm.kind == "postgresql":  # the driver says that a value is at fault, which a person must correct
        assert failed.is_refused
    else:
        assert (failed.code, failed.report["status"]) == (3, "aborted")
        assert failed.rows == {"read": 20_000, "unsent": 20_000}
        assert failed.report["messages"][-1].startswith("no cursor is kept: the run did not finish")
    assert "reading stopped after row 20000" in failed.stderr
    assert count_stored(connector.sandbox) == {}
    crm.run("update customers set divisor = 1")
    mended = connector.run_json("sync", job)
    assert (mended.code, mended.rows) == (
        0, {"read": 20_100, "created": 150, "duplicate": 19_950},
    )  # fmt: skip
    assert mended.report["messages"][-1].startswith("the cursor stands at 2026-11-20T10:00:00")
    assert count_stored(connector.sandbox) == dict.fromkeys(read_people(crm), 1)
