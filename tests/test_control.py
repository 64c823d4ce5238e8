"""Work that goes on beside a block."""

import asyncio
from contextlib import suppress

import pytest

from connector.control import work_beside
from connector.errors import LedgerError


async def test_work_that_misses_a_cancellation_is_cancelled_again() -> None:
    missed = 0

    async def work() -> None:
        nonlocal missed
        while True:
            with suppress(LedgerError):
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    missed += 1
                    if missed == 1:  # a transaction's own error comes in place of the cancellation
                        raise LedgerError("the connection was lost") from None
                    raise

    async with asyncio.timeout(30), work_beside(work()):
        await asyncio.sleep(0)
    assert missed == 2


async def test_what_the_work_raises_is_raised_when_the_block_has_ended() -> None:
    async def work() -> None:
        raise LedgerError("the connection was lost")

    has_gone_on = False

    async def block() -> None:
        nonlocal has_gone_on
        async with work_beside(work()):
            await asyncio.sleep(0.01)
            has_gone_on = True

    with pytest.raises(LedgerError, match="was lost"):
        await block()
    assert has_gone_on
