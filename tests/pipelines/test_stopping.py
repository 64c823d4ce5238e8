"""Signals, whatever a run is doing when they come."""

import signal
import subprocess
import sys
import time

from tests.pipelines.conftest import ROOT

NEVER_ENDS = """
import asyncio
from pipelines.runs.stopping import stop_on_signals

async def main():
    with stop_on_signals():
        print("ready", flush=True)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(60)  # what is still to be recorded, in a ledger that does not answer

asyncio.run(main())
"""


def test_a_second_signal_ends_even_a_run_whose_ledger_does_not_answer() -> None:
    command = [sys.executable, "-c", NEVER_ENDS]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for _ in range(2):
            process.send_signal(signal.SIGTERM)
            time.sleep(0.2)  # two signals at once would be one to the process
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    assert stderr.startswith("connector: ended without a report")
    assert "Traceback" not in stderr
