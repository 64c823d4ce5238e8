"""The clock of the machine."""

import subprocess
import sys

import pytest

_DAY_S = 86_400
_READ = "import time; from connector.clock import system_clock; print(system_clock().monotonic() - time.monotonic())"


def test_time_goes_on_while_the_machine_sleeps() -> None:
    asleep = ["unshare", "-rT", "--boottime", str(_DAY_S)]  # as after a day of sleep
    if sys.platform != "linux" or subprocess.run([*asleep, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no namespace of time may be made here")
    ended = subprocess.run([*asleep, sys.executable, "-c", _READ], check=True, capture_output=True, text=True)
    assert float(ended.stdout) >= _DAY_S - 1
