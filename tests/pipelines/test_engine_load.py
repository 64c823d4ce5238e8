"""`sync --engine dask` and `import --engine dask`: one command, workers that run the parts, one report."""

import os
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from connector.sandbox import SandboxProcess
from tests.pipelines.conftest import Connector, Ended, count_stored, wait_for, write_csv
from tests.pipelines.dask_processes import is_alive, list_children, list_workers, read_address, run_dask
from tests.pipelines.forked import Forked

PEOPLE = 1_500
FAULTS = {"drop_before": 0.01, "drop_after": 0.02, "error_after": 0.01}
JOB = """
job: joint
source: {file: {path: people.csv}}
subscriber: {base: {id: 7}, fields: {email: email, first_name: first_name, is_active: {value: true}}}
load: {quiet_period: 500ms}
"""


def write_job(folder: Path, *more: str, people: int = PEOPLE) -> None:
    rows = [f"person{each}@example.com,Ann {each}" for each in range(people)]
    repeated = ["PERSON5@example.com,Ann 5", "person6@example.com,Another"]  # of the first part, in the last one
    write_csv(folder / "people.csv", "email,first_name", *rows, *repeated)
    (folder / "job.yaml").write_text("\n".join([JOB, *more]))


def start(connector: Connector, *options: str, workers: int = 2) -> Forked:
    return connector.start(
        "sync", "job.yaml", "--engine", "dask", "--workers", str(workers), "--output", "json", *options
    )


def end(process: Forked) -> Ended:
    with process:
        stdout, stderr = process.communicate()
    assert "Traceback" not in stderr, stderr
    return Ended(process.returncode, stdout, stderr)


@pytest.mark.campaign
def test_a_run_by_the_engine_is_one_run_with_one_report(shared: Connector, tmp_path: Path) -> None:
    write_job(tmp_path, "guard: {max_creates: 100000}")
    shared.sandbox.switch(latency_ms=5, list_lag_ms=100, **FAULTS)
    ended = end(start(shared))
    assert ended.code == 0, ended.stderr
    assert ended.rows == {"read": PEOPLE + 2, "duplicate": 2, "created": PEOPLE}
    assert count_stored(shared.sandbox) == Counter({f"person{each}@example.com": 1 for each in range(PEOPLE)})
    parts = ended.report["parts"]
    assert [each["part"] for each in parts] == [1, 2]
    assert sum(each["rows"]["created"] for each in parts) == PEOPLE
    assert len({each["worker"] for each in parts}) == 2
    rejects = Path(ended.report["rejects_file"])
    assert rejects.read_text().count("differs") == 1
    assert rejects.stat().st_mode & 0o777 == 0o600
    assert "engine: 2 workers, http://127.0.0.1:" in ended.stderr
    status = shared.run_json("status", ended.report["run_id"]).report
    assert status["runs"][0]["rows"] == ended.report["rows"]


def wait_for_creates(sandbox: SandboxProcess, number: int) -> None:
    wait_for(lambda: sum(count_stored(sandbox).values()) >= number)


@pytest.mark.campaign
def test_a_run_that_a_kill_or_a_signal_ends_leaves_no_process_and_the_next_one_goes_on(
    shared: Connector, tmp_path: Path
) -> None:
    write_job(tmp_path)
    shared.sandbox.switch(latency_ms=100)
    process = start(shared)
    wait_for_creates(shared.sandbox, 100)
    children = list_children(process.pid)
    assert len(list_workers(process.pid)) == 2
    with process:
        process.kill()
        process.communicate()
    wait_for(lambda: not any(is_alive(each) for each in children))
    time.sleep(0.5)  # what was under way takes effect
    killed = sum(count_stored(shared.sandbox).values())

    process = start(shared)
    wait_for_creates(shared.sandbox, killed + 100)
    workers = list_workers(process.pid)
    for each in (process.pid, *workers):  # as a terminal does it, and a system that stops a service
        os.kill(each, signal.SIGINT)
    ended = end(process)
    assert ended.code == 130, ended.stderr
    assert ended.report["status"] == "stopped"
    assert [each["status"] for each in ended.report["parts"]] == ["stopped"] * 2
    stored = sum(count_stored(shared.sandbox).values())
    assert ended.report["rows"]["created"] == stored - killed
    wait_for(lambda: not any(is_alive(each) for each in workers))

    shared.sandbox.switch(latency_ms=5)
    again = end(start(shared))
    rows = again.rows
    changed = rows.pop("changed", 0)  # person6, where the part that has their other row was first this time
    assert changed <= 1
    expected = {"read": PEOPLE + 2, "duplicate": 2, "exists": stored - changed, "created": PEOPLE - stored}
    assert (again.code, rows) == (0, expected), again.stderr
    assert count_stored(shared.sandbox) == Counter({f"person{each}@example.com": 1 for each in range(PEOPLE)})


@pytest.mark.campaign
def test_guards_hold_for_all_parts_together(shared: Connector, tmp_path: Path) -> None:
    write_job(tmp_path, f"guard: {{max_creates: {PEOPLE - 1}}}")
    ended = end(start(shared))
    assert ended.code == 3, ended.stderr
    assert f"guard.max_creates: {PEOPLE:,} would be created" in ended.stderr
    assert ended.rows == {"read": PEOPLE + 2, "duplicate": 2, "unsent": PEOPLE}
    assert not count_stored(shared.sandbox)
    write_job(tmp_path, "guard: {max_rejected: 10%}")
    some_nameless = [f"other{each}@example.com,{'Ann' if each % 3 else ''}" for each in range(PEOPLE)]
    write_csv(tmp_path / "people.csv", "email,first_name", *some_nameless)
    job = (tmp_path / "job.yaml").read_text().replace("quiet_period: 500ms", "quiet_period: 500ms, max_concurrency: 10")
    (tmp_path / "job.yaml").write_text(job)
    shared.sandbox.switch(required="FirstName", latency_ms=100)
    ended = end(start(shared))
    assert ended.code == 3, ended.stderr
    assert "guard.max_rejected: of" in ended.stderr
    assert ended.report["rows"]["rejected"] >= 30
    assert ended.report["rows"]["unsent"] > PEOPLE // 2


