"""Runs commands in forks of a process that has imported the program. The imports would add two seconds to each start.

A test of the start itself uses a new process (`Connector.start_new_interpreter`)."""

import atexit
import ctypes
import json
import logging
import multiprocessing
import os
import signal
import socket
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.reduction import DupFd
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from types import TracebackType
from typing import Any, Self

from connector.ledger import postgres, store
from pipelines.__main__ import main
from tests.pipelines.virtual_time import skip_waits

_CAPABILITY_VERSION_3 = 0x20080522
_CAPABILITIES_OVER_FILES = 0b1110  # the bits of CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH and CAP_FOWNER
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["pytest", __name__, "tests.pipelines.warmed"])


class ForkedProcess:
    """A process of `python -m pipelines` with arguments, an environment and a folder. The exit of the context waits for
    the end of the process."""

    def __init__(
        self,
        arguments: Sequence[str],
        environ: Mapping[str, str],
        folder: Path,
        stdin: str | bytes = "",
        *,
        has_reader: bool = True,
        is_unprivileged: bool = False,
        terminal_path: str = "",
        lease_s: float | None = None,
        program: Callable[[], None] = main,
    ) -> None:
        """Start the process.

        Without `has_reader`, stdout has no reader. `is_unprivileged`: file permissions apply even if root runs the
        tests. `terminal_path`: the path of a terminal for all streams. `lease_s`: the seconds of a lease of the
        ledger. `program`: the function that the process calls.
        """
        self._streams = TemporaryDirectory(prefix="connector-streams-")
        paths = [Path(self._streams.name) / name for name in ("stdin", "stdout", "stderr")]
        for path, content in zip(paths, (stdin, "", ""), strict=True):
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        if not has_reader:
            paths[1].unlink()
            os.mkfifo(paths[1])
        self._outputs = [] if terminal_path else paths[1:]
        if terminal_path:
            paths = [Path(terminal_path)] * 3
        self._process = CONTEXT.Process(
            target=_run_as_command, args=(arguments, dict(environ), folder, paths, is_unprivileged, lease_s, program)
        )
        self._process.start()

    @property
    def pid(self) -> int:
        """The id of the process."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | Any:
        """The exit code, the negative number of the signal that killed the process, or None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Return `returncode`, like Popen does."""
        return self.returncode

    def send_signal(self, signal_number: int) -> None:
        """Send a signal to the process if it runs."""
        if self.returncode is None:
            os.kill(self.pid, signal_number)

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()

    def communicate(self, timeout: float = 120.0) -> tuple[str, str]:
        """Return stdout and stderr at the end of the process. Raises TimeoutError after `timeout` seconds."""
        self._process.join(timeout)
        outputs = ["" if path.is_fifo() else path.read_text(encoding="utf-8") for path in self._outputs]
        stdout, stderr = outputs or ("", "")
        if self.returncode is None:
            raise TimeoutError(f"the command did not end within {timeout} s: {stderr}")
        return stdout, stderr

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self._process.kill()
        self._process.join()
        self._streams.cleanup()


@contextmanager
def serve_programs(programs: Mapping[Path, Callable[[], None]]) -> Iterator[None]:
    """Write a script to each path. When the script runs, a fork of this process calls the function of the path. The
    function gets the arguments and the streams of the script."""
    with TemporaryDirectory(prefix="connector-commands-") as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/socket")
        listener.listen()
        for path in programs:
            path.write_text(_PROGRAM_SCRIPT.format(python=sys.executable, address=f"{folder}/socket"), encoding="utf-8")
            path.chmod(0o755)
        programs_by_name = {path.name: program for path, program in programs.items()}
        Thread(target=_serve_programs, args=(listener, programs_by_name), daemon=True).start()
        yield
        listener.shutdown(socket.SHUT_RDWR)


_PROGRAM_SCRIPT = """#!{python} -IS
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
socket.send_fds(server, [b"."], [0, 1, 2])
server.sendall(json.dumps([sys.argv, dict(os.environ), os.getcwd()]).encode())
server.shutdown(socket.SHUT_WR)
sys.exit(int(server.recv(9)))
"""


@dataclass
class _Stream:
    """The descriptor of a stream, in a form that can be sent to the fork."""

    descriptor: int

    def __reduce__(self) -> tuple[Any, ...]:
        return _receive_stream, (DupFd(self.descriptor),)


def _receive_stream(sent_descriptor: Any) -> _Stream:
    return _Stream(sent_descriptor.detach())


def _serve_programs(listener: socket.socket, programs: Mapping[str, Callable[[], None]]) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:  # the listener was shut down
            return
        Thread(target=_run_for_client, args=(client, programs), daemon=True).start()


def _run_for_client(client: socket.socket, programs: Mapping[str, Callable[[], None]]) -> None:
    with client, client.makefile() as client_file:
        descriptors = socket.recv_fds(client, 1, 3)[1]
        (path, *arguments), environ, folder = json.load(client_file)
        streams = [_Stream(descriptor) for descriptor in descriptors]
        process = CONTEXT.Process(
            target=_run_as_program, args=(arguments, environ, folder, streams, programs[Path(path).name])
        )
        process.start()
        for descriptor in descriptors:
            os.close(descriptor)
        process.join()
        assert process.exitcode is not None
        client.sendall(str(process.exitcode if process.exitcode >= 0 else 128 - process.exitcode).encode())


def _run_as_program(
    arguments: list[str], environ: dict[str, str], folder: str, streams: list[_Stream], program: Callable[[], None]
) -> None:
    for index, stream in enumerate(streams):
        os.dup2(stream.descriptor, index)
        os.close(stream.descriptor)
    _run_program(arguments, environ, folder, program)


def _run_as_command(
    arguments: Sequence[str],
    environ: dict[str, str],
    folder: Path,
    stream_paths: list[Path],
    is_unprivileged: bool,
    lease_s: float | None,
    program: Callable[[], None],
) -> None:
    for descriptor, path in enumerate(stream_paths):
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK) if path.is_fifo() else None
        opened_descriptor = os.open(path, os.O_WRONLY if descriptor else os.O_RDONLY)
        if reader is not None:
            os.close(reader)
        os.dup2(opened_descriptor, descriptor)
        os.close(opened_descriptor)
    if is_unprivileged:
        _drop_rights_of_root()
    if lease_s is not None:
        for module in (store, postgres):
            vars(module)["LEASE_S"] = lease_s
    _run_program(arguments, environ, folder, program)


def run_without_waits() -> None:
    """Run `connector`. Quiet periods and pauses take no time."""
    from pipelines.cli import run

    run(skip_waits())


def run_script() -> None:
    """Run a Python script. The first argument is the path of the script, or `-` for standard input."""
    sys.path.insert(0, "")
    path = sys.argv[1]
    script = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    exec(compile(script, path, "exec"), {"__name__": "__main__"})


def _run_program(
    arguments: Sequence[str], environ: dict[str, str], folder: str | Path, program: Callable[[], None]
) -> None:
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(folder)
    sys.stdin = os.fdopen(0, encoding="utf-8")  # an inherited stream remembers whether seek() worked
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
    sys.argv = ["connector", *arguments]
    warnings.simplefilter("error")
    # A shell may start the tests with SIGINT ignored, and nohup starts them with SIGHUP ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    atexit._clear()  # exit handlers of libraries take a fifth of the time of a short command
    atexit.register(logging.shutdown)
    atexit.register(weakref.finalize._exitfunc)  # type: ignore[attr-defined] # removes temporary folders
    try:
        program()
    finally:
        atexit._run_exitfuncs()  # a forked process does not run its exit handlers by itself


def _drop_rights_of_root() -> None:
    """Make file permissions apply to this process even if root runs the process (capset(2))."""
    header, capability_sets = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.capget(header, capability_sets)
    for index in (0, 1):  # the effective and the permitted capabilities
        capability_sets[index] &= ~_CAPABILITIES_OVER_FILES
    if libc.capset(header, capability_sets) != 0:
        raise OSError(ctypes.get_errno(), "capset")
