"""Commands run in forks of a process that has done the program's imports: they take two seconds of every start, and the
tests run hundreds of commands. What is to be seen from its first moment is started as a user starts it
(`Connector.start_anew`)."""

import atexit
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

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["pytest", __name__, *_LIBRARIES, *_MODULES])


class Forked:
    """`python -m pipelines` with these arguments, this environment and in this folder; waited for at its exit."""

    def __init__(
        self, arguments: Sequence[str], environ: Mapping[str, str], folder: Path, stdin: str | bytes = ""
    ) -> None:
        self._streams = TemporaryDirectory(prefix="connector-streams-")
        paths = [Path(self._streams.name) / name for name in ("stdin", "stdout", "stderr")]
        for path, content in zip(paths, (stdin, "", ""), strict=True):
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        self._outputs = paths[1:]
        self._process = _CONTEXT.Process(target=_be_the_command, args=(arguments, dict(environ), folder, paths))
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
        stdout, stderr = (path.read_text(encoding="utf-8") for path in self._outputs)
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


def _be_the_command(arguments: Sequence[str], environ: dict[str, str], folder: Path, streams: list[Path]) -> None:
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(folder)
    for descriptor, path in enumerate(streams):
        opened = os.open(path, os.O_WRONLY if descriptor else os.O_RDONLY)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.stdin = os.fdopen(0, encoding="utf-8")
    sys.argv = ["connector", *arguments]
    warnings.simplefilter("error")
    try:
        runpy.run_module("pipelines", run_name="__main__", alter_sys=True)
    finally:
        atexit._run_exitfuncs()  # a forked process ends without
