"""`sync --engine dask`: one command, shards as tasks on workers that may be killed, and one correct report.

`CONNECTOR_TEST_ENGINE_PEOPLE=100000 pytest tests/pipelines/test_engine.py -k killed` is the long run: four workers, of
which one is killed every ten seconds.
"""

import os
import random
import signal
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from tests.pipelines.conftest import CommandResult, Connector, count_stored_emails, has_stored_subscribers, wait_for
from tests.pipelines.dask_processes import (
    is_alive,
    list_children,
    list_listening_addresses,
    list_workers,
    read_address,
    run_dask,
)
from tests.pipelines.forked import ForkedProcess
from tests.pipelines.sharded import (
    ENGINE_FAULTS,
    FAULTS,
    IS_LONG_RUN,
    JOB,
    KILL_TEST_PEOPLE_COUNT,
    ODD_ROW_COUNTS,
    PEOPLE_COUNT,
    close_process,
    count_each_person_once,
    has_each_person_once,
    write_job,
)


def start_engine(
    connector: Connector, *options: str, worker_count: int = 2, environ: Mapping[str, str | None] | None = None
) -> ForkedProcess:
    command = ("sync", "job.yaml", "--engine", "dask", "--workers", str(worker_count), "--output", "json")
    return connector.start(*command, *options, environ=environ)


def wait_for_creates(connector: Connector, create_count: int) -> None:
    wait_for(lambda: has_stored_subscribers(connector.sandbox, create_count))


def sync_with_kills(connector: Connector, rng: random.Random) -> tuple[CommandResult, int]:
    """Sync with four workers, and kill a worker repeatedly after 300 more creates."""
    kill_count, target_count = 0, count_stored_emails(connector.sandbox).total() + 300
    with start_engine(connector, worker_count=4) as process:
        wait_for(lambda: process.poll() is not None or has_stored_subscribers(connector.sandbox, target_count))
        while process.poll() is None:
            if workers := list_workers(process.pid):
                os.kill(rng.choice(workers), signal.SIGKILL)
                kill_count += 1
            deadline = time.monotonic() + (10.0 if IS_LONG_RUN else 3.0)
            while process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.1)
        stdout, stderr = process.communicate()
    print(f"{kill_count} kills, exit {process.returncode}\n{stdout}")
    assert "Traceback" not in stderr, stderr
    return CommandResult(process.returncode, stdout, stderr), kill_count


def test_killed_workers_lose_and_repeat_no_create_and_the_report_is_correct(
    postgres_connector: Connector, tmp_path: Path
) -> None:
    write_job(tmp_path, person_count=KILL_TEST_PEOPLE_COUNT)
    postgres_connector.sandbox.switch(latency_ms=20, seed=5, **ENGINE_FAULTS)
    rng = random.Random(5)
    result, kill_count = sync_with_kills(postgres_connector, rng)
    assert kill_count > 0
    for _ in range(4):
        if "refused the first create" not in result.stderr:  # a random refusal, right after a shard began again
            break
        result, _kill_count = sync_with_kills(postgres_connector, rng)
    create_counts = count_stored_emails(postgres_connector.sandbox)
    assert {address: create_count for address, create_count in create_counts.items() if create_count > 1} == {}
    # A person must decide about unknown and rejected subscribers.
    undecided_count = sum(result.rows.get(name, 0) for name in ("unknown", "rejected"))
    existing_count = result.rows.get("exists", 0)  # created by an earlier command
    settled_counts = {
        name: row_count for name, row_count in result.rows.items() if name not in ("unknown", "rejected", "exists")
    }
    assert settled_counts == {
        "read": KILL_TEST_PEOPLE_COUNT + 5,
        "created": KILL_TEST_PEOPLE_COUNT - existing_count - undecided_count,
        **ODD_ROW_COUNTS,
    }, result.stderr
    assert KILL_TEST_PEOPLE_COUNT - undecided_count <= len(create_counts) <= KILL_TEST_PEOPLE_COUNT


def test_one_report_has_the_sums_of_all_shards(postgres_connector: Connector, tmp_path: Path) -> None:
    write_job(tmp_path)
    postgres_connector.sandbox.switch(latency_ms=5, list_lag_ms=100, **FAULTS)
    result = close_process(start_engine(postgres_connector, worker_count=3))
    assert (result.exit_code, result.rows) == (
        1,
        {"read": PEOPLE_COUNT + 5, "created": PEOPLE_COUNT, **ODD_ROW_COUNTS},
    ), result.stderr
    assert has_each_person_once(postgres_connector)
    assert all(message.startswith(("shard ", "shards ")) for message in result.report["messages"])
    assert result.report["requests"]["create"]["sent"] >= PEOPLE_COUNT
    rejects_file_names = [message.split()[3] for message in result.report["messages"] if ": see " in message]
    assert sum(len(Path(path).read_text().splitlines()) - 1 for path in rejects_file_names) == 4, rejects_file_names
    assert sum(cause["rows"] for cause in result.report["causes"]) == 4
    runs = postgres_connector.run_json("status", result.report["run_id"]).report["runs"]
    assert runs[0]["rows"] == result.report["rows"]


