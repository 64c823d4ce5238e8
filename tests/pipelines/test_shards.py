"""Parallel runs of `sync --shard I/N` share one ledger in PostgreSQL. Each run has its own range of the identities.

`CONNECTOR_TEST_ENGINE_PEOPLE=100000 pytest tests/pipelines/test_shards.py -k killed` runs a long test: four
processes load the rows, and the test kills one process every ten seconds.
"""

import os
import random
import signal
import time

import pytest

from tests.ledger.places import run_sql
from tests.ledger.test_postgres import SESSIONS_SQL
from tests.pipelines.conftest import Connector, wait_for
from tests.pipelines.sharded import (
    ENGINE_FAULTS,
    IS_LONG_RUN,
    KILL_TEST_PEOPLE_COUNT,
    UNUSED_ROW_COUNTS,
    finish_process,
    has_each_person_once,
    start_shard,
    sum_rows,
    sync_shards,
    write_files,
    write_job,
)

MAX_KILL_COUNT = 1000 if IS_LONG_RUN else 4
SHARD_COUNT = 3


def test_a_sync_with_another_number_of_shards_creates_nobody_twice(postgres_connector: Connector) -> None:
    write_files(postgres_connector, person_count=200)
    for shard_count in (2, 3):
        assert {result.exit_code for result in sync_shards(postgres_connector, shard_count)} <= {0, 1}
    postgres_connector.sync().expect_rows(read=205, exists=200, **UNUSED_ROW_COUNTS)
    assert has_each_person_once(postgres_connector, 200)


def test_each_row_has_an_outcome_and_at_most_one_create_if_shards_are_killed(postgres_connector: Connector) -> None:
    write_files(postgres_connector, person_count=KILL_TEST_PEOPLE_COUNT)
    postgres_connector.sandbox.switch(latency_ms=40, **ENGINE_FAULTS)
    rng, kill_count = random.Random(3), 0
    processes = {index: start_shard(postgres_connector, index, 4) for index in range(1, 5)}
    while any(process.poll() is None for process in processes.values()) and kill_count < MAX_KILL_COUNT:
        time.sleep(10.0 if IS_LONG_RUN else rng.uniform(0.3, 2.0))
        index = rng.choice(list(processes))
        if processes[index].poll() is not None:  # the shard has ended, so another shard is killed
            continue
        if kill_count == 0:
            other_result = postgres_connector.sync("job.yaml", "--shard", "2/5")
            assert other_result.exit_code == 4, other_result.stderr
            assert "is held by a run of shard" in other_result.stderr
        with processes[index] as process:
            process.kill()
            process.communicate()
        processes[index], kill_count = start_shard(postgres_connector, index, 4), kill_count + 1
    results = [finish_process(process) for process in processes.values()]
    print(f"{kill_count} kills, exit codes {[process.exit_code for process in results]}, {sum_rows(results)}")
    assert {process.exit_code for process in results} <= {0, 1}, [process.stderr for process in results]
    assert sum_rows(results)["read"] == KILL_TEST_PEOPLE_COUNT + 5
    create_counts, rows = postgres_connector.count_creates_by_email(), sum_rows(results)
    assert {address: create_count for address, create_count in create_counts.items() if create_count > 1} == {}
    assert len(create_counts) + rows.get("unknown", 0) + rows.get("rejected", 0) >= KILL_TEST_PEOPLE_COUNT
    assert kill_count > 0


def test_each_person_is_created_once_if_a_run_continues_after_the_end_of_its_lease(
    postgres_connector: Connector,
) -> None:
    """The run has recorded its next creates and waits in a pause of the service. Then the run loses its database
    session, and its lease of 8 s ends."""
    write_files(postgres_connector, person_count=120, load="max_rate: 20")
    postgres_connector.sandbox.switch(duplicates="accept", latency_ms=50)
    paused_process = postgres_connector.start("sync", "job.yaml", "--output", "json", lease_s=8.0)
    # Cause two pauses. The process is stopped (SIGSTOP) during the second pause, which is longer.
    for retry_after_s, created_count in ((1, 10), (5, 20)):
        postgres_connector.wait_for_subscribers(created_count + 1)
        refused_count = postgres_connector.sandbox.stats()["faults"].get("refuse", 0)
        postgres_connector.sandbox.switch(refuse=1, refuse_retry_after_s=retry_after_s)
        wait_for(lambda count=refused_count: postgres_connector.sandbox.stats()["faults"].get("refuse", 0) > count)  # type: ignore[misc]
        postgres_connector.sandbox.switch(refuse=0)
    time.sleep(0.5)
    os.kill(paused_process.pid, signal.SIGSTOP)
    run_sql(postgres_connector.environ["CONNECTOR_LEDGER"], f"SELECT pg_terminate_backend(pid, 5000) {SESSIONS_SQL}")
    next_result = postgres_connector.sync("job.yaml", "--wait", "60s")
    os.kill(paused_process.pid, signal.SIGCONT)
    late_result = finish_process(paused_process)
    assert (next_result.exit_code, late_result.exit_code) == (1, 3), late_result.stderr
    assert has_each_person_once(postgres_connector, 120)


def test_each_shard_has_its_own_cursor(postgres_connector: Connector) -> None:
    def add_people(*person_numbers: int) -> None:
        rows = [(number, f"person{number}@example.com", "Ann") for number in person_numbers]
        postgres_connector.crm.insert_rows("people", rows)

    postgres_connector.crm.run("CREATE TABLE people (id INTEGER, email TEXT, first_name TEXT)")
    source = "sql: {url: 'sqlite:///crm.db', table: people, cursor: {column: id, start: 0}}"
    write_job(postgres_connector, source=source)
    add_people(*range(20))
    first_result = postgres_connector.sync("job.yaml", "--shard", "1/2")
    add_people(20, 21, 22, 23)
    results = sync_shards(postgres_connector, 2)
    assert sum_rows(results)["created"] == 24 - first_result.rows["created"]
    assert has_each_person_once(postgres_connector, 24)
    assert results[0].rows.get("exists", 0) <= 1  # the run also reads the last row of the previous run again
    assert postgres_connector.sync().rows == {"read": 24, "exists": 24}


def test_a_shard_is_refused_if_the_job_gives_its_base_by_name(postgres_connector: Connector) -> None:
    write_files(postgres_connector, person_count=3, base="name: Newsletter")
    result = postgres_connector.run("sync", "job.yaml", "--shard", "1/2")
    assert (result.exit_code, "Give the base by its id" in result.stderr) == (2, True), result.stderr
    assert not postgres_connector.sandbox.truth()["events"]


@pytest.mark.parametrize("rows", [(), ("person1@example.com,Ann",)])
def test_a_shard_without_rows_is_accepted_only_if_another_shard_has_a_row(
    postgres_connector: Connector, rows: tuple[str, ...]
) -> None:
    write_job(postgres_connector)
    postgres_connector.write_people("email,first_name", *rows)
    results = sync_shards(postgres_connector, 2)
    assert [result.exit_code for result in results] == ([0, 0] if rows else [3, 3])
    assert sum_rows(results) == ({"read": 1, "created": 1} if rows else {})
