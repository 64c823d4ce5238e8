"""A command as a process of its own, and what it took: wall clock, processor time, peak of memory.

What the command is and what it says, this does not know.
"""

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

_KIB = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is in bytes there, in kibibytes elsewhere


class CommandError(Exception):
    """A command that ended with another code than 0, or not in time; the message has the end of its stderr."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What a command took, by the kernel's own count of it and of the children that it waited for."""

    wall_s: float
    cpu_s: float  # user and system
    peak_bytes: int | None  # None when it cannot be told: see `_tell_peak`
    stdout: bytes


def run_process(
    command: Sequence[str | Path], environment: Mapping[str, str], *, timeout_s: float = 3600.0, folder: Path = ROOT
) -> Spent:
    """Run a command in `folder` to its end. Raises CommandError."""
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        own_peak = _read_own_peak()
        began = time.perf_counter()
        child = subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=environment,
            cwd=folder,
        )
        code, usage = _wait_for(child, timeout_s)
        wall_s = time.perf_counter() - began
        stdout.seek(0)
        stderr.seek(0)
        if code != 0:
            message = stderr.read().decode(errors="replace").strip() or "it said nothing"
            ended = f"was ended after {timeout_s:g} s" if code == -signal.SIGKILL else f"ended with {code}"
            raise CommandError(f"{Path(command[0]).name} {ended}: {message[-500:]}")
        return Spent(wall_s, usage.ru_utime + usage.ru_stime, _tell_peak(usage, own_peak), stdout.read())


def _wait_for(child: subprocess.Popen[bytes], timeout_s: float) -> tuple[int, resource.struct_rusage]:
    """Its exit code and what it used. By `os.wait4`, since the sum over all children is another's as well."""
    killer = threading.Timer(timeout_s, os.kill, (child.pid, signal.SIGKILL))
    killer.start()
    try:
        _, status, usage = os.wait4(child.pid, 0)
    except BaseException:
        child.kill()
        child.wait()
        raise
    finally:
        killer.cancel()
    child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode, usage


def _tell_peak(usage: resource.struct_rusage, own_peak: int) -> int | None:
    """A child begins as a copy of its parent, and what that held at most counts as held by it: a peak that does not
    rise above the parent's own says nothing."""
    peak = usage.ru_maxrss * _KIB
    return peak if peak > own_peak else None


def _read_own_peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB
