"""For all tests: one sandbox a process, emptied before each test that asks for it; the longest come first, so that no
process waits for another at the end; what a suite that measures has to say is printed, whichever process found it.
"""

from collections.abc import Iterator

import pytest
from _pytest.terminal import TerminalReporter
from hypothesis import HealthCheck, settings

from connector.sandbox import SandboxProcess
from tests.simulation.summary import print_summary

settings.register_profile("shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared machine")  # how fast it is says nothing of the code

_LONG = ("simulation", "pipelines")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests need no order: the simulation's begin, those that run commands follow."""
    ranks = {name: rank for rank, name in enumerate(_LONG)}
    items.sort(key=lambda item: ranks.get(item.path.parent.name, len(ranks)))


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Tables of what was met."""
    print_summary(terminalreporter)


@pytest.fixture(scope="session")
def session_sandbox() -> Iterator[SandboxProcess]:
    with SandboxProcess() as sandbox:
        yield sandbox


@pytest.fixture
def sandbox(session_sandbox: SandboxProcess) -> SandboxProcess:
    session_sandbox.reset()
    return session_sandbox
