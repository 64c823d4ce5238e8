"""Signals during each phase of a run."""

import signal
import subprocess
import sys
import time

import sqlalchemy as sa

from tests.databases import open_postgres
from tests.pipelines.conftest import ROOT, CommandResult, Connector, wait_for, wait_for_result
from tests.pipelines.forked import ForkedProcess
from tests.pipelines.planned import count_requests

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
    """Send two signals at once: the process receives both before it acts on the first."""
    for signal_number in (signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
        process.send_signal(signal_number)


def wait_for_stopped_result(process: ForkedProcess) -> CommandResult:
    """Wait for the end of a stopped command, and return its result."""
    result = wait_for_result(process)
    assert result.exit_code in (128 + signal.SIGINT, 128 + signal.SIGTERM)
    assert result.report["status"] == "stopped"
    return result


def test_two_signals_while_the_list_is_read_end_in_a_report(connector: Connector) -> None:
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
        connector.sandbox.switch(
            latency_ms=1500
        )  # leaves time to lock the table after the export has checked the table
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
