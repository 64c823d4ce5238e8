"""The progress line of a terminal shows the share of rows, the rate, the remaining time and the reason of a wait."""

import asyncio
import re

from connector.clock import system_clock
from connector.control import Stop
from connector.progress import ProgressMeter
from tests.pipelines.conftest import Connector
from tests.pipelines.terminal import run_on_terminal


def test_the_rate_and_the_remaining_time_are_computed_from_the_last_seconds() -> None:
    clock_seconds = [0.0]
    meter = ProgressMeter(lambda: clock_seconds[0])
    assert meter.describe(0, None) == ""
    clock_seconds[0] = 1.0
    assert meter.describe(50, 1000) == "5% of 1,000, 50/s, 19 s left"
    for now_s in range(2, 40):
        clock_seconds[0] = now_s
        meter.describe(50, 1000)
    clock_seconds[0] = 41.0
    assert meter.describe(650, 12_345.6, is_estimate=True) == "5% of about 12,000, 60/s, 3 min left"
    clock_seconds[0] = 42.0
    assert meter.describe(0, 1000) == "0% of 1,000"  # the list is read again, so the count begins at 0


def test_a_wait_shows_the_remaining_seconds_and_the_reason() -> None:
    async def wait() -> tuple[str, str]:
        clock_seconds = [0.0]

        async def sleep(_seconds: float) -> None:
            await asyncio.sleep(0)

        stop = Stop(system_clock().__class__(lambda: clock_seconds[0], system_clock().now, sleep))
        waiting_task = asyncio.create_task(stop.wait(30, "the service has asked for a pause"))
        await asyncio.sleep(0)
        clock_seconds[0] = 18.0
        text_during_wait = stop.describe()
        await waiting_task
        return text_during_wait, stop.describe()

    assert asyncio.run(wait()) == ("waiting 12 s: the service has asked for a pause", "reading")


def test_a_terminal_shows_the_progress_of_a_run(connector: Connector) -> None:
    connector.crm.run("CREATE TABLE people (email TEXT)")
    connector.crm.insert_rows("people", [(f"p{index}@example.com",) for index in range(200)])
    connector.write_job(source="sql: {url: 'sqlite:///crm.db', table: people}", load="max_rate: 100")
    connector.sandbox.switch(latency_ms=100)
    exit_code, output = run_on_terminal(connector, "sync", "job.yaml", columns=200, terminal_type="xterm")
    assert exit_code == 0, output
    pattern = r"200 read: [1-9]\d* created; \d+% of 200, \d+/s, \d+ s left \(creating\)"
    assert re.search(pattern, output), output[-2000:]
