"""Shared by all tests: one sandbox for each process, which is emptied before each test that uses it. The folders with
the longest files run first, so that no process waits for another at the end.

Temporary files are in memory if memory has room: only a power cut shows whether a disk has a file, and many thousand
commits would wait for a disk.
"""

import asyncio
import atexit
import gc
import inspect
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.util import Finalize
from pathlib import Path
from typing import cast

import pytest
from _pytest.terminal import TerminalReporter
from hypothesis import HealthCheck, settings

from connector.sandbox import SandboxProcess
from tests.databases import stop_postgres
from tests.simulation.summary import print_summary
from tests.stores import Bucket, make_bucket, open_s3

settings.register_profile(
    "shared machine",  # whose speed proves nothing about the code
    max_examples=int(os.environ.get("CONNECTOR_TEST_EXAMPLES", "25")),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("shared machine")

LoopFactory = Callable[[], asyncio.AbstractEventLoop] | None

_TESTS = Path(__file__).parent
_MEMORY = Path("/dev/shm")
_FOLDER: Path | None = None  # folder of all files of this session, made by the process that starts the others
if "TMPDIR" not in os.environ and _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > 4 << 30:
    _FOLDER = Path(tempfile.mkdtemp(prefix="connector-tests-", dir=_MEMORY))
    os.environ["TMPDIR"] = tempfile.tempdir = str(_FOLDER)

# The processes share compiled modules. Otherwise each process would compile all modules.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Loopback needs no certificates of the machine, which take 20 ms to load at each start and each connection to MySQL.
os.environ |= {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": os.devnull}

atexit.register(gc.unfreeze)  # DuckDB warns about frozen objects at the end
gc.disable()  # until all tests are collected: the search for garbage took half of the time of the collection

_EXIT_STATUS = pytest.StashKey[int]()

_LONG = ("simulation", "docs", "pipelines", "export", "sources")


class _RotatedPackage(pytest.Package):
    """The folder of all tests. Each process collects from another part on: otherwise, in a new checkout, all processes
    would compile the same file at the same moment."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Return the files and folders, rotated by the number of the process."""
        number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
        parts = list(super().collect())
        first = len(parts) * number // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
        return parts[first:] + parts[:first]


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect the folder of all tests in rotated order, and other folders as usual."""
    return _RotatedPackage.from_parent(parent, path=path) if path == _TESTS else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the folders with the longest files run first. The tests need no order."""
    ranks = {name: rank for rank, name in enumerate(_LONG)}
    items.sort(key=lambda item: (ranks.get(item.path.parent.name, len(ranks)), item.path))


def pytest_collection_finish() -> None:
    """Exclude all loaded objects from garbage collection: the tests of the simulation take a quarter less time."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in its own event loop."""
    if not asyncio.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    with asyncio.Runner(loop_factory=cast("LoopFactory", pyfuncitem.funcargs.get("loop_factory"))) as runner:
        runner.run(pyfuncitem.obj(**arguments))
    return True


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Stop the PostgreSQL server of this process."""
    session.config.stash[_EXIT_STATUS] = exitstatus
    stop_postgres()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the files of the session, unless the session failed."""
    if _FOLDER is not None and config.stash.get(_EXIT_STATUS, 1) == 0:
        Finalize(None, shutil.rmtree, (_FOLDER, True), exitpriority=-200)  # multiprocessing has -100


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Print the table of the simulation."""
    print_summary(terminalreporter)


@pytest.fixture(scope="session")
def session_s3() -> Iterator[str]:
    with open_s3() as endpoint:
        yield endpoint


@pytest.fixture
def bucket(session_s3: str) -> Bucket:
    return make_bucket(session_s3)


@pytest.fixture(scope="session")
def session_sandbox() -> Iterator[SandboxProcess]:
    with SandboxProcess() as sandbox:
        yield sandbox


@pytest.fixture
def sandbox(session_sandbox: SandboxProcess) -> SandboxProcess:
    session_sandbox.reset()
    return session_sandbox
