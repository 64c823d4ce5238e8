"""Starts a scheduler of Dask, and finds the workers and sockets of a process."""

import ipaddress
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.pipelines.conftest import wait_for


@contextmanager
def run_dask(
    folder: Path, role: str, *options: str, environ: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    inherited_environ = {
        name: value for name, value in os.environ.items() if not name.startswith("DASK_")
    }  # DASK_… may change the log
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


def list_children(pid: int) -> list[int]:
    """Return the descendants of a process."""
    children = [
        int(pid_text) for path in Path(f"/proc/{pid}/task").glob("*/children") for pid_text in path.read_text().split()
    ]
    return [*children, *(descendant for child in children for descendant in list_children(child))]


def list_workers(pid: int) -> list[int]:
    """Return the workers of a command: the children of its fork server."""
    servers = [child for child in list_children(pid) if b"forkserver" in read_command(child)]
    return [worker for server in servers for worker in list_children(server)]


def read_command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def list_listening_addresses(pid: int) -> list[str]:
    """Return the addresses on which a process accepts connections over TCP."""
    process_folder = Path(f"/proc/{pid}")
    with suppress(FileNotFoundError):  # the process has just ended
        sockets = {str(link.readlink()) for link in (process_folder / "fd").iterdir()}
        socket_rows = [
            line.split()
            for name in ("tcp", "tcp6")
            for line in (process_folder / "net" / name).read_text().splitlines()[1:]
        ]
        return [
            _parse_address(line[1])
            for line in socket_rows
            if line[3] == _LISTENING and f"socket:[{line[9]}]" in sockets
        ]
    return []


_LISTENING = "0A"  # a state of proc_pid_net(5)


def _parse_address(hexadecimal: str) -> str:
    """Return an address that the kernel wrote in hexadecimal digits, four bytes at a time in the machine's order."""
    digits = hexadecimal.partition(":")[0]
    groups = [int(digits[start : start + 8], 16).to_bytes(4, sys.byteorder) for start in range(0, len(digits), 8)]
    return str(ipaddress.ip_address(b"".join(groups)))
