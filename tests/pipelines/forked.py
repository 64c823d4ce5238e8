"""Commands run in forks of a process that has done the program's imports: they take two seconds of every start, and the
tests run hundreds of commands. What is to be seen from its first moment is started as a user starts it
(`Connector.start_anew`)."""

import atexit
import ctypes
import multiprocessing
import os
import runpy
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

_ROOT = Path(__file__).parents[2]
_MODULES = sorted(
    ".".join(path.relative_to(_ROOT).with_suffix("").parts).removesuffix(".__init__")
    for package in ("connector", "pipelines")
    for path in (_ROOT / package).rglob("*.py")
    if path.name != "__main__.py"
)
"""All of the program: a command imports most of it only when it has use for it."""

_LIBRARIES = (
    "aiohttp", "duckdb", "jinja2", "pandas", "pandera.backends.pandas.register", "pandera.pandas",
    "pandera.strategies.pandas_strategies", "psycopg", "pyarrow.parquet", "pymysql", "rich",
    "sqlalchemy.dialects.mysql.pymysql", "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy.dialects.sqlite.pysqlite", "uvloop",
)  # fmt: skip

_CAPABILITY_VERSION_3 = 0x20080522
_CAPABILITIES_OVER_FILES = 0b1110  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["pytest", __name__, *_LIBRARIES, *_MODULES])


class Forked:
    """`python -m pipelines` with these arguments, this environment and in this folder; waited for at its exit."""

    def __init__(
        self,
        arguments: Sequence[str],
        environ: Mapping[str, str],
        folder: Path,
        stdin: str | bytes = "",
        *,
        has_reader: bool = True,
        is_bound: bool = False,
    ) -> None:
        """Start it; without `has_reader` stdout is a pipe whose reader has gone, `is_bound`: permissions bind root."""
        self._streams = TemporaryDirectory(prefix="connector-streams-")
        paths = [Path(self._streams.name) / name for name in ("stdin", "stdout", "stderr")]
        for path, content in zip(paths, (stdin, "", ""), strict=True):
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        if not has_reader:
            paths[1].unlink()
            os.mkfifo(paths[1])
        self._outputs = paths[1:]
        self._process = _CONTEXT.Process(
            target=_be_the_command, args=(arguments, dict(environ), folder, paths, is_bound)
        )
        self._process.start()

    @property
    def pid(self) -> int:
        """The number of the process."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | Any:
        """The exit code, the negative number of the signal that killed it, or None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """The same, under the name that Popen gives it."""
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it this signal, if it still runs."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it as a power cut would."""
        self._process.kill()

    def communicate(self, timeout: float = 120.0) -> tuple[str, str]:
        """What it wrote to stdout and stderr until its end. Raises TimeoutError when it has not ended by then."""
        self._process.join(timeout)
        stdout, stderr = ("" if path.is_fifo() else path.read_text(encoding="utf-8") for path in self._outputs)
        if self.returncode is None:
            raise TimeoutError(f"it did not end within {timeout} s: {stderr}")
        return stdout, stderr

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._process.kill()
        self._process.join()
        self._streams.cleanup()


def _be_the_command(
    arguments: Sequence[str], environ: dict[str, str], folder: Path, streams: list[Path], is_bound: bool
) -> None:
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(folder)
    for descriptor, path in enumerate(streams):
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK) if path.is_fifo() else None
        opened = os.open(path, os.O_WRONLY if descriptor else os.O_RDONLY)
        if reader is not None:
            os.close(reader)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.stdin = os.fdopen(0, encoding="utf-8")
    sys.argv = ["connector", *arguments]
    warnings.simplefilter("error")
    if is_bound:
        _drop_rights_of_root()
    try:
        runpy.run_module("pipelines", run_name="__main__", alter_sys=True)
    finally:
        atexit._run_exitfuncs()  # a forked process ends without


def _drop_rights_of_root() -> None:
    """Have permissions of files bind this process, root's too (capset(2): no CAP_DAC_OVERRIDE and the like)."""
    header, sets = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.capget(header, sets)
    for index in (0, 1):  # effective, permitted
        sets[index] &= ~_CAPABILITIES_OVER_FILES
    if libc.capset(header, sets) != 0:
        raise OSError(ctypes.get_errno(), "capset")
