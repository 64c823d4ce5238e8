"""For all tests: one sandbox a process, emptied before each test that asks for it; the longest come first, so that no
process waits for another at the end; what a suite that measures has to say is printed, whichever process found it.

Where memory has room, temporary files are there: what is promised of a disk is not seen without a power cut, and each
of many thousand commits would wait for one.
"""

import asyncio
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
from zlib import crc32

import pytest
from _pytest.terminal import TerminalReporter
from hypothesis import HealthCheck, settings

from connector.sandbox import SandboxProcess
from tests.databases import stop_postgres
from tests.simulation.summary import print_summary
from tests.stores import Bucket, make_bucket, open_s3

settings.register_profile(
    "shared machine",  # how fast it is says nothing about the code
    max_examples=int(os.environ.get("CONNECTOR_TEST_EXAMPLES", "25")),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("shared machine")

LoopFactory = Callable[[], asyncio.AbstractEventLoop] | None

_TESTS = Path(__file__).parent
_MEMORY = Path("/dev/shm")
_FOLDER: Path | None = None  # of all that this session leaves, made by the process that starts the others
if "TMPDIR" not in os.environ and _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > 4 << 30:
    _FOLDER = Path(tempfile.mkdtemp(prefix="connector-tests-", dir=_MEMORY))
    os.environ["TMPDIR"] = tempfile.tempdir = str(_FOLDER)

# Half a dozen processes share what is compiled, of the tests and of the program; else each would compile all of it.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Loopback needs no certificates of the machine: to load them takes 20 ms, at each start and each connection to MySQL.
os.environ |= {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": os.devnull}

gc.disable()  # until all is collected: looking for garbage among what stays took half of that time

_EXIT_STATUS = pytest.StashKey[int]()

_USUAL_CELLS = 4  # one in so many
_CELLS = os.environ.get("CONNECTOR_TEST_CELLS") or str(_USUAL_CELLS)
_FOLDERS_OF_CELLS = ("export", "ledger", "pace", "paging", "pipelines", "sources")  # whose cells take long
_LONG = ("simulation", "docs", "pipelines", "export", "sources")


class _FromAnotherOn(pytest.Package):
    """The folder of all tests, of which each process begins with another part: else, in a new checkout, all of them
    would compile the same file at the same moment, instead of reading what another has compiled."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Its files and folders, from this process's own on, and round."""
        number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
        parts = list(super().collect())
        first = len(parts) * number // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
        return parts[first:] + parts[:first]


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Only the folder of all tests is read otherwise."""
    return _FromAnotherOn.from_parent(parent, path=path) if path == _TESTS else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a run of all tests leave out campaigns and most cells, or run only these. Tests need no order: the folders
    whose files take longest begin."""
    if _CELLS != "rest" and not (_CELLS.isdecimal() and int(_CELLS)):
        raise pytest.UsageError("CONNECTOR_TEST_CELLS is a number of 1 or more, or rest")
    is_named = config.option.keyword or config.option.markexpr or config.getoption("lf", False)
    if _CELLS != "1" and not is_named and all(Path(each).resolve() in (_TESTS, _TESTS.parent) for each in config.args):
        usual = _choose_cells(items, _USUAL_CELLS if _CELLS == "rest" else int(_CELLS))
        chosen = [item for item in items if (item in usual) != (_CELLS == "rest")]
        config.hook.pytest_deselected(items=[*set(items).difference(chosen)])
        items[:] = chosen
    ranks = {name: rank for rank, name in enumerate(_LONG)}
    items.sort(key=lambda item: (ranks.get(item.path.parent.name, len(ranks)), item.path))


def _choose_cells(items: list[pytest.Item], one_of: int) -> set[pytest.Item]:
    """Of the cells in which a claim is tested (databases, formats, stances) about one of so many, by their names, and
    one at the least; no claim that is marked for campaigns."""
    claims: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("campaign") is None:
            claims.setdefault(item.nodeid.partition("[")[0], []).append(item)
    chosen: set[pytest.Item] = set()
    for cells in claims.values():
        is_long = cells[0].path.relative_to(_TESTS).parts[0] in _FOLDERS_OF_CELLS
        numbers = {item: crc32(item.nodeid.encode()) for item in cells}
        least = min(numbers, key=lambda item: numbers[item])
        chosen.update(item for item in cells if not is_long or item is least or numbers[item] % one_of == 0)
    return chosen


def pytest_collection_finish() -> None:
    """What is loaded by now is never garbage: the tests of the simulation take a quarter less."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine to its end, in a loop of its own."""
    if not asyncio.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    with asyncio.Runner(loop_factory=cast("LoopFactory", pyfuncitem.funcargs.get("loop_factory"))) as runner:
        runner.run(pyfuncitem.obj(**given))
    return True


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Each process of the session ends its own server, and lets go of all."""
    session.config.stash[_EXIT_STATUS] = exitstatus
    stop_postgres()
    gc.unfreeze()  # DuckDB complains of what it finds left at the end


def pytest_unconfigure(config: pytest.Config) -> None:
    """What killed commands and browsers left goes, but for a session that failed."""
    if _FOLDER is not None and config.stash.get(_EXIT_STATUS, 1) == 0:
        Finalize(None, shutil.rmtree, (_FOLDER, True), exitpriority=-200)  # after multiprocessing's own folder, of -100


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Tables of what was met."""
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
