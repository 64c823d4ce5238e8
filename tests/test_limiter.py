"""Limiters of several bases of one run: each base has a limiter, and the run has one pace."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from connector.control import Stop
from connector.limiter import Answer, RequestLimiter
from connector.pace.pace import Pace
from connector.service.request_counts import RequestCounts
from connector.service.wire import Ambiguous, Created, Refused
from tests.load.sessions import VirtualTime

LIMITED = Refused(429, "slow down")
LIMITED_OTHERWISE = Ambiguous(503, "slow down", 0.5)
CREATED = Created(1, {"Id": 1}, 200)
LONG_S = 200.0  # longer than a run bears nothing but refusals


class Limited:
    """A limiter on virtual time, through which answers are played."""

    def __init__(self, pace: Pace, time: VirtualTime) -> None:
        self.counts = {"create": RequestCounts(), "list": RequestCounts()}
        self.control = Stop(time.clock)
        client = SimpleNamespace(counts=self.counts, quiet_until=float("-inf"))
        self.limiter = RequestLimiter(self.control, cast("Any", client), pace, "create")

    async def play(self, answer: Answer) -> None:
        assert await self.limiter.acquire()
        self.limiter.record_answer(answer, self.control.clock.monotonic())
        self.limiter.release()


def play(*answers: tuple[int, Answer]) -> list[str | None]:
    """Each answer through the limiter of one of two bases, a long time apart; why each base's load has ended."""

    async def run() -> list[str | None]:
        time, pace = VirtualTime(), Pace(max_concurrency=1)
        bases = [Limited(pace, time) for _ in range(2)]
        for base, answer in answers:
            await bases[base].play(answer)
            time.now += LONG_S
        return [shown.control.reason for shown in bases]

    return asyncio.run(run())


def test_refusals_of_one_base_are_no_long_row_where_another_was_served_between() -> None:
    assert play((0, LIMITED), (1, CREATED), (0, LIMITED)) == [None, None]


@pytest.mark.parametrize("limited", [LIMITED, LIMITED_OTHERWISE])
def test_refusals_of_all_bases_are_one_row(limited: Answer) -> None:
    first, second = play((0, limited), (1, limited))
    assert first is None
    assert "kept refusing" in (second or "")
