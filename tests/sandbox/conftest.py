"""The sandbox of the session, reset before each test, and a client of the sandbox."""

import pytest

from connector.sandbox import SandboxProcess
from tests.sandbox.client import SandboxClient


@pytest.fixture
def client(sandbox: SandboxProcess) -> SandboxClient:
    return SandboxClient(sandbox)
