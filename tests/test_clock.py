"""The clock of the machine."""

import subprocess
import sys

import pytest

_DAY_S = 86_400
_CLOCK_SCRIPT = (
    "import time; from connector.clock import system_clock; print(system_clock().monotonic() - time.monotonic())"
)


def test_the_clock_counts_the_time_while_the_machine_sleeps() -> None:
    sleep_command = ["unshare", "-rT", "--boottime", str(_DAY_S)]  # sets the clock as if the machine had slept a day
    if sys.platform != "linux" or subprocess.run([*sleep_command, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine does not allow a time namespace")
    result = subprocess.run(
        [*sleep_command, sys.executable, "-c", _CLOCK_SCRIPT], check=True, capture_output=True, text=True
    )
    assert float(result.stdout) >= _DAY_S - 1
