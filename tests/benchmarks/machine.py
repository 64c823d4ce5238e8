"""The machine of a measurement. Every result that is printed as JSON contains a description of the machine."""

import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime

from tests.benchmarks.processes import ROOT


def describe_machine() -> dict[str, object]:
    """Return the commit, command, processor, cores, Python version and time as JSON values."""
    commit = subprocess.run(
        ("git", "describe", "--always", "--dirty", "--exclude=*"), capture_output=True, text=True, check=True, cwd=ROOT
    )
    return {
        "commit": commit.stdout.strip(),
        "command": shlex.join(["python", *sys.orig_argv[1:]]),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
