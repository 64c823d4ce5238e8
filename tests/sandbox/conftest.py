"""The sandbox of the run, which is reset before each test, and a plain client."""

import pytest

from connector.sandbox import SandboxProcess
from tests.sandbox.calls import Calls


@pytest.fixture
def calls(sandbox: SandboxProcess) -> Calls:
    return Calls(sandbox)
