"""One sandbox for this folder's tests, emptied and set back before each."""

from collections.abc import Iterator

import pytest

from connector.sandbox import SandboxProcess


@pytest.fixture(scope="package")
def process() -> Iterator[SandboxProcess]:
    with SandboxProcess() as sandbox:
        yield sandbox


@pytest.fixture
def sandbox(process: SandboxProcess) -> SandboxProcess:
    process.reset()
    return process
