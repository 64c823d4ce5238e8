"""List requests keep the pace that all requests have."""

import asyncio
import time

from connector.pace.rate import RateController
from connector.sandbox import SandboxProcess
from connector.service.client import open_client
from connector.service.settings import Service, Token
from connector.service.wire import ListQuery


async def list_often(sandbox: SandboxProcess, rate: RateController, number: int) -> float:
    """Send so many list requests at once; returns the seconds until the last is answered."""
    async with open_client(Service(sandbox.base_url, Token(sandbox.token)), rate=rate) as client:
        began = time.monotonic()
        await asyncio.gather(*(client.list_subscribers(ListQuery(limit=1)) for _ in range(number)))
        return time.monotonic() - began


def test_list_requests_obey_the_ceiling() -> None:
    with SandboxProcess() as sandbox:
        assert asyncio.run(list_often(sandbox, RateController(20.0), 21)) >= 20 / 20 - 0.01


def test_a_list_request_that_is_refused_shows_the_limit_to_all() -> None:
    with SandboxProcess(rate=5, burst=2) as sandbox:
        rate = RateController()
        asyncio.run(list_often(sandbox, rate, 30))
        assert rate.found is not None
