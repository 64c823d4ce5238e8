"""Runs that are killed or stopped, and the runs after them."""

import os
import random
import signal
import sqlite3
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from tests.pipelines.conftest import (
    Connector,
    count_stored_emails,
    has_stored_subscribers,
    wait_for,
    wait_for_result,
    write_addresses,
)

KILL_COUNT = int(os.environ.get("CONNECTOR_TEST_KILLS", "5"))
FAULTS = {"drop_before": 0.01, "drop_after": 0.01, "error_before": 0.01, "error_after": 0.01, "garbage_after": 0.01}
PEOPLE_COUNT = 100 * (KILL_COUNT + 1)


@pytest.mark.parametrize("connector_fixture_name", ["connector", "postgres_connector"], ids=["sqlite", "postgresql"])
def test_an_import_that_is_killed_at_random_moments_loses_and_repeats_no_create(
    connector_fixture_name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    connector: Connector = request.getfixturevalue(connector_fixture_name)
    sandbox, rng = connector.sandbox, random.Random(11)
    sandbox.switch(latency_ms=40, **FAULTS)
    path = write_addresses(tmp_path / "people.csv", PEOPLE_COUNT)
    arguments = ("import", path, "--base-name", "News", "--quiet-period", "300ms", "--max-concurrency", "8")
    for kill_index in range(KILL_COUNT):
        with connector.start(*arguments) as process:
            target_count = sandbox.stats()["subscribers"] + rng.randrange(1, 100)
            wait_for(partial(has_stored_subscribers, sandbox, target_count))
            process.kill()
        assert max(count_stored_emails(sandbox).values(), default=0) <= 1, f"after kill {kill_index}"
    result = connector.run_json(*arguments)
    assert result.exit_code == 0, result.stdout
    create_counts = count_stored_emails(sandbox)
    assert len(create_counts) == PEOPLE_COUNT
    assert set(create_counts.values()) == {1}
    assert result.rows["read"] == PEOPLE_COUNT
    assert result.rows["created"] + result.rows["exists"] == PEOPLE_COUNT


@pytest.mark.parametrize(("signal_number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_the_run_cleanly_and_the_next_run_continues(
    connector: Connector, tmp_path: Path, signal_number: signal.Signals, exit_code: int
) -> None:
    sandbox = connector.sandbox
    sandbox.switch(latency_ms=50)
    path = write_addresses(tmp_path / "people.csv", 300)
    arguments = ("import", path, "--base-name", "News", "--max-concurrency", "4", "--output", "json")
    with connector.start(*arguments) as process:
        wait_for(lambda: sandbox.stats()["subscribers"] >= 20)
        process.send_signal(signal_number)
        stopped_result = wait_for_result(process)
    create_counts = count_stored_emails(sandbox)
    assert (stopped_result.exit_code, stopped_result.report["status"]) == (exit_code, "stopped")
    assert stopped_result.rows == {"read": 300, "created": len(create_counts), "unsent": 300 - len(create_counts)}
    sandbox.switch(latency_ms=0)
    finished_result = connector.run_json(*arguments)
    assert finished_result.rows == {"read": 300, "created": 300 - len(create_counts), "exists": len(create_counts)}


def test_a_second_signal_ends_the_run_at_once_and_repeats_no_create(connector: Connector, tmp_path: Path) -> None:
    sandbox = connector.sandbox
    path = write_addresses(tmp_path / "people.csv", 100)
    arguments = ("import", path, "--base-name", "News", "--quiet-period", "300ms", "--output", "json")
    sandbox.switch(hang_after=1, list_lag_ms=3000)  # only the ledger has the create when the next run begins
    with connector.start(*arguments) as process:
        wait_for(lambda: sandbox.stats()["subscribers"] >= 1)
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)  # without this pause, the process would receive both signals as one signal
        process.send_signal(signal.SIGINT)
        started_at = time.monotonic()
        process.communicate(timeout=30)
    assert process.returncode == 130
    assert time.monotonic() - started_at < 5
    sandbox.switch(hang_after=0)
    assert connector.run_json(*arguments).rows == {"read": 100, "exists": 1, "created": 99}
    assert set(count_stored_emails(sandbox).values()) == {1}


def test_creates_that_hang_after_a_signal_are_unknown_after_the_grace_period(
    connector: Connector, tmp_path: Path
) -> None:
    """The time-out of the request is 30 s, longer than the grace period."""
    sandbox, path = connector.sandbox, write_addresses(tmp_path / "people.csv", 50)
    assert connector.import_file(write_addresses(tmp_path / "first.csv", 1)).exit_code == 0
    arguments = ("import", path, "--base-name", "News", "--max-concurrency", "4", "--quiet-period", "200ms")
    sandbox.switch(latency_ms=100)
    with connector.start(*arguments, "--output", "json") as process:
        # The first creates into a base with subscribers are sent one at a time.
        wait_for(partial(has_stored_subscribers, sandbox, 20))
        sandbox.switch(hang_after=1)
        wait_for(lambda: sandbox.stats()["faults"].get("hang_after", 0) >= 1)
        started_at = time.monotonic()  # read before the signal is sent, because the grace period may begin at once
        process.send_signal(signal.SIGINT)
        stopped_result = wait_for_result(process)
    assert stopped_result.exit_code == 130, stopped_result.stderr
    assert 5 < time.monotonic() - started_at < 20
    create_count, hung_count = len(count_stored_emails(sandbox)), sandbox.stats()["faults"]["hang_after"]
    assert 1 <= hung_count <= 4
    expected_rows = {
        "read": 50,
        "exists": 1,
        "created": create_count - 1 - hung_count,
        "unknown": hung_count,
        "unsent": 50 - create_count,
    }
    assert stopped_result.rows == expected_rows
    sandbox.switch(hang_after=0, latency_ms=0)
    result = connector.run_json(*arguments)
    assert result.rows == {"read": 50, "exists": create_count, "created": 50 - create_count}
    assert set(count_stored_emails(sandbox).values()) == {1}


def test_a_ledger_that_another_program_locks_ends_the_run_while_requests_time_out(
    connector: Connector, tmp_path: Path
) -> None:
    sandbox = connector.sandbox
    write_addresses(tmp_path / "people.csv", 500)
    job = tmp_path / "job.yaml"
    job.write_text(
        "job: locked\nservice: {timeout: 1s}\nsource: {file: {path: people.csv}}\n"
        "subscriber: {base: {name: News}}\nload: {quiet_period: 200ms}\n",
        encoding="utf-8",
    )
    sandbox.switch(latency_ms=20)
    with connector.start("sync", job, "--output", "json") as process:
        wait_for(lambda: sandbox.stats()["subscribers"] >= 100)
        other_connection = sqlite3.connect(tmp_path / "state" / "ledger.db", timeout=30, isolation_level=None)
        with closing(other_connection):
            other_connection.execute("BEGIN IMMEDIATE")
            result = wait_for_result(process)
    assert (result.exit_code, result.report["status"]) == (3, "aborted")
    assert "database is locked" in result.stderr
    assert len(result.report["messages"]) == len(set(result.report["messages"]))
    sandbox.switch(latency_ms=0)
    second_result = connector.run_json("sync", job)
    assert (second_result.exit_code, second_result.rows["created"] + second_result.rows["exists"]) == (0, 500)
    assert set(count_stored_emails(sandbox).values()) == {1}


def test_a_run_whose_source_never_answers_ends_after_a_signal(connector: Connector, tmp_path: Path) -> None:
    """The database counts to 100,000,000,000 before its first chunk."""
    job = tmp_path / "job.yaml"
    query = (
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 100000000000) "
        "SELECT 'p' || x || '@example.com' AS email, 1 AS is_active FROM n WHERE x <= 30"
    )
    job.write_text(
        f"job: slow\nsource: {{sql: {{url: 'sqlite:///{tmp_path}/crm.db', query: \"{query}\"}}}}\n"
        "subscriber: {base: {name: News}}\n",
        encoding="utf-8",
    )
    sqlite3.connect(tmp_path / "crm.db").close()
    with connector.start("sync", job, "--output", "json") as process:
        time.sleep(2)  # by then, the run waits for the database
        process.send_signal(signal.SIGINT)
        started_at = time.monotonic()
        stopped_result = wait_for_result(process)
    assert (stopped_result.exit_code, stopped_result.report["status"]) == (130, "stopped"), stopped_result.stderr
    assert time.monotonic() - started_at < 10
