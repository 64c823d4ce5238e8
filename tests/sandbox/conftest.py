"""One sandbox a test module, emptied and set back to its start before each test."""

from collections.abc import Iterator

import pytest

from connector.sandbox import SandboxProcess
from tests.sandbox.calls import Calls


@pytest.fixture(scope="module")
def process() -> Iterator[SandboxProcess]:
    with SandboxProcess() as sandbox:
        yield sandbox


@pytest.fixture
def calls(process: SandboxProcess) -> Calls:
    process.reset()
    return Calls(process)
