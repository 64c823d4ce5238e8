"""The sandbox of the session, reset before each test, and a client of the sandbox."""

import pytest

from connector.sandbox import SandboxProcess
from tests.sandbox.calls import Calls


@pytest.fixture
def calls(sandbox: SandboxProcess) -> Calls:
    return Calls(sandbox)
