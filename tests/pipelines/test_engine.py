"""`sync --engine dask` runs each shard as a task. The report is correct even if workers are killed."""

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

import psutil

from tests.ledger.places import run_sql
from tests.pipelines.conftest import CommandResult, Connector, wait_for
from tests.pipelines.dask_processes import is_alive, list_children, list_workers, read_address, run_dask
from tests.pipelines.forked import ForkedProcess
from tests.pipelines.sharded import (
    FAULTS,
    PEOPLE_COUNT,
    UNUSED_ROW_COUNTS,
    build_counts_of_one_create_each,
    finish_process,
    has_each_person_once,
    write_files,
    write_job,
)


def start_engine(
    connector: Connector, *options: str, worker_count: int = 2, environ: Mapping[str, str | None] | None = None
) -> ForkedProcess:
    command = ("sync", "job.yaml", "--engine", "dask", "--workers", str(worker_count), "--output", "json")
    return connector.start(*command, *options, environ=environ)


def test_an_incremental_run_with_a_dead_worker_is_partial(postgres_connector: Connector) -> None:
    """If a worker dies after the end of an attempt, the cursor has moved, so the next attempt reads fewer rows."""
    crm = postgres_connector.crm
    crm.run("create table people (email, first_name, seq)")
    crm.insert_rows("people", [(f"person{index}@example.com", f"Ann {index}", index) for index in range(PEOPLE_COUNT)])
    write_job(postgres_connector, source=f"sql: {{url: '{crm.url}', table: people, cursor: {{column: seq, start: 0}}}}")
    process = start_engine(postgres_connector, worker_count=1)
    postgres_connector.wait_for_subscribers(PEOPLE_COUNT // 2)
    for worker in list_workers(process.pid):
        worker.kill()
    result = finish_process(process)
    assert (result.exit_code, result.rows["created"] + result.rows["exists"]) == (1, PEOPLE_COUNT), result.stderr
    assert any("workers died, so shard 1 began again" in message for message in result.report["messages"])
    assert has_each_person_once(postgres_connector)


def test_a_killed_command_leaves_no_process_and_the_next_command_continues(postgres_connector: Connector) -> None:
    person_count = 2 * PEOPLE_COUNT
    write_files(postgres_connector, person_count=person_count)
    postgres_connector.sandbox.switch(latency_ms=300)
    process = start_engine(postgres_connector)
    postgres_connector.wait_for_subscribers(100)
    children = list_children(process.pid)
    assert len(list_workers(process.pid)) == 2
    connections = [
        connection for child in (psutil.Process(process.pid), *children) for connection in child.net_connections("tcp")
    ]
    listening_addresses = {connection.laddr.ip for connection in connections if connection.status == psutil.CONN_LISTEN}
    assert listening_addresses <= {"127.0.0.1", "::1"}
    with process:
        process.kill()
        process.communicate()
    wait_for(lambda: not any(is_alive(child) for child in children))
    postgres_connector.sandbox.switch(latency_ms=5)
    second_result = postgres_connector.sync("job.yaml", "--wait", "60s")
    assert second_result.exit_code == 1, second_result.stderr
    assert second_result.rows["created"] + second_result.rows["exists"] == person_count
    assert has_each_person_once(postgres_connector, person_count)


def test_a_shard_waits_until_the_lease_of_another_machine_has_ended(postgres_connector: Connector) -> None:
    write_files(postgres_connector, person_count=10)
    assert postgres_connector.sync().rows["created"] == 10  # this run also creates the tables of the ledger
    write_files(postgres_connector, person_count=20)
    insert_sql = """INSERT INTO lease (shard_index, shard_count, holder, process, expires_at)
        VALUES (1, 2, 'another machine', 'boot-id 1 1 1 token', now() + interval '25 s')"""
    run_sql(postgres_connector.environ["CONNECTOR_LEDGER"], insert_sql)
    finish_process(start_engine(postgres_connector)).expect(1, read=25, created=10, exists=10, **UNUSED_ROW_COUNTS)


def test_the_first_signal_stops_the_shards_cleanly_and_the_second_signal_stops_them_immediately(
    postgres_connector: Connector,
) -> None:
    write_files(postgres_connector)
    postgres_connector.sandbox.switch(latency_ms=300)
    process = start_engine(postgres_connector)
    postgres_connector.wait_for_subscribers(100)
    for pid in (process.pid, *(worker.pid for worker in list_workers(process.pid))):
        os.kill(pid, signal.SIGINT)  # a terminal and systemd send the signal to all processes
    result = finish_process(process)
    assert (result.exit_code, result.report["status"]) == (130, "stopped"), result.stderr
    create_count = postgres_connector.count_creates_by_email().total()
    assert result.rows["created"] == create_count < PEOPLE_COUNT
    process = start_engine(postgres_connector)
    postgres_connector.wait_for_subscribers(create_count + 100)
    postgres_connector.sandbox.switch(latency_ms=60_000)
    time.sleep(0.5)
    children = list_children(process.pid)
    process.send_signal(signal.SIGTERM)
    time.sleep(1.0)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    started_at = time.monotonic()
    result = finish_process(process)
    assert time.monotonic() - started_at < 5
    assert (result.exit_code, result.report["status"]) == (143, "stopped")
    wait_for(lambda: not any(is_alive(child) for child in children))


def check_sums_of_shards(connector: Connector, result: CommandResult) -> None:
    """Check that the report, the rejects files and `status` have the sums of all shards."""
    assert all(message.startswith(("shard ", "shards ")) for message in result.report["messages"])
    assert result.report["requests"]["create"]["sent"] >= result.rows["created"]
    rejects_paths = [message.split()[3] for message in result.report["messages"] if ": see " in message]
    assert sum(len(Path(path).read_text().splitlines()) - 1 for path in rejects_paths) == 4, rejects_paths
    assert sum(cause["rows"] for cause in result.report["causes"]) == 4
    (run, *_) = connector.run_json("status", result.report["run_id"]).report["runs"]
    assert run["rows"] == result.report["rows"]


def test_a_run_with_a_scheduler_ends_with_a_report_if_the_scheduler_ends(
    postgres_connector: Connector, tmp_path: Path
) -> None:
    write_files(postgres_connector, person_count=300)
    with run_dask(tmp_path, "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard") as scheduler:
        address = read_address(tmp_path)
        command = ("sync", "job.yaml", "--engine", "dask", "--scheduler", address)
        result = postgres_connector.run(*command)
        assert (result.exit_code, "has no workers" in result.stderr) == (2, True), result.stderr
        scratch_folder = tmp_path / "scratch"
        options = ("--nthreads", "1", "--nworkers", "2", "--no-dashboard", "--local-directory", str(scratch_folder))
        with run_dask(tmp_path, "worker", address, *options, environ=postgres_connector.environ):
            wait_for(lambda: (tmp_path / "worker.log").read_text().count("Registered to:") == 2)
            postgres_connector.sandbox.switch(list_lag_ms=100, **FAULTS)
            result = postgres_connector.run_json(*command)
            postgres_connector.sandbox.switch(list_lag_ms=0, **dict.fromkeys(FAULTS, 0))
            result.expect(1, read=305, created=300, **UNUSED_ROW_COUNTS)
            check_sums_of_shards(postgres_connector, result)
            assert scheduler.poll() is None
            write_job(postgres_connector, base="name: Newsletter")
            result = postgres_connector.run_json(*command)
            assert (result.exit_code, "Give the base by its id" in result.stderr) == (2, True), result.stderr
            write_files(postgres_connector)
            postgres_connector.sandbox.switch(latency_ms=400)
            # The lost shards have sent creates. So the wrong settings of the other shards do not decide the exit code.
            other_folder, wrong_environ = (
                tmp_path / "other machine",
                postgres_connector.environ | {"CONNECTOR_TOKEN": ""},
            )
            other_folder.mkdir()
            with run_dask(other_folder, "worker", address, *options, environ=wrong_environ):
                log_path = other_folder / "worker.log"
                wait_for(lambda: log_path.read_text().count("Registered to:") == 2)
                process = postgres_connector.start(*command, "--output", "json")
                postgres_connector.wait_for_subscribers(350)
                scheduler.kill()
                result = finish_process(process)
            assert (result.exit_code, "the scheduler has ended" in result.stderr) == (3, True), result.stderr
            assert "no token" in result.stderr
            postgres_connector.sandbox.switch(latency_ms=5)
            second_result = postgres_connector.sync("job.yaml", "--wait", "60s")
            assert second_result.exit_code == 1, second_result.stderr
    assert postgres_connector.count_creates_by_email() == build_counts_of_one_create_each()
