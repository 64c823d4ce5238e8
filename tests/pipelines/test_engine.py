"""`sync --engine dask`: one command, shards as tasks on workers that may be killed, and one correct report.

`CONNECTOR_TEST_ENGINE_PEOPLE=100000 pytest tests/pipelines/test_engine.py -k killed` is the campaign: four workers, of
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

from tests.pipelines.conftest import Connector, Ended, count_stored, has_stored, wait_for
from tests.pipelines.dask_processes import (
    is_alive,
    list_children,
    list_listening,
    list_workers,
    read_address,
    run_dask,
)
from tests.pipelines.forked import Forked
from tests.pipelines.sharded import (
    FAULTS,
    IS_CAMPAIGN,
    JOB,
    LOSSES,
    MANY,
    ODD,
    PEOPLE,
    end,
    everyone_once,
    has_everyone_once,
    write_job,
)


def start(
    connector: Connector, *options: str, workers: int = 2, environ: Mapping[str, str | None] | None = None
) -> Forked:
    command = ("sync", "job.yaml", "--engine", "dask", "--workers", str(workers), "--output", "json")
    return connector.start(*command, *options, environ=environ)


def wait_for_creates(connector: Connector, number: int) -> None:
    wait_for(lambda: has_stored(connector.sandbox, number))


def sync_with_kills(connector: Connector, rng: random.Random) -> tuple[Ended, int]:
    """Sync with four workers, and kill a worker repeatedly after 300 more creates."""
    killed, enough = 0, count_stored(connector.sandbox).total() + 300
    with start(connector, workers=4) as process:
        wait_for(lambda: process.poll() is not None or has_stored(connector.sandbox, enough))
        while process.poll() is None:
            if workers := list_workers(process.pid):
                os.kill(rng.choice(workers), signal.SIGKILL)
                killed += 1
            until = time.monotonic() + (10.0 if IS_CAMPAIGN else 3.0)
            while process.poll() is None and time.monotonic() < until:
                time.sleep(0.1)
        stdout, stderr = process.communicate()
    print(f"{killed} kills, exit {process.returncode}\n{stdout}")
    assert "Traceback" not in stderr, stderr
    return Ended(process.returncode, stdout, stderr), killed


def test_killed_workers_lose_and_repeat_no_create_and_the_report_is_correct(shared: Connector, tmp_path: Path) -> None:
    write_job(tmp_path, people=MANY)
    shared.sandbox.switch(latency_ms=20, seed=5, **LOSSES)
    rng = random.Random(5)
    ended, killed = sync_with_kills(shared, rng)
    assert killed > 0
    for _ in range(4):
        if "refused the first create" not in ended.stderr:  # a random refusal, right after a shard began again
            break
        ended, _killed = sync_with_kills(shared, rng)
    stored = count_stored(shared.sandbox)
    assert {each: number for each, number in stored.items() if number > 1} == {}
    undecided = sum(ended.rows.get(name, 0) for name in ("unknown", "rejected"))  # for a person
    existing = ended.rows.get("exists", 0)  # created by an earlier command
    counted = {name: number for name, number in ended.rows.items() if name not in ("unknown", "rejected", "exists")}
    assert counted == {"read": MANY + 5, "created": MANY - existing - undecided, **ODD}, ended.stderr
    assert MANY - undecided <= len(stored) <= MANY


def test_one_report_has_the_sums_of_all_shards(shared: Connector, tmp_path: Path) -> None:
    write_job(tmp_path)
    shared.sandbox.switch(latency_ms=5, list_lag_ms=100, **FAULTS)
    ended = end(start(shared, "--shards", "3"))
    assert (ended.code, ended.rows) == (1, {"read": PEOPLE + 5, "created": PEOPLE, **ODD}), ended.stderr
    assert has_everyone_once(shared)
    assert all(message.startswith(("shard ", "shards ")) for message in ended.report["messages"])
    assert ended.report["requests"]["create"]["sent"] >= PEOPLE
    rejects = [message.split()[3] for message in ended.report["messages"] if ": see " in message]
    assert sum(len(Path(path).read_text().splitlines()) - 1 for path in rejects) == 4, rejects
    assert sum(cause["rows"] for cause in ended.report["causes"]) == 4
    runs = shared.run_json("status", ended.report["run_id"]).report["runs"]
    assert runs[0]["rows"] == ended.report["rows"]


def test_an_incremental_run_whose_worker_died_is_partial_and_says_so(shared: Connector, tmp_path: Path) -> None:
    """An attempt that is lost after its end has moved the cursor, so the next attempt reads fewer rows."""
    with closing(sqlite3.connect(tmp_path / "crm.db")) as database, database:
        database.execute("create table people (email, first_name, seq)")
        rows = [(f"person{index}@example.com", f"Ann {index}", index) for index in range(PEOPLE)]
        database.executemany("insert into people values (?, ?, ?)", rows)
    source = f"{{sql: {{url: 'sqlite:///{tmp_path}/crm.db', table: people, cursor: {{column: seq, start: 0}}}}}}"
    (tmp_path / "job.yaml").write_text(JOB.replace("{file: {path: people.csv}}", source))
    process = start(shared, workers=1)
    wait_for_creates(shared, PEOPLE // 2)
    for worker in list_workers(process.pid):
        os.kill(worker, signal.SIGKILL)
    ended = end(process)
    assert (ended.code, ended.rows["created"] + ended.rows["exists"]) == (1, PEOPLE), ended.stderr
    assert any("workers died, and shard 1 began again" in message for message in ended.report["messages"])
    assert has_everyone_once(shared)


def test_a_killed_command_leaves_no_process_and_the_next_command_continues(shared: Connector, tmp_path: Path) -> None:
    people = 2 * PEOPLE
    write_job(tmp_path, people=people)
    shared.sandbox.switch(latency_ms=300)
    process = start(shared)
    wait_for_creates(shared, 100)
    children = list_children(process.pid)
    assert len(list_workers(process.pid)) == 2
    assert {address for pid in (process.pid, *children) for address in list_listening(pid)} <= {"127.0.0.1", "::1"}
    with process:
        process.kill()
        process.communicate()
    wait_for(lambda: not any(is_alive(each) for each in children))
    shared.sandbox.switch(latency_ms=5)
    again = end(start(shared))
    assert (again.code, again.rows["created"] + again.rows["exists"]) == (1, people), again.stderr
    assert has_everyone_once(shared, people)


def test_the_first_signal_stops_the_shards_in_order_and_the_second_at_once(shared: Connector, tmp_path: Path) -> None:
    write_job(tmp_path)
    shared.sandbox.switch(latency_ms=300)
    process = start(shared)
    wait_for_creates(shared, 100)
    for worker in (process.pid, *list_workers(process.pid)):  # as a terminal does, and a system that stops a service
        os.kill(worker, signal.SIGINT)
    ended = end(process)
    assert (ended.code, ended.report["status"]) == (130, "stopped"), ended.stderr
    stored = count_stored(shared.sandbox).total()
    assert ended.rows["created"] == stored < PEOPLE

    process = start(shared)
    wait_for_creates(shared, stored + 100)
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
    assert (ended.code, ended.report["status"]) == (143, "stopped")
    wait_for(lambda: not any(is_alive(each) for each in children))


def test_a_run_uses_a_scheduler_and_a_lost_scheduler_ends_the_run_in_order(shared: Connector, tmp_path: Path) -> None:
    write_job(tmp_path, people=300)
    with run_dask(tmp_path, "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard") as scheduler:
        address = read_address(tmp_path)
        command = ("sync", "job.yaml", "--engine", "dask", "--scheduler", address)
        ended = shared.run(*command)
        assert (ended.code, "has no workers" in ended.stderr) == (2, True), ended.stderr
        scratch = tmp_path / "scratch"
        options = ("--nthreads", "1", "--nworkers", "2", "--no-dashboard", "--local-directory", str(scratch))
        with run_dask(tmp_path, "worker", address, *options, environ=shared.environ):
            wait_for(lambda: (tmp_path / "worker.log").read_text().count("Registered to:") == 2)
            ended = shared.run_json(*command)
            assert (ended.code, ended.rows) == (1, {"read": 305, "created": 300, **ODD}), ended.stderr
            assert scheduler.poll() is None
            job = (tmp_path / "job.yaml").read_text()
            (tmp_path / "job.yaml").write_text(job.replace("{id: 7}", "{name: Newsletter}"))
            ended = shared.run_json(*command)
            assert (ended.code, "Give the base by its id" in ended.stderr) == (2, True), ended.stderr

            write_job(tmp_path)
            shared.sandbox.switch(latency_ms=400)
            process = shared.start(*command, "--output", "json")
            wait_for_creates(shared, 350)
            scheduler.kill()
            ended = end(process)
            assert (ended.code, "the scheduler has ended" in ended.stderr) == (3, True), ended.stderr
            shared.sandbox.switch(latency_ms=5)
            again = shared.run_json("sync", "job.yaml", "--wait", "60s")
            assert again.code == 1, again.stderr
    assert count_stored(shared.sandbox) == everyone_once()
