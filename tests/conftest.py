"""Fixtures and settings of all tests. Each process has one sandbox, which is emptied before each test that uses it. The
folders with the slowest files run first, so that all processes end at about the same time.

If the memory has room, the temporary files of the tests are in memory. So thousands of commits do not wait for a disk.
"""

import asyncio
import atexit
import gc
import importlib.util
import inspect
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
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
    "shared machine",  # examples have no deadline, because other programs may slow a shared machine
    max_examples=int(os.environ.get("CONNECTOR_TEST_EXAMPLES", "25")),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("shared machine")

LoopFactory = Callable[[], asyncio.AbstractEventLoop] | None

_MEMORY_FOLDER = Path("/dev/shm")
_SESSION_FOLDER: Path | None = None  # all temporary files of the session; the first process makes the folder
if "TMPDIR" not in os.environ and _MEMORY_FOLDER.is_dir() and shutil.disk_usage(_MEMORY_FOLDER).free > 4 << 30:
    _SESSION_FOLDER = Path(tempfile.mkdtemp(prefix="connector-tests-", dir=_MEMORY_FOLDER))
    _SESSION_FOLDER.chmod(0o711)  # so that tests of permissions can reach their folders as another user
    os.environ["TMPDIR"] = tempfile.tempdir = str(_SESSION_FOLDER)

# The processes share compiled modules. Otherwise each process would compile all modules.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Loopback needs no certificates of the machine, which take 20 ms to load at each start and each connection to MySQL.
os.environ |= {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": os.devnull}

atexit.register(gc.unfreeze)  # if objects are frozen when the process ends, DuckDB prints warnings
gc.disable()  # until pytest has collected all tests, because garbage collection took half of the time

_EXIT_STATUS = pytest.StashKey[int]()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile the modules of a new environment in one process, before several processes start. Otherwise each process
    compiles all modules at the same time. With four processes this takes 37 s more CPU time."""
    is_worker, pandas_spec = hasattr(session.config, "workerinput"), importlib.util.find_spec("pandas")
    if is_worker or not session.config.getoption("numprocesses", None) or pandas_spec is None:
        return
    if not Path(importlib.util.cache_from_source(str(pandas_spec.origin))).exists():
        command = (sys.executable, "-m", "pytest", "--collect-only", "--quiet", "--numprocesses=0")
        subprocess.run(command, cwd=session.config.rootpath, stdout=subprocess.DEVNULL, check=False)


_SLOW_FOLDERS = ("simulation", "docs", "pipelines", "export", "sources")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the folders with the slowest files run first. The tests do not depend on their order."""
    rank_by_folder = {name: rank for rank, name in enumerate(_SLOW_FOLDERS)}
    items.sort(key=lambda item: (rank_by_folder.get(item.path.parent.name, len(rank_by_folder)), item.path))


def pytest_collection_finish() -> None:
    """Exclude all loaded objects from garbage collection. The tests of the simulation then take a quarter less time."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in its own event loop."""
    if not asyncio.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    parameters = pyfuncitem.callspec.params if hasattr(pyfuncitem, "callspec") else {}
    with asyncio.Runner(loop_factory=cast("LoopFactory", parameters.get("loop_factory"))) as runner:
        runner.run(pyfuncitem.obj(**arguments))
    return True


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Stop the PostgreSQL server of this process."""
    session.config.stash[_EXIT_STATUS] = exitstatus
    stop_postgres()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the files of the session, unless the session failed."""
    if _SESSION_FOLDER is not None and config.stash.get(_EXIT_STATUS, 1) == 0:
        # The finalizers of multiprocessing run before this finalizer, because their exit priority is -100.
        Finalize(None, shutil.rmtree, (_SESSION_FOLDER, True), exitpriority=-200)


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