def test_an_incremental_run_whose_worker_died_is_partial_and_reports_the_death(
    postgres_connector: Connector, tmp_path: Path
) -> None:
    """If a worker dies after the end of an attempt, the cursor has moved, so the next attempt reads fewer rows."""
    with closing(sqlite3.connect(tmp_path / "crm.db")) as database, database:
        database.execute("create table people (email, first_name, seq)")
        rows = [(f"person{index}@example.com", f"Ann {index}", index) for index in range(PEOPLE_COUNT)]
        database.executemany("insert into people values (?, ?, ?)", rows)
    source = f"{{sql: {{url: 'sqlite:///{tmp_path}/crm.db', table: people, cursor: {{column: seq, start: 0}}}}}}"
    (tmp_path / "job.yaml").write_text(JOB.replace("{file: {path: people.csv}}", source))
    process = start_engine(postgres_connector, worker_count=1)
    wait_for_creates(postgres_connector, PEOPLE_COUNT // 2)
    for worker in list_workers(process.pid):
        os.kill(worker, signal.SIGKILL)
    result = close_process(process)
    assert (result.exit_code, result.rows["created"] + result.rows["exists"]) == (1, PEOPLE_COUNT), result.stderr
    assert any("workers died, and shard 1 began again" in message for message in result.report["messages"])
    assert has_each_person_once(postgres_connector)


def test_a_killed_command_leaves_no_process_and_the_next_command_continues(
    postgres_connector: Connector, tmp_path: Path
) -> None:
    person_count = 2 * PEOPLE_COUNT
    write_job(tmp_path, person_count=person_count)
    postgres_connector.sandbox.switch(latency_ms=300)
    process = start_engine(postgres_connector)
    wait_for_creates(postgres_connector, 100)
    children = list_children(process.pid)
    assert len(list_workers(process.pid)) == 2
    assert {address for pid in (process.pid, *children) for address in list_listening_addresses(pid)} <= {
        "127.0.0.1",
        "::1",
    }
    with process:
        process.kill()
        process.communicate()
    wait_for(lambda: not any(is_alive(pid) for pid in children))
    postgres_connector.sandbox.switch(latency_ms=5)
    second_result = postgres_connector.run_json("sync", "job.yaml", "--wait", "60s")
    assert (second_result.exit_code, second_result.rows["created"] + second_result.rows["exists"]) == (
        1,
        person_count,
    ), second_result.stderr
    assert has_each_person_once(postgres_connector, person_count)


def test_the_first_signal_stops_the_shards_cleanly_and_the_second_signal_at_once(
    postgres_connector: Connector, tmp_path: Path
) -> None:
    write_job(tmp_path)
    postgres_connector.sandbox.switch(latency_ms=300)
    process = start_engine(postgres_connector)
    wait_for_creates(postgres_connector, 100)
    for worker in (process.pid, *list_workers(process.pid)):  # a terminal and systemd send the signal to all processes
        os.kill(worker, signal.SIGINT)
    result = close_process(process)
    assert (result.exit_code, result.report["status"]) == (130, "stopped"), result.stderr
    create_count = count_stored_emails(postgres_connector.sandbox).total()
    assert result.rows["created"] == create_count < PEOPLE_COUNT

    process = start_engine(postgres_connector)
    wait_for_creates(postgres_connector, create_count + 100)
    postgres_connector.sandbox.switch(latency_ms=60_000)
    time.sleep(0.5)
    children = list_children(process.pid)
    process.send_signal(signal.SIGTERM)
    time.sleep(1.0)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    started_at = time.monotonic()
    result = close_process(process)
    assert time.monotonic() - started_at < 5
    assert (result.exit_code, result.report["status"]) == (143, "stopped")
    wait_for(lambda: not any(is_alive(pid) for pid in children))


def test_a_run_uses_a_scheduler_and_a_lost_scheduler_ends_the_run_with_a_report(
    postgres_connector: Connector, tmp_path: Path
) -> None:
    write_job(tmp_path, person_count=300)
    with run_dask(tmp_path, "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard") as scheduler:
        address = read_address(tmp_path)
        command = ("sync", "job.yaml", "--engine", "dask", "--scheduler", address)
        result = postgres_connector.run(*command)
        assert (result.exit_code, "has no workers" in result.stderr) == (2, True), result.stderr
        scratch_folder = tmp_path / "scratch"
        options = ("--nthreads", "1", "--nworkers", "2", "--no-dashboard", "--local-directory", str(scratch_folder))
        with run_dask(tmp_path, "worker", address, *options, environ=postgres_connector.environ):
            wait_for(lambda: (tmp_path / "worker.log").read_text().count("Registered to:") == 2)
            result = postgres_connector.run_json(*command)
            assert (result.exit_code, result.rows) == (1, {"read": 305, "created": 300, **ODD_ROW_COUNTS}), (
                result.stderr
            )
            assert scheduler.poll() is None
            job = (tmp_path / "job.yaml").read_text()
            (tmp_path / "job.yaml").write_text(job.replace("{id: 7}", "{name: Newsletter}"))
            result = postgres_connector.run_json(*command)
            assert (result.exit_code, "Give the base by its id" in result.stderr) == (2, True), result.stderr

            write_job(tmp_path)
            postgres_connector.sandbox.switch(latency_ms=400)
            process = postgres_connector.start(*command, "--output", "json")
            wait_for_creates(postgres_connector, 350)
            scheduler.kill()
            result = close_process(process)
            assert (result.exit_code, "the scheduler has ended" in result.stderr) == (3, True), result.stderr
            postgres_connector.sandbox.switch(latency_ms=5)
            second_result = postgres_connector.run_json("sync", "job.yaml", "--wait", "60s")
            assert second_result.exit_code == 1, second_result.stderr
    assert count_stored_emails(postgres_connector.sandbox) == count_each_person_once()
