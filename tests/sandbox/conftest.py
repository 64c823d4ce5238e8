"""The sandbox of the run, emptied and set back to its start before each test, and a client that decides nothing."""

import pytest

from connector.sandbox import SandboxProcess
from tests.sandbox.calls import Calls


@pytest.fixture
def calls(sandbox: SandboxProcess) -> Calls:
    return Calls(sandbox)
