"""Starts a scheduler of Dask, and finds the workers and sockets of a process."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.pipelines.conftest import wait_for


@contextmanager
def run_dask(
    folder: Path, role: str, *options: str, environ: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    # Variables such as DASK_LOGGING are left out, because they may change the log.
    inherited_environ = {name: value for name, value in os.environ.items() if not name.startswith("DASK_")}
    with (folder / f"{role}.log").open("wb") as log_file:
        process = subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_" + role, *options],
            cwd=folder,
            env=inherited_environ | (environ or {}),
            stdout=log_file,
            stderr=log_file,
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait()


def read_address(folder: Path) -> str:
    """Return the address of the scheduler from its log."""
    log_path = folder / "scheduler.log"
    wait_for(lambda: "Scheduler at:" in log_path.read_text())
    return "tcp://" + log_path.read_text().partition("Scheduler at:")[2].partition("tcp://")[2].split()[0]


def list_children(pid: int) -> list[psutil.Process]:
    """Return the descendants of a process."""
    return list(psutil.Process(pid).children(recursive=True))


def list_workers(pid: int) -> list[psutil.Process]:
    """Return the workers of a command: the children of its fork server."""
    servers = [child for child in list_children(pid) if "forkserver" in " ".join(child.cmdline())]
    return [worker for server in servers for worker in server.children(recursive=True)]


def is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
