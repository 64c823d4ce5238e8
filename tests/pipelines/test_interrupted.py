"""Runs that are killed or stopped in each phase, and the runs after them."""

import json
import os
import pty
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import sqlalchemy as sa

from tests.databases import open_postgres
from tests.pipelines.conftest import NEWS_IMPORT_OPTIONS, ROOT, CommandResult, Connector, wait_for, wait_for_result
from tests.pipelines.forked import ForkedProcess
from tests.pipelines.planned import count_requests

KILL_COUNT = int(os.environ.get("CONNECTOR_TEST_KILLS", "5"))
FAULTS = {
    **dict.fromkeys(("drop_before", "drop_after", "error_before", "error_after", "cut_answer", "garbage_after"), 0.01),
    "cut_by": "reset",
}
PEOPLE_COUNT = 100 * (KILL_COUNT + 1)


def test_each_subscriber_is_created_exactly_once_if_an_import_is_killed_several_times(connector: Connector) -> None:
    sandbox, rng = connector.sandbox, random.Random(11)
    sandbox.switch(latency_ms=40, **FAULTS)
    path = connector.write_addresses(PEOPLE_COUNT)
    arguments = ("import", path, "--base-name", "News", "--quiet-period", "300ms", "--max-concurrency", "8")
    for kill_index in range(KILL_COUNT):
        with connector.start(*arguments) as process:
            target_count = sandbox.stats()["subscribers"] + rng.randrange(1, 100)
            connector.wait_for_subscribers(target_count)
            process.kill()
        assert max(connector.count_creates_by_email().values(), default=0) <= 1, f"after kill {kill_index}"
    result = connector.run_json(*arguments)
    assert result.exit_code == 0, result.stdout
    create_counts = connector.count_creates_by_email()
    assert len(create_counts) == PEOPLE_COUNT
    assert set(create_counts.values()) == {1}
    assert result.rows["read"] == PEOPLE_COUNT
    assert result.rows["created"] + result.rows["exists"] == PEOPLE_COUNT


def test_a_run_whose_terminal_is_closed_stops_cleanly(connector: Connector, tmp_path: Path) -> None:
    """Both the kernel and the shell send SIGHUP. The report file is written, although the terminal cannot be used."""
    controller, terminal = pty.openpty()
    connector.sandbox.switch(latency_ms=50)
    path, report_path = connector.write_addresses(300), tmp_path / "run.json"
    arguments = ("import", path, *NEWS_IMPORT_OPTIONS, "--max-concurrency", "4", "--yes", "--report", report_path)
    with connector.start(*arguments, terminal_path=os.ttyname(terminal)) as process:
        connector.wait_for_subscribers(20)
        for descriptor in (terminal, controller):
            os.close(descriptor)
        for _ in range(2):
            process.send_signal(signal.SIGHUP)
            time.sleep(0.01)  # without this pause, the process would receive both signals as one signal
        process.communicate(timeout=30)
    report = json.loads(report_path.read_text(encoding="utf-8"))
    assert (process.returncode, report["status"]) == (143, "stopped")
    create_counts = connector.count_creates_by_email()
    assert set(create_counts.values()) == {1}
    created_count = len(create_counts)
    assert report["rows"]["created"] == created_count == 300 - report["rows"]["unsent"] < 300
    connector.sandbox.switch(latency_ms=0)
    connector.import_file(path).expect(0, read=300, created=300 - created_count, exists=created_count)


def test_a_run_that_nohup_started_continues_after_its_terminal_is_closed(connector: Connector) -> None:
    """Like `nohup`, the test starts the command with the signal SIGHUP ignored."""
    connector.sandbox.switch(latency_ms=50)
    path = connector.write_addresses(60)
    previous_handler = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = connector.start_new_interpreter("import", path, *NEWS_IMPORT_OPTIONS, "--max-concurrency", "4")
    finally:
        signal.signal(signal.SIGHUP, previous_handler)
    with process:
        connector.wait_for_subscribers(5)
        process.send_signal(signal.SIGHUP)
        process.communicate(timeout=60)
    assert process.returncode == 0


def test_a_second_signal_ends_the_run_immediately_and_causes_no_second_create(connector: Connector) -> None:
    path = connector.write_addresses(100)
    arguments = ("import", path, "--base-name", "News", "--quiet-period", "300ms", "--output", "json")
    connector.sandbox.switch(hang_after=1, list_lag_ms=3000)  # only the ledger has the create when the next run begins
    with connector.start(*arguments) as process:
        connector.wait_for_subscribers(1)
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)  # without this pause, the process would receive both signals as one signal
        process.send_signal(signal.SIGINT)
        started_at = time.monotonic()
        process.communicate(timeout=30)
    assert process.returncode == 130
    assert time.monotonic() - started_at < 5
    connector.sandbox.switch(hang_after=0)
    assert connector.run_json(*arguments).rows == {"read": 100, "exists": 1, "created": 99}
    assert set(connector.count_creates_by_email().values()) == {1}


def test_a_run_whose_source_never_answers_ends_after_a_signal(connector: Connector) -> None:
    """The query counts to 100,000,000,000 before it returns the first row."""
    numbers_sql = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 100000000000)"
    query = f"{numbers_sql} SELECT 'p' || x || '@example.com' AS email FROM n WHERE x <= 30"
    connector.crm.run("CREATE TABLE unused (number)")  # creates the file
    connector.write_job(source=f"sql: {{url: 'sqlite:///crm.db', query: \"{query}\"}}")
    with connector.start("sync", "job.yaml", "--output", "json") as process:
        time.sleep(2)  # by then, the run waits for the database
        process.send_signal(signal.SIGINT)
        started_at = time.monotonic()
        stopped_result = wait_for_result(process)
    assert (stopped_result.exit_code, stopped_result.report["status"]) == (130, "stopped"), stopped_result.stderr
    assert time.monotonic() - started_at < 10


ENDLESS_PROGRAM = """
import asyncio
from connector.clock import system_clock
from connector.control import stop_on_signals

async def main():
    with stop_on_signals(system_clock()):
        print("ready", flush=True)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(60)  # imitates a ledger that does not answer

asyncio.run(main())
"""


def test_a_second_signal_ends_even_a_run_whose_ledger_does_not_answer() -> None:
    command = [sys.executable, "-c", ENDLESS_PROGRAM]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for _ in range(2):
            process.send_signal(signal.SIGTERM)
            time.sleep(0.2)  # without this pause, the process would receive both signals as one signal
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    assert stderr.startswith("connector: ended without a report")
    assert "Traceback" not in stderr


def send_two_signals(process: ForkedProcess) -> None:
    """Send two signals so fast that the process receives both signals before it reacts to the first signal."""
    for signal_number in (signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
        process.send_signal(signal_number)


def wait_for_stopped_result(process: ForkedProcess) -> CommandResult:
    """Wait for the end of a stopped command, and return its result."""
    result = wait_for_result(process)
    assert result.exit_code in (128 + signal.SIGINT, 128 + signal.SIGTERM)
    assert result.report["status"] == "stopped"
    return result


def test_two_signals_while_the_list_is_read_end_the_run_with_a_report(connector: Connector) -> None:
    connector.sandbox.seed(1500, base_name="News")
    connector.sandbox.switch(latency_ms=60_000)
    list_request_count = count_requests(connector.sandbox, "list")
    with connector.start("export", "out.parquet", "--output", "json") as process:
        wait_for(lambda: count_requests(connector.sandbox, "list") > list_request_count)
        send_two_signals(process)
        wait_for_stopped_result(process)
    connector.sandbox.switch(latency_ms=0)
    assert not [*connector.folder.glob("out*"), *connector.folder.glob("*.partial")]


def test_two_signals_while_postgresql_waits_for_a_lock_leave_the_table_unchanged(connector: Connector) -> None:
    connector.sandbox.seed(20, base_name="News")
    with open_postgres() as database:
        first_result = connector.run_json("export", database.url)
        assert first_result.exit_code == 0
        connector.sandbox.switch(latency_ms=1500)  # time to lock the table after the export has checked it
        list_request_count = count_requests(connector.sandbox, "list")
        with (
            database.begin() as other_connection,
            connector.start("export", database.url, "--output", "json") as process,
        ):
            wait_for(lambda: count_requests(connector.sandbox, "list") > list_request_count)
            other_connection.execute(sa.text("LOCK TABLE subscribers IN SHARE MODE"))
            connector.sandbox.switch(latency_ms=0)
            wait_for(lambda: is_waiting(other_connection))
            send_two_signals(process)
            wait_for_stopped_result(process)
        with database.begin() as connection:
            run_ids = connection.scalars(sa.text("SELECT DISTINCT _run_id FROM subscribers")).all()
        assert run_ids == [first_result.report["run_id"]]


def is_waiting(connection: sa.Connection) -> bool:
    """Return whether a session waits for a lock."""
    return bool(connection.scalar(sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted")))
