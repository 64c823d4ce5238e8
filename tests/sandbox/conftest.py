"""A client of the sandbox that all tests share. The sandbox is reset before each test."""

import pytest

from connector.sandbox import SandboxProcess
from tests.sandbox.client import SandboxClient


@pytest.fixture
def client(sandbox: SandboxProcess) -> SandboxClient:
    return SandboxClient(sandbox)