@pytest.mark.campaign
def test_a_second_signal_ends_the_run_at_once(shared: Connector, tmp_path: Path) -> None:
    write_job(tmp_path)
    shared.sandbox.switch(latency_ms=100)
    process = start(shared)
    wait_for_creates(shared.sandbox, 100)
    shared.sandbox.switch(latency_ms=60_000)
    time.sleep(0.5)
    children = list_children(process.pid)
    process.send_signal(signal.SIGTERM)
    time.sleep(1.0)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    began_at = time.monotonic()
    ended = end(process)
    assert time.monotonic() - began_at < 5
    assert ended.code == 143
    assert ended.report["status"] == "stopped"
    assert ended.report["rows"]["created"] <= sum(count_stored(shared.sandbox).values())
    wait_for(lambda: not any(is_alive(each) for each in children))


def test_what_an_engine_cannot_do_is_said_before_anything_begins(shared: Connector, tmp_path: Path) -> None:
    write_job(tmp_path, people=3)
    by_engine = ("--engine", "dask")
    refused = {
        ("sync", "job.yaml", *by_engine, "--limit", "5"): "--engine goes with none of",
        ("sync", "job.yaml", *by_engine, "--part", "1/2"): "leave out --part",
        ("sync", "job.yaml", "--workers", "2"): "add --engine dask",
        ("sync", "job.yaml", *by_engine, "--workers", "2", "--scheduler", "tcp://127.0.0.1:9"): "give one of them",
        ("import", "people.csv", "--base-id", "7", *by_engine, "--dry-run"): "leave out --dry-run",
        ("import", "-", "--base-id", "7", *by_engine): "standard input is read once",
        ("import", "people.csv", "--base-name", "News", *by_engine, "--workers", "1"): "the id of the base News",
    }
    for arguments, words in refused.items():
        ended = shared.run(*arguments)
        assert (ended.code, words in ended.stderr) == (2, True), (arguments, ended.stderr)
    ended = shared.run("sync", "job.yaml", *by_engine, environ={"CONNECTOR_LEDGER": None})
    assert (ended.code, "set CONNECTOR_LEDGER=postgresql://" in ended.stderr) == (2, True), ended.stderr
    assert not shared.sandbox.truth()["events"]


@pytest.mark.campaign
def test_an_import_by_a_scheduler_takes_its_workers_and_leaves_them(shared: Connector, tmp_path: Path) -> None:
    write_job(tmp_path)
    with run_dask(tmp_path, "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard") as scheduler:
        address = read_address(tmp_path)
        command = ("import", "people.csv", "--base-id", "7", "--engine", "dask", "--scheduler", address)
        ended = shared.run(*command)
        assert (ended.code, "has no workers" in ended.stderr) == (2, True), ended.stderr
        environ = shared.environ
        with run_dask(
            tmp_path, "worker", address, "--nthreads", "1", "--nworkers", "2", "--no-dashboard", environ=environ
        ):
            wait_for(lambda: (tmp_path / "worker.log").read_text().count("Registered to:") == 2)
            ended = shared.run_json(*command)
            assert ended.code == 0, ended.stderr
            assert ended.rows == {"read": PEOPLE + 2, "duplicate": 2, "created": PEOPLE}
            (tmp_path / "people.csv").write_text("email\n")
            ended = shared.run_json(*command)
            assert (ended.code, "no rows" in ended.stderr) == (3, True), ended.stderr
            assert scheduler.poll() is None


@pytest.mark.campaign
def test_a_scheduler_that_goes_ends_the_command_and_the_workers_in_order(shared: Connector, tmp_path: Path) -> None:
    write_job(tmp_path)
    shared.sandbox.switch(latency_ms=400)
    job = (tmp_path / "job.yaml").read_text().replace("quiet_period: 500ms", "quiet_period: 500ms, max_rate: 100")
    (tmp_path / "job.yaml").write_text(job)
    with run_dask(tmp_path, "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard") as scheduler:
        address, environ = read_address(tmp_path), shared.environ
        options = ("--nthreads", "1", "--nworkers", "2", "--no-dashboard")
        with run_dask(tmp_path, "worker", address, *options, environ=environ):
            wait_for(lambda: (tmp_path / "worker.log").read_text().count("Registered to:") == 2)
            process = shared.start("sync", "job.yaml", "--engine", "dask", "--scheduler", address, "--output", "json")
            wait_for_creates(shared.sandbox, 100)
            scheduler.kill()
            ended = end(process)
            assert (ended.code, "the scheduler has lost part 1, or has gone" in ended.stderr) == (3, True), ended.stderr
            rows, stored = ended.report["rows"], sum(count_stored(shared.sandbox).values())
            assert rows["created"] <= stored
            assert rows["created"] + rows["unknown"] == rows["read"] > 0
            shared.sandbox.switch(latency_ms=5)
            again = shared.run_json("sync", "job.yaml", "--wait", "30s", "--limit", "1")
            assert again.code == 0, again.stderr
            assert sum(count_stored(shared.sandbox).values()) < PEOPLE
