"""`sync --shard I/N`: runs at the same time, each with a range of the identities, over one ledger in PostgreSQL.

`CONNECTOR_TEST_ENGINE_PEOPLE=100000 pytest tests/pipelines/test_shards.py -k killed` is the campaign: four processes,
of which one is killed every ten seconds.
"""

import os
import random
import signal
import sqlite3
import time
from functools import partial
from pathlib import Path

import pytest

from tests.ledger.places import run_sql
from tests.ledger.test_postgres import SESSIONS_SQL
from tests.pipelines.conftest import Connector, count_stored, has_stored, wait_for
from tests.pipelines.sharded import (
    FAULTS,
    IS_CAMPAIGN,
    JOB,
    LOSSES,
    MANY,
    ODD,
    PEOPLE,
    close_process,
    has_everyone_once,
    start_shard,
    sum_rows,
    sync_shards,
    write_job,
)

MOST_KILLS = 1000 if IS_CAMPAIGN else 4
SHARDS = 3


def test_shards_send_each_row_once_and_count_each_row_once(postgres_connector: Connector, tmp_path: Path) -> None:
    write_job(tmp_path)
    postgres_connector.sandbox.switch(latency_ms=5, list_lag_ms=100, **FAULTS)
    result = sync_shards(postgres_connector, SHARDS)
    assert {each.code for each in result} <= {0, 1}, [each.stderr for each in result]
    assert sum_rows(result) == {"read": PEOPLE + 5, "created": PEOPLE, **ODD}, [each.stderr for each in result]
    assert min(each.rows["created"] for each in result) > PEOPLE // SHARDS - 75
    assert has_everyone_once(postgres_connector)


def test_another_number_of_shards_and_a_whole_run_create_nothing_twice(
    postgres_connector: Connector, tmp_path: Path
) -> None:
    write_job(tmp_path, people=200)
    for count in (2, 5):
        assert {sync_shard.code for sync_shard in sync_shards(postgres_connector, count)} <= {0, 1}
    whole = postgres_connector.run_json("sync", "job.yaml")
    assert whole.rows == {"read": 205, "exists": 200, **ODD}
    assert has_everyone_once(postgres_connector, 200)


def test_a_run_that_overlaps_a_running_shard_is_refused(postgres_connector: Connector, tmp_path: Path) -> None:
    write_job(tmp_path, people=200)
    one_by_one = (tmp_path / "job.yaml").read_text().replace("500ms}", "500ms, max_concurrency: 4}")
    (tmp_path / "job.yaml").write_text(one_by_one)
    postgres_connector.sandbox.switch(latency_ms=500)
    process = start_shard(postgres_connector, 1, 4)
    wait_for(lambda: has_stored(postgres_connector.sandbox, 1))
    for options in (("--shard", "1/4"), ("--shard", "2/3"), ()):
        result = postgres_connector.run_json("sync", "job.yaml", *options)
        assert (result.code, result.report["status"]) == (4, "locked"), result.stderr
        assert "is held by a run of shard 1/4 (process " in result.stderr
    postgres_connector.sandbox.switch(latency_ms=0)
    beside = postgres_connector.run_json("sync", "job.yaml", "--shard", "2/4")
    assert (beside.code, close_process(process).code) in ((0, 0), (0, 1), (1, 0), (1, 1))


def test_killed_shards_that_run_again_lose_and_repeat_no_create(postgres_connector: Connector, tmp_path: Path) -> None:
    write_job(tmp_path, people=MANY)
    postgres_connector.sandbox.switch(latency_ms=40, **LOSSES)
    rng, kills = random.Random(3), 0
    processes = {index: start_shard(postgres_connector, index, 4) for index in range(1, 5)}
    while any(each.poll() is None for each in processes.values()) and kills < MOST_KILLS:
        time.sleep(10.0 if IS_CAMPAIGN else rng.uniform(0.3, 2.0))
        index = rng.choice(list(processes))
        if processes[index].poll() is not None:  # the last shard must live longer than its look at the list takes
            continue
        if kills == 0:
            other = postgres_connector.run_json("sync", "job.yaml", "--shard", "2/5")
            assert (other.code, "is held by a run of shard" in other.stderr) == (4, True), other.stderr
        with processes[index] as process:
            process.kill()
            process.communicate()
        processes[index], kills = start_shard(postgres_connector, index, 4), kills + 1
    result = [close_process(each) for each in processes.values()]
    print(f"{kills} kills, exit codes {[each.code for each in result]}, {sum_rows(result)}")
    assert {each.code for each in result} <= {0, 1}, [each.stderr for each in result]
    assert sum_rows(result)["read"] == MANY + 5
    stored, rows = count_stored(postgres_connector.sandbox), sum_rows(result)
    assert {each: number for each, number in stored.items() if number > 1} == {}
    assert len(stored) + rows.get("unknown", 0) + rows.get("rejected", 0) >= MANY
    assert kills > 0


