"""Runs a command as a process, and measures its wall time, processor time and peak memory."""

import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_BYTES_PER_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is in KiB, and on macOS in bytes


class CommandError(Exception):
    """A command that exited with a code other than 0, or exceeded its timeout. The message has the end of the text that
    the command wrote to stderr."""


@dataclass(frozen=True, slots=True)
class ResourceUsage:
    """The resources that a command and its children used, from the counts of the kernel."""

    wall_s: float
    cpu_s: float  # user and system time
    peak_mb: float  # NaN if the peak is unknown: see `_find_peak_mb`
    stdout: bytes


def run_process(
    command: Sequence[str | Path], environment: Mapping[str, str], *, timeout_s: float = 3600.0, folder: Path = ROOT
) -> ResourceUsage:
    """Run a command in `folder` to its end. Raise CommandError if the command fails."""
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        own_memory_peak_bytes = _read_own_memory_peak_bytes()
        started_at = time.perf_counter()
        process = subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=environment,
            cwd=folder,
        )
        exit_code, rusage = _wait_for(process, timeout_s)
        wall_s = time.perf_counter() - started_at
        stdout.seek(0)
        stderr.seek(0)
        if exit_code != 0:
            message = stderr.read().decode(errors="replace").strip() or "no message on stderr"
            end_description = (
                f"was ended after {timeout_s:g} s" if exit_code == -signal.SIGKILL else f"ended with {exit_code}"
            )
            raise CommandError(f"{Path(command[0]).name} {end_description}: {message[-500:]}")
        return ResourceUsage(
            wall_s, rusage.ru_utime + rusage.ru_stime, _find_peak_mb(rusage, own_memory_peak_bytes), stdout.read()
        )


def _wait_for(process: subprocess.Popen[bytes], timeout_s: float) -> tuple[int, resource.struct_rusage]:
    """Return the exit code and the resources of this child. `RUSAGE_CHILDREN` would include other processes."""
    killer = threading.Timer(timeout_s, os.kill, (process.pid, signal.SIGKILL))
    killer.start()
    try:
        _, status, rusage = os.wait4(process.pid, 0)
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        killer.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, rusage


def _find_peak_mb(rusage: resource.struct_rusage, own_memory_peak_bytes: int) -> float:
    """Return the peak memory of a child in MB, or NaN if the child's peak is not above the parent's peak.

    A child starts as a copy of its parent, so its peak is never below the parent's peak.
    """
    peak_bytes = rusage.ru_maxrss * _BYTES_PER_MAXRSS_UNIT
    return peak_bytes / 1e6 if peak_bytes > own_memory_peak_bytes else float("nan")


def _read_own_memory_peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _BYTES_PER_MAXRSS_UNIT
