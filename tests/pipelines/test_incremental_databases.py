"""Incremental sync from real databases that change between and during runs, the process killed in between: the
sandbox's truth holds everybody of the database, each once."""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest
import sqlalchemy as sa

from tests.databases import OPEN, Database
from tests.pipelines.conftest import Connector, Ended, count_stored, has_stored, wait_for

ROUNDS = int(os.environ.get("CONNECTOR_TEST_KILLS", "5")) * 3 // 5  # two of three are killed
LOSSES = {"drop_before": 0.01, "drop_after": 0.01, "error_before": 0.01, "error_after": 0.01, "garbage_after": 0.01}
BEHIND = 40  # people that are added before each run; as many may come during it
_TABLE = {
    "postgresql": "create table customers (email text, updated_at timestamptz default clock_timestamp())",
    "mariadb": "create table customers (email varchar(80), updated_at datetime(6) default now(6))",
}
QUERY = "select email, updated_at from customers where updated_at >= :cursor"


@pytest.fixture(params=sorted(_TABLE))
def crm(request: pytest.FixtureRequest) -> Iterator[Database]:
    with OPEN[request.param]() as database:
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


@contextmanager
def changing(crm: Database, prefix: str) -> Iterator[None]:
    """Meanwhile somebody adds people and touches others, each in a transaction of its own."""
    is_over = Event()

    def change() -> None:
        chance = random.Random(prefix)
        for number in range(BEHIND):
            if is_over.wait(0.02):
                return
            add_people(crm, [f"{prefix}-{number}"])
            email = f"{prefix}-{chance.randrange(number + 1)}@example.com"
            with crm.begin() as connection:
                now = "clock_timestamp()" if crm.kind == "postgresql" else "now(6)"
                connection.exec_driver_sql(f"update customers set updated_at = {now} where email = %s", (email,))

    thread = Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def read_people(crm: Database) -> set[str]:
    with crm.begin() as connection:
        return {str(row[0]) for row in connection.exec_driver_sql("select email from customers")}


def kill_in_the_middle(connector: Connector, job: Path, target: int) -> None:
    """Kill the run as soon as so many are stored."""
    with connector.start("sync", job, "--quiet") as process:
        wait_for(lambda: has_stored(connector.sandbox, target) or process.poll() is not None)
        process.kill()
        process.communicate()


@pytest.mark.campaign
def test_killed_again_and_again_while_the_source_changes_nobody_is_missed_or_there_twice(
    connector: Connector, tmp_path: Path, crm: Database
) -> None:
    sandbox, chance, job = connector.sandbox, random.Random(5), write_job(tmp_path, crm)
    sandbox.switch(latency_ms=30, **LOSSES)
    runs: list[Ended] = []
    for each in range(ROUNDS):
        add_people(crm, [f"before-{each}-{number}" for number in range(BEHIND)])
        with changing(crm, f"during-{each}"):
            if each % 3 == 2:
                runs.append(connector.run_json("sync", job))
            else:
                target = sandbox.stats()["subscribers"] + chance.randrange(1, BEHIND)
                kill_in_the_middle(connector, job, target)
        assert max(count_stored(sandbox).values(), default=0) <= 1, f"after round {each}"
    assert [run.code for run in runs] == [0] * len(runs)
    assert connector.run_json("sync", job).code == 0
    stored = count_stored(sandbox)
    assert set(stored) == read_people(crm)
    assert set(stored.values()) == {1}


def test_a_cursor_moves_only_as_a_run_ends_whatever_moment_it_is_killed_at(
    connector: Connector, tmp_path: Path, crm: Database
) -> None:
    """Without a look-back, and everything at once: whoever is left out once is left out for good."""
    sandbox, job = connector.sandbox, write_job(tmp_path, crm, cursor="lookback: 0s")
    sandbox.switch(latency_ms=20)
    add_people(crm, [f"first-{number}" for number in range(60)])
    for target in (1, 30, 60):
        kill_in_the_middle(connector, job, target)
    ended = connector.run_json("sync", job)
    assert ended.rows["read"] in (1, 60)  # 1: the last one was killed after it had ended
    add_people(crm, ["second"])
    after = connector.run_json("sync", job)
    assert after.rows == {"read": 2, "created": 1, "exists": 1}
    assert count_stored(sandbox) == dict.fromkeys(read_people(crm), 1)


def add_late(connection: sa.Connection, name: str) -> None:
    connection.exec_driver_sql("insert into customers (email) values (%s)", (f"{name}@example.com",))


@pytest.mark.parametrize(("cursor", "rows"), [("lookback: 1m", {"read": 2, "created": 1, "exists": 1}),
                                              ("lookback: 0s", {"read": 1, "exists": 1})])  # fmt: skip
def test_a_row_that_is_committed_late_is_what_a_lookback_is_for(
    connector: Connector, tmp_path: Path, crm: Database, cursor: str, rows: dict[str, int]
) -> None:
    job = write_job(tmp_path, crm, cursor=cursor)
    with crm.begin() as slow:
        add_late(slow, "late")  # its time is now, and nobody sees it yet
        add_people(crm, ["early"])
        assert connector.run_json("sync", job).rows == {"read": 1, "created": 1}
    assert connector.run_json("sync", job).rows == rows
    assert connector.run_json("sync", job, "--full").rows["read"] == 2
    assert count_stored(connector.sandbox) == dict.fromkeys(read_people(crm), 1)


BREAKING = {
    "postgresql": "select email, updated_at, 1 / divisor as n from customers where updated_at >= :cursor",
    "mariadb": (
        "select email, updated_at, if(divisor = 0, (select 1 union select 2), 1) as n from customers "
        "where updated_at >= :cursor"
    ),
}


def test_a_source_that_fails_in_the_middle_leaves_a_run_that_the_next_one_finishes(
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
    assert (failed.code, failed.report["status"]) == (3, "aborted")
    assert failed.rows == {"read": 20_000, "created": 50, "duplicate": 19_950}
    assert "reading stopped after row 20000" in failed.stderr
    assert failed.report["messages"][-1].startswith("no cursor is kept: the run did not come to its end")
    crm.run("update customers set divisor = 1")
    mended = connector.run_json("sync", job)
    assert (mended.code, mended.rows) == (
        0, {"read": 20_100, "created": 100, "exists": 50, "duplicate": 19_950},
    )  # fmt: skip
    assert mended.report["messages"][-1].startswith("the cursor stands at 2026-11-20T10:00:00")
    assert count_stored(connector.sandbox) == dict.fromkeys(read_people(crm), 1)