def test_a_run_that_stops_beyond_its_lease_repeats_no_create_of_another_run(
    postgres_connector: Connector, tmp_path: Path
) -> None:
    """The run waits in a pause after it has recorded intents. It loses its session, and its lease of 8 s ends."""
    write_job(tmp_path, people=120)
    slowly = (tmp_path / "job.yaml").read_text().replace("500ms}", "500ms, max_rate: 20}")
    (tmp_path / "job.yaml").write_text(slowly)
    postgres_connector.sandbox.switch(duplicates="accept", latency_ms=50)
    resting = postgres_connector.start("sync", "job.yaml", "--output", "json", lease_s=8.0)
    for retry_after_s, created in ((1, 10), (5, 20)):  # only the first 429 of a run is looked up
        wait_for(partial(has_stored, postgres_connector.sandbox, created + 1))
        refused = postgres_connector.sandbox.stats()["faults"].get("refuse", 0)
        postgres_connector.sandbox.switch(refuse=1, refuse_retry_after_s=retry_after_s)
        wait_for(lambda number=refused: postgres_connector.sandbox.stats()["faults"].get("refuse", 0) > number)  # type: ignore[misc]
        postgres_connector.sandbox.switch(refuse=0)
    time.sleep(0.5)
    os.kill(resting.pid, signal.SIGSTOP)
    run_sql(postgres_connector.environ["CONNECTOR_LEDGER"], f"SELECT pg_terminate_backend(pid, 5000) {SESSIONS_SQL}")
    following = postgres_connector.run_json("sync", "job.yaml", "--wait", "60s")
    os.kill(resting.pid, signal.SIGCONT)
    late = close_process(resting)
    assert (following.code, late.code) == (1, 3), late.stderr
    assert has_everyone_once(postgres_connector, 120)


def test_each_shard_has_its_own_cursor(postgres_connector: Connector, tmp_path: Path) -> None:
    def add(*numbers: int) -> None:
        with sqlite3.connect(tmp_path / "crm.db") as crm:
            crm.execute("CREATE TABLE IF NOT EXISTS people (id INTEGER, email TEXT, first_name TEXT)")
            crm.executemany("INSERT INTO people VALUES (?, ?, 'Ann')", [(n, f"person{n}@example.com") for n in numbers])

    table = "source: {sql: {url: 'sqlite:///crm.db', table: people, cursor: {column: id, start: 0}}}"
    (tmp_path / "job.yaml").write_text(JOB.replace("source: {file: {path: people.csv}}", table))
    add(*range(20))
    first = postgres_connector.run_json("sync", "job.yaml", "--shard", "1/2")
    add(20, 21, 22, 23)
    result = sync_shards(postgres_connector, 2)
    assert (sum_rows(result)["created"], has_everyone_once(postgres_connector, 24)) == (
        24 - first.rows["created"],
        True,
    )
    assert result[0].rows.get("exists", 0) <= 1  # the row at which the cursor stands is read again
    assert postgres_connector.run_json("sync", "job.yaml").rows == {"read": 24, "exists": 24}


def test_a_shard_has_its_part_of_each_limit(postgres_connector: Connector, tmp_path: Path) -> None:
    write_job(tmp_path, "guard: {max_creates: 40}", people=60)
    refused = postgres_connector.run_json("sync", "job.yaml", "--shard", "1/2")
    assert (refused.code, "and 20 are allowed" in refused.stderr) == (3, True), refused.stderr
    job = (tmp_path / "job.yaml").read_text().replace("max_creates: 40", "max_creates: 400")
    (tmp_path / "job.yaml").write_text(job.replace("quiet_period: 500ms", "quiet_period: 500ms, max_rate: 20"))
    began_at = time.monotonic()
    result = postgres_connector.run_json("sync", "job.yaml", "--shard", "1/2")
    assert time.monotonic() - began_at > (result.rows["created"] - 10) / 10


def test_an_impossible_use_of_shards_is_refused_before_the_first_create(
    postgres_connector: Connector, tmp_path: Path
) -> None:
    write_job(tmp_path, people=3)
    refused = {
        ("--shard", "4/3"): "is not a shard",
        ("--shard", "1/3", "--dry-run"): "leave out --shard",
        ("--shard", "1/3", "--engine", "dask"): "Use one of the two",
        ("--workers", "2"): "need --engine dask",
        ("--engine", "dask", "--workers", "2", "--scheduler", "tcp://127.0.0.1:9"): "Use one of the two",
    }
    for options, words in refused.items():
        result = postgres_connector.run("sync", "job.yaml", *options)
        assert (result.code, words in result.stderr) == (2, True), (options, result.stderr)
    for options in (("--shard", "1/2"), ("--engine", "dask")):
        result = postgres_connector.run("sync", "job.yaml", *options, environ={"CONNECTOR_LEDGER": None})
        assert (result.code, "set CONNECTOR_LEDGER=postgresql://" in result.stderr) == (2, True), result.stderr
    (tmp_path / "job.yaml").write_text(JOB.replace("{id: 7}", "{name: Newsletter}"))
    result = postgres_connector.run("sync", "job.yaml", "--shard", "1/2")
    assert (result.code, "Give the base by its id" in result.stderr) == (2, True), result.stderr
    assert not postgres_connector.sandbox.truth()["events"]


@pytest.mark.parametrize("rows", [(), ("person1@example.com,Ann",)])
def test_an_empty_file_is_refused_by_every_shard_and_an_empty_shard_is_not(
    postgres_connector: Connector, tmp_path: Path, rows: tuple[str, ...]
) -> None:
    write_job(tmp_path)
    (tmp_path / "people.csv").write_text("\n".join(["email,first_name", *rows, ""]))
    result = sync_shards(postgres_connector, 2)
    assert [each.code for each in result] == ([0, 0] if rows else [3, 3])
    assert sum_rows(result) == ({"read": 1, "created": 1} if rows else {})
